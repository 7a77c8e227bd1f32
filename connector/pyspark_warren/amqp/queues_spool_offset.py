"""The position of a source of several queues, each with a spool of its own, in the checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark_warren.amqp.spool_offset import SPOOL_KIND, SPOOLS_KIND, SpoolOffset
from pyspark_warren.errors import CheckpointError
from pyspark_warren.offset import check_version, damaged_offset

VERSION: Final = 4
"""Above that of a `SpoolOffset` without a search: an older connector says that it is too old."""
NAME_DIGITS: Final = 16
"""Hexadecimal digits of a queue's name in the name of its reader."""


@dataclass(frozen=True, slots=True)
class QueuesSpoolOffset:
    """Positions by queue.

    reader      the reader's name; in each queue it has that name and a digest of the queue's
    registered  False only for the offset of a reader that no checkpoint knows yet
    """

    vhost: str
    reader: str
    queues: Mapping[str, SpoolOffset]
    registered: bool = True

    def of(self, queue: str) -> SpoolOffset:
        """Return the position in one queue; one of an unknown reader where there is none."""
        digest = hashlib.sha256(queue.encode()).hexdigest()[:NAME_DIGITS]
        new = SpoolOffset(self.vhost, queue, f"{self.reader}-{digest}", (), registered=False)
        return self.queues.get(queue, new)

    def at(self, queues: Mapping[str, SpoolOffset]) -> QueuesSpoolOffset:
        """Return the offset with these positions, registered."""
        return replace(self, queues={**self.queues, **queues}, registered=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        return {
            "kind": SPOOLS_KIND,
            "queues": {
                name: {"lanes": dict(offset.lanes), "reader": offset.reader}
                for name, offset in sorted(self.queues.items())
            },
            "reader": self.reader,
            "registered": self.registered,
            "version": VERSION,
            "vhost": self.vhost,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> QueuesSpoolOffset:
        """Parse the stored form, also that of a query with the option `queue`: CheckpointError."""
        if stored.get("kind") != SPOOLS_KIND:
            one = SpoolOffset.from_dict(stored)
            if one.search is not None:
                raise CheckpointError(
                    f"the checkpoint is of a query that gives up batches of queue {one.queue!r} "
                    "(onBatchFailure), and the option queues cannot continue it: give the option "
                    "queue, or another checkpointLocation"
                )
            queues = {one.queue: one} if one.registered else {}
            return cls(one.vhost, one.reader, queues, one.registered)
        version = stored.get("version")
        if not isinstance(version, int):
            raise damaged_offset(stored)
        check_version(version, VERSION)
        try:
            vhost = str(stored["vhost"])
            found = {
                str(name): SpoolOffset.from_dict(
                    {
                        **each,
                        "kind": SPOOL_KIND,
                        "queue": name,
                        "registered": True,
                        "version": 3,
                        "vhost": vhost,
                    }
                )
                for name, each in stored["queues"].items()
            }
            return cls(vhost, str(stored["reader"]), found, bool(stored["registered"]))
        except (AttributeError, KeyError, TypeError, ValueError, CheckpointError):
            raise damaged_offset(stored) from None
