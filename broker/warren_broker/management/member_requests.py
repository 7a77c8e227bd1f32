"""The requests that concern nodes with their members of queues, as values.

Queues' names are those of the connection's vhost; patterns go over all vhosts. Answers are values
of `management.membership`, or a Refusal. What changes something wants a user with the tag
`administrator`; what looks wants `monitoring`, or for one queue the right to read it; the health
check wants any tag, as RabbitMQ's HTTP API does.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from warren_broker.management import membership
from warren_broker.management.requests import ManagementRequest, Result


class GetMembers(ManagementRequest, frozen=True):
    """GET /queues/quorum/:queue/status. Answer: QueueMembers; 404."""

    queue: str


class AddMember(ManagementRequest, frozen=True):
    """POST /queues/quorum/:queue/replicas/add. Answer: MembersChanged; 404, 409."""

    queue: str
    node: str


class DeleteMember(ManagementRequest, frozen=True):
    """DELETE /queues/quorum/:queue/replicas/delete. Answer: MembersChanged; 404, 409."""

    queue: str
    node: str


class TransferLeadership(ManagementRequest, frozen=True):
    """POST /queues/quorum/:queue/leader/transfer. Answer: LeaderMoved; 404, 409."""

    queue: str
    node: str


class GrowNode(ManagementRequest, frozen=True):
    """POST /queues/quorum/replicas/on/:node/grow. Answer: Resizing; 404, 409."""

    node: str
    strategy: Literal["all", "even"]
    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"


class ShrinkNode(ManagementRequest, frozen=True):
    """DELETE /queues/quorum/replicas/on/:node/shrink. Answer: Resizing; 404."""

    node: str
    errors_only: bool = False


class RebalanceQueues(ManagementRequest, frozen=True):
    """POST /rebalance/queues. Answer: Rebalanced."""

    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"


class ListNodes(ManagementRequest, frozen=True):
    """GET /nodes. Answer: NodeList."""


class GetNode(ManagementRequest, frozen=True):
    """GET /nodes/:node. Answer: NodeStatus; 404."""

    node: str


class DrainNode(ManagementRequest, frozen=True):
    """POST /nodes/:node/drain. Answer: NodeStatus; 404, 409."""

    node: str


class ReviveNode(ManagementRequest, frozen=True):
    """POST /nodes/:node/revive. Answer: NodeStatus; 404, 409."""

    node: str


class ForgetNode(ManagementRequest, frozen=True):
    """DELETE /nodes/:node. Answer: Forgetting; 404, 409 while it runs."""

    node: str


class CheckQuorumCritical(ManagementRequest, frozen=True):
    """GET /health/checks/node-is-quorum-critical, or …/:node. Answer: Criticality; 404.

    node  "": the one that answers
    """

    node: str = ""


class NodeList(Result, frozen=True):
    """All nodes of the cluster, by name."""

    nodes: tuple[membership.NodeInfo, ...]


class Criticality(Result, frozen=True):
    """What a health check found: 200 when the node may stop, else 503, as RabbitMQ's."""

    found: membership.QuorumCritical


AnyMemberRequest: TypeAlias = (
    GetMembers
    | AddMember
    | DeleteMember
    | TransferLeadership
    | GrowNode
    | ShrinkNode
    | RebalanceQueues
    | ListNodes
    | GetNode
    | DrainNode
    | ReviveNode
    | ForgetNode
    | CheckQuorumCritical
)
AnyMemberResult: TypeAlias = (
    NodeList
    | Criticality
    | membership.QueueMembers
    | membership.MembersChanged
    | membership.LeaderMoved
    | membership.Resizing
    | membership.Rebalanced
    | membership.NodeStatus
    | membership.Forgetting
)
