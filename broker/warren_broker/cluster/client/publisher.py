"""The publisher: routes messages and submits them to their queues."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from warren_broker.cluster.client.direct_replies import REPLY_PREFIX, DirectReplies
from warren_broker.cluster.client.forwarding import (
    AllAnswered,
    Forwarding,
    delays_of,
    lasting,
    restored,
)
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.client.queues import ENQUEUE, QueueClients, block_for
from warren_broker.cluster.client.relayed import Names, by_origin, joined, relayed_command
from warren_broker.cluster.client.routed_runs import QueuePart, RunRouter
from warren_broker.cluster.client.uplink import OnReply
from warren_broker.cluster.turn_shares import Share, TurnShares
from warren_broker.counting.message_stats import PUBLISH_IN, PUBLISH_OUT
from warren_machines.metadata.exchange_types import DELAYED_MESSAGE
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import Refused
from warren_machines.queue.delayed.delay_commands import EnqueueDelayed
from warren_machines.steps import Steps, Work
from warren_wire import errors
from warren_wire.kernel import CC, MessageTable, Selection, count_groups, distinct_routes, lanes
from warren_wire.queue_values.config import QueueConfig

OnRouted: TypeAlias = Callable[[list[Selection], int], None]
"""Called with one part per queue, and how many of them, the last ones, are for stores. A message in
no other part is unroutable."""
OnConfirmed: TypeAlias = Callable[[int, bool, "list[int] | None"], None]
"""(part, ok, table positions refused when only some are), once per part."""
OnRefused: TypeAlias = Callable[[errors.Refusal], None]
"""Called instead of the others when a run cannot be routed."""
OnSent: TypeAlias = Callable[[list[GroupClient]], None]
"""Called with the uplinks of a run that was submitted, for backpressure."""
Counted: TypeAlias = Callable[[int, int], None]
"""Called with each queue's group and how many messages it gets, before they are submitted."""
Tap: TypeAlias = Callable[[list[QueuePart]], None]
"""Called with the parts of a run before they are submitted."""
FEW_PARTS: Final = 16
"""Queues to which a run is submitted at once."""
PART_STEPS: Final = 2
"""Of submitting messages to one of many queues, beside one for each STEP_BYTES of its copy."""
STEP_BYTES: Final = 4096


class RoutedRun(NamedTuple):
    """Routed messages that are to be submitted.

    on_confirmed  called once per part
    strict        a queue that is deleted meanwhile refuses its messages; False: for the
                  publisher it is as if they had never been routed to it
    names         see `publish`; a store does not look at them
    unknown       see `publish`
    counted       see `publish`; not of stores
    """

    vhost: str
    parts: list[QueuePart]
    on_confirmed: OnConfirmed | None
    strict: bool = False
    names: Names | None = None
    unknown: Callable[[], None] | None = None
    counted: Counted | None = None


