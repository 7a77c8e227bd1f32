"""From a `/management` request's method, path, body to its value.

Paths are percent-encoded; in a pattern `:name` stands for one segment, decoded, `::name` for one
that is decoded by its own parts. Extra body keys are
refused with the known ones named, so that a misspelt option is not silently without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

from warren_broker.errors import InvalidArgument, NotAllowed, NotFound
from warren_broker.session import management as m
from warren_broker.session.management_answers import parse_binding

Names: TypeAlias = tuple[str, ...]
Query: TypeAlias = Mapping[str, str]

NAME_BYTES_MAX = 255
ATTEMPTS_MAX = 100_000
QUEUES_MAX = 10_000
_INT64_MAX = (1 << 63) - 1
_REQUIRED: Any = object()


class Body:
    """A request's map, read key by key with types and bounds."""

    def __init__(self, value: Any, known: tuple[str, ...]) -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise InvalidArgument(f"the body is a {type(value).__name__}; a map is expected")
        self._values: dict[Any, Any] = value
        for key in self._values:
            if key not in known:
                shown = ", ".join(known) or "none"
                raise InvalidArgument(f"unknown key {key!r} in the body; known: {shown}")

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        """A string of at most 255 bytes."""
        value = self._get(key, str, default)
        return _name(key, value)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        return bool(self._get(key, bool, default))

    def number(self, key: str, minimum: int, default: Any = _REQUIRED) -> int:
        """An integer from `minimum` up to 64 bits."""
        value = self._get(key, int, default)
        if isinstance(value, bool) or not minimum <= value <= _INT64_MAX:
            raise InvalidArgument(
                f"{key}={value!r}: a number from {minimum} to {_INT64_MAX} is expected"
            )
        return int(value)

    def table(self, key: str) -> dict[str, Any]:
        """A map with string keys."""
        value = self._get(key, dict, {})
        return {str(name): value[name] for name in value}

    def names(self, key: str) -> Names:
        """A list of names, as a tuple without repeats in sorted order."""
        value = self._get(key, list, _REQUIRED)
        if not value or len(value) > QUEUES_MAX or not all(isinstance(name, str) for name in value):
            raise InvalidArgument(f"{key}: a list of 1 to {QUEUES_MAX} names is expected")
        return tuple(sorted({_name(key, name) for name in value}))

    def pairs(self, key: str) -> tuple[tuple[int, int], ...]:
        """A list of pairs of numbers."""
        value = self._get(key, list, _REQUIRED)
        if len(value) > ATTEMPTS_MAX:
            raise InvalidArgument(f"{key}: {len(value)} pairs; {ATTEMPTS_MAX} is the limit")
        pairs = []
        for pair in value:
            if (
                not isinstance(pair, list)
                or len(pair) != 2
                or not all(_small(part) for part in pair)
            ):
                raise InvalidArgument(f"{key}: {pair!r} is not a pair of numbers")
            pairs.append((int(pair[0]), int(pair[1])))
        return tuple(pairs)

    def _get(self, key: str, kind: type, default: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            if default is _REQUIRED:
                raise InvalidArgument(f"the body lacks {key!r}")
            return default
        if not isinstance(value, kind):
            raise InvalidArgument(
                f"{key}={value!r} is a {type(value).__name__}; {kind.__name__} is expected"
            )
        return value


# ------------------------------------------------------------------ requests


def parse_request(method: str, path: str, body: Any) -> m.ManagementRequest:
    """The request's value, without a token; raises Refusal."""
    bare, _, query_text = path.partition("?")
    if not bare.startswith("/") or len(path) > 16 * NAME_BYTES_MAX:
        raise InvalidArgument(
            f"path {path[:100]!r}: an absolute path below /queues, /exchanges … is expected"
        )
    segments = bare[1:].split("/")
    query = dict(parse_qsl(query_text, keep_blank_values=True))
    methods = set()
    for route_method, pattern, make in _ROUTES:
        names = _match(pattern, segments)
        if names is None:
            continue
        if route_method == method:
            return make(names, query, body)
        methods.add(route_method)
    if methods:
        raise NotAllowed(f"{method} on {bare}: only {', '.join(sorted(methods))}")
    raise NotFound(f"no resource {bare}; see the protocol's table of requests")


def _match(pattern: Names, segments: list[str]) -> Names | None:
    if len(pattern) != len(segments):
        return None
    names = []
    for part, segment in zip(pattern, segments, strict=True):
        if part.startswith("::"):
            names.append(segment)
        elif part.startswith(":"):
            names.append(_name(part[1:], unquote(segment)))
        elif part != segment:
            return None
    return tuple(names)


def _name(what: str, value: str) -> str:
    if len(value.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise InvalidArgument(f"{what} {value[:40]!r}… is longer than {NAME_BYTES_MAX} bytes")
    return value


def _small(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT64_MAX


def _number(what: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _INT64_MAX:
        raise InvalidArgument(f"{what} {text[:40]!r} is not a number from 0 to {_INT64_MAX}")
    return int(text)


def _is_set(query: Query, key: str) -> bool:
    return query.get(key, "").lower() in ("true", "1")


def _overview(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.GetOverview()


def _list_queues(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.ListQueues()


def _declare_queue(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    if not names[0]:
        raise InvalidArgument("the queue's name is empty; choose one")
    read = Body(body, ("durable", "exclusive", "auto_delete", "arguments"))
    return m.DeclareQueue(
        names[0],
        durable=read.flag("durable", True),
        exclusive=read.flag("exclusive", False),
        auto_delete=read.flag("auto_delete", False),
        arguments=read.table("arguments"),
    )


def _get_queue(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.GetQueue(names[0])


def _delete_queue(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.DeleteQueue(names[0], _is_set(query, "if-unused"), _is_set(query, "if-empty"))


def _purge_queue(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.PurgeQueue(names[0])


def _list_exchanges(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.ListExchanges()


def _declare_exchange(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("type", "durable", "auto_delete", "internal", "arguments"))
    return m.DeclareExchange(
        names[0],
        kind=read.text("type", "direct"),
        durable=read.flag("durable", True),
        auto_delete=read.flag("auto_delete", False),
        internal=read.flag("internal", False),
        arguments=read.table("arguments"),
    )


def _delete_exchange(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.DeleteExchange(names[0], _is_set(query, "if-unused"))


def _bind(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(
        body, ("source", "destination_queue", "destination_exchange", "binding_key", "arguments")
    )
    queue, exchange = read.text("destination_queue", ""), read.text("destination_exchange", "")
    if bool(queue) == bool(exchange):
        raise InvalidArgument(
            "a binding needs exactly one of destination_queue, destination_exchange"
        )
    return m.Bind(
        m.Binding(
            read.text("source"),
            queue or exchange,
            "queue" if queue else "exchange",
            read.text("binding_key", ""),
            read.table("arguments"),
        )
    )


def _unbind(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.Unbind(parse_binding(names[0]))


def _list_bindings(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    queue, exchange = query.get("dstq"), query.get("dste")
    if queue is not None and exchange is not None:
        raise InvalidArgument("bindings of dstq and dste at once: ask for one of them")
    kind: Any = "queue" if queue is not None else "exchange" if exchange is not None else None
    return m.ListBindings(
        query.get("src"), queue if queue is not None else exchange, kind, query.get("key")
    )


def _register_reader(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    Body(body, ())
    return m.RegisterReader(names[0], names[1])


def _open_claim(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("epoch", "max_messages", "max_bytes", "ttl_ms"))
    return m.OpenClaim(
        names[0],
        names[1],
        _number("claim", names[2]),
        epoch=read.number("epoch", 0),
        max_messages=read.number("max_messages", 1),
        max_bytes=read.number("max_bytes", 1),
        ttl_ms=read.number("ttl_ms", 0, 0),
    )


def _renew(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.RenewClaims(names[0], names[1], Body(body, ("epoch",)).number("epoch", 0))


def _settle(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("epoch", "number"))
    return m.SettleClaims(names[0], names[1], read.number("number", 0), read.number("epoch", 0))


def _release(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("epoch", "number", "failed"))
    return m.ReleaseClaim(
        names[0],
        names[1],
        read.number("number", 0),
        read.number("epoch", -1),
        read.flag("failed", False),
    )


def _publish_batch(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("attempts", "queues"))
    return m.PublishBatch(
        names[0], _number("batch", names[1]), read.pairs("attempts"), read.names("queues")
    )


def _drop_batch(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("queues",))
    return m.DropBatch(names[0], _number("batch", names[1]), read.names("queues"))


_Make: TypeAlias = Callable[[Names, Query, Any], m.ManagementRequest]


def _route(method: str, path: str, make: _Make) -> tuple[str, Names, _Make]:
    return method, tuple(path[1:].split("/")), make


_READER = "/queues/:queue/readers/:reader"
_ROUTES = (
    _route("GET", "/overview", _overview),
    _route("GET", "/queues", _list_queues),
    _route("PUT", "/queues/:queue", _declare_queue),
    _route("GET", "/queues/:queue", _get_queue),
    _route("DELETE", "/queues/:queue", _delete_queue),
    _route("DELETE", "/queues/:queue/messages", _purge_queue),
    _route("GET", "/exchanges", _list_exchanges),
    _route("PUT", "/exchanges/:exchange", _declare_exchange),
    _route("DELETE", "/exchanges/:exchange", _delete_exchange),
    _route("POST", "/bindings", _bind),
    _route("GET", "/bindings", _list_bindings),
    _route("DELETE", "/bindings/::binding", _unbind),
    _route("POST", _READER, _register_reader),
    _route("PUT", _READER + "/claims/:claim", _open_claim),
    _route("POST", _READER + "/renew", _renew),
    _route("POST", _READER + "/settle", _settle),
    _route("POST", _READER + "/release", _release),
    _route("POST", "/sinks/:sink/batches/:batch", _publish_batch),
    _route("DELETE", "/sinks/:sink/batches/:batch", _drop_batch),
)
