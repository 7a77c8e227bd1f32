"""Connections of the HTTP API before a login: places and logins have a share for each address."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.broker.http.test_application import PlayedNode, job
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from warren_broker.http import application, doors
from warren_broker.http.application import HttpApplication
from warren_broker.http.bounded_connection import BoundedConnection
from warren_broker.http.doors import HttpDoors, HttpLogins, stranger_shares

HERE, THERE = "127.0.0.1", "127.0.0.2"
REQUEST = b"GET /api/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n"


class World:
    """A port, and connections to it from two addresses."""

    def __init__(self, node: PlayedNode, share: int, context: ssl.SSLContext | None) -> None:
        self.application = HttpApplication(node, job())  # type: ignore[arg-type]
        config = Config(self.application, lifespan="off", log_config=None, interface="asgi3")
        config.load()
        state = ServerState()
        self.doors = HttpDoors(
            lambda one: BoundedConnection(one, config, state), "connections", stranger_shares(share)
        )
        self.listening = socket.create_server((HERE, 0), backlog=1_000)
        certificates: Any = None if context is None else SimpleNamespace(current=context)
        self.doors.listen(self.listening, certificates)
        self.kept = ExitStack()

    async def connect(self, count: int, says: bytes, source: str = THERE) -> list[socket.socket]:
        """Connect, say something, and let the server take it."""
        made = []
        for _ in range(count):
            one = socket.create_connection(
                self.listening.getsockname(), PATIENCE_S, source_address=(source, 0)
            )
            self.kept.enter_context(one)
            one.setblocking(False)
            one.send(says)
            made.append(one)
        await self.turns()
        return made

    async def turns(self, count: int = 60) -> None:
        """Turn the loop, which waits for nothing meanwhile."""
        for _ in range(count):
            await asyncio.sleep(0)


def answered(one: socket.socket) -> bytes:
    """The first line of the answer; empty: there is none yet."""
    try:
        return one.recv(65_536).partition(b"\r\n")[0]
    except OSError:
        return b""


def run(
    scene: Callable[[World], Awaitable[None]],
    node: PlayedNode | None = None,
    share: int = 5,
    context: ssl.SSLContext | None = None,
) -> None:
    """Play a scene."""

    async def played() -> None:
        world = World(node or PlayedNode(), share, context)
        try:
            await asyncio.wait_for(scene(world), PATIENCE_S)
        finally:
            asyncio.get_running_loop().remove_reader(world.listening)
            world.listening.close()
            world.kept.close()
            while world.doors.turns.held or world.doors.turns.waiting:
                await asyncio.sleep(0)

    asyncio.run(played())


def test_slow_connections_of_one_address_keep_no_other_one_out() -> None:
    """512 of them made the API answer 503."""

    async def scene(world: World) -> None:
        slow = await world.connect(520, b"GET / HTTP/1.1\r\nX: ")
        assert world.doors.turns.counts() == (5, 256, 520 - 5 - 256, 0)
        refused = [one for one in slow if answered(one).startswith(b"HTTP/1.1 503")]
        assert len(refused) == 520 - 5 - 256
        (client,) = await world.connect(1, REQUEST, HERE)
        assert answered(client) == b"HTTP/1.1 200 OK"

    run(scene)


def test_a_connection_with_a_login_leaves_its_place() -> None:
    async def scene(world: World) -> None:
        clients = await world.connect(12, REQUEST)
        assert [answered(one) for one in clients] == [b"HTTP/1.1 200 OK"] * 12
        assert world.doors.turns.counts() == (0, 0, 0, 0)
        clients[0].close()
        await world.turns()
        again = await world.connect(3, REQUEST)
        assert [answered(one) for one in again] == [b"HTTP/1.1 200 OK"] * 3

    run(scene, share=2)


def test_a_slow_connection_gives_its_place_to_the_next_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(doors, "HTTP_PATIENCE_MS", 0)

    async def scene(world: World) -> None:
        slow = await world.connect(1, b"GET / HTTP/1.1\r\n")
        (client,) = await world.connect(1, REQUEST)
        assert answered(client) == b"HTTP/1.1 200 OK"
        assert answered(slow[0]).startswith(b"HTTP/1.1 503")

    run(scene, share=1)


def test_an_incomplete_tls_handshake_takes_a_place(tmp_path: Path) -> None:
    """Such connections were not counted at all, until the process had no file left."""
    authority = Authority(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = authority.issue("server")
    context.load_cert_chain(certificate.cert, certificate.key)

    async def scene(world: World) -> None:
        await world.connect(20, b"\x16\x03\x01")
        assert world.doors.turns.counts() == (5, 15, 0, 0)

    run(scene, context=context)


def test_wrong_passwords_of_one_address_do_not_delay_logins_of_another(monkeypatch: Any) -> None:
    """Each is under way until its late answer; further ones of the address are not asked about."""
    held = asyncio.Event()

    async def late(seconds: float) -> None:
        await held.wait()

    monkeypatch.setattr(application, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": late}))
    share = job().settings["http"]["logins_per_address_max"]
    node = PlayedNode(**{"GET /whoami": (401, "wrong", "amqp:unauthorized-access")})

    async def scene(world: World) -> None:
        wrong = await world.connect(share + 9, REQUEST)
        assert len(node.asked) == share
        node.answers["GET /whoami"] = (200, {"name": "user", "tags": ["management"]})
        (client,) = await world.connect(1, REQUEST, HERE)
        assert answered(client) == b"HTTP/1.1 200 OK"
        held.set()
        await world.turns(200)
        lines = [answered(one) for one in wrong]
        assert lines.count(b"HTTP/1.1 401 Unauthorized") == share
        assert lines.count(b"HTTP/1.1 200 OK") == 9

    run(scene, node, share=200)


def test_too_many_logins_that_wait_are_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(doors, "HTTP_LOGINS_WAITING_MAX", 1)

    async def scene() -> None:
        logins = HttpLogins(1)
        first = await logins.enter(THERE)
        waiting = [asyncio.ensure_future(logins.enter(THERE)) for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert isinstance(waiting[0].exception(), doors.HttpRefusal)
        logins.turns.end(first)
        logins.turns.end(await waiting[1])
        assert logins.turns.counts() == (0, 0, 1, 0)

    asyncio.run(scene())
