"""The messages of a queue that came back, in the order in which they leave it again.

Rows in packed leaves (`leaves`), so that millions that are ready and wait for a consumer, as
delayed ones do when their time has come, cost a few bytes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from warren_machines.queue.filters.filters import FILTERS_MAX, Filter, FilterSearch
from warren_machines.queue.ready.leaves import LEAF_ROWS_MAX, Leaf, Leaves, Row
from warren_machines.queue.ready.ranges import Run

PassedRow: TypeAlias = tuple[int, list[int]]
"""(place of a leaf, numbers of the filters that `Leaf.passed` has)."""
NEAR = 16
"""Leaves around a place in which its message is looked for."""
_KEY = 0
"""The first column of every row: the order is that of the list."""


_FROM_FIRST = (0, 0)


class ReturnedRuns(Leaves):
    """Runs in a list: most are appended and taken from the front, some inserted by arrival.

    Where leaves begin depends on the operations since the runs were loaded, which are the same on
    every member.

    gone     leaves that were removed at the front here: a leaf has its place and these as a number
    _passed  number of a filter to the place of a leaf: it has passed all leaves before that, and
             nothing in them matches it (`Leaf.passed`)
    """

    __slots__ = ("_passed", "gone")

    def __init__(self, packed: Iterable[bytes] = ()) -> None:
        """packed: what `dump` returned."""
        super().__init__(packed)
        self.gone = 0
        self._passed: dict[int, int] = {}

    def append(self, run: Run) -> None:
        """Append a run; it joins the last one where it continues that."""
        index, first, last, failed, acquired = run
        if not self.leaves:
            self.insert_leaf(0, [(_KEY, *run)])
            return
        leaf, rows = self.leaves[-1], self.rows(-1)
        _, index_before, first_before, last_before, *counts = rows[-1]
        if index_before == index and last_before + 1 == first and counts == [failed, acquired]:
            rows[-1] = (_KEY, index, first_before, last, failed, acquired)
            leaf.key = rows[0]
            _look_again(leaf, len(rows) - 1)
        elif len(rows) < LEAF_ROWS_MAX:
            rows.append((_KEY, *run))
        else:
            self.insert_leaf(len(self.leaves), [(_KEY, *run)])

    def prepend(self, run: Run) -> None:
        """Insert a run before all others."""
        if not self.leaves:
            self.insert_leaf(0, [(_KEY, *run)])
            return
        self.rows(0).insert(0, (_KEY, *run))
        self.leaves[0].passed = {}
        self.changed(0)
        self._look_again_from(0)

    def extend(self, runs: Sequence[Run]) -> None:
        """Append runs as they are: none joins another."""
        for at in range(0, len(runs), LEAF_ROWS_MAX):
            rows: list[Row] = [(_KEY, *run) for run in runs[at : at + LEAF_ROWS_MAX]]
            self.insert_leaf(len(self.leaves), rows)

    def put_back(self, run: Run) -> None:
        """Insert a run by its arrival among runs that are all in that order."""
        if not self.leaves or self.last()[:2] < run[:2]:
            self.append(run)
            return
        row: Row = (_KEY, *run)
        at = self.insert(row)
        # Not from the row on: that would be another step on a member that has packed the leaf, and
        # none at all for messages that come back to the beginnings of many.
        self.leaves[at].passed = {}
        self._look_again_from(at)

    def _look_again_from(self, at: int) -> None:
        """Note that a leaf is new, or has new rows."""
        for number, passed in self._passed.items():
            self._passed[number] = min(passed, at)

    def insert_leaf(self, at: int, rows: list[Row]) -> None:
        """See `Leaves`."""
        super().insert_leaf(at, rows)
        self._look_again_from(max(0, at - 1))  # that one may have been split

    def remove_leaf(self, at: int) -> None:
        """See `Leaves`."""
        super().remove_leaf(at)
        self.gone += not at
        last = max(0, len(self.leaves) - 1)
        for number, passed in self._passed.items():
            self._passed[number] = min(passed - (passed > at), last)

    def head(self) -> Run:
        """Return the first run; there must be one."""
        return self.rows(0)[0][1:]

    def last(self) -> Run:
        """Return the last run; there must be one."""
        return self.rows(-1)[-1][1:]

    def take(self, count: int) -> Run:
        """Remove the first `count` messages of the first run, or all of it when it has fewer."""
        leaf, rows = self.leaves[0], self.rows(0)
        _, index, first, last, failed, acquired = rows[0]
        if last - first + 1 > count:
            rows[0] = (_KEY, index, first + count, last, failed, acquired)
            last = first + count - 1
        else:
            del rows[0]
            _replaced(leaf, 0, 0)
        self.changed(0)
        return index, first, last, failed, acquired

    def forget_filter(self, number: int) -> None:
        """Drop the place of a filter that is not used any more."""
        self._passed.pop(number, None)

    def forget_listed(self, number: int) -> None:
        """Forget a filter that was used in this entry alone."""
        if self._passed.pop(number, None) is not None:
            for leaf in self.leaves:
                leaf.passed.pop(number, None)

    def find(
        self, wanted: Filter, search: FilterSearch
    ) -> tuple[tuple[int, int], Run] | int | None:
        """Return the first matching messages of a run, and the run's place, for `cut`.

        An integer is the entry of a message before any match that has not been judged. Each leaf
        that the filter has not looked at is a step; None where none is left, too.
        """
        for at in range(self._passed.get(wanted.id, 0), len(self.leaves)):
            leaf = self.leaves[at]
            self._passed[wanted.id] = at
            begin, waits_for = leaf.passed.get(wanted.id, _FROM_FIRST)
            if waits_for > wanted.judged:
                return waits_for
            if begin >= leaf.count():
                continue
            if wanted.id not in leaf.passed and not search.take(wanted):
                return None
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
        leaf, rows = self.leaves[at], self.rows(at)
        key, index, low, high, failed, acquired = rows[row]
        assert low <= first <= last <= high, (low, first, last, high)
        rest: list[Row] = []
        if low < first:
            rest.append((key, index, low, first - 1, failed, acquired))
        if last < high:
            rest.append((key, index, last + 1, high, failed, acquired))
        rows[row : row + 1] = rest
        _replaced(leaf, row, len(rest))
        self.changed(at)

    def looked(self) -> list[PassedRow]:
        """Return what filters have looked at, by the places of leaves."""
        return [(at, sorted(leaf.passed)) for at, leaf in enumerate(self.leaves) if leaf.passed]

    def load_looked(self, rows: Iterable[PassedRow]) -> None:
        """Load what `looked` returned."""
        for at, passed in rows:
            self.leaves[at].passed = dict.fromkeys(passed, _FROM_FIRST)

    def runs_after(
        self, place: tuple[int, int, int], index: int, ordinal: int, own: bool
    ) -> Iterator[tuple[tuple[int, int, int], Run]]:
        """Yield places, and the runs behind a message; leaves stay packed.

        A message that has left meanwhile was the first of all, or what is behind it is in its row.
        Where other rows of its leaf have left, too, or came, some are met twice, or a few not.

        place  number of a leaf, its place, and that of a row in it
        own    False: the number is another member's; leaves begin at the same runs there, so the
               place is right but for what has left at the front
        """
        number, begin, row = place
        begin = number - self.gone if own else begin
        found = self._found_near(begin, index, ordinal)
        if found is not None:
            begin, row = found
        else:
            row = max(0, row) if begin > 0 else 0
        for at in range(max(0, begin), len(self.leaves)):
            rows = self.leaves[at].read()
            for spot in range(row, len(rows)):
                run = rows[spot][1:]
                if run[0] == index and run[1] <= ordinal <= run[2]:
                    run = (index, ordinal + 1, *run[2:])
                if run[1] <= run[2]:
                    yield (at + self.gone, at, spot), run
            row = 0

    def _found_near(self, begin: int, index: int, ordinal: int) -> tuple[int, int] | None:
        """Return the place of a leaf at most NEAR leaves away with a message, and its row."""
        last = len(self.leaves) - 1
        near = range(max(0, begin - NEAR), min(last, begin + NEAR) + 1)
        for at in sorted(near, key=lambda one: abs(one - begin)):
            row = self._row_of(at, index, ordinal)
            if row is not None:
                return at, row
        return None

    def _row_of(self, at: int, index: int, ordinal: int) -> int | None:
        rows = enumerate(self.leaves[at].read())
        return next((i for i, r in rows if r[1] == index and r[2] <= ordinal <= r[3]), None)

    def __bool__(self) -> bool:
        return bool(self.leaves)

    def __iter__(self) -> Iterator[Run]:
        """Yield all runs; leaves packed leaves packed."""
        for row in self.all_rows():
            yield row[1:]

    def check(self) -> None:
        """Assert the invariants."""
        self.check_leaves()
        assert all(row[0] == _KEY and row[2] <= row[3] for row in self.all_rows())
        for number, passed in self._passed.items():
            assert 0 <= passed <= max(0, len(self.leaves) - 1), (number, passed)
            for leaf in self.leaves[:passed]:
                begin, waits_for = leaf.passed.get(number, _FROM_FIRST)
                assert begin == leaf.count() and not waits_for, (number, passed)


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
