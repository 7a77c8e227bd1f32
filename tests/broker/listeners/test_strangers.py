"""What sockets before their login can take of a node, counted in places, steps and bytes."""

from __future__ import annotations

import socket
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.listeners.listening import ListeningWorld
from tests.patience import PATIENCE_S
from warren_broker.cluster import strangers
from warren_broker.config import Limits
from warren_broker.listeners.listener import HEADER_091
from warren_raft.runtime.net.tls import STEPS_PER_TURN

HERE, THERE = "127.0.0.1", "127.0.0.2"


class Client:
    """Answers the header; logs in with the next byte that comes."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.logged_in: tuple[str, str] | None = None
        self.by_token = False

    def received(self, data: bytes) -> None:
        """Answer; anything but the header is a login."""
        if data != HEADER_091:
            self.logged_in = ("user", "/")
        self.stream.send(b"!")

    def drained(self) -> None:
        """Nothing was held back."""

    def closed(self, error: Exception | None) -> None:
        """It is gone."""

    def shut_down(self, reason: str) -> None:
        """The node stops."""
        self.stream.abort()

    def blocked(self, reasons: tuple[str, ...]) -> None:
        """Not here."""


class World(ListeningWorld):
    """Clients of two addresses."""

    def __init__(self, **limits: int) -> None:
        super().__init__(Limits(**limits))
        self.sockets = ExitStack()
        self.headers: Counter[int] = Counter()
        self.listener.protocols[HEADER_091] = lambda stream, peer: self.join(stream)

    def join(self, stream: Any) -> Client:
        """A client that said its header, in this turn of the loop."""
        self.headers[self.loop.turn] += 1
        return Client(stream)

    def flood(self, count: int, says: bytes, address: str = THERE) -> list[socket.socket]:
        """Connect so many sockets, of which some may be closed at once."""
        made = []
        for _ in range(count):
            where = ("127.0.0.1", self.listener.port)
            one = socket.create_connection(where, PATIENCE_S, source_address=(address, 0))
            one.setblocking(False)
            self.sockets.enter_context(one)
            made.append(one)
        self.turn()
        for one in made:
            try:
                one.send(says)
            except OSError:
                continue  # closed already
        self.turn()
        return made

    def turn(self, times: int = 20) -> None:
        """Turn the loop."""
        for _ in range(times):
            self.loop.run_turn(0)

    def ended(self, one: socket.socket) -> bool:
        """Whether the node has closed it."""
        try:
            return one.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def served(self, one: socket.socket) -> bool:
        """Whether the node has answered."""
        try:
            return one.recv(1) == b"!"
        except OSError:
            return False


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**limits: int) -> World:
        made.append(World(**limits))
        return made[-1]

    yield make
    for one in made:
        one.listener.abandon()
        one.sockets.close()
        one.loop.close()


def test_sockets_that_only_begin_a_header_keep_no_other_address_out(
    world: Callable[..., World],
) -> None:
    """With as many of them as connections may be open, no client could log in."""
    here = world(connections_max=40, unauthenticated_max=20, unauthenticated_per_address_max=5)
    here.flood(150, b"AMQP")
    turns = here.strangers.connections
    assert turns.held == 5 and turns.waiting == 80 and turns.refused == 150 - 85
    (client,) = here.flood(1, HEADER_091, HERE)
    assert here.served(client)


def test_places_before_the_login_leave_places_to_known_clients(
    world: Callable[..., World],
) -> None:
    here = world(connections_max=6, unauthenticated_max=4, unauthenticated_per_address_max=4)
    known = here.flood(4, HEADER_091, HERE)
    for one in known:
        assert here.served(one)
        one.send(b"login")
    here.turn()
    assert all(map(here.served, known)) and here.strangers.connections.held == 0
    here.flood(10, b"AMQP")
    assert here.strangers.connections.held == 2, "4 of 6 connections are known clients'"
    known[0].close()
    here.turn()
    assert here.strangers.connections.held == 3


def test_when_all_connections_are_known_clients_the_next_one_is_refused(
    world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    here = world(connections_max=1)
    (known,) = here.flood(1, HEADER_091)
    known.send(b"login")
    here.turn()
    (other,) = here.flood(1, HEADER_091, HERE)
    assert here.ended(other)
    assert "1 connections are open, limits.connections_max is 1" in caplog.text


def test_a_client_that_waits_begins_when_its_address_has_a_place_again(
    world: Callable[..., World],
) -> None:
    """A thousand clients of one machine that start at once are served one after the other."""
    here = world(unauthenticated_per_address_max=3)
    clients = here.flood(30, HEADER_091)
    for _ in range(30):
        for one in clients:
            if here.served(one):
                one.send(b"login")
        here.turn()
    assert here.strangers.connections.waiting == here.strangers.connections.held == 0
    assert here.strangers.connections.refused == here.strangers.connections.evicted == 0


def test_a_stalled_socket_gives_its_place_to_the_next_of_its_address(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "PATIENCE_MS", 0)
    here = world(unauthenticated_per_address_max=2)
    stalled = here.flood(2, b"AMQP")
    (client,) = here.flood(1, HEADER_091)
    assert here.served(client)
    assert sorted(map(here.ended, stalled)) == [False, True]


def test_what_waits_too_long_is_closed(world: Callable[..., World]) -> None:
    here = world(unauthenticated_per_address_max=1, handshake_timeout_ms=100)
    stalled = here.flood(3, b"AMQP")
    here.until(lambda: all(map(here.ended, stalled)))
    assert not here.listener.connections


@pytest.mark.parametrize("says", [HEADER_091, b"AMQP"])
def test_a_turn_takes_a_bounded_number_of_steps_before_the_login(
    world: Callable[..., World], says: bytes
) -> None:
    here = world(unauthenticated_per_address_max=500)
    steps: Counter[int] = Counter()
    spend = here.listener.handshakes.spend

    def counted(seconds: float) -> None:
        steps[here.loop.turn] += 1
        spend(seconds)

    here.listener.handshakes.spend = counted  # type: ignore[method-assign]
    here.flood(300, says)
    here.turn(30)
    assert sum(steps.values()) == 300
    assert max(steps.values()) <= STEPS_PER_TURN and max(here.headers.values(), default=0) <= 32


@pytest.mark.parametrize(
    ("says", "bytes_max"), [(b"AMQP", 6_000), (HEADER_091, 8_000), (b"", 6_000)]
)
def test_a_socket_before_its_login_takes_few_bytes(
    world: Callable[..., World], says: bytes, bytes_max: int
) -> None:
    here = world(unauthenticated_per_address_max=200)
    here.flood(20, says)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        here.flood(150, says)
        each = (tracemalloc.get_traced_memory()[0] - before) / 150
    finally:
        tracemalloc.stop()
    assert here.strangers.connections.held == 170
    assert each < bytes_max


def test_a_login_of_another_address_does_not_wait_for_wrong_ones() -> None:
    """850 wrong passwords a second delayed a good client's operations by 0.8 s."""
    soon: list[Callable[[], None]] = []
    clock = SimpleNamespace(monotonic_ms=lambda: 0)
    loop: Any = SimpleNamespace(
        clock=clock, call_soon=soon.append, call_later=lambda delay_ms, call: None
    )
    turns = strangers.Strangers(loop, Limits(logins_per_address_max=8)).logins
    checked: list[str] = []

    def arrive(host: str, gone: bool = False) -> None:
        turns.arrive(
            strangers.WaitingLogin(
                turns, host, lambda login: checked.append(host), lambda: gone, checked.append
            )
        )

    for _ in range(850):
        arrive(THERE)
    arrive(HERE)
    for _ in range(30):
        arrive("192.0.2.1", gone=True)
    rounds = []
    while soon:
        before = len(checked)
        soon.pop(0)()
        rounds.append(len(checked) - before)
    assert HERE in checked[:3]
    assert Counter(checked) == {THERE: 8, HERE: 1}, "the others have hung up, or wait"
    assert max(rounds) <= 16
