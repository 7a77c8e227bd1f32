"""A queue that has lost its majority for good: one member continues it, as another group.

Raft's safety is not touched, because no group gets another majority: the queue gets a *new* group.
Its log begins with what one member holds, to its end (`warren_raft.runtime.continued`), and its
number is one that no other member knows. So whatever the others hold, and whenever they return,
none of their messages concerns it, and the definitions have their logs deleted. What is asked here
guards the operator's data, not the group: it refuses where a majority could still elect a leader,
and where another member in reach holds more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from warren_broker.cluster import messages
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.membership.node_service import (
    QUERY_RETRY_MS,
    NodeService,
    answers_refusals,
)
from warren_broker.cluster.membership.placement import Placement
from warren_broker.cluster.membership.status import Facts, LeaderQueries
from warren_broker.cluster.survey import Survey
from warren_machines.metadata import commands
from warren_machines.metadata.records import QueueRecord
from warren_raft.core.quorum import majority
from warren_raft.runtime.host import UnknownGroup
from warren_wire import errors
from warren_wire.admin import members as values

NO_LEADER_MS: Final = 5_000
"""How long a queue must be without a leader: an election among members in reach takes less."""
LogEnd = tuple[int, int]


@dataclass(eq=False, repr=False)
class QueueRecovery:
    """Carries out an operator's decision which member continues a queue."""

    _cluster: Cluster
    _definitions: Definitions
    _queues: QueueClients
    _leader_queries: LeaderQueries
    _placement: Placement
    _nodes: NodeService
    _survey: Survey = field(init=False)

    def __post_init__(self) -> None:
        self._survey = Survey(self._cluster, messages.AskLogEnd, messages.LogEndIs)
        self._cluster.handlers[messages.AskLogEnd] = self._on_asked

    def _on_asked(self, node: str, message: messages.AskLogEnd, rest: memoryview) -> None:
        end = self._cluster.host.log_end(message.group)
        told = messages.LogEndIs(message.request, *end, self._log(message.group))
        self._cluster.host.send(node, messages.encode(told))

    def _log(self, group: int) -> values.MemberLog | None:
        host = self._cluster.host
        try:
            term, committed, applied, durable, snapshot, _ = host.log_position(group)
            version = host.state(group).version
        except UnknownGroup:
            return None
        last = host.log_end(group)[1]
        return values.MemberLog(term, last, durable, applied, committed, snapshot, version)

    def with_logs(
        self,
        queue: QueueRecord,
        seen: values.QueueMembers,
        done: errors.Answer[values.QueueMembers],
    ) -> None:
        """Answer a queue's members with what the nodes within reach say of their logs."""
        own = self._cluster.host.node_id
        named = [one.node for one in seen.members]

        def told(answers: dict[str, messages.LogEndIs]) -> None:
            logs = {node: answer.log for node, answer in answers.items()}
            logs[own] = self._log(queue.group)
            members = tuple(replace(one, log=logs.get(one.node)) for one in seen.members)
            done(replace(seen, members=members))

        others = [node for node in named if node != own and self._placement.running(node)]
        self._survey.ask(others, told, queue.group)

    @answers_refusals
    def recover(
        self, vhost: str, name: str, node: str, done: errors.Answer[values.QueueRecovered]
    ) -> None:
        """Have the member on the node continue the queue alone; answer QueueRecovered.

        Refused: a queue on one node only, one with a leader, or with a majority in reach; a node
        that is down, has no member, or one that holds less than another one in reach.
        """
        queue = self._queues.find(vhost, name)
        if not queue.replicated:
            raise errors.lives_on_one_node(name, vhost, queue.config.kind, queue.nodes[0])
        self._nodes.check_fit(node)
        if node not in queue.carriers:
            raise errors.PreconditionFailed(
                f"{_name(queue)} has no member on node '{node}', only on "
                f"{', '.join(queue.carriers)}"
            )
        loop = self._cluster.loop
        patience = loop.now_ms + NO_LEADER_MS

        def ask() -> None:
            self._leader_queries.ask([queue.group], asked)

        def asked(facts: Facts) -> None:
            if queue.group in facts:
                done(
                    errors.PreconditionFailed(
                        f"{_name(queue)} has a leader: it has not lost its majority; replace the "
                        "members that are lost by others (delete-member, add-member)"
                    )
                )
            elif loop.now_ms < patience:
                loop.call_later(QUERY_RETRY_MS, ask)
            else:
                others = [one for one in self._cluster.peers() if one in queue.carriers]
                self._survey.ask(others, partial(self._found, queue, node, done), queue.group)

        ask()

    def _found(
        self,
        queue: QueueRecord,
        node: str,
        done: errors.Answer[values.QueueRecovered],
        answers: dict[str, messages.LogEndIs],
    ) -> None:
        host = self._cluster.host
        ends = {one: (answer.term, answer.last) for one, answer in answers.items()}
        if host.node_id in queue.carriers:
            ends[host.node_id] = host.log_end(queue.group)
        refusal = self._refused(queue, node, ends)
        if refusal is not None:
            done(refusal)
            return

        def recovered(reply: commands.QueueIs) -> None:
            others = tuple(one for one in queue.carriers if one != node)
            done(
                values.QueueRecovered(queue.vhost, queue.name, node, ends[node][1], others)
                if reply.created
                else errors.Unavailable(f"{_name(queue)}: its members were changed; try again")
            )

        command = commands.RecoverQueue(queue.group, node, queue.nodes)
        self._definitions.submit(command, errors.continued(done, recovered))

    def _refused(
        self, queue: QueueRecord, node: str, ends: dict[str, LogEnd]
    ) -> errors.Refusal | None:
        silent = [one for one in queue.carriers if one not in ends and self._placement.running(one)]
        if silent:
            return errors.Unavailable(
                f"{_name(queue)}: {', '.join(silent)} did not say what it holds; try again"
            )
        intact = {one: end for one, end in ends.items() if end[1]}
        if node not in intact:
            return errors.PreconditionFailed(
                f"{_name(queue)}: node '{node}' holds nothing of it; its log is on "
                f"{', '.join(sorted(intact)) or 'no node in reach'}"
            )
        if len(intact) >= majority(len(queue.nodes)):
            return errors.PreconditionFailed(
                f"{_name(queue)} has its majority: {', '.join(sorted(intact))} hold it; they elect "
                "a leader by themselves, try again"
            )
        best = max(sorted(intact), key=lambda one: intact[one])
        if intact[best] > intact[node]:
            return errors.PreconditionFailed(
                f"{_name(queue)}: node '{best}' holds more, up to entry {intact[best][1]} of term "
                f"{intact[best][0]}; recover it from there"
            )
        return None


def _name(queue: QueueRecord) -> str:
    return errors.named("queue", queue.name, queue.vhost)
