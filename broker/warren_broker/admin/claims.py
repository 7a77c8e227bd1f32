"""Readers with their claims, and the batches of sinks, as `/management` resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec

from warren_broker.admin import resource
from warren_broker.admin.resource import Body, ManagementRequest, Names, Query, Result
from warren_wire.amqp10.proton import ulong
from warren_wire.errors import InvalidArgument, StageMissing, named
from warren_wire.queue_values.give_up_command import ORIGINS, AnyWay

ATTEMPTS_MAX = 100_000
QUEUES_MAX = 10_000
SETTLES_MAX = 100
GO_ON_AFTER_MAX = 1 << 62
"""The highest claim that a driver may pass over. 1. One passes over claim 2^63 - 1.  2. Its reader
is forgotten.  3. Claims of every other reader of the queue would be numbered above that, which no
path can say."""
Rows: TypeAlias = tuple[tuple[int, ...], ...]


# ------------------------------------------------------------------ requests


class ReaderRequest(ManagementRequest, frozen=True):
    """A driver's request about a reader of a queue."""

    queue: str
    reader: str


class RegisterReaderRequest(ReaderRequest, frozen=True):
    """POST /queues/:q/readers/:reader. Answer: ReaderRegistered; 404.

    call         see `queue.commands.RegisterReader`
    go_on_after  lost claims up to this number count as settled; 0: none
    expires_ms   see `queue.commands.RegisterReader`
    """

    call: str = ""
    go_on_after: int = 0
    expires_ms: int = 0


class ClaimRequest(ReaderRequest, frozen=True):
    """A driver's request about claim `number` of its reader."""

    number: int
    epoch: int


class OpenClaimRequest(ClaimRequest, frozen=True):
    """PUT /queues/:q/readers/:reader/claims/:number. Answer: ClaimOpened.

    Refused: 409 fenced, 410 claim_lost.

    keep_empty  when nothing is ready, open a claim without messages
    ahead       see `queue.commands.OpenClaim`
    """

    max_messages: int
    max_bytes: int
    ttl_ms: int = 0
    keep_empty: bool = False
    ahead: bool = False


class RenewClaimsRequest(ReaderRequest, frozen=True):
    """POST …/renew. Answer: Performed; 409 fenced, 410 claim_lost."""

    epoch: int


class SettleClaimsRequest(ClaimRequest, frozen=True):
    """POST …/settle: settle claims up to `number`. Answer: MessagesCounted (settled now).

    Refused: 409 fenced, 410 claim_lost when one of them expired or was released: then none was
    settled.
    """


class ReleaseClaimRequest(ClaimRequest, frozen=True):
    """POST …/release: return claim `number` (0: all; forget the reader). Answer: MessagesCounted.

    A claim that a batch decides about (`PublishBatchRequest.settles`) is given back when the batch
    was not published, and settled when it was. Refused: 409 when that is not known any more.

    epoch      -1: an operator, not fenced
    failed     count it as a failed delivery
    undecided  give it back although it is not known whether its batch was published
    """

    failed: bool = False
    undecided: bool = False


class GiveUpRequest(ClaimRequest, frozen=True):
    """POST …/give_up: take all messages out of an open claim. Answer: MessagesCounted.

    A claim that a batch decides about is asked about first, as in ReleaseClaimRequest. Refused: 409
    fenced, 410 claim_lost, 409 when nothing passes (`queue.give_up_command.GiveUpClaim`).
    """

    way: AnyWay
    in_row_max: int
    drop: bool = False


class DrawEpochRequest(ManagementRequest, frozen=True):
    """POST /epochs: an epoch for a driver that will write runs of sinks. Answer: EpochDrawn.

    A queue that sees this epoch, or a higher one, with a run refuses every lower one of that run.
    """


class BatchRequest(ManagementRequest, frozen=True):
    """A driver's request about one batch of a sink's run."""

    sink: str
    run: str
    epoch: int
    batch: int


class PublishBatchRequest(BatchRequest, frozen=True):
    """POST /sinks/:sink/runs/:run/batches/:batch. Answer: MessagesCounted (messages of the batch).

    The answer comes when every queue has the batch. Refused: 409 fenced, batch_conflict,
    batch_past, 410 stage_lost.

    queues   name, then (partition, attempt, blocks) of each winning attempt that has staged blocks
             there, in the order of the rows
    settles  (queue, reader, number, epoch) of claims that are settled if, and only if, the batch is
             published, in one queue then. 410 claim_lost, 409 fenced when one of them is not open
             or is another driver's; nothing is published then
    expires_ms  see `queue.commands.SinkPublish`
    """

    count_key: ClassVar[str] = "published"
    queues: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]
    settles: tuple[tuple[str, str, int, int], ...] = ()
    expires_ms: int = 0


