"""The runs of sinks in a snapshot."""

from __future__ import annotations

import msgspec

from warren_machines.queue.claims.decision_commands import ClaimName
from warren_machines.queue.sinks.sink_state import PublishedBatch, RunStage, SinkRun


class RunRow(msgspec.Struct, array_like=True):
    """A `SinkRun`; published: ascending."""

    run: str
    epoch: int
    last_batch: int
    published: list[PublishedRow]
    stages: list[RunStageRow]
    heard_ms: int
    expires_ms: int


class PublishedRow(msgspec.Struct, array_like=True):
    """A `PublishedBatch`."""

    batch: int
    messages: int
    digest: int
    named: bytes
    settles: tuple[ClaimName, ...] | None


class RunStageRow(msgspec.Struct, array_like=True):
    """A `RunStage` and its key."""

    key: tuple[int, int, int]
    blocks: list[tuple[int, int, tuple[tuple[int, int], ...]]]
    count: int
    messages: int
    digest: int
    repeat: bool
    expires_ms: int
    last_seq: int


def run_row(name: str, run: SinkRun) -> RunRow:
    """Return the row of a run."""
    return RunRow(
        name,
        run.epoch,
        run.last_batch,
        [
            PublishedRow(known.batch, known.messages, known.digest, known.named, known.settles)
            for known in run.published
        ],
        [
            RunStageRow(
                key,
                part.blocks,
                part.count,
                part.messages,
                part.digest,
                part.repeat,
                part.expires_ms,
                part.last_seq,
            )
            for key, part in run.stages.items()
        ],
        run.heard_ms,
        run.expires_ms,
    )


def restored_run(row: RunRow) -> SinkRun:
    """Return the run of a row."""
    stages = {
        each.key: RunStage(
            each.blocks,
            each.count,
            each.messages,
            each.digest,
            each.repeat,
            each.expires_ms,
            each.last_seq,
        )
        for each in row.stages
    }
    published = [
        PublishedBatch(known.batch, known.messages, known.digest, known.named, known.settles)
        for known in row.published
    ]
    return SinkRun(row.epoch, row.last_batch, published, stages, row.heard_ms, row.expires_ms)
