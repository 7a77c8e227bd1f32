"""A client that asks for answers and does not read them: they are bounded, and none is lost."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from tests.broker.clients10.stream_fuzz import FRAMES, LOGIN, carry_out
from tests.broker.clients10.test_connection import new, output
from tests.broker.clients10.test_endings import BEGIN, attach, frame, receiver, resident_bytes
from warren_broker.clients10.connection import Connection10
from warren_wire.amqp10 import engine
from warren_wire.amqp10.engine import ANSWERS_OWED_MAX

DETACH = b"\x00\x53\x16\xc0\x04\x02\x52\x00\x41"
END = b"\x00\x53\x17\x45"
LIMIT = 2 << 20
READ = 1 << 16
"""Bytes of one read of the socket."""


def opened() -> Connection10:
    """A connection with a session, as by hand."""
    connection = new()
    for data in (*FRAMES[: LOGIN + 1], frame(BEGIN)):
        connection.receive(data)
        carry_out(connection)
    return connection


LOOPS = {
    "publishers": attach(0, b"n") + frame(DETACH),
    "consumers": receiver(0, b"n") + frame(DETACH),
    "refused": attach(0, b"n", b"\xc0\x09\x01\xa1\x06/wrong") + frame(DETACH),
    "sessions": frame(BEGIN, 1) + frame(END, 1),
}


def asked_until_full(connection: Connection10, loop: bytes, times: int) -> int:
    """Ask again and again, read nothing, until nothing more is read; return how often."""
    some = loop * (READ // len(loop))
    for number in range(times):
        if not connection.wants_input:
            return number * (READ // len(loop))
        connection.receive(some)
        carry_out(connection, passes=2, reads=False)
        connection.take_faults()
    return times * (READ // len(loop))


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(
            loop, id=name, marks=() if name in ("publishers", "refused") else pytest.mark.long
        )
        for name, loop in LOOPS.items()
    ],
)
def test_what_a_client_does_not_read_is_bounded(
    loop: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: every link was kept, with its answers, as long as the client read nothing."""
    monkeypatch.setattr(engine, "UNTAKEN_BYTES_MAX", LIMIT)
    connection = opened()
    before = resident_bytes()
    asked = asked_until_full(connection, loop, 100)
    assert not connection.wants_input, "the client is not read"
    assert connection._engine.bytes_made() < 4 * LIMIT
    assert resident_bytes() - before < 12 * LIMIT
    seen = performatives(taken(connection))
    assert connection.wants_input and not connection.failure
    first, last = (0x11, 0x17) if loop is LOOPS["sessions"] else (0x12, 0x16)
    assert seen[first] == asked and seen[last] >= asked, "every one is answered"


def test_answers_to_few_requests_are_made_when_they_are_taken() -> None:
    """They are joined with what else the turn has for the socket."""
    connection = opened()
    connection.receive((attach(0, b"n") + frame(DETACH)) * (ANSWERS_OWED_MAX // 2 - 1))
    assert connection._engine.bytes_made() == 0


def taken(connection: Connection10) -> bytes:
    """All that the connection has for the client."""
    found = b""
    while some := output(connection):
        found += some
    return found


def performatives(data: bytes) -> Counter[int]:
    """How often each performative is in whole frames."""
    found: Counter[int] = Counter()
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if size > 8:
            found[data[at + 10]] += 1
        at += size
    return found
