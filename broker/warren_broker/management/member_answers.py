"""From what is said about nodes with members to the status with the body that answers it.

A value becomes a map with its fields' names. 202 says that something was begun which goes on by
itself: GET /queues/quorum/:queue/status or GET /nodes/:node shows how far it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from warren_broker.management import membership as v
from warren_broker.management.member_requests import Criticality, GetMembers, GetNode, NodeList
from warren_broker.management.requests import ManagementRequest

CRITICAL_REASON = (
    "There are quorum queues that would lose their quorum if the target node is shut down"
)
"""RabbitMQ's words."""


def render_member(request: ManagementRequest, value: Any) -> tuple[int, Any]:
    """Status and body of a value of `management.membership` that answers the request."""
    if isinstance(value, NodeList):
        return 200, [plain_value(node) for node in value.nodes]
    if isinstance(value, Criticality):
        return _criticality(value.found)
    if type(value) in _BOUNDED:
        value = _BOUNDED[type(value)](value)
    begun = _BEGUN.get(type(value))
    changes = not isinstance(request, GetNode | GetMembers)
    status = 202 if changes and begun is not None and begun(value) else 200
    return status, plain_value(value)


def plain_value(value: Any) -> Any:
    """Maps, lists, texts, numbers: a tuple would be another AMQP type."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _criticality(found: v.QuorumCritical) -> tuple[int, Any]:
    body = plain_value(found)
    if found.safe:
        return 200, {"status": "ok", **body}
    return 503, {"status": "failed", "reason": CRITICAL_REASON, **body}


def _resizing(value: v.Resizing) -> v.Resizing:
    failed = [each for each in value.queues if each.error]
    changed = [each for each in value.queues if not each.error]
    shown = tuple((failed + changed)[: v.SHOWN_MAX])
    if len(shown) == len(value.queues):
        shown = value.queues  # in the order they were in
    return replace(value, queues=shown, count=len(value.queues), failed=len(failed))


_BOUNDED: dict[type, Callable[[Any], Any]] = {
    v.Resizing: _resizing,
    v.Rebalanced: lambda value: replace(
        value, moves=value.moves[: v.SHOWN_MAX], count=len(value.moves)
    ),
    v.Forgetting: lambda value: replace(
        value, lost=value.lost[: v.SHOWN_MAX], lost_count=len(value.lost)
    ),
}
"""What goes onto the wire of values that name any number of queues."""

_BEGUN: dict[type, Callable[[Any], bool]] = {
    v.MembersChanged: lambda result: bool(result.changed),
    v.Resizing: lambda result: bool(result.count > result.failed),
    v.Rebalanced: lambda result: bool(result.count),
    v.NodeStatus: lambda result: not result.done,
    v.Forgetting: lambda result: True,
}
"""Whether something goes on after that answer; others are complete."""

MEMBER_VALUES = (v.QueueMembers, v.LeaderMoved, NodeList, Criticality, *_BEGUN)
"""What `render_member` renders."""
