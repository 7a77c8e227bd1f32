"""What the clients of both protocols have: their socket, log and events, and one flush a turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from typing import Any, Protocol

from warren_broker.access.message_checks import KEYED_BYTES_PER_READ
from warren_broker.access.requests import TokenAccepted
from warren_broker.access.token_rights import HeldRights
from warren_broker.broker.broker import Broker
from warren_broker.clients.client_counts import ClientCounts
from warren_broker.clients.connection_events import ConnectionEvents
from warren_broker.clients.connection_facts import (
    PROTOCOL_WORDS,
    Spoken,
    connection_info,
    consumer_info,
    tls_facts,
)
from warren_broker.clients.connection_faults import guarded, guarded_call
from warren_broker.clients.connection_log import ConnectionLog
from warren_broker.clients.login import log_in
from warren_broker.cluster.client_sampler import ClientCounted
from warren_broker.cluster.connections import ClientGauges, KnownConsumer
from warren_broker.cluster.logins import Answer, Entered
from warren_broker.counting.counters import PROTOCOLS
from warren_broker.counting.pair_counts import Row
from warren_machines.queue.commands import SessionId
from warren_raft.runtime.loop import LoopStage, LoopTimer
from warren_raft.runtime.net.stream import Stream
from warren_raft.runtime.net.tls import TlsStream
from warren_wire.admin.connections import ConnectionInfo

CREDENTIAL_EXPIRED = "credential expired"
"""RabbitMQ's reason."""
EXPIRY_WAIT_MS_MAX = 60_000


class KeyedBytes(Protocol):
    """What counts octets of properties with further keys, since it was last read."""

    keyed_bytes: int


