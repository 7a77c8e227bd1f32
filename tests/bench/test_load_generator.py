"""The load generator against one node: its counts, and that it reports every kind of fault."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from bench import generator
from bench.peers import WarrenTls
from warren.local import LocalCluster

pytestmark = [pytest.mark.live]
MESSAGES = 5_000


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return generator.find()
    except generator.Missing as missing:
        if os.environ.get("CI") or os.environ.get("WARREN_STRICT"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as cluster:
        yield cluster


@pytest.fixture
def channel(cluster: LocalCluster) -> Iterator[BlockingChannel]:
    """Another client's channel, which confirms what it publishes."""
    _, port = cluster.address.hosts[0]
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def fill(program: Path, cluster: LocalCluster, queue: str, **options: int) -> dict[str, object]:
    return generator.run(program, "fill", targets=cluster.hosts, queue=queue, **options)


def drain(
    program: Path, cluster: LocalCluster, queue: str, expect: int, **options: int
) -> dict[str, object]:
    return generator.run(
        program, "drain", targets=cluster.hosts, queue=queue, expect=expect, idle_end=2, **options
    )


def take(channel: BlockingChannel, queue: str) -> bytes:
    """Remove the queue's first message."""
    frame, _, body = channel.basic_get(queue, auto_ack=True)
    assert frame is not None
    return body


@pytest.mark.parametrize("size", [16, 31, 32, 100, 300_000])
def test_what_was_filled_is_drained(program: Path, cluster: LocalCluster, size: int) -> None:
    count = MESSAGES if size <= 100 else 50
    filled = fill(program, cluster, f"whole-{size}", count=count, size=size, pubs=3)
    assert filled["confirmed"] == filled["published"] == count and not generator.faults(filled)
    drained = drain(program, cluster, f"whole-{size}", count)
    assert drained["delivered"] == drained["distinct"] == drained["acked"] == count
    assert generator.faults(drained) == ""


def test_a_message_that_is_gone_is_lost(
    program: Path, cluster: LocalCluster, channel: BlockingChannel
) -> None:
    fill(program, cluster, "gone", count=MESSAGES)
    take(channel, "gone")
    assert generator.faults(drain(program, cluster, "gone", MESSAGES)) == "1 lost"
    fill(program, cluster, "gone", count=10)
    take(channel, "gone")
    assert generator.faults(drain(program, cluster, "gone", 0)) == "1 lost", "by its gap"


def test_a_message_that_comes_twice_is_a_duplicate(
    program: Path, cluster: LocalCluster, channel: BlockingChannel
) -> None:
    fill(program, cluster, "twice", count=10)
    body = take(channel, "twice")
    for _ in range(2):
        channel.basic_publish("", "twice", body)
    found = generator.faults(drain(program, cluster, "twice", 10))
    assert found == "1 duplicates, 1 order_violations", "it also came after the last one"


def test_a_message_that_was_changed_is_damaged(
    program: Path, cluster: LocalCluster, channel: BlockingChannel
) -> None:
    fill(program, cluster, "damaged", count=10)
    first, second, third = (take(channel, "damaged") for _ in range(3))
    channel.basic_publish("", "damaged", first[:-1] + bytes([first[-1] ^ 1]))
    channel.basic_publish("", "damaged", second[:-1])
    channel.basic_publish("", "damaged", third[:16] + bytes([third[16] ^ 8]) + third[17:])
    channel.basic_publish("", "damaged", b"")
    assert generator.faults(drain(program, cluster, "damaged", 10)) == "3 lost, 4 bad_bodies"


def test_messages_in_another_order_are_counted(
    program: Path, cluster: LocalCluster, channel: BlockingChannel
) -> None:
    fill(program, cluster, "order", count=10)
    channel.basic_publish("", "order", take(channel, "order"))
    assert generator.faults(drain(program, cluster, "order", 10)) == "1 order_violations"


def test_each_priority_keeps_its_order(
    program: Path, cluster: LocalCluster, channel: BlockingChannel
) -> None:
    fill(program, cluster, "priorities", count=12, priorities=3)
    first = channel.basic_get("priorities", auto_ack=True)
    assert first[1].priority == 2, "the highest comes first"
    channel.basic_publish("", "priorities", first[2], pika.BasicProperties(priority=2))
    drained = drain(program, cluster, "priorities", 12, priorities=3)
    assert generator.faults(drained) == "1 order_violations", "that one, and no other priority"


def test_a_short_body_that_was_changed_is_damaged(
    program: Path, cluster: LocalCluster, channel: BlockingChannel
) -> None:
    fill(program, cluster, "short", count=3, size=16)
    body = take(channel, "short")
    for at in (0, 5, 9, 15):
        changed = bytearray(body)
        changed[at] ^= 4
        channel.basic_publish("", "short", bytes(changed))
    assert generator.faults(drain(program, cluster, "short", 3)) == "1 lost, 4 bad_bodies"


