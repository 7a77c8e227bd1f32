"""Dispatch: from a `/management` request's method, path and body to its value, and the answer.

Paths are percent-encoded; in a pattern `:name` stands for one decoded segment, `::name` for one
that is decoded part by part.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote

from warren_broker.amqp10.wire.proton import ulong
from warren_broker.arguments import NAME_BYTES_MAX
from warren_broker.errors import InvalidArgument, MethodNotAllowed, NotFound, Refusal
from warren_broker.management import (
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
from warren_broker.management.resource import MessagesCounted, Names, Performed, checked_name

_ROUTES: tuple[resource.Route, ...] = (
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
_BY_BEGINNING: dict[tuple[str, int], list[resource.Route]] = {}
"""The routes by their first part, which is never a name, and their number of parts."""
for _route in _ROUTES:
    _BY_BEGINNING.setdefault((_route[1][0], len(_route[1])), []).append(_route)
_RENDERERS = {
    **resource.RENDERERS,
    **queues.RENDERERS,
    **delayed.RENDERERS,
    **views.RENDERERS,
    **claims.RENDERERS,
    **sinks.RENDERERS,
    **definitions.RENDERERS,
}


def parse_request(method: str, path: str, body: Any) -> resource.ManagementRequest:
    """Return the request's value, without a token; raises Refusal."""
    bare, _, query_text = path.partition("?")
    if not bare.startswith("/") or len(path) > 16 * NAME_BYTES_MAX:
        raise InvalidArgument(
            f"path {path[:100]!r}: an absolute path below /queues, /exchanges … is expected"
        )
    segments = bare[1:].split("/")
    query = dict(parse_qsl(query_text, keep_blank_values=True))
    methods = set()
    for route_method, pattern, make in _BY_BEGINNING.get((segments[0], len(segments)), ()):
        names = _match(pattern, segments)
        if names is None:
            continue
        if route_method == method:
            return make(names, query, body)
        methods.add(route_method)
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
