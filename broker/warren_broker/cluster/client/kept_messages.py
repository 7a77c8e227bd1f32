"""Messages on their way into the store of an exchange, and out of it."""

from __future__ import annotations

from typing import Final

from warren_broker.amqp091.wire import properties
from warren_broker.kernel import (
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    TTL_NONE,
    MessageTable,
    Selection,
)

_TIMELY: Final = frozenset({"priority", "expiration"})


def lasting(selection: Selection) -> MessageTable:
    """Copy messages without their times to live: in a store they do not expire."""
    table, copy = selection.table, MessageTable()
    for i in selection:
        copy.append(
            table.route(i),
            table.properties_of(i),
            table.body(i),
            table.priority(i),
            flags=table.flags(i),
        )
    return copy


def restored(table: MessageTable) -> MessageTable:
    """Copy messages with the priorities and times to live that their properties say.

    A store has neither: its blocks keep the order in which the messages came.
    """
    copy = MessageTable()
    for i in range(table.count):
        raw = table.properties_of(i)
        said = properties.select(raw, _TIMELY)
        expiration = said.get("expiration")
        copy.append(
            table.route(i),
            raw,
            table.body(i),
            min(said.get("priority", PRIORITY_DEFAULT), PRIORITY_MAX),
            TTL_NONE if expiration is None else int(expiration),
            table.flags(i),
        )
    return copy
