"""One end of an AMQP 1.0 connection: Proton's engine behind bytes in, events out, bytes out."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterator
from typing import Final

from warren_wire import relay_names
from warren_wire.amqp10 import deliveries
from warren_wire.amqp10.deliveries import Address, Handle, address_of
from warren_wire.amqp10.endings import Endings
from warren_wire.amqp10.proton import (
    Collector,
    Connection,
    Data,
    Described,
    Event,
    Link,
    Transport,
    TransportException,
    ffi,
    lib,
    pn_transport_push,
    symbol,
    ulong,
)
from warren_wire.kernel import InputFrames, Unsettled

MAX_FRAME_SIZE = 1 << 20
"""Bytes. A block of 1 MiB then needs two frames, twice as fast as with frames of 64 KiB."""
CLIENT_FRAME_SIZE = 1 << 17
"""Bytes: RabbitMQ's limit, told to clients that take smaller frames than MAX_FRAME_SIZE."""
CLIENT_WINDOW_FRAMES = 400
"""RabbitMQ's incoming window, for the same clients."""
OFFERED_CAPABILITIES = ("LINK_PAIR_V1_0", "ANONYMOUS-RELAY", relay_names.CAPABILITY)
"""Capabilities offered to clients: links in pairs (`/management`), the null target, relays."""
SESSION_WINDOW_BYTES = 64 << 20
"""Bytes that the peer may send on one session ahead of reading."""
CHANNEL_MAX = 63
ENDED_SESSIONS_MAX = 1_024
"""Ended sessions that wait for what was asked for on their links, before no more may begin."""
OUTPUT_BYTES = 4 << 20
"""What one call of `output` hands out at the most, unless told otherwise."""
ANSWERS_OWED_MAX: Final = 256
"""Attaches, detaches, begins and ends of the peer, before the answers to them are made."""
UNTAKEN_BYTES_MAX: Final = 16 << 20
"""Output that was made and not taken, above which no input is taken.

Twice what may be written ahead on the sessions, so that messages alone do not stop it.
"""
FRAME_HEAD_BYTES: Final = 8
_EVENTS_AT_ONCE: Final = 4_000
_EVENTS_EACH: Final = 1_000
"""Of a frame that may name any delivery, beside those of unsettled ones: deliveries of the peer."""
_ALL_OUTPUT_BYTES: Final = 1 << 62
_CLOSE: Final = 0x18
_ERROR: Final = 0x1D
_ANSWERED: Final = frozenset(
    (
        lib.PN_SESSION_REMOTE_OPEN,
        lib.PN_SESSION_REMOTE_CLOSE,
        lib.PN_LINK_REMOTE_OPEN,
        lib.PN_LINK_REMOTE_CLOSE,
        lib.PN_LINK_REMOTE_DETACH,
    )
)
"""Events of frames that the other end answers."""
OnDelivery = Callable[[Handle], bool]
"""Handles what is new of a delivery, or returns False: it is to be an event."""


class Trouble:
    """What Proton has last complained of, and why it makes no frames any more.

    It is apart from `Engine`, because Proton's binding keeps it as long as the transport, and the
    engine keeps the transport.

    ended  the complaint before it gave up; "": it works
    """

    def __init__(self) -> None:
        self.ended = ""
        self._last = ""

    def traced(self, transport: Transport, line: str) -> None:
        """Take a line of Proton's log: a level and a text."""
        text = line.partition(": ")[2]
        if text.startswith("process error") and not self.ended:
            self.ended = self._last or text
        self._last = text


