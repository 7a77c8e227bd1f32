"""The cache of blocks: what it holds, what it counts, what it reads."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from warren_broker.cluster.leader.block_cache import SMALL_BYTES_MAX, BlockCache
from warren_machines.queue.codec import block_offset, encode_submission
from warren_machines.queue.commands import Enqueue, Submission
from warren_raft.storage.errors import EntryDamaged
from warren_raft.versions import NEWEST
from warren_wire.block.block import BLOCK_OVERHEAD_BYTES, Block, compress, encode

GROUP = 1


def entry(*bodies: bytes, packed: bool = False) -> bytes:
    block = encode(list(bodies), [b"\0\0"] * len(bodies), (b"", b"q"))
    return encode_submission(
        Submission(1, "a", 1, (Enqueue(),), NEWEST), compress(block) if packed else block
    )


class Log:
    """Entries of a group by index, and which of them were read together."""

    def __init__(self, entries: dict[int, bytes | EntryDamaged]) -> None:
        self.entries = entries
        self.reads: list[list[int]] = []

    def read(self, group: int, indexes: Iterable[int]) -> Iterator[bytes | EntryDamaged]:
        wanted = list(indexes)
        self.reads.append(wanted)
        return (self.entries[index] for index in wanted)


def damage(index: int) -> EntryDamaged:
    return EntryDamaged(Path("wal"), 0, "a test", GROUP, index, 1, 1)


def test_a_block_that_is_put_again_is_counted_once() -> None:
    log = Log({1: entry(b"x" * 1000), 2: entry(b"y" * 2000)})
    cache = BlockCache(log.read)
    cache.put(GROUP, 1, log.entries[1])  # type: ignore[arg-type]
    held = cache.bytes_held
    for _ in range(5):
        cache.put(GROUP, 1, log.entries[1])  # type: ignore[arg-type]
        assert cache.bytes_held == held
        cache.check()
    cache.put(GROUP, 1, log.entries[2])  # type: ignore[arg-type]
    assert cache.bytes_held == held + 1000
    cache.drop_group(GROUP)
    assert cache.bytes_held == 0
    cache.check()


@pytest.mark.parametrize("body", [0, 100, 1000, 10_000])
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_counted_is_what_the_blocks_take(body: int, packed: bool) -> None:
    blocks = 500
    log = Log({})
    cache = BlockCache(log.read)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for index in range(blocks):
            cache.put(GROUP, index, entry(b"%d" % index + b"x" * body, packed=packed))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.8 * taken < cache.bytes_held < 1.3 * taken, (taken, cache.bytes_held)


def test_single_messages_do_not_take_many_times_the_bound() -> None:
    bound = 100 * BLOCK_OVERHEAD_BYTES
    cache = BlockCache(Log({}).read, bound)
    for index in range(1000):
        cache.put(GROUP, index, entry(b"x"))
        cache.check()
    assert len(cache._blocks) < 100
    cache.get(GROUP, 5_000, 0, entry(b"x" * 10 * bound))  # one block is kept, however large
    assert len(cache._blocks) == 1
    cache.check()


def test_the_count_holds_after_any_calls() -> None:
    random = Random(4)
    log = Log({index: entry(b"x" * random.randint(0, 20_000), b"y") for index in range(40)})
    cache = BlockCache(log.read, 100_000)
    for _ in range(2000):
        index, group = random.randrange(40), random.randrange(3)
        call = random.randrange(5)
        if call == 0:
            cache.put(group, index, log.entries[random.randrange(40)])  # type: ignore[arg-type]
        elif call == 1:
            list(cache.entries(group, range(index, 40)))
        elif call == 2:
            cache.read(group, index)
        elif random.random() < 0.02:
            cache.drop_group(group)
        else:
            cache.get(group, index, random.randrange(2))
        cache.check()


def test_entries_are_read_together_and_come_in_order() -> None:
    large = b"x" * SMALL_BYTES_MAX
    log = Log(
        {
            1: entry(b"1"),
            2: entry(large),
            3: entry(b"3"),
            4: entry(b"4"),
            5: entry(b"5" * 1000, packed=True),
            6: entry(b"6"),
        }
    )
    cache = BlockCache(log.read)
    cache.put(GROUP, 4, log.entries[4])  # type: ignore[arg-type]
    found = list(cache.entries(GROUP, range(1, 7)))
    assert log.reads == [[1, 2, 3], [5, 6]]
    assert [isinstance(each, Block) for each in found] == [False, True, False, True, True, False]
    blocks = [
        each if isinstance(each, Block) else Block.decode(memoryview(each)[block_offset(each) :])
        for each in found
    ]
    assert [bytes(block.body(0)) for block in blocks] == [
        b"1",
        large,
        b"3",
        b"4",
        b"5" * 1000,
        b"6",
    ]
    log.reads.clear()
    list(cache.entries(GROUP, range(1, 7)))
    assert log.reads == [[1], [3], [6]]  # the others are decoded, and kept
    cache.check()


def test_a_damaged_entry_is_raised_at_its_place() -> None:
    log = Log({1: entry(b"1"), 2: damage(2), 3: entry(b"3")})
    cache = BlockCache(log.read)
    found = cache.entries(GROUP, [1, 2, 3])
    assert next(found) == log.entries[1]
    with pytest.raises(EntryDamaged):
        next(found)
    with pytest.raises(EntryDamaged):
        cache.get(GROUP, 2, 0)
    with pytest.raises(EntryDamaged):
        cache.read(GROUP, 2)
    assert cache.bytes_held == 0


def test_what_is_delivered_is_not_kept() -> None:
    log = Log({1: entry(b"1"), 2: entry(b"1", b"2", b"3"), 3: entry(b"x" * SMALL_BYTES_MAX)})
    cache = BlockCache(log.read)
    for get in (cache.get, cache.for_delivery):
        assert bytes(get(GROUP, 1, 0).body(0)) == b"1"
        assert not cache.bytes_held
        for last in (0, 1):
            get(GROUP, 2, last)
            assert len(cache._blocks) == 1, "more of it will be delivered"
        assert bytes(get(GROUP, 2, 2).body(2)) == b"3"
        assert not cache.bytes_held
        cache.check()
    assert log.reads == [[1], [2]] * 2, "its pieces are decoded once"
    for _ in range(5):
        cache.get(GROUP, 3, 0)
    assert log.reads[4:] == [[3]], "a message that comes again and again is not read each time"
    cache.check()
