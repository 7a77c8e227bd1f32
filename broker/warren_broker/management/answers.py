"""From a management result to the status with the body that answers it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import msgspec
from proton import uint, ulong

from warren_broker.errors import InvalidArgument, Refusal
from warren_broker.management import requests as m
from warren_broker.management import user_requests as users
from warren_broker.management.member_answers import (
    MEMBER_VALUES,
    plain_value,
    render_member,
)

Answer: TypeAlias = tuple[int, Any]
"""HTTP's status, and an AMQP value for the body."""


def render_result(request: m.ManagementRequest, result: Any) -> Answer:
    """Status and body of an answer: a Refusal, a Result, a value of `management.membership`."""
    if isinstance(result, Refusal):
        return result.http_status, {"condition": result.condition, "detail": result.detail}
    if isinstance(result, m.Counted):
        return 200, {_COUNT_KEYS[type(request)]: ulong(result.messages)}
    if isinstance(result, MEMBER_VALUES):
        return render_member(request, result)
    return _RENDERERS[type(result)](result)


_COUNT_KEYS: dict[type[m.ManagementRequest], str] = {
    m.DeleteQueue: "message_count",
    m.PurgeQueue: "message_count",
    m.SettleClaims: "messages",
    m.ReleaseClaim: "messages",
    m.PublishBatch: "published",
}


def render_queue(info: m.QueueInfo) -> dict[str, Any]:
    """A queue as a map; message_count and consumer_count are RabbitMQ's keys."""
    return {
        "name": info.name,
        "vhost": info.vhost,
        "type": info.type,
        "durable": info.durable,
        "exclusive": info.exclusive,
        "auto_delete": info.auto_delete,
        "arguments": info.arguments,
        "leader": info.leader,
        "replicas": list(info.replicas),
        "message_count": ulong(info.messages_ready),
        "messages_ready": ulong(info.messages_ready),
        "messages_unacknowledged": ulong(info.messages_unacknowledged),
        "messages_claimed": ulong(info.messages_claimed),
        "messages_staged": ulong(info.messages_staged),
        "messages_delayed": ulong(info.messages_delayed),
        "messages_set_aside": ulong(info.messages_set_aside),
        "bytes_ready": ulong(info.bytes_ready),
        "consumer_count": uint(info.consumer_count),
        "by_priority": [list(pair) for pair in info.by_priority],
        "readers": [msgspec.structs.asdict(reader) for reader in info.readers],
    }


def render_binding(binding: m.Binding) -> dict[str, Any]:
    """A binding as a map; DELETE its `location` to undo it."""
    return {
        "source": binding.source,
        f"destination_{binding.destination_kind}": binding.destination,
        "binding_key": binding.routing_key,
        "arguments": binding.arguments,
        "location": f"/bindings/{binding_segment(binding)}",
    }


def binding_segment(binding: m.Binding) -> str:
    """`src=…;dstq=…;key=…;args=…`, each value percent-encoded, the arguments as base64 of
    MessagePack."""
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


def parse_binding(segment: str) -> m.Binding:
    """The inverse of `binding_segment`; raises Refusal."""
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
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidArgument(
            f"binding {segment[:200]!r}: args is not what GET /bindings gave"
        ) from None
    kind: Any = "queue" if "dstq" in parts else "exchange"
    return m.Binding(
        parts["src"],
        parts.get("dstq", parts.get("dste", "")),
        kind,
        parts.get("key", ""),
        arguments,
    )


def _exchange(info: m.ExchangeInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "type": info.kind,
        "durable": info.durable,
        "auto_delete": info.auto_delete,
        "internal": info.internal,
        "arguments": info.arguments,
    }


def _overview(result: m.Overview) -> Answer:
    nodes = [msgspec.structs.asdict(node) for node in result.nodes]
    return 200, {
        "node": result.node,
        "cluster": result.cluster,
        "version": result.version,
        "api": uint(result.api),
        "nodes": nodes,
    }


def _claim(result: m.ClaimOpened) -> Answer:
    return 200, {
        "number": ulong(result.number),
        "messages": ulong(result.messages),
        "size_bytes": ulong(result.size_bytes),
        "open": result.open,
    }


_RENDERERS: dict[type[m.Result], Callable[[Any], Answer]] = {
    m.Performed: lambda result: (204, None),
    users.Shown: lambda result: (200, plain_value(result.value)),
    users.Listed: lambda result: (200, [plain_value(value) for value in result.values]),
    users.Put: lambda result: (201 if result.created else 204, None),
    m.QueueInfo: lambda result: (200, render_queue(result)),
    m.QueueDeclared: lambda result: (201 if result.created else 200, render_queue(result.info)),
    m.QueueList: lambda result: (200, [render_queue(info) for info in result.queues]),
    m.ExchangeList: lambda result: (200, [_exchange(info) for info in result.exchanges]),
    m.BindingList: lambda result: (200, [render_binding(binding) for binding in result.bindings]),
    m.ReaderRegistered: lambda result: (
        200,
        {"epoch": ulong(result.epoch), "settled": ulong(result.settled)},
    ),
    m.EpochDrawn: lambda result: (200, {"epoch": ulong(result.epoch)}),
    m.ClaimOpened: _claim,
    m.Overview: _overview,
}
