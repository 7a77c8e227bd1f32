"""Counts the steps of a call in lines of Python, also those that a loop in one line repeats.

Unlike time they are the same on every machine. What one call of C does is not seen: a test of that
gives it objects that count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines(call: Callable[[], object]) -> int:
    """Return how many lines a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def growth(prepared: Callable[[int], Callable[[], object]], size: int) -> float:
    """Return how many times as many lines a call runs when all that it is given is doubled.

    prepared  makes the call for such a size. A sum makes it 2, a product of two of its parts 4
    """
    once, twice = lines(prepared(size)), lines(prepared(2 * size))
    return twice / once
