"""Dead letters: messages dropped by a queue and published again with their history."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from warren_broker.cluster.client.forwarding import Forwarding
from warren_broker.cluster.client.published_deaths import LAST_DEATH, X_DEATH, is_history
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.turn_shares import Share
from warren_broker.counting.counters import Strategy
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.annotations import as_header, encoded_annotation
from warren_machines.queue.commands import Pairs
from warren_machines.queue.effects import DeadLetter
from warren_raft.runtime.host import UnknownGroup
from warren_raft.storage.errors import EntryDamaged
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import SHORT_STRING_BYTES_MAX, Field, Timestamp
from warren_wire.amqp091.fitting import HEADER_FRAME_BYTES, shortened
from warren_wire.amqp10.message.sent import annotated_sections
from warren_wire.block.block import Block
from warren_wire.errors import Refusal
from warren_wire.kernel import (
    CC,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    TTL_NONE,
    MessageTable,
    Route,
    is_owned,
    readable,
    split_sections,
)
from warren_wire.kernel.properties import SECTIONS
from warren_wire.queue_values.config import QueueConfig
from warren_wire.sender_selected import is_unused, place_further_keys

log = logging.getLogger(__name__)
TABLE_BYTES_MAX = 8 << 20
"""Approximate bytes of messages published at once."""
TURN_MESSAGES = 2_000
"""Messages published in one pass of the loop, of all queues: some 30 ms."""
DEATHS_MIN = 1
"""Deaths kept when the properties are too long. Without the newest death, expiring messages would
circulate in a cycle of queues forever."""
DEATHS_COUNT_MAX = 1 << 32
"""Bound of a death's count; a client may have written any number into the header."""
Death = dict[str, Any]
Run = tuple[int, int, int]
"""(index, first, last) of messages in one block, closed."""
COUNT_HEADERS = ("x-acquired-count", "x-delivery-count")


