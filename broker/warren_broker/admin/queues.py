"""The cluster's overview, queues, exchanges and bindings as `/management` resources."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias
from urllib.parse import quote, unquote

import msgspec

from warren_broker.admin import resource
from warren_broker.admin.resource import Body, ManagementRequest, Names, Query, Result
from warren_wire.admin.queue_values import ExchangeInfo, OverviewNode, QueueInfo
from warren_wire.amqp10.proton import uint, ulong
from warren_wire.arguments import ARGUMENT_DEPTH_MAX
from warren_wire.errors import InvalidArgument
from warren_wire.undecodable import UNDECODABLE, nested_deeper

API_VERSION = 2
"""2: a sink's batches belong to runs, published by name and number of blocks; 1: without runs."""


# ------------------------------------------------------------------ requests


class GetOverviewRequest(ManagementRequest, frozen=True):
    """GET /overview: the answering node, and all nodes. Answer: Overview."""


class DeclareRequest(ManagementRequest, frozen=True):
    """What the declaration of a queue says, and that of an exchange."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class DeclareQueueRequest(DeclareRequest, frozen=True):
    """PUT /queues/:q. Answer: DeclaredQueue; 409 when it exists with other settings."""

    exclusive: bool = False


class GetQueueRequest(ManagementRequest, frozen=True):
    """GET /queues/:q. Answer: QueueInfo; 404."""

    name: str


class ListQueuesRequest(ManagementRequest, frozen=True):
    """GET /queues?after=&count=&pattern=&name=&counts=. Answer: QueueList.

    after    only those with names after this one, ascending
    count    at most this number, 1 to QUEUES_LISTED_MAX; 0: all of them, refused if there are more
    pattern  only those with names in which this is found (`name_patterns`); "": all
    name     only the queue with this name; "": all
    counts   False: no leader is asked, and every count is 0
    """

    after: str = ""
    count: int = 0
    pattern: str = ""
    name: str = ""
    counts: bool = True


class DeleteQueueRequest(ManagementRequest, frozen=True):
    """DELETE /queues/:q?if-unused=&if-empty=&force=. Answer: MessagesCounted (ready).

    Deleting a queue that does not exist is MessagesCounted(0).

    force  without asking the queue, which has lost its majority for good: MessagesCounted(0),
           whatever it held
    """

    count_key: ClassVar[str] = "message_count"
    name: str
    if_unused: bool = False
    if_empty: bool = False
    force: bool = False


class PurgeQueueRequest(ManagementRequest, frozen=True):
    """DELETE /queues/:q/messages. Answer: MessagesCounted; 404."""

    count_key: ClassVar[str] = "message_count"
    name: str


class RetryDelayedRequest(ManagementRequest, frozen=True):
    """POST /queues/:q/messages/delayed/retry. Answer: MessagesCounted; 404."""

    count_key: ClassVar[str] = "message_count"
    name: str


class DeclareExchangeRequest(DeclareRequest, frozen=True):
    """PUT /exchanges/:x. Answer: Performed; 409 when it exists with other settings."""

    kind: str = "direct"
    internal: bool = False


class DeleteExchangeRequest(ManagementRequest, frozen=True):
    """DELETE /exchanges/:x. Answer: Performed, also when there is none."""

    name: str
    if_unused: bool = False


class ListExchangesRequest(ManagementRequest, frozen=True):
    """GET /exchanges. Answer: ExchangeList."""


class BindingInfo(msgspec.Struct, frozen=True):
    """A binding from an exchange to a queue or to another exchange."""

    source: str
    destination: str
    destination_kind: Literal["queue", "exchange"] = "queue"
    routing_key: str = ""
    arguments: dict[str, Any] = {}


class BindRequest(ManagementRequest, frozen=True):
    """POST /bindings. Answer: Performed, also when it exists; 404 without source or destination."""

    binding: BindingInfo


class UnbindRequest(ManagementRequest, frozen=True):
    """DELETE /bindings/…. Answer: Performed, also when there is none."""

    binding: BindingInfo


class ListBindingsRequest(ManagementRequest, frozen=True):
    """GET /bindings?src=&dstq=&dste=&key=. Answer: BindingList; None: any."""

    source: str | None = None
    destination: str | None = None
    destination_kind: Literal["queue", "exchange"] | None = None
    routing_key: str | None = None


AnyQueueRequest: TypeAlias = (
    GetOverviewRequest
    | DeclareQueueRequest
    | GetQueueRequest
    | ListQueuesRequest
    | DeleteQueueRequest
    | PurgeQueueRequest
    | RetryDelayedRequest
    | DeclareExchangeRequest
    | DeleteExchangeRequest
    | ListExchangesRequest
    | BindRequest
    | UnbindRequest
    | ListBindingsRequest
)


# ------------------------------------------------------------------ results


class DeclaredQueue(Result, frozen=True):
    """A declared queue; created: by this request (201 rather than 200)."""

    created: bool
    info: QueueInfo


class QueueList(Result, frozen=True):
    """All queues of the vhost, by name."""

    queues: tuple[QueueInfo, ...]


class ExchangeList(Result, frozen=True):
    """All exchanges of the vhost, by name."""

    exchanges: tuple[ExchangeInfo, ...]


class BindingList(Result, frozen=True):
    """The matching bindings."""

    bindings: tuple[BindingInfo, ...]


class Overview(Result, frozen=True):
    """The answering node and its cluster.

    api  version of the requests that `/management` supports: API_VERSION
    cluster_name  the name under which the cluster is shown; "": `cluster`, its own
    """

    node: str
    cluster: str
    version: str
    nodes: tuple[OverviewNode, ...]
    api: int = API_VERSION
    cluster_name: str = ""


AnyQueueResult: TypeAlias = (
    QueueInfo | DeclaredQueue | QueueList | ExchangeList | BindingList | Overview
)


# ------------------------------------------------------------------ bodies, routes


class DeclareQueueBody(Body, frozen=True):
    """PUT /queues/:q."""

    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[Any, Any] = {}


class DeclareExchangeBody(Body, frozen=True):
    """PUT /exchanges/:x."""

    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[Any, Any] = {}


class BindBody(Body, frozen=True):
    """POST /bindings; exactly one of the destinations is not empty."""

    source: str
    destination_queue: str = ""
    destination_exchange: str = ""
    binding_key: str = ""
    arguments: dict[Any, Any] = {}


def _list_queues(names: Names, query: Query, body: Any) -> ManagementRequest:
    count = query.get("count", "0")
    if not count.isdecimal() or len(count) > 9:
        raise InvalidArgument(f"count={count[:40]}: a number of queues is expected")
    pattern = query.get("pattern", "")
    if pattern:
        resource.checked_pattern("pattern", pattern)
    return ListQueuesRequest(
        query.get("after", ""),
        int(count),
        pattern,
        query.get("name", ""),
        query.get("counts", "") != "false",
    )


def _declare_queue(names: Names, query: Query, body: Any) -> ManagementRequest:
    name = resource.filled("queue", names[0])
    read = resource.read_body(DeclareQueueBody, body)
    return DeclareQueueRequest(
        name,
        durable=read.durable,
        exclusive=read.exclusive,
        auto_delete=read.auto_delete,
        arguments=resource.argument_table(read.arguments),
    )


def _delete_queue(names: Names, query: Query, body: Any) -> ManagementRequest:
    unused, empty, force = (
        resource.is_set(query, key) for key in ("if-unused", "if-empty", "force")
    )
    if force and (unused or empty):
        raise InvalidArgument("force does not ask the queue: if-unused, if-empty cannot be kept")
    return DeleteQueueRequest(names[0], unused, empty, force)


def _declare_exchange(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(DeclareExchangeBody, body)
    return DeclareExchangeRequest(
        names[0],
        kind=read.type,
        durable=read.durable,
        auto_delete=read.auto_delete,
        internal=read.internal,
        arguments=resource.argument_table(read.arguments),
    )


def _delete_exchange(names: Names, query: Query, body: Any) -> ManagementRequest:
    return DeleteExchangeRequest(names[0], resource.is_set(query, "if-unused"))


def _bind(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(BindBody, body)
    queue, exchange = read.destination_queue, read.destination_exchange
    if bool(queue) == bool(exchange):
        raise InvalidArgument(
            "a binding needs exactly one of destination_queue, destination_exchange"
        )
    return BindRequest(
        BindingInfo(
            read.source,
            queue or exchange,
            "queue" if queue else "exchange",
            read.binding_key,
            resource.argument_table(read.arguments),
        )
    )


def _unbind(names: Names, query: Query, body: Any) -> ManagementRequest:
    return UnbindRequest(parse_binding(names[0]))


def _list_bindings(names: Names, query: Query, body: Any) -> ManagementRequest:
    queue, exchange = query.get("dstq"), query.get("dste")
    if queue is not None and exchange is not None:
        raise InvalidArgument("bindings of dstq and dste at once: ask for one of them")
    kind: Any = "queue" if queue is not None else "exchange" if exchange is not None else None
    return ListBindingsRequest(
        query.get("src"), queue if queue is not None else exchange, kind, query.get("key")
    )


ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/overview", resource.from_names(GetOverviewRequest)),
    resource.route("GET", "/queues", _list_queues),
    resource.route("PUT", "/queues/:queue", _declare_queue),
    resource.route("GET", "/queues/:queue", resource.from_names(GetQueueRequest)),
    resource.route("DELETE", "/queues/:queue", _delete_queue),
    resource.route("DELETE", "/queues/:queue/messages", resource.from_names(PurgeQueueRequest)),
    resource.route(
        "POST", "/queues/:queue/messages/delayed/retry", resource.from_names(RetryDelayedRequest)
    ),
    resource.route("GET", "/exchanges", resource.from_names(ListExchangesRequest)),
    resource.route("PUT", "/exchanges/:exchange", _declare_exchange),
    resource.route("DELETE", "/exchanges/:exchange", _delete_exchange),
    resource.route("POST", "/bindings", _bind),
    resource.route("GET", "/bindings", _list_bindings),
    resource.route("DELETE", "/bindings/::binding", _unbind),
)


# ------------------------------------------------------------------ answers


def render_queue(info: QueueInfo) -> dict[str, Any]:
    """Return a queue as a map; message_count and consumer_count are RabbitMQ's keys."""
    return {
        "name": info.name,
        "vhost": info.vhost,
        "type": info.type,
        "durable": info.durable,
        "exclusive": info.exclusive,
        "auto_delete": info.auto_delete,
        "arguments": info.arguments,
        "policy": info.policy,
        "operator_policy": info.operator_policy,
        "effective_policy_definition": info.effective_policy_definition,
        "leader": info.leader,
        "replicas": list(info.replicas),
        "message_count": ulong(info.messages_ready),
        "messages": ulong(info.messages),
        "messages_ready": ulong(info.messages_ready),
        "messages_unacknowledged": ulong(info.messages_unacknowledged),
        "messages_claimed": ulong(info.messages_claimed),
        "messages_staged": ulong(info.messages_staged),
        "messages_delayed": ulong(info.messages_delayed),
        "next_delayed_at": ulong(info.next_delayed_at),
        "last_delayed_at": ulong(info.last_delayed_at),
        "delayed_retry": info.delayed_retry,
        "delivery_limit": info.delivery_limit,
        "messages_dlx": ulong(info.messages_dlx),
        "message_bytes_dlx": ulong(info.message_bytes_dlx),
        "messages_set_aside": ulong(info.messages_set_aside),
        "duplicates_dropped": ulong(info.duplicates_dropped),
        "deduplication_ids": ulong(info.deduplication_ids),
        "bytes_ready": ulong(info.bytes_ready),
        "bytes_unacknowledged": ulong(info.bytes_unacknowledged),
        "message_bytes": ulong(info.message_bytes),
        "consumer_count": uint(info.consumer_count),
        "by_priority": [list(pair) for pair in info.by_priority.items()],
        "readers": [msgspec.to_builtins(reader) for reader in info.readers],
        "relays": [msgspec.to_builtins(relay) for relay in info.relays],
    }


