"""The table of the HTTP API: for each path its tag, what is read, and the function that answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from warren_broker.http.replies import HttpRefusal, bad_request, not_authorised, object_not_found
from warren_machines.metadata.permissions import INCLUDED_IN
from warren_wire.admin.requests import BODY_BYTES_MAX, AnyAdminRequest, Tag
from warren_wire.arguments import NAME_BYTES_MAX

Answering: TypeAlias = Callable[..., Awaitable[Any]]
"""Takes the call and the names in its path. It returns an HttpReply, what is answered as JSON, the
node's answer to a change, or None for 204; it raises HttpRefusal."""
MAX_BODY_SIZE: Final = 0
"""Bound of a body that only the setting `management.http.max_body_size` bounds."""
SEGMENTS_MAX = 16
SEGMENT_BYTES_MAX = 16 * NAME_BYTES_MAX
_ANSWERS: Final = "http_routes"


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """A method and a path; the right, then the size are checked before a body is read.

    pattern    the path's segments; `:name` is any one
    by         answers
    tag        that the user must have, beside `management`
    bytes_max  of the body
    pages      it answers a list that `page=` divides; others ignore it, as in RabbitMQ, unless
               `pagination=true` is given, too
    reads      the request of which the fields are read; None: it has fields of its own, or none
    without    fields that are not
    shows      what is answered, of the types of `warren_wire.admin`; None: RabbitMQ's form of it
    """

    method: str
    pattern: tuple[str, ...]
    by: Answering
    tag: Tag = "management"
    bytes_max: int = BODY_BYTES_MAX
    pages: bool = False
    reads: type[AnyAdminRequest] | None = None
    without: frozenset[str] = frozenset({"token"})
    shows: Any = None

    @property
    def path(self) -> tuple[str, ...]:
        """The pattern without the names of names."""
        return tuple(":" if part.startswith(":") else part for part in self.pattern)

    def check_tag(self, tags: Collection[str]) -> None:
        """Raise HttpRefusal unless a user with these tags may ask."""
        if self.tag != "management" and INCLUDED_IN[self.tag].isdisjoint(tags):
            raise not_authorised("User not authorised to access object")


def http_route(shown: str, by: Answering, **more: Any) -> HttpRoute:
    """Return the route of a method and a path such as `GET /queues/:vhost`; see `HttpRoute`."""
    method, _, path = shown.partition(" ")
    return HttpRoute(method, tuple(path[1:].split("/")), by, **more)


def answers(*shown: str, **more: Any) -> Callable[[Answering], Answering]:
    """Name the methods and paths that a function answers; see `HttpRoute`."""

    def named(by: Answering) -> Answering:
        known = getattr(by, _ANSWERS, ())
        setattr(by, _ANSWERS, (*known, *(http_route(one, by, **more) for one in shown)))
        return by

    return named


def routes_of(*modules: Any) -> list[HttpRoute]:
    """Return the routes of modules that `answers` names."""
    return [
        route
        for module in modules
        for one in vars(module).values()
        if getattr(one, "__module__", "") == module.__name__
        for route in getattr(one, _ANSWERS, ())
    ]


class RouteTable:
    """All routes; where several fit a path, the one with a literal counts before one with a name.

    Invariant: no two routes have the same method and path
    """

    def __init__(self, routes: Iterable[HttpRoute]) -> None:
        self.routes = sorted(routes, key=lambda route: [part == ":" for part in route.path])
        self._methods: dict[tuple[str, ...], dict[str, HttpRoute]] = {}
        for route in self.routes:
            known = self._methods.setdefault(route.path, {})
            assert route.method not in known, route
            known[route.method] = route

    def find(self, method: str, segments: Sequence[str]) -> tuple[HttpRoute, list[str]]:
        """Return the route of a request and the names in its path; raises HttpRefusal.

        HEAD is answered as GET.
        """
        path, methods = self._at(segments)
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = self.allowed(segments)
            raise HttpRefusal(
                405, "method_not_allowed", f"{method} is not among {allowed}", {"allow": allowed}
            )
        return route, [one for part, one in zip(path, segments, strict=True) if part == ":"]

    def allowed(self, segments: Sequence[str]) -> str:
        """Return the methods of a path, those that every one has among them; raises HttpRefusal."""
        _, methods = self._at(segments)
        return ", ".join((*(["HEAD"] if "GET" in methods else []), *sorted(methods), "OPTIONS"))

    def _at(self, segments: Sequence[str]) -> tuple[tuple[str, ...], dict[str, HttpRoute]]:
        for path, methods in self._methods.items():
            if len(path) == len(segments) and all(
                part in (":", one) for part, one in zip(path, segments, strict=True)
            ):
                return path, methods
        raise object_not_found()


def segments_of(raw_path: bytes, prefix: str) -> list[str]:
    """Return the decoded segments of a path below `PREFIX/api`; raises HttpRefusal.

    Each is decoded by itself: `%2F` is part of a name. No segment means another one, or a file.
    """
    text = raw_path.decode("latin-1")
    start = f"{prefix}/api/"
    if not text.startswith(start):
        raise object_not_found()
    parts = text[len(start) :].split("/")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()  # as in RabbitMQ, a path may end with a slash
    if len(parts) > SEGMENTS_MAX:
        raise object_not_found()
    return [_decoded(part) for part in parts]


def _decoded(part: str) -> str:
    if len(part) > SEGMENT_BYTES_MAX:
        raise bad_request(f"a part of the path has {len(part)} characters, which no name has")
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise bad_request(f"{part[:40]!r} in the path is not UTF-8, percent-encoded") from None
