"""What a stream has: its first message, its last one, the first one of a time.

AMQP 0.9.1 has no question for that: the message count of a passive declaration lags by seconds and
is no offset. So each look is a consumer that begins at a place and reads the header
`x-stream-offset` of what comes. A broker sends the deliveries of a channel in order with its other
answers: when one message has come, everything that the stream had at that moment comes before the
answer to the next request, as far as the consumer's credit goes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from pyspark_warren.errors import BrokerUnavailableError, OptionError
from pyspark_warren.options.options import Options
from pyspark_warren.options.specs import FIRST, LAST, NEXT
from pyspark_warren.streams.consumer import StreamConsumer, last_tag, offsets_of
from warren_wire.kernel import Deliveries

T = TypeVar("T")
EMPTY_S: Final = 5.0
"""A stream that delivers nothing for so long has nothing: a delivery takes some milliseconds."""
_LOOK_CREDIT: Final = 100
_LOOK_ROUNDS_MAX: Final = 200
"""A look at the end follows publishers no further than that many times _LOOK_CREDIT messages."""
_RETRY_S: Final = 0.2


@dataclass(slots=True)
class _Seen:
    """What a look has received."""

    queue: str
    lowest: int | None = None
    highest: int = -1
    count: int = 0
    size_bytes: int = 0
    tag: int = 0

    def add(self, taken: Deliveries) -> None:
        """Take note of messages."""
        if taken.count:
            offsets = offsets_of(taken, self.queue)
            self.lowest = min(offsets) if self.lowest is None else min(self.lowest, *offsets)
            self.highest = max(self.highest, *offsets)
            self.count += taken.count
            self.size_bytes += taken.size_bytes
            self.tag = last_tag(taken)


class StreamEnds:
    """Looks at a stream, each on a connection of its own, tried until requestTimeout.

    mean_bytes  of the bodies of the last look at the end; 0: none yet
    ready       the message count, some seconds old; 0 also where it is not known
    lost        connections that failed so far: after each the stream may be another one
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._doing = f"reading stream {options.queue!r} at {options.addresses()}"
        self._limit_s = options.request_timeout_ms / 1000
        self._attempt = random.randrange(len(options.hosts))
        self._watch: tuple[int, StreamConsumer] | None = None
        self.mean_bytes = 0
        self.ready = 0
        self.lost = 0

    def first(self, wait_s: float = EMPTY_S) -> int | None:
        """Return the offset of the first message that there is; None: nothing comes."""
        return self._tried(lambda: self._look(FIRST, wait_s, whole=False)).lowest

    def end(self, wait_s: float = EMPTY_S) -> int | None:
        """Return the offset after the last message; None: nothing comes."""
        return self._end(LAST, wait_s)

    def end_beyond(self, at: int) -> int | None:
        """Return an offset after `at` before which there is a message, the end if possible.

        The latest chunk delivers nothing where it has only compressed batches of the stream
        protocol, which brokers pass over; what lies before it is read all the same.
        """
        end = self.end()
        return self.end_after_silence(at) if end is None else end

    def end_after_silence(self, at: int) -> int | None:
        """Return what `end_beyond` does after a look at the end without an answer."""
        return self._end(at, EMPTY_S) if self.ready else None

    def place(self, start: str, empty: bool = False) -> int:
        """Return the offset for the option startingOffset.

        empty   it is known that the stream has nothing
        raises  OptionError: an offset beyond the end
        """
        if start == FIRST:
            return 0 if empty else self.first() or 0
        end = 0 if empty else self.end() or 0
        if start == NEXT:
            return end
        if start.isdigit():
            if int(start) > end:
                raise OptionError(
                    f"option startingOffset={start}: stream {self._options.queue!r} ends at {end}; "
                    "give that or less, or next"
                )
            return int(start)
        if end == 0:
            return 0
        place = LAST if start == LAST else datetime.fromisoformat(start)
        seen = self._tried(lambda: self._look(place, EMPTY_S, whole=False))
        return end if seen.lowest is None else seen.lowest

    def arrived(self, at: int, wait_s: float) -> bool:
        """Wait for a message at or after `at`; the consumer stays until the next look."""
        return self._tried(lambda: self._arrived(at, wait_s))

    def close(self) -> None:
        """End the consumer that waits."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch[1].close()

    # -------------------------------------------------------------- one look

    def _end(self, place: str | int, wait_s: float) -> int | None:
        seen = self._tried(lambda: self._look(place, wait_s, whole=True))
        if seen.lowest is None:
            return None
        self.mean_bytes = max(1, seen.size_bytes // seen.count)
        return seen.highest + 1

    def _look(self, place: str | int | datetime, wait_s: float, whole: bool) -> _Seen:
        """Consume from a place: one message at least, or `whole` what there is."""
        self.close()
        consumer = self._consumer(place, _LOOK_CREDIT if whole else 1)
        try:
            seen = _Seen(self._options.queue)

            def taken() -> Deliveries:
                found = consumer.take()
                seen.add(found)
                return found

            consumer.wait(lambda: taken().count > 0, wait_s)
            self.ready = consumer.round_trip(self._limit_s)
            seen.add(consumer.take())
            acknowledged = 0
            for _ in range(_LOOK_ROUNDS_MAX if whole else 0):
                if seen.count - acknowledged < _LOOK_CREDIT:
                    break  # there was credit for more
                acknowledged = seen.count
                consumer.acknowledge(seen.tag)
                consumer.round_trip(self._limit_s)
                seen.add(consumer.take())
            return seen
        finally:
            consumer.close()

    def _arrived(self, at: int, wait_s: float) -> bool:
        if self._watch is None or self._watch[0] != at:
            self.close()
            self._watch = (at, self._consumer(at, 1))
        watch = self._watch[1]
        return watch.wait(lambda: watch.filled.count > 0, wait_s)

    def _consumer(self, place: str | int | datetime, credit: int) -> StreamConsumer:
        self._attempt += 1
        made = StreamConsumer(self._options, place, credit, self._doing, self._attempt)
        try:
            if not made.wait(lambda: made.begun, self._limit_s):
                raise BrokerUnavailableError(f"{self._doing}: no consumer for {self._limit_s:g} s")
        except BaseException:
            made.close()
            raise
        return made

    def _tried(self, look: Callable[[], T]) -> T:
        """Call until it succeeds: a lost connection is made again, to the next host."""
        deadline = time.monotonic() + self._limit_s
        while True:
            try:
                return look()
            except BrokerUnavailableError:
                self.lost += 1
                self.close()
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_S)
