"""A file system in memory that forgets, tears, rots or refuses what was not synced."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from os.path import split
from pathlib import Path
from random import Random

from warren_raft.storage.files import Files


class _File:
    """content is what a reader sees; pending are the writes of it that are not synced.

    named  its name is durable; one that was only opened for writing may be gone after a crash
    """

    __slots__ = ("content", "named", "pending", "safe")

    def __init__(self, data: bytes, named: bool = True) -> None:
        self.safe = bytearray(data)
        self.content = bytearray(data)
        self.pending: list[tuple[int, bytes]] = []
        self.named = named


def _write(into: bytearray, offset: int, data: bytes | bytearray) -> None:
    if len(into) < offset:
        into.extend(bytes(offset - len(into)))
    into[offset : offset + len(data)] = data


class MemoryFiles(Files):
    """One node's disk. Names are durable at once; bytes when `sync_data` has returned.

    sector        bytes that are written whole or not at all
    steps_left    so many changes more, and the power is gone; None: there is power
    full          nothing can be made longer (`ENOSPC`)
    syncs_to_fail so many of the next syncs fail (`EIO`), and what they were for is lost
    refused       how often either happened
    """

    def __init__(self, rng: Random, sector: int = 512) -> None:
        self.rng = rng
        self.sector = sector
        self.directories: dict[str, dict[str, _File]] = {}
        self.descriptors: dict[int, tuple[str, _File]] = {}
        self.locked: dict[str, int] = {}
        self.next_descriptor = 1_000
        self.steps_left: int | None = None
        self.full = False
        self.syncs_to_fail = 0
        self.refused = 0

    def step(self) -> None:
        """Something is about to be changed; raises OSError when the power is gone by then."""
        if self.steps_left is not None:
            if not self.steps_left:
                raise OSError("the power is gone")
            self.steps_left -= 1

    def crash(self) -> None:
        """The machine stops: of what was not synced, any mixture of sectors is on the disk."""
        self.descriptors.clear()
        self.locked.clear()
        for directory in self.directories.values():
            for name, file in list(directory.items()):
                if not file.named and self.rng.random() < 0.5:
                    del directory[name]
                else:
                    if file.pending:
                        self._tear(file)
                    file.content = bytearray(file.safe)
                    file.named = True

    def kill(self) -> None:
        """The process ends, and the system goes on: what was not synced may reach the disk yet."""
        self.descriptors.clear()
        self.locked.clear()

    def _tear(self, file: _File) -> None:
        kept = self.rng.choice((0.0, 0.5, 0.9, 1.0))
        sector = self.sector
        for offset, data in file.pending:
            at = 0
            while at < len(data):
                end = min(len(data), (offset + at) // sector * sector + sector - offset)
                if self.rng.random() < kept:
                    _write(file.safe, offset + at, data[at:end])
                at = end
        file.pending.clear()

    def lose(self) -> None:
        """Another, empty disk stands in its place."""
        self.descriptors.clear()
        self.locked.clear()
        self.directories.clear()

    def as_after_power_loss(self) -> MemoryFiles:
        """Another disk with what is surely on this one now."""
        other = MemoryFiles(self.rng, self.sector)
        other.directories = {
            path: {name: _File(bytes(file.safe)) for name, file in files.items() if file.named}
            for path, files in self.directories.items()
        }
        return other

    # ------------------------------------------------------------ faults of the medium

    def paths(self) -> list[str]:
        """Every file, in a fixed order."""
        return [
            f"{directory}/{name}"
            for directory, files in sorted(self.directories.items())
            for name in sorted(files)
        ]

    def rot(self, path: str, offset: int, bits: int = 1) -> None:
        """Bits of a byte that was synced long ago are others now."""
        file = self._find(path)
        for bytes_ in (file.safe, file.content):
            if offset < len(bytes_):
                bytes_[offset] ^= bits

    def misdirect(self, path: str, offset: int, data: bytes) -> None:
        """A write that was meant for another place arrives here."""
        file = self._find(path)
        for bytes_ in (file.safe, file.content):
            end = min(len(bytes_), offset + len(data))
            bytes_[offset:end] = data[: max(0, end - offset)]

    def safe_bytes(self, path: str) -> bytes:
        """What is on the medium."""
        return bytes(self._find(path).safe)

    def _find(self, path: Path | str) -> _File:
        directory, name = split(str(path))
        try:
            return self.directories[directory][name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None

    # ------------------------------------------------------------ see Files

    def make_directory(self, path: Path) -> None:
        self.directories.setdefault(str(path), {})

    def exists(self, path: Path) -> bool:
        directory, name = split(str(path))
        return name in self.directories.get(directory, ()) or str(path) in self.directories

    def names(self, directory: Path) -> list[str]:
        return sorted(self.directories[str(directory)])

    def _put(self, path: Path, file: _File) -> None:
        directory, name = split(str(path))
        self.directories.setdefault(directory, {})[name] = file

    def _open(self, path: Path, file: _File) -> int:
        self.next_descriptor += 1
        self.descriptors[self.next_descriptor] = (str(path), file)
        return self.next_descriptor

    def lock(self, path: Path) -> int | None:
        if str(path) in self.locked:
            return None
        descriptor = self._open(path, _File(b""))
        self.locked[str(path)] = descriptor
        return descriptor

    def read(self, path: Path) -> bytes:
        return bytes(self._find(path).content)

    def create(self, path: Path, data: bytes) -> int:
        self.step()
        self._refuse_when_full(path)
        file = _File(data)
        self._put(path, file)
        return self._open(path, file)

    def write_whole(self, path: Path, data: bytes) -> None:
        self.close(self.create(path, data))

    def size(self, path: Path) -> int:
        return len(self._find(path).content)

    def open_write(self, path: Path) -> int:
        self.step()
        self._refuse_when_full(path)
        file = _File(b"", named=False)
        self._put(path, file)
        return self._open(path, file)

    def rename(self, old: Path, new: Path) -> None:
        self.step()
        directory, name = split(str(old))
        file = self.directories[directory].pop(name)
        file.named = True
        self._put(new, file)

    def move(self, old: Path, new: Path) -> None:
        self.rename(old, new)

    def open_read(self, path: Path) -> int:
        return self._open(path, self._find(path))

    def write_at(self, fd: int, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        self.step()
        path, file = self.descriptors[fd]
        data = b"".join(buffers)
        if self.full and offset + len(data) > len(file.content):
            fits = self.rng.randrange(len(data) + 1) if self.rng.random() < 0.5 else 0
            if fits:
                _write(file.content, offset, data[:fits])
                file.pending.append((offset, data[:fits]))
            self._refuse_when_full(Path(path))
        _write(file.content, offset, data)
        file.pending.append((offset, data))

    def _refuse_when_full(self, path: Path) -> None:
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "no space left on device", str(path))

    def sync_data(self, fd: int) -> None:
        self.step()
        path, file = self.descriptors[fd]
        if self.syncs_to_fail and file.pending:
            # As Linux does: the pages count as clean from here on, whatever became of them.
            self.syncs_to_fail -= 1
            self.refused += 1
            file.pending.clear()
            raise OSError(errno.EIO, "input/output error", path)
        for offset, data in file.pending:
            _write(file.safe, offset, data)
        file.pending.clear()

    def read_at(self, fd: int, offset: int, length: int) -> bytes:
        return bytes(self.descriptors[fd][1].content[offset : offset + length])

    def drop_cached(self, fd: int, offset: int, length: int) -> None:
        """What was not synced stays; what a failed sync was for is gone."""
        file = self.descriptors[fd][1]
        file.content = bytearray(file.safe)
        for at, data in file.pending:
            _write(file.content, at, data)

    def cut(self, path: Path, length: int) -> None:
        file = self._find(path)
        for offset, data in file.pending:
            _write(file.safe, offset, data)
        file.pending.clear()
        del file.content[length:]
        del file.safe[length:]

    def remove(self, path: Path) -> None:
        self.step()
        directory, name = split(str(path))
        self._find(path)
        del self.directories[directory][name]

    def close(self, fd: int) -> None:
        path, _ = self.descriptors.pop(fd, (None, None))
        if path is not None and self.locked.get(path) == fd:
            del self.locked[path]

    def sync_directory(self, path: Path) -> None:
        """Names are durable at once."""
