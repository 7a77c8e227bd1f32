"""Messages that a relay publishes: their names are taken off, and go into the command."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from warren_machines.queue.commands import StatReply
from warren_machines.queue.relays.relay_commands import EnqueueRelayed
from warren_wire.kernel import MessageTable, Selection
from warren_wire.relay_names import ARGUMENT, RelayedName, split_name

FATE_UNKNOWN: Final = (
    "it is not known whether a queue that does not answer has messages of this relay; it publishes "
    "them again"
)
"""Why the connection of a relay is closed, to which a nack says that the queue has no message."""
Names: TypeAlias = Mapping[int, RelayedName]
"""Table position to the name of the message; those without one are left out."""
Tell: TypeAlias = Callable[[bool, "list[int] | None"], None]
"""Called with a part's result: see `PublishedRun.confirmed`."""


def draw_origin() -> int:
    """Draw a relay's origin: 62 random bits and one that is set."""
    return int.from_bytes(os.urandom(8), "little") >> 2 | 1 << 62


def taken_by(arguments: Mapping[str, object], stat: StatReply) -> int:
    """Return how many messages the relay holds that a declaration's arguments name; 0: none is."""
    relay = arguments.get(ARGUMENT)
    return sum(messages for name, messages, _ in stat.relays if name == relay)


def without_names(table: MessageTable, first: int, last: int) -> tuple[MessageTable, Names]:
    """Return the table with messages first <= i < last at their places, without names; the names.

    The table is copied only where there is a name. Messages before `first` are not copied: their
    places are taken by empty ones.
    """
    found = [split_name(table.properties_of(i)) for i in range(first, last)]
    names = {i: name for i, (_, name) in enumerate(found, first) if name is not None}
    if not names:
        return table, names
    copy = MessageTable(table.routes)
    for i in range(first):
        copy.append(table.route(i), b"\0\0", b"")
    for i, (raw, _) in enumerate(found, first):
        copy.append(
            table.route(i), raw, table.body(i), table.priority(i), table.ttl_ms(i), table.flags(i)
        )
    return copy, names


def by_origin(
    selection: Selection, stored: Selection, names: Names
) -> Iterator[tuple[int, Selection, Selection]]:
    """Yield (origin, selection, stored) of the messages of each origin; 0: those without a name."""
    chosen: dict[int, tuple[array[int], array[int]]] = {}
    for i, j in zip(selection, stored, strict=True):
        name = names.get(i)
        both = chosen.setdefault(0 if name is None else name.origin, (array("I"), array("I")))
        both[0].append(i)
        both[1].append(j)
    for origin, (own, moved) in chosen.items():
        yield (
            origin,
            Selection(selection.table, selection.first, selection.last, own),
            Selection(stored.table, stored.first, stored.last, moved),
        )


def relayed_command(origin: int, order: Iterable[int], names: Names) -> EnqueueRelayed:
    """Return the command for a block with the messages at these positions, in this order."""
    runs: list[list[int]] = []
    floor = 0
    for at in order:
        name = names[at]
        floor = max(floor, name.floor)
        if runs and sum(runs[-1]) == name.number:
            runs[-1][0] += 1
        else:
            runs.append([1, name.number])
    return EnqueueRelayed(origin, floor, tuple((count, first) for count, first in runs))


def joined(parts: list[Selection], tell: Tell) -> Callable[[int], Tell]:
    """Return what makes, per place in `parts`, the function to be told that part's result.

    `tell` is called once, when all parts have been answered, as if they were one.
    """
    waiting = len(parts)
    refused: list[int] = []

    def of(place: int) -> Tell:
        def told(ok: bool, some: list[int] | None) -> None:
            nonlocal waiting
            waiting -= 1
            if not ok:
                refused.extend(parts[place] if some is None else some)
            if not waiting:
                whole = len(refused) == sum(len(part) for part in parts)
                tell(not refused, sorted(refused) if refused and not whole else None)

        return told

    return of
