"""Nodes and the members of queues as `/management` resources.

The paths are those of RabbitMQ's HTTP API without `/api`; the vhost is the connection's, and
patterns select from all vhosts. Operations that RabbitMQ has in its command line only (drain,
revive, forget, leader transfer) are named after its commands. Results are values of
`management.membership`. Changes need a user with the tag `administrator`; reads need `monitoring`,
or for one queue the permission to read it; the health check needs any tag, as in RabbitMQ.

Status 202 says that the operation was started and continues after the answer:
GET /queues/quorum/:queue/status or GET /nodes/:node shows its progress.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from warren_broker.admin import resource
from warren_broker.admin.resource import Body, ManagementRequest, Names, Query, Result
from warren_wire.admin import membership
from warren_wire.errors import InvalidArgument

MEMBERSHIPS = ("promotable",)
"""The supported ones of RabbitMQ's values; `voter` and `non_voter` are not."""
CRITICAL_REASON = (
    "There are quorum queues that would lose their quorum if the target node is shut down"
)
"""RabbitMQ's text."""


# ------------------------------------------------------------------ requests


class NodeRequest(ManagementRequest, frozen=True):
    """A request about one node."""

    node: str


class MembersRequest(ManagementRequest, frozen=True):
    """A request about the members of a queue."""

    queue: str


class QueueMemberRequest(MembersRequest, frozen=True):
    """A request about one node's member of a queue."""

    node: str


class GetMembersRequest(MembersRequest, frozen=True):
    """GET /queues/quorum/:queue/status. Answer: QueueMembers; 404."""


class AddMemberRequest(QueueMemberRequest, frozen=True):
    """POST /queues/quorum/:queue/replicas/add. Answer: MembersChanged; 404, 409."""


class DeleteMemberRequest(QueueMemberRequest, frozen=True):
    """DELETE /queues/quorum/:queue/replicas/delete. Answer: MembersChanged; 404, 409."""


class TransferLeadershipRequest(QueueMemberRequest, frozen=True):
    """POST /queues/quorum/:queue/leader/transfer. Answer: LeaderMoved; 404, 409."""


class GrowNodeRequest(NodeRequest, frozen=True):
    """POST /queues/quorum/replicas/on/:node/grow. Answer: Resizing; 404, 409."""

    strategy: Literal["all", "even"]
    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"


class ShrinkNodeRequest(NodeRequest, frozen=True):
    """DELETE /queues/quorum/replicas/on/:node/shrink. Answer: Resizing; 404."""

    errors_only: bool = False


class RebalanceQueuesRequest(ManagementRequest, frozen=True):
    """POST /rebalance/queues. Answer: Rebalanced."""

    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"


class ListNodesRequest(ManagementRequest, frozen=True):
    """GET /nodes. Answer: NodeList."""


class GetNodeRequest(NodeRequest, frozen=True):
    """GET /nodes/:node. Answer: NodeStatus; 404."""


class DrainNodeRequest(NodeRequest, frozen=True):
    """POST /nodes/:node/drain. Answer: NodeStatus; 404, 409."""


class ReviveNodeRequest(NodeRequest, frozen=True):
    """POST /nodes/:node/revive. Answer: NodeStatus; 404, 409."""


class ForgetNodeRequest(NodeRequest, frozen=True):
    """DELETE /nodes/:node. Answer: Forgetting; 404, 409 while it runs."""


class CheckQuorumCriticalRequest(ManagementRequest, frozen=True):
    """GET /health/checks/node-is-quorum-critical, or …/:node. Answer: Criticality; 404.

    node  "": the answering node
    """

    node: str = ""


AnyMemberRequest: TypeAlias = (
    GetMembersRequest
    | AddMemberRequest
    | DeleteMemberRequest
    | TransferLeadershipRequest
    | GrowNodeRequest
    | ShrinkNodeRequest
    | RebalanceQueuesRequest
    | ListNodesRequest
    | GetNodeRequest
    | DrainNodeRequest
    | ReviveNodeRequest
    | ForgetNodeRequest
    | CheckQuorumCriticalRequest
)


# ------------------------------------------------------------------ results


class NodeList(Result, frozen=True):
    """All nodes of the cluster, by name."""

    nodes: tuple[membership.NodeInfo, ...]


class Criticality(Result, frozen=True):
    """The result of a health check: 200 when the node may stop, else 503, as in RabbitMQ."""

    found: membership.QuorumCritical


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


# ------------------------------------------------------------------ bodies, routes


class NodeBody(Body, frozen=True):
    """DELETE …/replicas/delete, POST …/leader/transfer."""

    node: str


class AddMemberBody(Body, frozen=True):
    """POST …/replicas/add."""

    node: str
    membership: str = "promotable"


class PatternsBody(Body, frozen=True):
    """POST /rebalance/queues."""

    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"


class GrowBody(PatternsBody, frozen=True, kw_only=True):
    """POST …/grow."""

    strategy: Literal["all", "even"]
    membership: str = "promotable"


class ShrinkBody(Body, frozen=True):
    """DELETE …/shrink."""

    errors_only: bool = False


def _node(node: str) -> str:
    if not node:
        raise InvalidArgument("node is empty; GET /nodes shows the names")
    return node


def _patterns(read: PatternsBody) -> tuple[str, str]:
    return (
        resource.checked_pattern("vhost_pattern", read.vhost_pattern),
        resource.checked_pattern("queue_pattern", read.queue_pattern),
    )


def _named(names: Names) -> str:
    if not names[0]:
        raise InvalidArgument("the node's name is empty; GET /nodes shows the names")
    return names[0]


