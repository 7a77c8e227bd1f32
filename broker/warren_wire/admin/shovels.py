"""Shovels and federation links, and the requests for them.

To see them takes the tag `monitoring` or `policymaker`, to restart or delete one `policymaker`, and
a permission in its vhost. A shovel is set as a parameter (`admin.parameters`).
"""

from __future__ import annotations

from typing import ClassVar, Final, Generic, TypeVar

import msgspec

from warren_wire.admin.requests import AdminRequest, route

T = TypeVar("T")

STARTING: Final = "starting"
RUNNING: Final = "running"
TERMINATED: Final = "terminated"
PAUSED: Final = "paused"
DYNAMIC: Final = "dynamic"
STATIC: Final = "static"
"""Type of a shovel of the nodes' configurations, which has no vhost."""
FEDERATION: Final = "federation"
"""Type of a federation link, which is shown by itself: name is its upstream."""
DONE: Final = "done"
"""Said by a shovel's process: everything that it was to move has been moved. Not shown."""


class ShovelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A shovel of a vhost; the URIs have no passwords.

    vhost           "": it is static
    type            dynamic, static, federation
    node            that runs it, or is to run it
    state           starting, running; terminated: it failed, and is started again after a delay
                    unless the reason says otherwise; paused: by an operator, until it is resumed
    reason          the last error; "": there was none since it runs
    blocked_status  running; blocked: the destination accepts no publishes (resource alarm);
                    refused: it refuses messages, which are published again
    forwarded       messages confirmed by the destination since the process was started
    pending         messages received and not confirmed
    remaining       messages until it deletes itself; None: it does not
    access_refused  `reason` is that an end has refused user, password, vhost or permission
    """

    vhost: str
    name: str
    node: str
    type: str = DYNAMIC
    state: str = STARTING
    reason: str = ""
    src_protocol: str = ""
    src_uri: str = ""
    src_queue: str = ""
    src_exchange: str = ""
    src_address: str = ""
    dest_protocol: str = ""
    dest_uri: str = ""
    dest_queue: str = ""
    dest_exchange: str = ""
    dest_address: str = ""
    blocked_status: str = RUNNING
    forwarded: int = 0
    pending: int = 0
    remaining: int | None = None
    access_refused: bool = False


class ListShovelsRequest(AdminRequest[list[ShovelInfo]], frozen=True):
    """Return shovels with their states, by vhost and name; 404. Answer: Listed (ShovelInfo).

    vhost  None: of all that the user sees
    """

    ROUTES: ClassVar = (
        route("GET /shovels/:vhost"),
        route("GET /shovels"),
    )
    vhost: str | None = None


class ListLinksRequest(AdminRequest[list[ShovelInfo]], frozen=True):
    """Return federation links by vhost, queue and upstream; 404. Answer: Listed (ShovelInfo).

    Their name is the upstream's, dest_queue the federated queue.

    vhost  None: of all that the user sees
    """

    ROUTES: ClassVar = (
        route("GET /federation-links/:vhost"),
        route("GET /federation-links"),
    )
    vhost: str | None = None


class OneShovelRequest(AdminRequest[T], Generic[T], frozen=True):
    """A request about one shovel.

    name  the shovel's name
    """

    vhost: str
    name: str


class ShovelRequest(OneShovelRequest[ShovelInfo], frozen=True):
    """Return one shovel; 404. Answer: ShovelInfo."""

    ROUTES: ClassVar = (route("GET /shovels/vhost/:vhost/:name"),)


class RestartShovelRequest(OneShovelRequest[None], frozen=True):
    """Have a shovel connect again, also one that has ended with an error; 404.

    Answer: Performed.
    """

    ROUTES: ClassVar = (
        route("DELETE /shovels/vhost/:vhost/:name/restart", "policymaker", http=True),
    )


class PauseShovelRequest(OneShovelRequest[None], frozen=True):
    """Have a shovel move nothing until it is resumed, on whatever node it is; or resume it; 404.

    What is under way is confirmed, or comes back to the source. Answer: Performed.
    """

    ROUTES: ClassVar = (
        route("PUT /shovels/vhost/:vhost/:name/pause", "policymaker", http=True, paused=True),
        route("DELETE /shovels/vhost/:vhost/:name/pause", "policymaker", http=True, paused=False),
    )
    paused: bool = True


class DeleteShovelRequest(OneShovelRequest[None], frozen=True):
    """Stop and remove a shovel; what is not confirmed stays in its source; 404.

    Answer: Performed.
    """

    ROUTES: ClassVar = (route("DELETE /shovels/vhost/:vhost/:name", "policymaker", http=True),)
