"""Interval arithmetic against sets of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines.queue.world import block, config
from warren_machines.queue.enqueue import read_shape
from warren_machines.queue.ready.block_index import BlockIndex
from warren_machines.queue.ready.ranges import Held, cut_runs, ids_of, take_ids


def spread(held: list[Held]) -> dict[int, tuple[int, int]]:
    return {i: (h[2], h[3] + i - h[0]) for h in held for i in range(h[0], h[1] + 1)}


@settings(deadline=None)
@given(
    gaps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=8),
    cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=8),
)
def test_cutting_ids_is_what_it_is_on_single_messages(
    gaps: list[tuple[int, int]], cuts: list[tuple[int, int]]
) -> None:
    held: list[Held] = []
    at = 0
    for number, (gap, size) in enumerate(gaps):
        held.append((at + gap, at + gap + size - 1, number, 3, 0, 0, number))
        at += gap + size
    for first, size in cuts:
        before = spread(held)
        taken = spread(take_ids(held, first, first + size))
        wanted = {i: name for i, name in before.items() if first <= i <= first + size}
        assert taken == wanted
        assert spread(held) == {i: name for i, name in before.items() if i not in wanted}
        assert held == sorted(held)


def test_neighbouring_ids_are_joined() -> None:
    pieces = [(0, 3, 1, 0, 0, 0, 0), (4, 4, 2, 0, 0, 0, 0), (7, 8, 2, 1, 0, 0, 0)]
    assert ids_of(pieces) == ((0, 4), (7, 8))


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), max_size=6), first=st.integers(0, 20), size=st.integers(0, 20)
)
def test_cutting_runs_is_what_slicing_a_list_is(sizes: list[int], first: int, size: int) -> None:
    runs = [(number, 2, 2 + size - 1, 0, 0) for number, size in enumerate(sizes)]
    flat = [(number, i) for number, low, high, *_ in runs for i in range(low, high + 1)]
    cut = cut_runs(runs, first, first + size)
    assert [(n, i) for n, low, high, *_ in cut for i in range(low, high + 1)] == flat[
        first : first + size
    ]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    exact=st.booleans(),
    cuts=st.lists(st.integers(0, 29), max_size=5),
    budget=st.integers(0, 3000),
)
def test_bytes_add_up_and_what_fits_is_never_too_much(
    sizes: list[int], exact: bool, cuts: list[int], budget: int
) -> None:
    limits = config(max_length_bytes=10**9 if exact else None)
    shape = read_shape(memoryview(block(len(sizes), sizes)), limits)
    contents = BlockIndex()
    contents.add(1, shape)
    edges = sorted({0, len(sizes), *(cut for cut in cuts if cut < len(sizes))})
    parts = [contents.size(1, a, b - 1) for a, b in pairwise(edges)]
    assert sum(parts) == sum(sizes) == contents.size(1, 0, len(sizes) - 1) == shape.total
    first = edges[len(edges) // 2 - 1]
    fits = contents.fitting(1, first, len(sizes) - 1, budget)
    assert sum(sizes[first : first + fits]) <= budget
    if exact:
        assert all(
            contents.size(1, a, b) == sum(sizes[a : b + 1])
            for a in range(len(sizes))
            for b in range(a, len(sizes))
        )
        assert first + fits == len(sizes) or sum(sizes[first : first + fits + 1]) > budget
