"""A connection of a shovel that is closed at any time."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from pika.adapters.select_connection import IOLoop

from tests.patience import PATIENCE_S
from tests.resetting_peer import resetting_peer
from warren_broker.transfers.shovel.connection10 import Endpoint10
from warren_wire.links.uris import parse_shovel_uri
from warren_wire.sessions.connection091 import SPEAKS_TLS, TLS_ALERT
from warren_wire.sessions.endpoint import Endpoint
from warren_wire.sessions.locate import OwnNode

PROTOCOL_HEADER_BYTES = 8


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A broker that accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


def run_for(ioloop: IOLoop, seconds: float) -> None:
    """Run the loop for a while."""
    ioloop.call_later(seconds, ioloop.stop)
    ioloop.start()


@pytest.mark.parametrize("ends", [False, True])
def test_a_connection_that_is_not_open_yet_is_given_up(silent: socket.socket, ends: bool) -> None:
    """A shovel that was deleted while it connected ended in an assertion of pika."""
    host, port = silent.getsockname()
    uri = parse_shovel_uri("src-uri", f"amqp://{host}:{port}")
    own = OwnNode("amqp", host, port, 16 << 20)
    failures: list[str] = []
    endpoint = Endpoint("src-uri", uri, own, "shovel s", failures.append)
    ioloop = IOLoop()
    endpoint.open(ioloop, lambda: failures.append("opened"))
    run_for(ioloop, 0.2)
    with silent.accept()[0] as peer:
        peer.settimeout(PATIENCE_S)
        while len(peer.recv(PROTOCOL_HEADER_BYTES, socket.MSG_PEEK)) < PROTOCOL_HEADER_BYTES:
            run_for(ioloop, 0.05)
        closed: list[bool] = []
        endpoint.close(lambda: closed.append(True))
        assert closed, "nothing is waited for: there is nothing to be written"
        if not ends:
            run_for(ioloop, 0.2)
    run_for(ioloop, 0.2)  # the broker hangs up
    endpoint.close(lambda: closed.append(True))
    assert len(closed) == 2
    assert not failures


@pytest.mark.parametrize("kind", [Endpoint, Endpoint10])
def test_a_broker_that_resets_a_new_connection_ends_an_attempt_and_not_the_shovel(
    kind: type[Endpoint] | type[Endpoint10], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a node does that stops: pika's ValueError ended the shovel's process."""
    failures: list[str] = []
    ioloop = IOLoop()
    with resetting_peer(monkeypatch) as (host, port):
        uri = parse_shovel_uri("src-uri", f"amqp://{host}:{port}")
        endpoint = kind("src-uri", uri, OwnNode("amqp", host, port, 16 << 20), "s", failures.append)
        endpoint.open(ioloop, lambda: failures.append("opened"))
        for _ in range(round(PATIENCE_S / 0.05)):
            run_for(ioloop, 0.05)
            if failures:
                break
    assert len(failures) == 1 and "as soon as it was made" in failures[0], failures


@pytest.mark.parametrize("kind", [Endpoint, Endpoint10])
@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 400 Bad Request\r\n", b"\1\0\0\x7f\xff\xff\xff", b"\x15\3\3\0\2\2\x0a"],
    ids=["silent", "http", "a frame without end", "an alert of TLS"],
)
def test_a_peer_that_does_not_answer_as_a_broker_is_named_in_words(
    silent: socket.socket, kind: type[Endpoint] | type[Endpoint10], said: bytes
) -> None:
    """Before, the state of a link had pika's text of its own close, with classes and addresses."""
    host, port = silent.getsockname()
    uri = parse_shovel_uri("src-uri", f"amqp://{host}:{port}?connection_timeout=300")
    failures: list[str] = []
    endpoint = kind("src-uri", uri, OwnNode("amqp", host, port, 16 << 20), "s", failures.append)
    ioloop = IOLoop()
    endpoint.open(ioloop, lambda: failures.append("opened"))
    run_for(ioloop, 0.1)
    with silent.accept()[0] as peer:
        peer.sendall(said)
        for _ in range(round(PATIENCE_S / 0.05)):
            run_for(ioloop, 0.05)
            if failures:
                break
    (words,) = failures
    place, _, told = words.partition("%2F: ")
    assert place == f"src-uri amqp://guest@{host}:{port}/"
    if said.startswith(TLS_ALERT):
        assert told == SPEAKS_TLS
        return
    assert told == "it did not answer in time" or told.startswith("what listens there does not spe")
