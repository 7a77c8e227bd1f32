"""Queues: what is shown of them, and the requests for them; RabbitMQ's keys and Warren's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec

from warren_wire.admin.requests import (
    AdminRequest,
    Name,
    Number,
    Result,
    Text,
    checked_pattern,
    count,
    route,
    seen,
)
from warren_wire.errors import InvalidArgument

T = TypeVar("T")
EDGES_MAX: Final = 1_000
"""Pieces of one view."""
SINKS_LISTED_MAX: Final = 500
"""Runs in one answer: Proton's values hold 65,535 parts, a run has up to 70."""
_NAMED: Final = {"name": "queue"}
_FLAGS: Final = {**_NAMED, "if_unused": "if-unused", "if_empty": "if-empty"}


class BoundInfo(msgspec.Struct, frozen=True):
    """An open claim that is settled when, and only when, a batch is published in that queue."""

    number: int
    queue: str
    sink: str
    run: str
    batch: int


class ReadByInfo(msgspec.Struct, frozen=True):
    """The batch of a streaming query that reads claim `number`. name: of the query; "": none."""

    number: int
    query: str
    name: str
    batch: int


def left_ms(at_ms: int, now_ms: int) -> int | None:
    """Return in how long a time is, by the clock that it is of; None: one of the two is 0."""
    return max(0, at_ms - now_ms) if at_ms and now_ms else None


class ReaderInfo(msgspec.Struct, frozen=True):
    """A claim reader as the queue knows it.

    settled        the last settled claim
    open_claims    number of open claims: settled + 1 … settled + open_claims
    last_heard_ms  milliseconds since the epoch
    bound          the open claims that a batch decides about
    expires_at     when it is forgotten unless it is heard before (readerExpires), in milliseconds
                   since the epoch; 0: not by itself
    read_by        the latest claim that a query's task has begun to read, with query and batch
    in_parts       messages of claims that were divided, which are the next claims
    part_due       the next claim is one of these, and not of ready messages
    failed_in_row  messages that failed alone, and claims rejected, since a claim was settled
    starts         how often it has registered, since that is counted
    heard_ago_ms, expires_in_ms  the same by the clock of the queue's leader, which has set them;
                                 None: that node's version does not say its time
    """

    name: str
    epoch: int
    settled: int
    open_claims: int
    last_heard_ms: int
    bound: tuple[BoundInfo, ...] = ()
    expires_at: int = 0
    read_by: ReadByInfo | None = None
    in_parts: int = 0
    part_due: bool = False
    failed_in_row: int = 0
    starts: int = 0
    heard_ago_ms: int | None = None
    expires_in_ms: int | None = None


class RelayInfo(msgspec.Struct, frozen=True):
    """A shovel or federation link that takes messages of the queue to another Warren cluster.

    messages      that it has taken and not acknowledged; of a queue those with most are shown
    away_since    when its connection has ended, in milliseconds since the epoch; 0: it is there
    ready_again   when they are ready for any consumer unless it comes back; 0: it is there
    ready_in_ms   the same by the leader's clock; None: it is there, or see `ReaderInfo`
    """

    name: str
    messages: int
    away_since: int = 0
    ready_again: int = 0
    ready_in_ms: int | None = None


VOLATILE_TYPE: Final = "rabbit_volatile_queue"
"""The type of a name for replies, as RabbitMQ shows it."""


