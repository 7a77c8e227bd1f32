"""Arithmetic on rows of a spool and offsets of a stream: where a batch ends, how it is cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_warren.amqp.spool.layout import Stretch
from pyspark_warren.plan import SLICES_MAX, edges, slices_of


@dataclass(frozen=True, slots=True)
class SpoolSlice:
    """The work of one Spark task: rows of a queue's lane, in order.

    given_up  the file by which the task gives the batch up (`spool.tries`), and has no rows; "": it
              reads
    """

    queue: str
    reader: str
    lane: str
    stretches: tuple[Stretch, ...]
    given_up: str = ""


def cut_end(
    start: int, reports: Sequence[tuple[int, int]], rows_max: int, bytes_max: int | None
) -> int:
    """Return where a batch from `start` ends.

    reports    (end, bytes) of each durable file beyond `start`, ascending; the first one may begin
               before `start`
    rows_max   most rows
    bytes_max  most bytes, to whole rows of the average size in their file; at least one row; None:
               no limit
    """
    assert rows_max > 0, rows_max
    at, room = start, bytes_max
    before = start
    for end, size in reports:
        rows = end - before
        if rows <= 0:
            continue
        if room is not None and size > room:
            fitting = rows * room // size
            at = max(before + fitting, start + 1)
            break
        if room is not None:
            room -= size
        at = before = end
    return min(at, start + rows_max)


def slices(
    queue: str, reader: str, lane: str, found: Sequence[Stretch], partitions: int
) -> tuple[SpoolSlice, ...]:
    """Return slices that cover the stretches once, in order.

    partitions  how many; 0: one per SLICE_MESSAGES or SLICE_BYTES, whichever gives more, at most
                SLICES_MAX
    """
    assert partitions >= 0, partitions
    starts = [0]
    for each in found:
        starts.append(starts[-1] + each.rows)
    rows = starts[-1]
    size = sum(each.size_bytes for each in found)
    pieces = partitions or min(SLICES_MAX, slices_of(rows, size))
    return tuple(
        SpoolSlice(queue, reader, lane, _within(found, starts, first, last))
        for first, last in edges(0, rows, pieces)
    )


def _within(
    found: Sequence[Stretch], starts: Sequence[int], first: int, last: int
) -> tuple[Stretch, ...]:
    parts = []
    at = bisect_right(starts, first) - 1
    while at < len(found) and starts[at] < last:
        whole = found[at]
        low, high = max(first, starts[at]), min(last, starts[at + 1])
        skipped = low - starts[at]
        share = whole.size_bytes * (high - low) // whole.rows
        parts.append(
            Stretch(
                whole.file, whole.first_row + skipped, high - low, whole.position + skipped, share
            )
        )
        at += 1
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class OffsetSlice:
    """The work of one Spark task: messages of a stream with first <= offset < last."""

    first: int
    last: int


def offset_slices(first: int, last: int, partitions: int) -> tuple[OffsetSlice, ...]:
    """Return slices that cover the offsets once, in order.

    partitions  how many; 0: one per SLICE_MESSAGES, at most SLICES_MAX
    """
    assert partitions >= 0, partitions
    pieces = partitions or min(SLICES_MAX, slices_of(last - first, 0))
    return tuple(OffsetSlice(*each) for each in edges(first, last, pieces))
