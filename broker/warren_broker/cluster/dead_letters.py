"""Dead letters: messages that a queue gave up, published again with their history."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from warren_broker.block import Block
from warren_broker.cluster.publishing import Publishing
from warren_broker.cluster.queues import Queues
from warren_broker.kernel import CC, PRIORITY_DEFAULT, PRIORITY_MAX, TTL_NONE, MessageTable, Route
from warren_broker.metadata.records import Queue
from warren_broker.queue.effects import DeadLetter
from warren_broker.wire.amqp091 import properties
from warren_broker.wire.amqp091.fields import Field, Timestamp
from warren_raft.storage.errors import EntryDamaged

log = logging.getLogger(__name__)
TABLE_BYTES_MAX = 8 << 20
"""Published at once, about."""
COUNT_MAX = 1 << 32
"""Of a death: whoever wrote the header may have written anything."""
Death = dict[str, Any]
Run = tuple[int, int, int]
"""(index, first, last) of messages in one block, closed."""


class DeadLetters:
    """Carries out `DeadLetter` effects, at most once, at the queue's leader.

    Headers come from publishers, who may write anything into them, an x-death of their own
    included: nothing in them may raise here, where every client of the node would suffer.
    """

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
        self._publish(queue, effect.reason, effect.runs)

    def _publish(self, queue: Queue, reason: str, runs: Sequence[Run]) -> None:
        cluster = self._queues.cluster
        now_s = cluster.loop.clock.epoch_ms() // 1000
        letters = _Letters(queue, reason, now_s)
        for at, (index, first, last) in enumerate(runs):
            try:
                block = cluster.stored.get(queue.group, index)
            except EntryDamaged:
                rest = partial(self._publish, queue, reason, runs[at:])
                cluster.host.healing.when(queue.group, index, rest)
                break
            except KeyError:
                # 1. It waits for a damaged entry. 2. The queue does not need that one any more, and
                # lets go of it.
                log.error(
                    "dead letters of queue %r in vhost %r are lost: the damaged entry %s was let "
                    "go of before another member gave it",
                    queue.name,
                    queue.vhost,
                    index,
                )
                continue
            for i in range(first, last + 1):
                letters.add(block, i)
                if letters.table.size_bytes(0, letters.table.count) > TABLE_BYTES_MAX:
                    self._send(letters)
                    letters = _Letters(queue, reason, now_s)
        self._send(letters)

    def _send(self, letters: _Letters) -> None:
        table = letters.table
        if table.count:
            self._publishing.publish(
                letters.queue.vhost, table, 0, table.count, None, None, letters.flags, letters.keep
            )


class _Letters:
    """Messages of one queue that die together; deaths: the x-death of each, newest first."""

    def __init__(self, queue: Queue, reason: str, now_s: int) -> None:
        self.queue = queue
        self.table = MessageTable()
        self.deaths: list[list[Death]] = []
        self.flags = 0
        self._reason = reason
        self._now_s = now_s

    def add(self, block: Block, i: int) -> None:
        """One more."""
        config = self.queue.config
        raw = block.properties(i)
        headers: dict[str, Any] = dict(properties.headers(raw))
        exchange, key = block.route(i)
        further = _keys(headers.get("CC"))
        shown = [key.decode("utf-8", "replace"), *further]
        said = properties.decode(raw)
        expiration = said.expiration
        deaths = record(
            headers, self.queue.name, self._reason, exchange.decode("utf-8", "replace"), shown,
            expiration, self._now_s,
        )
        changes: dict[str, Any] = {"headers": headers}
        if expiration is not None:
            changes["expiration"] = None  # it would expire again at once
        if config.dead_letter_routing_key is not None:
            headers.pop("CC", None)
            key = config.dead_letter_routing_key.encode()
        elif "CC" in headers:
            self.flags |= CC
        headers.pop("BCC", None)
        route = Route((config.dead_letter_exchange or "").encode(), key, False)
        data = properties.replace(raw, **changes)
        self.table.append(
            route, data, bytes(block.body(i)), self._priority(block, i, said.priority), TTL_NONE,
            CC if "CC" in headers else 0,
        )
        self.deaths.append(deaths)

    def _priority(self, block: Block, i: int, said: int | None) -> int:
        """What the message said, not what its queue made of it: the next one has its own."""
        if said is not None:
            return min(said, PRIORITY_MAX)
        own = self.queue.config.priority_default != PRIORITY_DEFAULT
        return PRIORITY_DEFAULT if own else block.priority(i)

    def keep(self, queue: str, i: int) -> bool:
        """False: it was there before, and has come back by itself."""
        return not is_cycle(self.deaths[i], queue)


def is_cycle(deaths: list[Death], queue: str) -> bool:
    """Whether a message died in `queue` before and nobody has rejected it since.

    RabbitMQ's rule: a loop that a consumer takes part in may go on, one of timers alone ends.
    """
    for death in deaths:
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False


def record(
    headers: dict[str, Any],
    queue: str,
    reason: str,
    exchange: str,
    keys: list[str],
    expiration: str | None,
    now_s: int,
) -> list[Death]:
    """Add a death to the headers as RabbitMQ does: the newest (queue, reason) first, counted."""
    deaths = _deaths(headers.get("x-death"))
    entry: Death = {
        "count": 0,
        "reason": reason,
        "queue": queue,
        "time": Timestamp(now_s),
        "exchange": exchange,
        "routing-keys": keys,
    }
    for death in deaths:
        if death.get("queue") == queue and death.get("reason") == reason:
            deaths.remove(death)
            entry = death
            break
    else:
        if expiration is not None:
            entry["original-expiration"] = expiration
    before = entry.get("count")
    if not isinstance(before, int) or not 0 <= before < COUNT_MAX:
        before = 0
    entry["count"] = Field("l", before + 1)
    deaths.insert(0, entry)
    headers["x-death"] = deaths
    headers.setdefault("x-first-death-queue", queue)
    headers.setdefault("x-first-death-reason", reason)
    headers.setdefault("x-first-death-exchange", exchange)
    headers["x-last-death-queue"] = queue
    headers["x-last-death-reason"] = reason
    headers["x-last-death-exchange"] = exchange
    return deaths


def _deaths(given: Any) -> list[Death]:
    value = given.value if isinstance(given, Field) else given
    return [dict(death) for death in value if isinstance(death, dict)] if isinstance(
        value, list) else []


def _keys(given: Any) -> list[str]:
    value = given.value if isinstance(given, Field) else given
    return [key for key in value if isinstance(key, str)] if isinstance(value, list) else []
