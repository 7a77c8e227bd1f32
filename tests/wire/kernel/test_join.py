"""Blocks are joined to the bytes that `block.concat` makes of them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TypeAlias

import pytest

from tests.broker.fuzz import blocks
from warren_wire.block.block import (
    AREA_BODIES,
    AREA_PROPERTIES,
    AREAS,
    FORM_AMQP10,
    Block,
    BlockError,
    compress,
    concat,
    encode,
)
from warren_wire.block.layout import HEADER_BYTES
from warren_wire.kernel import Kernel

Part: TypeAlias = tuple[bytes | memoryview, int, int, int]
Join: TypeAlias = Callable[..., bytes]
KEYS = (b"", b"a", b"orders", b"k" * 255)


@pytest.fixture
def join(both: Kernel) -> Join:
    found: Join = both.join.join
    return found


def block(random: Random, count: int, keys: Sequence[bytes] = KEYS) -> bytes:
    """A block with any of the columns."""
    priorities: int | list[int] = random.choice((4, 0, 31))
    if random.random() < 0.3:
        priorities = [random.randint(0, 5) for _ in range(count)]
    ttls = [random.choice((None, 0, 7, 1 << 31)) for _ in range(count)]
    return encode(
        [random.randbytes(random.choice((0, 1, 8, 300))) for _ in range(count)],
        [random.randbytes(random.choice((2, 17))) for _ in range(count)],
        [(random.choice((b"", b"x")), random.choice(keys)) for _ in range(count)]
        if random.random() < 0.5
        else (b"", random.choice(keys)),
        priorities,
        ttls if random.random() < 0.3 else None,
    )


def within(random: Random, data: bytes) -> Part:
    """A range of a block, which begins anywhere in its buffer."""
    start = random.randint(0, 9)
    count = Block.decode(data).count
    first = random.randrange(count)
    last = random.randint(first + 1, count) if random.random() < 0.5 else count
    buffer: bytes | memoryview = bytes(start) + data
    return (memoryview(buffer) if random.random() < 0.3 else buffer), start, first, last


def expected(parts: Sequence[Part], areas: int = AREAS) -> bytes:
    return concat(
        [
            (Block.decode(memoryview(buffer)[start:]), first, last)
            for buffer, start, first, last in parts
        ],
        areas=areas,
    )


@pytest.mark.parametrize("seed", range(150))
def test_any_parts_of_any_blocks(join: Join, seed: int) -> None:
    random = Random(seed)
    large = random.random() < 0.3
    parts = [
        within(random, block(random, random.randint(1, 40 if large else 1)))
        for _ in range(random.randint(1, 30))
    ]
    areas = random.choice((AREAS, AREAS, AREA_BODIES, AREA_PROPERTIES, 0))
    joined = join(parts, areas)
    assert joined == expected(parts, areas)
    if areas == AREAS:
        Block.decode(joined)


def test_priorities_that_do_not_descend_become_a_column_once(join: Join) -> None:
    blocks = [encode([b"m"], [b"\0\0"], (b"", b"q"), priority) for priority in (9, 4, 4, 5, 5)]
    for count in range(1, 6):
        parts = [(each, 0, 0, 1) for each in blocks[:count]]
        found = Block.decode(join(parts))
        assert (found.priority_column is None) == (count < 4)
        assert join(parts) == expected(parts)
        again = [(join(parts), 0, 0, count), *parts]  # its column is read, too
        assert join(again) == expected(again)


def test_no_parts_are_an_empty_block(join: Join) -> None:
    assert join([]) == concat([])


def test_a_range_that_the_block_does_not_have_is_refused(join: Join) -> None:
    one = encode([b"m"], [b"\0\0"], (b"", b"q"))
    for first, last in ((0, 2), (1, 1), (1, 0), (-1, 1)):
        with pytest.raises(BlockError):
            join([(one, 0, first, last)])


def test_both_forms_do_not_go_into_one(join: Join) -> None:
    parts = [
        (encode([b"m"], [b"\0\0"], (b"", b"q"), form=form), 0, 0, 1) for form in (0, FORM_AMQP10)
    ]
    assert Block.decode(join(parts[1:])).form == FORM_AMQP10
    with pytest.raises(BlockError, match=r"0\.9\.1 and 1\.0"):
        join(parts)


def test_a_compressed_block_is_not_joined_as_it_lies_there(both: Kernel) -> None:
    packed = compress(encode([b"x" * 5000], [b"\0\0"], (b"", b"q")), 1)
    assert packed[7]
    if both.mode == "compiled":
        with pytest.raises(BlockError, match="compressed"):
            both.join.join([(packed, 0, 0, 1)])
    plain = Block.decode(packed).buffer
    assert both.join.join([(plain, 0, 0, 1)]) == bytes(plain)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_columns_never_lead_out_of_the_block(
    pair: tuple[Kernel, Kernel], seed: int
) -> None:
    # The log's checksum stands before this: it is the compiled kernel that must not rely on it.
    random = Random(seed)
    for _ in range(200):
        data = bytearray(block(random, random.randint(1, 6)))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(4, len(data) - 4)
            if random.random() < 0.5:
                struct.pack_into("<I", data, at & ~3, random.choice((0, 1, 1 << 31, 0xFFFFFFFF)))
            else:
                data[at] = random.randrange(256)
        other = (block(random, 2), 0, 0, 2)
        with suppress(BlockError):
            pair[0].join.join([other, (bytes(data), 0, 0, random.randint(1, 6)), other])


def test_damaged_blocks_are_joined_alike_or_refused(join: Join) -> None:
    """`concat` raised OverflowError for offsets that do not ascend, or made others of them."""
    random = Random(5)
    refused = joined = 0
    for _ in range(4_000):
        parts: list[Part] = []
        for _ in range(random.randint(1, 3)):
            data = blocks.mutated(random)
            try:
                count = Block.decode(data, verify=False).count
            except BlockError:
                continue
            if count and data[7] == 0:
                first = random.randrange(count)
                parts.append((data, 0, first, random.randint(first + 1, count)))
        try:
            found = join(parts)
        except BlockError:
            refused += 1
            with pytest.raises(BlockError):
                unverified(parts)
            continue
        joined += 1
        assert found == unverified(parts)
    assert refused > 100 and joined > 1_000, (refused, joined)


def unverified(parts: Sequence[Part]) -> bytes:
    return concat(
        [
            (Block.decode(memoryview(buffer)[start:], verify=False), first, last)
            for buffer, start, first, last in parts
        ]
    )


def test_a_truncated_block_is_refused(join: Join) -> None:
    whole = encode([b"body"], [b"\0\0"], (b"", b"q"))
    for size in range(len(whole)):
        with pytest.raises(BlockError):
            join([(whole[:size] if size else b"\0", 0, 0, 1)])
    with pytest.raises(BlockError):
        join([(whole + b"\0", 0, 0, 1)])
    assert len(whole) > HEADER_BYTES
