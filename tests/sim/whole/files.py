"""A node's disk in memory: the real `Files` on system calls that lose, tear or refuse writes.

`MemoryFiles` is `Files` with two things replaced: what it calls to change something (`Kernel`), and
how it reads. So the order in which files are written, synced and renamed is the product's own.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from os.path import split
from pathlib import Path
from random import Random

from warren_raft.storage.files import Files


class File:
    """A file: content is what a reader sees; pending are its unsynced changes.

    pending  (offset, data); None for data: the file was cut there
    """

    __slots__ = ("content", "pending", "safe")

    def __init__(self, data: bytes = b"") -> None:
        self.safe = bytearray(data)
        self.content = bytearray(data)
        self.pending: list[tuple[int, bytes | None]] = []


class Folder(File):
    """A directory: only its name matters here."""

    __slots__ = ()


Names = dict[str, File]


class Change:
    """Changes of one directory's names that take effect together: a rename is atomic there.

    names  (name, new file); None for the file: the name is removed
    after  is on the disk before this one is; None: it depends on nothing
    """

    __slots__ = ("after", "directory", "names")

    def __init__(
        self, directory: str, *names: tuple[str, File | None], after: Change | None = None
    ) -> None:
        self.directory = directory
        self.names = names
        self.after = after

    def make(self, directories: dict[str, Names]) -> None:
        """Make it there."""
        for name, file in self.names:
            if file is None:
                directories.get(self.directory, {}).pop(name, None)
            else:
                directories.setdefault(self.directory, {})[name] = file
                if isinstance(file, Folder):
                    directories.setdefault(f"{self.directory.rstrip('/')}/{name}", {})


def _write(into: bytearray, offset: int, data: bytes | bytearray | None) -> None:
    if data is None:
        del into[offset:]
        return
    if len(into) < offset:
        into.extend(bytes(offset - len(into)))
    into[offset : offset + len(data)] = data


class Kernel:
    """The system calls that change files, under the names that `os` has for them.

    Bytes are durable once their file was synced, names once their directory was: each without the
    other, and in any order. A rename within a directory is atomic; of one to another directory the
    new name may be durable without the removal of the old one. Unsynced changes may reach the disk
    all the same.

    directories   path -> name -> file, as a reader sees it; durable: as the disk has it
    changes       of names, not synced, in their order
    former        path -> what the file of that name held before it was replaced
    steps_left    the power fails after that many changes; None: no failure is scheduled
    full          nothing can be made longer (`ENOSPC`)
    syncs_to_fail that many of the next syncs fail (`EIO`), and their writes are lost
    refused       how often either happened
    on_names      called after each change of names, and after each sync of some: whether a file
                  with unsynced bytes has got another name
    """

    def __init__(self, rng: Random, sector: int = 512) -> None:
        self.rng = rng
        self.sector = sector
        self.directories: dict[str, Names] = {}
        self.durable: dict[str, Names] = {}
        self.changes: list[Change] = []
        self.former: dict[str, bytes] = {}
        self.descriptors: dict[int, tuple[str, File]] = {}
        self.next_descriptor = 1_000
        self.steps_left: int | None = None
        self.full = False
        self.syncs_to_fail = 0
        self.refused = 0
        self.on_names: Callable[[bool], None] = lambda unsynced: None

    # ------------------------------------------------------------ names

    def find(self, path: Path | str) -> File:
        """Return the file of that name."""
        directory, name = split(str(path))
        try:
            return self.directories[directory][name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None

    def step(self) -> None:
        """Count a change; raises OSError when the power has failed."""
        if self.steps_left is not None:
            if not self.steps_left:
                raise OSError("the power is gone")
            self.steps_left -= 1

    def _change(self, *changes: Change) -> None:
        for change in changes:
            self.changes.append(change)
            change.make(self.directories)
        renamed = [file for change in changes for _, file in change.names if file is not None]
        self.on_names(any(file.pending for file in renamed))

    def mkdir(self, path: Path, mode: int) -> None:
        """See os."""
        self.step()
        directory, name = split(str(path))
        self._change(Change(directory, (name, Folder())))

    def open(self, path: Path, flags: int, mode: int = 0) -> int:
        """See os."""
        if flags & os.O_DIRECTORY:
            file: File = Folder()
        elif not flags & os.O_CREAT:
            file = self.find(path)
        else:
            self.step()
            self.refuse_when_full(path)
            directory, name = split(str(path))
            found = self.directories[directory].get(name)
            if found is None:
                file = File()
                self._change(Change(directory, (name, file)))
            else:
                file = found
                if flags & os.O_TRUNC and file.content:
                    self._alter(file, 0, None)
        return self.describe(path, file)

    def describe(self, path: Path, file: File) -> int:
        """A descriptor."""
        self.next_descriptor += 1
        self.descriptors[self.next_descriptor] = (str(path), file)
        return self.next_descriptor

    def close(self, fd: int) -> None:
        """See os."""
        self.descriptors.pop(fd, None)

    def rename(self, old: Path, new: Path) -> None:
        """See os."""
        self.step()
        (directory, name), target = split(str(old)), split(str(new))
        file = self.find(old)
        replaced = self.directories.get(target[0], {}).get(target[1])
        if replaced is not None:
            self.former[str(new)] = bytes(replaced.safe)
        if target[0] == directory:
            self._change(Change(directory, (name, None), (target[1], file)))
            return
        appears = Change(target[0], (target[1], file))
        self._change(appears, Change(directory, (name, None), after=appears))

    def unlink(self, path: Path) -> None:
        """See os."""
        self.step()
        self.find(path)
        directory, name = split(str(path))
        self._change(Change(directory, (name, None)))

    # ------------------------------------------------------------ bytes

    def _alter(self, file: File, offset: int, data: bytes | None) -> None:
        _write(file.content, offset, data)
        file.pending.append((offset, data))

    def refuse_when_full(self, path: Path | str) -> None:
        """Raise ENOSPC on a full disk."""
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "no space left on device", str(path))

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        """See os."""
        self.step()
        path, file = self.descriptors[fd]
        data = b"".join(buffers)
        if self.full and offset + len(data) > len(file.content):
            data = data[: self.rng.randrange(len(data)) if self.rng.random() < 0.5 else 0]
            if not data:
                self.refuse_when_full(path)
        self._alter(file, offset, data)
        return len(data)

    def ftruncate(self, fd: int, length: int) -> None:
        """See os."""
        self.step()
        _, file = self.descriptors[fd]
        if length > len(file.content):
            self.refuse_when_full(self.descriptors[fd][0])
            self._alter(file, len(file.content), bytes(length - len(file.content)))
        else:
            self._alter(file, length, None)

    def fdatasync(self, fd: int) -> None:
        """See os; of a directory: its names."""
        self.step()
        path, file = self.descriptors[fd]
        if isinstance(file, Folder):
            self._sync_names(path)
            return
        if self.syncs_to_fail and file.pending:
            # As in Linux: the pages are marked clean, whether they were written or not.
            self.syncs_to_fail -= 1
            self.refused += 1
            file.pending.clear()
            raise OSError(errno.EIO, "input/output error", path)
        for offset, data in file.pending:
            _write(file.safe, offset, data)
        file.pending.clear()

    fsync = fdatasync

    def _sync_names(self, path: str) -> None:
        self._keep([change for change in self.changes if change.directory == path])
        self.on_names(False)

    def _keep(self, changes: Sequence[Change]) -> None:
        """Make those changes on the disk, and what they follow."""
        made = {id(change) for change in changes}
        made |= {id(change.after) for change in changes}
        for change in self.changes:
            if id(change) in made:
                change.make(self.durable)
        self.changes = [change for change in self.changes if id(change) not in made]

    # ------------------------------------------------------------ ends

    def lose_what_was_not_synced(self) -> None:
        """Fail the power: any mixture of the unsynced changes is on the disk."""
        rng = self.rng
        self.descriptors.clear()
        whole = rng.random() < 0.5  # as with a journal: up to some moment
        kept, end = rng.choice((0.0, 0.5, 1.0)), rng.randrange(len(self.changes) + 1)
        self._keep(
            [
                change
                for at, change in enumerate(self.changes)
                if (at < end if whole else rng.random() < kept)
            ]
        )
        self.changes.clear()
        for directory in self.directories.values():
            for file in directory.values():
                if file.pending:
                    self._tear(file)
        self._begin_again()

    def _begin_again(self) -> None:
        self.directories = {
            path: dict(names)
            for path, names in sorted(self.durable.items())
            if path == "/" or self._stands(path)
        }
        for path in [path for path in self.durable if path not in self.directories]:
            del self.durable[path]
        for directory in self.directories.values():
            for file in directory.values():
                if file.pending:
                    self._tear(file)  # its name was removed, and is there again
                file.content = bytearray(file.safe)

    def _stands(self, path: str) -> bool:
        above, name = split(path)
        return name in self.durable.get(above, ()) and (above == "/" or self._stands(above))

    def _tear(self, file: File) -> None:
        kept = self.rng.choice((0.0, 0.5, 0.9, 1.0))
        sector = self.sector
        for offset, data in file.pending:
            if data is None:
                if self.rng.random() < kept:
                    _write(file.safe, offset, None)
                continue
            at = 0
            while at < len(data):
                end = min(len(data), (offset + at) // sector * sector + sector - offset)
                if self.rng.random() < kept:
                    _write(file.safe, offset + at, data[at:end])
                at = end
        file.pending.clear()

    def put(self, path: str, data: bytes | None) -> None:
        """Durably set a file's content; None: remove it."""
        directory, name = split(path)
        for directories in (self.directories, self.durable):
            if data is None:
                directories[directory].pop(name, None)
        if data is not None:
            file = File(data)
            for directories in (self.directories, self.durable):
                directories.setdefault(directory, {})[name] = file


