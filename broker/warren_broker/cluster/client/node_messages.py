"""Messages of the node itself: events, log lines, traces. Best effort: nothing waits for them.

What exceeds a bound is dropped and counted: messages of one turn, and messages that a queue has not
confirmed, which a queue without a leader does not. Drops are logged when they begin, then once a
minute.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from warren_broker.cluster.client.event_facts import Facts, facts_of, fitting
from warren_broker.cluster.client.forwarding import Forwarding
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.definitions import Definitions
from warren_broker.config import NodeConfig
from warren_machines.metadata.changes import DefinitionEvent
from warren_machines.metadata.exchanges import own_exchange
from warren_raft.machine import Meta
from warren_raft.runtime.loop import Loop, LoopStage
from warren_wire import errors
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field
from warren_wire.kernel import PERSISTENT, MessageTable
from warren_wire.kernel.items import Route

WAITING_MAX: Final = 10_000
"""Messages of one turn for an exchange of the node's own."""
WAITING_BYTES_MAX: Final = 8 << 20
TABLES_MAX: Final = 4
"""Turns of which the messages may wait until they are routed."""
DECLARE_AGAIN_MS: Final = 10_000
REPORT_MS: Final = 60_000
log = logging.getLogger(__name__)
lines_log = logging.getLogger(f"{__name__}.lines")
"""What is said about lines of the log that are dropped: it is not published itself."""
EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
DELIVERY_MODE: Final = 2
LOG_EXCHANGE: Final = "amq.rabbitmq.log"
CONTENT_TYPE: Final = "text/plain"
WAITING_LINES_MAX: Final = 1_000
"""Lines that wait for the loop's thread."""
LINE_BYTES_MAX: Final = 16 << 10
"""Bytes of a line; the rest is cut off."""


class UnconfirmedBounds(NamedTuple):
    """Bytes under way to one queue, and to all of them."""

    queue_bytes_max: int
    all_bytes_max: int


SMALL_BOUNDS: Final = UnconfirmedBounds(2 << 20, 16 << 20)
"""Little of what blocks publishers (`limits.node_in_flight_bytes_max`)."""


@dataclass(eq=False, repr=False)
class BestEffort:
    """Publishes messages for which nothing waits, and counts those that are dropped.

    what     the messages in log lines, plural
    dropped  number of messages dropped since the node started; those that no queue asked for are
             not among them
    """

    loop: Loop
    publishing: Publisher
    what: str
    log: logging.Logger
    bounds: UnconfirmedBounds = SMALL_BOUNDS
    dropped: int = 0
    _unconfirmed: dict[tuple[str, str], int] = field(default_factory=dict)
    _all_bytes: int = 0
    _reported: int | None = None

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes under way to queues that have not confirmed them."""
        return self._all_bytes

    def publish(self, vhost: str, table: MessageTable) -> None:
        """Publish a table of messages at once."""
        share = self.publishing.shares.of(self)
        if share.waiting >= TABLES_MAX:
            self.drop(table.count, f"{share.waiting} turns' {self.what} are being routed already")
            return
        run = _Bounded(self, vhost, table)
        self.publishing.publish(vhost, table, 0, table.count, run, share=share)

    def begin(self, vhost: str, queue: str, size_bytes: int) -> bool:
        """Count bytes as under way to a queue; return False, and drop them, beyond a bound."""
        before = self._unconfirmed.get((vhost, queue), 0)
        full = before >= self.bounds.queue_bytes_max
        if full or self._all_bytes >= self.bounds.all_bytes_max:
            self.drop(1, f"queue {queue!r} has not confirmed {before} bytes of {self.what}")
            return False
        self._unconfirmed[vhost, queue] = before + size_bytes
        self._all_bytes += size_bytes
        return True

    def end(self, vhost: str, queue: str, size_bytes: int) -> None:
        """Note a queue's answer."""
        self._all_bytes -= size_bytes
        self._unconfirmed[vhost, queue] -= size_bytes
        if not self._unconfirmed[vhost, queue]:
            del self._unconfirmed[vhost, queue]

    def drop(self, count: int, why: str) -> None:
        """Count messages that are dropped; log it, unless that was done within REPORT_MS."""
        self.dropped += count
        if self._reported is None:
            self.log.warning("%s are dropped: %s", self.what, why)
            self._reported = self.dropped
            self.loop.call_later(REPORT_MS, self._report)

    def _report(self) -> None:
        if self.dropped == self._reported:
            self._reported = None
            return
        self.log.warning("%s are dropped: %d since this node started", self.what, self.dropped)
        self._reported = self.dropped
        self.loop.call_later(REPORT_MS, self._report)


