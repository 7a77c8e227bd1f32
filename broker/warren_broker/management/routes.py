"""From a `/management` request's method, path, body to its value.

Paths are percent-encoded; in a pattern `:name` stands for one segment, decoded, `::name` for one
that is decoded by its own parts.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote

from warren_broker.errors import InvalidArgument, MethodNotAllowed, NotFound
from warren_broker.management import requests as m
from warren_broker.management.answers import parse_binding
from warren_broker.management.body import (
    NAME_BYTES_MAX,
    Body,
    Names,
    Query,
    Route,
    checked_name,
    is_set,
    path_number,
    route,
)
from warren_broker.management.member_routes import MEMBER_ROUTES
from warren_broker.management.user_routes import USER_ROUTES

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
        raise MethodNotAllowed(f"{method} on {bare}: only {', '.join(sorted(methods))}")
    raise NotFound(f"no resource {bare}; see the protocol's table of requests")


def _match(pattern: Names, segments: list[str]) -> Names | None:
    if len(pattern) != len(segments):
        return None
    names = []
    for part, segment in zip(pattern, segments, strict=True):
        if part.startswith("::"):
            names.append(segment)
        elif part.startswith(":"):
            names.append(checked_name(part[1:], unquote(segment)))
        elif part != segment:
            return None
    return tuple(names)


def _overview(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.GetOverview()


def _list_queues(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    count = query.get("count", "0")
    if not count.isdecimal() or len(count) > 9:
        raise InvalidArgument(f"count={count[:40]}: a number of queues is expected")
    return m.ListQueues(query.get("after", ""), int(count))


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
    unused, empty, force = (is_set(query, key) for key in ("if-unused", "if-empty", "force"))
    if force and (unused or empty):
        raise InvalidArgument("force does not ask the queue: if-unused, if-empty cannot be kept")
    return m.DeleteQueue(names[0], unused, empty, force)


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
    return m.DeleteExchange(names[0], is_set(query, "if-unused"))


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
    read = Body(body, ("call", "go_on_after"))
    return m.RegisterReader(
        names[0], names[1], read.text("call", ""), read.number("go_on_after", 0, 0)
    )


def _open_claim(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("epoch", "max_messages", "max_bytes", "ttl_ms", "keep_empty"))
    return m.OpenClaim(
        names[0],
        names[1],
        path_number("claim", names[2]),
        epoch=read.number("epoch", 0),
        max_messages=read.number("max_messages", 1),
        max_bytes=read.number("max_bytes", 1),
        ttl_ms=read.number("ttl_ms", 0, 0),
        keep_empty=read.flag("keep_empty", False),
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


def _draw_epoch(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    return m.DrawEpoch()


def _publish_batch(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("epoch", "queues"))
    batch, epoch = path_number("batch", names[2]), read.number("epoch", 1)
    queues: Any = read.rows_by_name("queues", 3)
    return m.PublishBatch(names[0], names[1], epoch, batch, queues)


def _drop_batch(names: Names, query: Query, body: Any) -> m.ManagementRequest:
    read = Body(body, ("epoch", "queues"))
    batch, epoch = path_number("batch", names[2]), read.number("epoch", 1)
    queues: Any = read.rows_by_name("queues", 2)
    return m.DropBatch(names[0], names[1], epoch, batch, queues)


_READER = "/queues/:queue/readers/:reader"
_RUN = "/sinks/:sink/runs/:run"
_ROUTES: tuple[Route, ...] = (
    route("GET", "/overview", _overview),
    route("GET", "/queues", _list_queues),
    route("PUT", "/queues/:queue", _declare_queue),
    route("GET", "/queues/:queue", _get_queue),
    route("DELETE", "/queues/:queue", _delete_queue),
    route("DELETE", "/queues/:queue/messages", _purge_queue),
    route("GET", "/exchanges", _list_exchanges),
    route("PUT", "/exchanges/:exchange", _declare_exchange),
    route("DELETE", "/exchanges/:exchange", _delete_exchange),
    route("POST", "/bindings", _bind),
    route("GET", "/bindings", _list_bindings),
    route("DELETE", "/bindings/::binding", _unbind),
    route("POST", _READER, _register_reader),
    route("PUT", _READER + "/claims/:claim", _open_claim),
    route("POST", _READER + "/renew", _renew),
    route("POST", _READER + "/settle", _settle),
    route("POST", _READER + "/release", _release),
    route("POST", "/epochs", _draw_epoch),
    route("POST", _RUN + "/batches/:batch", _publish_batch),
    route("DELETE", _RUN + "/batches/:batch", _drop_batch),
    *MEMBER_ROUTES,
    *USER_ROUTES,
)
