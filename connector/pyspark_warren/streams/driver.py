"""The source for a stream on Spark's driver: where a micro-batch ends.

The offset in the checkpoint is the broker's own, and a batch is the messages between two of them;
so a batch that is run again has the same rows, and nothing is to be acknowledged.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from pyspark_warren.claims.plan import BATCH_MESSAGES_MAX
from pyspark_warren.errors import OffsetLostError
from pyspark_warren.options.options import Options
from pyspark_warren.streams.ends import StreamEnds
from pyspark_warren.streams.offset import OffsetSlice, StreamOffset, offset_slices

log = logging.getLogger("pyspark_warren")

_SHORT_S: Final = 0.2
"""Pause between looks at a stream that ends before the checkpoint: a copy that lags catches up."""


class StreamDriver:
    """One run of one query."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ends = StreamEnds(options)
        self._end: int | None = None
        self._at = 0
        self._checked = -1
        self._available: list[int | None] = []
        self._doing = f"reading stream {options.queue!r} at {options.addresses()}"

    # -------------------------------------------------------------- Spark's calls

    def initial(self) -> StreamOffset:
        """Return the offset where a query without a checkpoint starts."""
        return StreamOffset(self._options.vhost, self._options.queue, registered=False)

    def latest(self, start: StreamOffset, limit: int | None, alone: bool = False) -> StreamOffset:
        """Return where the next batch ends, `start` when there is none.

        limit  maximum number of offsets; None: all that there is
        alone  the run may have no other batch, so it has what there is, up to the limit
        """
        alone = alone or limit is None
        start.check_is_of(self._options.vhost, self._options.queue)
        if not start.registered:
            return self._begun(start, limit, alone)
        self._at = start.at
        first = self._known_place(start.at)
        if alone and not self._available:
            end = self._ends.end_beyond(first)
        elif self._available:
            end = self._available[0]
            if end is None:  # nothing came when the run began
                end = self._ends.end_after_silence(first)
        else:
            end = self._next_end(first)
        if end is None or end <= first:
            return start if first == start.at else start.moved(first, first)
        self._end = max(end, self._end or 0)
        cut = end if limit is None else min(end, first + self._most(limit))
        return start.moved(cut, None if first == start.at else first)

    def plan(self, start: StreamOffset, end: StreamOffset) -> tuple[OffsetSlice, ...]:
        """Return the slices of a batch; after a crash, of one that an earlier run has begun."""
        for offset in (start, end):
            offset.check_is_of(self._options.vhost, self._options.queue)
        first = end.first
        if first is None:
            first = start.at if start.registered else end.at
        last = end.at
        if first >= last:
            return ()
        if self._end is None or self._end < last:
            found = self._reached(last)
            if found < last:
                last = max(first, found)
        return offset_slices(first, last, self._options.partitions)

    def settle(self, upto: StreamOffset) -> None:
        """Nothing: the checkpoint alone says what was read."""

    def prepare_available_now(self) -> None:
        """Limit further batches to what there is now."""
        self._available = [self._ends.end()]

    def backlog(self) -> dict[str, Any] | None:
        """Return what is known for the query's progress, without asking."""
        if self._end is None:
            return None
        return {
            "offset_end": self._end,
            "offsets_behind": max(0, self._end - self._at),
            "queue": self._options.queue,
        }

    def close(self) -> None:
        """Close the connection."""
        self._ends.close()

    # -------------------------------------------------------------- steps

    def _begun(self, start: StreamOffset, limit: int | None, alone: bool) -> StreamOffset:
        """Return the first batch's end: an empty batch puts the place into the checkpoint."""
        assert self._options.starting_offset is not None
        empty = self._available == [None] and not self._ends.ready
        at = self._ends.place(self._options.starting_offset, empty)
        self._checked = self._ends.lost
        if not alone:
            return start.moved(at)
        end = self._ends.end_beyond(at)
        self._end = end
        if end is not None and limit is not None:
            end = min(end, at + self._most(limit))
        return start.moved(at if end is None else max(at, end), at)

    def _most(self, limit: int) -> int:
        """Return the limit, and maxBytesPerTrigger by the mean size of the latest messages."""
        most = max(1, min(limit, BATCH_MESSAGES_MAX))
        mean = self._ends.mean_bytes
        return min(most, max(1, self._options.max_bytes // mean)) if mean else most

    def _next_end(self, at: int) -> int | None:
        """Wait up to pollInterval for messages at or after `at`; return the stream's end then."""
        if self._end is not None and self._end > at:
            return self._end
        if not self._ends.arrived(at, self._options.poll_interval_ms / 1000):
            return None
        return self._ends.end_beyond(at)

    def _known_place(self, at: int) -> int:
        """Return where to read on: `at`, or the beginning where the stream is another one.

        raises  OffsetLostError: the stream ends before `at`, with failOnDataLoss
        """
        if not at or self._checked == self._ends.lost:
            return at
        if self._available and self._checked < 0:
            end = self._available[0]
        else:
            end = self._ends.end()
        if end is not None and end < at:
            end = self._reached(at)
        self._checked = self._ends.lost
        return at if end is None or end >= at else 0

    def _reached(self, wanted: int) -> int:
        """Wait until the stream's end is at `wanted`, up to requestTimeout; return where it is."""
        deadline = time.monotonic() + self._options.request_timeout_ms / 1000
        while True:
            found = self._ends.end(max(0.1, min(5.0, deadline - time.monotonic()))) or 0
            self._end = found
            if found >= wanted:
                return found
            if time.monotonic() >= deadline:
                break
            time.sleep(_SHORT_S)
        text = (
            f"{self._doing}: the checkpoint is at offset {wanted}, and the stream ends at {found}: "
            "it was deleted and declared again, or it lost messages"
        )
        if self._options.fail_on_data_loss:
            raise OffsetLostError(
                f"{text}; use another checkpointLocation, or set failOnDataLoss=false to read on "
                "from its beginning"
            )
        log.warning("%s; the query reads on from its beginning (failOnDataLoss=false)", text)
        return found
