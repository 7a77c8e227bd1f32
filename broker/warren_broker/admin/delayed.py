"""The delayed messages of a queue as `/management` resources."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from warren_broker.admin import resource
from warren_broker.admin.resource import ManagementRequest, Names, Query, Result
from warren_wire.admin.queue_values import DelayedInfo
from warren_wire.amqp10.proton import ulong
from warren_wire.errors import InvalidArgument

DELAYED_LISTED_MAX: Final = 500
"""Delayed messages in one answer."""
_ID: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,9})")


class ListDelayedRequest(ManagementRequest, frozen=True):
    """GET /queues/:q/messages/delayed?count=N. Answer: DelayedListed; 404."""

    name: str
    count: int


class EndDelayRequest(ManagementRequest, frozen=True):
    """DELETE /queues/:q/messages/delayed/:id, or POST …/:id/retry. Answer: MessagesCounted; 404.

    place  (ready_ms, index, ordinal) of the message, which its id says
    """

    count_key: ClassVar[str] = "message_count"
    name: str
    place: tuple[int, int, int]
    drop: bool


AnyDelayedRequest: TypeAlias = ListDelayedRequest | EndDelayRequest


class DelayedListed(Result, frozen=True):
    """The delayed messages of a queue that are ready first."""

    messages: tuple[DelayedInfo, ...]


def delayed_id(ready_ms: int, index: int, ordinal: int) -> str:
    """Return the id of a delayed message; it has another one when it is delayed again."""
    return f"{ready_ms}-{index}-{ordinal}"


def _list(names: Names, query: Query, body: Any) -> ManagementRequest:
    text = query.get("count", str(DELAYED_LISTED_MAX))
    if not text.isdecimal() or not 1 <= int(text[:9]) <= DELAYED_LISTED_MAX or len(text) > 9:
        raise InvalidArgument(f"count={text[:40]}: a number from 1 to {DELAYED_LISTED_MAX}")
    return ListDelayedRequest(names[0], int(text))


def _end(drop: bool) -> resource.Make:
    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        found = _ID.fullmatch(names[1])
        place = tuple(map(int, found.groups())) if found else (resource.INT64_MAX,)
        if len(place) != 3:
            raise InvalidArgument(
                f"id {names[1][:60]!r}: GET /queues/:queue/messages/delayed has the ids"
            )
        return EndDelayRequest(names[0], place, drop)

    return made


ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/queues/:queue/messages/delayed", _list),
    resource.route("DELETE", "/queues/:queue/messages/delayed/:message", _end(drop=True)),
    resource.route("POST", "/queues/:queue/messages/delayed/:message/retry", _end(drop=False)),
)


def _listed(result: DelayedListed) -> resource.Answer:
    return 200, [
        {
            **msgspec.structs.asdict(one),
            "ready_at": ulong(one.ready_at),
            "size_bytes": ulong(one.size_bytes),
        }
        for one in result.messages
    ]


RENDERERS: dict[type[Result], Callable[[Any], resource.Answer]] = {DelayedListed: _listed}
