"""Deliveries that wait on this node for an AMQP 0.9.1 client, in order, and by their consumer.

A client may have 10,000 consumers and as many deliveries that wait. Were all of these looked
through for each consumer that ends, the end of a queue, or of the channels, would take minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar

from warren_machines.queue.commands import ConsumerId, Delivery

T = TypeVar("T")
Waiting: TypeAlias = tuple[T, Delivery, Any]
"""A consumer, messages, and the block that holds them."""
HELD_BACK_BEYOND: Final = 2
"""Times the connection's bound that channels which hold nothing back may have held back."""


class HeldBackBytes:
    """The memory that is held back on all channels of a connection."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class WaitingRuns(Generic[T]):
    """Runs of messages, the oldest first.

    counted  has the memory that they keep, perhaps with that of others
    runs     by place, with their consumers

    Invariant: `_of` has the places of each consumer's runs, and no consumer without any
    """

    __slots__ = ("_next", "_of", "counted", "runs")

    def __init__(self, counted: HeldBackBytes) -> None:
        self.counted = counted
        self.runs: OrderedDict[int, tuple[ConsumerId, Waiting[T]]] = OrderedDict()
        self._of: dict[ConsumerId, dict[int, None]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Waiting[T]]:
        return (run for _, run in self.runs.values())

    def append(self, number: ConsumerId, run: Waiting[T]) -> None:
        """Add a run of a consumer at the end."""
        self.counted.size_bytes += _kept_bytes(run)
        self.runs[self._next] = number, run
        self._of.setdefault(number, {})[self._next] = None
        self._next += 1

    @property
    def first(self) -> Waiting[T]:
        """The oldest run; there is one."""
        return next(iter(self.runs.values()))[1]

    def shorten_first(self, rest: Waiting[T]) -> None:
        """Replace the oldest run by what is left of it."""
        place, (number, run) = next(iter(self.runs.items()))
        self.counted.size_bytes += _kept_bytes(rest) - _kept_bytes(run)
        self.runs[place] = number, rest

    def popleft(self) -> Waiting[T]:
        """Remove and return the oldest run."""
        place, (number, run) = self.runs.popitem(last=False)
        places = self._of[number]
        del places[place]
        if not places:
            del self._of[number]
        self.counted.size_bytes -= _kept_bytes(run)
        return run

    def take_of(self, number: ConsumerId) -> list[Waiting[T]]:
        """Remove and return the runs of a consumer, which has ended; the others are not visited."""
        taken = [self.runs.pop(place)[1] for place in self._of.pop(number, ())]
        self.counted.size_bytes -= sum(map(_kept_bytes, taken))
        return taken

    def clear(self) -> None:
        """Remove all."""
        self.counted.size_bytes -= sum(map(_kept_bytes, self))
        self.runs.clear()
        self._of.clear()


def _kept_bytes(run: Waiting[Any]) -> int:
    _, delivery, block = run
    size: int = block.kept_bytes(delivery.first, delivery.last + 1)
    return size
