"""Deliveries beyond a channel-wide prefetch, kept by their channel; counted over all channels."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeAlias

from warren_machines.queue.commands import Delivery

Waiting: TypeAlias = "tuple[Any, Delivery, Any]"
"""A channel's consumer, messages, and the block that holds them."""
HELD_BACK_BEYOND: Final = 2
"""Times the connection's bound that channels which hold nothing back may have held back."""


class HeldBackBytes:
    """The memory that is held back on all channels of a connection."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class HeldBack(deque[Waiting]):
    """What waits on one channel, in order; what is not listed here does not change it."""

    def __init__(self, counted: HeldBackBytes) -> None:
        super().__init__()
        self._counted = counted

    def append(self, waiting: Waiting) -> None:
        """Add at the end."""
        self._counted.size_bytes += _kept_bytes(waiting)
        super().append(waiting)

    def appendleft(self, waiting: Waiting) -> None:
        """Put back what is left of the first one."""
        self._counted.size_bytes += _kept_bytes(waiting)
        super().appendleft(waiting)

    def popleft(self) -> Waiting:
        """Remove and return the first one."""
        waiting = super().popleft()
        self._counted.size_bytes -= _kept_bytes(waiting)
        return waiting

    def remove(self, waiting: Waiting) -> None:
        """Remove one of a consumer that has ended."""
        super().remove(waiting)
        self._counted.size_bytes -= _kept_bytes(waiting)

    def clear(self) -> None:
        """Remove all: the channel ends."""
        self._counted.size_bytes -= sum(map(_kept_bytes, self))
        super().clear()


def _kept_bytes(waiting: Waiting) -> int:
    _, delivery, block = waiting
    size: int = block.kept_bytes(delivery.first, delivery.last + 1)
    return size