class DeadLetters:
    """Carries out `DeadLetter` effects, at most once, at the queue's leader.

    Headers come from publishers, which may write anything into them, including an x-death of their
    own: nothing in them may raise here, where every client of the node would be affected. A message
    that still cannot be published is dropped, logged and counted (`set_aside`).

    Many messages may die at once (a queue of millions expires, or gets a lower limit) and would
    block the node for seconds: each pass handles TURN_MESSAGES of them.

    Nothing is published before this node knows the definitions, which say where to, and its own
    incarnation: 1. A node starts, leads a queue, and dead-letters a message.  2. It publishes that
    without a number.  3. The leader there knows the node's incarnation before, which has a number,
    and not this one: it takes an incarnation without a number for an older one, and ends it.
    Nothing that this process submits to that queue would ever be applied, and it would be sent
    again and again.
    Replayed by test_a_letter_without_a_number_ends_no_incarnation.
    Invariant: a pass is scheduled exactly while runs wait.
    """

    def __init__(self, queues: QueueClients, publishing: Publisher, frame_max: int) -> None:
        """frame_max: of content headers, in bytes; the properties of dead letters fit into one."""
        self._queues = queues
        self._publishing = publishing
        self._properties_max = frame_max - HEADER_FRAME_BYTES
        self._waiting: dict[int, deque[tuple[DeadLetter, Run]]] = {}

    def publish(self, group: int, effect: DeadLetter) -> None:
        """Publish the messages to the queue's dead letter exchange, now or in later passes."""
        began = bool(self._waiting)
        if effect.runs:
            runs = self._waiting.setdefault(group, deque())
            runs.extend((effect, run) for run in effect.runs)
        if self._waiting and not began:
            self._queues.definitions.call_at_ready(self._turn)

    def _turn(self) -> None:
        left = TURN_MESSAGES
        for group in tuple(self._waiting):
            if left <= 0:
                break
            if not self._share(group).busy:
                runs = self._waiting.pop(group)
                left = self._pass(group, runs, left)
                if runs:
                    self._waiting[group] = runs  # after those of the other queues
        if self._waiting:
            self._queues.cluster.loop.call_later(0, self._turn)

    def _share(self, group: int) -> Share:
        """Return the queue's own: letters that are long routed hold up those of no other queue."""
        return self._publishing.shares.of(("dead letters", group))

    def _pass(self, group: int, runs: deque[tuple[DeadLetter, Run]], left: int) -> int:
        """Publish so many of a queue's messages; return how many more the pass may publish."""
        share = self._share(group)
        while runs and left > 0 and not share.busy:
            effect, (index, first, last) = runs.popleft()
            if last - first >= left:
                runs.appendleft((effect, (index, first + left, last)))
                last = first + left - 1
            left -= last - first + 1
            self._count(group, effect.reason, last - first + 1)
            self._publish(group, effect, (index, first, last))
        return left

    def _count(self, group: int, reason: str, count: int) -> None:
        """Count dead letters that are about to be published, as RabbitMQ does."""
        queue, config = self._queues.definitions.state.groups.get(group), self._config(group)
        if queue is None or config is None:
            return
        exchange = config.dead_letter_exchange
        known = exchange == "" or (
            exchange is not None
            and self._queues.definitions.exchange(queue.vhost, exchange) is not None
        )
        strategy: Strategy = "at_most_once" if known else "disabled"
        self._queues.cluster.counters.died(reason, config.kind, strategy, count)

    def _publish(self, group: int, effect: DeadLetter, run: Run) -> None:
        queue = self._queues.definitions.state.groups.get(group)
        config = self._config(group)
        if queue is None or config is None or config.dead_letter_exchange is None:
            return
        exchange = config.dead_letter_exchange
        if exchange and self._queues.definitions.exchange(queue.vhost, exchange) is None:
            log.warning(
                "dead letters of queue %r in vhost %r are dropped: no exchange %r",
                queue.name,
                queue.vhost,
                exchange,
            )
            return
        index, first, last = run
        cluster = self._queues.cluster
        aside = cluster.set_aside
        try:
            aside.attempt(
                group,
                f"dead letters {first} to {last} of entry {index}",
                self._publish_run,
                queue,
                config,
                effect,
                run,
                count=last - first + 1,
            )
        except EntryDamaged:
            cluster.host.repair.when(group, index, lambda: self._publish(group, effect, run))
        except (KeyError, UnknownGroup):
            # 1. The run waits: for a damaged entry, for its pass, until this node is ready.  2. The
            # queue no longer needs that entry, and releases it.
            log.error(
                "dead letters of queue %r in vhost %r are lost: entry %s was released before they "
                "were published",
                queue.name,
                queue.vhost,
                index,
            )

    def _config(self, group: int) -> QueueConfig | None:
        """Return the settings that the queue has applied, with its policies; None: it is gone."""
        try:
            config: QueueConfig = self._queues.cluster.host.state(group).config
        except UnknownGroup:
            return None
        return config

    def _publish_run(
        self, queue: QueueRecord, config: QueueConfig, effect: DeadLetter, run: Run
    ) -> None:
        index, first, last = run
        cluster = self._queues.cluster
        block = cluster.stored.get(queue.group, index, last)
        now_s = cluster.loop.clock.epoch_ms() // 1000
        letters = Letters(queue, config, self._properties_max)
        notes = {ordinal: pairs for at, ordinal, pairs in effect.annotations if at == index}
        for i in range(first, last + 1):
            cluster.set_aside.attempt(
                queue.group,
                f"dead letter {i} of entry {index}",
                letters.add,
                block,
                i,
                effect.reason,
                now_s,
                effect.delivery_count,
                notes.get(i, ()),
            )
            if letters.table.size_bytes(0, letters.table.count) > TABLE_BYTES_MAX:
                self._send(letters)
                letters = Letters(queue, config, self._properties_max)
        self._send(letters)
        for i in letters.unreadable:
            cluster.set_aside.note(
                queue.group,
                f"dead letter {i} of entry {index}",
                "its properties are malformed, replaced by x-unreadable-properties",
            )

    def _send(self, letters: Letters) -> None:
        table = letters.table
        if table.count:
            share = self._share(letters.queue.group)
            run = (letters.queue.vhost, table, 0, table.count, letters)
            self._publishing.publish(*run, letters.flags, share)


