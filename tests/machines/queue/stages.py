"""The commands of staged publishing, as a driver sends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.machines.queue.world import Queue, block
from warren_machines.queue.commands import AnyCommand, Done, SinkPublish, SinkStage


def half_expired(put: Callable[..., Any]) -> Queue:
    """A queue with a batch of two stages, the first of which has expired."""
    queue = Queue()
    put(queue, 0, 0, ttl_ms=100)
    put(queue, 0, 1)
    queue.tick(100)
    assert queue.stat().messages_staged == 2
    return queue


@dataclass(frozen=True)
class Stages:
    """The commands as a sink's driver sends them, and the digest of each of its attempts."""

    sink: str = "s"
    run: str = "r"
    epoch: int = 1
    digest: int = 100

    def stage(
        self, batch: int, partition: int, attempt: int = 0, ttl_ms: int = 0, seq: int = 0
    ) -> AnyCommand:
        return SinkStage(
            self.sink,
            self.run,
            self.epoch,
            batch,
            partition,
            attempt,
            self.digest,
            ttl_ms,
            seq,
        )

    def publish(self, batch: int, *attempts: tuple[int, int, int]) -> AnyCommand:
        """attempts: (partition, attempt, blocks)."""
        return SinkPublish(self.sink, self.run, self.epoch, batch, attempts)

    def put(
        self,
        queue: Queue,
        batch: int,
        partition: int,
        attempt: int = 0,
        count: int = 2,
        ttl_ms: int = 0,
        seq: int = 0,
        uplink: int = 1,
        **shape: object,
    ) -> int:
        """Stage a block of `count` messages; return its index."""
        command = self.stage(batch, partition, attempt, ttl_ms, seq)
        reply = queue.do(command, block(count, **shape), uplink)
        assert reply == Done(), reply
        return queue.index