def _check_membership(asked: str) -> None:
    """Refuse another membership than RabbitMQ's `promotable`: a learner, then a voter."""
    if asked not in MEMBERSHIPS:
        raise InvalidArgument(
            f"membership={asked[:40]!r}: a new member learns first, then becomes a voter by "
            "itself; leave membership out, or give 'promotable'"
        )


def _add_member(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(AddMemberBody, body)
    _check_membership(read.membership)
    return AddMemberRequest(names[0], _node(read.node))


def _delete_member(names: Names, query: Query, body: Any) -> ManagementRequest:
    return DeleteMemberRequest(names[0], _node(resource.read_body(NodeBody, body).node))


def _transfer(names: Names, query: Query, body: Any) -> ManagementRequest:
    return TransferLeadershipRequest(names[0], _node(resource.read_body(NodeBody, body).node))


def _grow(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(GrowBody, body)
    _check_membership(read.membership)
    return GrowNodeRequest(_named(names), read.strategy, *_patterns(read))


def _shrink(names: Names, query: Query, body: Any) -> ManagementRequest:
    return ShrinkNodeRequest(_named(names), resource.read_body(ShrinkBody, body).errors_only)


def _rebalance(names: Names, query: Query, body: Any) -> ManagementRequest:
    return RebalanceQueuesRequest(*_patterns(resource.read_body(PatternsBody, body)))


def _get_node(names: Names, query: Query, body: Any) -> ManagementRequest:
    return GetNodeRequest(_named(names))


def _of_node(make: Callable[[str], ManagementRequest]) -> resource.Make:
    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        resource.read_body(resource.EmptyBody, body)
        return make(_named(names))

    return made


def _critical(names: Names, query: Query, body: Any) -> ManagementRequest:
    return CheckQuorumCriticalRequest(_named(names) if names else "")


_QUEUE = "/queues/quorum/:queue"
_ON_NODE = "/queues/quorum/replicas/on/:node"
_CRITICAL = "/health/checks/node-is-quorum-critical"
ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", _QUEUE + "/status", resource.from_names(GetMembersRequest)),
    resource.route("POST", _QUEUE + "/replicas/add", _add_member, "administrator"),
    resource.route("DELETE", _QUEUE + "/replicas/delete", _delete_member),
    resource.route("POST", _QUEUE + "/leader/transfer", _transfer, "administrator"),
    resource.route("POST", _ON_NODE + "/grow", _grow, "administrator"),
    resource.route("DELETE", _ON_NODE + "/shrink", _shrink),
    resource.route("POST", "/rebalance/queues", _rebalance, "administrator"),
    resource.route("GET", "/nodes", resource.from_names(ListNodesRequest)),
    resource.route("GET", "/nodes/:node", _get_node),
    resource.route("POST", "/nodes/:node/drain", _of_node(DrainNodeRequest), "administrator"),
    resource.route("POST", "/nodes/:node/revive", _of_node(ReviveNodeRequest), "administrator"),
    resource.route("DELETE", "/nodes/:node", _of_node(ForgetNodeRequest)),
    resource.route("GET", _CRITICAL, _critical),
    resource.route("GET", _CRITICAL + "/:node", _critical),
)


# ------------------------------------------------------------------ answers


def render_member(request: ManagementRequest, value: Any) -> tuple[int, Any]:
    """Return the status and body of a value of `management.membership` that answers the request."""
    if isinstance(value, NodeList):
        return 200, [resource.plain_value(node) for node in value.nodes]
    if isinstance(value, Criticality):
        return _criticality(value.found)
    if type(value) in _BOUNDED:
        value = _BOUNDED[type(value)](value)
    begun = _BEGUN.get(type(value))
    changes = not isinstance(request, GetNodeRequest | GetMembersRequest)
    status = 202 if changes and begun is not None and begun(value) else 200
    return status, resource.plain_value(value)


def _criticality(found: membership.QuorumCritical) -> tuple[int, Any]:
    body = resource.plain_value(found)
    if found.safe:
        return 200, {"status": "ok", **body}
    return 503, {"status": "failed", "reason": CRITICAL_REASON, **body}


def _resizing(value: membership.Resizing) -> membership.Resizing:
    failed = [each for each in value.queues if each.error]
    changed = [each for each in value.queues if not each.error]
    shown = tuple((failed + changed)[: membership.SHOWN_MAX])
    if len(shown) == len(value.queues):
        shown = value.queues  # in the original order
    return replace(value, queues=shown, count=len(value.queues), failed=len(failed))


_BOUNDED: dict[type, Callable[[Any], Any]] = {
    membership.Resizing: _resizing,
    membership.Rebalanced: lambda value: replace(
        value, moves=value.moves[: membership.SHOWN_MAX], count=len(value.moves)
    ),
    membership.Forgetting: lambda value: replace(
        value, lost=value.lost[: membership.SHOWN_MAX], lost_count=len(value.lost)
    ),
}
"""Truncates values that name any number of queues to what fits into an answer."""


_BEGUN: dict[type, Callable[[Any], bool]] = {
    membership.MembersChanged: lambda result: bool(result.changed),
    membership.Resizing: lambda result: bool(result.count > result.failed),
    membership.Rebalanced: lambda result: bool(result.count),
    membership.NodeStatus: lambda result: not result.done,
    membership.Forgetting: lambda result: True,
}
"""Whether the operation continues after the answer; with other values it is complete."""


MEMBER_VALUES = (membership.QueueMembers, membership.LeaderMoved, NodeList, Criticality, *_BEGUN)
"""The types that `render_member` renders."""
