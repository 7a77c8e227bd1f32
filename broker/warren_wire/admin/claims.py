"""Readers with their claims, the batches of sinks, and the requests of their drivers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

import msgspec

from warren_wire.admin.requests import (
    INT64_MAX,
    AdminRequest,
    AdminRoute,
    DurationMs,
    Natural,
    Number,
    Positive,
    Result,
    checked_name,
    path_number,
    read_map,
    route,
)
from warren_wire.errors import InvalidArgument
from warren_wire.queue_values.give_up_command import AnyWay

T = TypeVar("T")
ATTEMPTS_MAX = 100_000
QUEUES_MAX = 10_000
SETTLES_MAX = 100
GO_ON_AFTER_MAX = 1 << 62
"""The highest claim that a driver may pass over. 1. One passes over claim 2^63 - 1.  2. Its reader
is forgotten.  3. Claims of every other reader of the queue would be numbered above that, which no
path can say."""
Rows: TypeAlias = tuple[tuple[int, ...], ...]
_READER = "/queues/:queue/readers/:reader"
_READER_OF_VHOST = "/queues/:vhost/:queue/readers/:reader"
_BATCH = "/sinks/:sink/runs/:run/batches/:batch"
_BATCH_BYTES_MAX: Final = 4 << 20
_BATCH_PARTS_MAX: Final = 65_535
"""Bounds of a request with all claims of a batch, of many queues; Proton has no more values."""


def _batch_route(shown: str, **more: Any) -> AdminRoute:
    return route(shown, bytes_max=_BATCH_BYTES_MAX, parts_max=_BATCH_PARTS_MAX, **more)


# ------------------------------------------------------------------ results


class ReaderRegistered(Result, frozen=True):
    """A reader's registration: epoch (newer ones fence older ones) and last settled claim.

    starts  how often this reader has registered, this time included
    """

    epoch: Number
    settled: Number
    starts: Number = 0


class EpochDrawn(Result, frozen=True):
    """A number above all numbers drawn before in this cluster."""

    epoch: Number


class ClaimOpened(Result, frozen=True):
    """The content of a claim.

    open    False when nothing was ready, with ahead not enough, and no claim was opened
    origin  of its messages: "ready"; "part": half of a claim that was divided; "alone": a message
            that has failed alone before, see `GiveUpRequest`
    """

    number: Number
    messages: Number
    size_bytes: Number
    open: bool
    origin: str = "ready"


# ------------------------------------------------------------------ claims


class ReaderRequest(AdminRequest[T], Generic[T], frozen=True):
    """A driver's request about a reader of a queue.

    reader  its name, as the list of the queue's claims shows it
    """

    queue: str
    reader: str

    def changes(self) -> bool:
        """See the base class."""
        return False


class RegisterReaderRequest(ReaderRequest[ReaderRegistered], frozen=True):
    """Register a reader's driver. Answer: ReaderRegistered; 404.

    call         see `queue.commands.RegisterReader`
    go_on_after  lost claims up to this number count as settled; 0: none
    expires_ms   see `queue.commands.RegisterReader`
    """

    ROUTES: ClassVar = (route(f"POST {_READER}"),)
    call: str = ""
    go_on_after: Annotated[int, msgspec.Meta(ge=0, le=GO_ON_AFTER_MAX)] = 0
    expires_ms: DurationMs = 0


class OpenClaimRequest(ReaderRequest[ClaimOpened], frozen=True, rename={"number": "claim"}):
    """Open a claim. Answer: ClaimOpened; 409 fenced, 410 claim_lost.

    keep_empty  when nothing is ready, open a claim without messages
    ahead       see `queue.commands.OpenClaim`
    """

    ROUTES: ClassVar = (route(f"PUT {_READER}/claims/:claim"),)
    number: Natural
    epoch: Natural
    max_messages: Positive
    max_bytes: Positive
    ttl_ms: DurationMs = 0
    keep_empty: bool = False
    ahead: bool = False


class RenewClaimsRequest(ReaderRequest[None], frozen=True):
    """Keep a reader's claims open. Answer: Performed; 409 fenced, 410 claim_lost."""

    ROUTES: ClassVar = (route(f"POST {_READER}/renew"),)
    epoch: Natural


_DriverOrOperator: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=INT64_MAX)]


class ClaimRequest(ReaderRequest[int], frozen=True):
    """A driver's request about claim `number` of its reader."""

    number: Natural
    epoch: Natural


class SettleClaimsRequest(ClaimRequest, frozen=True):
    """Settle a reader's claims up to `number`; return the number of messages settled now.

    Answer: MessagesCounted; 409 fenced, 410 claim_lost when one of them expired or was released:
    then none was settled.

    number  the last of these claims
    epoch   -1: an operator, not fenced
    """

    ROUTES: ClassVar = (
        _batch_route(
            f"POST {_READER}/settle", http=f"{_READER_OF_VHOST}/settle", status=200, shows=True
        ),
    )
    epoch: _DriverOrOperator

    def changes(self) -> bool:
        """See the base class."""
        return self.epoch < 0


