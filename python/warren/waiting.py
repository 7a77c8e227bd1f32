"""Waiting for the end of something that continues in the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from warren.errors import NoNodeReached, StillUnderWay, Unavailable

T = TypeVar("T")
POLL_S_FIRST = 0.1
POLL_S_MAX = 1.0
"""Pauses between two looks: the first one, and the longest."""


def until(
    look: Callable[[float], T],
    done: Callable[[T], bool],
    wait: float,
    progress: Callable[[T], None] | None,
    missing: Callable[[T], str],
) -> T:
    """Call `look` until it is done; return what it saw last.

    look      gets the seconds that are left, at least POLL_S_MAX
    wait      seconds; then StillUnderWay, with what is missing. NoNodeReached is raised as it is
    progress  called with what each look saw
    """
    deadline = time.monotonic() + wait
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
        if progress is not None:
            progress(seen)
        if done(seen):
            return seen
        left = deadline - time.monotonic()
        if left <= 0:
            raise StillUnderWay(
                f"not done within {wait:g} s: {missing(seen)}; it continues in the background"
            )
        time.sleep(min(pause, left))
        pause = min(2 * pause, POLL_S_MAX)
