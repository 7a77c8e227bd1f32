"""Clients of AMQP 1.0 that do what they must not, on a real socket: they can read why they end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from live.conftest import Broker
from tests.broker.clients10.stream_fuzz import FRAMES, LOGIN
from tests.broker.clients10.test_endings import BEGIN, attach, frame, transfer
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live
WAIT_S = PATIENCE_S
CLOSE = b"\x00\x53\x18"
DETACH = b"\x00\x53\x16"
SOME = 40
"""Transfers, fewer than the window of a session."""
MISSING = b"\xc0\x10\x01\xa1\x0d/queues/lost!"


@contextmanager
def opened(broker: Broker) -> Iterator[socket.socket]:
    """A connection with an Open that is answered."""
    if broker.cluster is None:
        pytest.skip("the texts are Warren's")
    host, port = broker.cluster.addresses[0].split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as peer:
        peer.sendall(b"".join(FRAMES[: LOGIN + 1]))
        until(peer, b"\x00\x53\x10")
        yield peer


def until(peer: socket.socket, performative: bytes) -> bytes:
    """Read until this comes; return what came."""
    read = b""
    while performative not in read:
        got = peer.recv(1 << 16)
        assert got, (performative, read[-200:])
        read += got
    return read


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
        peer.sendall(frame(BEGIN))
        until(peer, b"\x00\x53\x11")
        sent = attach(0, b"n", MISSING) + b"".join(transfer(0, each) for each in range(5_000))
        peer.sendall(sent)
        assert b"amqp:session:window-violation" in refusal(peer)


def test_a_refused_link_leaves_its_session_until_a_bound(broker: Broker) -> None:
    with opened(broker) as peer:
        peer.sendall(frame(BEGIN))
        until(peer, b"\x00\x53\x11")
        peer.sendall(attach(0, b"n", MISSING))
        assert b"amqp:not-found" in until(peer, DETACH)
        for first in range(0, 4_080, SOME):
            peer.sendall(b"".join(transfer(0, first + each) for each in range(SOME)))
            assert CLOSE not in until(peer, b"\x00\x53\x13"), "the window is renewed"
        peer.sendall(attach(1, b"o", MISSING))
        assert CLOSE not in until(peer, DETACH)
        peer.sendall(b"".join(transfer(0, 4_080 + each) for each in range(SOME)))
        assert b"more than 4096 messages to link 'n', which has ended" in refusal(peer)


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
