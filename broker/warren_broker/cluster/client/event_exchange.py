"""The event exchange: what happens in the cluster, as messages, best effort.

Nothing waits for an event. Those of one turn are published together at its end, and what exceeds a
bound is dropped and counted: events that wait, and events that a queue has not confirmed, which a
queue without a leader does not. Drops are logged when they begin, then once a minute.

Connections, channels, consumers, logins and alarms are reported by their node; changes of the
definitions once, by the leader of the metadata group, which applies each of them. 1. It publishes
an event.  2. It fails before another node has heard that the entry is committed.  3. The next
leader applies the entry as leader, too: the event is published twice. Where the leader fails
between applying and storing the event, there is none.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from warren_broker import errors
from warren_broker.amqp091.wire import properties
from warren_broker.amqp091.wire.fields import Field
from warren_broker.cluster.client.event_facts import Facts, facts_of, fitting
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.definitions import Definitions
from warren_broker.config import NodeConfig
from warren_broker.kernel import PERSISTENT, MessageTable
from warren_broker.kernel.items import Route
from warren_broker.metadata import commands
from warren_broker.metadata.changes import DefinitionEvent
from warren_raft.machine import Meta
from warren_raft.runtime.loop import Loop, LoopStage

log = logging.getLogger(__name__)
EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
WAITING_MAX: Final = 10_000
"""Events of one turn."""
WAITING_BYTES_MAX: Final = 8 << 20
UNCONFIRMED_BYTES_MAX: Final = 2 << 20
"""Under way to one queue; little of what blocks publishers (`limits.node_in_flight_bytes_max`)."""
ALL_UNCONFIRMED_BYTES_MAX: Final = 16 << 20
DECLARE_AGAIN_MS: Final = 10_000
REPORT_MS: Final = 60_000
DELIVERY_MODE: Final = 2


class EventExchange:
    """Publishes events to an internal topic exchange, which it declares.

    node     name of this node
    on       False: the exchange is not configured, and nothing is done
    dropped  number of events dropped since the node started; those that no queue asked for are not
             among them
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
        self.dropped = 0
        self._loop = loop
        self._definitions = definitions
        self._publishing = publishing
        self._vhost = wanted.vhost or settings.default_vhost
        self.node = settings.node
        self._waiting = MessageTable()
        self._asked = False
        self._declaring = False
        self._unconfirmed: dict[str, int] = {}
        self._all_bytes = 0
        self._reported: int | None = None
        if self.on:
            definitions.on_event.append(self._defined)
            definitions.call_at_ready(self._declare)

    def tell(self, key: str, facts: Facts, at_ms: int | None = None) -> None:
        """Publish an event at this turn's end.

        key    its kind, as routing key
        facts  its headers
        at_ms  milliseconds since the epoch; None: now
        """
        if not self.on:
            return
        waiting = self._waiting
        size_bytes = waiting.size_bytes(0, waiting.count)
        if waiting.count >= WAITING_MAX or size_bytes >= WAITING_BYTES_MAX:
            self._drop(1, f"{waiting.count} events of {size_bytes} bytes wait already")
            return
        at_ms = self._loop.clock.epoch_ms() if at_ms is None else at_ms
        headers = {**fitting(facts), "timestamp_in_ms": Field("l", at_ms)}
        written = properties.encode(
            properties.Properties(
                headers=headers, delivery_mode=DELIVERY_MODE, timestamp=at_ms // 1000
            )
        )
        waiting.append(
            Route(EVENT_EXCHANGE.encode(), key.encode(), False), written, b"", flags=PERSISTENT
        )
        if not self._asked:
            self._asked = True
            self._loop.at_turn_end(LoopStage.GATHER, self._publish)

    def alarm(self, resource: str, is_set: bool) -> None:
        """Report a resource alarm of this node that was set or cleared."""
        facts = {"source": resource, "node": self.node}
        self.tell("alarm.set" if is_set else "alarm.cleared", facts)

    def _defined(self, meta: Meta, event: DefinitionEvent) -> None:
        self.tell(event.key, facts_of(event), meta.time_ms)

    def _publish(self) -> None:
        self._asked = False
        table, self._waiting = self._waiting, MessageTable()
        if self._definitions.exchange(self._vhost, EVENT_EXCHANGE) is None:
            self._declare_later()  # so far no queue can ask for events
            return
        sent: dict[str, tuple[int, int]] = {}

        def keep(queue: str, i: int) -> bool:
            size_bytes = table.size_bytes(i, i + 1)
            before = self._unconfirmed.get(queue, 0)
            if before >= UNCONFIRMED_BYTES_MAX or self._all_bytes >= ALL_UNCONFIRMED_BYTES_MAX:
                self._drop(1, f"queue {queue!r} has not confirmed {before} bytes of events")
                return False
            self._unconfirmed[queue] = before + size_bytes
            self._all_bytes += size_bytes
            count, sum_bytes = sent.get(queue, (0, 0))
            sent[queue] = (count + 1, sum_bytes + size_bytes)
            return True

        def confirmed(part: int, ok: bool, refused: list[int] | None) -> None:
            queue, (count, size_bytes) = [*sent.items()][part]
            self._all_bytes -= size_bytes
            self._unconfirmed[queue] -= size_bytes
            if not self._unconfirmed[queue]:
                del self._unconfirmed[queue]
            if not ok:
                count = count if refused is None else len(refused)
                self._drop(count, f"queue {queue!r} does not take them")

        self._publishing.publish(self._vhost, table, 0, table.count, None, confirmed, keep=keep)

    def _drop(self, count: int, why: str) -> None:
        self.dropped += count
        if self._reported is None:
            log.warning("events are dropped: %s", why)
            self._reported = self.dropped
            self._loop.call_later(REPORT_MS, self._report)

    def _report(self) -> None:
        if self.dropped == self._reported:
            self._reported = None
            return
        log.warning("events are dropped: %d since this node started", self.dropped)
        self._reported = self.dropped
        self._loop.call_later(REPORT_MS, self._report)

    # ------------------------------------------------------------ the exchange

    def _declare_later(self) -> None:
        if not self._declaring:
            self._declaring = True
            self._loop.call_later(DECLARE_AGAIN_MS, self._declare)

    def _declare(self) -> None:
        self._declaring = True

        def declared(reply: Any) -> None:
            self._declaring = False
            if isinstance(reply, errors.Refusal):
                log.warning("events are not published yet: %s", reply.detail)
                self._declare_later()

        self._definitions.submit(
            commands.DeclareExchange(
                self._vhost, EVENT_EXCHANGE, "topic", internal=True, choosing=True, own=True
            ),
            declared,
        )