class ProtocolClient(ABC):
    """One connection. Requests are made at once; output is sent at the turn's end.

    _share  of each turn; while it is busy, publishes are being routed that take long, the requests
            after them wait in `_later`, and the socket is not read
    Invariant: at most one tick timer and one flush are scheduled; none when the socket has ended.
    """

    def __init__(self, protocol: str, broker: Broker, stream: Stream, peer: str) -> None:
        self._broker = broker
        self._stream = stream
        self._peer = peer
        self._log = ConnectionLog(protocol, peer)
        self._events = ConnectionEvents(
            broker.events, protocol, peer, isinstance(stream, TlsStream)
        )
        self._counts = ClientCounts(broker, PROTOCOLS[protocol])
        self._number = broker.ids.connection()
        self._protocol, self._mechanism = protocol, ""
        self._tls: dict[str, str] | None = None
        self._connected_ms = broker.cluster.loop.clock.epoch_ms()
        broker.connections.add(self._number, self)
        self._share = broker.publishing.shares.open(self._number, self._routed_all, self.failed)
        self._later: deque[Any] = deque()
        self._running = False
        self._asked_flush = False
        self._gone = False
        self._timer: LoopTimer | None = None
        self._expiry: LoopTimer | None = None

    def failed(self, fault: Exception) -> None:
        """End this connection after an internal fault; its deliveries are returned."""
        self._stream.abort(fault)

    def _socket_ended(self, error: Exception | None) -> None:
        self._log.lost(error)
        self._counts.flowed(self._stream.bytes_in, self._stream.bytes_out)
        self._gone = True
        self._share.close()
        self._broker.connections.remove(self._number)
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()

    def _read_less(self, brought: KeyedBytes) -> None:
        """Read in small pieces from now on if one read brought much that takes long to check."""
        if brought.keyed_bytes > KEYED_BYTES_PER_READ:
            self._stream.read_little()
        brought.keyed_bytes = 0

    # ------------------------------------------------------------ requests

    def _run_requests(self) -> None:
        """Carry out the requests in order; those after a publish that waits, in a later turn."""
        if self._running:
            return  # the answer to one, or its end, brings further ones: they come after the others
        self._running = True
        try:
            later, share = self._later, self._share
            while not share.busy and (later or self._take_requests()):
                self._run(later.popleft())
        finally:
            self._running = False

    @guarded
    def _routed_all(self) -> None:
        """Continue: the publishes that waited have been routed."""
        self._carry_out()

    @abstractmethod
    def _take_requests(self) -> bool:
        """Move what the client asks for to `_later`, in order; return whether it asks."""

    @abstractmethod
    def _run(self, request: Any) -> None:
        """Carry out one request."""

    @abstractmethod
    def _carry_out(self) -> None:
        """Carry out the requests, and send what comes of them."""

    # ------------------------------------------------------------ its login

    def _log_in_turn(self, login: tuple[str, str, str], done: Answer) -> None:
        """Log in when it is this address's turn; login: user, password, mechanism."""
        self._mechanism = login[2]
        log_in(
            self._broker,
            self._log,
            self._peer,
            login,
            done,
            self._events,
            self._protocol,
            lambda: self._gone,
            partial(guarded_call, self),
        )

    def _expiring(self, answer: Answer) -> Answer:
        """Return what answers a request, and notes the end of the token that it brought."""

        def done(result: Entered) -> None:
            answer(result)
            if isinstance(result, TokenAccepted):
                self._expires(result.rights)

        return guarded_call(self, done)

    def _expires(self, rights: HeldRights) -> None:
        """End the connection when its token ends, unless the next one comes before."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._gone or rights.expires_ms is None:
            return
        loop = self._broker.cluster.loop
        left_ms = rights.expires_ms - loop.clock.epoch_ms()
        if left_ms > EXPIRY_WAIT_MS_MAX:
            # The clock of the day may be set, and a token's life be years.
            self._expiry = loop.call_later(EXPIRY_WAIT_MS_MAX, lambda: self._expires(rights))
        elif left_ms > 0:
            self._expiry = loop.call_later(left_ms, lambda: self._expires(rights))
        else:
            self.shut_down(CREDENTIAL_EXPIRED)

    @property
    @abstractmethod
    def logged_in(self) -> tuple[str, str] | None:
        """See `listener.Client`."""

    @abstractmethod
    def shut_down(self, reason: str) -> None:
        """See `listener.Client`."""

    @abstractmethod
    def _spoken(self, channels: bool) -> Spoken:
        """Return what the two sides have told each other.

        channels  with the open channels and the consumers
        """

    def described(self, channels: bool) -> ConnectionInfo | None:
        """See `cluster.connections.DescribedClient`."""
        login = self.logged_in
        if login is None or not login[1] or self._gone or self._stream.closed:
            return None
        return connection_info(
            self._broker.settings.node,
            PROTOCOL_WORDS[self._protocol],
            (self._peer, self._stream),
            (*login, self._mechanism),
            self._connected_ms,
            self._spoken(channels),
            self._said_of_tls(),
        )

    def _said_of_tls(self) -> dict[str, str]:
        """Return what is shown of its TLS, which stays the same."""
        if self._tls is None:
            self._tls = tls_facts(self._stream)
        return self._tls

    def counted(self) -> ClientCounted | None:
        """See `cluster.client_sampler.CountedClient`."""
        login = self.logged_in
        if login is None or not login[1] or self._gone:
            return None
        octets = [self._stream.bytes_in, self._stream.bytes_out]
        self._counts.flowed(*octets)
        return ClientCounted(octets, self._channels_counted())

    def gauges(self) -> ClientGauges | None:
        """See `cluster.connections.DescribedClient`."""
        login = self.logged_in
        if login is None or not login[1] or self._gone:
            return None
        self._counts.flowed(self._stream.bytes_in, self._stream.bytes_out)
        return ClientGauges(PROTOCOLS[self._protocol], *self._gauges())

    @abstractmethod
    def _gauges(self) -> tuple[int, int, bool]:
        """Return publishers, consumers, and whether it is blocked; see `ClientGauges`."""

    def _channels_counted(self) -> list[tuple[SessionId, Row]]:
        """Return the sessions of the channels, and what each has counted."""
        return []

    def consumers(self) -> list[KnownConsumer]:
        """See `cluster.connections.DescribedClient`."""
        shown, consuming = self.described(False), self._broker.consuming
        if shown is None:
            return []
        found = []
        for one in self._spoken(True).consumers:
            queue = consuming.queue_of(one.number)
            if queue is not None:
                info = consumer_info(shown, one, consuming.timeout_ms(one.number))
                found.append((queue.group, one.number, info))
        return found

    def _flush_later(self) -> None:
        if not self._asked_flush and not self._gone:
            self._asked_flush = True
            self._broker.cluster.loop.at_turn_end(LoopStage.DELIVER, self._flush)

    @guarded
    def _flush(self) -> None:
        self._asked_flush = False
        if not self._gone:
            self._send_output()

    @abstractmethod
    def _send_output(self) -> None:
        """Write what the connection has for the socket; end the socket when it is closed."""
