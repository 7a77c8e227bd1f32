"""What is read of a block of like messages is what decoding it tells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from tests.broker.fuzz import blocks
from warren_machines.queue import enqueue
from warren_machines.queue.ready.block_index import Shape
from warren_wire.block.block import FORM_AMQP091, FORM_AMQP10, Block, BlockError, compress, encode
from warren_wire.block.layout import HEADER_BYTES
from warren_wire.kernel import Kernel
from warren_wire.queue_values.config import QueueConfig

Found = tuple[int, int, int, int, int] | None
CONFIGS = (
    QueueConfig("/", "q", "classic", priority_max=0),
    QueueConfig("/", "q", "classic", priority_max=5, priority_default=0),
    QueueConfig("/", "q", "quorum", priority_max=31),
    QueueConfig("/", "q", "quorum", max_length_bytes=1_000),
)


def decoded(data: bytes) -> Found:
    """What `Block` tells, with every condition spelt out."""
    try:
        block = Block.decode(data, verify=False)
    except BlockError:
        return None
    count = block.count
    columns = (block.route_column, block.ttl_column, block.priority_column)
    if data[7] or not count or any(column is not None for column in columns):
        return None
    if len(block.priority_runs) != 1:
        return None
    sizes = [
        {after - before for before, after in pairwise(offsets.tolist())}
        for offsets in (block.properties_offsets, block.body_offsets)
        if not offsets[0]
    ]
    if [len(each) for each in sizes] != [1, 1]:
        return None
    return block.form, count, block.priority_runs[0][2], sizes[0].pop(), sizes[1].pop()


def alike(random: Random) -> bytes:
    count, head, body = random.randint(1, 9), random.choice((0, 2, 40)), random.choice((0, 1, 300))
    return encode(
        [random.randbytes(body) for _ in range(count)],
        [random.randbytes(head) for _ in range(count)],
        (random.choice((b"", b"x")), random.choice((b"", b"q" * 255))),
        random.choice((0, 4, 31)),
        form=random.choice((FORM_AMQP091, FORM_AMQP10)),
    )


def test_like_messages_are_read_as_decoding_tells(both: Kernel) -> None:
    random = Random(1)
    for _ in range(200):
        data = alike(random)
        found = both.even_block.even_block(data)
        assert found is not None and found == decoded(data)
        assert both.even_block.even_block(memoryview(b"\0" + data)[1:]) == found


def test_any_other_block_is_none(both: Kernel) -> None:
    one = encode([b"a"], [b"bb"], (b"", b"q"), 4)
    others: Sequence[bytes] = (
        b"",
        b"WBLK",
        compress(encode([b"a" * 4096], [b""], (b"", b"q"), 4)),
        encode([], [], (b"", b""), 4),
        encode([b"a", b"bb"], [b"", b""], (b"", b"q"), 4),
        encode([b"a", b"b"], [b"c", b""], (b"", b"q"), 4),
        encode([b"a", b"b"], [b"", b""], [(b"", b"q"), (b"", b"r")], 4),
        encode([b"a", b"b"], [b"", b""], (b"", b"q"), [5, 4]),
        encode([b"a", b"b"], [b"", b""], (b"", b"q"), [4, 5]),
        encode([b"a"], [b""], (b"", b"q"), 4, [7]),
        one + b"\0",
        one[:-1],
    )
    for data in others:
        assert both.even_block.even_block(data) is None, data


@pytest.mark.parametrize("seed", range(4))
def test_every_changed_byte_is_read_as_decoding_tells(both: Kernel, seed: int) -> None:
    random = Random(seed)
    data = bytearray(alike(random))
    for at in range(min(len(data), 4 * HEADER_BYTES)):
        for value in (0, 1, 2, 0x7F, 0xFF, random.randrange(256)):
            before, data[at] = data[at], value
            assert both.even_block.even_block(data) == decoded(bytes(data)), (at, value)
            data[at] = before
    for _ in range(300):
        almost = blocks.mutated(random)
        assert both.even_block.even_block(almost) == decoded(almost)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.priority_max}")
def test_the_queue_sees_the_same_shape_as_without_it(
    config: QueueConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(3)
    data = [alike(random) for _ in range(200)] + [blocks.mutated(random) for _ in range(200)]

    def shapes() -> list[Shape | str]:
        found: list[Shape | str] = []
        for each in data:
            try:
                found.append(enqueue.read_shape(memoryview(each), config))
            except BlockError as error:
                found.append(str(error))
        return found

    quick = shapes()
    monkeypatch.setattr(enqueue, "even_block", lambda block: None)
    assert quick == shapes()