def render_binding(binding: BindingInfo) -> dict[str, Any]:
    """Return a binding as a map; a DELETE of its `location` removes it."""
    return {
        "source": binding.source,
        f"destination_{binding.destination_kind}": binding.destination,
        "binding_key": binding.routing_key,
        "arguments": binding.arguments,
        "location": f"/bindings/{binding_segment(binding)}",
    }


def binding_segment(binding: BindingInfo) -> str:
    """Return `src=…;dstq=…;key=…;args=…`, percent-encoded, arguments as base64 MessagePack."""
    arguments = b""
    if binding.arguments:
        arguments = base64.urlsafe_b64encode(
            msgspec.msgpack.encode(binding.arguments, order="sorted")
        )
    destination = "dstq" if binding.destination_kind == "queue" else "dste"
    return (
        f"src={quote(binding.source, safe='')};{destination}={quote(binding.destination, safe='')};"
        f"key={quote(binding.routing_key, safe='')};args={quote(arguments.decode(), safe='')}"
    )


def parse_binding(segment: str) -> BindingInfo:
    """Parse what `binding_segment` returned; raises Refusal."""
    parts: dict[str, str] = {}
    for part in segment.split(";"):
        key, separator, value = part.partition("=")
        if not separator or key in parts or key not in ("src", "dstq", "dste", "key", "args"):
            raise InvalidArgument(
                f"binding {segment[:200]!r}: src=…;dstq=…;key=…;args=… is expected"
            )
        parts[key] = unquote(value)
    if "src" not in parts or ("dstq" in parts) == ("dste" in parts):
        raise InvalidArgument(f"binding {segment[:200]!r} needs src and exactly one of dstq, dste")
    try:
        packed = base64.urlsafe_b64decode(parts.get("args", "").encode())
        arguments = msgspec.msgpack.decode(packed, type=dict[str, Any]) if packed else {}
    except (binascii.Error, ValueError, *UNDECODABLE):
        arguments = None
    if arguments is None or nested_deeper(arguments, ARGUMENT_DEPTH_MAX):
        raise InvalidArgument(f"binding {segment[:200]!r}: args is not what GET /bindings gave")
    kind: Any = "queue" if "dstq" in parts else "exchange"
    return BindingInfo(
        parts["src"],
        parts.get("dstq", parts.get("dste", "")),
        kind,
        parts.get("key", ""),
        arguments,
    )


def _overview(result: Overview) -> resource.Answer:
    nodes = [msgspec.structs.asdict(node) for node in result.nodes]
    return 200, {
        "node": result.node,
        "cluster": result.cluster,
        "cluster_name": result.cluster_name or result.cluster,
        "version": result.version,
        "api": uint(result.api),
        "nodes": nodes,
    }


RENDERERS: dict[type, Callable[[Any], resource.Answer]] = {
    QueueInfo: lambda result: (200, render_queue(result)),
    DeclaredQueue: lambda result: (201 if result.created else 200, render_queue(result.info)),
    QueueList: lambda result: (200, [render_queue(info) for info in result.queues]),
    ExchangeList: lambda result: (200, [msgspec.structs.asdict(info) for info in result.exchanges]),
    BindingList: lambda result: (200, [render_binding(binding) for binding in result.bindings]),
    Overview: _overview,
}
