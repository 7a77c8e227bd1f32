"""Streams without a broker: offsets, slices, and the offset in a message's headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_warren.claims.plan import SLICES_MAX
from pyspark_warren.errors import CheckpointError
from pyspark_warren.streams.consumer import OFFSET_HEADER, offset_of
from pyspark_warren.streams.offset import StreamOffset, offset_slices
from warren_wire.amqp091.fields import Field
from warren_wire.amqp091.properties import Properties, encode

OFFSET = StreamOffset("/", "log", 1234)


@given(st.integers(0, 10**12), st.integers(0, 10**7), st.integers(0, 200))
def test_slices_cover_the_offsets_once_in_order(first: int, count: int, partitions: int) -> None:
    found = offset_slices(first, first + count, partitions)
    at = first
    for each in found:
        assert each.first == at < each.last
        at = each.last
    assert at == first + count
    assert len(found) <= (partitions or SLICES_MAX)
    assert not partitions or len(found) == min(partitions, count)


def test_the_stored_form_comes_back() -> None:
    for offset in (OFFSET, OFFSET.moved(2000, 1300), StreamOffset("v", "q", registered=False)):
        assert StreamOffset.from_dict(offset.to_dict()) == offset
    assert list(OFFSET.to_dict()) == sorted(OFFSET.to_dict())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "topic"}, "not written by this source"),
        ({"version": 2}, "of form stream 2, this release knows stream 1"),
        ({"offset": -1}, "cannot be read"),
        ({"offset": "x"}, "cannot be read"),
        ({"first": 1235}, "cannot be read"),
    ],
)
def test_what_is_no_offset_of_a_stream_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(CheckpointError, match=text):
        StreamOffset.from_dict({**OFFSET.to_dict(), **change})
    with pytest.raises(CheckpointError, match="one checkpoint serves one queue"):
        OFFSET.check_is_of("/", "other")


@given(st.integers(0, 2**62), st.dictionaries(st.text(max_size=9), st.text(max_size=40)))
def test_the_offset_is_the_brokers(offset: int, others: dict[str, str]) -> None:
    said = {OFFSET_HEADER: Field("l", offset)}
    false = "\x0f" + OFFSET_HEADER + "l" + 8 * "a"
    for headers in ({**others, **said}, {"a": false, **said}, {**said, "z": false}):
        assert offset_of(encode(Properties(headers=headers))) == offset
    assert offset_of(encode(Properties(headers={"a": 1}))) == -1
