"""A cache of decoded blocks of this node's logs."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from warren_machines.queue.codec import LENGTH_BYTES, block_offset
from warren_raft.storage.errors import EntryDamaged
from warren_wire.block.block import BLOCK_OVERHEAD_BYTES, FORM_AMQP10, Block, BlockError, encode
from warren_wire.block.layout import CODEC_NONE, HEADER_BYTES
from warren_wire.kernel import check_structure

log = logging.getLogger(__name__)
SMALL_BYTES_MAX = 8 << 10
"""A block up to this size is decoded again rather than kept, where its last message is taken.

`entries` leaves it to the caller altogether.
"""
ReadData: TypeAlias = Callable[[int, Iterable[int]], Iterator[bytes | EntryDamaged]]
"""Reads the entries of a group: see `GroupStore.read_data`."""


class BlockCache:
    """The most recently used blocks of the log, bounded by bytes.

    Invariant: bytes_held is the memory of the cached blocks, at most bytes_max or one block.
    """

    __slots__ = ("_blocks", "_read", "bytes_held", "bytes_max")

    def __init__(self, read: ReadData, bytes_max: int = 64 << 20) -> None:
        self._read = read
        self._blocks: OrderedDict[tuple[int, int], tuple[Block, int]] = OrderedDict()
        self.bytes_held = 0
        self.bytes_max = bytes_max

    def get(self, group: int, index: int, last: int, data: bytes | None = None) -> Block:
        """Return the block of that entry; raises what reading the log raises.

        A small one is dropped, or not even kept, with its last message: most are not needed again.
        1. A client publishes one message at a time.  2. Each is delivered, and acknowledged.
        3. Kept, they would fill the cache, with sixteen times of a short message for each.
        A larger one is kept: for a message that is delivered again and again, all of it would be.

        last  the last message wanted
        data  the entry's, if the caller has it
        """
        key = (group, index)
        found = self._blocks.get(key)
        if found is not None:
            block, size = found
            if last + 1 >= block.count and size <= SMALL_BYTES_MAX + BLOCK_OVERHEAD_BYTES:
                self._forget(key)
            else:
                self._blocks.move_to_end(key)
            return block
        if data is None:
            data = self._entry(group, index)
        block = _decoded(data)
        size = _bytes_of(block, data)
        if last + 1 < block.count or size > SMALL_BYTES_MAX + BLOCK_OVERHEAD_BYTES:
            self._keep(key, block, size)
        return block

    def read(self, group: int, index: int) -> Block:
        """Return the block of an entry as `get`, but keep it only if it was kept already.

        A look through a whole backlog does not drive out what is being delivered.
        """
        found = self._blocks.get((group, index))
        return found[0] if found is not None else _decoded(self._entry(group, index))

    def entries(self, group: int, indexes: Iterable[int]) -> Iterator[Block | bytes]:
        """Yield the blocks of entries in that order, those on disk with few reads.

        A small one, which is no smaller decoded, comes as its entry's bytes: its block begins at
        `block_offset`, and is not compressed. Raises what reading the log raises, at that entry.
        """
        unread: list[int] = []
        for index in indexes:
            found = self._blocks.get((group, index))
            if found is None:
                unread.append(index)
                continue
            self._blocks.move_to_end((group, index))  # now: what is read next may drive it out
            if unread:
                yield from self._read_all(group, unread)
                unread = []
            yield found[0]
        if unread:
            yield from self._read_all(group, unread)

    def _read_all(self, group: int, indexes: list[int]) -> Iterator[Block | bytes]:
        for index, data in zip(indexes, self._read(group, indexes), strict=False):
            if isinstance(data, EntryDamaged):
                raise data
            yield data if _is_small(data) else self.put(group, index, data)

    def _entry(self, group: int, index: int) -> bytes:
        (data,) = self._read(group, (index,))
        if isinstance(data, EntryDamaged):
            raise data
        return data

    def for_delivery(self, group: int, index: int, last: int, data: bytes | None = None) -> Block:
        """Return the block of an entry; an unreadable one is replaced by one that cannot be sent.

        Only wrongly compressed areas get this far: the queue's machine has read everything before
        them. The consumer's node sets the messages aside, as any that fit no client; otherwise they
        would stay with their consumer forever.

        last  the last message requested
        """
        try:
            return self.get(group, index, last, data)
        except BlockError as error:
            log.error("entry %d of group %d: its block cannot be read: %s", index, group, error)
            count = last + 1
            empty = encode([b""] * count, [b""] * count, (b"", b""), form=FORM_AMQP10)
            return Block.decode(empty, verify=False)

    def put(self, group: int, index: int, data: bytes) -> Block:
        """Decode and cache the block of an entry with these bytes."""
        block = _decoded(data)
        self._keep((group, index), block, _bytes_of(block, data))
        return block

    def _keep(self, key: tuple[int, int], block: Block, size: int) -> None:
        self._forget(key)
        self._blocks[key] = (block, size)
        self.bytes_held += size
        while self.bytes_held > self.bytes_max and len(self._blocks) > 1:
            _, (_, size) = self._blocks.popitem(last=False)
            self.bytes_held -= size

    def drop_group(self, group: int) -> None:
        """Drop the blocks of a deleted group."""
        for key in [key for key in self._blocks if key[0] == group]:
            self._forget(key)

    def _forget(self, key: tuple[int, int]) -> None:
        found = self._blocks.pop(key, None)
        if found is not None:
            self.bytes_held -= found[1]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.bytes_held == sum(size for _, size in self._blocks.values()), self.bytes_held
        assert self.bytes_held <= self.bytes_max or len(self._blocks) == 1, self.bytes_held


def _is_small(data: bytes) -> bool:
    """Return whether an entry is small, and ends with the header and bytes of a plain block."""
    if not LENGTH_BYTES <= len(data) <= SMALL_BYTES_MAX:
        return False
    start = block_offset(data)
    return len(data) >= start + HEADER_BYTES and data[start + 7] == CODEC_NONE


def _bytes_of(block: Block, data: bytes) -> int:
    """Return the memory of a block: a view of its entry, all of which it keeps, or of a copy."""
    return max(len(data), len(block.buffer)) + BLOCK_OVERHEAD_BYTES


def _decoded(data: bytes) -> Block:
    stored = memoryview(data)[block_offset(data) :]
    return Block.decode(stored, verify=False)  # the log's own checksum has been verified


def check_entry(data: bytes | memoryview) -> None:
    """Raise BlockError unless every member of the queue will be able to read an entry's block.

    For a submission received from another node. That node has checked each message when its client
    sent it, so only what the queue's machine reads is checked again: the header and the columns.
    An entry without a block, or one that is not a submission, is left to the machine.
    """
    if len(data) < LENGTH_BYTES:
        return
    stored = memoryview(data)[block_offset(data) :]
    if len(stored):
        check_structure(Block.outline(stored))
