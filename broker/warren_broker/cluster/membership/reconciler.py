"""Reconciliation of the groups led here with the members wanted by the definitions.

The intent is in the definitions, so it outlives the node that recorded it: each leader compares it
with its group's members and takes one step at a time, and the next leader continues where this one
stopped. It is checked after events (the intent, the leader or the members changed, a node came
back) and, while a group is not as wanted, periodically. Groups that are as wanted cost nothing.

| after a crash, the next leader finds | and does |
| --- | --- |
| intent changed, members as before | the first step |
| a wanted learner | nothing: Raft promotes it |
| a CONFIG that is not committed | commits it, or loses it and takes the step again |
| removed, `Left` not submitted | submits `Left` |
| `Left` submitted twice | the second changes nothing |
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions, Done
from warren_broker.cluster.membership.membership_step import (
    AddMember,
    CatchingUp,
    Complete,
    RemoveMember,
    Step,
    TransferLeadership,
    Wait,
    next_step,
)
from warren_machines.metadata import commands
from warren_machines.metadata.records import QueueRecord
from warren_raft.core.membership import AddLearner, Remove
from warren_raft.errors import MembershipRefused, NotLeader, UsageError
from warren_raft.runtime.host import UnknownGroup
from warren_raft.types import METADATA_GROUP, Index
from warren_wire import errors

log = logging.getLogger(__name__)
MOVING_MAX = 8
"""Groups led here with members catching up at one time: each transfer moves all live data."""
STALLED_MS = 30_000
"""A learner that has received nothing for so long no longer counts against MOVING_MAX."""
RECONCILE_INTERVAL_MS = 2_000
"""Interval in which a group that is not as wanted is checked."""
LOOKED_AT_MAX = 200
"""Groups checked in one pass at most, so that thousands do not block the loop."""


@dataclass(frozen=True, slots=True)
class Intent:
    """wanted: nodes that should be members; leaving: nodes to be reported once they have left."""

    wanted: tuple[str, ...]
    leaving: tuple[str, ...]


class Reconciler:
    """The members of the groups that this node leads.

    Invariants: `_open` holds the groups led here that are not known to be settled, in the order in
    which they are checked; `_moving`, `_stalled` and `_queued` are parts of it, and no two of them
    have a group in common; the metadata group is in none of the three; while `_open` is not empty
    a timer is scheduled.

    _moving   groups with a learner: (its node, the index it has), and since when
    _stalled  groups with a learner that made no progress for STALLED_MS, and where it is: its disk
              may hang for ever, and others would wait for it
    _since    the queue as it is wanted, and an index of the metadata group at which it was
    _seen     the index of the metadata group that each node is known to have applied
    _asked    nodes that are asked for it
    _current  open groups for which the definitions are as new as the leadership (`_is_current`)
    _behind   those that wait for it; _proving: those for which a barrier is under way
    """

    def __init__(self, cluster: Cluster, definitions: Definitions) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._open: dict[int, None] = {}
        self._moving: dict[int, tuple[tuple[str, int], int]] = {}
        self._stalled: dict[int, tuple[str, int]] = {}
        self._queued: OrderedDict[int, None] = OrderedDict()
        self._since: dict[int, tuple[QueueRecord, Index]] = {}
        self._seen: dict[str, Index] = {}
        self._asked: set[str] = set()
        self._current: set[int] = set()
        self._behind: set[int] = set()
        self._proving: set[int] = set()
        self._at_barrier = False
        self._proposed: dict[int, int] = {}
        self._said: dict[tuple[int, str], None] = {}
        self._refused: dict[int, str] = {}
        self._planned = False
        self._metadata_asked = False
        cluster.on_led.append(self._led)
        cluster.on_members.append(self._members_changed)
        cluster.on_peer_up.append(lambda node: self._soon())
        definitions.on_members.append(self._intent_changed)
        definitions.on_nodes.append(lambda node: self.look(METADATA_GROUP))

    def unsettled(self) -> tuple[int, ...]:
        """Return the groups led here with other members than wanted."""
        return tuple(self._open)

    # ------------------------------------------------------------ when to check

    def _led(self, group: int) -> None:
        self._proposed.pop(group, None)
        self._forget_proof(group)
        self.look(group)

    def _intent_changed(self, group: int) -> None:
        self.look(group)
        # A forgotten node may have been waiting for its removal from this queue as the last one.
        state = self._definitions.state
        if not self._metadata_asked and any(one.forgetting for one in state.nodes.values()):
            self._metadata_asked = True
            self._cluster.loop.call_soon(self._look_at_metadata)

    def _look_at_metadata(self) -> None:
        self._metadata_asked = False
        self.look(METADATA_GROUP)

    def _members_changed(self, group: int) -> None:
        # A voter that lost its disk is demoted, and promoted again, by the group itself: that it is
        # catching up must be visible nevertheless.
        if group in self._open or self._cluster.host.members(group).learners:
            self.look(group)

    def _soon(self) -> None:
        if self._open:
            self._cluster.loop.call_soon(self._look_around)

    def _plan(self) -> None:
        if not self._planned and self._open:
            self._planned = True
            self._cluster.loop.call_later(RECONCILE_INTERVAL_MS, self._again)

    def _again(self) -> None:
        self._planned = False
        self._look_around()
        self._plan()

    def _look_around(self) -> None:
        for group in list(self._open)[:LOOKED_AT_MAX]:
            if group in self._open:
                del self._open[group]  # to the end
                self._open[group] = None
                self.look(group)

    # ------------------------------------------------------------ steps

    def look(self, group: int) -> None:
        """Take the next step for that group, if it is led here and one is needed."""
        host = self._cluster.host
        intent = self._intent(group) if host.is_leader(group) else None
        if intent is None:
            self._close(group)
            return
        members = host.members(group)
        settled = members.voters == intent.wanted and not members.learners
        if settled and not intent.leaving and group not in self._open:
            return
        self._open[group] = None
        self._plan()
        self._tell_left(group, intent)
        members_now = host.member_states(group)
        step = next_step(host.node_id, intent.wanted, members_now, host.connected)
        self._take(group, step, {one.node: one.match for one in members_now})
        if isinstance(step, Complete) and not intent.leaving:
            self._close(group)

    def _intent(self, group: int) -> Intent | None:
        if group == METADATA_GROUP:
            return self._metadata_intent()
        queue = self._definitions.state.groups.get(group)
        if queue is None or not queue.replicated:
            return None
        return Intent(tuple(sorted(queue.nodes)), queue.leaving)

    def _metadata_intent(self) -> Intent:
        """Return all nodes: all carry the definitions, a forgotten one until no queue needs it."""
        state = self._definitions.state
        members = self._cluster.host.members(METADATA_GROUP)
        forgotten = [name for name, one in state.nodes.items() if one.forgetting]
        if forgotten:
            needed = {name for queue in state.queues() for name in queue.carriers}
            forgotten = [name for name in forgotten if name not in needed]
        # A founder that has never connected is not registered, but is a member.
        wanted = {*members.voters, *members.learners, *state.nodes} - {*forgotten}
        return Intent(tuple(sorted(wanted)), tuple(sorted(forgotten)))

    def _take(self, group: int, step: Step, held: Mapping[str, int]) -> None:
        was_moving = group in self._moving
        match step:
            case CatchingUp(node):
                self._catching_up(group, (node, held[node]))
            case AddMember(node):
                # A node joins by the metadata group, which is small: queues must not hold that up.
                if group != METADATA_GROUP and not self._may_add(group, node, was_moving):
                    return
                if self._propose(group, AddLearner(node), f"{node} is added"):
                    self._catching_up(group, (node, 0))
            case RemoveMember(node):
                self._moving.pop(group, None)
                self._propose(group, Remove(node), f"{node} is removed")
            case TransferLeadership(to):
                self._moving.pop(group, None)
                self._hand_over(group, to)
            case Wait(why):
                if why != "a change is under way":
                    self._moving.pop(group, None)
            case Complete():
                self._moving.pop(group, None)
        if was_moving and group not in self._moving:
            self._next_queued()

    def _may_add(self, group: int, node: str, is_moving: bool) -> bool:
        """Return whether the node may be added to a queue's group now; otherwise it is later."""
        seen = self._is_current(group) and self._knows(node, group)
        if not is_moving and (not seen or len(self._moving) >= MOVING_MAX):
            self._queued[group] = None
            return False
        return seen

    def _is_current(self, group: int) -> bool:
        """Return whether the definitions here are as new as this leadership; if not, ask for them.

        1. a and b are a group; a removes b, reports that it has left, and stops; b stops with its
        log.  2. a starts, leads again, and replays the definitions to where b is wanted.  3. b
        starts, and has replayed as much.  4. a adds it and makes it a voter; b replays the rest,
        and deletes its log.  What earlier leaders have reported was applied before a barrier that
        began in this leadership is; later on, this leader reports it itself.
        Replayed by tests/broker/cluster/membership/test_moving.py.
        """
        if group in self._current:
            return True
        self._behind.add(group)
        if not self._at_barrier:
            self._prove()
        return group in self._current

    def _forget_proof(self, group: int) -> None:
        for groups in (self._current, self._behind, self._proving):
            groups.discard(group)

    def _prove(self) -> None:
        self._at_barrier = True
        self._proving, self._behind = self._behind, set()
        self._definitions.submit(commands.Barrier(), self._proved)

    def _proved(self, reply: object) -> None:
        self._at_barrier = False
        proved, self._proving = self._proving, set()
        if isinstance(reply, errors.Refusal):
            self._behind |= proved  # asked again with the next look
            return
        self._current |= proved
        self._next_queued()
        if self._behind and not self._at_barrier:
            self._prove()

    def _knows(self, node: str, group: int) -> bool:
        """Return whether a node has settled its members as this queue is wanted; if not, ask it.

        1. a leads a group of a and b; b is removed, and stops before it has deleted its log.  2. b
        is wanted again.  3. b starts with that log; a adds it, and it has caught up.  4. b replays
        the definitions of 1, and deletes the log.  5. a has made it a voter meanwhile: the group
        has lost its majority for good. So what b deletes by earlier definitions is deleted first.
        Replayed by tests/broker/cluster/membership/test_moving.py.
        """
        queue, host = self._definitions.state.groups[group], self._cluster.host
        known = self._since.get(group)
        if known is None or known[0] is not queue:
            known = self._since[group] = queue, host.applied_index(METADATA_GROUP)
        if self._seen.get(node, 0) < known[1] and node not in self._asked:
            self._asked.add(node)
            self._definitions.when_seen_by(node, lambda index: self._told_seen(node, index))
        return self._seen.get(node, 0) >= known[1]

    def _told_seen(self, node: str, index: Index) -> None:
        self._asked.discard(node)
        if index:
            self._seen[node] = index
            self._next_queued()

    def _catching_up(self, group: int, at: tuple[str, int]) -> None:
        if group == METADATA_GROUP or self._stalled.get(group) == at:
            return
        self._stalled.pop(group, None)
        now = self._cluster.loop.now_ms
        before = self._moving.get(group)
        if before is None or before[0] != at:
            self._moving[group] = at, now
        elif now - before[1] >= STALLED_MS:
            del self._moving[group]
            self._stalled[group] = at
            log.warning(
                "%s: learner %s has received nothing for %d s; other groups no longer wait for it",
                self._name(group),
                at[0],
                STALLED_MS // 1000,
            )

    def _propose(self, group: int, change: AddLearner | Remove, what: str) -> bool:
        host = self._cluster.host
        try:
            self._proposed[group] = host.change_members(group, change)
        except MembershipRefused as refusal:
            if self._refused.get(group) != str(refusal):
                self._refused[group] = str(refusal)
                log.info("%s: not yet: %s", self._name(group), refusal)
            return False
        except (NotLeader, UnknownGroup):
            return False
        self._refused.pop(group, None)
        log.info("%s: %s", self._name(group), what)
        return True

    def _hand_over(self, group: int, to: str) -> None:
        try:
            self._cluster.hand_over(group, to)
        except (NotLeader, UnknownGroup, UsageError):
            return  # checked again soon
        log.info("%s: leadership transfer to %s, this node is to leave", self._name(group), to)

    def _tell_left(self, group: int, intent: Intent) -> None:
        """Report committed removals, once per leader; a repeat changes nothing."""
        host = self._cluster.host
        if self._proposed.get(group, 0) > host.applied_index(group):
            return
        members = host.members(group)
        for node in intent.leaving:
            if node in members or (group, node) in self._said:
                continue
            command: commands.AnyCommand = commands.Left(group, node)
            if group == METADATA_GROUP:
                disk = self._definitions.state.nodes[node].disk
                command = commands.RemoveNode(node, disk)
            self._said[(group, node)] = None
            self._definitions.submit(command, self._told(group, node), forever=True)

    def _told(self, group: int, node: str) -> Done:
        def told(reply: object) -> None:
            self._said.pop((group, node), None)
            if isinstance(reply, errors.Refusal):
                log.warning("%s: %s", self._name(group), reply.detail)

        return told

    def _next_queued(self) -> None:
        for _ in range(min(len(self._queued), LOOKED_AT_MAX)):
            if len(self._moving) < MOVING_MAX:
                self.look(self._queued.popitem(last=False)[0])

    def _close(self, group: int) -> None:
        self._open.pop(group, None)
        self._queued.pop(group, None)
        self._proposed.pop(group, None)
        self._refused.pop(group, None)
        self._stalled.pop(group, None)
        self._since.pop(group, None)
        self._forget_proof(group)
        if group in self._moving:
            del self._moving[group]
            self._next_queued()

    def _name(self, group: int) -> str:
        if group == METADATA_GROUP:
            return "the metadata group"
        queue = self._definitions.state.groups.get(group)
        return f"group {group}" if queue is None else errors.named("queue", queue.name, queue.vhost)
