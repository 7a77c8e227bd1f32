"""The position of a query in its checkpoint: the reader of each queue, and its claims up to one.

Also what every kind of offset has in common: its form, which the checkpoint names, and the errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

import msgspec

from pyspark_warren.errors import CheckpointError
from pyspark_warren.options.options import Options

P = TypeVar("P")
OFFSET_FORM: Final = 1
"""The form of every offset. One of another form is refused."""
CLAIMS_KIND: Final = "claims"
SPOOL_KIND: Final = "spool"
STREAM_KIND: Final = "stream"
"""The kinds of offsets; those of the last two are in `spool` and `streams`."""
_OF_WARREN: Final = (
    "the checkpoint was written with broker=warren, the query reads with broker=amqp; connect to "
    "that broker, or use another checkpointLocation"
)
_OF_AMQP: Final = (
    "the checkpoint was written with broker=amqp, the query reads with broker=warren; connect to "
    "that broker, or use another checkpointLocation"
)
_OF_QUEUE: Final = (
    "the checkpoint was written for a queue, and startingOffset says that it is a stream; leave "
    "startingOffset out, or use another checkpointLocation"
)
_OTHERS: Final = {
    (CLAIMS_KIND, SPOOL_KIND): _OF_AMQP,
    (CLAIMS_KIND, STREAM_KIND): _OF_AMQP,
    (SPOOL_KIND, CLAIMS_KIND): _OF_WARREN,
    (SPOOL_KIND, STREAM_KIND): (
        "the checkpoint was written with startingOffset, for a stream; give startingOffset again, "
        "or use another checkpointLocation"
    ),
    (STREAM_KIND, CLAIMS_KIND): _OF_QUEUE,
    (STREAM_KIND, SPOOL_KIND): _OF_QUEUE,
}
"""What is wrong, by the kind that is wanted and the one that is there."""


class ClaimInfo(NamedTuple):
    """A claim's data that `partitions` needs, without a request to the broker.

    number      ascending by one per reader
    messages    0: unknown, the claim is opened when its batch is planned, and may be empty
    size_bytes  bodies and properties together
    """

    number: int
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a reader in a queue.

    number  all claims up to this one precede the position; 0: none
    claims  those of the micro-batch that ends here, ascending; empty at the start
    starts  the number of the run that began the batch, as the queue counts the reader's starts; 0:
            not noted, the batch's tries are not counted
    Invariant: claims is empty or ends with `number`, without gaps.
    """

    unset: ClassVar[str] = "starts"

    queue: str
    reader: str
    number: int = 0
    claims: tuple[ClaimInfo, ...] = ()
    starts: int = 0

    def __post_init__(self) -> None:
        numbers = [claim.number for claim in self.claims]
        assert not numbers or numbers == list(range(numbers[0], self.number + 1)), (
            numbers,
            self.number,
        )

    def after(self, claim: ClaimInfo, starts: int = 0) -> Position:
        """Return the position after the next claim, which ends a micro-batch of that run."""
        assert claim.number == self.number + 1, (claim, self.number)
        return Position(self.queue, self.reader, claim.number, (claim,), starts)


@dataclass(frozen=True, slots=True)
class QueryOffset(Generic[P]):
    """The positions of a query, by queue; `kind` and `position` say of which kind.

    position    the class of positions; its field `unset` is stored where it is not empty
    reader      the reader's name in queues that join
    registered  False only for the offset of a reader that no checkpoint knows yet
    leaving     positions in queues that are not read any more; the reader is to be ended there
    """

    kind: ClassVar[str]
    position: ClassVar[Any]

    vhost: str
    reader: str
    queues: Mapping[str, P] = field(default_factory=dict)
    registered: bool = True
    leaving: Mapping[str, P] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form: fields by name, a position's queue as its key."""
        stored: dict[str, Any] = msgspec.to_builtins(self)
        for each in (*stored["queues"].values(), *stored["leaving"].values()):
            del each["queue"]
            if not each[self.position.unset]:
                del each[self.position.unset]
        if not stored["leaving"]:
            del stored["leaving"]
        return with_form(stored, self.kind)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Parse the stored form of a checkpoint; raises CheckpointError."""
        check_form(stored, cls.kind)
        try:
            queues, leaving = (
                {
                    name: msgspec.convert({**each, "queue": name}, cls.position)
                    for name, each in stored.get(key, {}).items()
                }
                for key in ("queues", "leaving")
            )
            made = cls(stored["vhost"], stored["reader"], queues, stored["registered"], leaving)
            check_same(made.to_dict(), stored)
            return made
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
            raise damaged_offset(stored) from None


@dataclass(frozen=True, slots=True)
class Offset(QueryOffset[Position]):
    """The positions of a query that reads queues of Warren."""

    kind: ClassVar[str] = CLAIMS_KIND
    position: ClassVar[Any] = Position

    def moved(self, queues: Mapping[str, Position], leaving: Mapping[str, Position]) -> Offset:
        """Return the offset of a registered reader with these positions."""
        return replace(self, queues=dict(queues), registered=True, leaving=dict(leaving))


# ------------------------------------------------------------------ of every kind


def with_form(stored: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return an offset with its form. Keys are sorted, because Spark compares offsets as text."""
    whole = {**stored, "kind": kind, "version": OFFSET_FORM}
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole, order="sorted"))
    return made


def check_same(written: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Raise ValueError when an offset lacks something, or has more than would be written."""
    if written != stored:
        raise ValueError(stored)


def check_form(stored: Mapping[str, object], kind: str) -> None:
    """Raise CheckpointError unless an offset is of that kind and of this form."""
    found, version = stored.get("kind", "queue"), stored.get("version")
    ours = found in (CLAIMS_KIND, SPOOL_KIND, STREAM_KIND, "queues", "spools") or "reader" in stored
    if not ours or not isinstance(version, int):
        raise CheckpointError(
            f"the checkpoint was not written by this source: offset {_short(stored)}; "
            "use another checkpointLocation, or delete this one to start over"
        )
    if found in (CLAIMS_KIND, SPOOL_KIND, STREAM_KIND) and found != kind:
        raise CheckpointError(_OTHERS[kind, found])
    if (found, version) != (kind, OFFSET_FORM):
        raise CheckpointError(
            f"the checkpoint was written by another release of the connector: its offset is of "
            f"form {found} {version}, this release knows {kind} {OFFSET_FORM}; continue with that "
            "release, or use another checkpointLocation"
        )


def damaged_offset(stored: Mapping[str, object]) -> CheckpointError:
    """Return the error for an offset with values that are none."""
    return CheckpointError(
        f"the checkpoint's offset cannot be read: {_short(stored)}; it was changed or "
        "damaged; restore it, or delete the checkpoint to start over"
    )


def check_queues(
    options: Options, vhost: str, queues: Collection[str], selects: Callable[[str], bool]
) -> None:
    """Raise CheckpointError for a checkpoint of another vhost, or of other queues alone."""
    if vhost != options.vhost:
        raise CheckpointError(
            f"the checkpoint is of vhost {vhost!r}, the query reads vhost {options.vhost!r}: give "
            "this query its own checkpointLocation"
        )
    if queues and not any(map(selects, queues)):
        names = ", ".join(map(repr, sorted(queues)[:5]))
        raise CheckpointError(
            f"the checkpoint is of queue {names}, the query reads {options.read_text()}, none of "
            "those: give this query its own checkpointLocation, or name one of the checkpoint's "
            "queues, too"
        )


def _short(stored: Mapping[str, object]) -> str:
    text = json.dumps(stored, sort_keys=True, default=str)
    return text if len(text) <= 200 else text[:200] + "…"
