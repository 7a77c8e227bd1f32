"""The publisher: routes messages and submits them to their queues."""

from __future__ import annotations

from array import array
from functools import partial
from typing import Final

from warren_broker.cluster.client.direct_replies import REPLY_PREFIX, DirectReplies
from warren_broker.cluster.client.forwarding import (
    AllAnswered,
    delays_of,
    lasting,
    restored,
)
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.client.queues import ENQUEUE, QueueClients, block_for
from warren_broker.cluster.client.relayed import Tell, by_origin, joined, relayed_command
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart, RunRouter
from warren_broker.cluster.client.uplink import OnReply
from warren_broker.cluster.turn_shares import Share, TurnShares
from warren_broker.counting.message_stats import PUBLISH_IN, PUBLISH_OUT
from warren_broker.counting.pair_counts import ChannelKey, PairCounts
from warren_machines.metadata.exchange_types import DELAYED_MESSAGE
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import Refused
from warren_machines.queue.delayed.delay_commands import EnqueueDelayed
from warren_machines.steps import Steps, Work
from warren_wire import errors
from warren_wire.kernel import CC, MessageTable, Selection, count_groups, distinct_routes, lanes
from warren_wire.queue_values.config import QueueConfig

FEW_PARTS: Final = 16
"""Queues to which a run is submitted at once."""
PART_STEPS: Final = 2
"""Of submitting messages to one of many queues, beside one for each STEP_BYTES of its copy."""
STEP_BYTES: Final = 4096


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
        run: PublishedRun,
        flags: int = 0,
        share: Share | None = None,
        start: str | None = None,
    ) -> None:
        """Publish messages first <= i < last, in this turn if their share allows it.

        flags  of the messages, or-ed (`kernel.items`)
        share  the publisher's; None: one for all that the node publishes itself from `start`
        start  the exchange that the messages have reached, whatever their routes; None: that of
               each message
        """

        def routed(parts: list[QueuePart]) -> None:
            if run.counted:
                self._count_exchanges(vhost, table, first, last, parts)
            if run.at_once:
                run.guarded(lambda: self.send(vhost, run.routed(parts), run))
            else:
                self._submit(vhost, run.routed(parts), run, of)

        of = self.shares.of(start and (vhost, start)) if share is None else share
        if start is None and not flags & CC and not of.busy:
            try:
                known = self._router.known(vhost, table, first, last)
            except errors.Refusal as refusal:
                run.refused(refusal)
                return
            if known is not None:
                routed(known)
                return
        turn = self.shares.turn

        def found(parts: list[QueuePart]) -> None:
            if turn != self.shares.turn:  # queues may have been deleted meanwhile
                parts = [part for part in parts if self._router.exists(vhost, part.name)]
            routed(parts)

        flags = flags if start is None else CC
        work = self._router.search(vhost, table, first, last, flags, start, of.steps)
        of.run(work, found, run.refused)

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

    def publish_to(self, vhost: str, queue: str, table: MessageTable, run: PublishedRun) -> None:
        """Publish a table to one queue at once, whatever its routes say."""
        whole = Selection(table, 0, table.count)
        self.send(vhost, run.routed([QueuePart(queue, whole, whole)]), run)

    def _submit(self, vhost: str, parts: list[QueuePart], run: PublishedRun, share: Share) -> None:
        """Submit routed messages; those of many queues as far as their share of the turn goes."""
        if len(parts) <= FEW_PARTS and not share.busy:
            run.sent(self.send(vhost, parts, run))
        else:
            work = self._send_in_turns(vhost, parts, run, share.steps)
            share.run(work, run.sent, _raised, lasting=True)

    def send(self, vhost: str, parts: list[QueuePart], run: PublishedRun) -> list[GroupClient]:
        """Submit routed messages to their queues; return the uplinks."""
        touched: list[GroupClient] = []
        for number in range(len(parts)):
            self._send_part(vhost, parts, number, run, touched)
        return touched

    def _send_in_turns(
        self, vhost: str, parts: list[QueuePart], run: PublishedRun, steps: Steps
    ) -> Work[list[GroupClient]]:
        """Submit routed messages to their queues; return the uplinks.

        Each queue's block is a copy: a read of 1 MiB through a fanout exchange to 10,000 queues
        makes 10 GiB of it. A store comes first, in the turn of the routing (`_keep_history`).
        """
        touched: list[GroupClient] = []
        for number in sorted(range(len(parts)), key=lambda number: not parts[number].kept):
            looked = self._send_part(vhost, parts, number, run, touched)
            size = parts[number].stored.size_bytes()
            if steps.take(PART_STEPS + looked + size // STEP_BYTES):
                yield
        return touched

    def _send_part(
        self,
        vhost: str,
        parts: list[QueuePart],
        number: int,
        run: PublishedRun,
        touched: list[GroupClient],
    ) -> int:
        """Submit messages to their queue; add its uplink to those that are touched.

        returns  how many routes were looked at to count them
        """
        looked = 0
        name, selection, stored, kept = part = parts[number]
        tell = partial(run.confirmed, number, part) if run.confirms else None
        definitions = self._queues.definitions
        queue = definitions.state.queue(vhost, name)
        if queue is None:
            # A queue for replies; or it was deleted while the messages were routed.
            there = self._replies.publish(name, stored)
            if tell is not None:
                gone = not there and not name.startswith(REPLY_PREFIX)
                tell(not (gone and run.strict), None)
            return looked
        if self._queues.absent(queue):
            # As in RabbitMQ: the queue's process is unreachable, so the message is nacked.
            if tell is not None:
                tell(False, None)
            return looked
        client = self._queues.client(queue)
        touched.append(client)
        if run.counted and not kept:
            counts = self._queues.cluster.queue_counts
            counts.published(queue.group, len(selection))
            if counts.pairs is not None:
                looked = count_routes(counts.pairs, vhost, queue.group, selection, run.channel)
        if kept and self.delays(queue):
            table = lasting(selection)  # BCC is looked at when they are due
            block = block_for(queue.config, [Selection(table, 0, table.count)])
            delayed = EnqueueDelayed(delays_of(table))
            client.with_block(delayed, block, _confirmer(tell, None, run.strict))
        elif kept:
            self._keep_history(queue, client, part, parts, _confirmer(tell, None))
        elif run.names:
            self._relay(queue, client, part, run, tell)
        elif definitions.policies(vhost).config_of(queue).refuses:
            # Part of a block may be refused: it gets its own block, so that ordinals are
            # positions.
            own = _OwnBlock(selection, queue.config)
            client.with_block(ENQUEUE, own.of(stored), _confirmer(tell, own, run.strict))
        else:
            client.publish(stored, stored.size_bytes(), _confirmer(tell, None, run.strict))
        return looked

    def _relay(
        self,
        queue: QueueRecord,
        client: GroupClient,
        part: QueuePart,
        run: PublishedRun,
        tell: Tell | None,
    ) -> None:
        """Submit a relay's messages: the queue drops those that it was brought before."""
        groups = list(by_origin(part.selection, part.stored, run.names))
        both = None
        if tell is not None and len(groups) > 1:
            both = joined([selection for _, selection, _ in groups], tell)
        for place, (origin, selection, stored) in enumerate(groups):
            own = _OwnBlock(selection, queue.config)
            command = relayed_command(origin, own.order(), run.names) if origin else ENQUEUE
            confirm = _confirmer(tell if both is None else both(place), own, run.strict, run)
            client.with_block(command, own.of(stored), confirm)

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

            again = restored(table)
            run = AllAnswered(answered, missed)
            self.publish(vhost, again, 0, again.count, run, start=exchange)

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


def count_routes(
    pairs: PairCounts, vhost: str, group: int, some: Selection, channel: ChannelKey | None
) -> int:
    """Count a queue's messages by the exchanges to which they were published.

    channel  that has published them
    returns  how many routes were looked at
    """
    table, entries = some.table, some.table.routes.entries
    ids = distinct_routes(table, some.first, some.last)
    one = entries[ids[0]].exchange
    if all(entries[route_id].exchange == one for route_id in ids):
        came = [(one, 0, len(some))]
    else:
        came = by_exchange(table, some.first, some.last, [some])
    for name, _, given in came:
        if given:
            exchange = vhost, name.decode("utf-8", "surrogateescape")
            pairs.routed(exchange, group, channel, given)
    return len(ids)


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
    tell: Tell | None,
    own: _OwnBlock | None,
    strict: bool = False,
    relayed: PublishedRun | None = None,
) -> OnReply | None:
    if tell is None:
        return None

    def on_reply(reply: object, index: int) -> None:
        if isinstance(reply, errors.Refusal):
            if relayed is None or not relayed.unknown():
                tell(False, None)
        elif not isinstance(reply, Refused):
            tell(True, None)
        else:
            ok = reply.reason == "deleted" and not strict
            some = None if ok or own is None or not reply.accepted else own.after(reply.accepted)
            tell(ok, some)

    return on_reply
