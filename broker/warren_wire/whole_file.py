"""Files of the user that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

FRESH_PREFIX: Final = ".warren-"
MODE_BITS: Final = 0o7777


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Write a file; one that was there stays as it is until the new one is complete.

    1. A file keeps the export of yesterday.  2. It is opened for today's, which empties it.  3. The
    disk is full. Neither is there then. So a new file beside it gets the data, is synced, and takes
    its name, which no reader sees half done. What is no file, as a pipe, is written to as it is.

    mode  permissions of a file that was not there, less the umask; another one keeps its own, and
          its owner where that is allowed
    sync  False: it may be lost with the machine, but not with the process or on a full disk
    raises  OSError: the earlier file is as it was
    """
    place = Path(os.path.realpath(path))  # a link stays one
    before = place.stat() if place.exists() else None
    if before is not None and not place.is_file():
        place.write_bytes(data)
        return
    fresh = place.with_name(f"{FRESH_PREFIX}{secrets.token_hex(8)}")
    number = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(number, "wb") as out:
            out.write(data)
            out.flush()
            if before is not None:
                with suppress(OSError):
                    os.fchown(number, before.st_uid, before.st_gid)
                os.fchmod(number, before.st_mode & MODE_BITS)
            if sync:
                os.fsync(number)
        fresh.replace(place)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    if sync:
        _sync(place.parent)


def _sync(folder: Path) -> None:
    """Have the new name last; it is there also where the file system cannot promise that."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
