"""The sorted list of delayed messages: the packed against the dumb."""

from __future__ import annotations

from random import Random

import pytest

from warren_machines.queue.delayed.delayed_queue import Delayed, DelayedRow
from warren_machines.queue.ready import leaves
from warren_machines.queue.ready.leaves import decode_leaf, encode_leaf

Single = tuple[int, int, int, int, int]
"""(ready_ms, index, ordinal, failed, acquired)."""


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "LEAF_ROWS_MAX", 4)
    monkeypatch.setattr(leaves, "LEAVES_UNPACKED_MAX", 2)


def singles(rows: list[DelayedRow]) -> list[Single]:
    return [
        (ready_ms, index, at, failed, acquired)
        for ready_ms, index, first, last, failed, acquired in rows
        for at in range(first, last + 1)
    ]


def copied(delayed: Delayed) -> Delayed:
    made = Delayed()
    made.load((delayed.count, delayed.forced, delayed.size_bytes), *delayed.dump())
    return made


def test_a_leaf_is_read_as_it_was_written() -> None:
    rows = [(5, 1, 0, 9, 0, 1), (5, 1 << 40, 3, 3, 2, 7), (1 << 41, 2, 0, 0, 1 << 31, 1 << 31)]
    assert decode_leaf(encode_leaf(rows)) == rows


@pytest.mark.parametrize("seed", range(15))
def test_it_does_what_a_sorted_list_does(seed: int) -> None:
    random = Random(seed)
    delayed, twin = Delayed(), Delayed()  # the twin comes from bytes again and again
    dumb: list[Single] = []
    forced: list[Single] = []
    now = index = 0
    for _ in range(200):
        kind = random.random()
        now += random.choice((0, 0, 1, 20))
        if kind < 0.7:
            index += random.random() < 0.7
            first = random.randrange(3) * 3
            run = (index, first, first + random.randrange(3), 1, 1)
            ready_ms = now + random.choice((1, 1, 5, 50, 500))
            ordinals = range(run[1], run[2] + 1)
            if any((index, at) in {one[1:3] for one in (*dumb, *forced)} for at in ordinals):
                continue
            delayed.add(ready_ms, run)
            twin.add(ready_ms, run)
            dumb = sorted([*dumb, *((ready_ms, index, at, 1, 1) for at in ordinals)])
        elif kind < 0.85:
            most = random.choice((1, 3, 100))
            taken = delayed.take_ready(now, most)
            assert taken == twin.take_ready(now, most)
            gone = [(i, at) for i, low, high, _, _ in taken for at in range(low, high + 1)]
            ready = [*forced, *(one for one in dumb if one[0] <= now)]
            assert [one[1:3] for one in ready][: len(gone)] == gone
            assert len(taken) == most or len(gone) == len(ready)
            forced, dumb = forced[len(gone) :], dumb[max(0, len(gone) - len(forced)) :]
        elif kind < 0.93 and delayed.count:
            count = random.randint(1, 3)
            run = delayed.take(count)
            assert run == twin.take(count)
            for at in range(run[1], run[2] + 1):
                assert (forced or dumb).pop(0)[1:3] == (run[0], at)
        elif kind < 0.96:
            assert delayed.force() == twin.force() == len(dumb)
            forced, dumb = forced + dumb, []
        else:
            twin = copied(twin)
        delayed.check()
        twin.check()
        assert delayed.dump() == twin.dump()
        assert singles(list(delayed)) == forced + dumb
        assert delayed.next_ms == (dumb[0][0] if dumb and not forced else 0)
        head = delayed.head()
        assert (head is None) == (not delayed.count)
        assert head is None or head[:2] == (*forced, *dumb)[0][1:3]
    assert list(delayed.clear()) == list(twin.clear())
    assert not delayed.count and delayed.dump() == ([], []) and delayed.times() == (0, 0)


def test_times_of_the_first_and_the_last() -> None:
    delayed = Delayed()
    for at in range(40):
        delayed.add(1000 + at * 7 % 40, (1, at * 2, at * 2, 0, 1))
    assert delayed.times() == copied(delayed).times() == (1000, 1039)
    delayed.force()
    delayed.add(5000, (2, 0, 0, 0, 1))
    assert delayed.times() == (1000, 5000) and delayed.next_ms == 0
