"""Where a node accepts messages above 16 MiB, each part of it and of its clients does."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

from live.conftest import DEADLINE_S
from warren import Producer
from warren.claims import browse
from warren.errors import TooLarge
from warren.local import LocalCluster

pytestmark = pytest.mark.live
LIMIT = 33 << 20
LARGEST = bytes(LIMIT)
NAME = "large"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"limits": {"message_size_max": LIMIT}}
    directory = tmp_path_factory.mktemp("large")
    with LocalCluster(nodes=1, directory=directory, settings=settings) as cluster:
        yield cluster


def test_a_producer_refused_what_the_node_accepts(node: LocalCluster) -> None:
    parameters = pika.URLParameters(f"amqp://guest:guest@{node.addresses[0]}/%2F")
    parameters.socket_timeout = parameters.blocked_connection_timeout = DEADLINE_S
    with pika.BlockingConnection(parameters) as client, node.connect() as connection:
        channel = client.channel()
        channel.confirm_delivery()
        channel.queue_declare(NAME, durable=True)
        channel.basic_publish("", NAME, LARGEST)
        producer = Producer(connection)
        producer.send(LARGEST, NAME).wait(DEADLINE_S)
        sizes = [len(piece.data) for piece in browse(connection, NAME, 10)]
        assert len(sizes) == 2 and min(sizes) > LIMIT
        refused = producer.send(bytes(LIMIT + 1), NAME)
        with pytest.raises(TooLarge, match=f"{LIMIT + 1} bytes: at most {LIMIT} are allowed"):
            refused.wait(DEADLINE_S)
        for _ in range(2):
            _, _, body = channel.basic_get(NAME, auto_ack=True)
            assert body == LARGEST
        assert channel.basic_get(NAME)[0] is None


def test_a_node_says_its_own_limit_and_not_the_clients(node: LocalCluster) -> None:
    with node.connect() as connection:
        producer = Producer(connection)
        with pytest.raises(TooLarge, match="no node takes more than 54525952"):
            producer.send(bytes((52 << 20) + 1), NAME)
