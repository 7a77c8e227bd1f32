"""Two nodes on each of three machines: a queue is on all three, and outlives one of them.

A machine is the host of an address, here 127.0.0.1, 127.0.0.2 and 127.0.0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pika.exceptions import AMQPError

from live.conftest import eventually
from live.load import connect
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]
MACHINES = 3
EACH = 2
QUEUES = 12
QUORUM = {"x-queue-type": "quorum"}


def machine(node: int) -> int:
    """The machine of a node: 0, 1, 2, 0, 1, 2."""
    return node % MACHINES


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Six nodes that reach each other at three addresses."""
    made = LocalCluster(nodes=MACHINES * EACH, directory=tmp_path)
    for node in made.nodes:
        text = node.config_file.read_text()
        for number, other in enumerate(made.nodes):
            port = other.peers_port
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.{machine(number) + 1}:{port}")
        node.config_file.write_text(text)
    with made:
        yield made


def machines(cluster: LocalCluster) -> dict[str, set[int]]:
    """The machines of each queue's members."""
    numbers = {node.name: number for number, node in enumerate(cluster.nodes)}
    with Connection(cluster.node_address(0)) as connection:
        return {
            queue.name: {machine(numbers[node]) for node in queue.replicas}
            for queue in Admin(connection).queues.list()
        }


def without_error(call: Callable[[], None]) -> Callable[[], bool]:
    """Whether a call succeeds, which no client can expect while a node is being suspected."""

    def succeeds() -> bool:
        try:
            call()
        except AMQPError:
            return False
        return True

    return succeeds


def test_members_are_on_separate_machines_and_one_machine_may_die(cluster: LocalCluster) -> None:
    for number in range(QUEUES):
        with connect(cluster, number % len(cluster.nodes)) as connection:
            connection.channel().queue_declare(f"q{number}", durable=True, arguments=QUORUM)
    found = machines(cluster)
    assert len(found) == QUEUES
    assert all(at == set(range(MACHINES)) for at in found.values()), found
    for number in range(len(cluster.nodes)):
        if machine(number) == 1:
            cluster.kill(number)

    def all_confirm() -> None:
        with connect(cluster, 0) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(QUEUES):
                channel.basic_publish("", f"q{number}", b"after the machine died")

    eventually(without_error(all_confirm), "each queue confirms a message")


def test_a_queue_is_declared_while_a_machine_is_down(cluster: LocalCluster) -> None:
    for number in (2, 5):
        cluster.kill(number)

    def declare() -> None:
        with connect(cluster, 0) as connection:
            connection.channel().queue_declare("late", durable=True, arguments=QUORUM)

    eventually(without_error(declare), "the queue is declared")
    assert machines(cluster)["late"] == set(range(MACHINES))