class Engine:
    """Proton's transport and connection, without a socket.

    transport, connection  Proton's objects, to be opened and configured by the owner
    events_taken           how many events were read
    on_delivery            by a link's handle, what is called instead of an event for its deliveries
    on_flow                by a link's handle, what is called instead of an event for its flows
    reading                links of which that reads all that has come, when it handles a delivery
    sending                by the address of a link, its deliveries of which outcomes without fields
                           are taken at once, and what is called then
    endings                what is still to be done for ended links and sessions
    """

    def __init__(self, *, server: bool, container: str, idle_timeout_s: float = 0.0) -> None:
        self.transport = Transport(Transport.SERVER if server else Transport.CLIENT)
        self.transport.max_frame_size = MAX_FRAME_SIZE
        self.transport.channel_max = CHANNEL_MAX
        if idle_timeout_s:
            self.transport.idle_timeout = idle_timeout_s
        self.connection = Connection()
        self.connection.container = container
        self.on_delivery: dict[Handle, OnDelivery] = {}
        self.on_flow: dict[Handle, Callable[[], None]] = {}
        self.reading: set[Handle] = set()
        self.sending: dict[Address, tuple[Unsettled, Callable[[], None]]] = {}
        self.endings = Endings(self._pending)
        self._trouble = Trouble()
        self.transport.tracer = self._trouble.traced
        self._collector = Collector()
        self.connection.collect(self._collector)
        self._ready: list[bytearray] = []  # output that was made before it was asked for
        self._more = False  # the transport has frames that were not asked for
        self._messages_made = 0  # the bytes of `_ready` that `make_frames` has made
        self._answers_owed = 0
        self.events_taken = 0
        self._input_frames = InputFrames()
        self._input_ended = False
        self._output_ended = False

    def bind(self) -> None:
        """Bind the transport; user, password and hostname of the connection must be set before."""
        self.transport.bind(self.connection)

    def open(self, properties: dict[symbol, str]) -> None:
        """Answer a client's Open, which has been received.

        A client that takes frames of MAX_FRAME_SIZE gets them (it sends blocks); every other one is
        told RabbitMQ's limit.
        """
        self.connection.properties = properties
        self.connection.offered_capabilities = [symbol(name) for name in OFFERED_CAPABILITIES]
        if self._small_frames:
            self.transport.max_frame_size = CLIENT_FRAME_SIZE
        self.connection.open()

    @property
    def session_window_bytes(self) -> int:
        """The bytes that the peer may send on one session ahead of reading."""
        if self._small_frames:
            return CLIENT_WINDOW_FRAMES * CLIENT_FRAME_SIZE
        return SESSION_WINDOW_BYTES

    @property
    def written_bytes(self) -> int:
        """The size of the frames in which large messages are written.

        Those that the peer takes: it may count its window in frames. To one that takes any, as
        large as RabbitMQ's are, because so much of each message stays in memory (`Outbox`).
        """
        taken = int(self.transport.remote_max_frame_size)
        return taken if 0 < taken <= MAX_FRAME_SIZE else CLIENT_FRAME_SIZE

    @property
    def _small_frames(self) -> bool:
        taken = int(self.transport.remote_max_frame_size)
        return 0 < taken < MAX_FRAME_SIZE

    @property
    def input_ended(self) -> bool:
        """Whether the peer's close, or invalid bytes, ended the input."""
        return self._input_ended

    @property
    def failure(self) -> str:
        """Why the engine has closed the connection by itself; "": it has not.

        Proton cannot write an answer for which it has no handle (the peer's handle-max is below the
        number of its links), makes no other frame from then on, and tells only its log.
        """
        return self._trouble.ended

    @property
    def output_ended(self) -> bool:
        """Whether all output was taken, including the close."""
        return self._output_ended and not self._ready

    def receive(self, data: bytes | bytearray | memoryview, unsettled: int = 0) -> Iterator[None]:
        """Process received bytes; yields whenever events must be read, to bound the buffers.

        unsettled  deliveries of this end, all of which one frame may name
        """
        view, each = memoryview(data), _EVENTS_EACH + unsettled
        while len(view):
            capacity = self._capacity()
            if capacity < 0:
                self._input_ended = True
                break
            assert capacity > 0, "Proton takes nothing though its events were read"
            # bounded by the engine's own buffer, which holds one frame at most
            size = self._input_frames.piece(view[:capacity], _EVENTS_AT_ONCE, each)
            taken = pn_transport_push(self.transport._impl, view[:size])
            if taken < 0:
                self._input_ended = True
                break
            assert taken == size, (taken, size)
            view = view[taken:]
            yield
            self._make_answers()
        yield

    def _make_answers(self) -> None:
        """Make the answers that are owed, when they are many.

        1. A peer attaches and detaches again and again, and reads nothing.  2. The socket is full,
        so no output is asked for. The engine keeps each link, a few kilobytes, until its end is
        written.  3. Once they are written, what is left of them are frames, which are counted
        (`bytes_made`).
        """
        if self._answers_owed >= ANSWERS_OWED_MAX:
            self._answers_owed = 0
            before, self._ready = self._ready, []
            # 1. An end takes all output after each read, as the client library does.  2. There is
            # none.  3. An empty piece was left: the client sent it again and again, and waited for
            # ever to have sent it.
            # Replayed by tests/python/test_client.py
            made = bytearray().join(self.output(_ALL_OUTPUT_BYTES))
            self._ready = [*before, made] if made else before

    def end_of_input(self) -> None:
        """Handle the end of the peer's input."""
        self._input_ended = True
        try:
            self.transport.close_tail()
        except TransportException:
            return  # Proton reports it as a TRANSPORT_ERROR event

    def output(self, limit: int = OUTPUT_BYTES) -> list[bytearray]:
        """Return bytes to send, about `limit` at most; call again when they have been sent.

        No piece is empty.
        """
        pieces, self._ready = self._ready, []
        if pieces:
            self._messages_made = 0
        limit -= sum(map(len, pieces))
        while limit > 0 and not self._output_ended:
            pending = self._pending()
            if pending == 0 and self.failure:
                pieces.append(_close_frame(self.failure))
                self._output_ended = True
                break
            if pending == 0 and self.endings.settle():
                continue
            if pending <= 0:
                self._output_ended = pending < 0
                break
            piece = self._taken(pending)
            if piece is None:
                self._output_ended = True
                break
            pieces.append(piece)
            limit -= len(piece)
        self._more = limit <= 0
        return pieces

    def _taken(self, pending: int) -> bytearray | None:
        piece = bytearray(pending)  # the binding's own `peek` would copy it once more
        size = lib.pn_transport_peek(self.transport._impl, ffi.from_buffer(piece), pending)
        if size < 0:
            return None
        del piece[size:]
        self.transport.pop(len(piece))
        return piece

    def make_frames(self) -> None:
        """Make frames of all that was written and may leave; `output` returns them."""
        pending = self._pending()
        if pending > 0 and (made := self._taken(pending)):
            self._ready.append(made)
            self._messages_made += len(made)

    def take_outcomes(self, link: Link, unsettled: Unsettled, told: Callable[[], None]) -> None:
        """See `Frames`."""
        self.sending[address_of(link._impl)] = (unsettled, told)

    def forget(self, link: Handle) -> None:
        """Handle no delivery of a link any more: it has ended."""
        self.on_delivery.pop(link, None)
        self.on_flow.pop(link, None)
        self.reading.discard(link)
        self.sending.pop(address_of(link), None)

    def bytes_made(self) -> int:
        """Return the bytes that were made before they were asked for."""
        return sum(map(len, self._ready)) if self._ready else 0

    def bytes_ahead(self) -> int:
        """Return the bytes that were made and not taken; more than any bound, if that is unknown.

        1. Messages are written, as many as may be.  2. Some output is asked for: the transport
        makes frames of all that was written, and keeps what is beyond the limit. A session counts
        none of that any more.  3. If as many were written again each time, a client that reads
        slowly, and has credit enough, would have all of a queue in the transport's buffer.
        Replayed by tests/broker/clients10/test_send_ahead.py
        """
        return _ALL_OUTPUT_BYTES if self._more else self.bytes_made()

    @property
    def has_room(self) -> bool:
        """Whether there is room for more output that is not asked for.

        A message, of which nothing more may be written then (`bytes_ahead`), takes no room: it may
        be as large as that.
        """
        return self.bytes_made() - self._messages_made < UNTAKEN_BYTES_MAX

    def apart(self, ask: Callable[[], None], change: Callable[[bytearray], bytearray]) -> None:
        """Have what `ask` leads to sent as `change` returns it, after all that is due before."""
        of_messages = self._messages_made
        before = self.output(_ALL_OUTPUT_BYTES)
        self._messages_made = of_messages
        ask()
        made = bytearray().join(self.output(_ALL_OUTPUT_BYTES))
        self._ready = [*before, change(made)] if made else before

    def may_begin_session(self) -> bool:
        """Return whether the client may begin one more session.

        It may begin and end many at once: ends are written ahead, if that helps. The engine would
        fail if it had no channel for one.
        """
        endings = self.endings
        if endings.begun > CHANNEL_MAX and sum(map(len, self._ready)) < OUTPUT_BYTES:
            self._ready = self.output()
        return endings.begun <= CHANNEL_MAX and endings.waiting < ENDED_SESSIONS_MAX

    def events(self, kinds: Container[int] | None = None) -> Iterator[Event]:
        """Iterate over new events; an event is valid until the next one is taken.

        kinds  of the events that are wanted, by Proton's numbers; None: all
        """
        collector = self._collector._impl
        address, all_read = address_of(collector), 0
        while True:
            self._skim(address, all_read)
            raw = lib.pn_collector_peek(collector)
            if raw == ffi.NULL:
                return
            all_read = 0
            self.events_taken += 1
            try:
                link = self._handled(raw)
                if link is not None:
                    all_read = address_of(link) if link in self.reading else 0
                    continue
                kind = lib.pn_event_type(raw)
                self._answers_owed += kind in _ANSWERED
                if kinds is None or kind in kinds:
                    event = self._collector.peek()
                    assert event is not None
                    yield event
            finally:
                lib.pn_collector_pop(collector)

    def _skim(self, collector: Address, all_read: Address) -> None:
        """Handle events that are usual; see `EngineCalls.skim`."""
        told: list[Callable[[], None]] = []
        self.events_taken += deliveries.CALLS.skim(collector, self.sending, all_read, told)
        for tell in told:
            tell()

    def _handled(self, raw: object) -> Handle | None:
        """Handle an event that needs no object of Proton's binding.

        Return the link of a delivery, no link for another event; None: it is not handled.
        """
        kind = lib.pn_event_type(raw)
        if kind == lib.PN_LINK_FLOW:
            link = lib.pn_event_link(raw)
            on_flow = self.on_flow.get(link)
            if on_flow is None:
                return None
            on_flow()
            return ffi.NULL  # nothing was read
        if kind != lib.PN_DELIVERY:
            return None
        delivery = lib.pn_event_delivery(raw)
        link = lib.pn_delivery_link(delivery)
        handler = self.on_delivery.get(link)
        return link if handler is not None and handler(delivery) else None

    def tick(self, now_ms: int) -> int | None:
        """Send heartbeats and check the idle timeout; return when to call again at the latest.

        Call when all input so far was received.
        """
        deadline = self.transport.tick(now_ms / 1000)
        return int(deadline * 1000) if deadline else None

    def free(self) -> None:
        """Free Proton's objects; no method may be called afterwards."""
        self._input_ended = self._output_ended = True
        self._ready.clear()
        self.on_delivery.clear()
        self.on_flow.clear()
        self.reading.clear()
        self.sending.clear()
        self.endings.clear()
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


def _close_frame(reason: str) -> bytearray:
    """Return a Close of this end, for a transport that makes no frames."""
    text = (
        f"the engine cannot go on: {reason}: have no more links in a session than the handle-max "
        "of its begin allows"
    )
    error = Described(ulong(_ERROR), [symbol("amqp:resource-limit-exceeded"), text])
    return encode_frame(0, _CLOSE, [error])


def encode_frame(channel: int, performative: int, fields: list[object]) -> bytearray:
    """Return the frame of a performative with these fields."""
    data = Data()
    data.put_object(Described(ulong(performative), fields))
    body = data.encode()
    size = FRAME_HEAD_BYTES + len(body)
    return bytearray(struct.pack(">IBBH", size, 2, 0, channel) + body)
