"""This node's view of the cluster: the leader of each group, and the handler of each message."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from warren_broker.cluster import messages
from warren_broker.cluster.client.queue_client import SEEK_INTERVAL_MS_MAX, GroupClient
from warren_broker.cluster.client.uplink import InFlight, Sent, Uplink
from warren_broker.cluster.leader.block_cache import BlockCache, check_entry
from warren_broker.cluster.leader.leader_effects import LeaderCallbacks, LeaderEffects
from warren_broker.cluster.leader.set_aside import SetAsideCounts
from warren_broker.cluster.remote_deliveries import RemoteDeliveries, moved
from warren_broker.counting.counters import RECEIVED, Counters
from warren_broker.counting.message_stats import MessageCounts
from warren_machines.queue.commands import Delivery, GetReply, SubmissionReply
from warren_raft.core.quorum import majority
from warren_raft.errors import NotLeader, UsageError
from warren_raft.machine import Applied, Meta
from warren_raft.measures import COUNTS, Histogram
from warren_raft.runtime.host import Host, MessageHandler, UnknownGroup
from warren_raft.runtime.loop import Loop, LoopStage, LoopTimer
from warren_raft.runtime.net.handshake import Hello
from warren_raft.runtime.observer import Observer
from warren_raft.types import METADATA_GROUP, Membership
from warren_wire.block.block import Block, BlockError

log = logging.getLogger(__name__)
HAND_OVER_WAIT_MS = 2_000
"""A leadership that is handed over on purpose waits no longer for what is under way."""
LOST_MAJORITY_PAGE = "docs/how-to/lost-majority.md"
"""What to do about one, for an operator."""

MakeHost = Callable[[Observer, MessageHandler], Host]
OnPeerMessage = Callable[[str, Any, memoryview], None]


@dataclass(frozen=True)
class ClusterCallbacks:
    """What the cluster asks of parts of the broker that are constructed after it.

    metadata_applied   called with each command applied in the metadata group, see `Observer`
    metadata_restored  called when that group's state was replaced by a snapshot
    metadata_led       called when this node becomes its leader
    judge_peer         returns why an authenticated node is refused; None: it is accepted
    leader             what the effects of queues led here ask
    """

    metadata_applied: Callable[[Meta, bytes, Applied, bool], None]
    metadata_restored: Callable[[], None]
    metadata_led: Callable[[], None]
    judge_peer: Callable[[Hello], str | None]
    leader: LeaderCallbacks


class LeaderHints:
    """Hints, never truth: a submission to the wrong node is answered with a better hint.

    Invariant: a hint of a lower term never replaces one of a higher term.
    """

    __slots__ = ("_leaders",)

    def __init__(self) -> None:
        self._leaders: dict[int, tuple[str, int]] = {}

    def learn(self, group: int, node: str, term: int) -> bool:
        """Record that `node` leads since `term`; return whether that is news."""
        known = self._leaders.get(group)
        if known is not None and (term < known[1] or known == (node, term)):
            return False
        self._leaders[group] = (node, term)
        return True

    def leader(self, group: int) -> str | None:
        """Return the node to try first."""
        known = self._leaders.get(group)
        return known[0] if known else None

    def term(self, group: int) -> int:
        """Return the term of that leader; 0: unknown."""
        known = self._leaders.get(group)
        return known[1] if known else 0

    def deny(self, group: int, node: str) -> None:
        """Drop the hint that `node` leads, which it denies."""
        known = self._leaders.get(group)
        if known is not None and known[0] == node:
            del self._leaders[group]

    def forget_node(self, node: str) -> list[int]:
        """Drop the hints about an unreachable node; return the groups concerned, ascending."""
        groups = sorted(group for group, known in self._leaders.items() if known[0] == node)
        for group in groups:
            del self._leaders[group]
        return groups

    def forget_group(self, group: int) -> None:
        """Drop the hint about a deleted group."""
        self._leaders.pop(group, None)


class Cluster(Observer):
    """Observes the host, holds the group clients, dispatches messages from peers.

    turn_blocks, turn_messages  of one turn: blocks that were made for queues, and the messages
                 that clients have published meanwhile
    remark       text about the cluster's resource alarms, appended to timeout messages; "" without
                 them (`ResourceAlarms` keeps it)
    The lists `on_…` hold functions that are called with what happens:
    on_leader    called with a group when its leader, as known here, has changed
    on_led       called with a group when this node becomes its leader
    on_members   called with a group when a new membership is committed
    on_hand_over called with a group that this node is about to hand over, for how long that may
                 wait, and what to call once when nothing is under way for it any more; False:
                 nothing is, and it will not be called
    handlers     handler of each peer message type; parts that talk to the same part on other
                 nodes (reads, replies) add theirs
    """

    def __init__(
        self,
        loop: Loop,
        make_host: MakeHost,
        queue_bytes_max: int,
        node_bytes_max: int,
        callbacks: ClusterCallbacks,
        counts_pairs: bool = False,
    ) -> None:
        """make_host: makes the host that this object observes.

        counts_pairs  see `MessageCounts`
        """
        self.loop = loop
        self.host = make_host(self, self.on_message)
        self._callbacks = callbacks
        self.queue_bytes_max = queue_bytes_max
        self.node_bytes_max = node_bytes_max
        self.in_flight = InFlight()
        self.turn_blocks, self.turn_messages = Histogram(COUNTS), Histogram(COUNTS)
        self._pumped = (0, 0)
        self.counters = Counters()
        self.queue_counts = MessageCounts(counts_pairs)
        self.leader_hints = LeaderHints()
        self.clients: dict[int, GroupClient] = {}
        self.stored = BlockCache(lambda group, indexes: self.host.read_data(group, indexes))
        self.on_disk_full: list[Callable[[bool], None]] = []
        self.remark = ""
        self.on_peer_up: list[Callable[[str], None]] = []
        self.on_peer_down: list[Callable[[str], None]] = []
        self.on_peer_suspected: list[Callable[[str], None]] = []
        self.on_peer_gone: list[Callable[[str], None]] = []
        self.on_peer_back: list[Callable[[str], None]] = []
        self.on_leader: list[Callable[[int], None]] = []
        self.on_led: list[Callable[[int], None]] = []
        self.on_members: list[Callable[[int], None]] = []
        self.on_hand_over: list[Callable[[int, int, Callable[[], None]], bool]] = []
        self._handed_over: dict[int, str] = {}
        self.handlers: dict[type, OnPeerMessage] = {
            messages.Submit: self._on_submit,
            messages.LeaderIsElsewhere: self._on_not_leader,
            messages.LeaderIs: self._on_leader_is,
            messages.WhoLeads: self._on_who_leads,
            messages.Replied: self._on_replied,
            messages.Got: self._on_got,
            messages.ConsumerCancelled: self._on_told,
            messages.ConsumerActive: self._on_told,
        }
        self.set_aside = SetAsideCounts(self)
        self.effects = LeaderEffects(self, callbacks.leader)
        self._got: dict[tuple[int, int, int], Block] = {}
        self._delivered = RemoteDeliveries(self)
        self._touched: list[GroupClient] = []
        self._acks_late: list[tuple[GroupClient, int]] = []
        self._acks_held: list[GroupClient] = []
        self._acks_timer: LoopTimer | None = None
        self._waiting: dict[int, Callable[[], None]] = {}
        self._nodes = {self.host.boot_id: self.host.node_id}

    def node_of(self, uplink: int) -> str | None:
        """Return the node that runs with this boot id; None: there is none now."""
        return self._nodes.get(uplink)

    def hand_over(self, group: int, to: str, wait_ms: int = HAND_OVER_WAIT_MS) -> None:
        """Transfer a leadership on purpose, once what is under way for the group is finished.

        wait_ms  the transfer begins so much later at most
        raises   NotLeader, UnknownGroup, UsageError when `to` is no voter
        """
        waits = group in self._handed_over
        self._handed_over[group] = to
        if waits:
            return
        if self.host.is_leader(group) and to in self.host.members(group).voters:
            for finish in self.on_hand_over:
                if finish(group, wait_ms, lambda: self._transfer(group)):
                    return
        self.host.transfer(group, self._handed_over.pop(group))

    def _transfer(self, group: int) -> None:
        to = self._handed_over.pop(group)
        try:
            self.host.transfer(group, to)
        except (NotLeader, UnknownGroup, UsageError) as error:
            log.info("group %d: no leadership transfer to %s: %s", group, to, error)

    # ------------------------------------------------------------ clients of groups

    def client(self, group: int) -> GroupClient | None:
        """Return this node's side of a group, if it is known here."""
        return self.clients.get(group)

    def open_client(self, group: int, members: tuple[str, ...], uplink: Uplink) -> GroupClient:
        """Return this node's side of a group, created if needed."""
        client = self.clients.get(group)
        if client is None:
            client = self.clients[group] = GroupClient(self, group, members, uplink)
        return client

    def close_client(self, group: int) -> GroupClient | None:
        """Drop this node's side of a deleted group."""
        self.leader_hints.forget_group(group)
        self.stored.drop_group(group)
        self._delivered.stop(group)
        self.set_aside.forget(group)
        self.queue_counts.forget(group)
        return self.clients.pop(group, None)

    def leader_of(self, group: int) -> str | None:
        """Return the node to send to, if one is known."""
        return self.host.leader(group) or self.leader_hints.leader(group)

    def term_of(self, group: int) -> int:
        """Return the term of that leader."""
        return self.host.term(group) or self.leader_hints.term(group)

    def submit(self, leader: str, group: int, sent: Sent) -> bool:
        """Propose a submission here, or send it to the leader."""
        if leader != self.host.node_id:
            message = messages.Submit(group, sent.seq, len(sent.data))
            return self.host.send(leader, messages.encode(message, sent.data))
        try:
            self.host.propose(group, sent.data)
        except (NotLeader, UnknownGroup):
            self.leader_hints.deny(group, leader)
            return False
        return True

    def touch(self, client: GroupClient) -> None:
        """Pump a client at the end of this pass of the loop."""
        if not self._touched:
            self.loop.at_turn_end(LoopStage.GATHER, self._pump)
        self._touched.append(client)

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call something in so many milliseconds."""
        self.loop.call_later(delay_ms, call)

    @property
    def version(self) -> int:
        """The cluster's version."""
        return self.host.version

    def touch_later(self, client: GroupClient, delay_ms: int) -> None:
        """Have a client send the acknowledgements that wait, when they have waited long enough.

        Unless they are sent in this turn. One timer is for all clients: what has waited for
        different queues is one batch of the log, and one message to each peer.
        """
        if not self._acks_late:
            self.loop.at_turn_end(LoopStage.LATE, self._wait_for_acks)
        self._acks_late.append((client, self.loop.now_ms + delay_ms))

    def _wait_for_acks(self) -> None:
        late, self._acks_late = self._acks_late, []
        due_ms = 0
        for client, when_ms in late:
            if client.holds_acks():
                self._acks_held.append(client)
                due_ms = min(due_ms or when_ms, when_ms)
        timer = self._acks_timer
        if due_ms and (timer is None or not timer.active):
            self._acks_timer = self.loop.call_at(due_ms, self._acks_due)
        elif due_ms and timer is not None and due_ms < timer.when_ms:
            timer.move(due_ms)

    def _acks_due(self) -> None:
        held, self._acks_held = self._acks_held, []
        for client in held:
            client.ack_wait_over()

    def now_ms(self) -> int:
        """Return the time of this pass of the loop."""
        return self.loop.now_ms

    def _pump(self) -> None:
        touched, self._touched = self._touched, []
        for client in touched:
            client.pump()
        blocks = self.in_flight.blocks - self._pumped[0]
        if blocks:
            values, messages = self.counters.values, 0
            for key in RECEIVED:
                messages += values[key]
            before, self._pumped = self._pumped[1], (self.in_flight.blocks, messages)
            messages -= before
            of_blocks, of_messages = self.turn_blocks, self.turn_messages
            of_blocks.counts[bisect_left(of_blocks.bounds, blocks)] += 1
            of_blocks.total += blocks
            of_messages.counts[bisect_left(of_messages.bounds, messages)] += 1
            of_messages.total += messages

    def seek(self, client: GroupClient) -> None:
        """Ask the members of a group until its leader is found."""
        if not client.seeking:
            client.seeking = True
            self._ask_members(client)
            self.loop.call_later(client.seek_delay_ms, lambda: self._seek_again(client))

    def _seek_again(self, client: GroupClient) -> None:
        if not client.seeking or self.clients.get(client.group) is not client:
            return
        leader = self.leader_of(client.group)
        if leader == self.host.node_id or (leader is not None and self.host.connected(leader)):
            client.leader_found(leader, self.term_of(client.group))
            return
        client.seek_delay_ms = min(client.seek_delay_ms * 2, SEEK_INTERVAL_MS_MAX)
        self._ask_members(client)
        self.loop.call_later(client.seek_delay_ms, lambda: self._seek_again(client))

    def _ask_members(self, client: GroupClient) -> None:
        question = messages.encode(messages.WhoLeads(client.group))
        for member in client.members:
            if member != self.host.node_id and self.host.connected(member):
                self.host.send(member, question)

    def ask_who_leads(self, group: int) -> None:
        """Ask every node for the leader of a group without a client here."""
        self._announce(messages.WhoLeads(group))

    # ------------------------------------------------------------ backpressure

    def congested(self, client: GroupClient) -> bool:
        """Return whether too many bytes are in flight to take more from the client's publishers."""
        return (
            client.uplink.waited_for_bytes > self.queue_bytes_max
            or self.in_flight.size_bytes > self.node_bytes_max
        )

    def call_when_relieved(self, key: int, call: Callable[[], None]) -> None:
        """Call once when bytes in flight have decreased; replaces an earlier call of the key."""
        self._waiting[key] = call

    def forget_waiting(self, key: int) -> None:
        """Drop the call registered under that key."""
        self._waiting.pop(key, None)

    def answered(self, client: GroupClient) -> None:
        """Call what waits for relief, if bytes in flight have decreased enough."""
        if not self._waiting or 2 * client.uplink.waited_for_bytes > self.queue_bytes_max:
            return
        if 2 * self.in_flight.size_bytes <= self.node_bytes_max:
            waiting, self._waiting = self._waiting, {}
            for call in waiting.values():
                call()

    # ------------------------------------------------------------ events of the host (Observer)

    def applied(self, group: int, meta: Meta, data: bytes, applied: Applied, leading: bool) -> None:
        """See `Observer`."""
        if group == METADATA_GROUP:
            self._callbacks.metadata_applied(meta, data, applied, leading)
        elif leading:
            self.effects.applied(group, meta, data, applied)

    def restored(self, group: int) -> None:
        """See `Observer`."""
        if group == METADATA_GROUP:
            self._callbacks.metadata_restored()

    def members_changed(self, group: int, membership: Membership) -> None:
        """See `Observer`."""
        for call in self.on_members:
            call(group)

    def leader_changed(self, group: int, leader: str | None, term: int, leading: bool) -> None:
        """See `Observer`."""
        if not leading:
            if group in self.effects.led:
                self._announce(messages.LeaderIsElsewhere(group, leader, term))
            self.effects.stop(group)
        client = self.clients.get(group)
        if leader is not None and not leading:
            if client is not None:
                client.leader_found(leader, term)
            self._tell_leader(group)

    def became_leader(self, group: int, effects: tuple[object, ...]) -> None:
        """See `Observer`."""
        self._announce(messages.LeaderIs(group, self.host.term(group)))
        if group != METADATA_GROUP:
            self.effects.start(group, effects)
        else:
            self._callbacks.metadata_led()
        client = self.clients.get(group)
        if client is not None:
            client.leader_found(self.host.node_id, self.host.term(group))
        self._tell_leader(group)
        for call in self.on_led:
            call(group)

    def _announce(
        self, message: messages.LeaderIs | messages.LeaderIsElsewhere | messages.WhoLeads
    ) -> None:
        """Send a message to every node: those that are not members learn of leaders only so.

        The end of a leadership must be announced unasked. 1. A client's only publish is proposed
        here.  2. The others elect another leader, which that client's node cannot reach just now.
        3. This one steps down: without an announcement no node would ever answer the client's node,
        and nothing else is sent.
        """
        data = messages.encode(message)
        for node in self.peers():
            self.host.send(node, data)

    def _tell_leader(self, group: int) -> None:
        for call in self.on_leader:
            call(group)

    def peers(self) -> list[str]:
        """Return every node with an established connection, sorted."""
        return sorted({node for node in self._nodes.values() if self.host.connected(node)})

    def lost_majority(self, members: Sequence[str]) -> str:
        """Return which members this node does not reach, since when, and what to do.

        members  names of nodes
        """
        if not members:  # of a cluster that this node has not joined
            return f"most nodes are out of reach; start them, or see {LOST_MAJORITY_PAGE}"
        clock = self.loop.clock
        epoch_ms = clock.epoch_ms() - clock.monotonic_ms()
        away = [
            f"{node} since {_time((epoch_ms + since_ms) / 1000)}"
            for node in members
            if (since_ms := self.host.silent_since_ms(node)) is not None
        ]
        if not away:
            return (
                f"its members {', '.join(members)} are within this node's reach, and have no "
                "leader that it knows; try again"
            )
        said = f"{len(away)} of {len(members)} members are unreachable ({', '.join(away)})"
        if len(members) - len(away) < majority(len(members)):
            return f"it has lost its majority: {said}; start them, or see {LOST_MAJORITY_PAGE}"
        return f"{said}, and the others have no leader that this node knows; try again"

    def disk_full(self, full: bool) -> None:
        """See `Observer`."""
        for call in self.on_disk_full:
            call(full)

    def judge_peer(self, hello: Hello) -> str | None:
        """See `Observer`."""
        return self._callbacks.judge_peer(hello)

    def peer_up(self, node: str, boot_id: int) -> None:
        """See `Observer`."""
        self._nodes[boot_id] = node
        for client in list(self.clients.values()):
            group = client.group
            if self.leader_of(group) == node:
                client.leader_found(node, self.term_of(group), reconnected=True)
            elif node in client.members and client.busy and self.host.leader(group) is None:
                # It may have become the leader, and announced it, while it was unreachable.
                self.host.send(node, messages.encode(messages.WhoLeads(group)))
        for call in self.on_peer_up:
            call(node)

    def peer_down(self, node: str) -> None:
        """See `Observer`."""
        self.leader_hints.forget_node(node)
        for client in list(self.clients.values()):
            if client.told[0] == node:
                # It may have led all the time, in the same term: what was under way is lost anyway,
                # so that its return must count as a new leader.
                client.told = ("", 0)
                if client.busy:
                    self.seek(client)
        for call in self.on_peer_down:
            call(node)

    def peer_suspected(self, node: str) -> None:
        """See `Observer`."""
        log.warning("node %s is suspected: no sign of life", node)
        self.effects.node_suspected(node)
        for call in self.on_peer_suspected:
            call(node)

    def peer_gone(self, node: str) -> None:
        """See `Observer`."""
        log.warning("node %s is down: nothing listens at its address", node)
        self.effects.node_suspected(node)
        for call in self.on_peer_gone:
            call(node)

    def peer_back(self, node: str) -> None:
        """See `Observer`."""
        self.effects.node_back(node)
        for call in self.on_peer_back:
            call(node)

    def peer_restarted(self, node: str, old_boot_id: int, new_boot_id: int) -> None:
        """See `Observer`."""
        self._nodes.pop(old_boot_id, None)
        self._nodes[new_boot_id] = node
        self.effects.node_down(old_boot_id)

    # ------------------------------------------------------------ messages from other nodes

    def on_message(self, node: str, data: memoryview) -> None:
        """Handle an application message from a peer; raises MalformedPeerMessage."""
        message, rest = messages.decode(data)
        handler = self.handlers.get(type(message))
        if handler is None:
            return
        try:
            handler(node, message, rest)
        except BlockError as error:
            raise messages.MalformedPeerMessage(f"from {node}: {error}") from error

    def _on_submit(self, node: str, message: messages.Submit, rest: memoryview) -> None:
        (data,) = messages.cut(rest, (message.length,))
        group = message.group
        check_entry(data)
        try:
            self.host.propose(group, bytes(data))
        except (NotLeader, UnknownGroup):
            reply = messages.LeaderIsElsewhere(
                group, self.host.leader(group), self.host.term(group)
            )
            self.host.send(node, messages.encode(reply))

    def _on_not_leader(
        self, node: str, message: messages.LeaderIsElsewhere, rest: memoryview
    ) -> None:
        group = message.group
        self.leader_hints.deny(group, node)
        if message.leader != node:
            # 1. A leader hands over, and leaves the group.  2. Its successor dies.  3. A member
            # that knows of neither follows the first, which still runs: it would never vote for
            # another. Replayed by tests/broker/cluster/test_leader_news.py.
            self.host.leader_denied(group, node)
        if message.leader is not None and message.leader != node:
            self.leader_hints.learn(group, message.leader, message.term)
        client = self.clients.get(group)
        if client is None:
            return
        leader = self.leader_of(group)
        if leader != node and not client.seeking and client.told == (leader, self.term_of(group)):
            return  # no news: everything was sent to the present leader
        client.uplink.rewind()
        self.seek(client)

    def _on_leader_is(self, node: str, message: messages.LeaderIs, rest: memoryview) -> None:
        news = self.leader_hints.learn(message.group, node, message.term)
        client = self.clients.get(message.group)
        if client is not None and (news or client.seeking):
            client.leader_found(node, message.term)
        if news:
            self._tell_leader(message.group)

    def _on_who_leads(self, node: str, message: messages.WhoLeads, rest: memoryview) -> None:
        group = message.group
        # 1. The leadership is being transferred to a member that does not answer: nothing can be
        # proposed.  2. A node that is refused asks for the leader.  3. If it were told that this
        # node leads, it would submit everything again, be refused and ask again, at network speed.
        host = self.host
        if host.is_leader(group):
            if not host.hands_over(group):
                host.send(node, messages.encode(messages.LeaderIs(group, host.term(group))))
            return
        leader = host.leader(group)
        if message.passed_on:
            denial = messages.LeaderIsElsewhere(group, leader, host.term(group))
            host.send(node, messages.encode(denial))
        elif leader is not None:
            # A node looks for a leader while this member follows one: ask whether that still leads.
            host.send(leader, messages.encode(messages.WhoLeads(group, passed_on=True)))

    def reply_to(self, group: int, index: int, reply: SubmissionReply) -> bool:
        """Send a leader's answer to the submitting node; return False if that process has ended."""
        if reply.uplink == self.host.boot_id:
            client = self.clients.get(group)
            if client is not None:
                client.replied(reply.seq, reply.replies, index, reply.expected_seq, reply.retired)
            return True
        node = self._nodes.get(reply.uplink)
        if node is None:
            return False  # that process has ended: nothing waits for the answer
        for answer in reply.replies:
            if isinstance(answer, GetReply) and answer.delivery is not None:
                self._send_got(node, group, answer.delivery)
        self.host.send(node, messages.encode(messages.Replied(group, index, reply)))
        return True

    def _send_got(self, node: str, group: int, delivery: Delivery) -> None:
        try:
            block = self.stored.for_delivery(group, delivery.index, delivery.last)
        except KeyError:
            return  # released in the meantime: the session has ended, nothing waits for it
        data = block.slice(delivery.first, delivery.last + 1)
        got = messages.Got(group, delivery.index, delivery.first, len(data))
        self.host.send(node, messages.encode(got, data))

    def _on_got(self, node: str, message: messages.Got, rest: memoryview) -> None:
        (data,) = messages.cut(rest, (message.length,))
        self._got[(message.group, message.index, message.ordinal)] = Block.decode(bytes(data))

    def got(self, group: int, delivery: Delivery) -> tuple[Delivery, Block]:
        """Return the message of a `GetReply` as a delivery with its block."""
        block = self._got.pop((group, delivery.index, delivery.first), None)
        if block is not None:
            return moved(delivery), block
        return delivery, self.stored.for_delivery(group, delivery.index, delivery.last)

    def _on_replied(self, node: str, message: messages.Replied, rest: memoryview) -> None:
        client = self.clients.get(message.group)
        reply = message.reply
        if client is not None and reply.uplink == self.host.boot_id:
            client.replied(
                reply.seq, reply.replies, message.index, reply.expected_seq, reply.retired
            )
        # The session that asked has taken its message by now. What was not taken (a repeated
        # answer, or one after the client was told that the queue is out of reach) would stay
        # forever.
        for answer in reply.replies if self._got else ():
            if isinstance(answer, GetReply) and answer.delivery is not None:
                delivery = answer.delivery
                self._got.pop((message.group, delivery.index, delivery.first), None)

    def _on_told(
        self,
        node: str,
        message: messages.ConsumerCancelled | messages.ConsumerActive,
        rest: memoryview,
    ) -> None:
        client = self.clients.get(message.group)
        if client is not None and message.effect.uplink == self.host.boot_id:
            client.hear(message.effect)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
