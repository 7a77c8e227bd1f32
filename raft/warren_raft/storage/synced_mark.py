"""The synced mark: how far the log is known to be on disk, in two files of its own.

`wal/synced` and `synced`, with the same content, little-endian, overwritten in place (each fits in
one sector), the second one when the first one is on disk:

| at | what |
| --- | --- |
| 0 | magic `WARRNSYN`, u32 version = 1, u32 salt of that file |
| 16 | u64 number of a file of the log, u64 bytes of it that are on disk |
| 32 | u64 disk, the directory's (`identity`) |
| 40 | u32 crc32 of bytes 0..39, u32 0 |

Every file of the log names the one before it (`format`, LINK). These two name the newest one: they
are written when it is begun, before anything in it is acknowledged; so a newest file that is
missing, or was replaced, is detected. They also record where it ended when the log was last idle,
and once a second while it is not:

A torn end of the log is cut at a start, because nothing of it was acknowledged; damage to what was
synced must not be cut. What precedes a later batch was synced, but the log itself does not tell
whether the last batch was: 1. A follower acknowledges entry 7, and the log is idle.  2. A bit of it
is damaged.  3. The node restarts, takes that for a torn end, and votes for a node that lacks 7.

One of the two may be missing, damaged or old: then the other one is used. If both are unreadable
and `node.json` says that there is a log, that is damage.
"""

from __future__ import annotations

import logging
import struct
import threading
from pathlib import Path
from typing import NamedTuple

from warren_raft.storage.background_writer import BackgroundWriter
from warren_raft.storage.files import Files, is_bad_medium, is_full
from warren_raft.storage.identity import SYNCED, Directory
from warren_raft.storage.wal import Wal
from warren_wire.checksum import crc32

log = logging.getLogger("warren.raft")

NAME = SYNCED
VERSION = 1
MAGIC = b"WARRNSYN"
MARK_EVERY_MS = 1_000
"""Time between two marks of a log that is written to continuously."""
RESTS_MS = 50
"""A log rests when nothing was written for that long: a look every 100 ms sees it at the next."""
_BODY = struct.Struct("<8sIIQQQ")
_CRC = struct.Struct("<II")


class SyncedMark(NamedTuple):
    """A mark: file `file` of the log is on disk up to byte `end`; 0, 0: not known."""

    file: int = 0
    end: int = 0
    salt: int = 0
    disk: int = 0


def encode(synced: SyncedMark) -> bytes:
    """Encode the file."""
    body = _BODY.pack(MAGIC, VERSION, synced.salt, synced.file, synced.end, synced.disk)
    return body + _CRC.pack(crc32(body), 0)


def decode(data: bytes) -> SyncedMark:
    """Decode such a file; SyncedMark() when it is damaged."""
    if len(data) < _BODY.size + _CRC.size:
        return SyncedMark()
    magic, version, salt, file, end, disk = _BODY.unpack_from(data)
    whole = _CRC.unpack_from(data, _BODY.size) == (crc32(data[: _BODY.size]), 0)
    if magic != MAGIC or version != VERSION or not whole:
        return SyncedMark()
    return SyncedMark(file, end, salt, disk)


def read(files: Files, directory: Path) -> SyncedMark:
    """Read the file in that folder; SyncedMark() when it is missing or damaged."""
    path = directory / NAME
    try:
        return decode(files.read(path)) if files.exists(path) else SyncedMark()
    except OSError as error:
        if not is_bad_medium(error):
            raise
        return SyncedMark()


def read_both(files: Files, directory: Directory) -> list[SyncedMark]:
    """Read both files: the marks of those that are intact, newest first."""
    found = [read(files, place) for place in (directory.wal, directory.path)]
    return sorted((each for each in found if each.file), key=lambda s: s[:2], reverse=True)


class SyncedMarkFiles:
    """The two files. The WAL's thread writes them at a new file, else the background writer's.

    Invariant: the written mark never moves back; one of the two files is intact at any time
    """

    def __init__(self, files: Files, directory: Directory) -> None:
        self._files = files
        self._directory = directory
        self._fds: dict[Path, int] = {}
        self._lock = threading.Lock()
        self._failed: OSError | None = None
        self._written = dict.fromkeys((directory.wal / NAME, directory.path / NAME), (0, 0))

    def write(self, file: int, end: int, salt: int) -> None:
        """Write the mark to both files, and to `node.json` that there is a log.

        Raises OSError; after one that is not about space, on every later call.
        """
        with self._lock:
            # 1. A mark fails.  2. The writer begins its next file, and the mark of that is passed
            # over: it acknowledges what no mark names, and two such files are one too many.
            # Replayed by tests/raft/storage/test_begun_files.py
            if self._failed is not None:
                raise self._failed
            disk = int(self._directory.identity.disk, 16)
            data = encode(SyncedMark(file, end, salt, disk))
            # The one that is behind is written first: a failed write may have left it torn.
            for path, written in sorted(self._written.items(), key=lambda each: each[1]):
                if written < (file, end):
                    self._put(path, data)
                    self._written[path] = (file, end)
            if not self._directory.identity.logged:
                self._directory.change(logged=True)

    def _put(self, path: Path, data: bytes) -> None:
        fd = self._fds.get(path)
        try:
            if fd is None:
                self._fds[path] = self._files.create(path, data)
            else:
                self._files.write_at(fd, 0, [data])
                self._files.sync_data(fd)
        except OSError as error:
            # 1. The second one is torn, because the disk fails.  2. The node ends, and records
            # where the log ended: now the first one is torn, too.
            if not is_full(error):
                self._failed = error
            raise

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds.values():
            self._files.close(fd)
        self._fds.clear()


class SyncedMarkWriter:
    """Writes the end of the log to both files, on the background writer's thread.

    At most one write of both after each burst, and one a second within it. A disk without space
    for them does not stop the node: the write is repeated at the next look.

    seen  the end of the log, and when it was first seen there
    busy  they are being written
    """

    def __init__(
        self, marks: SyncedMarkFiles, wal: Wal, background_writer: BackgroundWriter
    ) -> None:
        self._marks = marks
        self._wal = wal
        self._background_writer = background_writer
        self._seen = self._marked = wal.on_disk
        self._seen_ms: int | None = None
        self._marked_ms: int | None = None
        self.busy = False

    def look(self, now_ms: int) -> None:
        """Write the mark if the log rests, or has not been marked for long."""
        synced = self._wal.on_disk
        if self._seen_ms is None or self._marked_ms is None:
            self._seen_ms = self._marked_ms = now_ms
        elif synced != self._seen:
            self._seen_ms = now_ms
        self._seen = synced
        rests = now_ms - self._seen_ms >= RESTS_MS and self._wal.idle
        due = rests or now_ms - self._marked_ms >= MARK_EVERY_MS
        if due and synced != self._marked and not self.busy:
            self.busy = True
            self._marked_ms = now_ms
            salt = self._wal.salts.get(synced[0], 0)
            self._background_writer.run(
                lambda: self._marks.write(*synced, salt),
                lambda _: self._done(synced),
                lambda error: self._done(None),
            )

    def _done(self, marked: tuple[int, int] | None) -> None:
        self.busy = False
        if marked is not None:
            self._marked = marked

    def close(self) -> None:
        """Record where the log ends, if the disk permits; WAL and writer are closed."""
        file, end = self._wal.on_disk
        try:
            if file:
                self._marks.write(file, end, self._wal.salts.get(file, 0))
        except OSError as error:
            log.warning("the end of the log could not be recorded: %s", error)
        self._marks.close()
