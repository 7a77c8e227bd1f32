"""The messages of a queue that wait for their next delivery, by the time at which they are ready.

A sorted list of runs in packed leaves (`leaves`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from warren_machines.queue.ready.leaves import LEAF_KEY, LEAF_ROWS_MAX, Leaf, Row, Unpacked
from warren_machines.queue.ready.ranges import Run

DelayedRow: TypeAlias = Row
"""(ready_ms, index, first, last, delivery_count, acquired_count)."""


def _joins(before: DelayedRow, after: DelayedRow) -> bool:
    """Return whether `after` continues `before`: the next messages of its block, else equal."""
    return (
        before[3] + 1 == after[2]
        and before[1] == after[1]
        and before[0] == after[0]
        and before[4:] == after[4:]
    )


class Delayed:
    """Delayed messages as runs, ordered by (ready_ms, index, ordinal).

    count       messages
    forced      those of them that are to be ready now, whatever their times (`force`); they come
                first, in the leaves of `_forced`
    size_bytes  of all; the caller's account

    Invariants: rows of `_leaves` ascend; a leaf has 1 … LEAF_ROWS_MAX rows, and its key is its
    first row's; a leaf with `rows` is in `_unpacked`
    """

    __slots__ = ("_forced", "_leaves", "_unpacked", "count", "forced", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.forced = 0
        self.size_bytes = 0
        self._forced: list[Leaf] = []
        self._leaves: list[Leaf] = []
        self._unpacked = Unpacked()

    @property
    def next_ms(self) -> int:
        """When the first of them is ready; 0: there is none, or it is to be ready now."""
        return self._leaves[0].key[0] if self._leaves and not self._forced else 0

    def times(self) -> tuple[int, int]:
        """Return (first, last) ready_ms of all; (0, 0) when there is none."""
        ends = [leaves for leaves in (self._forced, self._leaves) if leaves]
        return (
            min((leaves[0].key[0] for leaves in ends), default=0),
            max((leaves[-1].last_key() for leaves in ends), default=0),
        )

    def add(self, ready_ms: int, run: Run) -> None:
        """Insert a run at its place."""
        row: DelayedRow = (ready_ms, *run)
        self.count += row[3] - row[2] + 1
        leaves = self._leaves
        if not leaves:
            self._insert_leaf(0, [row])
            return
        at = max(0, bisect_right(leaves, row, key=LEAF_KEY) - 1)
        leaf = leaves[at]
        rows = self._unpacked.rows(leaf)
        place = bisect_right(rows, row)
        if place and _joins(rows[place - 1], row):
            rows[place - 1] = (*rows[place - 1][:3], *row[3:])
        elif place < len(rows) and _joins(row, rows[place]):
            rows[place] = (*row[:3], *rows[place][3:])
        elif len(rows) < LEAF_ROWS_MAX:
            rows.insert(place, row)
        elif place == len(rows):  # most come in this order: the leaf before stays full
            self._insert_leaf(at + 1, [row])
        else:
            rows.insert(place, row)
            upper = rows[LEAF_ROWS_MAX // 2 :]
            del rows[LEAF_ROWS_MAX // 2 :]
            self._insert_leaf(at + 1, upper)
        leaf.key = rows[0]

    def _insert_leaf(self, at: int, rows: list[DelayedRow]) -> None:
        leaf = Leaf(rows)
        self._leaves.insert(at, leaf)
        self._unpacked.track(leaf)

    # ------------------------------------------------------------ what leaves

    def force(self) -> int:
        """Make all of them ready now, in their order; return how many were not forced before."""
        count = self.count - self.forced
        self._forced += self._leaves
        self._leaves = []
        self.forced = self.count
        return count

    def take_ready(self, now_ms: int, runs_max: int) -> list[Run]:
        """Remove the first runs that are ready, at most `runs_max`."""
        taken: list[Run] = []
        while len(taken) < runs_max:
            leaves = self._forced or self._leaves
            if not leaves or (leaves is self._leaves and leaves[0].key[0] > now_ms):
                break
            rows = self._unpacked.rows(leaves[0])
            end = len(rows) if leaves is self._forced else bisect_left(rows, (now_ms + 1,))
            end = min(end, runs_max - len(taken))
            taken += [row[1:] for row in rows[:end]]
            self._left(leaves, sum(row[3] - row[2] + 1 for row in rows[:end]))
            self._shorten(leaves, rows, end)
        return taken

    def take(self, count: int) -> Run:
        """Remove the first `count` messages of the first run, or all of it when it has fewer."""
        leaves = self._forced or self._leaves
        rows = self._unpacked.rows(leaves[0])
        ready_ms, index, first, last, failed, acquired = rows[0]
        if last - first + 1 <= count:
            self._shorten(leaves, rows, 1)
        else:
            rows[0] = leaves[0].key = (ready_ms, index, first + count, last, failed, acquired)
            last = first + count - 1
        self._left(leaves, last - first + 1)
        return index, first, last, failed, acquired

    def pick(self, ready_ms: int, index: int, ordinal: int) -> Run | None:
        """Remove one message; None: it is not here, or is to be ready now anyway."""
        wanted: tuple[int, ...] = (ready_ms, index, ordinal)
        leaves = self._leaves
        at = bisect_right(leaves, wanted, key=lambda leaf: leaf.key[:3]) - 1
        if at < 0:
            return None
        leaf = leaves[at]
        rows = self._unpacked.rows(leaf)
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
        if not rows:
            self._unpacked.drop(leaf)
            del leaves[at]
        elif len(rows) > LEAF_ROWS_MAX:
            self._insert_leaf(at + 1, rows[LEAF_ROWS_MAX // 2 :])
            del rows[LEAF_ROWS_MAX // 2 :]
        if rows:
            leaf.key = rows[0]
        return index, ordinal, ordinal, *rest

    def _left(self, leaves: list[Leaf], count: int) -> None:
        self.count -= count
        if leaves is self._forced:
            self.forced -= count

    def _shorten(self, leaves: list[Leaf], rows: list[DelayedRow], end: int) -> None:
        """Remove the first `end` rows of the first leaf."""
        del rows[:end]
        if rows:
            leaves[0].key = rows[0]
        else:
            self._unpacked.drop(leaves.pop(0))

    def head(self) -> Run | None:
        """Return the run that is ready first."""
        leaves = self._forced or self._leaves
        return self._unpacked.rows(leaves[0])[0][1:] if leaves else None

    def clear(self) -> Iterator[Run]:
        """Remove everything; return it in its order."""
        gone = chain(self._forced, self._leaves)
        self._forced, self._leaves = [], []
        self._unpacked.clear()
        self.count = self.forced = self.size_bytes = 0
        return (row[1:] for leaf in gone for row in leaf.read())

    # ------------------------------------------------------------ as a whole

    def __iter__(self) -> Iterator[DelayedRow]:
        """Yield all rows in their order; leaves packed leaves packed."""
        for leaf in chain(self._forced, self._leaves):
            yield from leaf.read()

    def dump(self) -> tuple[list[bytes], list[bytes]]:
        """Return the packed leaves: (forced, others)."""
        return (
            [leaf.encoded() for leaf in self._forced],
            [leaf.encoded() for leaf in self._leaves],
        )

    def load(
        self, counts: tuple[int, int, int], forced: Iterable[bytes], leaves: Iterable[bytes]
    ) -> None:
        """Load (count, forced, size_bytes) and what `dump` returned into an empty object."""
        self.count, self.forced, self.size_bytes = counts
        self._forced = [Leaf(None, data) for data in forced]
        self._leaves = [Leaf(None, data) for data in leaves]

    def check(self) -> None:
        """Assert the invariants."""
        for leaf in chain(self._forced, self._leaves):
            self._unpacked.check(leaf)
        rows = [row for leaf in self._leaves for row in leaf.read()]
        assert rows == sorted(set(rows)), rows
        forced = sum(row[3] - row[2] + 1 for leaf in self._forced for row in leaf.read())
        assert forced == self.forced, (forced, self.forced)
        count = sum(row[3] - row[2] + 1 for row in self)
        assert count == self.count, (count, self.count)
        assert self.size_bytes >= 0, self.size_bytes
