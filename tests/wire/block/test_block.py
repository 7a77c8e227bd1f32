"""The block: what is encoded is read back, what is damaged is refused."""

from __future__ import annotations

import random
import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.block.messages import Message, messages_of
from warren_wire.block import block as b
from warren_wire.block.block import Block, BlockError
from warren_wire.block.layout import HEADER

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([(b"", b"q"), (b"x", b"key"), (b"e" * 255, b"k" * 255)]),
        st.binary(max_size=5),
        st.binary(max_size=9),
        st.integers(0, 31),
        st.sampled_from([None, 0, 5000]),
    ),
    max_size=9,
)


def encoded(messages: list[Message]) -> bytes:
    routes, properties, bodies, priorities, ttls = zip(*messages, strict=True)
    return b.encode(bodies, properties, list(routes), priorities, ttls)


def runs(messages: list[Message]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for i, message in enumerate(messages):
        if found and found[-1][2] == message[3]:
            found[-1] = (found[-1][0], i + 1, message[3])
        else:
            found.append((i, i + 1, message[3]))
    return found


@given(MESSAGES.filter(bool), st.integers(0, b.AREAS), st.data())
def test_an_area_that_is_left_out_is_empty(
    messages: list[Message], areas: int, data: st.DataObject
) -> None:
    whole = Block.decode(encoded(messages))
    first = data.draw(st.integers(0, len(messages) - 1))
    last = data.draw(st.integers(first + 1, len(messages)))
    made = Block.decode(b.concat([(whole, first, last), (whole, 0, first + 1)], areas=areas))
    expected = messages_of(whole)[first:last] + messages_of(whole)[: first + 1]
    assert messages_of(made) == [
        (
            route,
            properties if areas & b.AREA_PROPERTIES else b"",
            body if areas & b.AREA_BODIES else b"",
            *rest,
        )
        for route, properties, body, *rest in expected
    ]


@given(MESSAGES.filter(bool))
def test_what_is_encoded_is_read_back_sorted(messages: list[Message]) -> None:
    block = Block.decode(encoded(messages))
    expected = sorted(messages, key=lambda message: -message[3])
    assert messages_of(block) == expected
    assert list(block.priority_runs) == runs(expected)
    assert block.priority_column is None and len(block) == len(messages)
    assert block.size_bytes() == sum(len(m[1]) + len(m[2]) for m in messages)
    assert len(block.body_offsets) == len(messages) + 1


@settings(max_examples=200)
@given(st.lists(MESSAGES.filter(bool), min_size=1, max_size=4), st.data())
def test_ranges_are_joined_in_the_order_given(lists: list[list[Message]], data: Any) -> None:
    blocks = [Block.decode(encoded(messages)) for messages in lists]
    parts = []
    expected: list[Message] = []
    for block in data.draw(st.lists(st.sampled_from(blocks), max_size=6)):
        first = data.draw(st.integers(0, block.count))
        last = data.draw(st.integers(first, block.count))
        parts.append((block, first, last))
        expected += messages_of(block)[first:last]
    joined = Block.decode(b.concat(parts))
    assert messages_of(joined) == expected
    assert list(joined.priority_runs) == runs(expected)
    priorities = [message[3] for message in expected]
    descends = priorities == sorted(priorities, reverse=True)
    assert (joined.priority_column is None) == descends
    assert messages_of(Block.decode(b.concat([(joined, 0, joined.count)]))) == expected


@given(MESSAGES.filter(bool), st.data())
def test_slice(messages: list[Message], data: Any) -> None:
    block = Block.decode(encoded(messages))
    first = data.draw(st.integers(0, block.count))
    last = data.draw(st.integers(first, block.count))
    assert messages_of(Block.decode(block.slice(first, last))) == messages_of(block)[first:last]
    whole = block.slice(0, block.count)
    assert whole == encoded(messages)


def test_slices_outside_are_refused() -> None:
    block = Block.decode(encoded([((b"", b"q"), b"", b"x", 4, None)]))
    for first, last in ((0, 2), (1, 0), (-1, 1)):
        with pytest.raises(BlockError):
            block.slice(first, last)


def sample() -> bytes:
    """A block with every column."""
    one = Block.decode(
        encoded(
            [
                ((b"", b"q"), b"\0\0", b"first", 1, None),
                ((b"x", b"k"), b"\0\0", b"second", 9, 5),
            ]
        )
    )
    return b.concat([(one, 1, 2), (one, 0, 1), (one, 0, 1)])


def test_the_sample_s_bytes_stay_what_they_are() -> None:
    """Frozen: logs on disk hold version 1. A new layout is a new version."""
    assert sample().hex() == SAMPLE


SAMPLE = (
    "57424c4b010007000300000014403f407f000000020000000000000007000000000000000200000004000000"
    "0600000000000000050000000b00000011000000000000000100000001000000ffffffff0500000005000000"
    "010909000001710178016b000000000000000000000066697273747365636f6e647365636f6e64"
)


def test_every_damaged_octet_is_refused() -> None:
    good = sample()
    for data in (good, b.compress(encoded([((b"", b"q"), b"", b"a" * 600, 4, None)]))):
        for at in range(len(data)):
            for change in (1, 0x80):
                damaged = bytearray(data)
                damaged[at] ^= change
                try:
                    block = Block.decode(damaged)
                except BlockError:
                    continue
                # Only the form is free to change: both values mean something.
                assert at == 5 and block.form == 1, at


def damaged_copies(good: bytes, seed: int) -> Iterator[bytearray]:
    """Yield 20,000 copies with one to three bytes overwritten."""
    chance = random.Random(seed)
    for _ in range(20000):
        damaged = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        yield damaged


def test_unverified_damage_never_leaves_the_buffer() -> None:
    good = sample()
    for damaged in damaged_copies(good, 7):
        try:
            block = Block.decode(damaged, verify=False)
        except BlockError:
            continue
        for i in range(block.count):
            assert len(block.body(i)) <= len(good)
            assert len(block.properties(i)) <= len(good)


def test_resigned_damage_is_refused_or_harmless() -> None:
    """A client that can compute a checksum sends any bytes it likes."""
    for damaged in damaged_copies(sample(), 8):
        struct.pack_into("<I", damaged, 12, zlib.crc32(damaged[32:]))
        try:
            block = Block.decode(damaged)
        except BlockError:
            continue
        assert len(messages_of(block)) == block.count
        assert sum(last - first for first, last, _ in block.priority_runs) == block.count


@pytest.mark.parametrize("cut", range(0, 127, 7))
def test_torn(cut: int) -> None:
    assert len(sample()) == 127
    with pytest.raises(BlockError):
        Block.decode(sample()[:cut])
    with pytest.raises(BlockError):
        Block.decode(sample() + b"\0" * (cut + 1))


def test_compressed() -> None:
    plain = b.encode([b"the same " * 9] * 500, [b"\x10\0\2"] * 500, (b"", b"q"))
    packed = b.compress(plain)
    assert len(packed) < len(plain) / 4
    assert b.decompress(packed) == plain
    assert messages_of(Block.decode(packed)) == messages_of(Block.decode(plain))
    assert b.compress(packed) == packed
    noise = b.encode([random.Random(1).randbytes(5000)], [b""], (b"", b"q"))
    assert b.compress(noise) == noise
    small = b.encode([b"x"], [b""], (b"", b"q"))
    assert b.compress(small) == small


def test_only_what_a_sample_says_is_worth_it_is_compressed() -> None:
    chance = random.Random(3)
    half = [chance.randbytes(500) + b"a" * 500 for _ in range(100)]
    plain = b.encode(half, [b""] * 100, (b"", b"q"))
    assert b.compress(plain, len(plain) + 1) == plain
    assert len(b.compress(plain, len(plain))) < len(plain) * 0.6
    most = [chance.randbytes(900) + b"a" * 100 for _ in range(100)]
    assert b.compress(b.encode(most, [b""] * 100, (b"", b"q")))[7] == 0


def framed(plain: bytes) -> bytes:
    """As no node writes it, but clients may send it."""
    head = list(HEADER.unpack_from(plain))
    packed = lz4.frame.compress(plain[32:], store_size=False)
    head[4], head[6] = 1, zlib.crc32(packed)
    return HEADER.pack(*head) + packed


@given(MESSAGES.filter(bool), st.integers(100, 900))
def test_an_outline_has_everything_but_bodies_and_properties(
    messages: list[Message], more: int
) -> None:
    route, properties, body, priority, ttl = messages[0]
    messages[0] = route, properties, body + b"z" * 9 * more, priority, ttl
    plain = encoded(messages)
    packed = b.compress(plain)
    assert packed[7] == 2 and b.decompress(packed) == plain == b.decompress(framed(plain))
    outline, block = Block.outline(packed), Block.decode(plain)
    assert not outline.whole and block.whole
    for name in (
        "count",
        "form",
        "routes",
        "priority_runs",
        "properties_offsets",
        "body_offsets",
        "ttl_column",
        "route_column",
        "priority_column",
    ):
        assert getattr(outline, name) == getattr(block, name), name
    for other in (plain, framed(plain)):
        assert Block.outline(other).whole and messages_of(Block.outline(other)) == messages_of(
            block
        )


def test_damage_behind_a_checksum_never_leaves_the_buffer_of_a_compressed_block() -> None:
    chance = random.Random(9)
    good = b.compress(
        encoded(
            [
                ((b"", b"q"), b"p" * 300, b"a" * 600, 4, 7),
                *[((b"", b"r"), b"", b"%d" % i * 9, 4, None) for i in range(9)],
            ]
        )
    )
    assert good[7] == 2
    for _ in range(20000):
        damaged = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        struct.pack_into("<I", damaged, 12, zlib.crc32(damaged[32:]))
        for read in (Block.decode, Block.outline):
            try:
                block = read(damaged)
            except BlockError:
                continue
            if block.whole:
                assert sum(len(block.body(i)) for i in range(block.count)) <= 1 << 20


def test_a_bomb_is_not_unpacked() -> None:
    packed = bytearray(b.compress(b.encode([b"\0" * (10 << 20)], [b""], (b"", b"q"))))
    with pytest.raises(BlockError, match="limit"):
        Block.decode(packed, bytes_max=1 << 20)
    struct.pack_into("<I", packed, 16, 1000)
    with pytest.raises(BlockError, match="compressed"):
        Block.decode(packed)
    with pytest.raises(BlockError, match="compressed"):
        Block.decode(bytes(packed) + b"x", verify=False)


def test_columns_as_arrow_keeps_them() -> None:
    import pyarrow as pa

    bodies = pa.array([b"zero", b"one", b"", b"three"], pa.binary()).slice(1)
    buffers = bodies.buffers()
    offsets = memoryview(buffers[1])[4 * bodies.offset : 4 * (bodies.offset + 4)]
    data = b.encode_columns(
        count=3,
        properties_offsets=array("i", [0, 2, 4, 6]),
        properties_data=b"\0\0" * 3,
        body_offsets=offsets,
        body_data=buffers[2],
        routes=[(b"", b"a"), (b"", b"b")],
        route_column=array("i", [1, 0, 1]),
        priorities=b"\x09\x04\x05",
    )
    assert messages_of(Block.decode(data)) == [
        ((b"", b"b"), b"\0\0", b"one", 9, None),
        ((b"", b"a"), b"\0\0", b"", 4, None),
        ((b"", b"b"), b"\0\0", b"three", 5, None),
    ]
    block = Block.decode(data)
    view = pa.Array.from_buffers(
        pa.binary(), 3, [None, pa.py_buffer(block.body_offsets), pa.py_buffer(block.body_data)]
    )
    view.validate(full=True)
    assert view.to_pylist() == [b"one", b"", b"three"]


@pytest.mark.parametrize(
    "change",
    [
        {"count": 2},
        {"routes": []},
        {"body_offsets": array("i", [0, 5, 3, 6])},
        {"body_offsets": array("i", [0, 1, 2, 99])},
        {"body_offsets": array("i", [0, 1, 2, -1])},
        {"routes": [(b"", b"a"), (b"", b"b")]},
        {"routes": [(b"", b"a"), (b"", b"b")], "route_column": array("I", [0, 1, 2])},
        {"ttl_column": array("I", [1])},
        {"priorities": 32},
        {"priorities": b"\x04\x04"},
        {"priorities": b"\x04\x04\x20"},
        {"routes": [(b"", b"k" * 256)]},
        {"message_bytes_max": 1},
        {"bytes_max": 11},
    ],
)
def test_columns_that_do_not_fit(change: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "count": 3,
        "properties_offsets": array("i", [0, 2, 4, 6]),
        "properties_data": bytes(6),
        "body_offsets": array("i", [0, 1, 3, 6]),
        "body_data": b"abcdef",
        "routes": [(b"", b"a")],
    }
    assert Block.decode(b.encode_columns(**arguments)).count == 3
    with pytest.raises(BlockError):
        b.encode_columns(**{**arguments, **change})


def test_limits() -> None:
    with pytest.raises(BlockError, match="16777217 bytes; the limit is 16777216"):
        b.encode([b"x" * (b.MESSAGE_BYTES_MAX + 1)], [b""], (b"", b"q"))
    large = Block.decode(b.encode([b"x" * 1000], [b""], (b"", b"q")))
    with pytest.raises(BlockError, match="ask for fewer"):
        b.concat([(large, 0, 1)] * 3, bytes_max=2500)
    with pytest.raises(BlockError, match="1 properties"):
        b.encode([b"", b""], [b""], (b"", b"q"))
    with pytest.raises(BlockError, match="into one"):
        b.concat([(large, 0, 1), (Block.decode(b.encode([b""], [b""], (b"", b"q"), form=1)), 0, 1)])
