"""When an entry was written: its stamp, found without its data.

An entry in memory has it. Of one on disk only the header of its record is read, by whichever
thread asks, and not checked: a file may have been written over meanwhile, so the header must name
the entry. What is found is for people, not for decisions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from warren_raft.storage.format import RECORD_HEADER_BYTES, entry_stamp
from warren_raft.types import GroupId, Index


class EntryTime(NamedTuple):
    """An entry, and its stamp, or where that is.

    time_ms  0: read it at `offset` of `path`
    """

    group: GroupId
    entry: Index
    time_ms: int
    path: Path | None = None
    offset: int = 0

    def read(self) -> int:
        """Return the stamp; 0: it is not there any more. May wait for the disk."""
        if self.time_ms or self.path is None:
            return self.time_ms
        try:
            with open(self.path, "rb") as file:
                header = os.pread(file.fileno(), RECORD_HEADER_BYTES, self.offset)
        except OSError:
            return 0
        return entry_stamp(header, self.group, self.entry)
