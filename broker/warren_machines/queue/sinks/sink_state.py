"""What a queue holds of the runs of sinks: their stages, and what they have published."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from warren_machines.queue.claims.decision_commands import ClaimName

StageKey: TypeAlias = tuple[int, int, int]
"""(batch, partition, attempt)."""


class RunStage(msgspec.Struct, array_like=True, eq=False):
    """What one attempt at a partition has staged for a batch of a run; it is so in snapshots.

    blocks    (index, count, priority runs) in the order they arrived; empty for a repeat
    count     blocks received
    digest    of the messages received (`SinkStage.digest`), added up
    repeat    the batch was published before: blocks are counted, not kept
    last_seq  the highest block number received; 0: none was numbered
    """

    blocks: list[tuple[int, int, tuple[tuple[int, int], ...]]] = []
    count: int = 0
    messages: int = 0
    digest: int = 0
    repeat: bool = False
    expires_ms: int = 0
    last_seq: int = 0


class PublishedBatch(msgspec.Struct, array_like=True, frozen=True):
    """What a run has published as one batch. Snapshots contain it as it is.

    digest  of its messages, in whatever order (`SinkStage.digest`)
    named   digest of the attempts published, or of those last found to hold the same messages
    settles  see `SinkPublish.settles`; None: no claim was named yet, and one that is may settle
    """

    batch: int
    messages: int
    digest: int
    named: bytes
    settles: tuple[ClaimName, ...] | None = None


class SinkRun(msgspec.Struct, array_like=True, eq=False):
    """One run of a staging sink: what its drivers have staged and published in this queue.

    Snapshots contain it as it is.

    epoch       the highest of a driver so far
    last_batch  the last one that was published or closed (`AskBatch.close`); -1: none yet
    published   the latest batches, ascending, at most stage.BATCHES_KEPT
    heard_ms    of the last stage or publish; 0: the run does not expire
    expires_ms  silence after which the run is forgotten; 0: never by itself

    Invariants: stages of batches up to last_batch are repeats, and their batch is in `published`;
    all others are of later batches
    """

    epoch: int = 0
    last_batch: int = -1
    published: list[PublishedBatch] = []
    stages: dict[StageKey, RunStage] = {}
    heard_ms: int = 0
    expires_ms: int = 0

    def find(self, batch: int) -> PublishedBatch | None:
        """Return the batch as it was published, if it is remembered."""
        return next((known for known in self.published if known.batch == batch), None)

    def check(self, name: str) -> None:
        """Assert the invariants; name: of its sink."""
        batches = [known.batch for known in self.published]
        assert batches == sorted(set(batches)), (name, batches)
        assert self.last_batch >= max(batches, default=-1), (name, self.last_batch, batches)
        for key, part in self.stages.items():
            assert part.count > 0, (name, key)
            if part.repeat:
                assert key[0] in batches and not part.blocks, (name, key)
            else:
                assert key[0] > self.last_batch, (name, key, self.last_batch)
                assert part.count == len(part.blocks), (name, key)
                assert part.messages == sum(block[1] for block in part.blocks), (name, key)
