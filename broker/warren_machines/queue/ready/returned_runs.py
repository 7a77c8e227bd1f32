"""The messages of a queue that came back, in the order in which they leave it again.

Rows in packed leaves (`leaves`), so that millions that are ready and wait for a consumer, as
delayed ones do when their time has come, cost a few bytes each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from warren_machines.queue.filters.filters import FILTERS_MAX, Filter
from warren_machines.queue.ready.leaves import LEAF_ROWS_MAX, Leaf, Row, Unpacked
from warren_machines.queue.ready.ranges import Run

_KEY = 0
"""The first column of every row: the order is that of the list."""


_FROM_FIRST = (0, 0)


class ReturnedRuns:
    """Runs in a list: most are appended and taken from the front, some inserted by arrival.

    Where leaves begin depends on the operations since the runs were loaded, which are the same on
    every member.
    Invariants: a leaf has 1 … LEAF_ROWS_MAX rows, and its key is its first row's; a leaf with
    `rows` is in `_unpacked`
    """

    __slots__ = ("_unpacked", "leaves")

    def __init__(self, packed: Iterable[bytes] = ()) -> None:
        """packed: what `dump` returned."""
        self.leaves: list[Leaf] = [Leaf(None, data) for data in packed]
        self._unpacked = Unpacked()

    def _rows(self, leaf: Leaf) -> list[Row]:
        return self._unpacked.rows(leaf) if leaf.rows is None else leaf.rows

    def append(self, run: Run) -> None:
        """Append a run; it joins the last one where it continues that."""
        index, first, last, failed, acquired = run
        if not self.leaves:
            self._insert_leaf(0, [(_KEY, *run)])
            return
        leaf = self.leaves[-1]
        rows = self._rows(leaf)
        _, index_before, first_before, last_before, *counts = rows[-1]
        if index_before == index and last_before + 1 == first and counts == [failed, acquired]:
            rows[-1] = (_KEY, index, first_before, last, failed, acquired)
            leaf.key = rows[0]
            _look_again(leaf, len(rows) - 1)
        elif len(rows) < LEAF_ROWS_MAX:
            rows.append((_KEY, *run))
        else:
            self._insert_leaf(len(self.leaves), [(_KEY, *run)])

    def extend(self, runs: Sequence[Run]) -> None:
        """Append runs as they are: none joins another."""
        for at in range(0, len(runs), LEAF_ROWS_MAX):
            rows: list[Row] = [(_KEY, *run) for run in runs[at : at + LEAF_ROWS_MAX]]
            self._insert_leaf(len(self.leaves), rows)

    def insert(self, run: Run) -> None:
        """Insert a run by its arrival among runs that are all in that order."""
        index, first, *_ = run
        place: tuple[int, ...] = (_KEY, index, first)
        leaves = self.leaves
        if not leaves or self.last()[:2] < run[:2]:
            self.append(run)
            return
        at = max(0, bisect_right(leaves, place, key=lambda leaf: leaf.key[:3]) - 1)
        leaf = leaves[at]
        if leaf.add((_KEY, *run)):
            leaf.passed = {}
            return
        rows = self._rows(leaf)
        row = bisect_left(rows, place)
        rows.insert(row, (_KEY, *run))
        _look_again(leaf, row)
        if len(rows) > LEAF_ROWS_MAX:
            upper = rows[LEAF_ROWS_MAX // 2 :]
            del rows[LEAF_ROWS_MAX // 2 :]
            leaf.passed = {}
            self._insert_leaf(at + 1, upper)
        leaf.key = rows[0]

    def _insert_leaf(self, at: int, rows: list[Row]) -> None:
        leaf = Leaf(rows)
        self.leaves.insert(at, leaf)
        self._unpacked.track(leaf)

    def head(self) -> Run:
        """Return the first run; there must be one."""
        return self._rows(self.leaves[0])[0][1:]

    def last(self) -> Run:
        """Return the last run; there must be one."""
        return self._rows(self.leaves[-1])[-1][1:]

    def take(self, count: int) -> Run:
        """Remove the first `count` messages of the first run, or all of it when it has fewer."""
        leaf = self.leaves[0]
        rows = self._rows(leaf)
        _, index, first, last, failed, acquired = rows[0]
        if last - first + 1 > count:
            rows[0] = leaf.key = (_KEY, index, first + count, last, failed, acquired)
            last = first + count - 1
        else:
            del rows[0]
            _replaced(leaf, 0, 0)
            if rows:
                leaf.key = rows[0]
            else:
                self._unpacked.drop(leaf)
                del self.leaves[0]
        return index, first, last, failed, acquired

    def find(self, wanted: Filter) -> tuple[tuple[int, int], Run] | int | None:
        """Return the first matching messages of a run, and the run's place, for `cut`.

        An integer is the entry of a message before any match that has not been judged.
        """
        for at, leaf in enumerate(self.leaves):
            begin, waits_for = leaf.passed.get(wanted.id, _FROM_FIRST)
            if waits_for > wanted.judged:
                return waits_for
            if begin >= leaf.count():
                continue
            rows = leaf.read()
            for row in range(begin, len(rows)):
                _, index, first, last, failed, acquired = rows[row]
                if index > wanted.judged:
                    _pass(leaf, wanted.id, row, index)
                    return index
                found = wanted.matching(index, first, last)
                if found is not None:
                    _pass(leaf, wanted.id, row)
                    return (at, row), (index, *found, failed, acquired)
            _pass(leaf, wanted.id, len(rows))
        return None

    def cut(self, place: tuple[int, int], first: int, last: int) -> None:
        """Remove messages first … last of the run at a place that `find` returned just now."""
        at, row = place
        leaf = self.leaves[at]
        rows = self._rows(leaf)
        key, index, low, high, failed, acquired = rows[row]
        assert low <= first <= last <= high, (low, first, last, high)
        rest: list[Row] = []
        if low < first:
            rest.append((key, index, low, first - 1, failed, acquired))
        if last < high:
            rest.append((key, index, last + 1, high, failed, acquired))
        rows[row : row + 1] = rest
        _replaced(leaf, row, len(rest))
        if not rows:
            self._unpacked.drop(leaf)
            del self.leaves[at]
            return
        if len(rows) > LEAF_ROWS_MAX:
            upper = rows[LEAF_ROWS_MAX // 2 :]
            del rows[LEAF_ROWS_MAX // 2 :]
            leaf.passed = {}
            self._insert_leaf(at + 1, upper)
        leaf.key = rows[0]

    def __bool__(self) -> bool:
        return bool(self.leaves)

    def __iter__(self) -> Iterator[Run]:
        """Yield all runs; leaves packed leaves packed."""
        for leaf in self.leaves:
            for row in leaf.read():
                yield row[1:]

    def dump(self) -> list[bytes]:
        """Return the packed leaves."""
        return [leaf.encoded() for leaf in self.leaves]

    def check(self) -> None:
        """Assert the invariants."""
        for leaf in self.leaves:
            rows = self._unpacked.check(leaf)
            assert all(row[0] == _KEY and row[2] <= row[3] for row in rows), rows


def _pass(leaf: Leaf, number: int, row: int, waits_for: int = 0) -> None:
    """Note that nothing before a row matches a filter, and the entry there if it is not judged."""
    if len(leaf.passed) > FILTERS_MAX:
        leaf.passed = {}  # most of these filters are no more
    leaf.passed[number] = row, waits_for


def _look_again(leaf: Leaf, row: int) -> None:
    """Note that a row is new, or has more messages than before."""
    for number, (begin, _) in leaf.passed.items():
        if begin >= row:
            leaf.passed[number] = row, 0


def _replaced(leaf: Leaf, row: int, rows: int) -> None:
    """Note that there are none, one or two rows of what is left of a row."""
    for number, (begin, waits_for) in leaf.passed.items():
        if begin > row:
            leaf.passed[number] = begin + rows - 1, waits_for
        elif begin == row:
            leaf.passed[number] = row, 0
