"""The delayed messages of a queue, and the requests for them."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Self

import msgspec

from warren_wire.admin.queues import QueueRequest
from warren_wire.admin.requests import route, seen
from warren_wire.errors import InvalidArgument

DELAYED_LISTED_MAX: Final = 500
"""Delayed messages in one answer."""
_ID: Final = re.compile(r"[0-9]{1,18}-[0-9]{1,18}-[0-9]{1,9}")


class DelayedInfo(msgspec.Struct, frozen=True):
    """A message that waits. ready_at: in milliseconds since the epoch; id: while it waits."""

    id: Annotated[str, seen(column=True)]
    ready_at: Annotated[int, seen(column=True, amqp="ulong")]
    exchange: Annotated[str, seen(column=True)]
    routing_key: Annotated[str, seen(column=True)]
    message_id: Annotated[str, seen(column=True)]
    size_bytes: Annotated[int, seen(column=True, amqp="ulong")]


class ListDelayedRequest(QueueRequest[list[DelayedInfo]], frozen=True):
    """Return the delayed messages of a queue that are ready first; 404.

    Answer: Listed (DelayedInfo).

    name  of a queue, or `amq.delayed.` and the name of an exchange of type x-delayed-message
    """

    ROUTES: ClassVar = (
        route("GET /queues/:queue/messages/delayed", http="/queues/:vhost/:queue/messages/delayed"),
    )
    count: Annotated[int, msgspec.Meta(ge=1, le=DELAYED_LISTED_MAX)] = DELAYED_LISTED_MAX


class EndDelayRequest(QueueRequest[int], frozen=True):
    """Drop the delayed message with that id, or make it ready now; 404 when it is not delayed.

    Answer: MessagesCounted.

    message  its id, as the list shows it
    """

    ROUTES: ClassVar = (
        route(
            "DELETE /queues/:queue/messages/delayed/:message",
            http="/queues/:vhost/:queue/messages/delayed/:message",
            drop=True,
        ),
        route(
            "POST /queues/:queue/messages/delayed/:message/retry",
            http="/queues/:vhost/:queue/messages/delayed/:message/retry",
            drop=False,
        ),
    )
    count_key: ClassVar[str] = "message_count"
    message: str
    drop: bool

    @property
    def place(self) -> tuple[int, int, int]:
        """Where the message is: (ready_ms, index, ordinal), which its id says."""
        ready_ms, index, ordinal = map(int, self.message.split("-"))
        return ready_ms, index, ordinal

    def checked(self) -> Self:
        """See the base class."""
        if not _ID.fullmatch(self.message):
            raise InvalidArgument(
                f"id {self.message[:60]!r}: GET /queues/:queue/messages/delayed has the ids"
            )
        return self


def delayed_id(ready_ms: int, index: int, ordinal: int) -> str:
    """Return the id of a delayed message; it has another one when it is delayed again."""
    return f"{ready_ms}-{index}-{ordinal}"
