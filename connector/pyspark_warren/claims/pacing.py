"""When a micro-batch begins, how many messages it may have, and how often an idle query polls.

Spark polls 95 times a second when idle; queues are asked less often, and often enough that a queue
and the reader's place in it are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark_warren.options.options import Options
from warren.queues import Queue

IDLE_POLL_MS_MAX: Final = 1000
"""The longest poll interval of an idle query, which grows because each poll is a request."""
ADAPTIVE_FIRST: Final = 10_000
"""Most messages of the first batch with targetBatchDuration: nothing is known of the query yet."""
ADAPTIVE_LEAST: Final = 100
"""The lowest limit: where so few take too long, fewer would not help."""


class Admission:
    """The limits of the options, and what was learnt of the query's speed.

    clock_ms  monotonic milliseconds

    A batch's duration is the time from its plan to the next call of latestOffset: with a trigger
    interval that contains the wait for the next trigger. It does not matter when the target is as
    long as the interval or longer.
    """

    def __init__(self, options: Options, clock_ms: Callable[[], int]) -> None:
        self._options = options
        self._clock_ms = clock_ms
        self._waiting_since_ms: int | None = None
        self._adaptive = min(ADAPTIVE_FIRST, options.max_messages)
        self._began: tuple[int, int] | None = None

    # -------------------------------------------------------------- minima

    @property
    def waits(self) -> bool:
        """Return whether a batch has a minimum."""
        return bool(self._options.min_messages or self._options.min_bytes)

    def may_begin(self, messages: int, size_bytes: int) -> bool:
        """Return whether what is ready is enough: one of the minima, or waiting for too long."""
        options = self._options
        if not messages:
            self._waiting_since_ms = None
            return False
        enough = (options.min_messages and messages >= options.min_messages) or (
            options.min_bytes and size_bytes >= options.min_bytes
        )
        return bool(enough) or self.patience_ms() <= 0

    def patience_ms(self) -> int:
        """Return how long messages may wait yet; counts from the first call."""
        now = self._clock_ms()
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now
        return self._waiting_since_ms + self._options.max_trigger_delay_ms - now

    def pause_ms(self) -> int:
        """Return the longest pause before the next poll: a second, or what messages may wait."""
        if self._waiting_since_ms is None:
            return IDLE_POLL_MS_MAX
        return max(1, min(IDLE_POLL_MS_MAX, self.patience_ms()))

    # -------------------------------------------------------------- maxima

    def most(self, limit: int) -> int:
        """Return the most messages of the next batch, 1 or more."""
        if self._options.target_batch_ms:
            limit = min(limit, self._adaptive)
        return max(1, limit)

    def began(self, messages: int) -> None:
        """Note a batch of that many messages."""
        self._waiting_since_ms = None
        self._began = (messages, self._clock_ms())

    def ended(self) -> None:
        """Note that the last batch is committed, and learn from its duration; may be repeated."""
        if self._began is None:
            return
        messages, began_ms = self._began
        self._began = None
        target_ms = self._options.target_batch_ms
        if not target_ms:
            return
        took_ms = max(1, self._clock_ms() - began_ms)
        if messages < self._adaptive // 2 and took_ms <= target_ms:
            return  # a small batch that was quick says nothing about a full one
        wanted = min(messages * target_ms // took_ms, 2 * self._adaptive)
        learnt = (min(messages, self._adaptive) + wanted) // 2 if took_ms > target_ms else wanted
        self._adaptive = max(ADAPTIVE_LEAST, min(learnt, self._options.max_messages))


class Pace:
    """Waits between polls that found nothing, longer and longer.

    clock_ms     monotonic milliseconds
    sleep_s      waits that many seconds
    interval_ms  after the first poll that found nothing; then twice as long, up to IDLE_POLL_MS_MAX
    """

    def __init__(
        self, clock_ms: Callable[[], int], sleep_s: Callable[[float], None], interval_ms: int
    ) -> None:
        self._clock_ms = clock_ms
        self._sleep_s = sleep_s
        self._interval_ms = interval_ms
        self._poll_at_ms = 0
        self._idle_polls = 0

    @property
    def idle(self) -> bool:
        """Return whether the last poll found nothing."""
        return self._idle_polls > 0

    @property
    def due(self) -> bool:
        """Return whether the next poll is due."""
        return self._poll_at_ms <= self._clock_ms()

    def wait(self) -> None:
        """Wait until the next poll is due."""
        wait_ms = self._poll_at_ms - self._clock_ms()
        if wait_ms > 0:
            self._sleep_s(wait_ms / 1000)

    def found_nothing(self, longest_ms: int = IDLE_POLL_MS_MAX) -> None:
        """Postpone the next poll, at most by that long or by the interval."""
        pause_ms = self._interval_ms << min(self._idle_polls, 16)
        self._poll_at_ms = self._clock_ms() + min(pause_ms, max(self._interval_ms, longest_ms))
        self._idle_polls += 1

    def found_messages(self) -> None:
        """Poll again as soon as Spark asks."""
        self._idle_polls = 0


SILENT_MS_MAX: Final = 30_000
"""The longest silence of a reader that is alive: half of the least `queues.reader_idle_ms`."""
USES_PER_EXPIRY: Final = 3
"""An idle reader uses a queue so many times within its `x-expires`."""


class IdleReader:
    """The times of a reader's last requests.

    A claim request is an entry of the queue's log even when it finds nothing, the queue's counts
    are not. So after a request that found nothing, the counts say when the next one is worth it.
    Two things would then end by silence: a queue with `x-expires`, which only claim requests and
    open claims use; and a reader without claims, which its queue may forget.

    clock_ms  monotonic milliseconds; the time before a request is noted, which is not after the
              broker's time of it
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._used_ms = self._heard_ms = clock_ms()
        self._empty = 0

    def sends(self, uses: bool = False) -> None:
        """Note a request that is about to be sent; uses: one that uses the queue."""
        self._heard_ms = self._clock_ms()
        if uses:
            self._used_ms = self._heard_ms

    def found_nothing(self, number: int) -> None:
        """Note that claim `number` could not be opened because nothing was ready."""
        self._empty = number

    def has_asked_for(self, number: int) -> bool:
        """Return whether claim `number` was requested, in vain."""
        return self._empty == number

    def silent_for_long(self) -> bool:
        """Return whether the reader should send a sign of life."""
        return self._clock_ms() - self._heard_ms >= SILENT_MS_MAX

    def unused_for_long(self, queue: Queue) -> bool:
        """Return whether the queue expires unless it is used soon."""
        expires_ms = _expires_ms(queue)
        if expires_ms is None:
            return False
        return self._clock_ms() - self._used_ms >= expires_ms // USES_PER_EXPIRY


def _expires_ms(queue: Queue) -> int | None:
    """Return the least time after which the unused queue is deleted, by argument or policy."""
    given = (queue.arguments.get("x-expires"), queue.effective_policy_definition.get("expires"))
    return min((int(each) for each in given if each is not None), default=None)
