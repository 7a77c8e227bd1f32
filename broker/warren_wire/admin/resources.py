"""All requests of the administration: from a method and a path to the route and its request."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from warren_wire import admin
from warren_wire.admin.requests import AdminRequest, AdminRoute, AnyAdminRequest, Query
from warren_wire.arguments import NAME_BYTES_MAX
from warren_wire.errors import InvalidArgument, MethodNotAllowed, NotFound

SUBJECTS: Final = tuple(
    name for _, name, _ in iter_modules(admin.__path__) if name not in ("requests", "resources")
)
"""The modules of this folder with requests; the handlers are in `warren_broker.admin`'s of it."""
REQUESTS: Final[tuple[type[AnyAdminRequest], ...]] = tuple(
    one
    for name in SUBJECTS
    for one in vars(import_module(f"{admin.__name__}.{name}")).values()
    if isinstance(one, type) and issubclass(one, AdminRequest) and one.ROUTES
)
ROUTES: Final = {route.shown: (route, kind) for kind in REQUESTS for route in kind.ROUTES}
"""Each route with the type of its requests, by its method and path."""
_BY_BEGINNING: dict[tuple[str, int], list[tuple[AdminRoute, type[AnyAdminRequest]]]] = {}
"""The routes by their first part, which is never a name, and their number of parts."""
for _route, _kind in ROUTES.values():
    _BY_BEGINNING.setdefault((_route.pattern[0], len(_route.pattern)), []).append((_route, _kind))


class FoundRoute(NamedTuple):
    """A path's route, the names in the path, and its query: all that is known without the body."""

    route: AdminRoute
    kind: type[AnyAdminRequest]
    names: dict[str, str]
    query: Query

    def request(self, body: Any) -> AnyAdminRequest:
        """Return the request, without a token; raises Refusal."""
        return self.route.request(self.kind, self.names, self.query, body)


def parse_request(method: str, path: str, body: Any) -> AnyAdminRequest:
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
    for route, kind in _BY_BEGINNING.get((segments[0], len(segments)), ()):
        names = route.match(segments)
        if names is None:
            continue
        if route.method == method:
            return FoundRoute(route, kind, names, query)
        methods.add(route.method)
    if methods:
        raise MethodNotAllowed(f"{method} on {bare}: only {', '.join(sorted(methods))}")
    raise NotFound(f"no resource {bare}; see the protocol's table of requests")