class DropBatchRequest(BatchRequest, frozen=True):
    """DELETE /sinks/:sink/runs/:run/batches/:batch: drop stages. Answer: Performed; 409 fenced.

    queues  name, then (partition, attempt) of each attempt
    """

    queues: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


AnyClaimRequest: TypeAlias = (
    RegisterReaderRequest
    | OpenClaimRequest
    | RenewClaimsRequest
    | SettleClaimsRequest
    | ReleaseClaimRequest
    | GiveUpRequest
    | DrawEpochRequest
    | PublishBatchRequest
    | DropBatchRequest
)


# ------------------------------------------------------------------ results


class ReaderRegistered(Result, frozen=True):
    """The reader's new epoch, its last settled claim, and how often it has registered."""

    epoch: int
    settled: int
    starts: int


class EpochDrawn(Result, frozen=True):
    """A number above all numbers drawn before in this cluster."""

    epoch: int


class ClaimOpened(Result, frozen=True):
    """The content of a claim.

    open    False when nothing was ready, with ahead not enough, and no claim was opened
    origin  of its messages: "ready", or "part" or "alone" of a claim that was given up
    """

    number: int
    messages: int
    size_bytes: int
    open: bool
    origin: str = ORIGINS[0]


AnyClaimResult: TypeAlias = ReaderRegistered | EpochDrawn | ClaimOpened


# ------------------------------------------------------------------ bodies, routes


class RegisterBody(Body, frozen=True):
    """POST …/readers/:reader."""

    call: str = ""
    go_on_after: Annotated[int, msgspec.Meta(ge=0, le=GO_ON_AFTER_MAX)] = 0
    expires_ms: resource.DurationMs = 0


class OpenClaimBody(Body, frozen=True):
    """PUT …/claims/:claim."""

    epoch: resource.Natural
    max_messages: resource.Positive
    max_bytes: resource.Positive
    ttl_ms: resource.DurationMs = 0
    keep_empty: bool = False
    ahead: bool = False


class RenewBody(Body, frozen=True):
    """POST …/renew."""

    epoch: resource.Natural


class SettleBody(Body, frozen=True):
    """POST …/settle."""

    epoch: resource.Natural
    number: resource.Natural


class ReleaseBody(Body, frozen=True):
    """POST …/release; epoch -1: an operator's."""

    epoch: Annotated[int, msgspec.Meta(ge=-1, le=resource.INT64_MAX)]
    number: resource.Natural
    failed: bool = False
    undecided: bool = False


class GiveUpBody(Body, frozen=True):
    """POST …/give_up."""

    epoch: resource.Natural
    number: resource.Positive
    way: AnyWay
    in_row_max: resource.Positive
    drop: bool = False


class BatchBody(Body, frozen=True):
    """POST, DELETE …/batches/:batch; `queues` has a string of rows per name (`_rows_by_name`)."""

    epoch: resource.Positive
    queues: dict[Any, Any]


class PublishBody(BatchBody, frozen=True):
    """POST …/batches/:batch; `settles` has one map per claim."""

    settles: list[Any] = []
    expires_ms: resource.DurationMs = 0


class SettledBody(Body, frozen=True):
    """A claim of `PublishBody.settles`."""

    queue: str
    reader: str
    number: resource.Positive
    epoch: resource.Positive


def _of_reader(make: Callable[..., ManagementRequest], kind: type[Body]) -> resource.Make:
    """Make requests about a reader, which have the fields of their body."""

    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        read = resource.read_body(kind, body)
        return make(names[0], names[1], **msgspec.structs.asdict(read))

    return made


def _open_claim(names: Names, query: Query, body: Any) -> ManagementRequest:
    read = resource.read_body(OpenClaimBody, body)
    number = resource.path_number("claim", names[2])
    return OpenClaimRequest(names[0], names[1], number, **msgspec.structs.asdict(read))


def _drop(names: Names, query: Query, body: Any) -> ManagementRequest:
    batch, read = resource.path_number("batch", names[2]), resource.read_body(BatchBody, body)
    queues: Any = _rows_by_name("queues", read.queues, 2)
    return DropBatchRequest(names[0], names[1], read.epoch, batch, queues)


