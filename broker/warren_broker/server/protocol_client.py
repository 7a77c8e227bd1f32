"""What the clients of both protocols have: their socket, log and events, and one flush a turn."""

from __future__ import annotations

from abc import ABC, abstractmethod

from warren_broker.cluster.broker import Broker
from warren_broker.counters import PROTOCOLS
from warren_broker.server.client_counts import ClientCounts
from warren_broker.server.connection_events import ConnectionEvents
from warren_broker.server.connection_faults import guarded
from warren_broker.server.connection_log import ConnectionLog
from warren_raft.runtime.loop import LoopStage, LoopTimer
from warren_raft.runtime.net.stream import Stream
from warren_raft.runtime.net.tls import TlsStream


class ProtocolClient(ABC):
    """One connection. Requests are made at once; output is sent at the turn's end.

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
        self._asked_flush = False
        self._gone = False
        self._timer: LoopTimer | None = None

    def failed(self, fault: Exception) -> None:
        """End this connection after an internal fault; its deliveries are returned."""
        self._stream.abort(fault)

    def _socket_ended(self, error: Exception | None) -> None:
        self._log.lost(error)
        self._gone = True
        if self._timer is not None:
            self._timer.cancel()

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
