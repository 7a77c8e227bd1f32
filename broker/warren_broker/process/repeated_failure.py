"""When a failure that repeats until an operator acts is logged: the first time, then ever less."""

from __future__ import annotations


def is_told(times: int) -> bool:
    """Return whether a failure is logged that has come so often in a row, this time included.

    The first, the second, the fourth, the eighth time and so on: of one each second 17 in a day. A
    log that got them all would fill what space there is, and hide what else it says.
    """
    return times & (times - 1) == 0
