"""Blocks and runs that are packed against those that are not."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.machines.queue.logs import grow
from tests.machines.queue.world import Queue, block, config
from warren_machines.queue import commands as c
from warren_machines.queue.enqueue import read_shape
from warren_machines.queue.ready import block_index
from warren_machines.queue.ready.backlog import Backlog
from warren_machines.queue.ready.block_index import LIVE, BlockIndex, Shape
from warren_raft.index_set import PAGE, PAGE_BITS
from warren_wire.block.block import compress, encode

QUICK = settings(max_examples=150, deadline=None)


pytestmark = pytest.mark.usefixtures("few_pages_unpacked")


def a_shape(count: int, size: int, uneven: bool, ttl: int | None) -> Shape:
    sizes = [size + (i * size if uneven else 0) for i in range(count)]
    ttls = None if ttl is None else [ttl if i % 2 else None for i in range(count)]
    return read_shape(memoryview(block(count, sizes, 4, ttls)), config())


SHAPES = st.tuples(
    st.integers(1, 4), st.sampled_from([0, 3, 100]), st.booleans(), st.sampled_from([None, None, 7])
)
STEPS = st.sampled_from([1, 1, 2, 17, 400, PAGE, 3 * PAGE + 1])


@QUICK
@given(st.lists(st.tuples(STEPS, SHAPES, st.booleans(), st.integers(0, 99)), max_size=40))
def test_packed_contents_are_what_never_packed_ones_are(
    history: list[tuple[int, tuple[int, int, bool, int | None], bool, int]],
) -> None:
    packed, plain = BlockIndex(), BlockIndex()
    live: dict[int, int] = {}
    index = 5
    for step, how, ready, choice in history:
        index += step
        shape = a_shape(*how)
        packed.add(index, shape)
        block_index.FILLED_PAGES_MAX = block_index.TOUCHED_PAGES_MAX = 10**6
        plain.add(index, shape)
        if ready:
            plain.ready_at(index, 1000 + index, 50 if choice % 2 else None)
        block_index.FILLED_PAGES_MAX = block_index.TOUCHED_PAGES_MAX = 1
        if ready:
            packed.ready_at(index, 1000 + index, 50 if choice % 2 else None)
        live[index] = shape.count
        block_index.LOOKS_MAX = (1, 20, 256)[choice % 3]
        for one in sorted(live)[:: 1 + choice % 4]:
            assert packed.size(one, 0, 0) == plain.size(one, 0, 0)
            page = one >> PAGE_BITS
            assert list(packed.in_page(page)) == list(plain.in_page(page))
        some = sorted(live)[choice % len(live)]
        count = plain.table[some] & LIVE
        assert packed.size(some, 0, 0) == plain.size(some, 0, 0)
        assert packed.fitting(some, 0, 0, choice) == plain.fitting(some, 0, 0, choice)
        detail, other = packed.expiring_detail(some), plain.expiring_detail(some)
        assert (detail is None) == (other is None)
        assert detail is None or other is None or detail.expiry(0) == other.expiry(0)
        if choice % 5 < 2:
            packed.drop(some, min(count, 2))
            plain.drop(some, min(count, 2))
            live[some] -= min(count, 2)
            if not live[some]:
                del live[some]
        assert packed.has(some) == plain.has(some) == (some in live)
        packed.check()
        plain.check()
        assert packed.dump() == plain.dump()
        assert list(packed.indexes()) == sorted(live)
        loaded = BlockIndex()
        loaded.load(packed.dump())
        loaded.check()
        assert loaded.dump() == packed.dump()


RUNS = st.tuples(STEPS, st.integers(0, 3), st.integers(0, 2))
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), RUNS),
        st.tuples(st.sampled_from(["popleft", "pop", "shorten", "back", "load"]), RUNS),
    ),
    max_size=80,
)


@QUICK
@given(DEEDS)
@example([("append", (1, 1, 1)), ("back", (1, 2, 0)), ("shorten", (1, 0, 0))])
def test_a_backlog_is_a_deque(deeds: list[tuple[str, tuple[int, int, int]]]) -> None:
    backlog = Backlog()
    plain: deque[tuple[int, int, int]] = deque()
    index = 0
    for deed, (step, first, more) in deeds:
        if deed in ("append", "back"):
            index = index + step if deed == "append" else max(1, index - step)
            if plain and plain[-1][0] == index:
                first += plain[-1][2] + 1  # no message is in two runs
            backlog.append((index, first, first + more))
            plain.append((index, first, first + more))
        elif deed == "load":
            backlog = Backlog(backlog.chunks())
        elif plain and deed == "popleft":
            assert backlog.popleft() == plain.popleft()
        elif plain and deed == "pop":
            assert backlog.pop() == plain.pop()
        elif plain and deed == "shorten" and plain[0][1] < plain[0][2]:
            low, start, end = plain[0]
            plain[0] = (low, start + 1, end)
            backlog.shorten_head(start + 1)
        backlog.check()
        assert list(backlog) == list(plain)
        assert bool(backlog) == bool(plain)
        if plain:
            assert (backlog.head(), backlog.tail()) == (plain[0], plain[-1])
        assert Backlog(backlog.chunks()).chunks() == backlog.chunks()


def test_a_backlog_is_taken_from_either_end() -> None:
    runs = [(index, 0, 0) for index in range(1, 9 * PAGE, PAGE // 3)]
    backward, both = Backlog(), Backlog()
    for run in runs:
        backward.append(run)
        both.append(run)
    assert [backward.pop() for _ in runs] == runs[::-1] and not backward
    for low, high in zip(runs[:13], runs[:-14:-1], strict=True):
        assert (both.popleft(), both.pop()) == (low, high)
        both.check()


def test_a_long_backlog_is_delivered_returned_and_settled_in_order() -> None:
    queue = Queue(stride=300)
    indexes = [queue.put(1, size=50 + number % 7) for number in range(40)]
    assert queue.ready() == [(index, 0) for index in indexes]
    queue.do(c.Checkout(1, 1, "t", 10))
    assert queue.names() == [(index, 0) for index in indexes[:10]]
    queue.do(c.Return(1, ((0, 3),), False))
    assert queue.names() == [(index, 0) for index in indexes[:4]]
    queue.do(c.Settle(1, ((4, 13),)))
    assert queue.names() == [(index, 0) for index in indexes[10:20]]
    assert list(queue.machine.live_indexes(queue.state)) == indexes[10:]


@pytest.mark.parametrize(
    "settings", [{}, {"priority_max": 9, "priority_default": 0}, {"max_length_bytes": 9000}]
)
def test_a_compressed_block_is_the_same_to_the_machine(settings: dict[str, Any]) -> None:
    plain, packed = Queue(**settings), Queue(**settings)
    for number in range(1, 9):
        data = encode(
            [b"a" * 90 * number * (i % 3) for i in range(20)],
            [b"\x10\0\2" * (i % 2) for i in range(20)],
            (b"", b"q"),
            [4, 9, 0] * 6 + [4, 4],
            [None, 5000] * 10,
        )
        assert compress(data)[7] == 2
        assert plain.do(c.Enqueue(), data) == packed.do(c.Enqueue(), compress(data))
    assert plain.digest() == packed.digest()


@pytest.mark.parametrize("seed", range(6))
def test_what_is_packed_shows_nowhere(seed: int) -> None:
    """1. One member has run for weeks, another began from a snapshot.  2. Both take the same
    entries.  What each has unpacked differs; replies, effects and bytes must not."""
    queue = grow(seed, 60)
    machine = queue.machine
    lived, begun = machine.init(), machine.init()
    for meta, data in queue.log:
        begun = machine.restore(machine.snapshot(begun))
        assert machine.apply(meta, data, lived) == machine.apply(meta, data, begun)
    assert machine.snapshot(lived) == machine.snapshot(begun) == queue.digest()
