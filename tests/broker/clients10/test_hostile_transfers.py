"""A peer that breaks the rules of transfers: each is answered by its condition, nothing is lost."""

from __future__ import annotations

import struct

import pytest

from tests.broker.clients10.stream_fuzz import ANSWERS, carry_out
from tests.broker.clients10.test_connection import output
from tests.broker.clients10.test_endings import (
    BEGIN,
    END,
    attach,
    frame,
    opened_by_hand,
    resident_bytes,
    transfer,
)
from warren_broker.clients10.connection import Connection10
from warren_broker.clients10.link_requests import PublishMessages, PublishOutcomes
from warren_broker.clients10.publishing_link import MESSAGES_CREDIT

DETACH = b"\x00\x53\x16"
SOME = 40
"""Transfers, fewer than the window of a session."""


def begun() -> Connection10:
    """A connection with a session."""
    connection = opened_by_hand()
    connection.receive(frame(BEGIN))
    carry_out(connection)
    return connection


def part(handle: int, number: int, data: bytes, *, first: bool, more: bool) -> bytes:
    """A transfer of a part of a message."""
    named = b"\x70" + struct.pack(">I", number) + b"\xa0\x01t\x43\x42" if first else b"\x40" * 4
    fields = b"\x52" + bytes([handle]) + named + (b"\x41" if more else b"\x42")
    listed = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 6]) + fields
    return frame(listed + data)


def published(connection: Connection10, *, confirm: bool) -> int:
    """How many messages were published; attaches are answered, messages where `confirm` is set."""
    count = 0
    for request in connection.take_requests():
        if isinstance(request, PublishMessages):
            count += request.table.count
            if confirm:
                every = list(range(request.table.count))
                connection.answer(request.token, PublishOutcomes(accepted=every, last=True))
        elif type(request) in ANSWERS:
            connection.answer(request.token, ANSWERS[type(request)])
    return count


def test_more_messages_than_credit_end_the_link() -> None:
    """Before: they were taken, up to the bound of what is in flight."""
    connection = begun()
    connection.receive(attach(0, b"n"))
    published(connection, confirm=False)
    output(connection)
    count = sent = 0
    while sent < 2 * MESSAGES_CREDIT:
        connection.receive(b"".join(transfer(0, sent + each) for each in range(SOME)))
        sent += SOME
        count += published(connection, confirm=False)
        answered = output(connection)
        if DETACH in answered:
            break
    assert b"amqp:link:transfer-limit-exceeded" in answered
    assert b"messages more than the link had credit for" in answered
    assert MESSAGES_CREDIT < sent <= MESSAGES_CREDIT + SOME
    assert count == sent and not connection.failure, "what was read is published"


def test_a_client_that_keeps_to_its_credit_sends_any_number() -> None:
    connection = begun()
    connection.receive(attach(0, b"n"))
    published(connection, confirm=False)
    output(connection)
    for first in range(0, 5 * MESSAGES_CREDIT, SOME):
        connection.receive(b"".join(transfer(0, first + each) for each in range(SOME)))
        assert published(connection, confirm=True) == SOME
        assert DETACH not in output(connection)


@pytest.mark.parametrize("attached", [True, False])
def test_a_transfer_on_a_handle_without_a_link_ends_the_connection(attached: bool) -> None:
    connection = begun()
    if attached:
        connection.receive(attach(0, b"n") + frame(DETACH + b"\xc0\x04\x02\x52\x00\x41"))
        carry_out(connection)
    connection.receive(transfer(0, 0))
    assert connection.failure == "amqp:invalid-field: no such handle: 0"
    assert b"amqp:invalid-field" in output(connection)


def test_messages_of_many_links_in_parts_that_alternate() -> None:
    connection = begun()
    links, parts = 200, 3
    for handle in range(links):
        connection.receive(attach(handle, b"n%d" % handle))
        published(connection, confirm=False)
    output(connection)
    piece, count = bytes(1_000), 0
    head = b"\x00\x53\x75\xb0" + struct.pack(">I", parts * len(piece))
    for number in range(parts):
        last = number == parts - 1
        order = reversed(range(links)) if last else range(links)
        for handle in order:
            data = piece if number else head + piece
            first = number == 0
            connection.receive(part(handle, handle, data, first=first, more=not last))
            count += published(connection, confirm=True)
            output(connection)
        if not last:
            assert connection.unfinished_bytes >= links * (number + 1) * len(piece)
    assert count == links and not connection.unfinished_bytes and not connection.failure


def test_sessions_that_end_amid_a_message_leave_nothing() -> None:
    connection = begun()
    before = resident_bytes()
    head = b"\x00\x53\x75\xb0" + struct.pack(">I", 1 << 20)
    for _ in range(300):
        connection.receive(attach(0, b"n"))
        published(connection, confirm=False)
        output(connection)
        connection.receive(part(0, 0, head + bytes(200_000), first=True, more=True))
        assert connection.unfinished_bytes
        connection.receive(frame(END))
        carry_out(connection)
        assert not connection.unfinished_bytes
        connection.receive(frame(BEGIN))
        carry_out(connection)
    assert not connection.failure
    assert resident_bytes() - before < 32 << 20


def test_another_message_before_the_first_is_whole_ends_the_connection() -> None:
    connection = begun()
    connection.receive(attach(0, b"n"))
    published(connection, confirm=False)
    output(connection)
    connection.receive(part(0, 0, b"x", first=True, more=True))
    connection.receive(part(0, 1, b"x", first=True, more=True))
    assert connection.failure.startswith("amqp:invalid-field: invalid delivery-id")
    assert b"amqp:invalid-field" in output(connection)


def test_more_frames_than_the_window_end_the_connection() -> None:
    connection = begun()
    connection.receive(attach(0, b"n"))
    published(connection, confirm=False)
    output(connection)
    connection.receive(b"".join(transfer(0, number) for number in range(200)))
    assert connection.failure.startswith("amqp:session:window-violation")
    assert b"amqp:session:window-violation" in output(connection)
