"""A cache of decoded blocks of this node's logs."""

from __future__ import annotations

import logging
import struct
from collections import OrderedDict
from collections.abc import Callable

from warren_broker.block.block import FORM_AMQP10, Block, BlockError, encode
from warren_broker.kernel import check_structure

log = logging.getLogger(__name__)
_LENGTH = struct.Struct("<I")


class BlockCache:
    """The most recently used blocks of the log, bounded by bytes.

    Invariant: bytes_held is the sum of the cached blocks, at most bytes_max or one block.
    """

    __slots__ = ("_blocks", "_read", "bytes_held", "bytes_max")

    def __init__(self, read: Callable[[int, int], bytes], bytes_max: int = 64 << 20) -> None:
        self._read = read
        self._blocks: OrderedDict[tuple[int, int], tuple[Block, int]] = OrderedDict()
        self.bytes_held = 0
        self.bytes_max = bytes_max

    def get(self, group: int, index: int, data: bytes | None = None) -> Block:
        """Return the block of that entry; raises what reading the log raises.

        data  the entry's, if the caller has it
        """
        key = (group, index)
        found = self._blocks.get(key)
        if found is not None:
            self._blocks.move_to_end(key)
            return found[0]
        return self.put(group, index, self._read(group, index) if data is None else data)

    def read(self, group: int, index: int) -> Block:
        """Return the block of an entry as `get`, but keep it only if it was kept already.

        A look through a whole backlog does not drive out what is being delivered.
        """
        found = self._blocks.get((group, index))
        return found[0] if found is not None else _decoded(self._read(group, index))

    def for_delivery(self, group: int, index: int, last: int, data: bytes | None = None) -> Block:
        """Return the block of an entry; an unreadable one is replaced by one that cannot be sent.

        Only wrongly compressed areas get this far: the queue's machine has read everything before
        them. The consumer's node sets the messages aside, as any that fit no client; otherwise they
        would stay with their consumer forever.

        last  the last message requested
        """
        try:
            return self.get(group, index, data)
        except BlockError as error:
            log.error("entry %d of group %d: its block cannot be read: %s", index, group, error)
            count = last + 1
            empty = encode([b""] * count, [b""] * count, (b"", b""), form=FORM_AMQP10)
            return Block.decode(empty, verify=False)

    def put(self, group: int, index: int, data: bytes) -> Block:
        """Decode and cache the block of an entry with these bytes."""
        block = _decoded(data)
        self._blocks[(group, index)] = (block, len(block.buffer))
        self.bytes_held += len(block.buffer)
        while self.bytes_held > self.bytes_max and len(self._blocks) > 1:
            _, (_, size) = self._blocks.popitem(last=False)
            self.bytes_held -= size
        return block

    def drop_group(self, group: int) -> None:
        """Drop the blocks of a deleted group."""
        for key in [key for key in self._blocks if key[0] == group]:
            self.bytes_held -= self._blocks.pop(key)[1]


def _decoded(data: bytes) -> Block:
    (length,) = _LENGTH.unpack_from(data)
    stored = memoryview(data)[_LENGTH.size + length :]
    return Block.decode(stored, verify=False)  # the log's own checksum has been verified


def check_entry(data: bytes | memoryview) -> None:
    """Raise BlockError unless every member of the queue will be able to read an entry's block.

    For a submission received from another node. That node has checked each message when its client
    sent it, so only what the queue's machine reads is checked again: the header and the columns.
    An entry without a block, or one that is not a submission, is left to the machine.
    """
    if len(data) < _LENGTH.size:
        return
    (length,) = _LENGTH.unpack_from(data)
    stored = memoryview(data)[_LENGTH.size + length :]
    if len(stored):
        check_structure(Block.outline(stored))
