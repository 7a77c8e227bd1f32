"""Operators' requests about the nodes of the cluster; see `cluster.membership.service`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, ParamSpec

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.membership.maintenance import Maintenance
from warren_broker.cluster.membership.placement import Placement
from warren_broker.cluster.membership.status import Facts, LeaderQueries, Led, member
from warren_broker.cluster.membership.version_raiser import VersionRaiser
from warren_broker.cluster.messages import GroupFacts, LedAre
from warren_broker.cluster.resource_alarms import ResourceAlarms
from warren_machines.metadata import commands
from warren_machines.metadata.records import ClusterNode, QueueRecord
from warren_raft.core.quorum import majority
from warren_raft.types import METADATA_GROUP
from warren_wire import errors
from warren_wire.admin import members as values

log = logging.getLogger(__name__)
MISSED_BY_ALL_MS = 3_000
"""Longest time until all nodes suspect one that has stopped, with the default settings."""
QUERY_RETRY_MS = 100


P = ParamSpec("P")


def answers_refusals(method: Callable[P, None]) -> Callable[P, None]:
    """Have a request answered with the Refusal that it raises; `done` is its last argument."""

    @wraps(method)
    def request(*given: P.args, **named: P.kwargs) -> None:
        try:
            method(*given, **named)
        except errors.Refusal as refusal:
            done: Any = given[-1]
            done(refusal)

    return request


@dataclass(slots=True)
class _Placed:
    """Queues by node, at an applied index of the definitions: members, those of it alone, and those
    that leave it."""

    defined: int
    members: Counter[str] = field(default_factory=Counter)
    local: Counter[str] = field(default_factory=Counter)
    leaving: dict[str, dict[int, QueueRecord]] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class NodeService:
    """Lists nodes, and handles maintenance, removal and, in `versions`, upgrades."""

    _cluster: Cluster
    _definitions: Definitions
    _leader_queries: LeaderQueries
    _placement: Placement
    _maintenance: Maintenance
    _alarms: ResourceAlarms
    versions: VersionRaiser
    _known: _Placed | None = field(init=False, default=None)

    # ------------------------------------------------------------ status

    def list_nodes(self, done: errors.Answer[list[values.NodeInfo]]) -> None:
        """Answer a list of NodeInfo, by name."""

        def asked(led: Led) -> None:
            unsettled = _unsettled(led)
            done([self._info(name, led, unsettled) for name in self._names()])

        self._leader_queries.ask_led(asked, brief=True)

    @answers_refusals
    def node_status(self, node: str, done: errors.Answer[values.NodeStatus]) -> None:
        """Answer NodeStatus. Refused: no such node (NotFound)."""
        self.check_known(node)

        def asked(led: Led) -> None:
            unsettled = _unsettled(led)
            info = self._info(node, led, unsettled)
            moving = self._moving(node, unsettled)[: values.MOVING_SHOWN_MAX]
            shown = tuple(
                values.Moving(queue.vhost, queue.name, self._member(node, queue, unsettled))
                for queue in moving
            )
            leads = info.drained and info.running and self._to_hand_over(node, led)
            done(values.NodeStatus(info, shown, not (info.moving or info.forgetting or leads)))

        self._leader_queries.ask_led(asked)

    @answers_refusals
    def quorum_critical(self, node: str, done: errors.Answer[values.QuorumCritical]) -> None:
        """Answer QuorumCritical: the queues that would lose their majority if that node stopped.

        As in RabbitMQ, a cluster of one node is not critical: its queues are expected to stop with
        it.
        """
        self.check_known(node)
        if self._definitions.nodes() == (node,):
            done(values.QuorumCritical(node, False, (), 0))
            return

        def asked(led: Led) -> None:
            answered = {group for one in led.values() for group in one.led}
            critical = {group for one in led.values() for group in one.critical}
            queues = [
                queue
                for queue in self._definitions.state.queues()
                if queue.replicated
                and node in queue.carriers
                and (queue.group in critical or queue.group not in answered)
            ]
            shown = tuple(
                values.QueueName(queue.vhost, queue.name)
                for queue in queues[: values.CRITICAL_SHOWN_MAX]
            )
            metadata = METADATA_GROUP in critical or METADATA_GROUP not in answered
            done(values.QuorumCritical(node, metadata, shown, len(queues)))

        self._leader_queries.ask_led(asked, stopping=node)

    def _names(self) -> list[str]:
        return sorted({*self._definitions.nodes(), *self._definitions.state.nodes})

    def check_known(self, node: str) -> None:
        """Raise NotFound unless the node is in the cluster."""
        if node not in self._names():
            raise errors.no_node(node, self._names())

    def check_fit(self, node: str) -> None:
        """Raise unless a member may be placed there now."""
        self.check_known(node)
        one = self._definitions.state.nodes.get(node)
        if one is not None and one.forgetting:
            raise errors.PreconditionFailed(f"node '{node}' is being forgotten; choose another one")
        if one is not None and one.drained:
            raise errors.PreconditionFailed(
                f"node '{node}' is in maintenance: nothing is placed there; revive it first"
            )
        if one is None or not self._placement.running(node):
            raise errors.PreconditionFailed(
                f"node '{node}' is not running; start it first, or choose another one"
            )

    def _info(self, name: str, led: Led, unsettled: Facts) -> values.NodeInfo:
        state = self._definitions.state
        one = state.nodes.get(name) or ClusterNode(name, "", 0)
        placed = self._placed()
        return values.NodeInfo(
            name=name,
            address=one.address,
            running=self._placement.running(name),
            drained=one.drained,
            forgetting=one.forgetting,
            metadata=self._metadata_role(name, led),
            members=placed.members[name],
            leaders=self._count_led(led.get(name)),
            local_queues=placed.local[name],
            moving=len(self._moving(name, unsettled)),
            alarms=tuple(sorted(self._alarms.by_node().get(name, ()))),
        )

    def _count_led(self, led: LedAre | None) -> int:
        """Return how many replicated queues a node leads; None: it did not answer."""
        if led is None or led.leads >= 0:
            return 0 if led is None else led.leads
        groups = self._definitions.state.groups
        return sum(1 for group in led.led if group in groups and groups[group].replicated)

    def _placed(self) -> _Placed:
        """Return what the definitions place where; all queues are read after a change only."""
        defined = self._cluster.host.applied_index(METADATA_GROUP)
        if self._known is None or self._known.defined != defined:
            known = self._known = _Placed(defined)
            for queue in self._definitions.state.queues():
                (known.members if queue.replicated else known.local).update(queue.nodes)
                for node in queue.leaving:
                    known.leaving.setdefault(node, {})[queue.group] = queue
        return self._known

    def _metadata_role(self, name: str, led: Led) -> values.Role:
        if name in led and METADATA_GROUP in led[name].led:
            return "leader"
        members = self._cluster.host.members(METADATA_GROUP)
        if name in members.voters:
            return "follower"
        return "learner" if name in members.learners else "none"

    def _moving(self, node: str, unsettled: Facts) -> list[QueueRecord]:
        """Return the queues of which the member on the node is being added or removed."""
        state = self._definitions.state
        found = dict(self._placed().leaving.get(node, {}))
        for group, facts in unsettled.items():
            queue = state.groups.get(group)
            if queue is None:
                continue
            here = {one.node: one for one in facts.members}
            known = here.get(node)
            wanted = node in queue.nodes
            settled = known is not None and known.voter and not (known.lost or known.probing)
            if (wanted and not settled) or (known is not None and not wanted):
                found[group] = queue
        return [found[group] for group in sorted(found)]

    def _member(self, node: str, queue: QueueRecord, unsettled: Facts) -> values.MemberInfo:
        facts = unsettled.get(queue.group)
        running = self._placement.running
        if facts is None:
            return values.MemberInfo(node, "none", "unknown" if running(node) else "down")
        known = next((one for one in facts.members if one.node == node), None)
        return member(node, known, queue, facts, running)

    def _to_hand_over(self, node: str, led: Led) -> bool:
        """Return whether it leads something that another node could lead.

        Queues on it alone, or with all other members down or in maintenance, do not count.
        """
        if node not in led:
            return False
        if METADATA_GROUP in led[node].led and self._others_fit(node):
            return True
        groups = self._definitions.state.groups
        queues = [groups[group] for group in led[node].led if group in groups]
        return any(
            self._placement.fit(other) for queue in queues for other in queue.nodes if other != node
        )

    def _others_fit(self, node: str) -> bool:
        return any(self._placement.fit(other) for other in self._names() if other != node)

    # ------------------------------------------------------------ maintenance

    def drain(self, node: str, done: errors.Answer[values.NodeStatus]) -> None:
        """Put a node into maintenance until it is revived or restarts; answer NodeStatus."""
        own = node == self._cluster.host.node_id
        self._set_drained(node, True, self._maintenance.answer_first(done) if own else done)

    def revive(self, node: str, done: errors.Answer[values.NodeStatus]) -> None:
        """End a node's maintenance; answer NodeStatus."""
        self._set_drained(node, False, done)

    @answers_refusals
    def _set_drained(
        self, node: str, drained: bool, done: errors.Answer[values.NodeStatus]
    ) -> None:
        self.check_known(node)
        if drained and not self._placement.running(node):
            raise errors.PreconditionFailed(
                f"node '{node}' is not running: there is nothing to drain, and its next start "
                "would end the maintenance; start it first"
            )
        if drained and not self._others_fit(node):
            # Otherwise no node would serve the client that is to revive it.
            raise errors.PreconditionFailed(
                f"node '{node}' is the last one that serves clients; start or revive another "
                "one first, or just stop it"
            )

        shown = errors.continued(done, lambda _: self.node_status(node, done))
        self._definitions.submit(commands.SetDrained(node, drained), shown)

    # ------------------------------------------------------------ removal

    @answers_refusals
    def forget(self, node: str, done: errors.Answer[values.Forgetting]) -> None:
        """Start removing a node for good; answer Forgetting. Refused while it is running.

        Its members leave every queue, it leaves the metadata group, then the registry: all of it is
        intent in the definitions, carried out by the current leaders. As in RabbitMQ, queues on
        that node alone are deleted, with their messages.
        """
        self.check_known(node)
        if self._placement.running(node):
            raise self._still_running(node)

        # 1. The node stops; this one has just noticed.  2. The leader notices a moment later. It is
        # asked again for a while: otherwise a script that stops a node and then forgets it would be
        # refused now and then.
        loop = self._cluster.loop
        patience = loop.now_ms + MISSED_BY_ALL_MS

        def asked(facts: Facts) -> None:
            seen = facts.get(METADATA_GROUP)
            if seen is not None and _hears(seen, node) and loop.now_ms < patience:
                loop.call_later(QUERY_RETRY_MS, ask)
                return
            refusal = self._departure_refused(seen, node)
            if refusal is not None:
                done(refusal)
                return
            queues = [
                queue
                for queue in self._definitions.state.queues()
                if queue.replicated and node in queue.carriers and queue.carriers != (node,)
            ]
            told = errors.converted(done, partial(forgotten, len(queues)))
            self._definitions.submit(commands.ForgetNode(node), told)

        def forgotten(count: int, reply: commands.Deleted) -> values.Forgetting:
            lost = tuple((queue.vhost, queue.name) for queue in reply.queues)
            for vhost, name in lost:
                log.warning(
                    "%s existed only on node %s and is deleted with it",
                    errors.named("queue", name, vhost),
                    node,
                )
            return values.Forgetting(node, count, lost)

        def ask() -> None:
            self._leader_queries.ask([METADATA_GROUP], asked)

        ask()

    def _still_running(self, node: str) -> errors.PreconditionFailed:
        return errors.PreconditionFailed(
            f"node '{node}' is running; stop it before it is removed from the cluster (to take "
            "its members away while it runs, shrink it)"
        )

    def _departure_refused(self, facts: GroupFacts | None, node: str) -> errors.Refusal | None:
        if facts is None:
            return errors.Unavailable(
                f"the metadata group has no leader: {self._definitions.lost_majority()}"
            )
        if _hears(facts, node):
            return self._still_running(node)
        left = [one for one in facts.members if one.voter and one.node != node]
        sound = [one.node for one in left if not (one.suspected or one.lost)]
        if left and len(sound) < majority(len(left)):
            return errors.PreconditionFailed(
                f"without node '{node}' the cluster would have {len(left)} nodes, and only "
                f"{len(sound)} of them are in reach ({', '.join(sound) or 'none'}): its "
                f"definitions would lose their majority of {majority(len(left))}; start the "
                "others first"
            )
        return None


def _hears(facts: GroupFacts, node: str) -> bool:
    """Return whether the group's leader can reach its member there."""
    return any(one.node == node and (one.leader or not one.suspected) for one in facts.members)


def _unsettled(led: Led) -> Facts:
    return {facts.group: facts for one in led.values() for facts in one.unsettled}
