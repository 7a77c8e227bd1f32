"""The only module that opens, writes, syncs, renames or removes a file."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

IOV_MAX = 1024
"""Buffers in one writev or sendmsg; the kernel's limit."""
WRITE_JOIN_BYTES_MAX = 256 << 10
WRITE_JOIN_MEAN_MAX = 1024
"""Buffers of so many bytes together, and of that mean size, are joined for a write.

The system takes longer to gather small buffers than it takes to copy them; with large ones it is
the other way round.
"""
FULL = (errno.ENOSPC, errno.EDQUOT)
BAD_MEDIUM = (errno.EIO, errno.ENODATA, errno.EUCLEAN, errno.EBADMSG)
"""A read fails with these where the disk cannot read a sector, or the file system is damaged."""


class SyncFailed(OSError):
    """A failed sync: it is unknown what was written, whatever the reason.

    1. A sync fails.  2. The kernel marks those pages clean.  3. The next sync succeeds at once.
    So a sync is never repeated, not even after ENOSPC.
    """


def is_full(error: OSError) -> bool:
    """Return whether a write found no space, not a sync: the write may be repeated."""
    return error.errno in FULL and not isinstance(error, SyncFailed)


def is_bad_medium(error: OSError) -> bool:
    """Return whether a read failed because of what is on the disk: the file is damaged there."""
    return error.errno in BAD_MEDIUM


@contextmanager
def _syncing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _sync_failed(error, path) from error


def _sync_failed(error: OSError, path: Path | None = None) -> SyncFailed:
    where = () if path is None else (str(path),)
    return SyncFailed(error.errno, f"sync: {error.strerror}", *where)


class Files:
    """The file system; tests replace it by one that fails, tears writes and loses unsynced ones.

    system  makes every change: the system calls that `os` has under the same names
    """

    system: Any = os

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents if they do not exist, durably."""
        if self.is_directory(path):
            return
        self.make_directory(path.parent)
        self.system.mkdir(path, 0o700)
        self.sync_directory(path.parent)

    def is_directory(self, path: Path) -> bool:
        """Return whether a directory has that name."""
        return path.is_dir()

    def exists(self, path: Path) -> bool:
        """Return whether anything has that name."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Return the file's length in bytes."""
        return path.stat().st_size

    def links(self, path: Path) -> int:
        """Return how many names the file has."""
        return path.stat().st_nlink

    def free_bytes(self, directory: Path) -> int:
        """Return the bytes that a process without privileges may add to the file system there."""
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(directory))

    def lock(self, path: Path) -> int | None:
        """Lock a file until the returned descriptor is closed; None: it is locked already."""
        fd: int = self.system.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.system.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        return fd

    def read(self, path: Path) -> bytes:
        """Read a whole file."""
        try:
            return path.read_bytes()
        except OSError as error:
            error.filename = str(path)  # a read, unlike an open, does not name it
            raise

    def write_whole(self, path: Path, data: bytes) -> None:
        """Write a file atomically: after a crash it has the old content (or none) or the new."""
        self.system.close(self.create(path, data))

    def create(self, path: Path, data: bytes) -> int:
        """Do as `write_whole`; return a descriptor for reading and writing."""
        fresh = path.with_name(path.name + ".new")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd: int = self.system.open(fresh, flags, 0o600)
        try:
            self.write_at(fd, 0, [data])
            with _syncing(fresh):
                self.system.fsync(fd)
            self.system.rename(fresh, path)
            self.sync_directory(path.parent)
        except BaseException as error:
            self.system.close(fd)
            if isinstance(error, OSError) and is_full(error):
                self._discard(fresh)  # its space is needed
            raise
        return fd

    def _discard(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self.system.unlink(path)

    def reuse(self, old: Path, path: Path, data: bytes) -> int:
        """Give a file another name and another beginning; return a descriptor as `create` does.

        After a crash it has its old name, or the new name and the new beginning. Without space for
        that (where what is overwritten is copied, or for the name) it is removed, as by `create`.
        """
        fd: int = self.system.open(old, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.write_at(fd, 0, [data])
            with _syncing(old):
                self.system.fsync(fd)
            self.rename(old, path)
        except BaseException as error:
            self.system.close(fd)
            if isinstance(error, OSError) and is_full(error):
                self._discard(old)
            raise
        return fd

    def open_write(self, path: Path) -> int:
        """Return a descriptor for `write_at` on a new, empty file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd: int = self.system.open(path, flags, 0o600)
        return fd

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file within its directory, durably."""
        self.system.rename(old, new)
        self.sync_directory(new.parent)

    def move(self, old: Path, new: Path) -> None:
        """Move a file to another directory of the same file system, durably."""
        self.system.rename(old, new)
        self.sync_directory(new.parent)
        self.sync_directory(old.parent)

    def open_read(self, path: Path) -> int:
        """Return a descriptor for `read_at`."""
        fd: int = self.system.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return fd

    def write_at(self, fd: int, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Write the buffers one after the other, from `offset` on."""
        size = sum(map(len, buffers))
        if size <= min(WRITE_JOIN_BYTES_MAX, WRITE_JOIN_MEAN_MAX * len(buffers)):
            buffers = [b"".join(buffers)]
        for start in range(0, len(buffers), IOV_MAX):
            part = list(buffers[start : start + IOV_MAX])
            while part:
                written = self.system.pwritev(fd, part, offset)
                offset += written
                while part and written >= len(part[0]):
                    written -= len(part.pop(0))
                if written:
                    part[0] = memoryview(part[0])[written:]

    def sync_data(self, fd: int) -> None:
        """Sync what was written to the disk."""
        try:  # as `_syncing`, but a context manager costs as much as the rest of a small write
            self.system.fdatasync(fd)
        except OSError as error:
            raise _sync_failed(error) from error

    def read_at(self, fd: int, offset: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer at the end of the file."""
        data = os.pread(fd, length, offset)
        while 0 < len(data) < length:
            more = os.pread(fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def drop_cached(self, fd: int, offset: int, length: int) -> None:
        """Drop these bytes from the page cache, so that they are read from the disk."""
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    def cut(self, path: Path, length: int) -> None:
        """Truncate a file to `length`, durably."""
        fd = self.system.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.system.ftruncate(fd, length)
            with _syncing(path):
                self.system.fsync(fd)
        finally:
            self.system.close(fd)

    def remove(self, path: Path) -> None:
        """Remove a file, durably."""
        self.system.unlink(path)
        self.sync_directory(path.parent)

    def close(self, fd: int) -> None:
        """Close a descriptor; releases a lock held by it."""
        self.system.close(fd)

    def sync_directory(self, path: Path) -> None:
        """Sync a directory: names made and removed in it are on disk."""
        fd = self.system.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _syncing(path):
                self.system.fsync(fd)
        finally:
            self.system.close(fd)
