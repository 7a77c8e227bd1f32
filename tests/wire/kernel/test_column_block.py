"""A block of columns: the compiled kernel makes and refuses what `encode_columns` does."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.kernel.conftest import loaded
from warren_wire.block.block import Block, BlockError
from warren_wire.block.block_encoding import encode_columns
from warren_wire.block.layout import BLOCK_BYTES_MAX, TTL_NONE

MODES = ("compiled", "interpreted")


def columns(
    messages: list[tuple[bytes, bytes, int, int, int]], routes: int, first: int
) -> dict[str, Any]:
    """Columns of messages (properties, body, route, ttl, priority) that begin above offset 0."""

    def area(values: list[bytes]) -> tuple[memoryview, memoryview]:
        ends = array("i", [first])
        for value in values:
            ends.append(ends[-1] + len(value))
        return memoryview(ends), memoryview(b"." * first + b"".join(values))

    given_: dict[str, Any] = {"count": len(messages)}
    given_["properties_offsets"], given_["properties_data"] = area([m[0] for m in messages])
    given_["body_offsets"], given_["body_data"] = area([m[1] for m in messages])
    given_["routes"] = [(b"", b"q%d" % number) for number in range(routes)]
    given_["route_column"] = array("I", [m[2] % routes for m in messages]).tobytes()
    given_["ttl_column"] = array("I", [m[3] for m in messages]).tobytes()
    given_["priorities"] = bytes(m[4] for m in messages)
    return given_


message = st.tuples(
    st.binary(max_size=20),
    st.binary(max_size=40),
    st.integers(0, 3),
    st.sampled_from([0, 7, TTL_NONE]),
    st.integers(0, 31),
)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=150, deadline=None)
@given(
    st.lists(message, max_size=10),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sets(st.sampled_from(["route_column", "ttl_column", "priorities", "sorted"])),
)
def test_the_block_is_that_of_encode_columns(
    mode: str, messages: list[Any], routes: int, first: int, there: set[str]
) -> None:
    if "sorted" in there:
        messages.sort(key=lambda each: -each[4])
    given_ = columns(messages, routes, first)
    if "route_column" not in there and routes == 1:
        given_["route_column"] = None
    if "ttl_column" not in there:
        given_["ttl_column"] = None
    if "priorities" not in there:
        given_["priorities"] = 9
    made = loaded(mode).column_block.block_of_columns(**given_)
    assert made == encode_columns(**given_)
    assert Block.decode(made).count == len(messages)


def some(**changes: Any) -> dict[str, Any]:
    """Three messages over two routes, with changes."""
    three = [(b"p", b"body", 0, 5, 9), (b"", b"", 1, 6, 9), (b"pp", b"b", 0, 7, 1)]
    return columns(three, 2, 3) | changes


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"count": 2}, "4 properties offsets for 2 messages; give 3"),
    ({"body_offsets": array("i", [0, 1, 2])}, "3 body offsets for 3 messages; give 4"),
    ({"body_offsets": array("i", [0, 5, 4, 8])}, "body offsets do not ascend"),
    ({"body_offsets": array("i", [3, 3, 3, 9])}, "within the 8 bytes of data"),
    ({"body_offsets": array("i", [-1, 0, 0, 0])}, "body offsets do not ascend"),
    ({"properties_data": b""}, "properties offsets do not ascend within the 0 bytes"),
    ({"routes": []}, "3 messages without a route"),
    ({"route_column": None}, "2 routes need a column"),
    ({"route_column": array("I", [0, 2, 0]).tobytes()}, "2 routes need a column"),
    ({"route_column": bytes(8)}, "route column of 8 bytes for 3 messages"),
    ({"ttl_column": bytes(16)}, "ttl column of 16 bytes for 3 messages"),
    ({"priorities": b"\x01\x01"}, "priorities are 3 bytes from 0 to 31"),
    ({"priorities": b"\x20\x01\x01"}, "priorities are 3 bytes from 0 to 31"),
    ({"priorities": 32}, "priorities are 3 bytes from 0 to 31"),
    ({"message_bytes_max": 3}, "a message of 4 bytes; the limit is 3: split it"),
    ({"routes": [(b"", b"k" * 256), (b"", b"q")]}, "routing key of 256 bytes; the limit is 255"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("changes", "says"), WRONG)
def test_columns_that_are_wrong_are_refused_with_one_text(
    mode: str, changes: dict[str, Any], says: str
) -> None:
    given_ = some(**changes)
    with pytest.raises(BlockError, match=says) as refused:
        encode_columns(**given_)
    with pytest.raises(BlockError) as same:
        loaded(mode).column_block.block_of_columns(**given_)
    assert str(same.value) == str(refused.value)


@pytest.mark.parametrize("mode", MODES)
def test_the_limits_are_met_exactly(mode: str) -> None:
    block_of_columns = loaded(mode).column_block.block_of_columns
    assert block_of_columns(**some(message_bytes_max=4)) == encode_columns(**some())
    body = bytes(BLOCK_BYTES_MAX)
    whole = {
        "count": 1,
        "properties_offsets": array("i", [0, 0]),
        "properties_data": b"",
        "body_offsets": array("i", [0, len(body)]),
        "body_data": body,
        "routes": [(b"", b"q")],
        "message_bytes_max": BLOCK_BYTES_MAX,
    }
    assert len(block_of_columns(**whole)) > BLOCK_BYTES_MAX
    with pytest.raises(BlockError, match=f"{BLOCK_BYTES_MAX + 1} bytes of messages; a block holds"):
        block_of_columns(
            **whole | {"properties_offsets": array("i", [0, 1]), "properties_data": b"p"}
        )
