"""The event exchange: what happens in the cluster, as messages, best effort (`node_messages`).

Connections, channels, consumers, logins and alarms are reported by their node; changes of the
definitions once, by the leader of the metadata group, which applies each of them. 1. It publishes
an event.  2. It fails before another node has heard that the entry is committed.  3. The next
leader applies the entry as leader, too: the event is published twice. Where the leader fails
between applying and storing the event, there is none.
"""

from __future__ import annotations

import logging
from typing import Final

from warren_broker.cluster.client.event_facts import Facts, facts_of, fitting
from warren_broker.cluster.client.node_messages import BestEffort, OwnExchange
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.definitions import Definitions
from warren_broker.config import NodeConfig
from warren_machines.metadata.changes import DefinitionEvent
from warren_raft.machine import Meta
from warren_raft.runtime.loop import Loop
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field
from warren_wire.kernel import PERSISTENT

log = logging.getLogger(__name__)
EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
DELIVERY_MODE: Final = 2


class EventExchange:
    """Publishes events to an internal topic exchange.

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
