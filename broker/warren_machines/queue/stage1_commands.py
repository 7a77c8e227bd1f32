"""The commands of sinks in versions 1 and 2 of the machine, which knew no runs."""

from __future__ import annotations

from typing import TypeAlias

from warren_wire.queue_values.command_base import QueueCommand


class Stage(QueueCommand, frozen=True, array_like=True, tag="stage"):
    """Add a block to a stage, in versions 1 and 2 (as PublishBatch, DropStages); see
    `commands.SinkStage`.

    The block is invisible; it is dropped when the sink's batch was published already.

    seq  1, 2, 3 … within the stage (sink, batch, partition, attempt), of which one queue may see
         only some; one that is not above the stage's last is a writer's resend through another
         node: acknowledged, dropped. 0: not numbered
    """

    sink: str
    batch: int
    partition: int
    attempt: int
    ttl_ms: int = 0
    seq: int = 0


class PublishBatch(QueueCommand, frozen=True, array_like=True, tag="publish"):
    """Make the stages (batch, partition, attempt) ready in this order; drop the batch's others.

    A batch at or below the sink's last one is acknowledged and dropped. An attempt without stage
    counts as empty; one with an expired stage is Refused(stage_lost), and nothing is changed.
    Reply: Count of messages published now.
    """

    sink: str
    batch: int
    attempts: tuple[tuple[int, int], ...]


class DropStages(QueueCommand, frozen=True, array_like=True, tag="drop_stages"):
    """Drop the stages of an aborted batch."""

    sink: str
    batch: int


AnyStage1: TypeAlias = Stage | PublishBatch | DropStages
