"""What a queue remembers of sinks, and the requests for it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from warren_wire.admin.queues import QueueRequest
from warren_wire.admin.requests import Number, route

SINKS_LISTED_MAX: Final = 500
"""Runs in one answer: Proton's values hold 65,535 parts, a run has up to 70."""


class SinkInfo(msgspec.Struct, frozen=True):
    """One run of a sink as a queue remembers it.

    sink, run        a streaming query's id, each, unless its options sinkId and runId say otherwise
    epoch            the highest of a driver that this queue has met
    last_batch       -1: none was published into this queue
    batches          (batch, messages) of the latest ones published, of which a repeat is recognised
    stages           attempts at partitions that are staged
    messages_staged  of these attempts, with those of repeats, which are counted and not kept
    expires_at       when it is forgotten unless it writes before (sinkExpires), in milliseconds
                     since the epoch; 0: not by itself
    expires_in_ms    the same by the leader's clock; None: not by itself, or see `ReaderInfo`
    """

    sink: str
    run: str
    epoch: int
    last_batch: int
    batches: tuple[tuple[int, int], ...]
    stages: int
    messages_staged: int
    expires_at: int
    expires_in_ms: int | None = None


class SinksInfo(msgspec.Struct, frozen=True):
    """Runs of sinks of a queue, the ones that published last first; total: how many there are."""

    total: int
    runs: tuple[SinkInfo, ...]


class ForgottenSink(msgspec.Struct, frozen=True):
    """How many runs of a sink a queue has forgotten, and staged messages dropped with them."""

    runs: Number
    messages_staged: Number


class ListSinksRequest(QueueRequest[SinksInfo], frozen=True):
    """Return what a queue remembers of sinks, those that published into it last first; 404.

    Answer: SinksInfo.

    sink, run  only those of that name; "": all
    count      of runs
    """

    ROUTES: ClassVar = (route("GET /queues/:queue/sinks"),)
    sink: str = ""
    run: str = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=SINKS_LISTED_MAX)] = SINKS_LISTED_MAX


class ForgetSinkRequest(QueueRequest[ForgottenSink], frozen=True):
    """Have a queue forget a sink's runs: their epochs, batches and stages. Answer: ForgottenSink.

    A batch that is published after that is a new run's, whatever its number: one that was published
    before is published again. So it is for sinks that will not come back, or begin with a new
    checkpoint. Refused: 404; 409 while attempts at a batch are staged, unless forced.

    run    only this one; "": all
    force  drop what is staged; a driver that still publishes it gets StageMissing
    """

    ROUTES: ClassVar = (route("DELETE /queues/:queue/sinks/:sink"),)
    sink: str
    run: str = ""
    force: bool = False
