"""What an idle reader sends to its queue, so that the queue and its place in it are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warren.admin import Queue

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
