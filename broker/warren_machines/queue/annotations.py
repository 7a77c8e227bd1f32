"""What consumers have annotated messages with: kept beside the blocks, which do not change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from warren_machines.queue.commands import Pairs

ANNOTATIONS_BYTES_MAX: Final = 16_384
"""Keys and values of one message; a change that would exceed it is not made."""
AnnotatedRow: TypeAlias = tuple[int, list[tuple[int, Pairs]]]
"""(index, [(ordinal, annotations)]), both ascending."""


class Annotations:
    """The annotations of messages, by block and ordinal.

    Invariants: every block in `blocks` has an annotated message; every one of these is in the queue
    """

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[int, dict[int, Pairs]] = {}

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def put(self, index: int, first: int, last: int, pairs: Pairs) -> None:
        """Annotate the messages of a run."""
        block = self.blocks.setdefault(index, {})
        for ordinal in range(first, last + 1):
            merged = tuple(sorted({**dict(block.get(ordinal, ())), **dict(pairs)}.items()))
            if size_bytes(merged) <= ANNOTATIONS_BYTES_MAX:
                block[ordinal] = merged
        if not block:
            del self.blocks[index]

    def of_run(self, index: int, first: int, last: int) -> Iterator[tuple[int, Pairs]]:
        """Yield (offset in the run, annotations) of its annotated messages."""
        block = self.blocks.get(index)
        if block is not None:
            for ordinal in _within(block, first, last):
                yield ordinal - first, block[ordinal]

    def forget(self, index: int, first: int, last: int) -> None:
        """Drop those of a run that leaves the queue."""
        block = self.blocks.get(index)
        if block is not None:
            for ordinal in _within(block, first, last):
                del block[ordinal]
            if not block:
                del self.blocks[index]

    def dump(self) -> list[AnnotatedRow]:
        """Return everything; equal contents give equal rows."""
        return [(index, sorted(self.blocks[index].items())) for index in sorted(self.blocks)]

    def load(self, rows: Iterable[AnnotatedRow]) -> None:
        """Load what `dump` returned into an empty object."""
        self.blocks = {index: dict(messages) for index, messages in rows}


def _within(block: dict[int, Pairs], first: int, last: int) -> list[int]:
    """Return the annotated messages first … last, ascending: a run may be one of 65,536."""
    if last - first < len(block):
        return [ordinal for ordinal in range(first, last + 1) if ordinal in block]
    return sorted(ordinal for ordinal in block if first <= ordinal <= last)


def size_bytes(pairs: Pairs) -> int:
    """Return the bytes of keys and values."""
    return sum(len(key.encode()) + len(value) for key, value in pairs)
