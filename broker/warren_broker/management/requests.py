"""The requests that a client makes of the cluster through `/management`, as values.

A request's names are those of the connection's vhost; permissions have not been checked. Each is
answered by `Connection10.answer(request.token, result)` with the result its docstring names, or
with a `warren_broker.errors.Refusal`. `management_routes` turns paths into these values; whoever
serves a connection carries them out. Statuses in the docstrings are those of the refusal's class.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from warren_broker.errors import Refusal

Token: TypeAlias = int
"""Names an unanswered request; never used twice in one connection."""


API_VERSION = 2
"""2: a sink's batches belong to runs, published by name and number of blocks; 1: they did not."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The parent of everything a 1.0 connection asks."""

    token: Token = 0


class ManagementRequest(Request, frozen=True):
    """The parent of what comes through `/management`."""


class GetOverview(ManagementRequest, frozen=True):
    """Which node answers, and which there are. Answer: Overview."""


class DeclareQueue(ManagementRequest, frozen=True):
    """PUT /queues/:q. Answer: QueueDeclared; 409 when it is there with other settings."""

    name: str
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class GetQueue(ManagementRequest, frozen=True):
    """GET /queues/:q. Answer: QueueInfo; 404."""

    name: str


class ListQueues(ManagementRequest, frozen=True):
    """GET /queues?after=&count=. Answer: QueueList.

    after  only those whose names follow this one, ascending
    count  at most so many, 1 to QUEUES_LISTED_MAX; 0: all of them, refused where they are more
    """

    after: str = ""
    count: int = 0


class DeleteQueue(ManagementRequest, frozen=True):
    """DELETE /queues/:q?if-unused=&if-empty=&force=. Answer: Counted (ready messages that went);
    deleting none is Counted(0).

    force  without asking the queue, whose majority is lost for good: Counted(0), whatever it held
    """

    name: str
    if_unused: bool = False
    if_empty: bool = False
    force: bool = False


class PurgeQueue(ManagementRequest, frozen=True):
    """DELETE /queues/:q/messages. Answer: Counted; 404."""

    name: str


class DeclareExchange(ManagementRequest, frozen=True):
    """PUT /exchanges/:x. Answer: Performed; 409 when it is there with other settings."""

    name: str
    kind: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class DeleteExchange(ManagementRequest, frozen=True):
    """DELETE /exchanges/:x. Answer: Performed, also when there is none."""

    name: str
    if_unused: bool = False


class ListExchanges(ManagementRequest, frozen=True):
    """GET /exchanges. Answer: ExchangeList."""


class Binding(msgspec.Struct, frozen=True):
    """From an exchange to a queue or to another exchange."""

    source: str
    destination: str
    destination_kind: Literal["queue", "exchange"] = "queue"
    routing_key: str = ""
    arguments: dict[str, Any] = {}


class Bind(ManagementRequest, frozen=True):
    """POST /bindings. Answer: Performed, also when it is there; 404 without source or
    destination."""

    binding: Binding


class Unbind(ManagementRequest, frozen=True):
    """DELETE /bindings/…. Answer: Performed, also when there is none."""

    binding: Binding


class ListBindings(ManagementRequest, frozen=True):
    """GET /bindings?src=&dstq=&dste=&key=. Answer: BindingList; None: any."""

    source: str | None = None
    destination: str | None = None
    destination_kind: Literal["queue", "exchange"] | None = None
    routing_key: str | None = None


class RegisterReader(ManagementRequest, frozen=True):
    """POST /queues/:q/readers/:reader. Answer: ReaderRegistered; 404.

    call         see `queue.commands.RegisterReader`
    go_on_after  claims up to this number that are lost are to count as settled; 0: none
    """

    queue: str
    reader: str
    call: str = ""
    go_on_after: int = 0


class OpenClaim(ManagementRequest, frozen=True):
    """PUT /queues/:q/readers/:reader/claims/:number. Answer: ClaimOpened; 409 fenced, 410
    claim_lost.

    keep_empty  when nothing is ready, open a claim without messages
    """

    queue: str
    reader: str
    number: int
    epoch: int
    max_messages: int
    max_bytes: int
    ttl_ms: int = 0
    keep_empty: bool = False


class RenewClaims(ManagementRequest, frozen=True):
    """POST …/renew. Answer: Performed; 409 fenced, 410 claim_lost."""

    queue: str
    reader: str
    epoch: int


class SettleClaims(ManagementRequest, frozen=True):
    """POST …/settle: claims up to `number` are done. Answer: Counted (settled now); 409 fenced, 410
    claim_lost when one of them expired or was released: then none was settled."""

    queue: str
    reader: str
    number: int
    epoch: int


class ReleaseClaim(ManagementRequest, frozen=True):
    """POST …/release: claim `number` (0: all, and the reader goes) returns. Answer: Counted.

    epoch   -1: an operator, not fenced
    failed  count it as a failed delivery
    """

    queue: str
    reader: str
    number: int
    epoch: int
    failed: bool = False


