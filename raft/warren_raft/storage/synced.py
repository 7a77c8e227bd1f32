"""How far the log is known to be on the disk, in a file of its own.

`wal/synced`, little-endian, overwritten in place (it lies in one sector):

| at | what |
| --- | --- |
| 0 | magic `WARRNSYN`, u32 version = 1, u32 0 |
| 16 | u64 number of a file of the log, u64 bytes of it that are on disk |
| 32 | u32 crc32 of bytes 0..31, u32 0 |

A torn end of the log is cut at a start, for nobody was told of it; damage to what was synced must
not be. What stands before a later batch was synced, but of the last one the log itself does not
tell: 1. A follower acknowledges entry 7, and the log rests.  2. A bit of it rots.  3. The node
starts again, takes that for a torn end, and votes for somebody who lacks 7.  So when the log rests,
it is written down where it ends. A file that is missing or damaged says nothing: it takes two
faults to do harm.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from warren_raft.storage.files import Files
from warren_raft.storage.janitor import Janitor
from warren_raft.storage.wal import Wal

log = logging.getLogger("warren.raft")

NAME = "synced"
VERSION = 1
MAGIC = b"WARRNSYN"
_BODY = struct.Struct("<8sIIQQ")
_CRC = struct.Struct("<II")


class Synced(NamedTuple):
    """File `file` of the log is on disk up to byte `end`; 0, 0: nothing is known."""

    file: int = 0
    end: int = 0


def encode(synced: Synced) -> bytes:
    """The file's bytes."""
    body = _BODY.pack(MAGIC, VERSION, 0, synced.file, synced.end)
    return body + _CRC.pack(crc32(body), 0)


def read(files: Files, directory: Path) -> Synced:
    """What the file in that folder says; Synced() when there is none, or none that is whole."""
    path = directory / NAME
    if not files.exists(path):
        return Synced()
    data = files.read(path)
    if len(data) != _BODY.size + _CRC.size:
        return Synced()
    magic, version, _, file, end = _BODY.unpack_from(data)
    whole = _CRC.unpack_from(data, _BODY.size) == (crc32(data[: _BODY.size]), 0)
    return Synced(file, end) if whole and (magic, version) == (MAGIC, VERSION) else Synced()


class Marker:
    """Keeps that file, on the janitor's thread: at most one write and one sync after each burst.

    A disk without space for it is no reason to stop: it is tried again at the next look.

    busy  it is being written
    """

    def __init__(self, files: Files, directory: Path, wal: Wal, janitor: Janitor) -> None:
        self._files = files
        self._path = directory / NAME
        self._wal = wal
        self._janitor = janitor
        self._fd = -1
        self._seen = self._marked = wal.on_disk
        self.busy = False

    def beat(self) -> None:
        """A heartbeat interval has passed: if nothing was written in it, write down where."""
        synced = self._wal.on_disk
        rests = synced == self._seen and self._wal.idle
        self._seen = synced
        if rests and synced != self._marked and not self.busy:
            self.busy = True
            self._janitor.run(
                lambda: self._write(synced),
                lambda _: self._done(synced),
                lambda error: self._done(None),
            )

    def _done(self, marked: tuple[int, int] | None) -> None:
        self.busy = False
        if marked is not None:
            self._marked = marked

    def _write(self, synced: tuple[int, int]) -> None:
        data = encode(Synced(*synced))
        if self._fd < 0:
            self._fd = self._files.create(self._path, data)
            return
        self._files.write_at(self._fd, 0, [data])
        self._files.sync_data(self._fd)

    def close(self) -> None:
        """Log and janitor are closed: write down where it ends, if the disk still takes it."""
        try:
            if self._wal.on_disk != self._marked:
                self._write(self._wal.on_disk)
        except OSError as error:
            log.warning("where the log ends could not be written down: %s", error)
        if self._fd >= 0:
            self._files.close(self._fd)
