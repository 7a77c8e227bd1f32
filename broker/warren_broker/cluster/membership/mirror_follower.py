"""Keeps the wanted members of the queues that are led here in line with mirror policies.

A policy with `ha-mode` says which members a queue is to have. The queue's leader compares that with
the definitions, and changes the intent (`metadata.commands.ChangeMembers`); `Reconciler` takes the
steps towards it, one member at a time. New members are wanted first. A former one is given up when
a new one holds everything, as the leader sees it (`next_members`). So at every moment
the intent names members that hold the queue, and whatever fails, the next leader continues from it.

`QueueRecord.mirrored` says that a queue's members follow a policy. When the policy is cleared, or
applies no more, the queue returns to the size that it would have been declared with, and the mark
is taken off by the last step.

| after a crash, the next leader finds | and does |
| --- | --- |
| a policy, members as before | the first change |
| new members that are catching up | nothing, until they hold everything |
| new members that hold everything | gives up the former ones |
| no policy, and the mark | returns to the default size, takes the mark off |
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.membership.placement import Placement
from warren_broker.cluster.membership.requested_transfers import LeaderTransfer
from warren_broker.config import Queues
from warren_machines.metadata.commands import Barrier, ChangeMembers, DeclareQueue
from warren_machines.metadata.policy_index import PolicyIndex
from warren_machines.metadata.records import QueueRecord
from warren_raft.core.quorum import majority
from warren_raft.errors import NotLeader
from warren_raft.runtime.host import UnknownGroup
from warren_raft.types import METADATA_GROUP, MemberState
from warren_wire import errors
from warren_wire.arguments import QueueDeclaration
from warren_wire.mirror_keys import MirrorPolicy, mirror_policy
from warren_wire.policy_keys import leader_locator

log = logging.getLogger(__name__)
FOLLOW_INTERVAL_MS: Final = 2_000
"""Interval in which queues are checked that are not as their policies want them."""
QUEUES_CHECKED_MAX: Final = 200
"""Queues checked before the loop does other work."""
_LATER: Final = ChangeMembers(METADATA_GROUP)
"""Nothing can be changed now: members are catching up, or nodes are missing."""


def lasting_members(
    policy: MirrorPolicy,
    present: Sequence[str],
    preferred: Sequence[str],
    known: Collection[str],
    fit: Sequence[str],
) -> tuple[str, ...]:
    """Return the members that the queue has when the policy is fulfilled; at least one.

    present    the wanted members now; as many of them stay as the policy allows
    preferred  those that hold everything, the leader first: they stay before others
    known      the nodes of the cluster that are not leaving it
    fit        nodes on which a member may be placed now, in order of preference

    Nodes in a list that the cluster does not have are ignored; if it has none of them, the queue
    stays where it is. There are never more members than nodes.
    """
    here = [node for node in present if node in known]
    if policy.mode == "all":
        return tuple(sorted(known)) or tuple(present)
    if policy.mode == "nodes":
        return tuple(sorted(set(policy.nodes) & set(known))) or tuple(here or present)
    order = {node: at for at, node in enumerate(preferred)}
    here.sort(key=lambda node: (order.get(node, len(order)), node))
    free = [node for node in fit if node in known and node not in here]
    return tuple(sorted([*here, *free][: policy.count])) or tuple(present)


def next_members(
    lasting: Sequence[str], present: Sequence[str], complete: Sequence[str]
) -> tuple[str, ...]:
    """Return the members to want now, on the way to the lasting ones.

    complete  the reachable nodes that hold everything, the leader first

    New members come first. For every lasting member that is not complete yet, a former one that is
    stays, the leader before others: so the queue never has fewer complete copies than it had, or
    is to have. What is not complete is not needed, unless it is to last.

    1. A policy that wanted b is cleared: only a is wanted, and b, which holds everything, is about
    to be removed.  2. A policy wants b alone.  3. If a were given up for b now, b would be removed
    meanwhile. So a member counts as complete only while it is wanted.

    1. Of b, which alone is wanted, a few entries are on their way; a, which leads, is about to be
    removed.  2. A policy wants c alone.  3. If b were given up for c, none that is wanted would
    hold anything. So where none of them is complete, all stay.
    """
    kept = {*complete} & {*present}
    if not kept:
        return tuple(sorted({*lasting, *present}))
    missing = sum(1 for node in lasting if node not in kept)
    former = [node for node in complete if node in present and node not in lasting]
    return tuple(sorted({*lasting, *former[:missing]}))


def is_fulfilled(policy: MirrorPolicy, members: Sequence[str], known: Collection[str]) -> bool:
    """Return whether these members are what the policy asks for in this cluster."""
    if policy.mode == "exactly":
        return len(members) == min(policy.count, len(known))
    named = set(known) if policy.mode == "all" else set(policy.nodes) & set(known)
    return not named or set(members) == named


class MirrorFollower:
    """Compares the queues that are led here with their mirror policies.

    As in `PolicyFollower`, a difference is looked at again behind a barrier of the definitions. Its
    reason here: 1. A policy with other nodes is set, and cleared again.  2. A node that has applied
    only the first becomes a queue's leader.  3. It would move the queue, all data of it, there and
    back. What is proposed names the members that it follows from (`ChangeMembers.expected`).

    default_size  members of a queue that has several and names no number

    Invariants: `_open` holds the groups led here that are not known to be as wanted; `_waiting`
    those to be checked in this or the next pass; `_asked` those with an unanswered change.
    """

    def __init__(
        self,
        cluster: Cluster,
        definitions: Definitions,
        placement: Placement,
        leader_transfer: LeaderTransfer,
        default_size: int,
    ) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._placement = placement
        self._leader_transfer = leader_transfer
        self._default_size = default_size
        self._open: dict[int, None] = {}
        self._waiting: dict[int, None] = {}
        self._differing: dict[int, None] = {}
        self._asked: dict[int, None] = {}
        self._passing = False
        self._at_barrier = False
        self._planned = False
        cluster.on_led.append(self._look)
        cluster.on_members.append(self._look_if_open)
        cluster.on_peer_up.append(lambda node: self._look_at(list(self._open)))
        definitions.on_members.append(self._look)
        definitions.on_policies.append(self._policies_changed)
        definitions.on_nodes.append(lambda node: self._look_at_all(None))
        definitions.on_ready.append(lambda: self._look_at_all(None))

    # ------------------------------------------------------------ when to check

    def _policies_changed(self, vhosts: tuple[str, ...] | None) -> None:
        self._look_at_all(vhosts)

    def _look_at_all(self, vhosts: tuple[str, ...] | None) -> None:
        """Check the queues of these vhosts that are led here; None: of all."""
        groups = self._definitions.state.groups
        self._look_at(
            [
                group
                for group in sorted(self._cluster.effects.led)
                if group in groups and (vhosts is None or groups[group].vhost in vhosts)
            ]
        )

    def _look(self, group: int) -> None:
        self._look_at([group])

    def _look_if_open(self, group: int) -> None:
        if group in self._open:
            self._look_at([group])

    def _look_at(self, groups: list[int]) -> None:
        if not self._definitions.ready:
            return
        for group in groups:
            if group != METADATA_GROUP:
                self._waiting[group] = None
        if self._waiting and not self._passing:
            self._passing = True
            self._cluster.loop.call_soon(self._pass)

    def _pass(self) -> None:
        self._passing = False
        for group in list(self._waiting)[:QUEUES_CHECKED_MAX]:
            del self._waiting[group]
            self._compare(group)
        if self._waiting:
            self._passing = True
            self._cluster.loop.call_later(0, self._pass)
        self._ask()

    def _plan(self) -> None:
        if not self._planned and self._open:
            self._planned = True
            self._cluster.loop.call_later(FOLLOW_INTERVAL_MS, self._again)

    def _again(self) -> None:
        self._planned = False
        self._look_at(list(self._open))
        self._plan()

    # ------------------------------------------------------------ what to change

    def policy(self, queue: QueueRecord) -> MirrorPolicy | None:
        """Return what a queue's members follow now; None: no policy, and they never did."""
        found = self.asked(queue)
        if found is not None or not queue.mirrored:
            return found
        size = 1
        if queue.config.several:
            size = queue.arguments.get("x-quorum-initial-group-size", self._default_size)
        return MirrorPolicy("exactly", count=size)

    def asked(self, queue: QueueRecord) -> MirrorPolicy | None:
        """Return what the policies of a queue ask for; None: nothing, or it cannot be mirrored."""
        if not queue.replicable:
            return None
        return mirror_policy(self._definitions.policy(queue).definition)

    def described(self, queue: QueueRecord) -> str:
        """Return the policy that a queue's members follow, in words."""
        found, policy = self._definitions.policy(queue), self.asked(queue)
        if policy is None:
            return "no policy any more"
        return f"policy '{found.policy or found.operator_policy}' ({policy})"

    def initial_members(self, policy: MirrorPolicy) -> tuple[str, ...]:
        """Return the members of a new queue under a policy.

        All listed nodes if a majority of them runs; otherwise those that run, so that the queue has
        a leader, and the others are added when they do. If none does, this node has it until one
        does, as in RabbitMQ.

        1. Three nodes are listed, and this one does not see one of them: it has just started.  2. A
        queue of the two that it sees is declared.  3. The disk of one is lost: nothing leads it for
        good. With three members the other two elect a leader.
        """
        known, own = self._definitions.nodes(), self._cluster.host.node_id
        if policy.mode == "exactly":
            return self._placement.members(policy.count)
        if policy.mode == "all":
            return known
        listed = tuple(node for node in policy.nodes if node in known)
        running = tuple(node for node in listed if self._placement.running(node))
        return listed if listed and len(running) >= majority(len(listed)) else running or (own,)

    def _compare(self, group: int) -> None:
        wanted = self._wanted(group)
        if wanted is None:
            self._open.pop(group, None)
            return
        self._open[group] = None
        self._plan()
        if wanted is not _LATER and group not in self._asked:
            self._differing[group] = None

    def _wanted(self, group: int) -> ChangeMembers | None:
        """Return the change of a queue's wanted members; _LATER: not now; None: none is needed."""
        queue = self._definitions.state.groups.get(group)
        host = self._cluster.host
        if queue is None or not host.is_leader(group):
            return None
        policy = self.policy(queue)
        if policy is None:
            return None
        try:
            states = host.member_states(group)
        except (NotLeader, UnknownGroup):
            return None
        complete = _complete(states)
        known = self._definitions.nodes()
        fit = self._placement.drawn(queue.nodes)
        lasting = lasting_members(policy, queue.nodes, complete, known, fit)
        now = next_members(lasting, queue.nodes, complete)
        reached = now == lasting and is_fulfilled(policy, lasting, known)
        stays = self.asked(queue) is not None or not reached
        if now != queue.nodes or stays != queue.mirrored:
            return ChangeMembers(
                group,
                add=tuple(node for node in now if node not in queue.nodes),
                remove=tuple(node for node in queue.nodes if node not in now),
                expected=queue.nodes,
                mirrored=stays,
            )
        if host.node_id not in lasting and host.node_id in now:
            self._move_leader(group, [node for node in complete if node in lasting])
        return None if reached and all(node in complete for node in now) else _LATER

    def _move_leader(self, group: int, to: list[str]) -> None:
        """Let a node lead that the policy names, although this one stays for another that is down.

        Where former members can leave, `Reconciler` transfers the leadership.
        """
        fit = [node for node in to if self._placement.fit(node)] or to
        if fit and not self._cluster.host.hands_over(group):
            self._leader_transfer.move(group, fit[0])

    # ------------------------------------------------------------ changing it

    def _ask(self) -> None:
        if self._at_barrier or not self._differing:
            return
        self._at_barrier = True
        groups, self._differing = tuple(self._differing), {}

        def current(reply: object) -> None:
            self._at_barrier = False
            for group in groups:
                change = self._wanted(group)
                if change is not None and change is not _LATER and group not in self._asked:
                    self._change(group, change)
            self._ask()

        self._definitions.submit(Barrier(), current, forever=True)

    def _change(self, group: int, change: ChangeMembers) -> None:
        queue = self._definitions.state.groups[group]
        name = errors.named("queue", queue.name, queue.vhost)
        if change.add or change.remove:
            log.info(
                "%s: members follow %s: adding %s, removing %s",
                name,
                self.described(queue),
                ", ".join(change.add) or "none",
                ", ".join(change.remove) or "none",
            )
        self._asked[group] = None

        def changed(reply: object) -> None:
            self._asked.pop(group, None)
            if isinstance(reply, errors.Refusal):
                log.warning("%s: %s", name, reply.detail)
            else:
                self._look(group)

        self._definitions.submit(change, changed, forever=True)


