"""Connections of the HTTP API that send nothing, nonsense, too much, or too slowly."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.patience import PATIENCE_S
from warren_broker.http import bounded_connection, doors, streams
from warren_broker.http.bounded_connection import HEADERS_BYTES_MAX, BoundedConnection
from warren_broker.http.doors import HttpDoors, stranger_shares
from warren_broker.http.streams import EventStream, EventStreams

ENDED: list[int] = []
"""Looks of the streams that have ended."""
Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body; the path /hang does not answer."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    if scope["path"] == "/hang":
        await asyncio.Event().wait()
    if scope["path"] == "/events":
        numbers = itertools.count()

        async def look() -> bytes:
            return b"%d" % next(numbers) + b" " * (8 << 20)

        stream = EventStream("user", b"", look, every_s=0)
        await EventStreams().run(stream, scope["state"]["newcomer"], receive, send)
        ENDED.append(next(numbers))
        return
    data = str(size).encode()
    headers = [(b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def with_server(client: Client) -> None:
    """Run a client against a server with the connection under test."""

    async def run() -> None:
        config = Config(
            echo, lifespan="off", log_config=None, h11_max_incomplete_event_size=HEADERS_BYTES_MAX
        )
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        accepting = HttpDoors(
            lambda newcomer: BoundedConnection(newcomer, config, state),
            "connections",
            stranger_shares(64),
        )
        with socket.create_server(("127.0.0.1", 0)) as listening:
            accepting.listen(listening, None)
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await asyncio.wait_for(client(reader, writer), PATIENCE_S)
            writer.close()
            loop.remove_reader(listening)

    asyncio.run(run())


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(size)


def test_requests_follow_each_other_on_a_connection() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        writer.write(post * 3)
        for _ in range(3):
            assert await answer(reader) == (200, b"3")
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await answer(reader) == (200, b"0")

    with_server(client)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET  HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (HEADERS_BYTES_MAX + 10),
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(sent: bytes) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        status, body = await answer(reader)
        assert status == 400 and json.loads(body)["error"] == "bad_request"
        assert await reader.read() == b""

    with_server(client)


def test_headers_that_come_byte_by_byte_have_a_time_limit(monkeypatch: Any) -> None:
    monkeypatch.setattr(bounded_connection, "HEADERS_S", 0.2)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def drip() -> None:
            for byte in b"GET / HTTP/1.1\r\nHost: x\r\n" * 1_000:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.ensure_future(drip())
        status, body = await answer(reader)
        assert (status, json.loads(body)["error"]) == (408, "request_timeout")
        dripping.cancel()

    with_server(client)


def test_a_second_request_has_the_same_limit(monkeypatch: Any) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await answer(reader) == (200, b"0")
        monkeypatch.setattr(bounded_connection, "HEADERS_S", 0.2)
        writer.write(b"G")
        assert (await answer(reader))[0] == 408

    with_server(client)


def test_an_answer_that_does_not_come_ends_the_connection(monkeypatch: Any) -> None:
    monkeypatch.setattr(bounded_connection, "REQUEST_S", 0.2)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(ConnectionError):
            if not await reader.read():
                raise ConnectionError

    with_server(client)


def test_connections_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(doors, "HTTP_CONNECTIONS_MAX", 0)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, body = await answer(reader)
        assert (status, json.loads(body)["error"]) == (503, "service_unavailable")
        assert await reader.read() == b""

    with_server(client)


def test_a_stream_that_is_not_read_is_hung_up_on(monkeypatch: Any) -> None:
    monkeypatch.setattr(streams, "UNREAD_S", 0.3)
    ENDED.clear()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"event: message")  # and no more
        while not ENDED:
            await asyncio.sleep(0.01)
        assert ENDED[0] < 20, "what is not read is not made"

    with_server(client)
