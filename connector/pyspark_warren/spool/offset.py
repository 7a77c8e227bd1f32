"""The position of a query with spools in its checkpoint, and the arithmetic of its batches."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from pyspark_warren.claims.offset import SPOOL_KIND, QueryOffset
from pyspark_warren.claims.plan import SLICES_MAX, edges, slices_of
from pyspark_warren.spool.layout import Stretch
from pyspark_warren.spool.search import NO_SEARCH, Part, Search

NAME_DIGITS: Final = 16
"""Hexadecimal digits of a queue's name in the name of its reader."""


@dataclass(frozen=True, slots=True)
class SpoolPosition:
    """The position of a reader in the spool of a queue.

    row     number of the first row that does not precede it
    search  what remains of batches that failed; None: nothing
    """

    unset: ClassVar[str] = "search"

    queue: str
    reader: str
    row: Annotated[int, Meta(ge=0)] = 0
    search: Search | None = None

    def at(self, row: int, search: Search | None = None) -> SpoolPosition:
        """Return the position of that row, with that search."""
        return replace(self, row=row, search=search)

    @property
    def batch(self) -> str:
        """A name for the batch that ends here, one that no other batch of the queue has.

        Either the row is a later one than that of the batch before, or the turn of its search.
        """
        return f"{self.row}-{(self.search or NO_SEARCH).turn}"

    def read_since(self, start: SpoolPosition | None) -> Part:
        """Return the rows of the batch from `start` to here; None: it begins with the first row."""
        if self.search is not None and self.search.reading is not None:
            return self.search.reading
        return Part(start.row if start is not None and start.reader == self.reader else 0, self.row)


@dataclass(frozen=True, slots=True)
class SpoolOffset(QueryOffset[SpoolPosition]):
    """The positions of a query with spools.

    Where there are several queues, in each the reader has its name and a digest of the queue's.
    """

    kind: ClassVar[str] = SPOOL_KIND
    position: ClassVar[Any] = SpoolPosition

    def of(self, queue: str, several: bool) -> SpoolPosition:
        """Return the position in a queue; the first one where there is none yet."""
        digest = hashlib.sha256(queue.encode()).hexdigest()[:NAME_DIGITS]
        name = f"{self.reader}-{digest}" if several else self.reader
        return self.queues.get(queue, SpoolPosition(queue, name))

    def at(self, queues: Mapping[str, SpoolPosition]) -> SpoolOffset:
        """Return the offset with these positions, registered."""
        return replace(self, queues={**self.queues, **queues}, registered=True)


@dataclass(frozen=True, slots=True)
class SpoolSlice:
    """The work of one Spark task: rows of a queue's lane, in order.

    given_up  the file by which the task gives the batch up (`giving_up`), and has no rows; "": it
              reads
    """

    queue: str
    reader: str
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
    queue: str, reader: str, found: Sequence[Stretch], partitions: int
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
        SpoolSlice(queue, reader, _within(found, starts, first, last))
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
