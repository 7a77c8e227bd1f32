"""Jobs over the messages of a queue: move, copy, delete, requeue, redrive, and undo."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

import msgspec

from warren_wire.admin.browse import SelectingRequest
from warren_wire.admin.queues import QueueRequest
from warren_wire.admin.requests import (
    AdminRequest,
    Natural,
    Number,
    Secret,
    route,
    seen,
)
from warren_wire.errors import InvalidArgument

JOBS_LISTED_MAX: Final = 2_000
"""Jobs in one answer."""
UNDO_MS: Final = 3_600_000
"""How long a job can be undone, unless it says otherwise: an hour."""
UNDO_MS_MAX: Final = 7 * 24 * 3_600_000
RATE_MAX: Final = 1_000_000
BODY_GIVEN_MAX: Final = 64 << 10
"""Bytes of a body that a job is given: it is part of its queue's state."""
JobAction: TypeAlias = Literal["move", "copy", "delete", "requeue", "redrive"]
_QUEUE_JOBS: Final = "/queues/:queue/jobs"
_HTTP_JOBS: Final = "/queues/:vhost/:queue/jobs"


class JobInfo(msgspec.Struct, frozen=True):
    """A job.

    job         its number in its queue
    to          where its messages go; "": nowhere
    selection   which messages are meant
    state       running, paused, cancelling, returning, cancelled, done, undoing, undone
    why         for what it waits; "": for nothing
    looked      messages looked at; matched: of these those that are meant, and were ready
    done        moved, copied or deleted; left: meant, and left in the queue or given back to it
    held        taken, and not with their targets yet; kept: done, and kept for an undo
    undo_until  until when it can be undone; 0: it cannot, or has not ended
    targets     queues that got some of its messages
    user        that has begun it
    back        brought back by an undo; of a copy: removed from the targets
    consumed    of a job that is undone: done, and not brought back, because no target had them any
                more
    """

    vhost: str
    queue: Annotated[str, seen(column=True)]
    job: Annotated[int, seen(column=True, amqp="ulong")]
    action: Annotated[str, seen(column=True)]
    to: Annotated[str, seen(column=True)]
    selection: str
    state: Annotated[str, seen(column=True)]
    why: Annotated[str, seen(column=True)]
    matched: Annotated[int, seen(column=True, amqp="ulong")]
    done: Annotated[int, seen(column=True, amqp="ulong")]
    left: Annotated[int, seen(column=True, amqp="ulong")]
    held: Annotated[int, seen(column=True, amqp="ulong")]
    kept: Annotated[int, seen(column=True, amqp="ulong")]
    looked: Number
    rate: Number
    began_at: Number
    ended_at: Number
    undo_until: Number
    targets: tuple[str, ...]
    user: str
    back: Number
    consumed: Number


class ListJobsRequest(AdminRequest[list[JobInfo]], frozen=True):
    """Return the jobs of the vhost's queues, or of one. Answer: Listed (JobInfo); 404.

    Those of queues without a leader are not there. Ended ones are shown for a day, at most 50 of a
    queue, and as long as they can be undone.

    queue  None: all that the user may read; over HTTP without a vhost those of all vhosts
    """

    ROUTES: ClassVar = (
        route(f"GET {_QUEUE_JOBS}", http=_HTTP_JOBS),
        route("GET /jobs", http=("/jobs", "/jobs/:vhost")),
    )
    queue: str | None = None


class BeginJobRequest(SelectingRequest[JobInfo], frozen=True):
    """Begin a job over the messages that are ready in a queue now. Answer: JobInfo; 404.

    Each message is moved, copied or deleted once, whatever node fails meanwhile. The job has its
    user's permissions, and waits where one is missing, or a target is gone, full or out of reach;
    see `SteerJobRequest`. What comes while it runs is not looked at.

    action       move, copy: to a queue or exchange; delete; requeue: to the end of its own queue,
                 as new; redrive: to the queue in which each died, others are left
    to_queue     where to
    to_exchange  instead of a queue, with `routing_key`, or each message's own
    to_vhost     of these, and of the queues of a redrive; None: the same
    rate         messages per second at most; 0: no limit
    undo_ms      how long after its end what it moved or deleted is kept, to be brought back; 0: not
    call         a name for this request: repeated, it begins no second job; "": none
    index, ordinal  one message, by its place as a browser shows it; index 0: all that are meant
    headers      that are set in what is published; null removes one
    body         instead of the body of each message, as UTF-8, at most BODY_GIVEN_MAX bytes
    """

    ROUTES: ClassVar = (route(f"POST {_QUEUE_JOBS}", http=_HTTP_JOBS, status=201, shows=True),)
    action: JobAction = "move"
    to_queue: str = ""
    to_exchange: str = ""
    routing_key: str | None = None
    to_vhost: str | None = None
    rate: Annotated[int, msgspec.Meta(ge=0, le=RATE_MAX)] = 0
    undo_ms: Annotated[int, msgspec.Meta(ge=0, le=UNDO_MS_MAX)] = UNDO_MS
    call: str = ""
    index: Natural = 0
    ordinal: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    headers: dict[str, Any] = {}
    body: Secret | None = None

    def checked(self) -> Self:
        """See the base class."""
        publishes_to = bool(self.to_queue) + bool(self.to_exchange)
        if self.action in ("move", "copy"):
            if publishes_to != 1:
                raise InvalidArgument(f"{self.action}: give to_queue or to_exchange, one of them")
        elif publishes_to or self.routing_key is not None:
            raise InvalidArgument(f"{self.action}: it needs no to_queue, to_exchange, routing_key")
        if self.routing_key is not None and self.to_queue:
            raise InvalidArgument("routing_key: to_queue is one; give it with to_exchange")
        if self.action == "delete" and (self.headers or self.body is not None):
            raise InvalidArgument("delete: headers and body are for what is published")
        if self.body is not None and len(self.body.encode("utf-8", "replace")) > BODY_GIVEN_MAX:
            raise InvalidArgument(
                f"body: at most {BODY_GIVEN_MAX:,} bytes; publish it, then delete the original"
            )
        for name, value in self.headers.items():
            if not isinstance(value, str | int | float | bool | None):
                raise InvalidArgument(f"headers: {name[:40]!r} is neither a text nor a number")
        return super().checked()


class SteerJobRequest(QueueRequest[JobInfo], frozen=True):
    """Pause, resume, cancel, undo or forget a job. Answer: JobInfo, as it is then; 404, 409.

    A cancelled job gives back what it holds; what it has done stays done, and can be undone. An
    undo removes what its targets still have ready of its messages, as jobs there with the action
    recall, and brings these back, each once; those that were consumed there are counted. Forgotten,
    a job that has ended is not shown any more, and cannot be undone.

    job  its number
    """

    ROUTES: ClassVar = tuple(
        route(
            f"POST {_QUEUE_JOBS}/:job/{word}",
            http=f"{_HTTP_JOBS}/:job/{word}",
            shows=True,
            action=word,
        )
        for word in ("pause", "resume", "cancel", "undo", "forget")
    )
    job: Natural
    action: Literal["pause", "resume", "cancel", "undo", "forget"]
