"""The position of a source in a stream in the checkpoint: the broker's own offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pyspark_warren.claims.offset import (
    STREAM_KIND,
    check_form,
    check_same,
    damaged_offset,
    with_form,
)
from pyspark_warren.claims.plan import SLICES_MAX, edges, slices_of
from pyspark_warren.errors import CheckpointError
from pyspark_warren.options.specs import OFFSET_MAX


class StreamOffset(msgspec.Struct, frozen=True, rename={"at": "offset"}):
    """The place before an offset of a stream.

    at          the offset that is read next
    registered  False only for the start of a query without a checkpoint: `at` means nothing yet
    first       where the batch that ends here begins, if that is not the start Spark names
    """

    vhost: str
    queue: str
    at: int = 0
    registered: bool = True
    first: int | None = None

    def moved(self, at: int, first: int | None = None) -> StreamOffset:
        """Return the end of a batch, registered."""
        return StreamOffset(self.vhost, self.queue, at, True, first)

    def __post_init__(self) -> None:
        if not 0 <= (self.first or 0) <= self.at <= OFFSET_MAX:
            raise ValueError(self.at)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        return with_form(msgspec.to_builtins(self), STREAM_KIND)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> StreamOffset:
        """Parse the stored form of a checkpoint; raises CheckpointError."""
        check_form(stored, STREAM_KIND)
        try:
            made = msgspec.convert(stored, cls)
            check_same(made.to_dict(), stored)
            return made
        except (TypeError, ValueError):
            raise damaged_offset(stored) from None

    def check_is_of(self, vhost: str, queue: str) -> None:
        """Raise CheckpointError when the checkpoint was written for another queue."""
        if (self.vhost, self.queue) != (vhost, queue):
            raise CheckpointError(
                f"the checkpoint is of queue {self.queue!r} in vhost {self.vhost!r}, the query "
                f"reads queue {queue!r} in vhost {vhost!r}; one checkpoint serves one queue: give "
                "this query its own checkpointLocation"
            )


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
