"""Operators' requests about the members of the cluster's queues.

Every node answers for the whole cluster. Each call ends with `done`, called once with a value of
`wire.admin.members`, or with a Refusal. A long operation answers as soon as its completion is
ensured (the intent is in the definitions, where it outlives the node that recorded it), and is
followed through `queue_status` and `node_status`. A rebalancing ends with the node that was
asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec

from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.membership.mirror_follower import MirrorFollower, is_fulfilled
from warren_broker.cluster.membership.node_service import (
    QUERY_RETRY_MS,
    NodeService,
    answers_refusals,
)
from warren_broker.cluster.membership.placement import Placement, balanced
from warren_broker.cluster.membership.recovering import QueueRecovery
from warren_broker.cluster.membership.requested_transfers import LeaderTransfer
from warren_broker.cluster.membership.status import Facts, LeaderQueries, Led, members_of
from warren_broker.cluster.messages import GroupFacts
from warren_broker.cluster.turn_shares import TurnShares
from warren_broker.cluster.turns import filtered
from warren_machines.metadata import commands
from warren_machines.metadata.records import QueueRecord
from warren_raft.core.quorum import majority
from warren_wire import errors
from warren_wire.admin import members as values
from warren_wire.name_patterns import BadPattern, NameMatcher, Pattern

LEADERLESS_MS = 3_000
"""How long bulk changes wait for queues that are electing a leader before skipping them; a change
of a single queue is refused at once, and its client asks again."""


@dataclass(eq=False, repr=False)
class MemberService:
    """Members of queues: listing, changes, leadership transfers.

    nodes     the same for nodes
    recovery  for a queue that has lost its majority for good
    """

    _cluster: Cluster
    _definitions: Definitions
    _queues: QueueClients
    _leader_queries: LeaderQueries
    _placement: Placement
    _leader_transfer: LeaderTransfer
    _mirrors: MirrorFollower
    _shares: TurnShares
    nodes: NodeService
    recovery: QueueRecovery

    # ------------------------------------------------------------ one queue

    @answers_refusals
    def add_member(
        self, vhost: str, queue: str, node: str, done: errors.Answer[values.MembersChanged]
    ) -> None:
        """Add a member; answer MembersChanged.

        Refused: no such queue or node (NotFound), a queue on a single node (classic, exclusive,
        transient), one with members that follow a policy, a node that is down or drained
        (PreconditionFailed).
        """
        found = self._changeable(vhost, queue)
        if node in found.nodes:
            done(_changed(found, False))
            return
        self.nodes.check_fit(node)

        def asked(facts: Facts) -> None:
            if found.group not in facts:
                done(self._leaderless(found))
                return
            self._change(found, commands.ChangeMembers(found.group, add=(node,)), done)

        self._leader_queries.ask([found.group], asked)

    @answers_refusals
    def delete_member(
        self, vhost: str, queue: str, node: str, done: errors.Answer[values.MembersChanged]
    ) -> None:
        """Remove a member; answer MembersChanged.

        Refused: as for add_member, the last member, a loss of the majority.
        """
        found = self._changeable(vhost, queue)
        if node not in found.carriers:
            self.nodes.check_known(node)
        if node not in found.nodes:
            done(_changed(found, False))
            return
        if found.nodes == (node,):
            done(errors.last_member(queue, vhost, found.nodes))
            return

        def asked(facts: Facts) -> None:
            refusal = self._removal_refused(found, facts.get(found.group), node)
            if refusal is not None:
                done(refusal)
                return
            command = commands.ChangeMembers(found.group, remove=(node,))
            self._change(found, command, done)

        self._leader_queries.ask([found.group], asked)

    @answers_refusals
    def queue_status(
        self, vhost: str, queue: str, done: errors.Answer[values.QueueMembers]
    ) -> None:
        """Answer QueueMembers."""
        found = self._queues.find(vhost, queue)

        def asked(facts: Facts) -> None:
            seen = members_of(found, facts.get(found.group), self._placement.running)
            policy = self._mirrors.policy(found)
            if policy is not None:
                arrived = is_fulfilled(policy, found.nodes, self._definitions.nodes())
                seen = msgspec.structs.replace(
                    seen,
                    settled=seen.settled and arrived,
                    following=self._mirrors.described(found),
                )
            self.recovery.with_logs(found, seen, done)

        self._leader_queries.ask([found.group], asked)

    @answers_refusals
    def transfer_leadership(
        self, vhost: str, queue: str, node: str, done: errors.Answer[values.LeaderMoved]
    ) -> None:
        """Transfer a queue's leadership; answer LeaderMoved once it leads.

        Refused: no such queue, no up-to-date member there.
        """
        found = self._replicated(vhost, queue)
        if node not in found.nodes:
            self.nodes.check_known(node)
            raise errors.PreconditionFailed(
                f"{_name(found)} has no member on node '{node}', only on "
                f"{', '.join(found.nodes)}; add a member there first"
            )
        self.nodes.check_fit(node)

        def moved(arrived: bool) -> None:
            done(
                values.LeaderMoved(vhost, queue, node, True)
                if arrived
                else errors.Unavailable(
                    f"{_name(found)}: node '{node}' did not take the leadership over in time; see "
                    "the queue's status, and try again"
                )
            )

        def asked(facts: Facts) -> None:
            of = facts.get(found.group)
            member = next((one for one in of.members if one.node == node), None) if of else None
            if of is None:
                done(self._leaderless(found))
            elif member is None or not member.voter or member.suspected or member.lost:
                done(
                    errors.PreconditionFailed(
                        f"{_name(found)}: its member on node '{node}' cannot lead now: "
                        f"{_why_not(member)}; see the queue's status, and try again"
                    )
                )
            elif member.leader:
                done(values.LeaderMoved(vhost, queue, node, False))
            else:
                self._leader_transfer.move(found.group, node, moved)

        self._leader_queries.ask([found.group], asked)

    def _replicated(self, vhost: str, name: str) -> QueueRecord:
        queue = self._queues.find(vhost, name)
        if not queue.replicated:
            kind = "exclusive" if queue.owner_uplink else queue.config.kind
            raise errors.lives_on_one_node(name, vhost, kind, queue.nodes[0])
        return queue

    def _changeable(self, vhost: str, name: str) -> QueueRecord:
        queue = self._replicated(vhost, name)
        refusal = self._mirrored(queue)
        if refusal is not None:
            raise refusal
        return queue

    def _mirrored(self, queue: QueueRecord) -> errors.PreconditionFailed | None:
        """Return why an operator cannot change the queue's members: a policy says which it has."""
        if self._mirrors.policy(queue) is None:
            return None
        return errors.PreconditionFailed(
            f"{_name(queue)}: its members follow {self._mirrors.described(queue)}; change or clear "
            "that"
            if self._mirrors.asked(queue) is not None
            else f"{_name(queue)} is returning to the members that it has without a mirror policy; "
            "try again when it has them"
        )

    def _change(
        self,
        queue: QueueRecord,
        command: commands.ChangeMembers,
        done: errors.Answer[values.MembersChanged],
    ) -> None:
        def changed(reply: commands.QueueIs) -> values.MembersChanged:
            remark = _cost(reply.queue, command)
            return msgspec.structs.replace(_changed(reply.queue, True), remark=remark)

        self._definitions.submit(command, errors.converted(done, changed))

    def _leaderless(self, queue: QueueRecord) -> errors.Unavailable:
        return errors.Unavailable(
            f"{_name(queue)} has no leader, and a change of its members needs most of them: "
            f"{self._cluster.lost_majority(queue.nodes)}"
        )

    def _removal_refused(
        self, queue: QueueRecord, facts: GroupFacts | None, node: str
    ) -> errors.Refusal | None:
        """Return why the queue needs that member now; None: it does not."""
        if facts is None:
            return self._leaderless(queue)
        left = [one for one in facts.members if one.voter and one.node != node]
        sound = [one.node for one in left if not (one.suspected or one.lost)]
        if not left:
            return errors.PreconditionFailed(
                f"{_name(queue)}: node '{node}' has its only member that is complete; wait until "
                f"another one of {', '.join(queue.nodes)} has caught up"
            )
        needed = majority(len(left))
        if len(sound) < needed:
            return errors.PreconditionFailed(
                f"{_name(queue)} would lose its majority: of the {len(left)} members that it would "
                f"have, {needed} are needed and {len(sound)} in reach ({', '.join(sound) or 'none'}"
                "); start the others, or delete the members that are down first"
            )
        return None

    # ------------------------------------------------------------ many queues

    @answers_refusals
    def grow(
        self,
        node: str,
        strategy: Literal["all", "even"],
        vhost_pattern: str,
        queue_pattern: str,
        done: errors.Answer[values.Resizing],
    ) -> None:
        """Add a member on the node to every matching quorum queue; answer Resizing.

        strategy  even: only queues with an even number of members
        patterns  regular expressions, found anywhere
        """
        if strategy not in ("all", "even"):
            raise errors.InvalidArgument(f"strategy {strategy!r} is unknown; give 'all' or 'even'")
        self.nodes.check_fit(node)
        then = partial(self._grow, node, strategy, done)
        self._matching(vhost_pattern, queue_pattern, then, done)

    def _grow(
        self,
        node: str,
        strategy: Literal["all", "even"],
        done: errors.Answer[values.Resizing],
        matching: Sequence[QueueRecord],
    ) -> None:
        found = [
            queue
            for queue in matching
            if node not in queue.nodes and (strategy == "all" or len(queue.nodes) % 2 == 0)
        ]
        loop = self._cluster.loop
        patience = loop.now_ms + LEADERLESS_MS

        def asked(led: Led) -> None:
            leading = {group for one in led.values() for group in one.led}
            if loop.now_ms < patience and any(queue.group not in leading for queue in found):
                loop.call_later(QUERY_RETRY_MS, partial(self._leader_queries.ask_led, asked))
                return

            def refused(queue: QueueRecord) -> errors.Refusal | None:
                leaderless = None if queue.group in leading else self._leaderless(queue)
                return self._mirrored(queue) or leaderless

            self._resize(
                node,
                found,
                refused,
                lambda queue: commands.ChangeMembers(queue.group, add=(node,)),
                done,
            )

        self._leader_queries.ask_led(asked)

    @answers_refusals
    def shrink(self, node: str, errors_only: bool, done: errors.Answer[values.Resizing]) -> None:
        """Remove the node's member from every quorum queue; answer Resizing.

        errors_only  name only the queues where it failed
        """
        self.nodes.check_known(node)
        found = [queue for queue in self._quorum_queues() if node in queue.nodes]

        def resized(result: values.Resizing) -> None:
            if errors_only:
                result = values.Resizing(node, tuple(one for one in result.queues if one.error))
            done(result)

        loop = self._cluster.loop
        patience = loop.now_ms + LEADERLESS_MS

        def ask() -> None:
            self._leader_queries.ask([queue.group for queue in found], asked)

        def asked(facts: Facts) -> None:
            if loop.now_ms < patience and any(queue.group not in facts for queue in found):
                loop.call_later(QUERY_RETRY_MS, ask)
                return

            def refused(queue: QueueRecord) -> errors.Refusal | None:
                if queue.nodes == (node,):
                    return errors.last_member(queue.name, queue.vhost, queue.nodes)
                return self._mirrored(queue) or self._removal_refused(
                    queue, facts.get(queue.group), node
                )

            self._resize(
                node,
                found,
                refused,
                lambda queue: commands.ChangeMembers(queue.group, remove=(node,)),
                resized,
            )

        ask()

    def _matching(
        self,
        vhost_pattern: str,
        queue_pattern: str,
        then: Callable[[list[QueueRecord]], None],
        done: errors.Answer[Any],
    ) -> None:
        """Call `then` with the quorum queues with vhosts and names that contain the patterns.

        done    of the request, which is refused in a later turn

        raises  InvalidArgument
        """
        vhosts, names = _matcher("vhost", vhost_pattern), _matcher("queue", queue_pattern)
        work = filtered(
            list(self._quorum_queues()),
            lambda queue: None not in (vhosts.first(queue.vhost), names.first(queue.name)),
            lambda queue: vhosts.cost(queue.vhost) + names.cost(queue.name),
        )
        self._shares.divide(work, then, done)

    def _quorum_queues(self) -> Iterator[QueueRecord]:
        return (queue for queue in self._definitions.state.queues() if queue.replicated)

    def _resize(
        self,
        node: str,
        queues: Sequence[QueueRecord],
        refused: Callable[[QueueRecord], errors.Refusal | None],
        command: Callable[[QueueRecord], commands.ChangeMembers],
        done: Callable[[values.Resizing], None],
    ) -> None:
        """Submit a change for each queue that is not refused; answer when all are decided."""
        queues = sorted(queues, key=lambda queue: (queue.vhost, queue.name))
        found: dict[int, values.Resized] = {}

        def decided(queue: QueueRecord, change: commands.ChangeMembers, reply: object) -> None:
            if isinstance(reply, commands.QueueIs):
                size, remark = len(reply.queue.nodes), _cost(reply.queue, change)
                result = values.Resized(queue.vhost, queue.name, size, remark=remark)
            else:
                detail = reply.detail if isinstance(reply, errors.Refusal) else str(reply)
                result = values.Resized(queue.vhost, queue.name, len(queue.nodes), detail)
            found[queue.group] = result
            if len(found) == len(queues):
                done(values.Resizing(node, tuple(found[one.group] for one in queues)))

        for queue in queues:
            refusal, change = refused(queue), command(queue)
            if refusal is not None:
                decided(queue, change, refusal)
            else:
                self._definitions.submit(change, partial(decided, queue, change))
        if not queues:
            done(values.Resizing(node, ()))

    @answers_refusals
    def rebalance(
        self, vhost_pattern: str, queue_pattern: str, done: errors.Answer[values.Rebalanced]
    ) -> None:
        """Spread the leaders of matching quorum queues over the nodes; answer Rebalanced."""
        if self._leader_transfer.count:
            raise errors.PreconditionFailed(
                f"{self._leader_transfer.count} leaderships are being handed over already; try "
                "again when they have arrived"
            )
        self._matching(vhost_pattern, queue_pattern, partial(self._rebalance, done), done)

    def _rebalance(
        self, done: errors.Answer[values.Rebalanced], matching: Sequence[QueueRecord]
    ) -> None:
        def asked(led: Led) -> None:
            leaders = {group: name for name, one in led.items() for group in one.led}
            queues = {queue.group: queue for queue in matching if queue.group in leaders}
            leaders = {group: leaders[group] for group in queues}
            fit = [name for name in self._definitions.nodes() if self._placement.fit(name)]
            candidates = {group: queue.nodes for group, queue in queues.items()}
            moves = balanced(leaders, candidates, fit)
            told = []
            for group, target in moves:
                queue = queues[group]
                told.append(values.LeaderMove(queue.vhost, queue.name, leaders[group], target))
                leaders[group] = target
                self._leader_transfer.move(group, target)
            counts = dict.fromkeys([*fit, *leaders.values()], 0)
            for name in leaders.values():
                counts[name] += 1
            done(
                values.Rebalanced(
                    tuple(told),
                    tuple(
                        values.NodeLeaders(name, count) for name, count in sorted(counts.items())
                    ),
                )
            )

        self._leader_queries.ask_led(asked)


