"""The blocks of this node's logs, decoded once."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable

from warren_broker.block import Block

_LENGTH = struct.Struct("<I")


class StoredBlocks:
    """A cache over the log: the blocks used last, bounded by bytes.

    Invariant: bytes_held is the sum of what is cached, at most bytes_max or one block.
    """

    __slots__ = ("_blocks", "_read", "bytes_held", "bytes_max")

    def __init__(self, read: Callable[[int, int], bytes], bytes_max: int = 64 << 20) -> None:
        self._read = read
        self._blocks: OrderedDict[tuple[int, int], tuple[Block, int]] = OrderedDict()
        self.bytes_held = 0
        self.bytes_max = bytes_max

    def get(self, group: int, index: int, data: bytes | None = None) -> Block:
        """The block of that entry; raises what reading the log raises when it is not held here.

        data  the entry's, where it is at hand
        """
        key = (group, index)
        found = self._blocks.get(key)
        if found is not None:
            self._blocks.move_to_end(key)
            return found[0]
        return self.put(group, index, self._read(group, index) if data is None else data)

    def put(self, group: int, index: int, data: bytes) -> Block:
        """The block of an entry whose bytes are at hand."""
        (length,) = _LENGTH.unpack_from(data)
        stored = memoryview(data)[_LENGTH.size + length :]
        block = Block.decode(stored, verify=False)  # the log's own checksum has been verified
        self._blocks[(group, index)] = (block, len(block.buffer))
        self.bytes_held += len(block.buffer)
        while self.bytes_held > self.bytes_max and len(self._blocks) > 1:
            _, (_, size) = self._blocks.popitem(last=False)
            self.bytes_held -= size
        return block

    def drop_group(self, group: int) -> None:
        """A group was deleted."""
        for key in [key for key in self._blocks if key[0] == group]:
            self.bytes_held -= self._blocks.pop(key)[1]