class QueueCommands:
    """Makes commands that declare queues."""

    def __init__(self, placement: Placement, mirrors: MirrorFollower, settings: Queues) -> None:
        self._placement = placement
        self._mirrors = mirrors
        self._relaxed = settings.relaxed_checks_on_redeclaration

    def declaration(
        self,
        checked: QueueDeclaration,
        policies: PolicyIndex,
        connection: int = 0,
        server_named: bool = False,
        leaders: dict[str, int] | None = None,
    ) -> DeclareQueue:
        """Choose nodes for a queue, and apply the policies that it follows.

        leaders  see `Placement.leader`
        """
        config = checked.config
        followed = policies.of_queue(config.name, config.followed_as).definition
        mirrors = mirror_policy(followed) if config.durable else None
        if mirrors is not None:
            nodes = self._mirrors.initial_members(mirrors)
        else:
            nodes = self._placement.members(checked.group_size)
        leader = self._placement.leader(nodes, leader_locator(checked, followed), leaders)
        initial = policies.apply(config, checked.arguments)
        return DeclareQueue(
            config,
            checked.arguments,
            nodes,
            leader,
            connection,
            server_named,
            relaxed=self._relaxed,
            initial=None if initial == config else initial,
            mirrored=mirrors is not None,
            by_default=checked.by_default,
        )


def _complete(states: tuple[MemberState, ...]) -> list[str]:
    """Return the reachable voters that hold everything, the leader first."""
    sound = [
        one
        for one in states
        if (one.voter and not (one.suspected or one.lost or one.probing)) or one.leader
    ]
    return [one.node for one in sorted(sound, key=lambda one: (not one.leader, -one.match))]