def _name(queue: QueueRecord) -> str:
    return errors.named("queue", queue.name, queue.vhost)


def _changed(queue: QueueRecord, changed: bool) -> values.MembersChanged:
    return values.MembersChanged(queue.vhost, queue.name, queue.nodes, changed)


def _cost(queue: QueueRecord, change: commands.ChangeMembers) -> str:
    """Return what it means that a removal leaves a queue so few members; "": it may lose one."""
    if len(queue.nodes) > 2 or not change.remove:
        return ""
    names = " and ".join(queue.nodes)
    if len(queue.nodes) == 2:
        return (
            f"with 2 members, on {names}, the queue stops while either is down: a majority of 2 is "
            "both; add a third member"
        )
    return (
        f"with its only member, on {names}, the queue stops while that is down, and its messages "
        "are lost with that disk; add two members"
    )


def _why_not(member: Any) -> str:
    if member is None:
        return "the group has not taken it in yet"
    if member.suspected:
        return "its node is unreachable"
    return "it lost its disk" if member.lost else "it is still catching up"


def _matcher(what: str, pattern: str) -> NameMatcher:
    """Return what finds an operator's pattern; raises InvalidArgument."""
    try:
        return NameMatcher([Pattern(pattern)])
    except BadPattern as error:
        raise errors.InvalidArgument(
            f"{what} pattern {pattern!r} {error}; '.*' matches everything"
        ) from error
