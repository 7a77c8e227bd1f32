"""Messages on their way into the store of an exchange, and out of it."""

from __future__ import annotations

from typing import Any, Final

from warren_machines.metadata.exchange_types import DELAY, delay_ms
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field
from warren_wire.arguments import plain
from warren_wire.kernel import PRIORITY_DEFAULT, PRIORITY_MAX, TTL_NONE, MessageTable, Selection
from warren_wire.kernel.properties import expiration_ms

SIGNED_CODES: Final = "bsIl"
"""Types of fields that hold a number and its negative."""
SIGNED_INT_MAX: Final = (1 << 31) - 1
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
            _ttl_ms(expiration),
            table.flags(i),
        )
    return copy


def _ttl_ms(expiration: str | None) -> int:
    """Return the time to live of a row of a table."""
    found = -1 if expiration is None else expiration_ms(expiration.encode("utf-8", "replace"))
    return TTL_NONE if found < 0 else min(found, TTL_NONE - 1)


def delays_of(table: MessageTable) -> tuple[tuple[int, int], ...]:
    """Return the delays that headers say: (messages, delay_ms) of neighbouring messages."""
    runs: list[tuple[int, int]] = []
    for i in range(table.count):
        delay = delay_ms(plain(properties.headers(table.properties_of(i))))
        if runs and runs[-1][1] == delay:
            runs[-1] = (runs[-1][0] + 1, delay)
        else:
            runs.append((1, delay))
    return tuple(runs)


def due(raw: bytes) -> bytes:
    """Return properties with the delay negated, which says that it is over."""
    headers: dict[str, Any] = dict(properties.headers(raw))
    given = headers.get(DELAY)
    delay = delay_ms(plain({DELAY: given}))
    if not delay or not isinstance(given, Field):
        return raw
    code = given.code
    if code not in SIGNED_CODES:
        code = "I" if delay <= SIGNED_INT_MAX else "l"
    headers[DELAY] = Field(code, -delay)
    return properties.replace(raw, headers=headers)
