"""pika's connection for a shovel: what a peer sends is bounded, and what it owes is known.

pika keeps what a broker announces until it is complete: a frame of four gigabytes, a message of a
terabyte. It waits for an answer for ever, as long as heartbeats come. Where TLS refuses this end
after the handshake, which is when a peer tells what it thinks of a certificate, it guesses another
protocol.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Any, Final

import pika
from pika.channel import Channel
from pika.exceptions import ConnectionClosedByBroker

from warren_wire.sessions.pika_connections import IOServices

ACCESS_REFUSED: Final = 403
FRAME091_HEAD_BYTES: Final = 7
MESSAGE091_BYTES_MAX: Final = 128 << 20
"""Of a message that is kept: as much as RabbitMQ 3 takes. The ends may both be such brokers, so the
limit of this node is not what counts: a destination with a lower one refuses the message itself."""
_HEADER_START: Final = b"AMQP"
TLS_ALERT: Final = b"\x15\x03"
SPEAKS_TLS: Final = "what listens there speaks TLS: the URI's scheme must be amqps"


class UnfitPeer(Exception):
    """What a peer sends that its connection cannot continue with, in words."""


class WatchedChannel(Channel):  # type: ignore[misc]
    """A channel that knows since when it waits for which answer, and keeps no oversized message.

    asked_s  moment of time.monotonic() at which the method was sent that is not answered yet
    """

    def __init__(self, connection: Connection091, number: int, opened: Any) -> None:
        self.asked_s = 0.0
        self._asked: str | None = None
        self._skipped = 0
        super().__init__(connection, number, opened)

    @property
    def asked(self) -> str | None:
        """The name of the method that is not answered yet."""
        return self._asked

    @property
    def _blocking(self) -> str | None:
        """What pika calls it."""
        return self._asked

    @_blocking.setter
    def _blocking(self, name: str | None) -> None:
        self._asked = name
        self.asked_s = time.monotonic()

    def _handle_content_frame(self, frame: object) -> None:
        """Pass on an oversized message at once, without its body: its flaw says what it was."""
        if isinstance(frame, pika.frame.Header) and frame.body_size > MESSAGE091_BYTES_MAX:
            frame.properties.flaw = (
                f"a message of {frame.body_size:,} bytes; a shovel passes on "
                f"{MESSAGE091_BYTES_MAX:,} at most over AMQP 0.9.1"
            )
            self._skipped, frame.body_size = frame.body_size, 0
        elif isinstance(frame, pika.frame.Body) and self._skipped:
            self._skipped -= len(frame.fragment)
            return
        super()._handle_content_frame(frame)


class Connection091(pika.SelectConnection):  # type: ignore[misc]
    """A connection with bounded frames and messages.

    cause  what has ended it, where pika tells something else; None: pika tells it
    """

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        services: IOServices,
        opened: Callable[[Any], None],
        ended: Callable[[Any, Any], None],
    ) -> None:
        """Begin to connect; `ended` is told that it could not be opened, or has ended."""
        self.cause: BaseException | None = None
        super().__init__(
            parameters,
            on_open_callback=opened,
            on_open_error_callback=ended,
            on_close_callback=ended,
            custom_ioloop=services,
        )

    def _create_channel(self, channel_number: int, on_open_callback: object) -> WatchedChannel:
        return WatchedChannel(self, channel_number, on_open_callback)

    def _read_frame(self) -> object:
        head = self._frame_buffer[:FRAME091_HEAD_BYTES]
        if head.startswith(TLS_ALERT) and not self.is_open:
            raise UnfitPeer(SPEAKS_TLS)
        if len(head) == FRAME091_HEAD_BYTES and not head.startswith(_HEADER_START):
            size, limit = int.from_bytes(head[3:], "big"), int(self.params.frame_max)
            if size > limit:
                raise UnfitPeer(
                    f"it announces a frame of {size:,} bytes; {limit:,} are the most"
                    if self.is_open
                    else "what listens there does not speak AMQP 0.9.1"
                )
        return super()._read_frame()

    def _on_connection_close_from_broker(self, method_frame: Any) -> None:
        """Keep the broker's words: pika takes a limit of connections for a refused vhost."""
        told = method_frame.method
        if not self.is_open and told.reply_code != ACCESS_REFUSED:
            self.cause = ConnectionClosedByBroker(told.reply_code, told.reply_text)
        super()._on_connection_close_from_broker(method_frame)

    def _proto_connection_lost(self, error: BaseException | None) -> None:
        if isinstance(error, UnfitPeer | ssl.SSLError):
            self.cause = error
        elif error is not None and not isinstance(error, OSError):
            self.cause = UnfitPeer(f"what it sent cannot be read: {type(error).__name__}: {error}")
        super()._proto_connection_lost(error)

    def overdue(self, limit_s: float) -> str | None:
        """Return the name of a method that has not been answered for so long; None: there is none.

        A connection without heartbeats is no other: the peer may be there and its queue hang.
        """
        now = time.monotonic()
        for channel in self._channels.values():
            if channel.asked is not None and now - channel.asked_s > limit_s:
                return str(channel.asked).lower()
        return None

    def abandon(self) -> None:
        """End the connection without the peer's answer."""
        self._terminate_stream(pika.exceptions.StreamLostError("the close was not answered"))