def test_publishing_and_consuming_at_once(program: Path, cluster: LocalCluster) -> None:
    report = generator.run(
        program,
        "pubsub",
        targets=cluster.hosts,
        queue="both",
        time=1,
        warmup=0.5,
        watch=cluster.pid(0),
        delete_after=True,
    )
    assert generator.faults(report) == ""
    assert report["confirmed"] == report["distinct"] > 0
    assert 0 < report["confirm_ms"]["p50"] <= report["confirm_ms"]["p99"]
    assert report["cpu"]["watched_cores"] > 0 and report["cpu"]["watched"][0]["rss_mb"] > 1
    again = generator.run(program, "drain", targets=cluster.hosts, queue="both", no_declare=True)
    assert again["errors"] == 1 and "404" in again["last_error"], "it was deleted"


def test_a_rate_is_kept(program: Path, cluster: LocalCluster) -> None:
    """Not a count within a time: what was late is caught up."""
    rate, count = 200, 400
    began = time.monotonic()
    filled = fill(program, cluster, "slow", rate=rate, count=count, pubs=2)
    took = time.monotonic() - began
    assert filled["confirmed"] == count and not generator.faults(filled)
    last_due = (count / 2 - 1) * 2 / rate
    assert last_due <= took < 30, "each publisher's last one is not sent before it is due"


def test_declaring_many_queues_is_timed(program: Path, cluster: LocalCluster) -> None:
    declared = generator.run(program, "declare", targets=cluster.hosts, queue="many", queues=20)
    assert declared["queues"] == 20 and declared["p50_ms"] <= declared["p99_ms"]
    generator.run(program, "delete", targets=cluster.hosts, queue="many", queues=20)


def test_what_cannot_be_run_says_why(program: Path, cluster: LocalCluster) -> None:
    with pytest.raises(RuntimeError, match="from 16"):
        fill(program, cluster, "refused", size=8)
    with pytest.raises(RuntimeError, match="127.0.0.1:1"):
        generator.run(program, "fill", targets="127.0.0.1:1", queue="refused")


@pytest.mark.parametrize("size", [16, 300, 100_000])
def test_over_amqp_1_0_what_was_filled_is_drained(
    program: Path, cluster: LocalCluster, size: int
) -> None:
    queue, count = f"amqp10-{size}", MESSAGES if size < 1_000 else 50
    ids = size == 300
    filled = fill(program, cluster, queue, count=count, size=size, pubs=3, amqp10=True, ids=ids)
    assert filled["confirmed"] == filled["published"] == count and not generator.faults(filled)
    drained = drain(program, cluster, queue, count, amqp10=True, ack_every=7, prefetch=50)
    assert drained["delivered"] == drained["distinct"] == drained["acked"] == count
    assert generator.faults(drained) == ""
    again = drain(program, cluster, queue, 0, amqp10=True)
    assert again["delivered"] == 0, "the broker has taken every disposition"


def test_over_amqp_1_0_faults_are_found(
    program: Path, cluster: LocalCluster, channel: BlockingChannel
) -> None:
    fill(program, cluster, "faults10", count=10, amqp10=True)
    take(channel, "faults10")
    body = take(channel, "faults10")
    for each in (body, body, body[:-1] + bytes([body[-1] ^ 1])):
        channel.basic_publish("", "faults10", each)
    found = generator.faults(drain(program, cluster, "faults10", 10, amqp10=True))
    assert found == "1 lost, 1 duplicates, 1 order_violations, 1 bad_bodies"
    generator.run(program, "delete", targets=cluster.hosts, queue="faults10")
    gone = drain(program, cluster, "faults10", 10, amqp10=True, no_declare=True)
    assert gone["errors"] == 1 and "amqp:not-found" in str(gone["last_error"])


def test_over_tls_what_was_filled_is_drained(program: Path) -> None:
    if not Path("/usr/include/openssl/ssl.h").exists():
        assert "WARREN_STRICT" not in os.environ, "no OpenSSL headers: apt-get install libssl-dev"
        pytest.skip("needs libssl-dev")
    with WarrenTls() as node:
        both = {"targets": node.targets(), "queue": "tls", "tls": True}
        filled = generator.run(program, "fill", count=MESSAGES, size=300, pubs=2, **both)
        assert filled["confirmed"] == MESSAGES and not generator.faults(filled)
        drained = generator.run(program, "drain", expect=MESSAGES, idle_end=2, **both)
        assert drained["delivered"] == MESSAGES and generator.faults(drained) == ""
        assert node.cluster is not None
        with pytest.raises(RuntimeError, match="no TLS"):
            plain = node.cluster.hosts
            generator.run(program, "fill", targets=plain, queue="tls", count=1, tls=True)
