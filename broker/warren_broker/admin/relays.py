"""What a queue keeps for relays, as a `/management` resource: shovels, federation links.

The relays themselves are shown with their queue (`queue_values.RelayInfo`).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from warren_broker.admin import resource
from warren_broker.admin.resource import Body, ManagementRequest, Names, Query
from warren_wire.errors import InvalidArgument


class ReleaseRelayRequest(ManagementRequest, frozen=True):
    """POST /queues/:q/relays/release. Answer: MessagesCounted, those that are ready again; 404.

    Refused: 409 while the relay is connected (`queue.relay_commands.ReleaseRelay`).
    """

    name: str
    relay: str


AnyRelayRequest: TypeAlias = ReleaseRelayRequest


class ReleaseRelayBody(Body, frozen=True):
    """POST …/release. relay: as the queue shows it; it may be longer than other names."""

    relay: Any = ""


def _release(names: Names, query: Query, body: Any) -> ManagementRequest:
    found = resource.read_body(ReleaseRelayBody, body)
    if not isinstance(found.relay, str) or not found.relay:
        raise InvalidArgument("relay: a string is expected, its name as the queue shows it")
    return ReleaseRelayRequest(names[0], found.relay)


ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("POST", "/queues/:queue/relays/release", _release),
)
