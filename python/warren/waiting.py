"""Waiting for the end of something that continues in the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from warren.errors import NoNodeReached, StillUnderWay, Unavailable, UsageError

T = TypeVar("T")
POLL_S_FIRST = 0.1
POLL_S_MAX = 1.0
"""Pauses between two looks: the first one, and the longest."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How calls wait for the end of what they begin; raises UsageError for seconds that are none.

    seconds   until it must be done, more than 0. StillUnderWay, which says what is missing, is
              raised when it takes longer: the operation continues
    progress  called with the observed state, at least once, about once a second
    """

    seconds: float
    progress: Callable[[Any], None] | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise UsageError(f"wait={self.seconds!r}: seconds, more than 0; None: do not wait")


def until(
    look: Callable[[float], T],
    done: Callable[[T], bool],
    waiting: Waiting,
    missing: Callable[[T], str],
) -> T:
    """Call `look` until it is done; return what it saw last, None: nothing is there to be shown.

    look      gets the seconds that are left, at least POLL_S_MAX
    missing   what StillUnderWay says. NoNodeReached is raised as it is
    """
    deadline = time.monotonic() + waiting.seconds
    pause = POLL_S_FIRST
    while True:
        try:
            seen = look(max(deadline - time.monotonic(), POLL_S_MAX))
        except NoNodeReached:
            raise  # of what may be under way nothing is known
        except Unavailable as error:
            raise StillUnderWay(
                f"not known to be done: {error}; it continues in the background"
            ) from error
        if waiting.progress is not None and seen is not None:
            waiting.progress(seen)
        if done(seen):
            return seen
        left = deadline - time.monotonic()
        if left <= 0:
            raise StillUnderWay(
                f"not done within {waiting.seconds:g} s: {missing(seen)}; it continues in the "
                "background"
            )
        time.sleep(min(pause, left))
        pause = min(2 * pause, POLL_S_MAX)
