"""What one read makes a connection do, in lines of Python: no product of links and ends."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.broker.clients10.stream_fuzz import carry_out
from tests.broker.clients10.test_endings import BEGIN, END, attach, frame, opened_by_hand
from tests.broker.clients10.test_hostile_transfers import published
from tests.broker.clients10.test_timed_out import holding
from tests.line_steps import lines
from warren_broker.clients10.connection import EVENTS_PER_STEP, Connection10
from warren_machines.queue.commands import Settle
from warren_machines.steps import Steps

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


def disposition(first: int, last: int, state: bytes) -> bytes:
    """Of a receiver, which has not settled."""
    fields = b"\x41" + struct.pack(">BIBI", 0x70, first, 0x70, last) + b"\x42" + state
    return frame(b"\x00\x53\x15\xc0" + bytes([len(fields) + 1, 5]) + fields)


@pytest.mark.parametrize(
    "state", [b"\x40", b"\x00\x53\x23\xc0\x03\x02\x43\x43", b"\x00\x53\x24\x45"]
)
def test_dispositions_of_many_deliveries_are_read_in_turns(state: bytes) -> None:
    """Before: each of the frames of a read went through all 100,000 deliveries, in one turn."""
    held, frames = 500, 40
    client, *_ = holding(*[b"x"] * held, credit=held)
    steps, turns = Steps(0), 0
    work = client.connection.reading(disposition(0, 1 << 30, state) * frames, steps)
    while True:
        taken, steps.limit = steps.taken, steps.taken + 1_000
        turns += 1
        if next(work, "done") == "done":
            break
        assert steps.taken - taken <= 1_000 + 4 * held, "few frames more than the limit"
    assert turns >= frames * held // EVENTS_PER_STEP // (1_000 + 4 * held)
    settled = [one for one in client.connection.take_requests() if isinstance(one, Settle)]
    assert bool(settled) == (state == b"\x00\x53\x24\x45")


def test_what_says_nothing_of_a_delivery_is_few_steps() -> None:
    client, *_ = holding(*[b"x"] * 100, credit=100)
    data = disposition(0, 99, b"\x40")
    assert lines(lambda: client.connection.receive(data)) < 35 * 100
