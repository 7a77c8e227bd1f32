"""The position of a source with a spool in the checkpoint: a position per lane."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_warren.errors import CheckpointError
from pyspark_warren.offset import (
    check_same_queue,
    check_version,
    damaged_offset,
    foreign_offset,
    several_queues,
)

VERSION: Final = 3
"""Offsets of a Warren broker have versions 1 and 2 (`pyspark_warren.offset`)."""
SPOOL_KIND: Final = "spool"
SPOOLS_KIND: Final = "spools"
"""Of several queues: `pyspark_warren.amqp.queues_spool_offset`."""


@dataclass(frozen=True, slots=True)
class SpoolOffset:
    """The position of one reader in the lanes of a queue's spool.

    lanes       (name, position) ascending by name; a lane that is not there is at 0
    registered  False only for the offset of a reader that no checkpoint knows yet
    """

    vhost: str
    queue: str
    reader: str
    lanes: tuple[tuple[str, int], ...] = ()
    registered: bool = True

    def position(self, lane: str) -> int:
        """Return a lane's position."""
        return dict(self.lanes).get(lane, 0)

    def at(self, positions: Mapping[str, int]) -> SpoolOffset:
        """Return the offset with these positions, registered."""
        lanes = tuple(sorted({**dict(self.lanes), **positions}.items()))
        return SpoolOffset(self.vhost, self.queue, self.reader, lanes)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form. Keys are sorted, because Spark compares offsets as text."""
        return {
            "kind": SPOOL_KIND,
            "lanes": dict(self.lanes),
            "queue": self.queue,
            "reader": self.reader,
            "registered": self.registered,
            "version": VERSION,
            "vhost": self.vhost,
        }

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
            return cls(names[0], names[1], names[2], lanes, bool(stored["registered"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise damaged_offset(stored) from None

    def check_is_of(self, vhost: str, queue: str) -> None:
        """Raise CheckpointError when the checkpoint was written for another queue."""
        check_same_queue((self.vhost, self.queue), (vhost, queue))
