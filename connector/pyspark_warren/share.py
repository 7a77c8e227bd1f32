"""Division of a micro-batch's limit among several queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

FAIR: Final = "fair"
BACKLOG: Final = "backlog"
"""The values of option queueSharing."""
SELECTED_MAX: Final = 1_024
"""Queues of one query: each has an entry in every offset, and a request in every batch."""


def divide(
    total: int, ready: Mapping[str, int], turns: Sequence[str], sharing: str
) -> dict[str, int]:
    """Return how much of the limit each queue gets, none more than it has, none that is empty.

    total    the limit, 1 or more
    ready    what each queue has
    turns    the queues that have something, the longest waiting first: when there are more queues
             than the limit, the first ones get one each
    sharing  FAIR: equal parts; what a queue does not need is the others'. BACKLOG: in proportion to
             what they have, and at least one each
    """
    assert total >= 1 and sharing in (FAIR, BACKLOG), (total, sharing)
    waiting = [name for name in turns if ready[name] > 0][:total]
    everything = sum(ready[name] for name in waiting)
    if everything <= total:
        return {name: ready[name] for name in waiting}
    if sharing == FAIR:
        return _equal(total, ready, waiting)
    # Each has one; the rest is divided in proportion to what each has beyond that.
    spare, beyond = total - len(waiting), everything - len(waiting)
    given = {name: 1 + (ready[name] - 1) * spare // beyond for name in waiting}
    return _rounded_up(total, ready, given)


def _equal(total: int, ready: Mapping[str, int], waiting: Sequence[str]) -> dict[str, int]:
    """Give the smallest first: what it leaves is divided among the larger ones."""
    given: dict[str, int] = {}
    left = total
    by_size = sorted(waiting, key=lambda name: ready[name])
    for at, name in enumerate(by_size):
        given[name] = min(ready[name], left // (len(by_size) - at))
        left -= given[name]
    return _rounded_up(total, ready, {name: given[name] for name in waiting})


def _rounded_up(total: int, ready: Mapping[str, int], given: dict[str, int]) -> dict[str, int]:
    """Hand out what divisions have left over, one each, the longest waiting first."""
    left = total - sum(given.values())
    for name in given:
        if left <= 0:
            break
        if given[name] < ready[name]:
            given[name] += 1
            left -= 1
    return given