def _publish(names: Names, query: Query, body: Any) -> ManagementRequest:
    batch, read = resource.path_number("batch", names[2]), resource.read_body(PublishBody, body)
    queues: Any = _rows_by_name("queues", read.queues, 3)
    settles = tuple(_settled(each) for each in read.settles)
    if len(settles) > SETTLES_MAX:
        raise InvalidArgument(f"settles: {len(settles)} claims; at most {SETTLES_MAX} are possible")
    if settles and len(queues) > 1:
        raise InvalidArgument(
            f"a batch in {len(queues)} queues cannot settle claims: they decide one by one; give "
            "all of its rows to one queue, or settle the claims when the batch is published"
        )
    if len({claim[:2] for claim in settles}) < len(settles):
        raise InvalidArgument("settles: two claims of one reader of a queue; give the last one")
    return PublishBatchRequest(
        names[0], names[1], read.epoch, batch, queues, settles, read.expires_ms
    )


def _settled(value: Any) -> tuple[str, str, int, int]:
    read = resource.read_body(SettledBody, value)
    return read.queue, read.reader, read.number, read.epoch


def _rows_by_name(key: str, value: dict[Any, Any], width: int) -> tuple[tuple[str, Rows], ...]:
    """Parse a map from names to rows of `width` numbers each, in the order of the names.

    The rows are a string, `1:2,3:4`: lists of lists would have more parts than a Proton value can
    hold.
    """
    if not value or len(value) > QUEUES_MAX or not all(isinstance(name, str) for name in value):
        raise InvalidArgument(f"{key}: a map of 1 to {QUEUES_MAX} names is expected")
    return tuple(
        (resource.checked_name(key, name), _rows(f"{key}[{name!r}]", value[name], width))
        for name in sorted(value)
    )


def _rows(what: str, value: Any, width: int) -> Rows:
    if not isinstance(value, str) or value.count(",") >= ATTEMPTS_MAX:
        raise InvalidArgument(f"{what}: a text of at most {ATTEMPTS_MAX} rows is expected")
    rows = []
    for text in value.split(",") if value else ():
        parts = text.split(":")
        if len(parts) != width:
            raise InvalidArgument(
                f"{what}: {text[:80]!r} is not a row of {width} numbers with colons"
            )
        rows.append(tuple(resource.path_number(what, part) for part in parts))
    return tuple(rows)


_READER = "/queues/:queue/readers/:reader"
_RUN = "/sinks/:sink/runs/:run"
_BATCH_BYTES_MAX: Final = 4 << 20
_BATCH_PARTS_MAX: Final = 65_535
"""Bounds of a request with all claims of a batch, of many queues; Proton has no more values."""
ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("POST", _READER, _of_reader(RegisterReaderRequest, RegisterBody)),
    resource.route("PUT", _READER + "/claims/:claim", _open_claim),
    resource.route("POST", _READER + "/renew", _of_reader(RenewClaimsRequest, RenewBody)),
    resource.route(
        "POST",
        _READER + "/settle",
        _of_reader(SettleClaimsRequest, SettleBody),
        bytes_max=_BATCH_BYTES_MAX,
        parts_max=_BATCH_PARTS_MAX,
    ),
    resource.route("POST", _READER + "/release", _of_reader(ReleaseClaimRequest, ReleaseBody)),
    resource.route("POST", _READER + "/give_up", _of_reader(GiveUpRequest, GiveUpBody)),
    resource.route("POST", "/epochs", resource.from_names(DrawEpochRequest)),
    resource.route(
        "POST",
        _RUN + "/batches/:batch",
        _publish,
        bytes_max=_BATCH_BYTES_MAX,
        parts_max=_BATCH_PARTS_MAX,
    ),
    resource.route("DELETE", _RUN + "/batches/:batch", _drop),
)


# ------------------------------------------------------------------ answers


def stages_gone(queue: str, vhost: str, request: PublishBatchRequest) -> StageMissing:
    """Return the refusal when a batch's queue was deleted."""
    return StageMissing(
        f"{named('queue', queue, vhost)} was deleted with what sink {request.sink!r} had staged in "
        f"it for batch {request.batch}: stage the batch again"
    )


def _claim(result: ClaimOpened) -> resource.Answer:
    return 200, {
        "number": ulong(result.number),
        "messages": ulong(result.messages),
        "size_bytes": ulong(result.size_bytes),
        "open": result.open,
        "origin": result.origin,
    }


RENDERERS: dict[type[Result], Callable[[Any], resource.Answer]] = {
    ReaderRegistered: lambda result: (
        200,
        {
            "epoch": ulong(result.epoch),
            "settled": ulong(result.settled),
            "starts": ulong(result.starts),
        },
    ),
    EpochDrawn: lambda result: (200, {"epoch": ulong(result.epoch)}),
    ClaimOpened: _claim,
}