class Letters(Forwarding):
    """Messages of one queue that are dead-lettered together; as a policy, at most once.

    deaths      the x-death of each, newest first
    unreadable  ordinals of those with malformed properties
    """

    confirms = False

    def __init__(self, queue: QueueRecord, config: QueueConfig, properties_max: int) -> None:
        self.queue = queue
        self._config = config
        self.table = MessageTable()
        self.deaths: list[list[Death]] = []
        self.unreadable: list[int] = []
        self.flags = 0
        self._properties_max = properties_max

    def add(
        self,
        block: Block,
        i: int,
        reason: str,
        died_s: int,
        failures: int = 0,
        annotations: Pairs = (),
    ) -> None:
        """Add one message that died at that time; nothing has been added when it raises.

        failures     how often its delivery failed in this queue
        annotations  of consumers of this queue
        """
        config = self._config
        stored = bytes(block.properties(i))
        raw = readable(stored)
        if raw != stored:
            self.unreadable.append(i)
        headers, unused, failed = _past(raw)
        annotate(headers, annotations, raw)
        exchange, key = block.route(i)
        further = () if unused else _keys(headers.get("CC"))
        shown = [key.decode("utf-8", "replace"), *further]
        said = properties.decode(raw)
        expiration = said.expiration
        deaths = record(
            headers,
            self.queue.name,
            reason,
            exchange.decode("utf-8", "replace"),
            shown,
            expiration,
            died_s,
        )
        show_failures(headers, failed + failures)
        changes: dict[str, Any] = {"headers": headers}
        if expiration is not None:
            changes["expiration"] = None  # it would expire again at once
        if config.dead_letter_routing_key is not None:
            further = ()
            key = config.dead_letter_routing_key.encode()
        flags = CC if further else 0
        place_further_keys(headers, bool(further))
        if isinstance(said.headers and said.headers.get("BCC"), list):
            headers.pop("BCC", None)
        route = Route((config.dead_letter_exchange or "").encode(), key, False)
        data = shortened(properties.replace(raw, **changes), self._properties_max, DEATHS_MIN)
        self.table.append(
            route,
            data,
            bytes(block.body(i)),
            self._priority(block, i, said.priority),
            TTL_NONE,
            flags,
        )
        self.flags |= flags
        self.deaths.append(deaths)

    def _priority(self, block: Block, i: int, said: int | None) -> int:
        """Return the publisher's priority, not its queue's default: the next queue has its own."""
        if said is not None:
            return min(said, PRIORITY_MAX)
        own = self.queue.config.priority_default != PRIORITY_DEFAULT
        return PRIORITY_DEFAULT if own else block.priority(i)

    def wants(self, queue: str, i: int) -> bool:
        """Return False when the message died in that queue before, without a rejection since."""
        return not is_cycle(self.deaths[i], queue)

    def refused(self, refusal: Refusal) -> None:
        """Raise it: the letters are set aside."""
        raise refusal


def annotate(headers: dict[str, object], annotations: Pairs, raw: bytes) -> None:
    """Add annotations to a message's headers, where a consumer of either protocol finds them.

    Not those with the names that the broker keeps for itself, or that no header can have. Where
    sections of a message over AMQP 1.0 were kept, they are shown instead of the headers: they get
    the annotations, too. Values that are no headers (lists, maps, arrays) are in such sections
    alone, of a message over 0.9.1, too: RabbitMQ does not show them over 0.9.1.

    raw  the message's properties as they are stored
    """
    given: dict[bytes, bytes] = {}
    typed = False
    for name, packed in annotations:
        short = len(name) <= SHORT_STRING_BYTES_MAX
        if name == SECTIONS or not short or is_owned(name.encode()):
            continue
        given[name.encode()] = encoded_annotation(packed)
        value = as_header(packed)
        if value is None:
            headers.pop(name, None)
            typed = True
        else:
            headers[name] = value
    if not given:
        return
    kept = headers.pop(SECTIONS, None)
    there = kept.value if isinstance(kept, Field) else kept
    if there is not None and not isinstance(there, bytes):
        headers[SECTIONS] = kept
        return
    changed = annotated_sections(split_sections(raw)[0], there or b"", given, typed=typed)
    if changed:
        others = dict(headers)
        headers.clear()
        headers[SECTIONS] = Field("x", changed)  # the first one
        headers.update(others)


