"""Spare files: files of the log that are no longer needed, kept to be written over.

A sync of a file that grows also writes where its new blocks are, and its length. One of a file
that is overwritten writes the bytes alone, and needs fewer pages: half the time, and half the CPU,
for writes of a few kilobytes. So a file that compaction would remove is renamed to the name of a
file that is being made (`.wal.new`), and becomes the next file of the log with a head of its own.
Until it has that head and that name it is nothing: a start removes it.

Its pages are in memory, as a rule, where those of a new file are taken from what is free: a page
that the system has to find, and a virtual machine to be given, costs up to ten times as much as
the copy into it. So a log that is written fast has as many spare files as it begins in half a
minute.

What is left in it of its earlier use has another salt, see `format`. It is overwritten only when
its former name is durably gone: 1. File 5 is renamed, and not synced.  2. It becomes file 9.  3.
The power fails, and file 5 is there again, with the records of file 9.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from warren_raft.storage.files import Files, is_full

SPARES_MIN = 2
"""Spare files of a log that is written slowly: a cycle of compaction often retires two."""
SPARES_MAX = 8
"""The most at a time: half a gibibyte of files of the usual size."""
SPARES_FREE_FILES = 16
"""More than SPARES_MIN are kept while the disk has free space for so many files of that size."""
SPARES_WINDOW_MS = 30_000
"""The log may have as many as it began files in that time; none, if it began none."""
SPARES_PAUSE_MS = 60_000
"""For how long no spare files are kept after the disk was low on space."""


class SpareFiles:
    """The spare files of one log. `keep` is for the background writer's thread, `take` for the
    log's, the rest for the owner's.

    now_ms     of the last look; pause_ms: what is left of a pause
    begun      when files of the log were begun, and how many, within the window
    most       how many spare files there may be; of a log that rests only until the next look
    Invariant: the path of a spare file is either here, or with one of the callers
    """

    def __init__(self, files: Files, file_bytes: int, recycle: bool) -> None:
        """file_bytes: the size of the log's files; recycle: False: no file is kept."""
        self._files = files
        self._bytes_min = file_bytes // 2
        self._bytes_max = 2 * file_bytes
        self._lock = threading.Lock()
        self._paths: list[Path] = []
        self._recycle = recycle
        self._newest: int | None = None
        self._now_ms: int | None = None
        self._begun: deque[tuple[int, int]] = deque()
        self._most = SPARES_MIN
        self._pause_ms = 0

    def keep(self, path: Path) -> bool:
        """Rename a file that is not needed any more, durably; False: it is to be removed.

        A file of another size than the log's files is not kept, nor one with a second name: a
        copy made of hard links would be written over. Nor is one if there is no space to rename it.
        """
        with self._lock:
            count = len(self._paths)
            room = self._recycle and not self._pause_ms and count < self._most
        size = self._files.size(path) if room else 0
        if not self._bytes_min <= size <= self._bytes_max or self._files.links(path) > 1:
            return False
        # 1. A disk of 1 GB holds a small backlog.  2. Eight spare files take half of it.  3. The
        # alarm for low space blocks publishers until they are removed.
        # Replayed by tests/raft/storage/test_spare_files.py
        free_min = SPARES_FREE_FILES * size if count >= SPARES_MIN else 0
        if free_min and self._files.free_bytes(path.parent) < free_min:
            return False
        spare = path.with_name(path.name + ".new")
        try:
            self._files.rename(path, spare)
        except OSError as error:
            if is_full(error):
                return False
            raise
        with self._lock:
            self._paths.append(spare)
        return True

    def take(self) -> Path | None:
        """Return the file that was kept last, which belongs to the caller; None: there is none."""
        with self._lock:
            return self._paths.pop() if self._paths else None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._paths)

    @property
    def paused(self) -> bool:
        """Whether the disk was low on space not long ago."""
        return self._pause_ms > 0

    def release(self) -> list[Path]:
        """Return all of them, to be removed."""
        with self._lock:
            gone, self._paths = self._paths, []
        return gone

    def space_is_low(self) -> list[Path]:
        """Return all of them, to be removed, and keep none for a while."""
        self._pause_ms = SPARES_PAUSE_MS
        return self.release()

    def look(self, newest: int, now_ms: int) -> list[Path]:
        """Return the files to be removed: those of which there are too many now.

        newest  the number of the log's newest file
        """
        since_ms = now_ms - (now_ms if self._now_ms is None else self._now_ms)
        self._pause_ms = max(0, self._pause_ms - since_ms)
        self._now_ms = now_ms
        if newest != self._newest:
            self._begun.append((now_ms, 1 if self._newest is None else newest - self._newest))
            self._newest = newest
        while self._begun and self._begun[0][0] <= now_ms - SPARES_WINDOW_MS:
            self._begun.popleft()
        begun = sum(count for _, count in self._begun)
        with self._lock:
            self._most = min(max(begun, SPARES_MIN), SPARES_MAX)
            surplus = max(0, len(self._paths) - (self._most if begun else 0))
            gone, self._paths = self._paths[:surplus], self._paths[surplus:]
        return gone