NO_DELIVERY_LIMIT: Final = -1
"""A delivery limit that there is not, as in RabbitMQ's argument."""


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue's settings and counts; the counts are of messages except consumer_count.

    leader  the leading node's name; "" when none is known
    messages  ready, unacknowledged, claimed and delayed ones, and dead letters kept (dlx), but no
              staged ones, which are not published yet
    next_delayed_at, last_delayed_at  when the first and the last delayed message are ready, in
                                      milliseconds since the epoch; 0: none is delayed
    delayed_retry  "disabled", or the type with its delays
    delivery_limit  NO_DELIVERY_LIMIT, or the number
    message_bytes  bodies and properties of `messages`; bytes_unacknowledged: of those that
                   consumers hold
    messages_ready_returned  ready ones that a consumer has had
    messages_dlx, message_bytes_dlx  dead letters that wait for the confirms of their targets
    by_priority  ready messages by priority; absent: none
    messages_set_aside  messages that could not be handled since the leading node's start
    duplicates_dropped  messages dropped since the declaration, because the queue had taken one with
                   their id (x-deduplication); deduplication_ids: ids that it remembers
    messages_in_jobs  taken by jobs, or kept by them for an undo; not among `messages`
    policy, operator_policy  names of the policies that it follows; "": none
    effective_policy_definition  of both, merged
    """

    name: Annotated[str, seen(column=True)]
    vhost: str
    type: Annotated[str, seen(column=True)]
    durable: bool
    exclusive: bool
    auto_delete: bool
    leader: Annotated[str, seen(column=True)]
    replicas: tuple[str, ...]
    arguments: dict[str, Any] = {}
    messages: Annotated[int, count()] = 0
    messages_ready: Annotated[int, count(column=True)] = 0
    messages_unacknowledged: Annotated[int, count(column=True)] = 0
    messages_claimed: Annotated[int, count(column=True)] = 0
    messages_staged: Annotated[int, count(column=True)] = 0
    messages_delayed: Annotated[int, count(column=True)] = 0
    next_delayed_at: Annotated[int, count(http="")] = 0
    last_delayed_at: Annotated[int, count(http="")] = 0
    delayed_retry: str = "disabled"
    delivery_limit: int = NO_DELIVERY_LIMIT
    messages_dlx: Annotated[int, count(column=True)] = 0
    message_bytes_dlx: Annotated[int, count()] = 0
    bytes_ready: Annotated[int, count(http="message_bytes_ready")] = 0
    bytes_unacknowledged: Annotated[int, count(http="message_bytes_unacknowledged")] = 0
    message_bytes: Annotated[int, count()] = 0
    messages_ready_returned: Annotated[int, count()] = 0
    consumer_count: Annotated[int, seen(column=True, http="consumers", amqp="uint")] = 0
    by_priority: Annotated[dict[int, int], seen(amqp="pairs")] = {}
    readers: tuple[ReaderInfo, ...] = ()
    relays: tuple[RelayInfo, ...] = ()
    messages_set_aside: Annotated[int, count()] = 0
    duplicates_dropped: Annotated[int, count()] = 0
    deduplication_ids: Annotated[int, count(http="")] = 0
    messages_in_jobs: Annotated[int, count()] = 0
    policy: str = ""
    operator_policy: str = ""
    effective_policy_definition: dict[str, Any] = {}

    @property
    def message_count(self) -> int:
        """RabbitMQ's key for the ready messages."""
        return self.messages_ready


# ------------------------------------------------------------------ requests


class DeclareQueueRequest(AdminRequest[QueueInfo], frozen=True, rename=_NAMED):
    """Declare a queue; 409 when it exists with other settings. Answer: DeclaredQueue."""

    ROUTES: ClassVar = (
        route("PUT /queues/:queue", http="/queues/:vhost/:queue", without=("exclusive",)),
    )
    name: Name
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class DeclaredQueue(Result, frozen=True):
    """A declared queue; created: by this request (201 rather than 200)."""

    created: bool
    info: QueueInfo


class QueueRequest(AdminRequest[T], Generic[T], frozen=True, rename=_NAMED):
    """A request about a queue."""

    name: str


class GetQueueRequest(QueueRequest[QueueInfo], frozen=True):
    """Return one queue; 404. Answer: QueueInfo."""

    ROUTES: ClassVar = (route("GET /queues/:queue"),)


class ListQueuesRequest(AdminRequest[list[QueueInfo]], frozen=True):
    """Return queues by name, in ascending order. Answer: Listed (QueueInfo).

    after    only those with names after this one
    count    at most this number, 1 to QUEUES_LISTED_MAX; 0: all of them, refused if there are more
    pattern  only those with names in which this is found (`name_patterns`); "": all
    name     only the queue with this name; "": all
    counts   False: no leader is asked, and every count is 0
    """

    ROUTES: ClassVar = (route("GET /queues"),)
    after: Text = ""
    count: Annotated[int, msgspec.Meta(ge=0, le=999_999_999)] = 0
    pattern: Text = ""
    name: Text = ""
    counts: bool = True

    def checked(self) -> Self:
        """See the base class."""
        if self.pattern:
            checked_pattern("pattern", self.pattern)
        return self


class DeleteQueueRequest(QueueRequest[int], frozen=True, rename=_FLAGS):
    """Delete a queue with its messages, if it exists; return how many were ready.

    Answer: MessagesCounted; for a queue that does not exist 0.

    if_unused  only without consumers
    if_empty   only if it has no messages
    force      without asking the queue, for one that has lost its majority for good: its messages
               are lost, uncounted. Needs the tag `administrator`; not with the other two
    """

    ROUTES: ClassVar = (route("DELETE /queues/:queue"),)
    count_key: ClassVar[str] = "message_count"
    if_unused: bool = False
    if_empty: bool = False
    force: bool = False

    def checked(self) -> Self:
        """See the base class."""
        if self.force and (self.if_unused or self.if_empty):
            raise InvalidArgument(
                "force does not ask the queue: if-unused, if-empty cannot be kept"
            )
        return self


