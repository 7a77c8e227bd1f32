"""The executor's side of a slice of a stream: a consumer of its own from the first offset on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pyspark_warren.claims.reader import rows_in_mode
from pyspark_warren.errors import BrokerRefusedError, BrokerUnavailableError, OffsetLostError
from pyspark_warren.options.options import Options
from pyspark_warren.rows.rows import ROWS_MAX
from pyspark_warren.spool.read import DeliveredRows
from pyspark_warren.spool.spooling import batch_of
from pyspark_warren.streams.consumer import StreamConsumer, last_tag, offsets_of
from pyspark_warren.streams.ends import StreamEnds
from pyspark_warren.streams.offset import OffsetSlice
from warren_wire.kernel import Deliveries

log = logging.getLogger("pyspark_warren")

_SLICE_CREDIT: Final = 1_000
"""The consumer's prefetch. A broker sends nothing before it has read that much of the stream."""
_SLICE_ACK: Final = 250
"""So many messages are acknowledged at once, for more credit."""
_TAKE_BYTES: Final = 8 << 20
_SOON_S: Final = 0.05
"""So long messages gather, when fewer come than are wanted."""
_LATE_S: Final = 0.5
"""The loop stops that often, whatever comes, so that a standstill is noticed."""
_PAUSE_S: Final = 0.2


def read_offsets(
    options: Options, part: OffsetSlice, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the messages first <= offset < last, always the same ones in the same order.

    Offsets without a message are passed over: brokers put records of their own into a stream, and
    do not deliver compressed batches of the stream protocol. Offsets that retention has removed
    are an OffsetLostError with failOnDataLoss.
    """
    reading = SliceReading(options, part)
    try:
        for rows in reading.rows():
            yield from rows_in_mode(options, schema, rows.pieces)
    finally:
        reading.close()


class SliceReading:
    """One task's consumer, connection after connection.

    at  the next offset that may come
    """

    def __init__(self, options: Options, part: OffsetSlice) -> None:
        self._options, self._part = options, part
        self._doing = (
            f"reading offsets {part.first} to {part.last} of stream {options.queue!r} at "
            f"{options.addresses()}"
        )
        self._limit_s = options.request_timeout_ms / 1000
        self._consumer: StreamConsumer | None = None
        self._acknowledged = 0
        self._ends: StreamEnds | None = None
        self._moved_s = time.monotonic()
        self.at = part.first

    def rows(self) -> Iterator[DeliveredRows]:
        """Yield what comes until the slice's end; a lost connection is made again."""
        while self.at < self._part.last:
            try:
                taken = self._next()
            except BrokerUnavailableError as wrong:
                self._check_time(f": {wrong.args[0]}")
                log.info("%s; it is tried again", wrong)
                self._drop()
                time.sleep(_PAUSE_S)
                continue
            if taken.count:
                yield from self._within(taken)
            self._check_time("")

    def close(self) -> None:
        """End the consumer and its connection."""
        self._drop()
        if self._ends is not None:
            self._ends.close()

    # -------------------------------------------------------------- steps

    def _next(self) -> Deliveries:
        """Return messages, as many as make a batch or come soon; none when none come at all."""
        if self._consumer is None:
            credit = min(_SLICE_CREDIT, self._part.last - self.at)
            self._consumer = StreamConsumer(self._options, self.at, credit, self._doing)
            self._acknowledged = 0
        consumer = self._consumer
        if consumer.wait(lambda: consumer.filled.count > 0, _LATE_S):
            consumer.wait(self._enough, _SOON_S)
        return consumer.take()

    def _enough(self) -> bool:
        assert self._consumer is not None
        filled = self._consumer.filled
        if filled.count and last_tag(filled) - self._acknowledged >= _SLICE_ACK:
            self._acknowledged = last_tag(filled)
            self._consumer.acknowledge(self._acknowledged)
        wanted = min(ROWS_MAX, self._part.last - self.at)
        return filled.count >= wanted or filled.size_bytes >= _TAKE_BYTES

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _check_time(self, why: str) -> None:
        if time.monotonic() - self._moved_s > self._limit_s:
            raise BrokerUnavailableError(
                f"{self._doing}: nothing came for requestTimeout={self._limit_s:g}s, the next "
                f"offset is {self.at}{why}"
            )

    def _within(self, taken: Deliveries) -> Iterator[DeliveredRows]:
        """Yield the rows of the slice among what has come."""
        batch = batch_of(taken)
        offsets = offsets_of(taken, self._options.queue)
        low = 0
        while low < len(offsets) and offsets[low] < self.at:
            low += 1  # a broker may begin with the chunk
        high, missing = low, []
        while high < len(offsets) and self.at < self._part.last:
            offset = offsets[high]
            if offset < self.at:
                raise BrokerRefusedError(f"{self._doing}: offset {offset} came after {self.at - 1}")
            if offset > self.at:
                missing.append((self.at, min(offset, self._part.last)))
            self.at = min(offset + 1, self._part.last)
            if offset < self._part.last:
                high += 1
        self._moved_s = time.monotonic()
        if missing:
            self._check_missing(missing)
        for first in range(low, high, ROWS_MAX):
            last = min(high, first + ROWS_MAX)
            yield DeliveredRows(
                batch.slice(first, last - first), offsets[first:last], self._options.queue
            )
        self._moved_s = time.monotonic()

    def _check_missing(self, missing: list[tuple[int, int]]) -> None:
        """Raise OffsetLostError for offsets before the stream's first one, with failOnDataLoss."""
        count = sum(last - first for first, last in missing)
        text = f"{self._doing}: {count} offsets from {missing[0][0]} on have no message"
        if self._ends is None:
            self._ends = StreamEnds(self._options)
        first = self._ends.first()
        if first is None or first <= missing[0][0]:
            log.info(
                "%s: records of the broker's own, or compressed batches of the stream protocol, "
                "which AMQP 0.9.1 does not carry",
                text,
            )
            return
        text = f"{text}: retention has removed what precedes offset {first}"
        if self._options.fail_on_data_loss:
            raise OffsetLostError(
                f"{text}; use another checkpointLocation, or set failOnDataLoss=false to read on "
                "with what is there"
            )
        log.warning("%s (failOnDataLoss=false)", text)
