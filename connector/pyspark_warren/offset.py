"""The position of a source in the checkpoint: the reader, and its claims up to a number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_warren.errors import CheckpointError

VERSION: Final = 4
"""1: claims are open when they are named. 2: the claim may be opened when it is planned. 3: the
epoch of the run that named them is there (onBatchFailure). 4: the number of that run is.

An offset is written with the lowest version that can represent it.
"""


@dataclass(frozen=True, slots=True, order=True)
class ClaimInfo:
    """A claim's data that `partitions` needs, without a request to the broker.

    number      ascending by one per reader
    messages    0: unknown, the claim is opened when its batch is planned, and may be empty
    size_bytes  bodies and properties together
    """

    number: int
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of one reader in a queue.

    number      all claims up to this one precede the offset; 0: none
    claims      those of the micro-batch that ends here, ascending; empty at the start
    registered  False only for the offset of a reader that no checkpoint knows yet
    epoch       of the run that began the batch, when the cluster does not count a reader's starts
    starts      the number of that run, as the queue counts the reader's starts
                Both 0: not noted, the batch's tries are not counted
    Invariant: claims is empty or ends with `number`, without gaps.
    """

    vhost: str
    queue: str
    reader: str
    number: int = 0
    claims: tuple[ClaimInfo, ...] = ()
    registered: bool = True
    epoch: int = 0
    starts: int = 0

    def __post_init__(self) -> None:
        numbers = [claim.number for claim in self.claims]
        assert not numbers or numbers == list(range(numbers[0], self.number + 1)), (
            numbers,
            self.number,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form. Keys are sorted, because Spark compares offsets as text."""
        stored = {
            "claims": [[c.number, c.messages, c.size_bytes] for c in self.claims],
            "number": self.number,
            "queue": self.queue,
            "reader": self.reader,
            "registered": self.registered,
            "version": 1 if all(c.messages for c in self.claims) else 2,
            "vhost": self.vhost,
        }
        if self.starts:
            return {**stored, "starts": self.starts, "version": 4}
        return {**stored, "epoch": self.epoch, "version": 3} if self.epoch else stored

    def to_json(self) -> str:
        """Return the canonical text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Offset:
        """Parse the stored form of a checkpoint; raises CheckpointError."""
        if stored.get("kind") in ("spool", "spools", "stream"):
            raise CheckpointError(
                "the checkpoint was written with broker=amqp, the query reads with broker=warren; "
                "connect to that broker, or use another checkpointLocation"
            )
        if stored.get("kind") == "queues":
            raise several_queues()
        version = stored.get("version")
        if "reader" not in stored or not isinstance(version, int):
            raise foreign_offset(stored)
        check_version(version, VERSION)
        try:
            claims = tuple(ClaimInfo(int(n), int(m), int(b)) for n, m, b in stored["claims"])
            offset = cls(
                str(stored["vhost"]),
                str(stored["queue"]),
                str(stored["reader"]),
                int(stored["number"]),
                claims,
                bool(stored["registered"]),
                int(stored["epoch"]) if version == 3 else 0,
                int(stored["starts"]) if version >= 4 else 0,
            )
        except (AssertionError, KeyError, TypeError, ValueError):
            raise damaged_offset(stored) from None
        return offset

    def check_is_of(self, vhost: str, queue: str) -> None:
        """Raise CheckpointError when the checkpoint was written for another queue."""
        check_same_queue((self.vhost, self.queue), (vhost, queue))

    def after(self, claim: ClaimInfo, epoch: int = 0, starts: int = 0) -> Offset:
        """Return the offset after the next claim, which ends a micro-batch.

        epoch, starts  of the run that begins it; the first is noted where the second is 0
        """
        assert claim.number == self.number + 1, (claim, self.number)
        noted = (0, starts) if starts else (epoch, 0)
        return Offset(self.vhost, self.queue, self.reader, claim.number, (claim,), True, *noted)

    @property
    def counts_tries(self) -> bool:
        """Whether it says which run has begun the batch."""
        return bool(self.epoch or self.starts)


def several_queues() -> CheckpointError:
    """Return the error for the offset of several queues in a query with the option queue."""
    return CheckpointError(
        "the checkpoint is of several queues, the query has the option queue: give the option "
        "queues with that queue to continue this checkpoint, or use another checkpointLocation"
    )


def foreign_offset(stored: Mapping[str, Any]) -> CheckpointError:
    """Return the error for an offset that another source wrote."""
    return CheckpointError(
        f"the checkpoint was not written by this source: offset {_short(stored)}; "
        "use another checkpointLocation, or delete this one to start over"
    )


def damaged_offset(stored: Mapping[str, Any]) -> CheckpointError:
    """Return the error for an offset with values that are none."""
    return CheckpointError(
        f"the checkpoint's offset cannot be read: {_short(stored)}; it was changed or "
        "damaged; restore it, or delete the checkpoint to start over"
    )


def check_version(version: int, known: int) -> None:
    """Raise CheckpointError for an offset with a version above the known one."""
    if version > known:
        raise CheckpointError(
            f"the checkpoint's offset has version {version}, this connector knows versions "
            f"up to {known}; upgrade it, or use another checkpointLocation"
        )


def check_same_queue(found: tuple[str, str], read: tuple[str, str]) -> None:
    """Raise CheckpointError when vhost and queue of the checkpoint are not those that are read."""
    if found != read:
        raise CheckpointError(
            f"the checkpoint is of queue {found[1]!r} in vhost {found[0]!r}, the query "
            f"reads queue {read[1]!r} in vhost {read[0]!r}; one checkpoint serves one queue: give "
            "this query its own checkpointLocation"
        )


def check_same_vhost(found: str, read: str) -> None:
    """Raise CheckpointError when the vhost of the checkpoint is not the one that is read."""
    if found != read:
        raise CheckpointError(
            f"the checkpoint is of vhost {found!r}, the query reads vhost {read!r}: give this "
            "query its own checkpointLocation"
        )


def _short(stored: Mapping[str, Any]) -> str:
    text = json.dumps(stored, sort_keys=True, default=str)
    return text if len(text) <= 200 else text[:200] + "…"
