"""Side effects of the queues that this node leads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from warren_broker.cluster.leader.effect_order import EffectOrder
from warren_broker.cluster.leader.filter_scans import FilterScans
from warren_broker.cluster.leader.set_aside import SetAsideCounts
from warren_broker.cluster.remote_deliveries import DeliveringNode, DeliveryWindows
from warren_broker.counting.counters import Counters
from warren_machines.queue import effects as queue_effects
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import (
    AnyCommand,
    NodeBack,
    NodeDown,
    NodeSuspected,
    Submission,
    SubmissionReply,
    Timer,
)
from warren_raft.errors import NotLeader
from warren_raft.machine import Applied, Meta
from warren_raft.runtime.host import UnknownGroup
from warren_raft.runtime.loop import Loop, LoopStage, LoopTimer

EFFECTS_RETRY_MS = 100
"""Interval between proposals that are refused during a leadership transfer."""


class _Incarnation(NamedTuple):
    """An uplink of a queue: its node, incarnation number (0: none), and whether it is suspected."""

    uplink: int
    node: str
    number: int
    suspected: bool


class QueueNodes(DeliveringNode, Protocol):
    """The part of the cluster that the effects of a queue need."""

    loop: Loop
    set_aside: SetAsideCounts
    counters: Counters

    def node_of(self, uplink: int) -> str | None:
        """Return the node that runs with this boot id; None: there is none now."""

    def reply_to(self, group: int, index: int, reply: SubmissionReply) -> bool:
        """Send a reply to the submission's node; return False when there is none."""


@dataclass(frozen=True)
class LeaderCallbacks:
    """What the effects of queues led here ask of other parts of the broker.

    is_over      returns whether an incarnation is known to have ended: (node, uplink, number)
    expired      called with a queue to be deleted: (group, reason)
    dead_letter  called with messages for the dead letter exchange: (group, effect)
    letters      called with letters that are to be forwarded, or have left: (group, effect)
    jobs         called when jobs of a queue are to be carried on: (group, effect)
    """

    is_over: Callable[[str, int, int], bool]
    expired: Callable[[int, str], None]
    dead_letter: Callable[[int, queue_effects.DeadLetter], None]
    letters: Callable[[int, queue_effects.LettersDue | queue_effects.LettersGone], None]
    jobs: Callable[[int, queue_effects.JobsDue], None]


class _Later(NamedTuple):
    """Effects of an entry (its index) of which the submission has been answered."""

    group: int
    entry: int
    effects: tuple[Any, ...]


