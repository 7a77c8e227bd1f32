"""Clients of AMQP 1.0 that do what they must not, on a real socket: they can read why they end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from live.conftest import Broker
from tests.broker.amqp10.stream_fuzz import FRAMES, LOGIN
from tests.broker.amqp10.test_endings import BEGIN, attach, frame, transfer

pytestmark = pytest.mark.live
WAIT_S = 20.0
CLOSE = b"\x00\x53\x18"
MISSING = b"\xc0\x10\x01\xa1\x0d/queues/lost!"


@contextmanager
def opened(broker: Broker) -> Iterator[socket.socket]:
    """A connection with an Open that is answered."""
    if broker.cluster is None:
        pytest.skip("the texts are Warren's")
    host, port = broker.cluster.addresses[0].split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as peer:
        peer.sendall(b"".join(FRAMES[: LOGIN + 1]))
        read = b""
        while b"\x00\x53\x10" not in read:
            read += peer.recv(1 << 16)
        yield peer


def refusal(peer: socket.socket) -> bytes:
    """What the node's Close says, after which it ends the connection."""
    read = b""
    while got := peer.recv(1 << 16):
        read += got
    assert read.count(CLOSE) == 1, read[-200:]
    return read.partition(CLOSE)[2]


def test_a_client_that_still_sends_reads_why_its_connection_ends(broker: Broker) -> None:
    """Before: the node closed its socket with bytes unread in it, and a reset took the Close."""
    with opened(broker) as peer:
        sent = attach(0, b"n", MISSING) + b"".join(transfer(0, each) for each in range(5_000))
        peer.sendall(frame(BEGIN) + sent)
        assert b"amqp:" in refusal(peer)


def test_sixty_five_sessions(broker: Broker) -> None:
    with opened(broker) as peer:
        peer.sendall(b"".join(frame(BEGIN, number % 64) for number in range(65)))
        assert b"more than 64 sessions" in refusal(peer)


def test_two_links_in_a_session_with_handles_for_one(broker: Broker) -> None:
    """Before: silence, until the client gave up."""
    begun = BEGIN[:4] + b"\x0b\x05" + BEGIN[6:] + b"\x43"
    with opened(broker) as peer:
        peer.sendall(frame(begun) + attach(0, b"n", MISSING) + attach(1, b"o", MISSING))
        assert b"within limit of 0" in refusal(peer)
