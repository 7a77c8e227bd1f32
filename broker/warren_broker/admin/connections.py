"""Clients' connections and consumers as `/management` resources.

The paths are those of RabbitMQ's HTTP API without `/api`. A user sees its own, with the tag
`monitoring` all of them, and of a queue that it names all consumers; it closes its own connections,
with the tag `administrator` any.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from warren_broker.admin import resource
from warren_broker.admin.resource import ManagementRequest, Names, Query
from warren_wire.errors import InvalidArgument

CLOSING_REASON: Final = "Closed via management plugin"
"""RabbitMQ's words, which its clients' suites compare."""
CLOSING_REASON_CHARACTERS_MAX: Final = 200


class ListConnectionsRequest(ManagementRequest, frozen=True):
    """GET /connections?vhost=&user=&name=&channels=&samples=. Answer: Listed (ConnectionInfo).

    They are sorted by name.

    vhost, user, name  "": of any
    channels           whether the open channels are shown, too
    samples            whether with those that were kept; of one that is named
    """

    vhost: str = ""
    user: str = ""
    name: str = ""
    channels: bool = False
    samples: bool = False


class ListConsumersRequest(ManagementRequest, frozen=True):
    """GET /consumers?vhost=&queue=. Answer: Listed (ConsumerInfo), by queue; 404.

    vhost  "": of any, unless a queue is given
    queue  of the connection's vhost, whatever the users of its consumers; "": of any
    """

    vhost: str = ""
    queue: str = ""


class EndConnectionRequest(ManagementRequest, frozen=True):
    """DELETE /connections/:name?reason=. Answer: Performed; 404."""

    name: str
    reason: str


AnyConnectionRequest: TypeAlias = (
    ListConnectionsRequest | ListConsumersRequest | EndConnectionRequest
)


def _list(names: Names, query: Query, body: Any) -> ManagementRequest:
    name = query.get("name", "")
    return ListConnectionsRequest(
        query.get("vhost", ""),
        query.get("user", ""),
        name,
        resource.is_set(query, "channels"),
        bool(name) and resource.is_set(query, "samples"),
    )


def _consumers(names: Names, query: Query, body: Any) -> ManagementRequest:
    return ListConsumersRequest(query.get("vhost", ""), query.get("queue", ""))


def _close(names: Names, query: Query, body: Any) -> ManagementRequest:
    reason = query.get("reason") or CLOSING_REASON
    if len(reason) > CLOSING_REASON_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a reason of {len(reason)} characters; {CLOSING_REASON_CHARACTERS_MAX} is the limit"
        )
    return EndConnectionRequest(resource.filled("connection", names[0]), reason)


ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/connections", _list),
    resource.route("DELETE", "/connections/:connection", _close),
    resource.route("GET", "/consumers", _consumers),
)