class ReleaseClaimRequest(ReaderRequest[int], frozen=True):
    """Release claims to the queue; return the message count. Their driver is told of the loss.

    A claim that a batch decides about (`PublishBatchRequest.settles`) is given back when the batch
    was not published, and settled when it was. Answer: MessagesCounted; 409 when that is not known
    any more.

    number     of the claim; 0: all, and the reader is forgotten
    epoch      see `SettleClaimsRequest`
    failed     count it as a failed delivery
    undecided  give it back although it is not known whether its batch was published
    """

    ROUTES: ClassVar = (
        route(
            f"POST {_READER}/release", http=f"{_READER_OF_VHOST}/release", status=200, shows=True
        ),
    )
    number: Natural
    epoch: _DriverOrOperator
    failed: bool = False
    undecided: bool = False

    def changes(self) -> bool:
        """See the base class."""
        return self.epoch < 0


class GiveUpRequest(ReaderRequest[int], frozen=True):
    """Take all messages out of an open claim. Answer: MessagesCounted.

    A claim that a batch decides about is asked about first, as in ReleaseClaimRequest. Refused: 409
    fenced, 410 claim_lost, 409 when nothing passes (`queue.give_up_command.GiveUpClaim`).
    """

    ROUTES: ClassVar = (route(f"POST {_READER}/give_up"),)
    number: Positive
    epoch: Natural
    way: AnyWay
    in_row_max: Positive
    drop: bool = False


# ------------------------------------------------------------------ batches of sinks


class DrawEpochRequest(AdminRequest[EpochDrawn], frozen=True):
    """Draw an epoch for a driver that will write runs of sinks. Answer: EpochDrawn.

    A queue that sees this epoch, or a higher one, with a run refuses every lower one of that run.
    """

    ROUTES: ClassVar = (route("POST /epochs"),)

    def changes(self) -> bool:
        """See the base class."""
        return False


class BatchRequest(AdminRequest[T], Generic[T], frozen=True):
    """A driver's request about one batch of a sink's run."""

    sink: str
    run: str
    epoch: Positive
    batch: Natural

    def changes(self) -> bool:
        """See the base class."""
        return False


class PublishBatchRequest(BatchRequest[int], frozen=True):
    """Publish a batch in all of its queues; return the number of its messages.

    Answer: MessagesCounted, when every queue has the batch. Refused: 409 fenced, batch_conflict,
    batch_past, 410 stage_lost.

    queues   by name the rows `partition:attempt:blocks`, joined by commas, of each winning attempt
             that has staged blocks there; then pairs (name, rows of numbers), in their order
    settles  (queue, reader, number, epoch) of claims that are settled if, and only if, the batch is
             published, in one queue then. 410 claim_lost, 409 fenced when one of them is not open
             or is another driver's; nothing is published then
    expires_ms  see `queue.commands.SinkPublish`
    """

    ROUTES: ClassVar = (_batch_route(f"POST {_BATCH}"),)
    count_key: ClassVar[str] = "published"
    queues: Any
    settles: Any = ()
    expires_ms: DurationMs = 0

    def checked(self) -> Self:
        """See the base class."""
        queues = _rows_by_name("queues", self.queues, 3)
        settles = tuple(_settled(each) for each in self.settles)
        if len(settles) > SETTLES_MAX:
            raise InvalidArgument(
                f"settles: {len(settles)} claims; at most {SETTLES_MAX} are possible"
            )
        if settles and len(queues) > 1:
            raise InvalidArgument(
                f"a batch in {len(queues)} queues cannot settle claims: they decide one by one; "
                "give all of its rows to one queue, or settle the claims when the batch is "
                "published"
            )
        if len({claim[:2] for claim in settles}) < len(settles):
            raise InvalidArgument("settles: two claims of one reader of a queue; give the last one")
        return msgspec.structs.replace(self, queues=queues, settles=settles)


class DropBatchRequest(BatchRequest[None], frozen=True):
    """Drop stages of a batch. Answer: Performed; 409 fenced.

    queues  as in PublishBatchRequest, with rows `partition:attempt`
    """

    ROUTES: ClassVar = (route(f"DELETE {_BATCH}", body=True),)
    queues: Any

    def checked(self) -> Self:
        """See the base class."""
        return msgspec.structs.replace(self, queues=_rows_by_name("queues", self.queues, 2))


class _Settled(AdminRequest[None], frozen=True):
    """A claim of `PublishBatchRequest.settles`, a map."""

    queue: str
    reader: str
    number: Positive
    epoch: Positive


def _settled(value: Any) -> tuple[str, str, int, int]:
    read = read_map(_Settled, value)
    return read.queue, read.reader, read.number, read.epoch


def _rows_by_name(key: str, value: Any, width: int) -> tuple[tuple[str, Rows], ...]:
    """Parse a map from names to rows of `width` numbers each, in the order of the names.

    The rows are a string, `1:2,3:4`: lists of lists would have more parts than a Proton value can
    hold.
    """
    if not isinstance(value, dict):
        raise InvalidArgument(f"{key}={value!r} is a {type(value).__name__}; dict is expected")
    if not value or len(value) > QUEUES_MAX or not all(isinstance(name, str) for name in value):
        raise InvalidArgument(f"{key}: a map of 1 to {QUEUES_MAX} names is expected")
    return tuple(
        (checked_name(key, name), _rows(f"{key}[{name!r}]", value[name], width))
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
        rows.append(tuple(path_number(what, part) for part in parts))
    return tuple(rows)
