"""A file system in memory that forgets, or tears, what was not synced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from warren_raft.storage.files import Files


class _File:
    """content is what a reader sees; pending are the writes of it that are not synced."""

    __slots__ = ("content", "pending", "safe")

    def __init__(self, data: bytes) -> None:
        self.safe = bytearray(data)
        self.content = bytearray(data)
        self.pending: list[tuple[int, bytes]] = []


def _write(into: bytearray, offset: int, data: bytes) -> None:
    if len(into) < offset:
        into.extend(bytes(offset - len(into)))
    into[offset : offset + len(data)] = data


class MemoryFiles(Files):
    """One node's disk. Names are durable at once; bytes when `sync_data` has returned."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.directories: dict[str, bool] = {}
        self.files: dict[str, _File] = {}
        self.descriptors: dict[int, str] = {}
        self.locked: dict[str, int] = {}
        self.next_descriptor = 1_000
        self.steps_left: int | None = None

    def step(self) -> None:
        """Something is about to be changed; raises OSError when the power is gone by then."""
        if self.steps_left is not None:
            if not self.steps_left:
                raise OSError("the power is gone")
            self.steps_left -= 1

    def crash(self) -> None:
        """The machine stops: of every write under way any part may be on the disk, or none."""
        self.descriptors.clear()
        self.locked.clear()
        for file in self.files.values():
            for offset, data in file.pending:
                kept = data[: self.rng.choice((0, len(data), self.rng.randrange(len(data) + 1)))]
                _write(file.safe, offset, kept)
            file.pending.clear()
            file.content = bytearray(file.safe)

    def as_after_power_loss(self) -> MemoryFiles:
        """Another disk with what is surely on this one now."""
        other = MemoryFiles(self.rng)
        other.directories = dict(self.directories)
        other.files = {name: _File(bytes(file.safe)) for name, file in self.files.items()}
        return other

    def make_directory(self, path: Path) -> None:
        self.directories[str(path)] = True

    def exists(self, path: Path) -> bool:
        return str(path) in self.files or str(path) in self.directories

    def names(self, directory: Path) -> list[str]:
        return sorted(Path(name).name for name in self.files if Path(name).parent == directory)

    def _open(self, path: Path) -> int:
        self.next_descriptor += 1
        self.descriptors[self.next_descriptor] = str(path)
        return self.next_descriptor

    def lock(self, path: Path) -> int | None:
        if str(path) in self.locked:
            return None
        self.locked[str(path)] = self.next_descriptor + 1
        return self._open(path)

    def read(self, path: Path) -> bytes:
        return bytes(self.files[str(path)].content)

    def create(self, path: Path, data: bytes) -> int:
        self.step()
        self.files[str(path)] = _File(data)
        return self._open(path)

    def write_whole(self, path: Path, data: bytes) -> None:
        self.close(self.create(path, data))

    def size(self, path: Path) -> int:
        return len(self.files[str(path)].content)

    def open_write(self, path: Path) -> int:
        self.step()
        self.files[str(path)] = _File(b"")
        return self._open(path)

    def rename(self, old: Path, new: Path) -> None:
        self.step()
        self.files[str(new)] = self.files.pop(str(old))

    def open_read(self, path: Path) -> int:
        assert str(path) in self.files, path
        return self._open(path)

    def write_at(self, fd: int, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        self.step()
        file = self.files[self.descriptors[fd]]
        data = b"".join(buffers)
        _write(file.content, offset, data)
        file.pending.append((offset, data))

    def sync_data(self, fd: int) -> None:
        self.step()
        file = self.files[self.descriptors[fd]]
        for offset, data in file.pending:
            _write(file.safe, offset, data)
        file.pending.clear()

    def read_at(self, fd: int, offset: int, length: int) -> bytes:
        return bytes(self.files[self.descriptors[fd]].content[offset : offset + length])

    def cut(self, path: Path, length: int) -> None:
        file = self.files[str(path)]
        assert not file.pending
        del file.content[length:]
        del file.safe[length:]

    def remove(self, path: Path) -> None:
        self.step()
        del self.files[str(path)]

    def close(self, fd: int) -> None:
        path = self.descriptors.pop(fd, None)
        if path is not None and self.locked.get(path) == fd:
            del self.locked[path]

    def sync_directory(self, path: Path) -> None:
        """Names are durable at once."""