class _Bounded(Forwarding):
    """The policy of one table of messages for which nothing waits."""

    def __init__(self, owner: BestEffort, vhost: str, table: MessageTable) -> None:
        self._owner, self._vhost, self._table = owner, vhost, table

    def wants(self, queue: str, i: int) -> bool:
        return self._owner.begin(self._vhost, queue, self._table.size_bytes(i, i + 1))

    def refused(self, refusal: errors.Refusal) -> None:
        self._owner.drop(self._table.count, refusal.detail)

    def answered(self, queue: str, positions: list[int], denied: set[int]) -> None:
        size_bytes = sum(self._table.size_bytes(i, i + 1) for i in positions)
        self._owner.end(self._vhost, queue, size_bytes)
        if denied:
            self._owner.drop(len(denied), f"queue {queue!r} does not take them")


class OwnExchange:
    """An internal topic exchange that the node declares, and publishes to at the end of a turn.

    vhost, name  where it is
    publisher    sends the messages
    publishing   the thread that publishes just now; None: none does
    """

    def __init__(
        self, loop: Loop, definitions: Definitions, publisher: BestEffort, vhost: str, name: str
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.publisher = publisher
        self.publishing: int | None = None
        self._loop = loop
        self._definitions = definitions
        self._waiting = MessageTable()
        self._asked = False
        self._declaring = False
        definitions.call_at_ready(self._declare)

    @property
    def waiting(self) -> int:
        """Number of messages that are published at the end of this turn."""
        return self._waiting.count

    def put(self, key: str, written: bytes, body: bytes = b"", flags: int = 0) -> None:
        """Publish a message at this turn's end; written: its properties."""
        waiting = self._waiting
        size_bytes = waiting.size_bytes(0, waiting.count)
        if waiting.count >= WAITING_MAX or size_bytes >= WAITING_BYTES_MAX:
            what = self.publisher.what
            self.publisher.drop(1, f"{waiting.count} {what} of {size_bytes} bytes wait already")
            return
        route = Route(self.name.encode(), key.encode(), False)
        waiting.append(route, written, body, flags=flags)
        if not self._asked:
            self._asked = True
            self._loop.at_turn_end(LoopStage.GATHER, self._publish)

    def _publish(self) -> None:
        self._asked = False
        table, self._waiting = self._waiting, MessageTable()
        if not self._definitions.ready:
            return  # the exchange is declared, or looked for, as soon as it is
        if self._definitions.exchange(self.vhost, self.name) is None:
            self._declare_later()  # so far no queue can ask for them
            return
        self.publishing = threading.get_ident()
        self.publisher.publish(self.vhost, table)
        self.publishing = None

    def _declare_later(self) -> None:
        if not self._declaring:
            self._declaring = True
            self._loop.call_later(DECLARE_AGAIN_MS, self._declare)

    def _declare(self) -> None:
        self._declaring = True

        def declared(reply: object) -> None:
            self._declaring = False
            if isinstance(reply, errors.Refusal):
                publisher = self.publisher
                publisher.log.warning("%s are not published yet: %s", publisher.what, reply.detail)
                self._declare_later()

        self._definitions.submit(own_exchange(self.vhost, self.name), declared)


class EventExchange:
    """Publishes what happens in the cluster to an internal topic exchange, as events.

    Connections, channels, consumers, logins and alarms are reported by their node; changes of the
    definitions once, by the leader of the metadata group, which applies each of them. 1. It
    publishes an event.  2. It fails before another node has heard that the entry is committed.
    3. The next leader applies the entry as leader, too: the event is published twice. Where the
    leader fails between applying and storing the event, there is none.

    node      name of this node
    on        False: the exchange is not configured, and nothing is done
    exchange  None: the same
    """

    def __init__(
        self,
        loop: Loop,
        definitions: Definitions,
        publishing: Publisher,
        settings: NodeConfig,
    ) -> None:
        wanted = settings.event_exchange
        self.on = wanted.enabled
        self.node = settings.node
        self._loop = loop
        self.publisher = BestEffort(loop, publishing, "events", log)
        self.exchange: OwnExchange | None = None
        if self.on:
            vhost = wanted.vhost or settings.default_vhost
            self.exchange = OwnExchange(loop, definitions, self.publisher, vhost, EVENT_EXCHANGE)
            definitions.on_event.append(self._defined)

    def tell(self, key: str, facts: Facts, at_ms: int | None = None) -> None:
        """Publish an event at this turn's end.

        key    its kind, as routing key
        facts  its headers
        at_ms  milliseconds since the epoch; None: now
        """
        if self.exchange is None:
            return
        at_ms = self._loop.clock.epoch_ms() if at_ms is None else at_ms
        headers = {**fitting(facts), "timestamp_in_ms": Field("l", at_ms)}
        written = properties.encode(
            properties.Properties(
                headers=headers, delivery_mode=DELIVERY_MODE, timestamp=at_ms // 1000
            )
        )
        self.exchange.put(key, written, flags=PERSISTENT)

    def alarm(self, resource: str, is_set: bool) -> None:
        """Report a resource alarm of this node that was set or cleared."""
        facts = {"source": resource, "node": self.node}
        self.tell("alarm.set" if is_set else "alarm.cleared", facts)

    def _defined(self, meta: Meta, event: DefinitionEvent) -> None:
        self.tell(event.key, facts_of(event), meta.time_ms)


class LogLine(NamedTuple):
    """A line of the log; at_s: seconds since the epoch."""

    level: str
    text: str
    at_s: int


class LogExchange:
    """Publishes lines of this node's log to an internal topic exchange, by their level.

    Lines come from any thread and are published by the loop's, so that none waits for it. A line
    that is logged because a line is published is not published, or one would lead to the next
    without end: what this thread logs while it publishes, and what is said about lines that are
    dropped.

    on        False: the exchange is not configured, and nothing is done
    exchange  None: the same
    """

    def __init__(
        self, loop: Loop, definitions: Definitions, publishing: Publisher, settings: NodeConfig
    ) -> None:
        self.on = settings.log.exchange.on
        self.publisher = BestEffort(loop, publishing, "lines of the log", lines_log)
        self._loop = loop
        self._node = settings.node
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque()
        self._dropped = 0
        self.exchange: OwnExchange | None = None
        if self.on:
            self.exchange = OwnExchange(
                loop, definitions, self.publisher, settings.default_vhost, LOG_EXCHANGE
            )

    def takes(self, logger: str) -> bool:
        """Return whether a line that this thread logs by that logger is published."""
        exchange = self.exchange
        if exchange is None or logger == lines_log.name:
            return False
        return exchange.publishing != threading.get_ident()

    def tell(self, line: LogLine) -> None:
        """Publish a line soon; may be called by any thread."""
        with self._lock:
            if len(self._lines) >= WAITING_LINES_MAX:
                self._dropped += 1
                return
            self._lines.append(line)
            if len(self._lines) > 1:
                return
        self._loop.post(self._publish)

    def _publish(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, deque()
            dropped, self._dropped = self._dropped, 0
        if dropped:
            self.publisher.drop(dropped, f"{WAITING_LINES_MAX} wait already")
        assert self.exchange is not None
        for line in lines:
            written = properties.encode(
                properties.Properties(
                    content_type=CONTENT_TYPE, headers={"node": self._node}, timestamp=line.at_s
                )
            )
            body = f"{line.text}\n".encode("utf-8", "surrogateescape")
            if len(body) > LINE_BYTES_MAX:
                body = body[: LINE_BYTES_MAX - 1] + b"\n"
            self.exchange.put(line.level, written, body)
