"""Division of a range of offsets into slices, by arithmetic only."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from pyspark_warren.plan import SLICE_MESSAGES, SLICES_MAX


@dataclass(frozen=True, slots=True)
class OffsetSlice:
    """The work of one Spark task: messages with first <= offset < last."""

    first: int
    last: int


def offset_slices(first: int, last: int, partitions: int) -> tuple[OffsetSlice, ...]:
    """Return slices that cover the offsets once, in order.

    partitions  how many; 0: one per SLICE_MESSAGES, at most SLICES_MAX
    """
    assert partitions >= 0, partitions
    count = last - first
    pieces = min(count, partitions or min(SLICES_MAX, -(-count // SLICE_MESSAGES)))
    edges = [first + count * piece // pieces for piece in range(pieces + 1)] if count > 0 else []
    return tuple(OffsetSlice(*each) for each in itertools.pairwise(edges))
