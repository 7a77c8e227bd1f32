"""The digest of a batch's content: of the messages, not of their order or their blocks."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random

import pytest

from warren_wire.block.block import Block, compress, encode
from warren_wire.kernel import Kernel, MessageTable, Route, Selection

MODULUS = 1 << 63
Digest = Callable[..., int]


@pytest.fixture
def digest(both: Kernel) -> Digest:
    """Of all messages of some selections."""
    return lambda *blocks: sum(map(both.digest.content_digest, blocks)) % MODULUS


def rows(count: int, seed: int = 1) -> list[tuple[bytes, bytes, bytes]]:
    """(routing key, properties, body) of messages."""
    random = Random(seed)
    return [
        (
            random.choice((b"a", b"b")),
            random.choice((b"\0\0", b"\x10\0\2")),
            random.randbytes(random.choice((0, 1, 20, 300))),
        )
        for _ in range(count)
    ]


def encoded(messages: list[tuple[bytes, bytes, bytes]]) -> bytes:
    return encode(
        [body for _, _, body in messages],
        [properties for _, properties, _ in messages],
        [(b"", key) for key, _, _ in messages],
    )


def of_table(messages: list[tuple[bytes, bytes, bytes]]) -> Selection:
    """All messages of a table."""
    table = MessageTable()
    for key, properties, body in messages:
        table.append(Route(b"", key, False), properties, body)
    return Selection(table, 0, table.count)


def of_block(kernel: Kernel, data: bytes) -> Selection:
    """All messages of a block from outside."""
    table = kernel.admit.load_block(Block.decode(data))
    return Selection(table, 0, table.count)


def test_another_order_and_other_blocks_are_the_same_content(digest: Digest) -> None:
    messages = rows(200)
    expected = digest(of_table(messages))
    for seed in range(20):
        random = Random(seed)
        shuffled = random.sample(messages, len(messages))
        cut = random.randint(0, len(messages))
        assert digest(of_table(shuffled[:cut]), of_table(shuffled[cut:])) == expected, seed


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_change_of_any_part_of_any_message_shows(digest: Digest, place: int) -> None:
    messages = rows(50)
    expected = digest(of_table(messages))
    for at in range(50):
        changed = list(messages)
        parts = list(changed[at])
        parts[place] = (b"c", b"\x10\0\1", parts[2] + b"!")[place]
        changed[at] = (parts[0], parts[1], parts[2])
        assert digest(of_table(changed)) != expected, at


def test_parts_that_change_places_between_messages_show(digest: Digest) -> None:
    one = [(b"a", b"\0\0", b"x"), (b"b", b"\x10\0\2", b"y")]
    for other in (
        [(b"b", b"\0\0", b"x"), (b"a", b"\x10\0\2", b"y")],
        [(b"a", b"\x10\0\2", b"x"), (b"b", b"\0\0", b"y")],
        [(b"a", b"\0\0", b"y"), (b"b", b"\x10\0\2", b"x")],
    ):
        assert digest(of_table(other)) != digest(of_table(one))


def test_changes_that_cancel_each_other_in_a_sum_of_checksums_show(digest: Digest) -> None:
    # CRC-32 is linear: the same bits flipped in two bodies flip the same bits of both checksums,
    # and where one rises the other falls their sum stays.
    random = Random(7)
    for _ in range(500):
        first, second, mask = (random.randbytes(8) for _ in range(3))
        before, after = [], []
        for body in (first, second):
            flipped = bytes(a ^ b for a, b in zip(body, mask, strict=True))
            before.append((b"", b"\0\0", body))
            after.append((b"", b"\0\0", flipped))
        assert digest(of_table(before)) != digest(of_table(after))


def test_a_row_more_or_less_or_twice_shows(digest: Digest) -> None:
    messages = rows(20)
    expected = digest(of_table(messages))
    assert digest(of_table(messages[1:])) != expected
    assert digest(of_table([*messages, messages[0]])) != expected
    assert digest(of_table([messages[0], *messages[1:-1], messages[0]])) != expected


def test_a_selected_part_is_those_messages(digest: Digest) -> None:
    messages = rows(60)
    table = of_table(messages).table
    for seed in range(20):
        random = Random(seed)
        chosen = sorted(random.sample(range(60), random.randint(0, 60)))
        some = Selection(table, 0, 60, array("I", chosen))
        assert digest(some) == digest(of_table([messages[i] for i in chosen])), seed
        first, last = sorted(random.choices(range(61), k=2))
        assert digest(Selection(table, first, last)) == digest(of_table(messages[first:last])), seed


def test_the_block_of_a_selection_has_its_digest(both: Kernel, digest: Digest) -> None:
    messages = rows(60)
    made = both.assemble.assemble([of_table(messages)])
    assert digest(of_block(both, made)) == digest(of_table(messages))


def test_the_value_is_the_one_that_logs_hold(digest: Digest) -> None:
    # Stages of before an upgrade are compared with those that are staged again after it.
    assert digest(of_table(rows(50, seed=4))) == 33_152_086_619_397_578


def test_compression_and_equal_properties_make_no_difference(both: Kernel, digest: Digest) -> None:
    messages = [(b"a", b"\x08\0\2", b"x" * 5000)] * 30
    packed = compress(encoded(messages), 1)
    assert len(packed) < len(encoded(messages)) and not Block.outline(packed).whole
    assert digest(of_block(both, packed)) == digest(of_table(messages))
    singly = digest(*(of_table([message]) for message in messages))
    assert singly == digest(of_table(messages)) < MODULUS


def test_both_kernels_agree(pair: tuple[Kernel, Kernel]) -> None:
    random = Random(3)
    for count in range(60):
        messages = [
            (
                random.choice((b"a", b"b")),
                random.randbytes(random.choice((0, 2, 17))),
                random.randbytes(random.choice((0, 1, 7, 8, 9, 15, 16, 511, 512, 1000))),
            )
            for _ in range(count)
        ]
        first, second = (each.digest.content_digest(of_table(messages)) for each in pair)
        assert first == second, count
