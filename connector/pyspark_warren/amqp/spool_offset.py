"""The position of a query with spools in its checkpoint: of each queue its reader, and a row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark_warren.amqp.search import NO_SEARCH, Part, Search
from pyspark_warren.offset import OFFSET_FORM, SPOOL_KIND, check_form, damaged_offset

NAME_DIGITS: Final = 16
"""Hexadecimal digits of a queue's name in the name of its reader."""


@dataclass(frozen=True, slots=True)
class SpoolPosition:
    """The position of a reader in the spool of a queue.

    row     number of the first row that does not precede it
    search  what remains of batches that failed; None: nothing
    """

    queue: str
    reader: str
    row: int = 0
    search: Search | None = None

    def at(self, row: int, search: Search | None = None) -> SpoolPosition:
        """Return the position of that row, with that search."""
        return replace(self, row=row, search=search)

    @property
    def batch(self) -> str:
        """A name for the batch that ends here, one that no other batch of the queue has.

        Either the row is a later one than that of the batch before, or the turn of its search.
        """
        return f"{self.row}-{(self.search or NO_SEARCH).turn}"

    def read_since(self, start: SpoolPosition | None) -> Part:
        """Return the rows of the batch from `start` to here; None: it begins with the first row."""
        if self.search is not None and self.search.reading is not None:
            return self.search.reading
        return Part(start.row if start is not None and start.reader == self.reader else 0, self.row)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        stored = {"reader": self.reader, "row": self.row}
        return stored if self.search is None else {**stored, "search": self.search.to_dict()}

    @classmethod
    def from_dict(cls, queue: str, stored: Mapping[str, Any]) -> SpoolPosition:
        """Parse the stored form; raises KeyError, TypeError, ValueError."""
        search = Search.from_dict(stored["search"]) if "search" in stored else None
        row = int(stored["row"])
        if row < 0:
            raise ValueError(row)
        return cls(queue, str(stored["reader"]), row, search)


@dataclass(frozen=True, slots=True)
class SpoolOffset:
    """The positions of a query, by queue.

    reader      the reader's name; where there are several queues, in each it has that name and a
                digest of the queue's
    registered  False only for the offset of a reader that no checkpoint knows yet
    """

    vhost: str
    reader: str
    queues: Mapping[str, SpoolPosition] = field(default_factory=dict)
    registered: bool = True

    def of(self, queue: str, several: bool) -> SpoolPosition:
        """Return the position in a queue; the first one where there is none yet."""
        digest = hashlib.sha256(queue.encode()).hexdigest()[:NAME_DIGITS]
        name = f"{self.reader}-{digest}" if several else self.reader
        return self.queues.get(queue, SpoolPosition(queue, name))

    def at(self, queues: Mapping[str, SpoolPosition]) -> SpoolOffset:
        """Return the offset with these positions, registered."""
        return replace(self, queues={**self.queues, **queues}, registered=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form. Keys are sorted, because Spark compares offsets as text."""
        return {
            "kind": SPOOL_KIND,
            "queues": {name: each.to_dict() for name, each in sorted(self.queues.items())},
            "reader": self.reader,
            "registered": self.registered,
            "version": OFFSET_FORM,
            "vhost": self.vhost,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> SpoolOffset:
        """Parse the stored form of a checkpoint; raises CheckpointError."""
        check_form(stored, SPOOL_KIND)
        try:
            queues = {
                str(name): SpoolPosition.from_dict(str(name), each)
                for name, each in stored["queues"].items()
            }
            names = str(stored["vhost"]), str(stored["reader"])
            return cls(*names, queues, bool(stored["registered"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise damaged_offset(stored) from None