class Publisher:
    """Routes runs of messages and passes them to the queues' uplinks.

    A run that takes more steps than its client's share of the turn is routed in later turns, and
    what the client publishes meanwhile comes after it.
    """

    def __init__(self, queues: QueueClients, replies: DirectReplies) -> None:
        self.shares = TurnShares(queues.cluster.loop)
        self._queues = queues
        self._replies = replies
        self._router = RunRouter(queues.definitions, replies)

    def publish(
        self,
        vhost: str,
        table: MessageTable,
        first: int,
        last: int,
        on_routed: OnRouted | None,
        on_confirmed: OnConfirmed | None,
        flags: int = 0,
        tap: Tap | None = None,
        names: Names | None = None,
        unknown: Callable[[], None] | None = None,
        counted: Counted | None = None,
        share: Share | None = None,
        refused: OnRefused | None = None,
        sent: OnSent | None = None,
    ) -> None:
        """Publish messages first <= i < last, in this turn if their share allows it.

        flags         of the messages, or-ed (`kernel.items`)
        on_routed     called once, before any confirm; None: not wanted
        on_confirmed  called once per part
        tap           called once; None: not wanted
        names         of the messages of a relay; None or empty: it is none's
        unknown       called instead of on_confirmed for a relay's messages that a queue may have or
                      not, because its only node is unreachable; None: on_confirmed is called
        counted       None: not wanted
        share         the publisher's; None: one for all that the node publishes itself
        refused       None: raised, or logged if it is in a later turn
        sent          None: not wanted
        """

        def routed(parts: list[QueuePart]) -> None:
            if tap is not None:
                tap(parts)
            if counted is not None:
                self._count_exchanges(vhost, table, first, last, parts)
            if on_routed is not None:
                on_routed([part.selection for part in parts], sum([part.kept for part in parts]))
            run = RoutedRun(vhost, parts, on_confirmed, False, names, unknown, counted)
            self._submit(run, of, sent)

        of = self.shares.of(None) if share is None else share
        self.route(vhost, table, first, last, flags, of, routed, refused)

    def route(
        self,
        vhost: str,
        table: MessageTable,
        first: int,
        last: int,
        flags: int,
        share: Share,
        routed: Callable[[list[QueuePart]], None],
        refused: OnRefused | None,
    ) -> None:
        """Call with messages first <= i < last by queue; those without a route are in no part.

        share, refused  see `publish`
        """
        refused = _raised if refused is None else refused
        if not flags & CC and not share.busy:
            try:
                known = self._router.known(vhost, table, first, last)
            except errors.Refusal as refusal:
                refused(refusal)
                return
            if known is not None:
                routed(known)
                return
        self._search(vhost, table, first, last, flags, None, share, routed, refused)

    def _search(
        self,
        vhost: str,
        table: MessageTable,
        first: int,
        last: int,
        flags: int,
        start: str | None,
        share: Share,
        routed: Callable[[list[QueuePart]], None],
        refused: OnRefused,
    ) -> None:
        """Route a run as far as its share goes, the rest in later turns."""
        turn = self.shares.turn

        def found(parts: list[QueuePart]) -> None:
            if turn != self.shares.turn:  # queues may have been deleted meanwhile
                parts = [part for part in parts if self._router.exists(vhost, part.name)]
            routed(parts)

        work = self._router.search(vhost, table, first, last, flags, start, share.steps)
        share.run(work, found, refused)

    def _count_exchanges(
        self, vhost: str, table: MessageTable, first: int, last: int, parts: list[QueuePart]
    ) -> None:
        """Count what came to the exchanges of a run, and went from them to queues.

        As in RabbitMQ, a message counts at the exchange to which it was published alone.
        """
        counts, entries = self._queues.cluster.queue_counts, table.routes.entries
        ids = distinct_routes(table, first, last)
        one = entries[ids[0]].exchange
        # In few calls: many messages come one by one.
        if len(ids) == 1 or all(entries[route_id].exchange == one for route_id in ids):
            row = counts.exchanges[vhost, one.decode("utf-8", "surrogateescape")]
            row[PUBLISH_IN] += last - first
            for _, some, _, kept in parts:
                if not kept:
                    ranged = some.indices is None
                    row[PUBLISH_OUT] += some.last - some.first if ranged else len(some)
            return
        went = [part.selection for part in parts if not part.kept]
        for name, came, left in by_exchange(table, first, last, went):
            counts.through(vhost, name.decode("utf-8", "surrogateescape"), came, left)

    def forward(
        self,
        vhost: str,
        table: MessageTable,
        policy: Forwarding,
        share: Share | None = None,
        flags: int = 0,
        start: str | None = None,
    ) -> None:
        """Publish a table of the node's own messages.

        share  see `publish`
        start  the exchange that the messages have reached, whatever their routes; None: that of
               each message
        """

        def routed(parts: list[QueuePart]) -> None:
            policy.guarded(lambda: self._forward(vhost, parts, policy, of))

        of = self.shares.of(start and (vhost, start)) if share is None else share
        run = (vhost, table, 0, table.count)
        if start is None:
            self.route(*run, flags, of, routed, policy.refused)
        else:
            self._search(*run, CC, start, of, routed, policy.refused)

    def forward_to(self, vhost: str, queue: str, table: MessageTable, policy: Forwarding) -> None:
        """Publish a table to one queue, whatever its routes say."""
        whole = Selection(table, 0, table.count)
        self._forward(vhost, [QueuePart(queue, whole, whole)], policy, None)

    def _forward(
        self, vhost: str, parts: list[QueuePart], policy: Forwarding, share: Share | None
    ) -> None:
        chosen = policy.chosen(parts)

        def confirmed(number: int, ok: bool, refused: list[int] | None) -> None:
            positions = list(chosen[number].selection)
            denied = set() if ok else set(positions if refused is None else refused)
            policy.answered(chosen[number].name, positions, denied)

        policy.routed(chosen)
        run = RoutedRun(vhost, chosen, confirmed if policy.confirms else None, policy.strict)
        if policy.at_once or share is None:
            self.send(run)
        else:
            self._submit(run, share, None)

    def _submit(self, run: RoutedRun, share: Share, sent: OnSent | None) -> None:
        """Submit routed messages; those of many queues as far as their share of the turn goes."""
        if len(run.parts) <= FEW_PARTS and not share.busy:
            touched = self.send(run)
            if sent is not None:
                sent(touched)
        else:
            told = sent or (lambda touched: None)
            share.run(self._send_in_turns(run, share.steps), told, _raised, lasting=True)

    def send(self, run: RoutedRun) -> list[GroupClient]:
        """Submit routed messages to their queues; return the uplinks."""
        touched: list[GroupClient] = []
        for number in range(len(run.parts)):
            self._send_part(run, number, touched)
        return touched

    def _send_in_turns(self, run: RoutedRun, steps: Steps) -> Work[list[GroupClient]]:
        """Submit routed messages to their queues; return the uplinks.

        Each queue's block is a copy: a read of 1 MiB through a fanout exchange to 10,000 queues
        makes 10 GiB of it. A store comes first, in the turn of the routing (`_keep_history`).
        """
        touched: list[GroupClient] = []
        for number in sorted(range(len(run.parts)), key=lambda number: not run.parts[number].kept):
            self._send_part(run, number, touched)
            if steps.take(PART_STEPS + run.parts[number].stored.size_bytes() // STEP_BYTES):
                yield
        return touched

    def _send_part(self, run: RoutedRun, number: int, touched: list[GroupClient]) -> None:
        """Submit messages to their queue; add its uplink to those that are touched."""
        vhost, parts, on_confirmed, strict, names, _, counted = run
        name, selection, stored, kept = parts[number]
        definitions = self._queues.definitions
        queue = definitions.state.queue(vhost, name)
        if queue is None:
            # A queue for replies; or it was deleted while the messages were routed.
            there = self._replies.publish(name, stored)
            if on_confirmed is not None:
                gone = not there and not name.startswith(REPLY_PREFIX)
                on_confirmed(number, not (gone and strict), None)
            return
        if self._queues.absent(queue):
            # As in RabbitMQ: the queue's process is unreachable, so the message is nacked.
            if on_confirmed is not None:
                on_confirmed(number, False, None)
            return
        client = self._queues.client(queue)
        touched.append(client)
        if counted is not None and not kept:
            counted(queue.group, len(selection))
        if kept:
            self._keep(queue, client, run, number)
        elif names:
            self._relay(queue, client, run, number, names)
        elif definitions.policies(vhost).config_of(queue).refuses:
            # Part of a block may be refused: it gets its own block, so that ordinals are
            # positions.
            own = _OwnBlock(selection, queue.config)
            block = own.of(stored)
            client.with_block(ENQUEUE, block, _confirmer(number, on_confirmed, own, strict))
        else:
            on_reply = _confirmer(number, on_confirmed, None, strict)
            client.publish(stored, stored.size_bytes(), on_reply)

    def _relay(
        self, queue: QueueRecord, client: GroupClient, run: RoutedRun, number: int, names: Names
    ) -> None:
        """Submit a relay's messages: the queue drops those that it was brought before."""
        part = run.parts[number]
        groups = list(by_origin(part.selection, part.stored, names))
        both = None
        if run.on_confirmed is not None and len(groups) > 1:
            both = joined([selection for _, selection, _ in groups], run.on_confirmed)
        for place, (origin, selection, stored) in enumerate(groups):
            own = _OwnBlock(selection, queue.config)
            command = relayed_command(origin, own.order(), names) if origin else ENQUEUE
            tell = run.on_confirmed if both is None else both(place)
            confirm = _confirmer(number, tell, own, run.strict, run.unknown)
            client.with_block(command, own.of(stored), confirm)

    def _keep(self, store: QueueRecord, client: GroupClient, run: RoutedRun, number: int) -> None:
        """Put the messages of part `number` into the store of their exchange."""
        parts, on_confirmed = run.parts, run.on_confirmed
        if self.delays(store):
            selection = parts[number].selection  # BCC is looked at when they are due
            table = lasting(selection)
            block = block_for(store.config, [Selection(table, 0, table.count)])
            command = EnqueueDelayed(delays_of(table))
            client.with_block(command, block, _confirmer(number, on_confirmed, None, run.strict))
        else:
            confirm = _confirmer(number, on_confirmed, None)
            self._keep_history(store, client, parts[number], parts, confirm)

    def delays(self, store: QueueRecord) -> bool:
        """Return whether a store is that of an exchange that delays messages: it routes them on."""
        exchange = self._queues.definitions.state.exchange(store.vhost, store.store_of)
        return exchange is not None and exchange.kind == DELAYED_MESSAGE

    def _keep_history(
        self,
        store: QueueRecord,
        client: GroupClient,
        part: QueuePart,
        parts: list[QueuePart],
        confirm: OnReply | None,
    ) -> None:
        """Put the messages of one of the parts into a recent history.

        No queue that is bound meanwhile misses them. 1. A message is routed here to the store, and
        to the queues that are bound.  2. A queue is bound elsewhere and given what the store
        holds.  3. The store takes the message: it was not among those. So when the store answers
        after a binding was added, the message is routed again, to the queues that it was not
        routed to before. Replayed by test_a_message_on_its_way_to_the_store_reaches_a_new_queue.
        """
        vhost, exchange = store.vhost, store.store_of
        table = lasting(part.stored)
        version = self._bindings_version(vhost, exchange)

        def on_reply(reply: object, index: int) -> None:
            if self._bindings_version(vhost, exchange) in (version, -1):
                if confirm is not None:
                    confirm(reply, index)
                return
            positions = list(part.selection)
            routed = {one.name: frozenset(one.selection) for one in parts}

            def answered() -> None:
                if confirm is not None:
                    confirm(reply, index)

            def missed(queue: str, i: int) -> bool:
                return positions[i] not in routed.get(queue, ())

            policy = AllAnswered(answered, missed)
            self.forward(vhost, restored(table), policy, start=exchange)

        client.publish(Selection(table, 0, table.count), table.size_bytes(0, table.count), on_reply)

    def _bindings_version(self, vhost: str, exchange: str) -> int:
        """Return the version of an exchange's bindings, as known here; -1: there is none now."""
        scope = self._queues.definitions.state.scopes.get(vhost)
        if scope is None or exchange not in scope.exchanges:
            return -1
        return scope.source_versions.get(exchange, 0)


def _raised(refusal: errors.Refusal) -> None:
    """Raise the refusal of a run that no client waits for."""
    raise refusal


def by_exchange(
    table: MessageTable, first: int, last: int, went: list[Selection]
) -> list[tuple[bytes, int, int]]:
    """Return each exchange of messages first <= i < last: how many came to it, how many it gave.

    went  what queues were given, of these messages
    """
    entries, numbers = table.routes.entries, dict[bytes, int]()
    groups = array("I", bytes(4 * len(entries)))
    for route_id in distinct_routes(table, first, last):
        exchange = entries[route_id].exchange
        groups[route_id] = numbers.setdefault(exchange, len(numbers))
    came = count_groups([Selection(table, first, last)], groups, len(numbers))
    return list(zip(numbers, came, count_groups(went, groups, len(numbers)), strict=True))


class _OwnBlock:
    """The block of messages for a queue that may refuse a part of it."""

    def __init__(self, selection: Selection, config: QueueConfig) -> None:
        self._selection = selection
        self._config = config

    def of(self, stored: Selection) -> bytes:
        """Encode the block; stored: the selection as it is stored."""
        return block_for(self._config, [stored])

    def order(self) -> list[int]:
        """Return the table positions of the messages in the order of the block."""
        table = self._selection.table
        of_queue = lanes(self._config.priority_max, self._config.priority_default)
        return sorted(self._selection, key=lambda i: -table.lane(i, of_queue))

    def after(self, accepted: int) -> list[int]:
        """Return the table positions of all messages but the first `accepted` of the block."""
        return sorted(self.order()[accepted:])


def _confirmer(
    number: int,
    tell: OnConfirmed | None,
    own: _OwnBlock | None,
    strict: bool = False,
    unknown: Callable[[], None] | None = None,
) -> OnReply | None:
    if tell is None:
        return None

    def on_reply(reply: object, index: int) -> None:
        if unknown is not None and isinstance(reply, errors.Refusal):
            unknown()
        elif not isinstance(reply, Refused):
            tell(number, not isinstance(reply, errors.Refusal), None)
        else:
            answered(reply)

    def answered(reply: Refused) -> None:
        ok = reply.reason == "deleted" and not strict
        refused = None
        if not ok and reply.accepted and own is not None:
            refused = own.after(reply.accepted)
        tell(number, ok, refused)

    return on_reply