class LeaderEffects:
    """Carries out the effects of queues led here.

    Where messages come one at a time, a publisher waits for its confirm, and making the delivery
    takes as long again: so the confirm leaves first. The deliveries follow in the same turn, and
    before the next entry's answer: a consumer that is cancelled by it gets them before.

    Invariants: there are timers, waiting commands and `_later` only of groups in `led`;
    nothing is put off in a turn that applies a second entry
    """

    def __init__(self, cluster: QueueNodes, callbacks: LeaderCallbacks) -> None:
        self._cluster = cluster
        self._is_over = callbacks.is_over
        self.led: set[int] = set()
        self._timers: dict[int, tuple[int, LoopTimer]] = {}
        self._waiting: dict[int, list[AnyCommand]] = {}
        self._later: _Later | None = None
        self._put_off_in = -1
        self._scans = FilterScans(cluster, self.command, self.led)
        self._remote = DeliveryWindows(cluster)
        self._held = EffectOrder(
            lambda group, index, call: cluster.host.repair.when(group, index, call),
            self._answer_guarded,
            self._carry_out,
            self._missing,
        )
        self._run: dict[type, Callable[[int, Any], None]] = {
            queue_effects.Deliver: self._deliver,
            queue_effects.CancelConsumer: self._tell_consumer,
            queue_effects.ActiveIs: self._tell_consumer,
            queue_effects.SetTimer: self._set_timer,
            queue_effects.DeadLetter: callbacks.dead_letter,
            queue_effects.Dropped: self._dropped,
            queue_effects.FiltersBehind: self._scans.due,
            queue_effects.LettersDue: callbacks.letters,
            queue_effects.LettersGone: callbacks.letters,
            queue_effects.JobsDue: callbacks.jobs,
            queue_effects.Expired: lambda group, effect: callbacks.expired(group, effect.reason),
        }

    # ------------------------------------------------------------ leadership

    def start(self, group: int, effects: tuple[Any, ...]) -> None:
        """Start leading a group: report to it what happened to its consumers' nodes."""
        self.led.add(group)
        self._scans.forget(group)
        self._held.carry_out(group, 0, None, effects)
        host = self._cluster.host
        for one in self._uplinks(group):
            # Only the definitions know which incarnation is the older one. 1. A node restarts and
            # submits here. 2. The leader dies; this member takes over, still connected to the old
            # incarnation. 3. Ending every incarnation unknown here would end the new one: its
            # consumers, its numbers.
            node = one.node
            if self._is_over(node, one.uplink, one.number):
                self._end(group, one)
            elif host.suspected(node):
                self.command(group, self._suspicion(node))
            elif one.suspected:
                # 1. The leader suspects a node, and says so in the log.  2. The node is back, or
                # only that leader could not reach it, or it is this one.  3. The leader dies.
                # Nothing changes any more, so no other event would ever resume its consumers.
                self.command(group, NodeBack(node))

    def stop(self, group: int) -> None:
        """Stop leading a group."""
        self.led.discard(group)
        self._scans.forget(group)
        self._waiting.pop(group, None)
        self._held.drop(group)
        if self._later is not None and self._later.group == group:
            self._later = None
        self._remote.stop(group)
        timer = self._timers.pop(group, None)
        if timer is not None:
            timer[1].cancel()

    def _uplinks(self, group: int) -> list[_Incarnation]:
        """Return the incarnations known to the queue, as applied."""
        uplinks = self._cluster.host.state(group).uplinks
        return [
            _Incarnation(uplink, entry.node, entry.incarnation, bool(entry.suspected_ms))
            for uplink, entry in sorted(uplinks.items())
        ]

    def _end(self, group: int, one: _Incarnation) -> None:
        self.command(group, NodeDown(one.uplink, one.node, one.number))

    def command(self, group: int, command: AnyCommand) -> None:
        """Propose a command of this node's own; a new leader derives it again.

        1. The leadership is being transferred: nothing can be proposed. A node's incarnation ends,
        or a timer is due.  2. The target does not take the leadership.  3. This node keeps leading:
        it must not forget the command, since no other node proposes it.

        Of equal commands the last one counts. 1. A policy is set, cleared and set again meanwhile.
        2. Were the third command dropped because it equals the first, the second would be applied
        last, and the queue would not follow the policy. Replayed by
        tests/broker/cluster/leader/test_policy_follower.py
        """
        waiting = self._waiting.get(group)
        if waiting is not None:
            if command in waiting:
                waiting.remove(command)
            waiting.append(command)
        elif not self._propose(group, command):
            if self._cluster.host.is_leader(group):
                self._waiting[group] = [command]
                self._cluster.loop.call_later(EFFECTS_RETRY_MS, lambda: self._again(group))
            else:
                self.stop(group)

    def _propose(self, group: int, command: AnyCommand) -> bool:
        host = self._cluster.host
        submission = Submission(0, host.node_id, 0, (command,), host.version)
        try:
            host.propose(group, encode_submission(submission, None))
        except (NotLeader, UnknownGroup):
            return False
        return True

    def _again(self, group: int) -> None:
        """Propose the waiting commands in their order."""
        for command in self._waiting.pop(group, ()):
            self.command(group, command)

    def definitions_replaced(self) -> None:
        """End the incarnations that are over, after the definitions were restored from a snapshot.

        1. A node starts, and leads a queue before it knows the definitions: no incarnation is known
        to have ended.  2. It receives them as a snapshot.
        """
        self._end_all(lambda one: self._is_over(one.node, one.uplink, one.number))

    def node_renewed(self, node: str) -> None:
        """End a node's earlier incarnations, after it has restarted or has left."""
        self._end_all(lambda one: one.node == node and self._is_over(node, one.uplink, one.number))

    def node_down(self, uplink: int) -> None:
        """End that incarnation of a node."""
        self._end_all(lambda one: one.uplink == uplink)

    def _end_all(self, ended: Callable[[_Incarnation], bool]) -> None:
        for group in sorted(self.led):
            for one in self._uplinks(group):
                if ended(one):
                    self._end(group, one)

    def _end_what_is_over(self, group: int, uplink: int) -> None:
        """End incarnations after a submission by an uplink that is new to the queue or unreachable.

        1. A node's first submission to this queue is on its way.  2. The node restarts; the queue
        does not know its old incarnation, so nothing is ended.  3. The submission is applied.
        Its consumers would hold messages uselessly until the leader changes.

        Or: 1. The node restarts.  2. Its new incarnation submits here before this node learns of
        that from the definitions.  The old one's consumers would hold messages until then.
        """
        known = self._uplinks(group)
        entry = next((one for one in known if one.uplink == uplink), None)
        if entry is None:
            return
        for one in known:
            older = entry.number > one.number and one.node == entry.node
            if older or (one is entry and self._is_over(one.node, uplink, one.number)):
                self._end(group, one)

    def _suspect_if_silent(self, group: int, uplink: int) -> None:
        """Report the suspicion of a node after the first submission of its uplink to the queue.

        1. A node's first submission to this queue is on its way.  2. The node becomes unreachable:
        the queues that know it are told, this one does not know it.  3. The submission is applied.
        Its consumers would be given messages, and hold them for as long as the node is away.
        """
        entry = self._cluster.host.state(group).uplinks.get(uplink)
        if entry is not None and not entry.suspected_ms:
            if self._cluster.host.suspected(entry.node):
                self.command(group, self._suspicion(entry.node))

    def _suspicion(self, node: str) -> NodeSuspected:
        return NodeSuspected(node, hand_over=True, gone=self._cluster.host.gone(node))

    def node_suspected(self, node: str) -> None:
        """Suspend a node's consumers; take back what they hold when its process has ended."""
        self._tell(node, self._suspicion(node))

    def node_back(self, node: str) -> None:
        """Resume the consumers of a node that is reachable again."""
        self._tell(node, NodeBack(node))

    def _tell(self, node: str, command: AnyCommand) -> None:
        for group in sorted(self.led):
            if any(one.node == node for one in self._uplinks(group)):
                self.command(group, command)

    # ------------------------------------------------------------ effects

    def _carry_out(self, group: int, effect: object) -> None:
        """Run one effect; a failure concerns its messages only (`set_aside`)."""
        run = self._run[type(effect)]
        self._cluster.set_aside.attempt(group, type(effect).__name__, run, group, effect)

    def applied(self, group: int, meta: Meta, data: bytes, applied: Applied) -> None:
        """Answer, then carry out the effects: a consumer is accepted before its first message."""
        reply, effects = applied.reply, applied.effects
        if reply is not None and not reply.uplink:
            reply = None
        if self._later is not None:
            self._carry_out_later()
        elif reply is not None and effects and self._may_put_off(reply, effects):
            self._held.carry_out(group, meta.index, reply, ())
            if group in self.led:
                self._later = _Later(group, meta.index, effects)
                self._cluster.loop.at_turn_end(LoopStage.EFFECTS, self._carry_out_later)
            return
        self._held.carry_out(group, meta.index, reply, effects)

    def _may_put_off(self, reply: SubmissionReply, effects: tuple[object, ...]) -> bool:
        """Return whether the answer is for this node, and these are the turn's first deliveries.

        Another node is sent the answer and what it delivers together: they cost it one turn.
        """
        if reply.uplink != self._cluster.host.boot_id:
            return False
        turn, before = self._cluster.loop.turn, self._put_off_in
        if turn == before or type(effects[0]) is not queue_effects.Deliver:
            return False
        self._put_off_in = turn
        return True

    def _carry_out_later(self) -> None:
        later, self._later = self._later, None
        if later is not None:
            self._held.carry_out(later.group, later.entry, None, later.effects)

    def _missing(self, group: int, effect: object) -> None:
        where = f"{type(effect).__name__} {effect}"[:200]
        self._cluster.set_aside.note(group, where, "an entry that it needs is not in the log")

    def _answer_guarded(self, group: int, index: int, reply: object) -> None:
        self._cluster.set_aside.attempt(
            group, f"the answer of entry {index}", self._answer, group, index, reply
        )

    def _answer(self, group: int, index: int, reply: Any) -> None:
        heard = self._cluster.reply_to(group, index, reply)
        if reply.seq == 1 or not heard:
            self._end_what_is_over(group, reply.uplink)
        if reply.seq == 1:
            self._suspect_if_silent(group, reply.uplink)

    def _deliver(self, group: int, effect: queue_effects.Deliver) -> None:
        cluster = self._cluster
        stored = cluster.stored
        if effect.uplink == cluster.host.boot_id:
            client = cluster.client(group)
            if client is not None:
                for delivery in effect.deliveries:
                    if not client.takes(effect.consumer):
                        return  # the block is not even read
                    block = stored.for_delivery(group, delivery.index, delivery.last)
                    client.delivered(effect.consumer, delivery, block)
            return
        node = cluster.node_of(effect.uplink)
        if node is None:
            return
        self._remote.deliver(node, group, effect)

    def _tell_consumer(
        self, group: int, effect: queue_effects.CancelConsumer | queue_effects.ActiveIs
    ) -> None:
        cluster = self._cluster
        if effect.uplink == cluster.host.boot_id:
            client = cluster.client(group)
            if client is not None:
                client.hear(effect)
            return
        node = cluster.node_of(effect.uplink)
        if node is not None:
            self._remote.follow(node, group, effect)

    def _dropped(self, group: int, effect: queue_effects.Dropped) -> None:
        cluster = self._cluster
        kind = cluster.host.state(group).config.kind
        for reason, count in effect.died:
            cluster.counters.died(reason, kind, "disabled", count)

    def _set_timer(self, group: int, effect: queue_effects.SetTimer) -> None:
        known = self._timers.get(group)
        if known is not None:
            if known[0] == effect.at_ms and known[1].active:
                return
            known[1].cancel()
        loop = self._cluster.loop
        delay = max(0, effect.at_ms - self._cluster.host.time_ms(group))
        self._timers[group] = (effect.at_ms, loop.call_later(delay, lambda: self._due(group)))

    def _due(self, group: int) -> None:
        self._timers.pop(group, None)
        if group in self.led:
            self.command(group, Timer())
