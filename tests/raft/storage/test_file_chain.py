"""The rules by which a log knows that all its files are there, one by one and without a disk."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warren_raft.runtime.config import HEARTBEAT_MS
from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.file_chain import Chain, verify
from warren_raft.storage.format import Head, Link
from warren_raft.storage.synced_mark import (
    MARK_EVERY_MS,
    SyncedMark,
    SyncedMarkFiles,
    SyncedMarkWriter,
    decode,
    encode,
    read_both,
)

DISK = 0xD15C


def directory(logged: bool = True) -> Any:
    """As much of a data directory as the rules look at."""
    path = Path("/data")
    identity = SimpleNamespace(disk=f"{DISK:016x}", logged=logged)
    return SimpleNamespace(path=path, wal=path / "wal", identity=identity, change=lambda **_: None)


def head(number: int, link: Link | None = None) -> Head:
    """A file with salt 100 + its number that follows the one before it."""
    return Head(number, 100 + number, number * 10, link or Link(DISK, 99 + number, 1000 + number))


def three(**others: Head | None) -> dict[int, Head]:
    """Files 1, 2, 3; the first one follows none."""
    heads: dict[int, Head | None] = {1: head(1, Link(DISK)), 2: head(2), 3: head(3)}
    heads.update({int(name[1:]): other for name, other in others.items()})
    return {number: each for number, each in heads.items() if each is not None}


def mark(file: int = 3, end: int = 500, salt: int | None = None, disk: int = DISK) -> SyncedMark:
    return SyncedMark(file, end, 100 + file if salt is None else salt, disk)


def chain(heads: dict[int, Head], *marks: SyncedMark, first: int = 0, logged: bool = True) -> Chain:
    return verify(directory(logged), heads, first, marks)


def test_a_chain_knows_each_file_end_and_what_was_synced() -> None:
    found = chain(three(), mark())
    assert (list(found.numbers), found.ends, found.synced) == ([1, 2, 3], {1: 1002, 2: 1003}, 500)
    assert found.link(DISK, 4, 77) == Link(DISK, 103, 77)
    assert found.link(DISK, 9, 77) == Link(DISK), "the one before it does not count"


@pytest.mark.parametrize(
    ("heads", "marks", "first", "what"),
    [
        (three(_2=None), [mark()], 0, "00002.wal.*missing, and .*3.wal names it"),
        (three(_3=None), [mark()], 0, "00003.wal.*missing, and synced names it"),
        (three(_1=None), [mark()], 1, "00001.wal.*missing"),
        (three(_1=None), [mark()], 0, "00001.wal.*missing"),
        ({}, [mark(1)], 0, "00001.wal.*missing, and synced names it"),
        (three(_2=Head(2, 7, 20, Link(DISK, 101, 5))), [mark()], 0, "2.wal.*another file"),
        (three(_3=Head(3, 7, 30, Link(DISK, 102, 5))), [mark()], 0, "3.wal.*the one on record"),
        (three(_3=head(3, Link(8, 102, 5))), [mark()], 0, "written for disk 0000000000000008"),
        (three(_1=head(1, Link(8))), [mark()], 0, "written for disk 0000000000000008"),
        (three(), [mark(disk=8)], 0, "is of disk 0000000000000008"),
        (three(), [mark(), mark(2, disk=8)], 0, "is of disk 0000000000000008"),
        (three(), [mark(1)], 0, "names file 1 as the newest, and there is file 3"),
        (three(), [], 0, "neither it nor .* can be read"),
    ],
)
def test_what_is_missing_or_another_one_is_noticed(
    heads: dict[int, Head], marks: list[SyncedMark], first: int, what: str
) -> None:
    with pytest.raises(LogDamaged, match=what):
        chain(heads, *marks, first=first)


def test_what_a_crash_or_the_manifest_explains_is_no_damage() -> None:
    assert chain(three(), mark(2)).synced == 0, "file 3 was made, and not marked yet"
    assert chain({}, logged=False).synced == 0, "nothing was ever vouched for"
    assert chain({}, mark(2), first=3).synced == 0, "the manifest stands for file 2"
    late = three(_1=None, _2=None)
    assert chain(late, mark(), first=3).ends == {}, "and for what file 3 follows"
    assert chain({2: head(2, Link(DISK)), 3: head(3)}, mark(), first=2).ends == {2: 1003}


class MemoryFiles:
    """The two files that name the newest one; `error` fails the next write."""

    def __init__(self) -> None:
        self.held: dict[Path, bytes] = {}
        self.writes: list[tuple[Path, SyncedMark]] = []
        self.error: OSError | None = None

    def exists(self, path: Path) -> bool:
        return path in self.held

    def read(self, path: Path) -> bytes:
        return self.held[path]

    def create(self, path: Path, data: bytes) -> Path:
        self.write_at(path, 0, [data])
        return path

    def write_at(self, fd: Path, offset: int, buffers: list[bytes]) -> None:
        assert offset == 0
        error, self.error = self.error, None
        if error is not None:
            self.held[fd] = b"torn"
            raise error
        self.held[fd] = b"".join(buffers)
        self.writes.append((fd, decode(self.held[fd])))

    def sync_data(self, fd: Path) -> None:
        pass

    def close(self, fd: Path) -> None:
        pass


WAL, OUTER = Path("/data/wal/synced"), Path("/data/synced")


def said(files: Any) -> list[SyncedMark]:
    """What the two say, newest first."""
    return read_both(files, directory())


def marks() -> tuple[Any, MemoryFiles]:
    files = MemoryFiles()
    return SyncedMarkFiles(files, directory()), files  # type: ignore[arg-type]


def test_both_are_written_and_never_go_back() -> None:
    both, files = marks()
    for file, end in ((1, 50), (1, 90), (1, 90), (1, 60), (2, 10)):
        both.write(file, end, 7)
    told = [(1, 50), (1, 90), (2, 10)]
    for path in (WAL, OUTER):
        assert [each[:2] for at, each in files.writes if at == path] == told
    assert said(files) == [SyncedMark(2, 10, 7, DISK)] * 2


def test_one_that_was_left_torn_is_written_first_so_that_one_is_always_whole() -> None:
    both, files = marks()
    both.write(1, 50, 7)
    both.write(1, 60, 7)
    files.writes.clear()
    # The first of the two is written, the second one finds no space.
    original = files.write_at

    def second_fails(fd: Path, offset: int, buffers: list[bytes]) -> None:
        original(fd, offset, buffers)
        files.error = OSError(errno.ENOSPC, "full")

    files.write_at = second_fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="full"):
        both.write(1, 70, 7)
    files.write_at, files.error = original, None  # type: ignore[method-assign]
    assert files.held[OUTER] == b"torn"
    assert [each[:2] for each in said(files)] == [(1, 70)]
    files.writes.clear()
    both.write(1, 80, 7)
    assert [at for at, _ in files.writes] == [OUTER, WAL]


def test_after_a_disk_that_fails_neither_is_touched_again() -> None:
    both, files = marks()
    both.write(1, 50, 7)
    files.writes.clear()
    files.error = OSError(errno.EIO, "broken")
    with pytest.raises(OSError, match="broken"):
        both.write(1, 60, 7)
    files.error = None
    with pytest.raises(OSError, match="broken"):
        both.write(2, 10, 7)  # passed over, it would let the WAL begin a file that nothing names
    assert files.writes == [] and decode(files.held[OUTER])[:2] == (1, 50)


def test_the_newest_of_two_is_believed_and_what_is_not_whole_says_nothing() -> None:
    files = MemoryFiles()
    files.held = {WAL: encode(mark(2, 90)), OUTER: encode(mark(3, 10))}
    assert [each[:2] for each in said(files)] == [(3, 10), (2, 90)]
    whole = encode(mark())
    for data in (b"", whole[:-1], b"X" + whole[1:], whole[:40] + bytes(8)):
        assert decode(data) == SyncedMark() == (0, 0, 0, 0), data


class Rest:
    """A log that a SyncedMarkWriter looks at, its background writer, and its marks."""

    def __init__(self) -> None:
        self.on_disk, self.idle, self.salts = (1, 10), True, {1: 7}
        self.asked: list[Any] = []
        self.writer = SyncedMarkWriter(self, self, self)  # type: ignore[arg-type]
        self.now_ms = 0

    def look(self) -> None:
        """Look again after a heartbeat's usual interval."""
        self.now_ms += HEARTBEAT_MS
        self.writer.look(self.now_ms)

    def write(self, file: int, end: int, salt: int) -> None:
        raise AssertionError("the background writer's thread does that")

    def run(self, job: Any, done: Any, failed: Any) -> None:
        self.asked.append((self.on_disk, done, failed))


def test_where_the_log_ends_is_written_once_it_rests_and_once_a_second() -> None:
    rest = Rest()
    rest.look()
    assert rest.asked == [], "it is known"
    rest.on_disk = (1, 20)
    rest.look()
    assert rest.asked == [], "it has just been written"
    rest.look()
    rest.look()
    assert [at for at, _, _ in rest.asked] == [(1, 20)] and rest.writer.busy
    rest.asked.pop()[2](OSError(errno.ENOSPC, "full"))
    rest.look()
    assert len(rest.asked) == 1, "tried again"
    rest.asked.pop()[1](None)
    rest.look()
    assert rest.asked == [] and not rest.writer.busy
    rest.idle = False
    looks = 0
    while not rest.asked:
        looks += 1
        rest.on_disk = (1, rest.on_disk[1] + (looks < 4))
        rest.look()
        assert looks * HEARTBEAT_MS <= MARK_EVERY_MS
    assert looks > 4, "something still waits: it does not rest"