class DrawEpoch(ManagementRequest, frozen=True):
    """POST /epochs: for a driver that will write runs of sinks. Answer: EpochDrawn.

    A queue that meets this epoch, or a higher one, with a run refuses every lower one of that run.
    """


class PublishBatch(ManagementRequest, frozen=True):
    """POST /sinks/:sink/runs/:run/batches/:batch. Answer: Counted (messages of the batch), when
    every queue has it; 409 fenced, batch_conflict, batch_past, 410 stage_lost.

    queues  name, then (partition, attempt, blocks) of each winning attempt that has staged blocks
            there, in the order the rows shall have
    """

    sink: str
    run: str
    epoch: int
    batch: int
    queues: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]


class DropBatch(ManagementRequest, frozen=True):
    """DELETE /sinks/:sink/runs/:run/batches/:batch: the stages named go. Answer: Performed; 409
    fenced.

    queues  name, then (partition, attempt) of each attempt
    """

    sink: str
    run: str
    epoch: int
    batch: int
    queues: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


AnyManagementRequest: TypeAlias = (
    GetOverview
    | DeclareQueue
    | GetQueue
    | ListQueues
    | DeleteQueue
    | PurgeQueue
    | DeclareExchange
    | DeleteExchange
    | ListExchanges
    | Bind
    | Unbind
    | ListBindings
    | RegisterReader
    | OpenClaim
    | RenewClaims
    | SettleClaims
    | ReleaseClaim
    | DrawEpoch
    | PublishBatch
    | DropBatch
)


# ------------------------------------------------------------------ results


class Result(msgspec.Struct, frozen=True):
    """The parent of all answers."""


class Performed(Result, frozen=True):
    """Done; nothing more to say (204)."""


class Counted(Result, frozen=True):
    """A number of messages."""

    messages: int


class ReaderInfo(msgspec.Struct, frozen=True):
    """A claim reader as the queue knows it.

    settled        the last settled claim
    open_claims    how many are open: settled + 1 … settled + open_claims
    last_heard_ms  milliseconds since the epoch
    """

    name: str
    epoch: int
    settled: int
    open_claims: int
    last_heard_ms: int


class QueueInfo(Result, frozen=True):
    """A queue's settings and counts; the counts are of messages but consumer_count.

    leader  the leading node; "" when none is known
    messages_set_aside  could not be handled, since the leading node was started
    """

    name: str
    vhost: str
    type: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: dict[str, Any]
    leader: str
    replicas: tuple[str, ...]
    messages_ready: int = 0
    messages_unacknowledged: int = 0
    messages_claimed: int = 0
    messages_staged: int = 0
    messages_delayed: int = 0
    bytes_ready: int = 0
    consumer_count: int = 0
    by_priority: tuple[tuple[int, int], ...] = ()
    readers: tuple[ReaderInfo, ...] = ()
    messages_set_aside: int = 0


class QueueDeclared(Result, frozen=True):
    """The queue is there; created: by this request (201 rather than 200)."""

    created: bool
    info: QueueInfo


class QueueList(Result, frozen=True):
    """All queues of the vhost, by name."""

    queues: tuple[QueueInfo, ...]


class ExchangeInfo(msgspec.Struct, frozen=True):
    """An exchange's settings."""

    name: str
    kind: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any] = {}


class ExchangeList(Result, frozen=True):
    """All exchanges of the vhost, by name."""

    exchanges: tuple[ExchangeInfo, ...]


class BindingList(Result, frozen=True):
    """The bindings asked for."""

    bindings: tuple[Binding, ...]


class ReaderRegistered(Result, frozen=True):
    """The reader's new epoch, and its last settled claim."""

    epoch: int
    settled: int


class EpochDrawn(Result, frozen=True):
    """A number above all that were drawn before in this cluster."""

    epoch: int


class ClaimOpened(Result, frozen=True):
    """What the claim holds. open: False when nothing was ready, and no claim was opened."""

    number: int
    messages: int
    size_bytes: int
    open: bool


class NodeInfo(msgspec.Struct, frozen=True):
    """A node as the answering one sees it."""

    name: str
    address: str
    alive: bool


class Overview(Result, frozen=True):
    """The answering node and its cluster.

    api  of the requests that `/management` understands: API_VERSION
    """

    node: str
    cluster: str
    version: str
    nodes: tuple[NodeInfo, ...]
    api: int = API_VERSION


AnyManagementResult: TypeAlias = (
    Refusal
    | Performed
    | Counted
    | QueueInfo
    | QueueDeclared
    | QueueList
    | ExchangeList
    | BindingList
    | ReaderRegistered
    | EpochDrawn
    | ClaimOpened
    | Overview
)
