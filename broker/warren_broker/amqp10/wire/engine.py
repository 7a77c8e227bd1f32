"""One end of an AMQP 1.0 connection: Proton's engine behind bytes in, events out, bytes out."""

from __future__ import annotations

from collections.abc import Iterator

from cproton import pn_transport_push
from proton import Collector, Connection, Event, Transport, TransportException

MAX_FRAME_SIZE = 1 << 20
"""Bytes. A block of 1 MiB then needs two frames, and moves at twice the speed of 64 KiB frames."""
SESSION_WINDOW_BYTES = 64 << 20
"""How much the peer may send on one session before we read it."""
CHANNEL_MAX = 63
OUTPUT_BYTES = 4 << 20
"""What one call of `output` hands out at the most, unless told otherwise."""


class Engine:
    """Proton's transport and connection; knows no socket.

    transport, connection  Proton's objects, to be opened and configured by the owner
    """

    def __init__(self, *, server: bool, container: str, idle_timeout_s: float = 0.0) -> None:
        self.transport = Transport(Transport.SERVER if server else Transport.CLIENT)
        self.transport.max_frame_size = MAX_FRAME_SIZE
        self.transport.channel_max = CHANNEL_MAX
        if idle_timeout_s:
            self.transport.idle_timeout = idle_timeout_s
        self.connection = Connection()
        self.connection.container = container
        self._collector = Collector()
        self.connection.collect(self._collector)
        self._input_ended = False
        self._output_ended = False

    def bind(self) -> None:
        """Begin; what is set on the connection (user, password, hostname) is taken from here on."""
        self.transport.bind(self.connection)

    @property
    def input_ended(self) -> bool:
        """The peer's close was read, or its bytes made no sense: nothing more is taken in."""
        return self._input_ended

    @property
    def output_ended(self) -> bool:
        """Everything was put out, the close included."""
        return self._output_ended

    def receive(self, data: bytes | bytearray | memoryview) -> Iterator[None]:
        """Take bytes in; yields whenever events should be read, so that buffers stay bounded."""
        view = memoryview(data)
        while len(view):
            capacity = self._capacity()
            if capacity < 0:
                self._input_ended = True
                break
            assert capacity > 0, "Proton takes nothing though its events were read"
            # bounded by the engine's own buffer, which grows to one frame at most
            taken = pn_transport_push(self.transport._impl, view[:capacity])
            if taken < 0:
                self._input_ended = True
                break
            view = view[taken:]
            yield
        yield

    def end_of_input(self) -> None:
        """The peer sends nothing more."""
        self._input_ended = True
        try:
            self.transport.close_tail()
        except TransportException:
            return  # it says so itself, as a TRANSPORT_ERROR event

    def output(self, limit: int = OUTPUT_BYTES) -> list[bytearray]:
        """What is to be sent now, at most about `limit` bytes; call again when that has left."""
        pieces: list[bytearray] = []
        while limit > 0 and not self._output_ended:
            pending = self._pending()
            if pending <= 0:
                self._output_ended = pending < 0
                break
            piece = self.transport.peek(pending)
            if piece is None:
                self._output_ended = True
                break
            self.transport.pop(len(piece))
            pieces.append(piece)
            limit -= len(piece)
        return pieces

    def events(self) -> Iterator[Event]:
        """The events since the last call; an event is valid until the next one is taken."""
        while (event := self._collector.peek()) is not None:
            try:
                yield event
            finally:
                self._collector.pop()

    def tick(self, now_ms: int) -> int | None:
        """Heartbeats and the peer's silence; returns when to call again at the latest, or None.

        Call when all input so far was received.
        """
        deadline = self.transport.tick(now_ms / 1000)
        return int(deadline * 1000) if deadline else None

    def free(self) -> None:
        """Drop Proton's objects; nothing may be called afterwards."""
        self._input_ended = self._output_ended = True
        self.transport.unbind()
        self.connection.free()

    def _capacity(self) -> int:
        try:
            return int(self.transport.capacity())
        except TransportException:
            return -1

    def _pending(self) -> int:
        try:
            return int(self.transport.pending())
        except TransportException:
            return -1