def show_failures(headers: dict[str, object], failures: int) -> None:
    """Show how often a message's delivery failed, in the queues that it died in and in this one.

    As in RabbitMQ, both headers have this number until the next queue has delivered the message
    more than once. What a client wrote into a message is left alone while none has failed.
    """
    if failures:
        for name in COUNT_HEADERS:
            headers.pop(name, None)
            headers[name] = Field("l", failures)  # behind x-death, see `_failures`


def _past(raw: bytes) -> tuple[dict[str, Any], bool, int]:
    """Return headers without an x-death of a client's, whether CC is unused, earlier failures."""
    headers: dict[str, Any] = dict(properties.headers(raw))
    if X_DEATH not in headers:
        return headers, False, 0
    if is_history(headers) and headers[X_DEATH].code == "A":
        return headers, is_unused(headers), _failures(headers)
    del headers[X_DEATH]  # over AMQP 1.0 it may stand anywhere, and is no list
    return headers, False, 0


def _failures(headers: dict[str, Any]) -> int:
    """Return the failures that a letter was published with; 0: a client has written the count.

    The order of the headers says so, as it does of x-death (`published_deaths`): of a letter they
    are behind that.
    """
    names = list(headers)
    count = COUNT_HEADERS[-1]
    if X_DEATH not in names[: names.index(count) if count in headers else 0]:
        return 0
    value = headers[count].value
    return value if isinstance(value, int) and 0 < value < DEATHS_COUNT_MAX else 0


def is_cycle(deaths: list[Death], queue: str) -> bool:
    """Return whether a message died in `queue` before and no consumer has rejected it since.

    This is RabbitMQ's rule: a cycle that involves a consumer may continue, one of expiry alone
    ends.
    """
    for death in deaths:
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False


def record(
    headers: dict[str, object],
    queue: str,
    reason: str,
    exchange: str,
    keys: list[str],
    expiration: str | None,
    now_s: int,
) -> list[Death]:
    """Add a death to the headers as RabbitMQ does: the newest (queue, reason) first, counted."""
    deaths = _deaths(headers.pop(X_DEATH, None))
    is_first = not deaths
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
    counted = entry.get("count")
    before = counted.value if isinstance(counted, Field) else counted
    if not isinstance(before, int) or not 0 <= before < DEATHS_COUNT_MAX:
        before = 0
    entry["count"] = Field("l", before + 1)
    deaths.insert(0, entry)
    headers[X_DEATH] = deaths
    first = {
        "x-first-death-queue": queue,
        "x-first-death-reason": reason,
        "x-first-death-exchange": exchange,
    }
    # Without an earlier death the headers are the publisher's invention: as in RabbitMQ, they go.
    headers.update(first if is_first else {**first, **headers})
    for name, value in zip(LAST_DEATH, (queue, reason, exchange), strict=True):
        headers.pop(name, None)
        headers[name] = value  # behind x-death, see `is_history`
    return deaths


def _deaths(given: object) -> list[Death]:
    value = given.value if isinstance(given, Field) else given
    if not isinstance(value, list):
        return []
    deaths = [dict(death) for death in value if isinstance(death, dict)]
    for death in deaths:
        count = death.get("count")
        if type(count) is int:
            death["count"] = Field("l", count)  # as it was written, however small it is
    return deaths


def _keys(given: object) -> Sequence[str]:
    value = given.value if isinstance(given, Field) else given
    return [key for key in value if isinstance(key, str)] if isinstance(value, list) else ()
