"""The packed list of messages that came back, against a plain one."""

from __future__ import annotations

from bisect import bisect_left
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren_machines.queue.filters.filters import FilterSearch
from warren_machines.queue.ready import leaves
from warren_machines.queue.ready.leaves import LEAF_ROWS_MAX, LEAVES_UNPACKED_MAX
from warren_machines.queue.ready.ranges import Run
from warren_machines.queue.ready.returned_runs import ReturnedRuns


class Plain:
    """What the runs are to do, in a list."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def append(self, run: Run) -> None:
        before = self.runs[-1] if self.runs else (-1, -1, -1, -1, -1)
        if before[0] == run[0] and before[2] + 1 == run[1] and before[3:] == run[3:]:
            self.runs[-1] = (run[0], before[1], *run[2:])
        else:
            self.runs.append(run)

    def put_back(self, run: Run) -> None:
        if not self.runs or self.runs[-1][:2] < run[:2]:
            self.append(run)
        else:
            self.runs.insert(bisect_left(self.runs, run[:2]), run)

    def take(self, count: int) -> Run:
        index, first, last, failed, acquired = self.runs[0]
        if last - first + 1 <= count:
            return self.runs.pop(0)
        self.runs[0] = (index, first + count, last, failed, acquired)
        return index, first, first + count - 1, failed, acquired


INDEX = st.integers(1, 5_000)
SIZE = st.integers(1, 4)
COUNTS = st.tuples(st.integers(0, 2), st.integers(0, 1 << 34))
APPENDS = st.tuples(st.just("append"), INDEX, SIZE, COUNTS, st.sampled_from([1, 7, 700, 2_000]))
TAKES = st.tuples(st.just("take"), st.integers(1, 5), st.sampled_from([1, 3, 900]))
RELOADS = st.tuples(st.just("reload"))


def same(packed: ReturnedRuns, plain: Plain) -> None:
    packed.check()
    assert list(packed) == plain.runs
    assert bool(packed) == bool(plain.runs)
    if plain.runs:
        assert (packed.head(), packed.last()) == (plain.runs[0], plain.runs[-1])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(APPENDS, TAKES, RELOADS), max_size=25))
def test_it_is_a_list_that_runs_join_at_its_end(steps: list[Any]) -> None:
    packed, plain = ReturnedRuns(), Plain()
    for step in steps:
        if step[0] == "append":
            _, index, size, counts, times = step
            for number in range(times):
                first = size * (number % 3)
                run = (index + number // 3, first, first + size - 1, *counts)
                packed.append(run)
                plain.append(run)
        elif step[0] == "take":
            for _ in range(min(step[2], len(plain.runs))):
                assert packed.take(step[1]) == plain.take(step[1])
        else:
            packed = ReturnedRuns(packed.dump())
        same(packed, plain)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(INDEX, st.integers(0, 50), COUNTS), max_size=60, unique_by=lambda x: x[:2]),
    st.sampled_from([0, 3, LEAF_ROWS_MAX, 5 * LEAF_ROWS_MAX]),
    st.booleans(),
)
def test_runs_are_inserted_by_their_arrival(
    given_back: list[tuple[int, int, tuple[int, int]]], before: int, reload: bool
) -> None:
    packed, plain = ReturnedRuns(), Plain()
    for number in range(before):
        run = (2 * number + 1, 100, 100, 0, 1)
        packed.put_back(run)
        plain.put_back(run)
    if reload:
        packed = ReturnedRuns(packed.dump())
    for index, at, counts in given_back:
        run = (index, at, at, *counts)
        packed.put_back(run)
        plain.put_back(run)
    same(packed, plain)
    while plain.runs:
        assert packed.take(1) == plain.take(1)
    same(packed, plain)


def test_equal_operations_give_equal_bytes_whatever_was_read_or_loaded_meanwhile() -> None:
    """Which leaves are unpacked differs between members; what they write does not."""
    one, other = ReturnedRuns(), ReturnedRuns()
    for index in range(1, 3 * LEAVES_UNPACKED_MAX * LEAF_ROWS_MAX):
        run = (index, index % 3, index % 3, 0, 1)
        one.append(run)
        other.append(run)
        if not index % 20_000:
            other = ReturnedRuns(other.dump())
            assert list(other) == list(one)
        if not index % 3:
            assert one.take(1) == other.take(1)
    assert one.dump() == other.dump()


def test_many_single_messages_take_a_few_bytes_each() -> None:
    packed = ReturnedRuns()
    count = 200_000
    for index in range(count):
        packed.append((7 * index, 0, 0, 1, 1))
    unpacked = sum(leaf.rows is not None for leaf in packed.leaves)
    assert unpacked <= LEAVES_UNPACKED_MAX
    assert sum(map(len, packed.dump())) < 2 * count


def test_what_an_older_snapshot_has_is_loaded_run_by_run() -> None:
    """Joined, runs would be other ones than those of a member that was not restored."""
    runs = [(1, at, at, 0, 1) for at in range(2 * LEAF_ROWS_MAX + 1)]
    packed = ReturnedRuns()
    packed.extend(runs)
    packed.check()
    assert list(packed) == runs


class Told:
    """Stands in for a filter: `last` digits of the matching entries."""

    def __init__(self, number: int, last: str, judged: int) -> None:
        self.id = number
        self.last = last
        self.judged = judged

    def matching(self, index: int, first: int, last: int) -> tuple[int, int] | None:
        found = [at for at in range(first, last + 1) if str(index + at)[-1] in self.last]
        return (found[0], found[0]) if found else None


def first_match(runs: ReturnedRuns, wanted: Told) -> Any:
    """What `find` is to return, without its place."""
    for index, first, last, failed, acquired in runs:
        if index > wanted.judged:
            return index
        if (found := wanted.matching(index, first, last)) is not None:
            return (index, *found, failed, acquired)
    return None


@pytest.mark.parametrize("seed", range(12))
def test_filters_find_what_a_look_at_all_runs_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "LEAVES_UNPACKED_MAX", 2)
    draw, runs = Random(seed), ReturnedRuns()
    filters: list[Any] = [Told(at, last, 300) for at, last in enumerate(("1", "05", ""))]
    come = runs.append if seed % 3 else runs.put_back
    for number in range(draw.choice([0, 600, 2_500])):
        come((draw.randrange(1, 300), number % 2, number % 2, number, draw.randrange(2)))
    for number in range(400):
        wanted, index = draw.choice(filters), draw.randrange(1, 400 + number)
        match draw.randrange(6):
            case 0 | 1:
                come((index, 3 * number, 3 * number + draw.randrange(3), 0, 1))
            case 2 if runs:
                runs.take(1)
            case 3:
                wanted.judged += draw.randrange(5)
            case 4 if seed % 2:
                runs = ReturnedRuns(runs.dump())
                come = runs.append if seed % 3 else runs.put_back
        for one in filters:
            found = runs.find(one, FilterSearch(0, 1 << 30))
            place = found if found is None or isinstance(found, int) else found[1]
            assert place == first_match(runs, one)
        found = runs.find(wanted, FilterSearch(0, 1 << 30))
        if isinstance(found, tuple) and draw.random() < 0.5:
            runs.cut(found[0], *found[1][1:3])
    runs.check()
