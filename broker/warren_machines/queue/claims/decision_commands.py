"""The commands by which a claim is settled when, and only when, a batch is published.

The batch's queue decides, by its log: the batch is published there with the claim's name
(`SinkPublish.settles`), or it is closed for the claim, and never will be.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from warren_wire.queue_values.command_base import QueueCommand, Reply

Fate: TypeAlias = Literal["published", "closed", "unknown"]
"""Of a claim by its batch; unknown: the batch, or its run, may have been forgotten."""


class ClaimName(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A claim in the whole cluster. group: of its queue, which is new when declared again."""

    group: int
    reader: str
    number: int


class ClaimBinding(msgspec.Struct, frozen=True, array_like=True):
    """The batch that decides about a claim.

    group  of its queue, which is new when the queue is declared again
    epoch  of the driver that bound the claim: below it no publishing of the batch was asked for
    """

    queue: str
    group: int
    sink: str
    run: str
    batch: int
    epoch: int

    @property
    def named(self) -> tuple[int, str, str, int]:
        """What names the batch, for whichever driver."""
        return self.group, self.sink, self.run, self.batch


class BindClaim(QueueCommand, frozen=True, array_like=True, tag="bind_claim"):
    """Leave a claim to the decision of a batch: it neither expires nor can it be given back.

    Reply: Done, also when that batch has settled it; BoundClaim when it is bound to another batch;
    Refused(claim_lost, fenced, unknown_reader).
    """

    reader: str
    number: int
    epoch: int
    binding: ClaimBinding


class ResolveClaim(QueueCommand, frozen=True, array_like=True, tag="resolve_claim"):
    """Carry out the decision about a bound claim: settle it, or free it of its batch.

    Without effect on a claim that is not open or not bound to that batch. Reply: Count of messages
    settled.

    published  the batch is in its queue; False: it never will be
    """

    reader: str
    number: int
    binding: ClaimBinding
    published: bool


class AskBatch(QueueCommand, frozen=True, array_like=True, tag="ask_batch"):
    """Decide about a claim: was its batch published here with its name? Reply: BatchFate.

    If it was not, it never will be: what is staged of it is dropped, its publishing is refused.

    epoch  see `ClaimBinding`
    """

    sink: str
    run: str
    batch: int
    epoch: int
    claim: ClaimName


class BoundClaim(Reply, frozen=True, array_like=True, tag="bound_claim"):
    """Nothing was done: claim `number` is bound to a batch, which must be asked about first."""

    number: int
    binding: ClaimBinding


class BatchFate(Reply, frozen=True, array_like=True, tag="batch_fate"):
    """What was decided about a batch."""

    fate: Fate


AnyDecision: TypeAlias = BindClaim | ResolveClaim | AskBatch
AnyDecided: TypeAlias = BoundClaim | BatchFate
