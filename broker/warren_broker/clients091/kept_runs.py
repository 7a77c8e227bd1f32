"""Memory of messages that wait in a connection: for an answer, or for the end of a transaction.

A run points into the table of all messages that were read at once, up to 1 MiB, and keeps it:

1. A client publishes a message of one octet in a transaction, and in the same read a megabyte on
another channel.  2. It does so again and again. What waits is a few octets each time, what is kept
a megabyte. So a run of less than half of its table gets a table of its own.
Replayed by tests/broker/amqp091/test_bounds.py
"""

from __future__ import annotations

from typing import Final

from warren_wire.kernel import MessageTable

RUN_BYTES: Final = 512
"""Counted for each run that waits, beside its messages: objects that say where they are."""
ROW_BYTES: Final = 24
"""Counted for each message beside its properties and body."""


def own_table(table: MessageTable, first: int, last: int) -> tuple[MessageTable, int, int]:
    """Return messages first <= i < last where they keep at most twice their size in memory."""
    if 2 * run_bytes(table, first, last) >= run_bytes(table, 0, table.count):
        return table, first, last
    own = MessageTable()
    for i in range(first, last):
        own.append(
            table.route(i),
            table.properties_of(i),
            table.body(i),
            table.priority(i),
            table.ttl_ms(i),
            table.flags(i),
        )
    return own, 0, own.count


def run_bytes(table: MessageTable, first: int, last: int) -> int:
    """Return the memory that messages first <= i < last of a table take."""
    return table.size_bytes(first, last) + ROW_BYTES * (last - first) + RUN_BYTES
