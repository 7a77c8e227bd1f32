"""Shovels as `/management` resources.

The paths are those of RabbitMQ's HTTP API without `/api`. To see shovels takes the tag `monitoring`
or `policymaker`, to restart or delete one `policymaker`, and a permission in its vhost. A shovel is
set as a parameter (`management.definitions`).
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from warren_broker.admin import resource
from warren_broker.admin.resource import ManagementRequest


class ListShovelsRequest(ManagementRequest, frozen=True):
    """GET /shovels, /shovels/:vhost. Answer: Listed (ShovelInfo), by vhost and name; 404.

    vhost  None: of all that the user sees
    """

    vhost: str | None = None


class ListLinksRequest(ManagementRequest, frozen=True):
    """GET /federation-links, /federation-links/:vhost. Answer: as ListShovelsRequest's.

    Links are sorted by vhost, queue and upstream.
    """

    vhost: str | None = None


class ShovelRequest(ManagementRequest, frozen=True):
    """GET /shovels/vhost/:vhost/:name. Answer: Shown (ShovelInfo); 404."""

    vhost: str
    name: str


class RestartShovelRequest(ManagementRequest, frozen=True):
    """DELETE /shovels/vhost/:vhost/:name/restart. Answer: Performed; 404."""

    vhost: str
    name: str


class PauseShovelRequest(ManagementRequest, frozen=True):
    """PUT and DELETE /shovels/vhost/:vhost/:name/pause. Answer: Performed; 404.

    paused  False: it is to run again
    """

    vhost: str
    name: str
    paused: bool

    @classmethod
    def of(cls, paused: bool, vhost: str, name: str) -> PauseShovelRequest:
        """Return the request for these names of a path."""
        return cls(vhost=vhost, name=name, paused=paused)


class DeleteShovelRequest(ManagementRequest, frozen=True):
    """DELETE /shovels/vhost/:vhost/:name. Answer: Performed; 404."""

    vhost: str
    name: str


AnyShovelRequest: TypeAlias = (
    ListShovelsRequest
    | ListLinksRequest
    | ShovelRequest
    | RestartShovelRequest
    | PauseShovelRequest
    | DeleteShovelRequest
)

_ONE_SHOVEL = "/shovels/vhost/:vhost/:name"
ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/shovels", resource.from_names(lambda: ListShovelsRequest())),
    resource.route(
        "GET", "/shovels/:vhost", resource.from_names(lambda vhost: ListShovelsRequest(vhost=vhost))
    ),
    resource.route("GET", "/federation-links", resource.from_names(lambda: ListLinksRequest())),
    resource.route(
        "GET",
        "/federation-links/:vhost",
        resource.from_names(lambda vhost: ListLinksRequest(vhost=vhost)),
    ),
    resource.route(
        "GET",
        _ONE_SHOVEL,
        resource.from_names(lambda vhost, name: ShovelRequest(vhost=vhost, name=name)),
    ),
    resource.route(
        "DELETE",
        _ONE_SHOVEL,
        resource.from_names(lambda vhost, name: DeleteShovelRequest(vhost=vhost, name=name)),
    ),
    resource.route(
        "DELETE",
        f"{_ONE_SHOVEL}/restart",
        resource.from_names(lambda vhost, name: RestartShovelRequest(vhost=vhost, name=name)),
    ),
    *(
        resource.route(
            method,
            f"{_ONE_SHOVEL}/pause",
            resource.from_names(partial(PauseShovelRequest.of, method == "PUT")),
        )
        for method in ("PUT", "DELETE")
    ),
)
