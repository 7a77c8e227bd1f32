"""A query with messages that make it fail, on a real broker; see `query`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pika

from connector.amqp.query import EMPTY_S, Died, NodePort, Query, Queue, has_receiver

FAILURES_MAX = 60


class Failed(Exception):
    """The query's own code raised."""


class PoisonQueue(Queue):
    """A quorum queue with a queue of dead letters.

    limit  its delivery limit; 0: none
    """

    def __init__(self, broker: NodePort, limit: int = 0) -> None:
        super().__init__(broker)
        self.delete()
        self.dead = f"dead-{self.name}"
        arguments: dict[str, object] = {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.dead,
        }
        if limit:
            arguments["x-delivery-limit"] = limit
        with broker.connect() as connection:
            channel = connection.channel()
            channel.queue_declare(self.dead, durable=True)
            channel.queue_declare(self.name, durable=True, arguments=arguments)

    def has_letters(self) -> bool:
        """Whether a message was dead-lettered."""
        with self.broker.connect() as connection:
            found = connection.channel().queue_declare(self.dead, passive=True)
            return bool(found.method.message_count)

    def letters(self, wanted: int) -> list[tuple[bytes, str]]:
        """Return body and reason of the dead letters, once there are so many; they are taken."""
        found: list[tuple[bytes, str]] = []
        deadline = time.monotonic() + EMPTY_S
        with self.broker.connect() as connection:
            channel = connection.channel()
            while len(found) < wanted and time.monotonic() < deadline:
                found += self._taken(channel)
                time.sleep(0.05)
            time.sleep(0.5)
            return found + self._taken(channel)

    def _taken(
        self, channel: pika.adapters.blocking_connection.BlockingChannel
    ) -> list[tuple[bytes, str]]:
        found: list[tuple[bytes, str]] = []
        while True:
            method, properties, body = channel.basic_get(self.dead, auto_ack=True)
            if method is None:
                return found
            found.append((body, properties.headers["x-death"][0]["reason"]))


class PoisonQuery(Query):
    """A query that fails on some bodies, and a sink that runs no task of a batch that it has.

    So does Spark's file sink. A run that fails, or a driver that dies, leaves its logs.

    down  the sink takes nothing
    """

    def __init__(self, queue: PoisonQueue, directory: Path, bad: set[bytes], **more: str) -> None:
        given = {
            "onBatchFailure": "reject",
            "dropRejected": "true",
            "isolatePoison": "true",
            "batchTriesMax": "2",
            **more,
        }
        if given["onBatchFailure"] != "reject":
            del given["dropRejected"]
        super().__init__(queue, directory, **given)
        self.bad = bad
        self.down = False
        self.letters_queue = queue
        self.backlog: dict[str, object] = {}

    def _batch(self, number: int) -> None:
        assert self.driver is not None
        parts = self.driver.plan(*self.offsets[number])
        if number not in self.sink:
            rows = self._read(parts)
            if rows and (self.down or self.bad & {body for body, _ in rows}):
                raise Failed
            self.sink[number] = rows
        self._pass("written")
        self.commits = number + 1
        self._pass("commit_log")

    def fails(self, most: int) -> bool:
        """Run it once; return whether it failed."""
        try:
            self.run(most)
        except Failed:
            return True
        finally:
            if self.driver is not None:
                self.backlog = self.driver.backlog() or {}
            self.stop()
        return False

    def failures(self, most: int) -> int:
        """Start it until it does not fail; return how often it did."""
        count = 0
        while self.fails(most):
            count += 1
            assert count < FAILURES_MAX
        return count

    def killed(self, step: str, most: int, with_receiver: bool) -> bool:
        """Run it with a driver that dies at that step; return whether it came to that.

        with_receiver  SIGKILL for the receiver, too: it acknowledges nothing more
        """
        self.die_at = (step, 0)
        try:
            self.run(most)
        except Died:
            if with_receiver and has_receiver(self.driver):
                os.kill(self.pid, signal.SIGKILL)
            return True
        except Failed:
            pass
        finally:
            self.die_at = None
            self.stop()
        return False

    @property
    def written(self) -> list[bytes]:
        """What the sink has of committed batches."""
        return [body for number in range(self.commits) for body, _ in self.sink[number]]

    def check_poison(self, reason: str = "rejected") -> None:
        """The messages at fault are dead-lettered once, every other one is written once."""
        out = self.written
        lost = set(self.queue.bodies) - self.bad - set(out)
        assert (sorted(lost), len(out) - len(set(out))) == ([], 0)
        assert not self.bad & set(out)
        letters = self.letters_queue.letters(len(self.bad))
        assert sorted(letters) == sorted((body, reason) for body in self.bad), letters
        self.queue.check_empty()
