"""What a queue knows of its relays: consumers that carry messages to another cluster.

The name of a message in a relay's hands is (origin, number). It keeps it until it is settled, also
while the relay has no consumer, so that the queue to which it is carried recognises a repeat.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TypeAlias

KeptRun: TypeAlias = tuple[int, int, int, int, int, int, int]
"""(number, origin, index, first, last, delivery_count, acquired_count) of a relay's messages that
no consumer holds; with the mark of `ranges.Run`. The numbers of a run are consecutive."""
Numbering: TypeAlias = "list[tuple[int, int, int]]"
"""(msg_id, origin, number): names from that msg_id on, up to the next entry; ascending."""


@dataclass(slots=True, eq=False)
class Relay:
    """A relay of the queue.

    origin       of the messages that it takes now, drawn by its session. So a name never stands for
                 two messages: were a queue set back to an older copy of its data, it would give a
                 number again, and to another session
    owner        (uplink, session) that consumes for it, or did so last
    next_number  of the next message taken; numbers ascend over all origins
    idle_ms      since when it has no session; 0: it has one
    kept         what it has taken, and no consumer holds now; by number
    """

    name: str
    origin: int
    owner: tuple[int, int]
    next_number: int = 1
    idle_ms: int = 0
    kept: list[KeptRun] = field(default_factory=list)

    @property
    def kept_count(self) -> int:
        """The messages in `kept`."""
        return sum(run[4] - run[3] + 1 for run in self.kept)

    def check(self) -> None:
        """Assert that numbers ascend."""
        after = 1
        for number, _, _, first, last, _, _ in self.kept:
            assert after <= number and first <= last, (self.name, after, number)
            after = number + last - first + 1
        assert after <= self.next_number, (self.name, after, self.next_number)


def note_name(numbering: Numbering, held_from: int, msg_id: int, origin: int, number: int) -> None:
    """Note the name of the message with that msg_id, which those after it continue.

    held_from  the lowest msg_id that is held: names of those before it are forgotten
    """
    first = bisect_right(numbering, held_from, key=lambda entry: entry[0]) - 1
    if first > 0:
        del numbering[:first]
    if numbering:
        at, before, counted = numbering[-1]
        if before == origin and counted + msg_id - at == number:
            return
    numbering.append((msg_id, origin, number))


def name_of(numbering: Numbering, msg_id: int) -> tuple[int, int]:
    """Return (origin, number) of a message that a relay's consumer holds."""
    at, origin, number = numbering[bisect_right(numbering, msg_id, key=lambda entry: entry[0]) - 1]
    assert at <= msg_id, (at, msg_id)
    return origin, number + msg_id - at
