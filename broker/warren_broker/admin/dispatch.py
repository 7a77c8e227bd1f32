"""Dispatch: from a `/management` request's method, path and body to its value, and the answer.

Paths are percent-encoded; in a pattern `:name` stands for one decoded segment, `::name` for one
that is decoded part by part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from warren_broker.admin import (
    claims,
    connections,
    definitions,
    delayed,
    health,
    limits,
    members,
    policies,
    queues,
    relays,
    resource,
    shovels,
    sinks,
    statistics,
    totals,
    users,
    views,
)
from warren_broker.admin.resource import MessagesCounted, Names, Performed, checked_name
from warren_machines.metadata.permissions import Tag
from warren_wire.amqp10.proton import ulong
from warren_wire.arguments import NAME_BYTES_MAX
from warren_wire.errors import InvalidArgument, MethodNotAllowed, NotFound, Refusal

ROUTES: tuple[resource.ManagementRoute, ...] = (
    *queues.ROUTES,
    *delayed.ROUTES,
    *views.ROUTES,
    *claims.ROUTES,
    *sinks.ROUTES,
    *relays.ROUTES,
    *members.ROUTES,
    *users.ROUTES,
    *policies.ROUTES,
    *limits.ROUTES,
    *definitions.ROUTES,
    *shovels.ROUTES,
    *health.ROUTES,
    *connections.ROUTES,
    *totals.ROUTES,
    *statistics.ROUTES,
)
_BY_BEGINNING: dict[tuple[str, int], list[resource.ManagementRoute]] = {}
"""The routes by their first part, which is never a name, and their number of parts."""
for _route in ROUTES:
    _BY_BEGINNING.setdefault((_route.pattern[0], len(_route.pattern)), []).append(_route)
_RENDERERS = {
    **resource.RENDERERS,
    **queues.RENDERERS,
    **delayed.RENDERERS,
    **views.RENDERERS,
    **claims.RENDERERS,
    **sinks.RENDERERS,
    **definitions.RENDERERS,
}


class FoundRoute(NamedTuple):
    """A path's route, the names in the path, and its query: all that is known without the body."""

    route: resource.ManagementRoute
    names: Names
    query: resource.Query

    def check(
        self,
        must_be: Callable[[Tag, str], None],
        size: int,
        parts: Callable[[int], int] | None = None,
    ) -> None:
        """Raise Refusal unless the user may ask, and the body may be decoded.

        must_be  see `Access.must_be`
        """
        if self.route.tag is not None:
            must_be(self.route.tag, self.route.shown)
        self.route.check_body(size, parts)

    def request(self, body: Any) -> resource.ManagementRequest:
        """Return the request's value, without a token; raises Refusal."""
        return self.route.make(self.names, self.query, body)


def parse_request(method: str, path: str, body: Any) -> resource.ManagementRequest:
    """Return the value of a request that has been checked; raises Refusal."""
    return find_route(method, path).request(body)


def find_route(method: str, path: str) -> FoundRoute:
    """Return what a path stands for; raises Refusal."""
    bare, _, query_text = path.partition("?")
    if not bare.startswith("/") or len(path) > 16 * NAME_BYTES_MAX:
        raise InvalidArgument(
            f"path {path[:100]!r}: an absolute path below /queues, /exchanges … is expected"
        )
    segments = bare[1:].split("/")
    query = dict(parse_qsl(query_text, keep_blank_values=True))
    methods = set()
    for route in _BY_BEGINNING.get((segments[0], len(segments)), ()):
        names = _match(route.pattern, segments)
        if names is None:
            continue
        if route.method == method:
            return FoundRoute(route, names, query)
        methods.add(route.method)
    if methods:
        raise MethodNotAllowed(f"{method} on {bare}: only {', '.join(sorted(methods))}")
    raise NotFound(f"no resource {bare}; see the protocol's table of requests")


def _match(pattern: Names, segments: list[str]) -> Names | None:
    names = []
    for part, segment in zip(pattern, segments, strict=True):
        if part.startswith("::"):
            names.append(segment)
        elif part.startswith(":"):
            names.append(checked_name(part[1:], unquote(segment)))
        elif part != segment:
            return None
    return tuple(names)


def render_result(request: resource.ManagementRequest, result: Any) -> resource.Answer:
    """Return the status and body of a Refusal, a Result or a value of `management.membership`."""
    if isinstance(result, Refusal):
        return result.http_status, {"condition": result.condition, "detail": result.detail}
    if isinstance(result, Performed):
        return 204, None
    if isinstance(result, MessagesCounted):
        return 200, {request.count_key: ulong(result.messages)}
    if isinstance(result, members.MEMBER_VALUES):
        return members.render_member(request, result)
    return _RENDERERS[type(result)](result)
