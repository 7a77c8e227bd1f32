"""The paths of the HTTP API and the functions that answer them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote

from warren_broker.http.calls import HttpCall
from warren_broker.http.replies import (
    HttpRefusal,
    HttpReply,
    bad_request,
    not_authorised,
    object_not_found,
)
from warren_machines.metadata.permissions import INCLUDED_IN
from warren_wire.admin.requests import BODY_BYTES_MAX, Tag
from warren_wire.arguments import NAME_BYTES_MAX

Answering: TypeAlias = Callable[[HttpCall], Awaitable[HttpReply]]
MAX_BODY_SIZE: Final = 0
"""Bound of a body that only the setting `management.http.max_body_size` bounds."""
SEGMENTS_MAX = 16
SEGMENT_BYTES_MAX = 16 * NAME_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Answered:
    """A function that answers, and what is checked before a body is read: the right, then the size.

    tag        that the user must have, beside `management`
    bytes_max  of the body
    """

    by: Answering
    tag: Tag = "management"
    bytes_max: int = BODY_BYTES_MAX

    def check_tag(self, tags: Collection[str]) -> None:
        """Raise HttpRefusal unless a user with these tags may ask."""
        if self.tag != "management" and INCLUDED_IN[self.tag].isdisjoint(tags):
            raise not_authorised("User not authorised to access object")


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """A pattern of segments, in which `:name` is any one, and a function for each method."""

    pattern: tuple[str, ...]
    methods: Mapping[str, Answered]


def http_route(path: str, **methods: Answering | Answered) -> HttpRoute:
    """Return the route of a path such as `/queues/:vhost`."""
    return HttpRoute(
        tuple(path[1:].split("/")),
        {
            method: by if isinstance(by, Answered) else Answered(by)
            for method, by in methods.items()
        },
    )


def joined(*routes: HttpRoute) -> tuple[HttpRoute, ...]:
    """Return the routes, those for the same path as one with the methods of all."""
    found: dict[tuple[str, ...], HttpRoute] = {}
    for route in routes:
        path = tuple(":" if part.startswith(":") else part for part in route.pattern)
        known = found.get(path, route)
        found[path] = HttpRoute(known.pattern, {**route.methods, **known.methods})
    return tuple(found.values())


def found_route(
    routes: Sequence[HttpRoute], method: str, segments: Sequence[str]
) -> tuple[Answered, tuple[str, ...]]:
    """Return the function for a request and the names in its path; raises HttpRefusal.

    The first pattern that fits counts. HEAD is answered as GET.
    """
    for route in routes:
        names = _match(route.pattern, segments)
        if names is None:
            continue
        answering = route.methods.get("GET" if method == "HEAD" else method)
        if answering is None:
            allowed = ", ".join(allowed_methods(route))
            raise HttpRefusal(
                405, "method_not_allowed", f"{method} is not among {allowed}", {"allow": allowed}
            )
        return answering, names
    raise object_not_found()


def allowed_methods(route: HttpRoute) -> list[str]:
    """Return the methods of a route, those that every one has among them."""
    head = ["HEAD"] if "GET" in route.methods else []
    return [*head, *sorted(route.methods), "OPTIONS"]


def options_of(routes: Sequence[HttpRoute], segments: Sequence[str]) -> str:
    """Return the methods of a path; raises HttpRefusal."""
    for route in routes:
        if _match(route.pattern, segments) is not None:
            return ", ".join(allowed_methods(route))
    raise object_not_found()


def _match(pattern: Sequence[str], segments: Sequence[str]) -> tuple[str, ...] | None:
    if len(pattern) != len(segments):
        return None
    names = []
    for part, segment in zip(pattern, segments, strict=True):
        if part.startswith(":"):
            names.append(segment)
        elif part != segment:
            return None
    return tuple(names)


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
