"""Arithmetic on runs of messages.

A run is the messages `first … last` (inclusive) of the block at a raft index. Delivered runs
carry their msg_ids; a list of them is an interval map from msg_id to message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Run: TypeAlias = tuple[int, int, int, int, int]
"""(index, first, last, delivery_count, acquired_count).

Inside the machine the acquired count carries a mark above LANE_SHIFT: 1 + the lane that the run was
taken from, where it may go back to that lane; 0: it goes ahead of all lanes.
"""
Held: TypeAlias = tuple[int, int, int, int, int, int, int]
"""(first_id, last_id, index, first, delivery_count, acquired_count, since_ms); ascending."""
LANE_SHIFT: Final = 32
COUNT_MASK: Final = (1 << LANE_SHIFT) - 1


def unmarked(run: Run) -> Run:
    """Return the run without the mark of its lane, as it leaves the machine."""
    index, first, last, failed, acquired = run
    return index, first, last, failed, acquired & COUNT_MASK


def length(runs: Iterable[Run]) -> int:
    """Count the messages in the runs."""
    return sum(run[2] - run[1] + 1 for run in runs)


def take_ids(held: list[Held], first_id: int, last_id: int) -> list[Held]:
    """Cut the msg_ids first_id … last_id out of `held`; return what was removed, ascending.

    Ids that are not held are ignored. The cost is the runs touched and one move of the list's tail.
    """
    if held and held[0][0] == first_id and held[0][1] == last_id:
        return [held.pop(0)]  # most often: the oldest delivery, all of it
    low = bisect_right(held, (first_id + 1,)) - 1 if held else 0
    if low < 0 or (held and held[low][1] < first_id):
        low += 1
    high = low
    count = len(held)
    while high < count and held[high][0] <= last_id:
        high += 1
    if low == high:
        return []
    taken = held[low:high]
    rest: list[Held] = []
    start, end, index, first, failed, acquired, since = taken[0]
    if start < first_id:
        rest.append((start, first_id - 1, index, first, failed, acquired, since))
        taken[0] = (first_id, end, index, first + first_id - start, failed, acquired, since)
    start, end, index, first, failed, acquired, since = taken[-1]
    if end > last_id:
        rest.append((last_id + 1, end, index, first + last_id + 1 - start, failed, acquired, since))
        taken[-1] = (start, last_id, index, first, failed, acquired, since)
    held[low:high] = rest
    return taken


def ids_of(pieces: Iterable[Held]) -> tuple[tuple[int, int], ...]:
    """Return the msg_ids of ascending pieces as closed ranges, neighbours joined."""
    ranges: list[tuple[int, int]] = []
    for piece in pieces:
        if ranges and ranges[-1][1] + 1 == piece[0]:
            ranges[-1] = (ranges[-1][0], piece[1])
        else:
            ranges.append((piece[0], piece[1]))
    return tuple(ranges)


def cut_runs(
    runs: Sequence[Run], first: int, last: int, runs_max: int | None = None
) -> tuple[Run, ...]:
    """Return the messages first ≤ i < last, numbered in the order of `runs`.

    Numbers beyond the end are ignored, as is what follows `runs_max` runs.
    """
    cut: list[Run] = []
    at = 0
    for index, low, high, failed, acquired in runs:
        count = high - low + 1
        begin = max(first - at, 0)
        end = min(last - at, count)
        if begin < end:
            cut.append((index, low + begin, low + end - 1, failed, acquired))
        at += count
        if at >= last or len(cut) == runs_max:
            break
    return tuple(cut)
