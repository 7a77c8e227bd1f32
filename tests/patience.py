"""How long tests wait: the one place that says what a busy machine may take.

A limit that only ends a failing test costs nothing. So it is far longer than the wait: a machine
with twenty times as much work as processors is no reason to fail. Neither is one that stands still
for seconds at the worst moment: what ends by itself, such as a token, is tried `with_time_enough`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
LONGER_MAX = 32
PATIENCE_S = 120.0
"""For what must happen: an answer, the end of a thread or process, a state that is reached."""
PROMPTLY_S = 30.0
"""For what must happen without waiting for a time limit. What is tested would take longer, or for
ever, if it did wait: the test sets that limit to PATIENCE_S or more, or there is none."""


class TooSlow(Exception):
    """What is tested was over before the test had done its part: the attempt says nothing."""


@contextmanager
def in_time(end: float) -> Iterator[None]:
    """Raise TooSlow for what fails in the block after that moment of time.monotonic()."""
    try:
        yield
    except Exception as error:
        if time.monotonic() < end:
            raise
        raise TooSlow from error


def with_time_enough(attempt: Callable[[float], T], first_s: float) -> T:
    """Return the result of an attempt at what ends by itself after so many seconds.

    Where the attempt raises TooSlow there is another one, for twice as long: each is longer than
    the stall that spoiled the one before. Any other failure is the test's.
    """
    span_s = first_s
    while True:
        try:
            return attempt(span_s)
        except TooSlow:
            if span_s >= LONGER_MAX * first_s:
                raise
            span_s *= 2
