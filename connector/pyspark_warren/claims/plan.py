"""Division of the claims between two offsets into slices, by arithmetic only."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pyspark_warren.claims.offset import ClaimInfo, Position
from pyspark_warren.errors import CheckpointError
from warren_wire.queue_values.give_up_command import Way

BATCH_MESSAGES_MAX: Final = 2**31 - 1
CLAIM_BYTES_MAX: Final = 1 << 50
SLICE_MESSAGES: Final = 25_000
SLICE_BYTES: Final = 32 << 20
"""Approximate limit of a slice by default: large enough that a task's fixed cost (some 10 ms) is
small beside its work, small enough that a batch of the default size has work for eight cores. The
number of cores is not known where slices are cut, and must not matter: a batch that is planned
again after a restart on another machine has the same slices."""
SLICES_MAX: Final = 128
SPANS_MAX: Final = 8
"""Parts of a slice, or of a piece of a view, that are fetched with bodies."""
VIEW_TASKS_MAX: Final = 32
"""For each piece of a view the queue's leader goes through everything that the queue holds."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """How a claim is given up; see `warren.claims.ClaimReader.give_up`.

    epoch  of the driver that gives it up
    """

    way: Way
    in_row_max: int
    drop: bool
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Messages first <= i < last of a claim, in claim order: a Spark task, or a part of one.

    size_bytes  about that much, for the division into tasks
    given_up    the task gives the claim up, and has no rows; None: it reads
    """

    queue: str
    reader: str
    number: int
    first: int
    last: int
    size_bytes: int = field(default=0, compare=False)
    given_up: GivenUp | None = None


@dataclass(frozen=True, slots=True)
class ViewPiece:
    """The work of one Spark task of `spark.read`: messages with first <= index < last.

    max_messages  0: all of them
    browsed       only their first `max_messages` ready ones, in the order of delivery
    """

    first: int
    last: int
    max_messages: int = 0
    browsed: bool = False


def claims_between(start: Position | None, end: Position) -> tuple[ClaimInfo, ...]:
    """Return the claims of a queue in the micro-batch from start to end.

    start  None: a checkpoint before it does not have the queue

    Only the end's list is used, whatever reader the start names: when a query ends in its first
    batch, the start is generated again and only the end is from the checkpoint.

    raises  CheckpointError when the end lacks the size of a claim
    """
    if start == end or not end.claims:  # none: it begins again after a loss
        return ()
    if start is None or start.reader != end.reader:
        return end.claims
    wanted = range(start.number + 1, end.number + 1)
    claims = tuple(claim for claim in end.claims if claim.number > start.number)
    if [claim.number for claim in claims] != list(wanted):
        raise CheckpointError(
            f"a micro-batch from claim {start.number} to {end.number} of queue {end.queue!r}, but "
            f"the checkpoint knows claims {[c.number for c in end.claims]}; offsets of one "
            "micro-batch each are needed: turn asynchronous progress tracking off"
        )
    return claims


def slices_of(messages: int, size_bytes: int) -> int:
    """Return how many slices of the default size hold that much."""
    return max(-(-messages // SLICE_MESSAGES), -(-size_bytes // SLICE_BYTES))


def edges(first: int, last: int, pieces: int) -> list[tuple[int, int]]:
    """Return ranges of nearly equal length that cover first <= i < last once, none empty."""
    count = last - first
    pieces = max(1, min(pieces, count))
    cuts = [first + count * piece // pieces for piece in range(pieces + 1)]
    return [each for each in itertools.pairwise(cuts) if each[0] < each[1]]


def cut(
    claims: tuple[ClaimInfo, ...], queue: str, reader: str, partitions: int
) -> tuple[Slice, ...]:
    """Return slices that cover every message once, claim by claim, in order.

    partitions  slices per claim; 0: one per SLICE_MESSAGES or SLICE_BYTES, whichever gives more, at
                most SLICES_MAX
    """
    assert partitions >= 0, partitions
    slices: list[Slice] = []
    for claim in claims:
        pieces = partitions or min(SLICES_MAX, slices_of(claim.messages, claim.size_bytes))
        slices += [
            Slice(
                queue,
                reader,
                claim.number,
                first,
                last,
                claim.size_bytes * (last - first) // claim.messages,
            )
            for first, last in edges(0, claim.messages, pieces)
        ]
    return tuple(slices)


def pack(slices: Iterable[Slice]) -> tuple[tuple[Slice, ...], ...]:
    """Return tasks: neighbours together while they stay within SLICE_MESSAGES and SLICE_BYTES.

    A hundred queues with ten messages each are one task and not a hundred.
    """
    tasks: list[list[Slice]] = []
    messages = size_bytes = 0
    for each in slices:
        messages += each.last - each.first
        size_bytes += each.size_bytes
        if not tasks or messages > SLICE_MESSAGES or size_bytes > SLICE_BYTES:
            tasks.append([])
            messages, size_bytes = each.last - each.first, each.size_bytes
        tasks[-1].append(each)
    return tuple(map(tuple, tasks))


def spans(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Return at most SPANS_MAX ranges, ascending, that hold all indexes: cut at the widest gaps."""
    ordered = sorted(indexes)
    if not ordered:
        return []
    gaps = sorted(itertools.pairwise(ordered), key=lambda gap: gap[0] - gap[1])[: SPANS_MAX - 1]
    cuts = sorted(gap for gap in gaps if gap[1] - gap[0] > 1)
    firsts = [ordered[0], *(after for _, after in cuts)]
    lasts = [*(before for before, _ in cuts), ordered[-1]]
    return list(zip(firsts, lasts, strict=True))
