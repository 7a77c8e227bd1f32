"""Delayed messages that are due: routed by their exchange, settled when the queues have them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from warren_broker.cluster.client.consumers import Consumers
from warren_broker.cluster.client.forwarding import Fate, Forwarding, due, restored
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.routed_runs import QueuePart
from warren_broker.cluster.ids import Ids
from warren_machines.metadata.exchange_types import DELAYED_MESSAGE
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import Checkout, Delivery, Return, Settle, rest_of
from warren_wire import errors
from warren_wire.block.block import Block
from warren_wire.kernel import MessageTable, Route, readable

log = logging.getLogger(__name__)
ROUTED_MESSAGES_MAX: Final = 1_000
"""Messages of one exchange routed in one pass of the loop: some 30 ms."""
CHECKOUT_RETRY_MS: Final = 1_000
REFUSED_LOG_MS: Final = 60_000
"""Interval between log lines about refused messages of one exchange."""


class DueMessages:
    """Consumes the stores of delayed messages that are led here.

    Invariant: a store has a router here exactly while this node leads it, as far as it knows.
    """

    def __init__(
        self, queues: QueueClients, consuming: Consumers, publishing: Publisher, numbers: Ids
    ) -> None:
        self._queues = queues
        self._consuming = consuming
        self._publishing = publishing
        self._numbers = numbers
        self._routers: dict[int, _Router] = {}
        queues.cluster.on_led.append(self._led)
        queues.cluster.on_leader.append(self._leader_changed)
        queues.definitions.on_ready.append(self._ready)

    def _ready(self) -> None:
        for group in sorted(self._queues.cluster.effects.led):
            self._led(group)

    def _led(self, group: int) -> None:
        # Nothing is submitted before this node knows its number, see `DeadLetters`.
        self._end(group)
        definitions = self._queues.definitions
        store = definitions.state.groups.get(group) if definitions.ready else None
        if store is None or not store.store_of:
            return
        exchange = definitions.state.exchange(store.vhost, store.store_of)
        if exchange is None or exchange.kind != DELAYED_MESSAGE:
            return
        session = self._numbers.session()
        router = _Router(
            self._queues,
            self._consuming,
            self._publishing,
            store,
            (session, self._numbers.consumer()),
            lambda again: self._ended(group, router, again),
        )
        self._routers[group] = router
        router.start()

    def _ended(self, group: int, router: _Router, again: bool) -> None:
        if self._routers.get(group) is router:
            self._end(group)
            if again:
                loop = self._queues.cluster.loop
                loop.call_later(CHECKOUT_RETRY_MS, lambda: self._begin_again(group))

    def _begin_again(self, group: int) -> None:
        if group not in self._routers and group in self._queues.cluster.effects.led:
            self._led(group)

    def _leader_changed(self, group: int) -> None:
        if group in self._routers and group not in self._queues.cluster.effects.led:
            self._end(group)

    def _end(self, group: int) -> None:
        router = self._routers.pop(group, None)
        if router is not None:
            router.end()


class _Router:
    """Routes the due messages of one exchange, as its store's consumer; a Receiver.

    Each message is settled when every queue has it. One that a queue has refused goes back to the
    store, which delays it; the queues that have it are remembered until then, as long as this node
    leads the store, so that the next attempt does not give it to them again.

    _waiting  deliveries to route
    _routing  those before are being routed
    _has      (index, ordinal) to the fate of a message which some queue has refused
    """

    def __init__(
        self,
        queues: QueueClients,
        consuming: Consumers,
        publishing: Publisher,
        store: QueueRecord,
        numbers: tuple[int, int],
        ended: Callable[[bool], None],
    ) -> None:
        self._queues = queues
        self._consuming = consuming
        self._publishing = publishing
        self._store = store
        self._session, self._consumer = numbers
        self._ended = ended
        self._over = False
        self._routing = False
        self._waiting: deque[tuple[Delivery, Block]] = deque()
        self._has: dict[tuple[int, int], Fate] = {}
        self._logged_ms = 0

    def start(self) -> None:
        """Attach to the store."""

        def joined(reply: object) -> None:
            if isinstance(reply, errors.Refusal) and not self._over:
                self._ended(not isinstance(reply, errors.NotFound))

        command = Checkout(self._consumer, self._session, "", timeout_ms=None)
        self._consuming.checkout(self._store, command, self, joined)

    def end(self) -> None:
        """Detach: what is not settled goes back to the store."""
        self._over = True
        self._waiting.clear()
        self._consuming.session_down(self._session, failed=False)

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """See `Receiver`: the store was deleted, or wants another consumer."""
        if not self._over:
            self._ended(reason != "deleted")

    def deliver(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """See `Receiver`."""
        if self._over:
            return
        self._waiting.append((delivery, block))
        if len(self._waiting) == 1 and not self._routing:
            self._queues.cluster.loop.call_later(0, self._turn)

    def _turn(self) -> None:
        """Route the first messages that wait."""
        if self._over or not self._waiting:
            return
        batch = _DueBatch(self._has, self._answered, self._routed)
        store = self._store
        if self._queues.definitions.state.exchange(store.vhost, store.store_of) is None:
            return  # deleted; its store is being deleted, too
        aside = self._queues.cluster.set_aside
        while self._waiting and batch.table.count < ROUTED_MESSAGES_MAX:
            delivery, block = self._waiting.popleft()
            last = min(delivery.last, delivery.first + ROUTED_MESSAGES_MAX - 1)
            for i in range(delivery.first, last + 1):
                number = delivery.first_msg_id + i - delivery.first
                where = f"due message {i} of entry {delivery.index}"
                message = (block, delivery.index, i, number)
                if not aside.attempt(store.group, where, batch.add, *message):
                    self._settle([number])  # it cannot be read
            if last < delivery.last:
                self._waiting.appendleft((rest_of(delivery, last + 1 - delivery.first), block))
        self._routing = True
        if batch.table.count:
            table = restored(batch.table)
            run = (store.vhost, table, 0, table.count, batch)
            self._publishing.publish(*run, start=store.store_of)
        else:
            self._routed()

    def _routed(self) -> None:
        """Continue: the messages before have been routed, perhaps in several turns."""
        self._routing = False
        if self._waiting:
            self._queues.cluster.loop.call_later(0, self._turn)

    def _answered(self, number: int, ok: bool) -> None:
        """Settle a message that every queue has; return one that a queue has refused."""
        if self._over:
            return
        if ok:
            self._settle([number])
            return
        self._consuming.acknowledge(Return(self._consumer, ((number, number),), True))
        now_ms = self._queues.cluster.loop.now_ms
        if not self._logged_ms or now_ms >= self._logged_ms + REFUSED_LOG_MS:
            self._logged_ms = now_ms
            what = errors.named("exchange", self._store.store_of, self._store.vhost)
            log.warning("delayed messages of %s are refused by a queue: tried again later", what)

    def _settle(self, numbers: Iterable[int]) -> None:
        ids = tuple((number, number) for number in numbers)
        self._consuming.acknowledge(Settle(self._consumer, ids))


@dataclass(eq=False, repr=False)
class _DueBatch(Forwarding):
    """Messages that are routed together.

    done      called once for each, with its msg_id and whether every queue has it
    places    (index, ordinal) of each; numbers: the msg_id of each; fates: which queues have it
    """

    has: dict[tuple[int, int], Fate]
    done: Callable[[int, bool], None]
    all_routed: Callable[[], None]
    _failed: set[int] = field(default_factory=set)
    table: MessageTable = field(default_factory=MessageTable)
    places: list[tuple[int, int]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)

    def add(self, block: Block, index: int, ordinal: int, number: int) -> None:
        """Add one message; nothing has been added when it raises."""
        exchange, key = block.route(ordinal)
        raw = due(readable(bytes(block.properties(ordinal))))
        self.table.append(Route(exchange, key, False), raw, bytes(block.body(ordinal)))
        self.places.append((index, ordinal))
        self.numbers.append(number)
        self.fates.append(self.has.get((index, ordinal)) or Fate())

    def wants(self, queue: str, i: int) -> bool:
        return self.fates[i].lacks(queue)

    def sends(self, parts: list[QueuePart]) -> None:
        """See Forwarding; what goes nowhere is done."""
        for part in parts:
            for i in part.selection:
                self.fates[i].unsettled.add(part.name)
        for i in range(self.table.count):
            self._end(i)
        self.all_routed()

    def answered(self, queue: str, positions: list[int], denied: set[int]) -> None:
        self._failed |= denied
        for i in positions:
            self.fates[i].answer(queue, i not in denied)
            self._end(i)

    def _end(self, i: int) -> None:
        if self.fates[i].unsettled:
            return
        ok = i not in self._failed
        if ok:
            self.has.pop(self.places[i], None)
        else:
            self.has[self.places[i]] = self.fates[i]
        self.done(self.numbers[i], ok)
