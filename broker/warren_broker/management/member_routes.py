"""Where `/management` has nodes with their members of queues.

The paths are those of RabbitMQ's HTTP API without `/api`; the vhost is the connection's. What
RabbitMQ has in its command line only (drain, revive, forget, moving a leader) is named after that.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from warren_broker.errors import InvalidArgument
from warren_broker.management import member_requests as m
from warren_broker.management.body import Body, Names, Query, Route, route
from warren_broker.management.requests import ManagementRequest

STRATEGIES = ("all", "even")
MEMBERSHIPS = ("promotable",)
"""Of RabbitMQ's; `voter`, `non_voter` are not to be had."""


def _node(read: Body) -> str:
    node = read.text("node")
    if not node:
        raise InvalidArgument("node is empty; GET /nodes shows the names")
    return node


def _named(names: Names) -> str:
    if not names[0]:
        raise InvalidArgument("the node's name is empty; GET /nodes shows the names")
    return names[0]


def _membership(read: Body) -> None:
    """A member is a learner first, then a voter; another wish would be without effect."""
    asked = read.text("membership", "promotable")
    if asked not in MEMBERSHIPS:
        raise InvalidArgument(
            f"membership={asked[:40]!r}: a new member learns first, then becomes a voter by "
            "itself; leave membership out, or give 'promotable'"
        )


def _get_members(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.GetMembers(names[0])


def _add_member(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = Body(body, ("node", "membership"))
    _membership(read)
    return m.AddMember(names[0], _node(read))


def _delete_member(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.DeleteMember(names[0], _node(Body(body, ("node",))))


def _transfer(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.TransferLeadership(names[0], _node(Body(body, ("node",))))


def _grow(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = Body(body, ("strategy", "vhost_pattern", "queue_pattern", "membership"))
    _membership(read)
    strategy = cast(Literal["all", "even"], read.choice("strategy", STRATEGIES))
    return m.GrowNode(
        _named(names), strategy, read.pattern("vhost_pattern"), read.pattern("queue_pattern")
    )


def _shrink(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.ShrinkNode(_named(names), Body(body, ("errors_only",)).flag("errors_only", False))


def _rebalance(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = Body(body, ("vhost_pattern", "queue_pattern"))
    return m.RebalanceQueues(read.pattern("vhost_pattern"), read.pattern("queue_pattern"))


def _list_nodes(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.ListNodes()


def _get_node(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.GetNode(_named(names))


def _drain(names: Names, query: Query, body: Any) -> ManagementRequest:
    Body(body, ())
    return m.DrainNode(_named(names))


def _revive(names: Names, query: Query, body: Any) -> ManagementRequest:
    Body(body, ())
    return m.ReviveNode(_named(names))


def _forget(names: Names, query: Query, body: Any) -> ManagementRequest:
    Body(body, ())
    return m.ForgetNode(_named(names))


def _critical(names: Names, query: Query, body: Any) -> ManagementRequest:
    return m.CheckQuorumCritical(_named(names) if names else "")


_QUEUE = "/queues/quorum/:queue"
_ON_NODE = "/queues/quorum/replicas/on/:node"
_CRITICAL = "/health/checks/node-is-quorum-critical"
MEMBER_ROUTES: tuple[Route, ...] = (
    route("GET", _QUEUE + "/status", _get_members),
    route("POST", _QUEUE + "/replicas/add", _add_member),
    route("DELETE", _QUEUE + "/replicas/delete", _delete_member),
    route("POST", _QUEUE + "/leader/transfer", _transfer),
    route("POST", _ON_NODE + "/grow", _grow),
    route("DELETE", _ON_NODE + "/shrink", _shrink),
    route("POST", "/rebalance/queues", _rebalance),
    route("GET", "/nodes", _list_nodes),
    route("GET", "/nodes/:node", _get_node),
    route("POST", "/nodes/:node/drain", _drain),
    route("POST", "/nodes/:node/revive", _revive),
    route("DELETE", "/nodes/:node", _forget),
    route("GET", _CRITICAL, _critical),
    route("GET", _CRITICAL + "/:node", _critical),
)
