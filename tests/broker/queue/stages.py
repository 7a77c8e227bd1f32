"""The commands of staged publishing, for what is the same in all versions of the machine."""

from __future__ import annotations

import pytest

from tests.broker.queue.world import Queue, block
from warren_broker.queue.commands import (
    AnyCommand,
    Done,
    PublishBatch,
    SinkPublish,
    SinkStage,
    Stage,
)


class Stages:
    """As sinks send them."""

    def stage(
        self, batch: int, partition: int, attempt: int = 0, ttl_ms: int = 0, seq: int = 0
    ) -> AnyCommand:
        return SinkStage("s", "r", 1, batch, partition, attempt, 100, ttl_ms, seq)

    def publish(self, batch: int, *attempts: tuple[int, int, int]) -> AnyCommand:
        """attempts: (partition, attempt, blocks)."""
        return SinkPublish("s", "r", 1, batch, attempts)

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
        """Stage a block of `count` messages; its index."""
        command = self.stage(batch, partition, attempt, ttl_ms, seq)
        assert queue.do(command, block(count, **shape), uplink) == Done()
        return queue.index


class StagesOfVersion2(Stages):
    """As logs of versions 1 and 2 have them."""

    def stage(
        self, batch: int, partition: int, attempt: int = 0, ttl_ms: int = 0, seq: int = 0
    ) -> AnyCommand:
        return Stage("s", batch, partition, attempt, ttl_ms, seq)

    def publish(self, batch: int, *attempts: tuple[int, int, int]) -> AnyCommand:
        return PublishBatch("s", batch, tuple(each[:2] for each in attempts))


BOTH = pytest.mark.parametrize(
    "stages", [Stages(), StagesOfVersion2()], ids=["present", "version 2"]
)
