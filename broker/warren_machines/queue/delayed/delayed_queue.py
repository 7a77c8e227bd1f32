"""The messages of a queue that wait for their next delivery, by the time at which they are ready.

A sorted list of runs in packed leaves (`leaves`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from warren_machines.queue.ready.leaves import Leaves, Row
from warren_machines.queue.ready.ranges import Run

DelayedRow: TypeAlias = Row
"""(ready_ms, index, first, last, delivery_count, acquired_count)."""

_BEFORE_ALL = (-1, -1, -1)


class Delayed:
    """Delayed messages as runs, ordered by (ready_ms, index, ordinal).

    count       messages
    forced      those of them that are to be ready now, whatever their times (`force`); they come
                first, in `_forced`
    size_bytes  of all; the caller's account

    Invariant: rows of `_waiting` ascend
    """

    __slots__ = ("_forced", "_waiting", "count", "forced", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.forced = 0
        self.size_bytes = 0
        self._forced = Leaves()
        self._waiting = Leaves()

    @property
    def _first(self) -> Leaves:
        return self._forced if self._forced.leaves else self._waiting

    @property
    def next_ms(self) -> int:
        """When the first of them is ready; 0: there is none, or it is to be ready now."""
        return self._first.leaves[0].key[0] if self._first.leaves and not self.forced else 0

    def times(self) -> tuple[int, int]:
        """Return (first, last) ready_ms of all; (0, 0) when there is none."""
        ends = [rows.leaves for rows in (self._forced, self._waiting) if rows.leaves]
        return (
            min((leaves[0].key[0] for leaves in ends), default=0),
            max((leaves[-1].last_key() for leaves in ends), default=0),
        )

    def add(self, ready_ms: int, run: Run) -> None:
        """Insert a run at its place."""
        self.count += run[2] - run[1] + 1
        self._waiting.insert((ready_ms, *run))

    # ------------------------------------------------------------ what leaves

    def force(self) -> int:
        """Make all of them ready now, in their order; return how many were not forced before."""
        count = self.count - self.forced
        self._forced.move_from(self._waiting)
        self.forced = self.count
        return count

    def take_ready(self, now_ms: int, runs_max: int) -> list[Run]:
        """Remove the first runs that are ready, at most `runs_max`."""
        taken: list[Run] = []
        while len(taken) < runs_max:
            first = self._first
            forced = first is self._forced
            if not first.leaves or not (forced or first.leaves[0].key[0] <= now_ms):
                break
            rows = first.rows(0)
            end = len(rows) if forced else bisect_left(rows, (now_ms + 1,))
            end = min(end, runs_max - len(taken))
            taken += [row[1:] for row in rows[:end]]
            self._left(first, sum(row[3] - row[2] + 1 for row in rows[:end]))
            del rows[:end]
            first.changed(0)
        return taken

    def take(self, count: int) -> Run:
        """Remove the first `count` messages of the first run, or all of it when it has fewer."""
        leaves = self._first
        rows = leaves.rows(0)
        ready_ms, index, first, last, failed, acquired = rows[0]
        if last - first + 1 <= count:
            del rows[0]
        else:
            rows[0] = (ready_ms, index, first + count, last, failed, acquired)
            last = first + count - 1
        leaves.changed(0)
        self._left(leaves, last - first + 1)
        return index, first, last, failed, acquired

    def pick(self, ready_ms: int, index: int, ordinal: int) -> Run | None:
        """Remove one message; None: it is not here, or is to be ready now anyway."""
        wanted: tuple[int, ...] = (ready_ms, index, ordinal)
        if not self._waiting.leaves:
            return None
        at = self._waiting.place_of(wanted)
        rows = self._waiting.rows(at)
        place = bisect_right(rows, wanted, key=lambda row: row[:3]) - 1
        if place < 0:
            return None
        row = rows[place]
        first, last, rest = row[2], row[3], row[4:]
        if row[:2] != wanted[:2] or not first <= ordinal <= last:
            return None
        left: list[DelayedRow] = []
        if first < ordinal:
            left.append((ready_ms, index, first, ordinal - 1, *rest))
        if ordinal < last:
            left.append((ready_ms, index, ordinal + 1, last, *rest))
        rows[place : place + 1] = left
        self.count -= 1
        self._waiting.changed(at)
        return index, ordinal, ordinal, *rest

    def _left(self, leaves: Leaves, count: int) -> None:
        self.count -= count
        if leaves is self._forced:
            self.forced -= count

    def head(self) -> Run | None:
        """Return the run that is ready first."""
        return self._first.rows(0)[0][1:] if self._first.leaves else None

    def clear(self) -> Iterator[Run]:
        """Remove everything; return it in its order."""
        gone = chain(self._forced.clear_leaves(), self._waiting.clear_leaves())
        self.count = self.forced = self.size_bytes = 0
        return (row[1:] for row in gone)

    # ------------------------------------------------------------ as a whole

    def __iter__(self) -> Iterator[DelayedRow]:
        """Iterate over all rows in their order; leaves packed leaves packed."""
        return chain(self._forced.all_rows(), self._waiting.all_rows())

    def rows_after(self, waiting: int, place: tuple[int, int, int]) -> Iterator[tuple[int, ...]]:
        """Yield 0 or 1, whether they wait, and the rows behind (ready_ms, index, ordinal) there.

        Those to be ready now are looked at as if they ascended: they leave within moments.
        """
        for number, leaves in enumerate((self._forced, self._waiting)):
            if number >= waiting:
                behind = place if number == waiting else _BEFORE_ALL
                yield from ((number, *row) for row in leaves.rows_after(behind))

    def dump(self) -> tuple[list[bytes], list[bytes]]:
        """Return the packed leaves: (forced, others)."""
        return self._forced.dump(), self._waiting.dump()

    def load(
        self, counts: tuple[int, int, int], forced: Iterable[bytes], leaves: Iterable[bytes]
    ) -> None:
        """Load (count, forced, size_bytes) and what `dump` returned into an empty object."""
        self.count, self.forced, self.size_bytes = counts
        self._forced, self._waiting = Leaves(forced), Leaves(leaves)

    def check(self) -> None:
        """Assert the invariants."""
        self._forced.check_leaves()
        self._waiting.check_leaves()
        rows = list(self._waiting.all_rows())
        assert rows == sorted(set(rows)), rows
        forced = sum(row[3] - row[2] + 1 for row in self._forced.all_rows())
        assert forced == self.forced, (forced, self.forced)
        count = sum(row[3] - row[2] + 1 for row in self)
        assert count == self.count, (count, self.count)
        assert self.size_bytes >= 0, self.size_bytes
