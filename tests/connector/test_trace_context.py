"""W3C's trace context from a queue through Spark to a queue, over both protocols and brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection

from connector.channels import channel_of
from tests.pages import placed, python_blocks
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
CONTEXT = {"traceparent": PARENT, "tracestate": STATE}


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


def recipe(cluster: LocalCluster, place: Path, source: str, target: str, amqp: bool) -> list[str]:
    """The page's blocks, from one queue to another."""
    page = "how-to/decode.md"
    found = (python_blocks(page, "")[0], *python_blocks(page, "Trace context"))
    texts = [placed(page, each, hosts=cluster.hosts, place=str(place)) for each in found]
    texts = [each.replace("flights.enriched", target) for each in texts]
    named = f'.option("queue", "{source}")'
    texts = [each.replace('.option("queue", "flights")', named) for each in texts]
    if amqp:
        spool = f'{named}.option("spoolLocation", "{place}/spool")'
        texts = [each.replace(named, spool) for each in texts]
        texts = [each.replace("where = {", 'where = {"broker": "amqp", ') for each in texts]
    assert source in texts[0] and target in texts[-1]
    return texts


@contextmanager
def proton(cluster: LocalCluster) -> Iterator[BlockingConnection]:
    """A connection over AMQP 1.0, closed in the end."""
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{cluster.nodes[0].amqp_port}",
        user="guest",
        password="guest",
        allowed_mechs="PLAIN",
        timeout=PATIENCE_S,
    )
    try:
        yield connection
    finally:
        connection.close()


def publish(cluster: LocalCluster, queue: str) -> None:
    """Two messages over 0.9.1, two over 1.0, and one with nothing but annotations."""
    properties = pika.BasicProperties(headers={**CONTEXT, "tries": 7})
    with channel_of(cluster) as opened:
        for body in (b"a", b"b"):
            opened.basic_publish("", queue, body, properties)
    annotations = {symbol("x-opt-span"): "kept", symbol("traceparent"): PARENT}
    with proton(cluster) as connection:
        sender = connection.create_sender(f"/queues/{queue}")
        for body in (b"c", b"d"):
            sender.send(
                Message(body=body, inferred=True, properties=CONTEXT, annotations=annotations)
            )
        sender.send(Message(body=b"e", inferred=True, annotations=annotations))


def taken(cluster: LocalCluster, queue: str) -> tuple[dict[bytes, Any], list[Any]]:
    """Headers or application properties by body, of three messages over 0.9.1 and two over 1.0;
    and the annotations of these."""
    arrived: dict[bytes, Any] = {}
    with channel_of(cluster) as opened:
        for _ in range(3):
            _, properties, body = opened.basic_get(queue, auto_ack=True)
            arrived[body] = properties.headers or {}
    shown = []
    with proton(cluster) as connection:
        receiver = connection.create_receiver(f"/queues/{queue}", credit=5)
        for _ in range(2):
            message = receiver.receive()
            arrived[bytes(message.body)] = message.properties or {}
            shown.append(message.annotations)
            receiver.accept()
    return arrived, shown


@pytest.mark.parametrize("amqp", [False, True], ids=["warren", "amqp"])
def test_a_trace_continues_behind_spark(
    spark: Any, cluster: LocalCluster, tmp_path: Path, amqp: bool
) -> None:
    names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("flights", "enriched")]
    with cluster.connect() as connection:
        for name in names:
            Admin(connection).queues.declare(name, arguments={"x-queue-type": "quorum"})
    source, target = names
    publish(cluster, source)
    run: dict[str, Any] = {"spark": spark}
    for text in recipe(cluster, tmp_path, source, target, amqp):
        exec(text, run)
    arrived, shown = taken(cluster, target)

    assert sorted(arrived) == [b"a", b"b", b"c", b"d", b"e"]
    spans = set()
    for body in (b"a", b"b", b"c", b"d"):
        assert arrived[body]["tracestate"] == STATE
        version, trace, span, flags = arrived[body]["traceparent"].split("-")
        assert (version, trace, flags) == ("00", TRACE, "01")
        assert len(span) == 16 and int(span, 16)
        spans.add(span)
    assert len(spans) == 4 and PARENT.split("-")[2] not in spans
    assert arrived[b"a"]["tries"] == 7
    # An annotation of another name than x-… has no place in a row: docs/how-to/decode.md.
    assert "traceparent" not in arrived[b"e"]
    assert all(symbol("traceparent") not in each for each in shown)


def test_annotations_and_a_trace_as_they_came(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    """A query that passes the column on has the publisher's span, and annotations x-…, too."""
    names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("flights", "copies")]
    with cluster.connect() as connection:
        for name in names:
            Admin(connection).queues.declare(name, arguments={"x-queue-type": "quorum"})
    source, target = names
    publish(cluster, source)
    run: dict[str, Any] = {"spark": spark}
    exec(recipe(cluster, tmp_path, source, target, amqp=False)[0], run)
    copied = run["flights"].select("body", "headers").selectExpr("*", f"'{target}' AS routing_key")
    run["write"](copied, str(tmp_path / "copied"))
    arrived, shown = taken(cluster, target)
    for body in (b"a", b"b", b"c", b"d"):
        assert {name: arrived[body][name] for name in CONTEXT} == CONTEXT
    assert [each[symbol("x-opt-span")] for each in shown] == ["kept", "kept"]