class MemoryFiles(Files):
    """One node's disk; see `Kernel` for its fields."""

    def __init__(self, rng: Random, sector: int = 512) -> None:
        self.rng = rng
        self.sector = sector
        self.system = self.kernel = Kernel(rng, sector)
        self.locked: dict[str, int] = {}

    def crash(self) -> None:
        """Stop the machine: any mixture of the unsynced sectors is on the disk."""
        self.locked.clear()
        self.kernel.lose_what_was_not_synced()

    def kill(self) -> None:
        """End the process only: unsynced changes may still reach the disk."""
        self.kernel.descriptors.clear()
        self.locked.clear()

    def lose(self) -> None:
        """Replace the disk by an empty one."""
        kernel = Kernel(self.rng, self.sector)
        kernel.full, kernel.syncs_to_fail = self.kernel.full, self.kernel.syncs_to_fail
        kernel.refused, kernel.on_names = self.kernel.refused, self.kernel.on_names
        self.system = self.kernel = kernel
        self.locked.clear()

    def as_after_power_loss(self, names: bool = False, data: bool = False) -> MemoryFiles:
        """Return a disk with only what is synced on this one.

        names  all changes of names have reached the disk as well; data: all bytes have
        """
        other = MemoryFiles(self.rng, self.sector)
        for path, found in (self.kernel.directories if names else self.kernel.durable).items():
            other.kernel.directories[path] = {
                name: file
                if isinstance(file, Folder)
                else File(bytes(file.content if data else file.safe))
                for name, file in found.items()
            }
            other.kernel.durable[path] = dict(other.kernel.directories[path])
        return other

    # ------------------------------------------------------------ faults of the medium

    def paths(self) -> list[str]:
        """Return every file, in a fixed order."""
        return [
            f"{directory}/{name}"
            for directory, names in sorted(self.kernel.directories.items())
            for name in sorted(names)
            if not isinstance(names[name], Folder)
        ]

    def rot(self, path: str, offset: int, bits: int = 1) -> None:
        """Flip bits of a synced byte."""
        file = self.kernel.find(path)
        for bytes_ in (file.safe, file.content):
            if offset < len(bytes_):
                bytes_[offset] ^= bits

    def misdirect(self, path: str, offset: int, data: bytes) -> None:
        """Write data that was meant for another place."""
        file = self.kernel.find(path)
        for bytes_ in (file.safe, file.content):
            end = min(len(bytes_), offset + len(data))
            bytes_[offset:end] = data[: max(0, end - offset)]

    def safe_bytes(self, path: str) -> bytes:
        """Return the synced content."""
        return bytes(self.kernel.find(path).safe)

    def restore(self, copy: MemoryFiles) -> None:
        """Restore that copy, which stays unchanged; no process may run."""
        kernel, copied = self.kernel, copy.as_after_power_loss().kernel
        kernel.directories, kernel.durable = copied.directories, copied.durable
        kernel.changes.clear()
        kernel.descriptors.clear()

    def image(self) -> dict[str, bytes]:
        """Return a copy of everything synced: path -> content."""
        return {
            f"{directory}/{name}": bytes(file.safe)
            for directory, names in sorted(self.kernel.durable.items())
            for name, file in sorted(names.items())
            if not isinstance(file, Folder)
        }

    # ------------------------------------------------------------ how it reads: see Files

    def is_directory(self, path: Path) -> bool:
        return str(path) == "/" or str(path) in self.kernel.directories

    def exists(self, path: Path) -> bool:
        directory, name = split(str(path))
        return name in self.kernel.directories.get(directory, ())

    def names(self, directory: Path) -> list[str]:
        if str(directory) not in self.kernel.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(directory))
        return sorted(self.kernel.directories[str(directory)])

    def size(self, path: Path) -> int:
        return len(self.kernel.find(path).content)

    def free_bytes(self, directory: Path) -> int:
        return 1 << 40

    def links(self, path: Path) -> int:
        return 1

    def read(self, path: Path) -> bytes:
        return bytes(self.kernel.find(path).content)

    def read_at(self, fd: int, offset: int, length: int) -> bytes:
        return bytes(self.kernel.descriptors[fd][1].content[offset : offset + length])

    def drop_cached(self, fd: int, offset: int, length: int) -> None:
        """Keep unsynced writes; drop those of a failed sync."""
        file = self.kernel.descriptors[fd][1]
        file.content = bytearray(file.safe)
        for at, data in file.pending:
            _write(file.content, at, data)

    def lock(self, path: Path) -> int | None:
        if str(path) in self.locked:
            return None
        descriptor = self.locked[str(path)] = self.kernel.describe(path, File())
        return descriptor

    def close(self, fd: int) -> None:
        for path, held in list(self.locked.items()):
            if held == fd:
                del self.locked[path]
        self.kernel.close(fd)
