"""The position of a source of several queues in the checkpoint: queue to position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark_warren.errors import CheckpointError
from pyspark_warren.offset import Offset, check_version, damaged_offset, foreign_offset

VERSION: Final = 3
"""The next one after those of `Offset`, so that an older connector says that it is too old."""
KIND: Final = "queues"


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """Positions by queue.

    reader      the reader's name in queues that join
    registered  False only for the offset of a reader that no checkpoint knows yet
    leaving     positions in queues that are not read any more; the reader is to be ended there
    """

    vhost: str
    reader: str
    queues: Mapping[str, Offset]
    registered: bool = True
    leaving: Mapping[str, Offset] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        stored = {
            "kind": KIND,
            "queues": _stored(self.queues),
            "reader": self.reader,
            "registered": self.registered,
            "version": VERSION,
            "vhost": self.vhost,
        }
        return {**stored, "leaving": _stored(self.leaving)} if self.leaving else stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> QueueOffsets:
        """Parse the stored form, also that of a query with the option `queue`: CheckpointError."""
        if stored.get("kind") != KIND:
            one = Offset.from_dict(stored)
            queues = {one.queue: one} if one.registered else {}
            return cls(one.vhost, one.reader, queues, one.registered)
        version = stored.get("version")
        if not isinstance(version, int):
            raise foreign_offset(stored)
        check_version(version, VERSION)
        try:
            vhost = str(stored["vhost"])
            return cls(
                vhost,
                str(stored["reader"]),
                _parsed(vhost, stored["queues"]),
                bool(stored["registered"]),
                _parsed(vhost, stored.get("leaving", {})),
            )
        except (AttributeError, KeyError, TypeError, ValueError, CheckpointError):
            raise damaged_offset(stored) from None

    def of(self, queue: str) -> Offset:
        """Return the position in one queue; one of an unknown reader where there is none."""
        return self.queues.get(queue) or Offset(self.vhost, queue, self.reader, registered=False)

    def moved(self, queues: Mapping[str, Offset], leaving: Mapping[str, Offset]) -> QueueOffsets:
        """Return the offset of a registered reader with these positions."""
        return replace(self, queues=dict(queues), registered=True, leaving=dict(leaving))


def _stored(offsets: Mapping[str, Offset]) -> dict[str, Any]:
    return {
        name: {
            "claims": [[c.number, c.messages, c.size_bytes] for c in offset.claims],
            "number": offset.number,
            "reader": offset.reader,
        }
        for name, offset in sorted(offsets.items())
    }


def _parsed(vhost: str, stored: Mapping[str, Any]) -> dict[str, Offset]:
    return {
        str(name): Offset.from_dict(
            {**each, "queue": name, "vhost": vhost, "registered": True, "version": 1}
        )
        for name, each in stored.items()
    }
