"""Which consumer timeout holds, and the warning about a consumer that exceeds it."""

from __future__ import annotations

import time
from typing import Any

import pika
import pytest

from live.conftest import eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster

pytestmark = pytest.mark.live

LONG_MS = 600_000


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


@pytest.mark.parametrize(
    ("queue_ms", "policy_ms", "consumer_ms", "expected_ms"),
    [
        (400, LONG_MS, None, 400),  # the shorter one of argument and policy
        (LONG_MS, 410, None, 410),
        (None, 420, None, 420),
        (LONG_MS, LONG_MS, 430, 430),  # a consumer's own goes before both
    ],
)
@pytest.mark.specification(
    "quorum-queues: Warnings are logged when a consumer timeout occurs",
    "quorum-queues: Set when creating a consumer to apply",
)
def test_the_shorter_of_argument_and_policy_holds_unless_the_consumer_has_its_own(
    cluster: LocalCluster,
    queue_ms: int | None,
    policy_ms: int,
    consumer_ms: int | None,
    expected_ms: int,
) -> None:
    queue, tag = f"timeouts.{expected_ms}", f"tag {expected_ms}"
    with Connection(cluster.address) as connection:
        rule = {"consumer-timeout": policy_ms, "consumer-disconnected-timeout": 7_000}
        Admin(connection).policies.put("/", "timeouts", "^timeouts", rule, apply_to="queues")
    channel = connect(cluster).channel()
    arguments = {} if queue_ms is None else {"x-consumer-timeout": queue_ms}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.basic_publish("", queue, b"slow")
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(cancelled.append)
    own = {} if consumer_ms is None else {"x-consumer-timeout": consumer_ms}
    begun = time.monotonic()
    channel.basic_consume(queue, lambda *_: None, consumer_tag=tag, arguments=own)
    deadline = time.monotonic() + PATIENCE_S
    while not cancelled and time.monotonic() < deadline:
        channel.connection.process_data_events(0.05)
    assert cancelled, "the consumer is cancelled"
    assert time.monotonic() - begun >= expected_ms / 1000
    assert channel.basic_get(queue)[2] == b"slow", "the message is back"
    eventually(lambda: warned(cluster, tag), "a warning about the consumer")
    (line,) = warned(cluster, tag)
    assert "WARNING" in line and "127.0.0.1:" in line and "user 'guest'" in line
    assert f"queue '{queue}'" in line and f"timeout used: {expected_ms} ms" in line
    channel.queue_delete(queue)
    channel.connection.close()


def connect(cluster: LocalCluster) -> pika.BlockingConnection:
    host, port = cluster.address.hosts[0]
    return pika.BlockingConnection(pika.ConnectionParameters(host, port))


def warned(cluster: LocalCluster, tag: str) -> list[str]:
    """The lines of the log about that consumer's timeout."""
    return [
        line
        for line in cluster.log(0).splitlines()
        if "has timed out" in line and f"consumer '{tag}'" in line
    ]
