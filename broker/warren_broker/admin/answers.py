"""The answers of `/management`: results as an HTTP status and an AMQP value."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from warren_wire.admin import members
from warren_wire.admin.exchanges import BindingInfo, binding_segment
from warren_wire.admin.queue_pages import BindingsPage, QueuesPage
from warren_wire.admin.queues import DeclaredQueue, QueueInfo
from warren_wire.admin.requests import (
    AnyAdminRequest,
    Listed,
    MessagesCounted,
    Performed,
    Put,
    said_of,
)
from warren_wire.amqp10.proton import uint, ulong
from warren_wire.errors import Refusal

Answered: TypeAlias = tuple[int, Any]
"""HTTP status, and an AMQP value for the body."""
CRITICAL_REASON = (
    "There are quorum queues that would lose their quorum if the target node is shut down"
)
"""RabbitMQ's text."""


def rendered(request: AnyAdminRequest, result: Any) -> Answered:
    """Return the status and body of a Refusal, a Result or a value."""
    match result:
        case Refusal():
            return result.http_status, {"condition": result.condition, "detail": result.detail}
        case Performed():
            return 204, None
        case Put():
            return 201 if result.created else 204, None
        case MessagesCounted():
            return 200, {request.count_key: ulong(result.messages)}
        case Listed():
            return 200, [shown_value(one) for one in result.values]
        case QueuesPage() | BindingsPage():
            return 200, _page(result)
        case DeclaredQueue():
            return 201 if result.created else 200, shown_value(result.info)
        case members.Criticality():
            return _criticality(result.found)
    if type(result) in _BOUNDED:
        result = _BOUNDED[type(result)](result)
    begun = _BEGUN.get(type(result))
    changes = request.ROUTES and request.ROUTES[0].method != "GET"
    return 202 if changes and begun is not None and begun(result) else 200, shown_value(result)


def plain_value(value: Any) -> Any:
    """Convert a struct to maps, lists, strings and numbers: a tuple would be another AMQP type."""
    return msgspec.json.decode(msgspec.json.encode(value))


def shown_value(value: Any) -> Any:
    """Return a struct as a map; numbers are as its fields say (`requests.seen`)."""
    if isinstance(value, BindingInfo):
        return shown_binding(value)
    kind: type[msgspec.Struct] = type(value)
    fields = _special(kind)
    if not fields:
        return plain_value(value)
    found = {}
    for key, name, write in fields:
        item = getattr(value, name)
        found[key] = item if write is None else write(item)
    return found


_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    "ulong": ulong,
    "uint": uint,
    "pairs": lambda found: [list(pair) for pair in found.items()],
}


@cache
def _special(kind: type[msgspec.Struct]) -> list[tuple[str, str, Callable[[Any], Any] | None]]:
    """Return key, field and conversion of each field; nothing where plain values are enough.

    What clients gave as arguments, of any type that AMQP has, stays as it is.
    """
    said = said_of(kind)
    found, special = [], False
    for field in msgspec.structs.fields(kind):
        write: Callable[[Any], Any] | None = _plain_values
        if number := said.get(field.name, {}).get("amqp"):
            write, special = _NUMBERS[number], True
        elif field.type in (str, int, bool, bytes, dict[str, Any]):
            write, special = None, special or field.type in (bytes, dict[str, Any])
        elif field.type == tuple[str, ...]:
            write = list
        found.append((field.encode_name, field.name, write))
    if kind is QueueInfo:
        found.append(("message_count", "messages_ready", ulong))
    return found if special else []


def _plain_values(value: Any) -> Any:
    return [] if value == () else plain_value(value)


def _page(page: QueuesPage | BindingsPage) -> dict[str, Any]:
    """Return a page with its items as they are shown one by one: arguments stay as they are."""
    shown: dict[str, Any] = {
        "total_count": ulong(page.total_count),
        "filtered_count": ulong(page.filtered_count),
        "items": [shown_value(one) for one in page.items],
    }
    if isinstance(page, QueuesPage):
        shown["statistics"] = _plain_values(page.statistics)
    return shown


def shown_binding(binding: BindingInfo) -> dict[str, Any]:
    """Return a binding as a map; a DELETE of its `location` removes it."""
    return {
        "source": binding.source,
        f"destination_{binding.destination_kind}": binding.destination,
        "binding_key": binding.routing_key,
        "arguments": binding.arguments,
        "location": f"/bindings/{binding_segment(binding)}",
    }


# ------------------------------------------------------------------ nodes and members


def _criticality(found: members.QuorumCritical) -> Answered:
    body = plain_value(found)
    if found.safe:
        return 200, {"status": "ok", **body}
    return 503, {"status": "failed", "reason": CRITICAL_REASON, **body}


def _resizing(value: members.Resizing) -> members.Resizing:
    failed = [each for each in value.queues if each.error]
    changed = [each for each in value.queues if not each.error]
    shown = tuple((failed + changed)[: members.SHOWN_MAX])
    if len(shown) == len(value.queues):
        shown = value.queues  # in the original order
    return replace(value, queues=shown, count=len(value.queues), failed=len(failed))


_BOUNDED: dict[type, Callable[[Any], Any]] = {
    members.Resizing: _resizing,
    members.Rebalanced: lambda value: replace(
        value, moves=value.moves[: members.SHOWN_MAX], count=len(value.moves)
    ),
    members.Forgetting: lambda value: replace(
        value, lost=value.lost[: members.SHOWN_MAX], lost_count=len(value.lost)
    ),
}
"""Truncates values that name any number of queues to what fits into an answer."""


_BEGUN: dict[type, Callable[[Any], bool]] = {
    members.MembersChanged: lambda result: bool(result.changed),
    members.Resizing: lambda result: bool(result.count > result.failed),
    members.Rebalanced: lambda result: bool(result.count),
    members.NodeStatus: lambda result: not result.done,
    members.Forgetting: lambda result: True,
}
"""Whether the operation continues after the answer; with other values it is complete."""
