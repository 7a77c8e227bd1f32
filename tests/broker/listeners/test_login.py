"""Which users may log in from where, over both protocols."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pamqp.commands as spec
import pamqp.frame
import pytest
from proton import SASL, Connection, Transport

from warren_broker.access import requests
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.clients.login import LOGIN_REFUSED_DELAY_MS, is_loopback
from warren_broker.clients091.client091 import Client091
from warren_broker.clients10.client10 import Client10
from warren_broker.cluster.strangers import Strangers
from warren_broker.cluster.turn_shares import TurnShares
from warren_broker.config import Limits
from warren_broker.counting.counters import Counters
from warren_broker.counting.message_stats import MessageCounts
from warren_broker.listeners.listener import HEADER_091
from warren_wire import errors


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1:5", True),
        ("127.8.9.1:5", True),
        ("::1:5", True),
        ("[::1]:5", True),
        ("::ffff:127.0.0.1:5", True),
        ("10.0.0.1:5", False),
        ("::ffff:10.0.0.1:5", False),
        ("fe80::1:5", False),
        ("", False),
        ("localhost:5", False),
        ("128.0.0.1:5", False),
    ],
)
def test_is_loopback(peer: str, expected: bool) -> None:
    assert is_loopback(peer) is expected


class World:
    """A broker that knows one password, a loop whose timers and turns are called by hand."""

    def __init__(self, loopback_users: tuple[str, ...]) -> None:
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.ends: list[Callable[[], None]] = []
        self.sent = bytearray()
        self.paused = self.congested = False
        self.out_bytes = 0
        self.ended = False
        self.told: list[tuple[str, str, Any]] = []
        clock = SimpleNamespace(monotonic_ms=lambda: 0, epoch_ms=lambda: 0)
        self.loop = SimpleNamespace(
            now_ms=0,
            clock=clock,
            call_later=self.call_later,
            call_soon=lambda call: call(),
            turn=0,
            at_turn_end=lambda stage, call: self.ends.append(call),
        )
        self.broker: Any = SimpleNamespace(
            strangers=Strangers(self.loop, Limits()),  # type: ignore[arg-type]
            settings=SimpleNamespace(
                loopback_users=loopback_users, node="a", cluster="c", limits=Limits()
            ),
            ids=SimpleNamespace(connection=lambda: 1),
            connections=SimpleNamespace(add=lambda *given: None, remove=lambda number: None),
            events=SimpleNamespace(on=True, node="a", tell=self.tell),
            audit=SimpleNamespace(login=lambda *told: None),
            traced_vhosts=frozenset(),
            cluster=SimpleNamespace(
                loop=self.loop, counters=Counters(), queue_counts=MessageCounts()
            ),
            consuming=SimpleNamespace(resume=None),
            publishing=SimpleNamespace(shares=TurnShares(self.loop)),  # type: ignore[arg-type]
            logins=SimpleNamespace(
                authenticate=self.authenticate,
                enter_vhost=lambda number, vhost, user, done, **more: done(requests.RequestDone()),
            ),
            connection_gone=lambda number, done: done(requests.RequestDone()),
        )

    def tell(self, key: str, facts: Any) -> None:
        self.told.append((key, facts["name"], facts.get("error")))

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> Any:
        self.timers.append((delay_ms, call))
        return SimpleNamespace(cancel=lambda: None)

    def authenticate(self, user: str, password: str, mechanism: str, done: Any) -> None:
        done(requests.RequestDone() if password == "right" else errors.login_refused(mechanism))

    # the stream
    def write(self, parts: list[Any]) -> None:
        self.sent += b"".join(bytes(part) for part in parts)

    def end(self) -> None:
        self.ended = True

    close = end

    def resume_reading(self) -> None:
        self.paused = False

    def turn(self) -> None:
        """The end of a turn."""
        ends, self.ends = self.ends, []
        for call in ends:
            call()

    def delayed(self) -> list[Callable[[], None]]:
        return [call for delay, call in self.timers if delay == LOGIN_REFUSED_DELAY_MS]


def answer091(world: World, peer: str, password: str) -> str:
    """Log in over 0.9.1: what comes back."""
    client = Client091(world.broker, ConnectionConfig(), world, peer)  # type: ignore[arg-type]
    client.received(HEADER_091)
    world.turn()
    world.sent.clear()
    start = spec.Connection.StartOk(
        {"capabilities": {"authentication_failure_close": True}},
        "PLAIN",
        f"\0guest\0{password}",
        "en_US",
    )
    client.received(pamqp.frame.marshal(start, 0))
    world.turn()
    for call in world.delayed():
        assert not world.sent
        call()
    world.turn()
    _, _, frame = pamqp.frame.unmarshal(bytes(world.sent))
    return frame.reply_text if isinstance(frame, spec.Connection.Close) else frame.name


def answer10(world: World, peer: str, password: str) -> str:
    """The same over 1.0."""
    transport, connection = Transport(), Connection()
    sasl: SASL = transport.sasl()
    sasl.allow_insecure_mechs = True
    sasl.allowed_mechs("PLAIN")
    connection.user, connection.password = "guest", password
    transport.bind(connection)
    connection.open()
    client = Client10(world.broker, ConnectionConfig(), world, peer)  # type: ignore[arg-type]
    for _ in range(4):
        if transport.pending() > 0:
            data = transport.peek(transport.pending())
            transport.pop(len(data))
            client.received(bytes(data))
        world.turn()
        for call in world.delayed():
            assert not world.ended
            call()
        world.timers.clear()
        world.turn()
        sent, world.sent = bytes(world.sent), bytearray()
        if sent:
            transport.push(sent)
    return {SASL.OK: "Connection.Tune", SASL.AUTH: "Login was refused"}[sasl.outcome]


@pytest.mark.parametrize("answer", [answer091, answer10])
@pytest.mark.parametrize(
    ("peer", "password", "users", "allowed"),
    [
        ("127.0.0.1:7", "right", ("guest",), True),
        ("[::1]:7", "right", ("guest",), True),
        ("10.0.0.9:7", "right", ("guest",), False),
        ("10.0.0.9:7", "right", (), True),
        ("10.0.0.9:7", "right", ("other",), True),
        ("127.0.0.1:7", "wrong", ("guest",), False),
        ("10.0.0.9:7", "wrong", (), False),
    ],
)
def test_a_loopback_user_logs_in_from_this_machine_only(
    answer: Callable[[World, str, str], str],
    peer: str,
    password: str,
    users: tuple[str, ...],
    allowed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = World(users)
    found = answer(world, peer, password)
    if allowed:
        assert world.told[0] == ("user.authentication.success", "guest", None)
        assert found == "Connection.Tune"
        assert "refused" not in caplog.text
        return
    assert "Login was refused" in found
    (record,) = [one for one in caplog.records if "login refused" in one.getMessage()]
    assert record.levelno == logging.ERROR and "user 'guest'" in record.getMessage()
    why = "can only connect via localhost" if password == "right" else "invalid credentials"
    assert why in record.getMessage()
    ((key, name, error),) = world.told
    assert (key, name) == ("user.authentication.failure", "guest") and why in error
