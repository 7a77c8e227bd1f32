"""What one read makes a connection do, in lines of Python: no product of links and ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.clients10.stream_fuzz import carry_out
from tests.broker.clients10.test_endings import BEGIN, END, attach, frame, opened_by_hand
from tests.broker.clients10.test_hostile_transfers import published
from tests.line_steps import lines
from warren_broker.clients10.connection import Connection10

MANAGEMENT = b"\xc0\x0e\x01\xa1\x0b/management"


def with_links(count: int) -> Connection10:
    """A connection with a session of so many links."""
    connection = opened_by_hand()
    connection.receive(frame(BEGIN))
    for handle in range(count):
        connection.receive(attach(handle, b"n%d" % handle))
    carry_out(connection)
    published(connection, confirm=False)
    return connection


def ended_sessions(links: int) -> int:
    connection = with_links(links)
    data = (frame(BEGIN, 1) + frame(END, 1)) * 20
    return lines(lambda: connection.receive(data))


def management_links(links: int) -> int:
    connection = with_links(1)
    for at in range(links):
        connection.receive(attach(1 + at, b"m%d" % at, MANAGEMENT))
    data = b"".join(attach(1 + links + at, b"k%d" % at, MANAGEMENT) for at in range(20))
    return lines(lambda: connection.receive(data))


@pytest.mark.parametrize("read", [ended_sessions, management_links])
def test_what_one_read_takes_does_not_depend_on_the_links_that_are_there(
    read: Callable[[int], int],
) -> None:
    """They were all looked through for each session that ended, and each link that was attached."""
    assert read(200) < 1.1 * read(10)
