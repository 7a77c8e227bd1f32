"""The position of a source with a spool in the checkpoint: a position per lane."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_warren.amqp.search import NO_SEARCH, Part, Search
from pyspark_warren.errors import CheckpointError
from pyspark_warren.offset import (
    check_same_queue,
    check_version,
    damaged_offset,
    foreign_offset,
    several_queues,
)

VERSION: Final = 4
"""3: without a search. 4: with one (onBatchFailure).

An offset is written with the lowest version that can represent it. Those of a Warren broker
(`pyspark_warren.offset`) have numbers of their own.
"""
SPOOL_KIND: Final = "spool"
SPOOLS_KIND: Final = "spools"
"""Of several queues: `pyspark_warren.amqp.queues_spool_offset`."""


@dataclass(frozen=True, slots=True)
class SpoolOffset:
    """The position of one reader in the lanes of a queue's spool.

    lanes       (name, position) ascending by name; a lane that is not there is at 0
    registered  False only for the offset of a reader that no checkpoint knows yet
    search      what remains of batches that failed; None: nothing
    """

    vhost: str
    queue: str
    reader: str
    lanes: tuple[tuple[str, int], ...] = ()
    registered: bool = True
    search: Search | None = None

    def position(self, lane: str) -> int:
        """Return a lane's position."""
        return dict(self.lanes).get(lane, 0)

    def at(self, positions: Mapping[str, int], search: Search | None = None) -> SpoolOffset:
        """Return the offset with these positions and that search, registered."""
        lanes = tuple(sorted({**dict(self.lanes), **positions}.items()))
        return SpoolOffset(self.vhost, self.queue, self.reader, lanes, search=search)

    def batch_of(self, lane: str) -> str:
        """Return a name for the batch that ends here, one that no other batch of the lane has.

        Either the position is higher than that of the batch before, or the turn of its search.
        """
        return f"{self.position(lane)}-{(self.search or NO_SEARCH).turn}"

    def read_since(self, start: SpoolOffset, lane: str) -> Part:
        """Return the rows of the batch from `start` to here."""
        if self.search is not None and self.search.reading is not None:
            return self.search.reading
        first = start.position(lane) if start.reader == self.reader else 0
        return Part(first, self.position(lane))

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form. Keys are sorted, because Spark compares offsets as text."""
        stored = {
            "kind": SPOOL_KIND,
            "lanes": dict(self.lanes),
            "queue": self.queue,
            "reader": self.reader,
            "registered": self.registered,
            "version": 3,
            "vhost": self.vhost,
        }
        if self.search is None:
            return stored
        return {**stored, "search": self.search.to_dict(), "version": 4}

    def to_json(self) -> str:
        """Return the canonical text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> SpoolOffset:
        """Parse the stored form of a checkpoint; raises CheckpointError."""
        if "claims" in stored:
            raise CheckpointError(
                "the checkpoint was written with broker=warren, the query reads with broker=amqp; "
                "connect to that broker, or use another checkpointLocation"
            )
        if stored.get("kind") == "stream":
            raise CheckpointError(
                "the checkpoint was written with startingOffset, for a stream; give startingOffset "
                "again, or use another checkpointLocation"
            )
        if stored.get("kind") == SPOOLS_KIND:
            raise several_queues()
        version = stored.get("version")
        if stored.get("kind") != SPOOL_KIND or not isinstance(version, int):
            raise foreign_offset(stored)
        check_version(version, VERSION)
        try:
            lanes = tuple(sorted((str(k), int(v)) for k, v in stored["lanes"].items()))
            if any(position < 0 for _, position in lanes):
                raise ValueError(lanes)
            names = [str(stored[name]) for name in ("vhost", "queue", "reader")]
            search = Search.from_dict(stored["search"]) if version >= 4 else None
            return cls(names[0], names[1], names[2], lanes, bool(stored["registered"]), search)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise damaged_offset(stored) from None

    def check_is_of(self, vhost: str, queue: str) -> None:
        """Raise CheckpointError when the checkpoint was written for another queue."""
        check_same_queue((self.vhost, self.queue), (vhost, queue))
