"""Dead letters: messages that a queue gave up, published again with their history."""

from __future__ import annotations

import logging
from typing import Any

from warren_broker.block import Block
from warren_broker.cluster.publishing import Publishing
from warren_broker.cluster.queues import Queues
from warren_broker.kernel import TTL_NONE, MessageTable, Route
from warren_broker.metadata.records import Queue
from warren_broker.queue.effects import DeadLetter
from warren_broker.wire.amqp091 import properties
from warren_broker.wire.amqp091.fields import Timestamp

log = logging.getLogger(__name__)


class DeadLetters:
    """Carries out `DeadLetter` effects, at most once, at the queue's leader."""

    def __init__(self, queues: Queues, publishing: Publishing) -> None:
        self._queues = queues
        self._publishing = publishing

    def publish(self, group: int, effect: DeadLetter) -> None:
        """Publish the messages to the queue's dead letter exchange."""
        queue = self._queues.definitions.state.groups.get(group)
        if queue is None or queue.config.dead_letter_exchange is None:
            return
        exchange = queue.config.dead_letter_exchange
        if exchange and self._queues.definitions.exchange(queue.vhost, exchange) is None:
            log.warning(
                "dead letters of queue %r in vhost %r are dropped: no exchange %r",
                queue.name,
                queue.vhost,
                exchange,
            )
            return
        now_s = self._queues.cluster.loop.clock.epoch_ms() // 1000
        table = MessageTable()
        for index, first, last in effect.runs:
            block = self._queues.cluster.stored.get(group, index)
            for i in range(first, last + 1):
                self._add(table, queue, block, i, effect.reason, now_s)
        if table.count:
            self._publishing.publish(queue.vhost, table, 0, table.count, None, None)

    def _add(
        self, table: MessageTable, queue: Queue, block: Block, i: int, reason: str, now_s: int
    ) -> None:
        was = properties.decode(block.properties(i))
        headers = dict(was.headers or {})
        if _cycle(headers, queue.name, reason):
            return
        exchange, key = (part.decode("utf-8", "replace") for part in block.route(i))
        _record(headers, queue.name, reason, exchange, key, was.expiration, now_s)
        changes: dict[str, Any] = {"headers": headers}
        if was.expiration is not None:
            changes["expiration"] = None  # it would expire again at once
        target = queue.config.dead_letter_exchange or ""
        rewritten = queue.config.dead_letter_routing_key
        if rewritten is not None:
            headers.pop("CC", None)
        headers.pop("BCC", None)
        route = Route(
            target.encode(), (rewritten if rewritten is not None else key).encode(), False
        )
        data = properties.replace(block.properties(i), **changes)
        table.append(route, data, bytes(block.body(i)), block.priority(i), TTL_NONE)


def _cycle(headers: dict[str, Any], queue: str, reason: str) -> bool:
    """It came back to a queue it was dead-lettered from, without ever having been rejected."""
    deaths = [death for death in headers.get("x-death", ()) if isinstance(death, dict)]
    if reason == "rejected" or any(death.get("reason") == "rejected" for death in deaths):
        return False
    return any(death.get("queue") == queue and death.get("reason") == reason for death in deaths)


def _record(
    headers: dict[str, Any],
    queue: str,
    reason: str,
    exchange: str,
    key: str,
    expiration: str | None,
    now_s: int,
) -> None:
    """x-death as RabbitMQ keeps it: the newest (queue, reason) first, counted."""
    deaths = [death for death in headers.get("x-death", ()) if isinstance(death, dict)]
    entry: dict[str, Any] = {
        "count": 0,
        "reason": reason,
        "queue": queue,
        "time": Timestamp(now_s),
        "exchange": exchange,
        "routing-keys": [key],
    }
    for death in deaths:
        if death.get("queue") == queue and death.get("reason") == reason:
            deaths.remove(death)
            entry = death
            break
    else:
        if expiration is not None:
            entry["original-expiration"] = expiration
    entry["count"] = int(entry.get("count", 0)) + 1
    headers["x-death"] = [entry, *deaths]
    headers.setdefault("x-first-death-queue", queue)
    headers.setdefault("x-first-death-reason", reason)
    headers.setdefault("x-first-death-exchange", exchange)
    headers["x-last-death-queue"] = queue
    headers["x-last-death-reason"] = reason
    headers["x-last-death-exchange"] = exchange
