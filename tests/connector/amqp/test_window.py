"""The window of unconfirmed rows, against a plain model."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_warren.rows.encode import encode_rows
from pyspark_warren.sink.window import PUBLISH_WINDOW_BYTES, Run, Window


def run(first: int, count: int, size_bytes: int = 100) -> Run:
    bodies = pa.array([b"%d" % i for i in range(first, first + count)], pa.binary())
    rows = encode_rows(pa.record_batch({"body": bodies}), "", "q", True)
    return Run(range(first, first + count), rows, size_bytes)


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=30),
)
def test_confirms_in_any_order(sizes: list[int], confirms: list[tuple[int, bool]]) -> None:
    window, model, first = Window(1_000), dict[int, int](), 0
    for size in sizes:
        window.send(run(first, size))
        model.update({tag + 1: tag for tag in range(first, first + size)})
        first += size
    for tag, multiple in confirms:
        named = [each for each in model if each == tag or (multiple and each < tag)]
        assert window.confirm(tag, multiple) == len(named)
        for each in named:
            del model[each]
        window.check()
        assert window.rows == len(model)
        for each in range(62):
            found = window.row_of(each)
            assert (None if found is None else found[0].numbers[found[1]]) == model.get(each)
    again = window.unconfirmed()
    assert [n for each in again for n in each.numbers] == sorted(model.values())
    bodies = [body.as_py() for each in again for body in each.rows.bodies]
    assert bodies == [b"%d" % n for n in sorted(model.values())]


def test_what_fits() -> None:
    window = Window(10)
    assert window.fits(run(0, 50, 2 * PUBLISH_WINDOW_BYTES)), "alone, however large"
    window.send(run(0, 6))
    assert window.fits(run(6, 4)) and not window.fits(run(6, 5))
    assert not window.fits(run(6, 1, PUBLISH_WINDOW_BYTES))
    window.confirm(6, True)
    assert window.size_bytes == 0 and window.fits(run(6, 50))
