"""The port for clients is closed in maintenance, then opened again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.listeners.listening import ListeningWorld
from warren_broker.listeners.listener import HEADER_091


class Client:
    """Counts what it is told."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.farewells: list[str] = []

    logged_in = None

    def received(self, data: bytes) -> None:
        """Nothing is said to it."""

    def drained(self) -> None:
        """It sends nothing that could congest its socket."""

    def closed(self, error: Exception | None) -> None:
        """It is gone."""

    def shut_down(self, reason: str) -> None:
        """Told to go."""
        self.farewells.append(reason)
        self.stream.end()

    def blocked(self, reasons: tuple[str, ...]) -> None:
        """Not here."""


class World(ListeningWorld):
    """Clients that only say their header."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []
        self.listener.protocols[HEADER_091] = lambda stream, peer: self.join(stream)

    def join(self, stream: Any) -> Any:
        """A client that said its header."""
        self.clients.append(Client(stream))
        return self.clients[-1]

    def connect(self) -> socket.socket:
        """Connect, and send the header."""
        made = super().connect()
        made.sendall(HEADER_091)
        return made


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.listener.suspend("end")


def test_a_suspended_port_lets_nobody_in_and_everybody_go(world: World) -> None:
    with world.connect() as inside:
        world.until(lambda: world.clients)
        port = world.listener.port
        world.listener.suspend("maintenance")
        world.until(lambda: world.clients[0].farewells == ["maintenance"])
        assert inside.recv(1) == b""
    world.until(lambda: not world.listener.connections)
    with pytest.raises(ConnectionRefusedError):
        world.connect()
    world.listener.suspend("maintenance")  # a repeat is harmless
    assert world.listener.port == port
    world.listener.resume()
    world.listener.resume()
    with world.connect():
        world.until(lambda: len(world.clients) == 2)


def test_a_port_that_somebody_took_meanwhile_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren_broker.listeners.listener.REOPEN_MS", 20)
    world.listener.suspend("maintenance")
    other = socket.create_server(("127.0.0.1", world.listener.port))
    world.listener.resume()
    other.close()

    def connects() -> bool:
        try:
            world.connect().close()
        except OSError:
            return False
        return True

    world.until(connects)


def test_a_node_that_ends_while_it_waits_for_its_port_opens_it_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren_broker.listeners.listener.REOPEN_MS", 20)
    world.listener.suspend("maintenance")
    with socket.create_server(("127.0.0.1", world.listener.port)):
        world.listener.resume()
        world.listener.suspend("end")
    later: list[int] = []
    world.loop.call_later(100, lambda: later.append(1))
    world.until(lambda: later)
    with pytest.raises(ConnectionRefusedError):
        world.connect()
