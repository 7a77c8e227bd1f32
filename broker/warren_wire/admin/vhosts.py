"""Virtual hosts, and the requests for them; the keys are RabbitMQ's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Self

import msgspec

from warren_wire.admin.requests import AdminRequest, Name, route, seen
from warren_wire.admin.users import parse_tags
from warren_wire.errors import InvalidArgument

DEFAULT_QUEUE_TYPES: Final = ("classic", "quorum")
"""Types that a vhost may give to durable queues that name none."""


class VhostInfo(msgspec.Struct, frozen=True):
    """A virtual host.

    default_queue_type  of durable queues that name none: the vhost's, or the node's; `undefined`:
                        they are classic ones with several members
    tracing             whether the node that was asked traces messages in it
    protected_from_deletion  whether it cannot be deleted; None: that was never set, so it can
    """

    name: Annotated[str, seen(column=True)]
    description: Annotated[str, seen(column=True)]
    tags: Annotated[tuple[str, ...], seen(column=True)]
    default_queue_type: Annotated[str, seen(column=True)]
    tracing: Annotated[bool, seen(column=True)] = False
    protected_from_deletion: Annotated[bool | None, seen(column=True)] = None


class ListVhostsRequest(AdminRequest[list[VhostInfo]], frozen=True):
    """Return the vhosts that the user may enter, by name; all with the tag `monitoring`.

    Answer: Listed (VhostInfo).
    """

    ROUTES: ClassVar = (route("GET /vhosts", "management"),)


class GetVhostRequest(AdminRequest[VhostInfo], frozen=True):
    """Return one vhost; 404. Answer: VhostInfo."""

    ROUTES: ClassVar = (route("GET /vhosts/:vhost", "management"),)
    vhost: Name


class PutVhostRequest(AdminRequest[None], frozen=True):
    """Add a vhost, in which the user gets all permissions; or change an existing one. Answer: Put.

    description, tags  None: unchanged
    default_queue_type  None: unchanged; "" and `undefined`: the node's default
    tracing            None: unchanged; else as TraceVhostRequest
    """

    ROUTES: ClassVar = (route("PUT /vhosts/:vhost", "administrator", http=True),)
    vhost: Name
    description: str | None = None
    tags: Any = None
    default_queue_type: str | None = None
    tracing: bool | None = None

    def checked(self) -> Self:
        """See the base class."""
        kind = "" if self.default_queue_type == "undefined" else self.default_queue_type
        if kind not in (None, "", *DEFAULT_QUEUE_TYPES):
            raise InvalidArgument(
                f"unsupported default queue type '{kind}'; supported are "
                f"{', '.join(DEFAULT_QUEUE_TYPES)}, and undefined for the node's default"
            )
        tags = parse_tags(self.tags)
        return msgspec.structs.replace(self, tags=tags, default_queue_type=kind)


class TraceVhostRequest(AdminRequest[None], frozen=True):
    """Turn the tracing of messages in a vhost on or off; 404. Answer: Performed.

    It concerns what clients of the node that is asked publish and are sent, until that is changed,
    or the node ends. Trace messages are published to the vhost's exchange amq.rabbitmq.trace.
    """

    ROUTES: ClassVar = (
        route("PUT /vhosts/:vhost/tracing", "administrator", on=True),
        route("DELETE /vhosts/:vhost/tracing", "administrator", on=False),
    )
    vhost: str
    on: bool


class ProtectVhostRequest(AdminRequest[None], frozen=True):
    """Have a vhost refuse its deletion, or permit it again; 404. Answer: Performed."""

    ROUTES: ClassVar = (
        route("POST /vhosts/:vhost/deletion/protection", "administrator", http=True, on=True),
        route("DELETE /vhosts/:vhost/deletion/protection", "administrator", http=True, on=False),
    )
    vhost: Name
    on: bool = True


class DeleteVhostRequest(AdminRequest[None], frozen=True):
    """Delete a vhost with everything in it; its clients are disconnected. Answer: Performed.

    Refused: 404; 409: it is protected from deletion.
    """

    ROUTES: ClassVar = (
        route(
            "DELETE /vhosts/:vhost",
            "administrator",
            http=True,
            refused={409: (412, "precondition_failed", "")},
        ),
    )
    vhost: Name
