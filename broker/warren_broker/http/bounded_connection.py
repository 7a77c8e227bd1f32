"""One HTTP connection with bounds on its headers and on its time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from warren_broker.http.doors import HTTP_WAIT_MS, HttpDoors, HttpNewcomer
from warren_broker.http.replies import closing_answer
from warren_raft.address_shares import AddressShares

CLOSE_HEADER: Final = (b"connection", b"close")
HEADERS_BYTES_MAX: Final = 32 * 1024
HEADERS_PIECE_BYTES: Final = 4 * 1024
"""h11 looks at its limit when headers are not complete yet, so they come to it in such pieces:
in one piece it takes headers of any size."""
HEADERS_S: Final = 15.0
"""From the first byte of a request, or the connection's begin, to the end of its headers."""
REQUEST_S: Final = 150.0
"""From there to the last byte of the answer, which a client may read slowly."""
IDLE_S: Final = 60
"""Between two requests."""


class BoundedConnection(H11Protocol):
    """uvicorn's connection, which has no limit on the time of a request's headers and answer.

    Invariant: a timer runs exactly while a request is incomplete, or has not been answered.
    """

    _limit: asyncio.TimerHandle | None = None
    _limit_s = 0.0

    def __init__(self, newcomer: HttpNewcomer, config: Config, server_state: ServerState) -> None:
        """newcomer: told of the end; the application tells it of a login."""
        super().__init__(config=config, server_state=server_state, app_state={"newcomer": newcomer})
        self._newcomer = newcomer

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        super().connection_made(transport)
        self._newcomer.protocol = self
        self._limit_to(HEADERS_S)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        if self._limit is None:
            self._limit_to(HEADERS_S)
        at = 0
        while len(data) - at > HEADERS_PIECE_BYTES and self.conn.their_state is h11.IDLE:
            super().data_received(data[at : at + HEADERS_PIECE_BYTES])
            at += HEADERS_PIECE_BYTES
        super().data_received(data[at:])
        self._request_begun()

    def handle_events(self) -> None:
        """Take what has arrived; a request with two lengths is the last one of its connection.

        A proxy that goes by the other length would take a part of the body for the next request, of
        another client (RFC 9112, 6.1).
        """
        super().handle_events()
        names = [name for name, _ in self.headers or ()]
        if b"content-length" in names and b"transfer-encoding" in names:
            self.headers.append(CLOSE_HEADER)

    def _request_begun(self) -> None:
        under_way = self.cycle is not None and not self.cycle.response_complete
        if under_way and self._limit_s != REQUEST_S:
            self._limit_to(REQUEST_S)

    def on_response_complete(self) -> None:
        """Wait for the next request, or take the one that has come."""
        self._limit_to(0.0)
        super().on_response_complete()
        self._request_begun()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._limit_to(0.0)
        super().connection_lost(exc)
        self._newcomer.ended()

    def lasts(self, seconds: float) -> None:
        """See `HttpNewcomer`; a client that does not read what is sent is hung up on then."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._limit_to(seconds)

    def turn_away(self, reason: str) -> None:
        """End, as others wait for the place of a connection without a login."""
        if self.cycle is None or self.cycle.response_complete:
            self._end(503, "service_unavailable", reason)
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request, or one with too large headers."""
        self._end(400, "bad_request", msg)

    def _limit_to(self, seconds: float) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._limit_s = seconds
        if seconds:
            self._limit = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._limit = None
        if self.cycle is None or self.cycle.response_complete:
            self._end(408, "request_timeout", f"no complete headers after {HEADERS_S:.0f} s")
        else:
            self.transport.abort()

    def _end(self, status: int, error: str, reason: str) -> None:
        """Answer and close; an answer that has begun is only cut off."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(closing_answer(status, error, reason))
        self.transport.close()


def doors_of(
    application: Any, what: str, shares: AddressShares[Any], wait_ms: int = HTTP_WAIT_MS
) -> HttpDoors:
    """Return doors to an ASGI application, which answers their connections; see `HttpDoors`."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # lines that any client could provoke
    config = Config(
        application,
        lifespan="off",
        interface="asgi3",
        ws="none",
        http="h11",
        log_config=None,
        access_log=False,
        timeout_keep_alive=IDLE_S,
        h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
    )
    config.load()
    state = ServerState()
    state.default_headers = [(b"server", b"Warren")]
    return HttpDoors(lambda one: BoundedConnection(one, config, state), what, shares, wait_ms)
