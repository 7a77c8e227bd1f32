"""The header x-death of a message that a client published, often a dead letter published again.

As in RabbitMQ, consumers see it as it came, and it is no history: when the message dies, its deaths
are counted from one, and none of the header's makes the message a cycle's. The order of the headers
says whether a history is the broker's, which clients do not see: x-death is the last header of a
message from a client, and never of a dead letter, which has `LAST_DEATH` behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from warren_broker.amqp091.wire import fields, properties
from warren_broker.kernel import HAS_DEATHS, MessageTable

X_DEATH: Final = "x-death"
LAST_DEATH: Final = ("x-last-death-queue", "x-last-death-reason", "x-last-death-exchange")
"""Headers of every dead letter."""
TABLE_LENGTH_BYTES = 4


def set_apart(table: MessageTable, first: int, last: int) -> tuple[MessageTable, int, int]:
    """Return messages first <= i < last, of clients, with a header x-death behind the others."""
    changed = MessageTable()
    for i in range(first, last):
        raw = table.properties_of(i)
        if table.flags(i) & HAS_DEATHS:
            raw = _last(raw)
        changed.append(
            table.route(i), raw, table.body(i), table.priority(i), table.ttl_ms(i), table.flags(i)
        )
    return changed, 0, changed.count


def _last(raw: bytes) -> bytes:
    """Place x-death behind the other headers, byte for byte."""
    start, end = properties.spans(raw)["headers"]
    start += TABLE_LENGTH_BYTES
    found = fields.entries(raw[start:end])
    found.sort(key=lambda entry: entry[0] == X_DEATH.encode())  # stable: the others stay in order
    return raw[:start] + b"".join(entry for _, entry in found) + raw[end:]


def is_history(headers: Mapping[str, Any]) -> bool:
    """Return whether the broker has written the header x-death, if there is one."""
    return list(headers)[-1:] != [X_DEATH]
