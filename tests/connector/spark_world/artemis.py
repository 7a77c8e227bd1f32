"""Spark from a queue of ActiveMQ Artemis, as processes that a test may kill."""

from __future__ import annotations

from pathlib import Path

from proton import Message
from proton.reactor import Copy
from proton.utils import BlockingConnection

from connector.amqp10.brokers import Artemis
from spark_world.rabbit import RabbitWorld
from tests.patience import PATIENCE_S


class ArtemisNode:
    """One node, for faults; see `crash_faults.Broker`."""

    name = "artemis"

    def __init__(self, broker: Artemis) -> None:
        self.broker = broker

    def ports(self) -> list[int]:
        """Return its port."""
        return [self.broker.port]

    def kill_a_node(self, rng: object) -> object:
        """Kill it; return what starts it again."""
        self.broker.kill()
        return self.broker.restart

    def kill_the_leader(self, queue: str) -> object:
        """Kill it: there is one."""
        return self.kill_a_node(None)

    def world(self, directory: Path) -> ArtemisWorld:
        """Return queues of their own."""
        return ArtemisWorld(self.broker, directory)


class ArtemisWorld(RabbitWorld):
    """Queues of Artemis, and a directory for checkpoint, spool and Parquet files."""

    def __init__(self, broker: Artemis, directory: Path) -> None:
        self._broker = broker
        super().__init__(broker.hosts, directory)

    def _declare(self, name: str) -> None:
        self._broker.create(name)

    def publish(self, count: int) -> None:
        """Publish numbered messages, each accepted; every second one has an id."""
        made = BlockingConnection(f"amqp://guest:guest@{self._broker.hosts}", timeout=PATIENCE_S)
        try:
            sender = made.create_sender(self.queue)
            for number in range(len(self.bodies), len(self.bodies) + count):
                self.bodies.append(b"message %06d" % number)
                named = f"id-{number}" if number % 2 else None
                body = self.bodies[-1]
                sender.send(Message(body=body, durable=True, inferred=True, id=named))
        finally:
            made.close()

    def counts(self) -> tuple[int, int]:
        """Return the queue's messages and consumers."""
        return self._broker.count(self.queue)

    def published(self, queue: str = "") -> list[tuple[bytes, str | None]]:
        """Return body and message_id of what is in the target, or a queue; it stays there."""
        name = queue or self.target
        count, _ = self._broker.count(name)
        made = BlockingConnection(f"amqp://guest:guest@{self._broker.hosts}", timeout=PATIENCE_S)
        try:
            looking = made.create_receiver(name, credit=max(1, count), options=Copy())
            found = [looking.receive(PATIENCE_S) for _ in range(count)]
        finally:
            made.close()
        return [(bytes(each.body), each.id) for each in found]