class PurgeQueueRequest(QueueRequest[int], frozen=True):
    """Drop the ready and delayed messages of a queue; return how many. 404.

    Answer: MessagesCounted.
    """

    ROUTES: ClassVar = (
        route("DELETE /queues/:queue/messages", http="/queues/:vhost/:queue/contents"),
    )
    count_key: ClassVar[str] = "message_count"


class RetryDelayedRequest(QueueRequest[int], frozen=True):
    """Return the delayed messages to the queue now; return how many. 404.

    Answer: MessagesCounted.
    """

    ROUTES: ClassVar = (
        route(
            "POST /queues/:queue/messages/delayed/retry",
            http="/queues/:vhost/:queue/messages/delayed/retry",
            status=200,
            shows=True,
        ),
    )
    count_key: ClassVar[str] = "message_count"


class ViewEdges(Result, frozen=True):
    """Log indexes that cut the view: piece i is edges[i] <= index < edges[i + 1]."""

    edges: tuple[Number, ...]


class ViewEdgesRequest(QueueRequest[ViewEdges], frozen=True):
    """Cut a view of what a queue holds into pieces; 404, 409 too scattered. Answer: ViewEdges."""

    ROUTES: ClassVar = (route("GET /queues/:queue/view"),)
    states: tuple[str, ...] = ("",)
    pieces: Annotated[int, msgspec.Meta(ge=1, le=EDGES_MAX)] = 1


class ReleaseRelayRequest(QueueRequest[int], frozen=True):
    """Make ready what a queue keeps for a shovel or link that is away; return how much.

    What it had published without a confirm may be at its destination, too, and is then in the world
    twice: so it is for one that does not come back. 0: the queue keeps nothing for that name.
    Answer: MessagesCounted; 404; 409 while it is connected (`queue.relay_commands.ReleaseRelay`).

    relay  as `QueueInfo.relays` names it; it may be longer than other names
    """

    ROUTES: ClassVar = (
        route(
            "POST /queues/:queue/relays/release",
            http="/queues/:vhost/:queue/relays/release",
            status=200,
            shows=True,
        ),
    )
    relay: Any = ""

    def checked(self) -> Self:
        """See the base class."""
        if not isinstance(self.relay, str) or not self.relay:
            raise InvalidArgument("relay: a string is expected, its name as the queue shows it")
        return self


# ------------------------------------------------------------------ sinks


class SinkInfo(msgspec.Struct, frozen=True):
    """One run of a sink as a queue remembers it.

    sink, run        a streaming query's id, each, unless its options sinkId and runId say otherwise
    epoch            the highest of a driver that this queue has met
    last_batch       -1: none was published into this queue
    batches          (batch, messages) of the latest ones published, of which a repeat is recognised
    stages           attempts at partitions that are staged
    messages_staged  of these attempts, with those of repeats, which are counted and not kept
    expires_at       when it is forgotten unless it writes before (sinkExpires), in milliseconds
                     since the epoch; 0: not by itself
    expires_in_ms    the same by the leader's clock; None: not by itself, or see `ReaderInfo`
    """

    sink: str
    run: str
    epoch: int
    last_batch: int
    batches: tuple[tuple[int, int], ...]
    stages: int
    messages_staged: int
    expires_at: int
    expires_in_ms: int | None = None


class SinksInfo(msgspec.Struct, frozen=True):
    """Runs of sinks of a queue, the ones that published last first; total: how many there are."""

    total: int
    runs: tuple[SinkInfo, ...]


class ForgottenSink(msgspec.Struct, frozen=True):
    """How many runs of a sink a queue has forgotten, and staged messages dropped with them."""

    runs: Number
    messages_staged: Number


class ListSinksRequest(QueueRequest[SinksInfo], frozen=True):
    """Return what a queue remembers of sinks, those that published into it last first; 404.

    Answer: SinksInfo.

    sink, run  only those of that name; "": all
    count      of runs
    """

    ROUTES: ClassVar = (route("GET /queues/:queue/sinks", http="/queues/:vhost/:queue/sinks"),)
    sink: str = ""
    run: str = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=SINKS_LISTED_MAX)] = SINKS_LISTED_MAX


class ForgetSinkRequest(QueueRequest[ForgottenSink], frozen=True):
    """Have a queue forget a sink's runs: their epochs, batches and stages. Answer: ForgottenSink.

    A batch that is published after that is a new run's, whatever its number: one that was published
    before is published again. So it is for sinks that will not come back, or begin with a new
    checkpoint. Refused: 404; 409 while attempts at a batch are staged, unless forced.

    run    only this one; "": all
    force  drop what is staged; a driver that still publishes it gets StageMissing
    """

    ROUTES: ClassVar = (
        route(
            "DELETE /queues/:queue/sinks/:sink",
            http="/queues/:vhost/:queue/sinks/:sink",
            status=200,
            shows=True,
        ),
    )
    sink: str
    run: str = ""
    force: bool = False
