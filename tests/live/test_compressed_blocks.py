"""Blocks that are compressed on their way in come out as they went in."""

from __future__ import annotations

import json
from pathlib import Path

import pika

from tests.live.conftest import DEADLINE_S, Broker, eventually
from tests.wal_records import records_held
from warren import Admin, Connection
from warren.local import LocalCluster

MESSAGES = 2_000


def a_body(number: int) -> bytes:
    row = {f"a name that comes again {key}": number * key for key in range(30)}
    return json.dumps({"number": number, **row}).encode()


def take(broker: Broker, node: int, count: int) -> list[tuple[bytes, str | None]]:
    """Messages from the head of the queue, acknowledged when all have come and no more can.

    Not one by one: what pika has beyond them it rejects before it cancels, so that some of it is
    delivered to the same consumer again, and comes back behind the rest.
    """
    with broker.connect(node) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=count)
        found = []
        for method, properties, body in channel.consume("packed", inactivity_timeout=DEADLINE_S):
            assert method is not None, f"{len(found)} of {count} came"
            found.append((body, properties.message_id))
            if len(found) == count:
                break
        channel.cancel()
        channel.basic_ack(method.delivery_tag, multiple=True)
        return found


def test_published_on_one_node_consumed_on_others_after_a_restart_too(tmp_path: Path) -> None:
    settings = {"queues": {"compress_bytes_min": 512}}
    expected = [(a_body(number), str(number)) for number in range(MESSAGES)]
    with LocalCluster(nodes=3, directory=tmp_path, settings=settings) as cluster:
        uris = tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses)
        broker = Broker(uris, cluster)
        with broker.connect(0) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("packed", durable=True, arguments={"x-queue-type": "quorum"})
            confirmed = connection.channel()
            for body, name in expected:
                confirmed.basic_publish(
                    "", "packed", body, pika.BasicProperties(message_id=name, delivery_mode=2)
                )
            confirmed.close()  # what was published before it has arrived
            channel.basic_publish("", "packed", b"last", pika.BasicProperties(message_id="last"))
        stored = records_held(tmp_path)
        assert stored < 3 * sum(len(body) for body, _ in expected) * 0.7, stored
        assert take(broker, 0, 500) == expected[:500]
        assert take(broker, 1, 500) == expected[500:1000]
        # An acknowledgement is not answered: one that was under way is lost with all nodes.
        left = MESSAGES - 1000 + 1
        admin = Admin(Connection(cluster.uri))

        def acknowledged() -> bool:
            found = admin.queues.get("packed")
            return (found.messages_ready, found.messages_unacknowledged) == (left, 0)

        eventually(acknowledged, "all is acknowledged")
        admin.connection.close()
        for node in range(3):
            cluster.kill(node)
        for node in range(3):
            cluster.start(node)
        assert take(broker, 2, MESSAGES - 1000 + 1) == [*expected[1000:], (b"last", "last")]
