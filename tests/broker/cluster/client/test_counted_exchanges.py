"""What came to each exchange of a run, and what queues were given of it."""

from __future__ import annotations

from array import array

import pytest

from warren_broker.cluster.client.publisher import by_exchange
from warren_wire.kernel import MessageTable, Route, Selection, partition

TO = (b"forked", b"", b"forked", b"headed", b"")


def run_of(exchanges: tuple[bytes, ...], before: int) -> MessageTable:
    """Messages to these exchanges, behind `before` others of the table."""
    table = MessageTable()
    for exchange in (b"earlier",) * before + exchanges:
        table.append(Route(exchange, b"key", False), b"\0\0", b"b")
    return table


@pytest.mark.parametrize("before", [0, 3])
def test_a_selection_may_be_a_part_of_the_run(before: int) -> None:
    table = run_of(TO, before)
    first, last = before, before + len(TO)
    went = [
        Selection(table, first, last),
        Selection(table, first, first + 1),
        Selection(table, first + 2, first + 4),
        Selection(table, first, first),
        Selection(table, first, last, array("I", [first + 1, first + 4])),
    ]
    found = by_exchange(table, first, last, went)
    assert found == [(b"forked", 2, 4), (b"", 2, 4), (b"headed", 1, 2)]


def test_as_messages_are_divided_among_queues() -> None:
    """1. A run has a message to a fanout exchange, then one to the default exchange.  2. A queue
    gets the first alone, which is one range of the run, and has no list of messages."""
    table = run_of((b"forked", b""), 0)
    ids = {table.routes.entries[at].exchange: at for at in range(2)}
    targets = {ids[b"forked"]: (0, 1), ids[b""]: (0,)}
    went = partition(table, 0, 2, targets, 2)
    assert by_exchange(table, 0, 2, went) == [(b"forked", 1, 2), (b"", 1, 1)]
