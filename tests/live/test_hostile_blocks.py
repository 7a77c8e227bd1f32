"""Blocks that no AMQP 0.9.1 client could have sent, to a cluster of three.

Three such messages ended the processes of two nodes within seconds: the leader of a queue with a
dead letter exchange read properties that were never checked. Without one they ended the
connection of every consumer that they came to.
"""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from live.conftest import Broker, eventually
from warren.connection import Connection
from warren.errors import WarrenError
from warren.outgoing import BlockSender
from warren.stages import SinkDriver, StageWriter
from warren_wire.amqp091.properties import Properties
from warren_wire.amqp091.properties import encode as encode_properties
from warren_wire.block.block import encode

pytestmark = pytest.mark.live
DRIVER = SinkDriver("sink", "run", 1)
PLAIN = encode_properties(Properties(delivery_mode=2))
NO_UTF8 = b"\x01\x00\x03\xff\xfe1"
HOSTILE = {
    "no property bytes": b"",
    "an expiration that is no UTF-8": NO_UTF8,
    "a table beyond the end": b"\x20\x00\x00\x00\x00\x09\x01aV",
}


def refused(connection: Connection, target: str, block: bytes) -> WarrenError:
    """Send it; what it was refused with."""
    found: list[WarrenError | None] = []
    sender = BlockSender(connection, lambda number: target, window_bytes=1 << 20, raising=False)
    sender.send(block, lambda outgoing: found.append(outgoing.error))
    sender.flush()
    sender.close()
    assert found and found[0] is not None, found
    return found[0]


def test_they_are_refused_and_every_node_goes_on(broker: Broker, queue_name: str) -> None:
    if broker.cluster is None:
        pytest.skip("blocks are Warren's own")
    dead = f"{queue_name}.dead"
    pids = [broker.cluster.pid(node) for node in range(3)]
    with broker.connect() as amqp, Connection(broker.uri) as connection:
        channel = amqp.channel()
        channel.confirm_delivery()
        channel.queue_declare(dead, durable=True)
        channel.queue_declare(
            queue_name,
            durable=True,
            arguments={
                "x-queue-type": "quorum",
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": dead,
                "x-message-ttl": 500,
            },
        )
        channel.basic_publish("", queue_name, b"good", pika.BasicProperties(delivery_mode=2))
        route = (b"", queue_name.encode())
        for raw in HOSTILE.values():
            for properties in ([raw], [raw, PLAIN], [PLAIN, raw]):
                block = encode([b"bad"] * len(properties), properties, route)
                refused(connection, f"/queues/{queue_name}/blocks", block)
                refused(connection, "/exchanges//blocks", block)
                with StageWriter(connection, DRIVER, batch=1, partition=0) as writer:
                    with pytest.raises(WarrenError):
                        writer.write(block)
                        writer.finish()
        channel.basic_publish("", queue_name, b"after", pika.BasicProperties(delivery_mode=2))
        eventually(
            lambda: channel.queue_declare(dead, passive=True).method.message_count == 2,
            "the good messages expired",
        )
        bodies = [channel.basic_get(dead, auto_ack=True)[2] for _ in range(2)]
        assert bodies == [b"good", b"after"]
        channel.queue_delete(dead)
    assert [broker.cluster.pid(node) for node in range(3)] == pids, "a node ended"
    for node in broker.cluster.nodes:
        assert "Traceback" not in Path(node.log_file).read_text()
