"""The fake's `StageWriter`, and its stages as the fake takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warren.stages import StagedPart


class FakeWriter:
    """`warren.stages.StageWriter`."""

    def __init__(self, partition: int, attempt: int, send_block: Any) -> None:
        self._key, self._send = (partition, attempt), send_block
        self._queues: dict[str, int] = {}
        self._blocks = 0

    def write(self, block: bytes) -> None:
        """One block."""
        for name in self._send(bytes(block)):
            self._queues[name] = self._queues.get(name, 0) + 1
        self._blocks += 1

    def finish(self) -> StagedPart:
        """All there."""
        return StagedPart(*self._key, tuple(sorted(self._queues.items())), self._blocks, 0)

    def close(self) -> None:
        """Give up."""


def by_queue(parts: Iterable[StagedPart]) -> dict[str, list[tuple[int, int, int]]]:
    """(partition, attempt, blocks) by queue."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for part in parts:
        for name, blocks in part.queues:
            found.setdefault(name, []).append((part.partition, part.attempt, blocks))
    return found
