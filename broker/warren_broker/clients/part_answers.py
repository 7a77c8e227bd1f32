"""From the queues' answers to the outcome of each message: the ledger of one run of publishes.

Publishers of both protocols have it, with the sequence numbers of AMQP 0.9.1 (`confirms`) or the
deliveries of AMQP 1.0 (`links10`) around it. Others count otherwise, for a reason each:

`forwarding.Fate`   which queues have a message is kept, because it is tried again at the others
`shovel.ledger`     one destination answers for single numbers, and a refused publish gets a new one
`amqp.window`       (connector) the unconfirmed rows must be found again, to be sent on another
                    channel; the broker answers by delivery tag
`outgoing`          (client) blocks, not messages, are answered, and sent again in their order
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

NOTHING_TOLD: Final[tuple[Sequence[int], Sequence[int]]] = (), ()


class ConfirmedPart(Protocol):
    """Some of the messages first <= i < last of a table; a kernel Selection is one."""

    first: int
    last: int
    indices: array[int] | None

    def __len__(self) -> int:
        """How many."""


class PartAnswers:
    """The messages of one run, by position from 0 on, and what their queues have answered.

    A message is accepted when every queue that it goes to has taken it, and refused as soon as one
    has not; each is told once. In the usual case every part is the whole run, and no work is done
    per message; otherwise a counter per message holds the number of answers still expected.

    count   messages
    whole   all their positions; `answer` returns this one
    routed  whether `route` was called
    done    every message was told
    parts   positions of what each answer is for; None: all of it
    waits   answers to come; with `left`: of parts not answered
    left    answers to come per message; None: every part is the whole run
    """

    __slots__ = ("count", "done", "left", "parts", "routed", "waits", "whole")

    def __init__(self, count: int) -> None:
        assert count > 0, count
        self.count = count
        self.whole = range(count)
        self.routed = self.done = False
        self.parts: list[Sequence[int] | None] = []
        self.waits = 0
        self.left: array[int] | None = None

    @property
    def open(self) -> int:
        """The messages that are not told."""
        if self.done:
            return 0
        return self.count if self.left is None else sum(map(bool, self.left))

    def lowest_open(self) -> int | None:
        """Return the position of the first message that is not told; None: there is none."""
        if self.left is None or not self.routed:
            return None if self.done else 0
        return next((at for at, left in enumerate(self.left) if left), None)

    def route(self, parts: Sequence[ConfirmedPart], first: int) -> list[int]:
        """Record the parts, one per queue; return the positions that are in none: they are told.

        first  the position in the table of the run's first message
        """
        assert not self.routed, first
        self.routed = True
        self.waits = len(parts)
        if [len(part) for part in parts].count(self.count) == len(parts):
            self.parts = [None] * len(parts)
            self.done = not parts
            return [] if parts else list(range(self.count))
        self.left = array("I", bytes(4 * self.count))
        self.parts = [_positions(part, first) for part in parts]
        for positions in self.parts:
            assert positions is not None
            for at in positions:
                self.left[at] += 1
        return [at for at, left in enumerate(self.left) if not left]

    def answer(
        self, part: int, ok: bool, refused: Iterable[int] | None = None
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Record that one queue has taken its part, or not; return what is accepted and refused.

        refused  with ok=False: only these positions; None: all of the part
        """
        if self.done:
            return NOTHING_TOLD
        self.waits -= 1
        assert self.waits >= 0, part
        positions, whole = self.parts[part], self.whole
        if self.left is None:
            if ok and self.waits:
                return NOTHING_TOLD
            if ok or refused is None:
                self.done = True
                return (whole, ()) if ok else ((), whole)
            self.left = array("I", [self.waits + 1]) * self.count
            self.parts = [whole] * len(self.parts)
            positions = whole
        assert positions is not None
        denied = set() if ok else set(positions if refused is None else refused)
        found = self._each(self.left, positions, denied)
        self.done = not self.waits
        return found

    def _each(
        self, left: array[int], positions: Sequence[int], denied: set[int]
    ) -> tuple[list[int], list[int]]:
        accepted, refused = [], []
        for at in positions:
            if not left[at]:
                continue
            if at in denied:
                left[at] = 0
                refused.append(at)
            else:
                left[at] -= 1
                if not left[at]:
                    accepted.append(at)
        return accepted, refused


def _positions(part: ConfirmedPart, first: int) -> Sequence[int]:
    if part.indices is None:
        return range(part.first - first, part.last - first)
    return array("I", [at - first for at in part.indices])


def nowhere(parts: Sequence[ConfirmedPart], first: int, last: int) -> list[int]:
    """Return the table positions first <= i < last that are in no part."""
    left = set(range(first, last))
    for part in parts:
        left.difference_update(
            range(part.first, part.last) if part.indices is None else part.indices
        )
    return sorted(left)
