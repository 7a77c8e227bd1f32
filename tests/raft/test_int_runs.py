"""Packed runs, and indexes made of them."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren_raft import int_runs
from warren_raft.index_set import PAGE, Indexes

ANY = st.integers(0, int_runs.VALUE_MAX)
STEPS = st.sampled_from([1, 1, 1, 2, 300, PAGE, 1 << 40])


@given(
    st.one_of(
        st.lists(ANY, min_size=1, max_size=60),
        st.lists(st.integers(90, 400), min_size=1, max_size=60),
        st.builds(
            lambda first, n, step: [first + i * step for i in range(n)],
            st.integers(0, 10**12),
            st.integers(1, 60),
            st.integers(0, 500),
        ),
        st.lists(STEPS, min_size=1, max_size=60).map(lambda steps: list(accumulate(steps))),
    )
)
def test_what_is_packed_is_unpacked(values: list[int]) -> None:
    data = b"before" + int_runs.pack(values)
    assert list(int_runs.unpack(data, 6)) == values
    assert int_runs.count_of(data, 6) == len(values)
    assert int_runs.end_of(data + b"after", 6) == len(data)
    assert [int_runs.value(data, 6, i) for i in range(len(values))] == values
    consecutive = values == list(range(values[0], values[0] + len(values)))
    assert int_runs.is_consecutive(data, 6) == consecutive


def test_neighbours_cost_nothing_and_near_values_a_byte() -> None:
    random = Random(1)
    assert len(int_runs.pack(range(5, 1029))) == int_runs.HEAD_BYTES
    assert len(int_runs.pack([7] * 1000)) == int_runs.HEAD_BYTES
    sizes = [random.randint(900, 1150) for _ in range(1000)]
    assert len(int_runs.pack(sizes)) == int_runs.HEAD_BYTES + 1000
    offsets = [sum(sizes[: i + 1]) for i in range(1000)]
    assert len(int_runs.pack(offsets)) == int_runs.HEAD_BYTES + 999


def test_bytes_that_are_no_run_are_refused() -> None:
    whole = int_runs.pack([3, 900, 5])
    for data in (b"", whole[:10], whole[:-1], b"\x07" + whole[1:], b"\x11\0\0" + whole[3:]):
        with pytest.raises(int_runs.Unreadable):
            int_runs.end_of(data)


def test_descending_and_equal_bytes() -> None:
    assert list(int_runs.unpack(int_runs.pack([9, 6, 3, 0]))) == [9, 6, 3, 0]
    assert int_runs.pack(range(3, 9)) == int_runs.pack([3, 4, 5, 6, 7, 8])


@given(st.lists(STEPS, max_size=60), st.integers(0, 1 << 12))
def test_indexes_are_a_sequence(steps: list[int], cut: int) -> None:
    values = [sum(steps[: i + 1]) for i in range(len(steps))]
    indexes = Indexes.of(values)
    assert (list(indexes), len(indexes)) == (values, len(values))
    assert [indexes[i] for i in range(len(values))] == values
    assert indexes == values and indexes == Indexes.of(values) and indexes != [*values, 1 << 50]
    assert indexes[1:3] == values[1:3]
    assert list(indexes.up_to(cut)) == [value for value in values if value <= cut]
    assert indexes.up_to(cut) == Indexes.of(value for value in values if value <= cut)
    assert [(value in indexes) for value in range(50)] == [value in values for value in range(50)]
    assert Indexes.read(indexes.tobytes()) == indexes
    pages = [(page, list(int_runs.unpack(run))) for page, run in indexes.pages()]
    assert [value for _, run in pages for value in run] == values
    assert all(list(indexes.page(page)) == run for page, run in pages)


def test_indexes_out_of_order_are_refused() -> None:
    low, high = int_runs.pack([1, 2]), int_runs.pack([PAGE, PAGE + 1])
    assert list(Indexes.read(low + high)) == [1, 2, PAGE, PAGE + 1]
    for data in (high + low, low + low, int_runs.pack([1, PAGE]), low + high[:-1]):
        with pytest.raises(int_runs.Unreadable):
            Indexes.read(data)
