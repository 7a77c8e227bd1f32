"""Lists as server-sent events: an answer comes once more when it is another one.

A client that shows a list asks once, with `accept: text/event-stream`, and no more. What a stream
takes of a node is what asking again would take: each look is a request with the stream's login, so
that a user that may no longer see the list, or is deleted, sees nothing more.

source  HTML Living Standard, 9.2 (server-sent events)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from warren_broker.http.calls import whole_number
from warren_broker.http.doors import HttpNewcomer
from warren_broker.http.replies import HttpRefusal, unavailable
from warren_broker.http.routing_table import HttpRoute

EVENTS: Final = "text/event-stream"
EVENT_STREAMS_MAX: Final = 64
STREAMS_PER_USER_MAX: Final = 8
EVENT_LOOKS_MAX: Final = 4
"""Streams that look at once; others wait for their turn."""
EVERY_S_MAX: Final = 60
WORK_SHARE: Final = 10
"""A stream looks for at most one part in ten of its time: what takes long is looked at less often.
"""
UNREAD_S: Final = 20.0
"""A client that has not read an event for so long is dropped."""
ALSO: Final = frozenset(
    {
        *(("overview",), ("nodes",), ("consumers",), ("consumers", ":vhost"), ("bindings",)),
        *(("queues", ":vhost", ":queue"), ("shovels",), ("federation-links",)),
    }
)
"""What may be a stream besides lists with pages."""
NO_CHANGE: Final = b": unchanged\n\n"

Look = Callable[[], Awaitable[bytes]]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EventStream:
    """What is to be sent.

    first    the answer now
    look     asks again; raises HttpRefusal
    every_s  least time between two looks
    """

    user: str
    first: bytes
    look: Look
    every_s: int


def wants_events(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a client asks for events."""
    return EVENTS.encode() in headers.get(b"accept", b"").lower()


def every_s(route: HttpRoute, query: Mapping[str, str], interval_s: float) -> int:
    """Return the seconds between two looks, `every` of the query; raises HttpRefusal.

    interval_s  of the nodes' samples: rates are no newer
    """
    if route.method != "GET" or not (route.pages or route.pattern in ALSO):
        raise HttpRefusal(406, "not_acceptable", f"no events of {'/'.join(route.pattern)}")
    default = str(max(1, min(EVERY_S_MAX, round(interval_s))))
    return whole_number("every", query.get("every", default), 1, EVERY_S_MAX)


class EventStreams:
    """The streams of a process.

    Invariant: `_open` counts the streams that run, by user, and none that has ended
    """

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._looks = asyncio.Semaphore(EVENT_LOOKS_MAX)

    def check(self, user: str) -> None:
        """Raise HttpRefusal where there are too many."""
        if self._open.total() >= EVENT_STREAMS_MAX:
            raise unavailable(f"{EVENT_STREAMS_MAX} streams of events are open; ask without events")
        if self._open[user] >= STREAMS_PER_USER_MAX:
            said = f"user {user!r} has {STREAMS_PER_USER_MAX} streams of events open; close one"
            raise unavailable(said)

    async def run(
        self, stream: EventStream, newcomer: HttpNewcomer | None, receive: Receive, send: Send
    ) -> None:
        """Send events until the client has left, may not see more, or does not read."""
        gone = asyncio.ensure_future(_left(receive))
        self._open[stream.user] += 1
        try:
            await self._send_all(stream, newcomer, gone, send)
        finally:
            gone.cancel()
            self._open[stream.user] -= 1
            self._open += Counter()  # drops users without any

    async def _send_all(
        self,
        stream: EventStream,
        newcomer: HttpNewcomer | None,
        gone: asyncio.Future[None],
        send: Send,
    ) -> None:
        loop = asyncio.get_running_loop()
        headers = {"content-type": EVENTS, "cache-control": "no-cache", "x-accel-buffering": "no"}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})
        last, event, took = stream.first, _event(stream.first), 0.0
        while True:
            pause = max(float(stream.every_s), WORK_SHARE * took)
            if newcomer is not None:
                newcomer.lasts(pause + UNREAD_S)
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await asyncio.wait([gone], timeout=pause)
            if gone.done():
                return
            async with self._looks:
                began = loop.time()
                try:
                    now = await stream.look()
                except HttpRefusal as refusal:
                    if refusal.reply.status != 503:  # that one is busy
                        body = _event(msgspec.json.encode(refusal.reply.body), b"refused")
                        await send({"type": "http.response.body", "body": body})
                        return
                    now = last
                took = loop.time() - began
            event = NO_CHANGE if now == last else _event(now)
            last = now


def _event(data: bytes, name: bytes = b"message") -> bytes:
    """Return an event; data: JSON, in one line."""
    return b"event: %b\ndata: %b\n\n" % (name, data)


async def _left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
