"""Every file of a data directory missing, renamed, emptied or replaced by an older copy of it.

A life with several files of the log, both kinds of segments, snapshots, one of them of another
member, a deleted group, restarts and compaction is copied at every stage. Then one thing, or two,
are done to the last copy, and it is read. Either that is noticed, or everything that was vouched
for is there. The table in docs/explanation/storage.md says what notices what.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from tests.patience import PATIENCE_S
from tests.raft.storage.kit import Disk, frozen_directory
from warren_raft.errors import StorageError
from warren_raft.index_set import Indexes
from warren_raft.storage.errors import EntryDamaged
from warren_raft.storage.files import Files
from warren_raft.storage.format import FIRST_RECORD
from warren_raft.storage.opened_log import OpenedLog, open_log
from warren_raft.storage.rewrite import write_snapshots
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import Entry, EntryKind, HardState

PAIRS = 600
"""So many of the pairs are tried, by chance."""
PARTS = ("wal", "segments", "snapshots")


class QuickFiles(Files):
    """Nothing is really synced."""

    def sync_data(self, fd: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass

    def create(self, path: Path, data: bytes) -> int:
        fresh = path.with_name(path.name + ".new")
        fd = self.open_write(fresh)
        self.write_at(fd, 0, [data])
        os.rename(fresh, path)
        return fd


@dataclass
class Vouched:
    """What was reported: per group its term and vote, its entries, the first of them."""

    states: dict[int, HardState]
    entries: dict[int, dict[int, bytes]]


class Life:
    """Plays it, and keeps the books."""

    def __init__(self, root: Path, files: Files, file_bytes: int = 900) -> None:
        self.root = root / "life"
        self.file_bytes = file_bytes
        self.copies: list[Path] = []
        self.vouched = Vouched({}, {})
        self.files = files
        self.disk = Disk(self.root, files, file_bytes)

    def write(self, group: int, count: int, term: int, vote: str | None = None) -> None:
        entries = self.vouched.entries.setdefault(group, {})
        first = max(entries, default=0) + 1
        datas = [b"%d:%d:%d " % (group, first + i, term) + b"x" * 90 for i in range(count)]
        state = HardState(term, vote)
        self.disk.write(group, first, datas, term, state)
        entries.update(enumerate(datas, first))
        self.vouched.states[group] = state
        if group != 4:
            self.disk.group(group).applied = first + count - 1

    def snapshot(self, group: int, live: list[int]) -> Snapshot:
        """Entries below it that it does not refer to are not needed any more."""
        store = self.disk.group(group)
        index = store.applied
        entries = self.vouched.entries[group]
        for each in [i for i in entries if i < index and i not in live]:
            del entries[each]
        return Snapshot(
            group,
            index,
            store.term(index),
            1000,
            store.born,
            1,
            ("n1",),
            (),
            Indexes.of(live).tobytes(),
            b"state",
            base=store.base,
        )

    def fall_behind(self, index: int, term: int) -> None:
        """Another member's snapshot takes the place of group 4's log."""
        store = self.disk.group(4)
        self.vouched.states[4] = state = HardState(term)
        store.append(state, ())  # before it, as a member does
        store.begin_incoming()
        store.receive(Entry(index - 1, term, EntryKind.COMMAND, 1, b"theirs"))
        snapshot = Snapshot(
            4,
            index,
            term,
            1000,
            store.born,
            1,
            ("n1",),
            (),
            Indexes.of([index - 1]).tobytes(),
            b"theirs",
        )
        snapshot = msgspec.structs.replace(snapshot, base=store.voided(snapshot))
        self.disk.sync()
        files, directory = self.disk.store.files, self.disk.store.directory
        write_snapshots(files, directory.snapshots, [snapshot])
        places = store.incoming_places(snapshot, store.applied)
        assert places is not None
        store.install(snapshot, places)
        store.end_incoming()
        self.disk.sync()
        self.vouched.entries[4] = {index - 1: b"theirs", index: b""}

    def copy(self) -> None:
        place = self.root.with_name(f"copy-{len(self.copies)}")
        shutil.copytree(self.root, place)
        self.copies.append(place)

    def mark(self) -> None:
        """The log rests."""
        for now_ms in (0, 100):
            self.disk.store.synced_mark.look(now_ms)
        while self.disk.store.synced_mark.busy:
            self.disk.posted.get(timeout=PATIENCE_S)()

    def restart(self) -> None:
        self.disk.close()
        self.copy()
        self.disk = Disk(self.root, self.files, self.file_bytes)
        for number, store in self.disk.store.groups.items():
            if number != 4:
                store.applied = store.log.last


def play(root: Path) -> Life:
    """A life; its last copy is what the tests damage."""
    life = Life(root, QuickFiles())
    life.copy()
    life.write(1, 3, 2, "n2")
    life.write(3, 2, 1)
    life.mark()
    life.copy()
    for _ in range(4):
        life.write(1, 3, 2, "n2")
        life.write(2, 2, 3, "n3")
        life.write(4, 3, 2)
    life.disk.compact(life.snapshot(1, [1, 2, 3, 7, 9]))
    life.mark()
    life.copy()
    life.disk.store.delete(3)
    life.vouched.states.pop(3)
    life.vouched.entries.pop(3)
    life.disk.sync()
    life.write(2, 6, 4, "n1")
    life.fall_behind(10, 5)
    life.write(4, 2, 6, "n2")
    life.write(1, 3, 6)
    life.disk.compact(life.snapshot(1, [2, 7, 16]))
    life.restart()
    for _ in range(3):
        life.write(1, 4, 7, "n2")
        life.write(2, 4, 7, "n2")
    life.disk.compact(life.snapshot(2, [3, 4, 5, 20]))
    for _ in range(4):
        life.write(5, 8, 1, "n1")
    life.disk.compact()
    for _ in range(4):
        life.write(1, 2, 8)
        life.write(2, 3, 8, "n2")
    life.mark()
    life.copy()
    life.write(1, 5, 9, "n3")
    while life.disk.store.wal.newest_bytes > FIRST_RECORD:
        life.write(5, 1, 2, "n3")
    life.write(1, 1, 9, "n3")
    life.copy()
    life.write(2, 1, 9, "n3")
    life.disk.close()
    life.copy()
    return life


def names(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


Damage = tuple[str, str, Callable[[Path], None]]
"""What it is called, which file it strikes, what is done to a copy."""


def _put(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda root: _write(root / name, data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def _rename(name: str, to: str) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        if (root / name).exists():
            (root / name).rename(root / to)

    return do


def _other_name(name: str, there: dict[str, bytes]) -> list[str]:
    """Names under which the program would look at it."""
    head, _, tail = name.rpartition("/")
    found = [name + ".old"]
    if tail.endswith(".wal"):
        found += [f"wal/{int(tail[:12]) + step:012d}.wal" for step in (-1, 1)]
    elif tail.endswith((".idx", ".seg")):
        found.append(f"{head}/{tail[:-8]}{int(tail[-8:-4]) + 1:04d}{tail[-4:]}")
    elif tail.endswith(".snap"):
        found.append(f"{head}/{tail[:21]}{int(tail[21:41]) + 1:020d}.snap")
    return [other for other in found if other not in there]


def damages(life: Life) -> Iterator[Damage]:
    """Everything that may be done to one file."""
    *older, last = [names(root) for root in life.copies]
    for name, data in last.items():
        yield f"{name} removed", name, lambda root, n=name: (root / n).unlink(missing_ok=True)
        yield f"{name} emptied", name, _put(name, b"")
        for other in _other_name(name, last):
            yield f"{name} renamed {other}", name, _rename(name, other)
        copies = {copy[name] for copy in older if name in copy} - {data}
        for at, copy in enumerate(sorted(copies, key=len)):
            yield f"{name} older ({at})", name, _put(name, copy)
    for name in sorted({name for copy in older for name in copy} - set(last)):
        copy = next(copy[name] for copy in reversed(older) if name in copy)
        yield f"{name} back", name, _put(name, copy)
    for part in PARTS:
        yield f"{part}/ removed", part, lambda root, p=part: shutil.rmtree(root / p, True)


def start(root: Path, alone: bool = False) -> OpenedLog:
    peers = () if alone else ("n2",)
    return open_log(
        QuickFiles(), root, "c", "n1", 1 << 20, lambda: 0xABCDEF, lambda g, c: True, peers
    )


def judge(root: Path, vouched: Vouched) -> str:
    """`noticed`, `harmless`, or what is wrong."""
    identity = root / "node.json"
    before = identity.read_bytes() if identity.exists() else b""
    try:
        opened = start(root)
    except StorageError:
        return "noticed"
    try:
        if opened.directory.identity.disk.encode() not in before:
            return "noticed" if not opened.recovered.groups else "another disk that holds groups"
        noticed = bool(opened.recovered.condemned)
        for group, entries in vouched.entries.items():
            if group in opened.recovered.condemned:
                continue
            found = opened.recovered.groups.get(group)
            if found is None:
                return f"group {group} is missing"
            state, told = found.hard_state, vouched.states[group]
            if (state.term, state.vote or "") < (told.term, told.vote or ""):
                return f"group {group} has {state}, it had told {told}"
            if found.log.last < max(entries):
                return f"group {group} ends at {found.log.last}, it had {max(entries)}"
            try:
                wrong = _wrong_entry(opened, group, entries)
            except EntryDamaged:
                noticed = True  # the others are asked for it
                continue
            if wrong:
                return wrong
        return "noticed" if noticed else "harmless"
    finally:
        opened.close()


def _wrong_entry(opened: OpenedLog, group: int, entries: dict[int, bytes]) -> str:
    found = opened.recovered.groups[group]
    for index, data in entries.items():
        below = index < found.log.first
        if below and index not in found.log.live:
            if found.snapshot is not None and index == found.snapshot.index:
                continue  # it is in the state
            return f"group {group} lacks entry {index}"
        if opened.log_files.read_entry(found.log, index).data != data:
            return f"group {group} has another entry {index}"
    return ""


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return play(tmp_path_factory.mktemp("whole"))


def tried(life: Life, place: Path, *done: Damage) -> str:
    """What comes of it; a second start must come to the same."""
    shutil.copytree(life.copies[-1], place)
    try:
        for _, _, do in done:
            do(place)
        first = judge(place, life.vouched)
        if first == "harmless":
            again = judge(place, life.vouched)
            assert again == "harmless", (again, "at the second start")
        return first
    finally:
        shutil.rmtree(place)


def test_the_directory_is_rich(life: Life) -> None:
    there = list(names(life.copies[-1]))
    assert sum(name.endswith(".wal") for name in there) >= 4, there
    assert sum(name.endswith(".seg") for name in there) >= 2, there
    assert sum(name.endswith(".idx") for name in there) > sum(n.endswith(".seg") for n in there)
    assert sum(name.endswith(".snap") for name in there) == 3, there
    assert {"node.json", "groups.manifest", "synced", "wal/synced"} <= set(there)
    assert len(list(damages(life))) > 60
    assert tried(life, life.root.with_name("untouched")) == "harmless"


def test_each_is_noticed_or_harmless(life: Life, tmp_path: Path) -> None:
    outcomes = {}
    for at, damage in enumerate(damages(life)):
        outcomes[damage[0]] = tried(life, tmp_path / str(at), damage)
    wrong = {what: how for what, how in outcomes.items() if how not in ("noticed", "harmless")}
    assert not wrong, wrong
    newest = max(name for name in names(life.copies[-1]) if name.endswith(".wal"))
    for what in ("removed", "emptied", "older (0)"):
        assert outcomes[f"{newest} {what}"] == "noticed", what
    assert outcomes["wal/ removed"] == "noticed"
    # Of the two that name the newest file one is enough.
    for name in ("synced", "wal/synced"):
        assert outcomes[f"{name} removed"] == outcomes[f"{name} emptied"] == "harmless"


@pytest.mark.long
def test_every_two_are_noticed_or_harmless(life: Life, tmp_path: Path) -> None:
    pairs = [(one, other) for one, other in combinations(damages(life), 2) if one[1] != other[1]]
    for at, pair in enumerate(random.Random(7).sample(pairs, PAIRS)):
        how = tried(life, tmp_path / str(at), *pair)
        assert how in ("noticed", "harmless"), (pair[0][0], pair[1][0], how)


def test_nothing_but_one_part_is_left(life: Life, tmp_path: Path) -> None:
    for part in (*PARTS, "node.json", "groups.manifest", "synced"):
        root = tmp_path / part
        shutil.copytree(life.copies[-1], root)
        for path in list(root.iterdir()):
            if path.name != part:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert judge(root, life.vouched) == "noticed", part


def test_a_missing_newest_file_is_refused_alone_and_nothing_is_touched(
    life: Life, tmp_path: Path
) -> None:
    root = tmp_path / "data"
    shutil.copytree(life.copies[-1], root)
    newest = sorted((root / "wal").glob("*.wal"))[-1]
    newest.unlink()
    before = names(root)
    with pytest.raises(StorageError, match=f"{newest.name} is damaged.*is missing.*synced names"):
        start(root, alone=True)
    assert names(root) == before


def test_a_directory_of_format_1_is_read_and_written_further(tmp_path: Path) -> None:
    root = tmp_path / "old"
    frozen_directory(root)
    disk = Disk(root, QuickFiles(), 700)
    assert {g: s.last_index() for g, s in disk.store.groups.items()} == {1: 16, 2: 16}
    assert disk.group(1).read(9).data == b"one 9 " + b"x" * 40
    assert disk.group(2).hard_state == HardState(4, None)
    for index in range(17, 25):
        disk.write(1, index, [b"new" * 30], term=5, state=HardState(5, None))
    disk.close()
    vouched = Vouched(
        {1: HardState(0), 2: HardState(4)},
        {1: {24: b"new" * 30, 17: b"new" * 30}, 2: {16: b"two 16 " + b"y" * 40}},
    )
    assert judge(root, vouched) == "harmless"
    for path in sorted((root / "wal").glob("*.wal")):
        damaged = tmp_path / path.name
        shutil.copytree(root, damaged)
        (damaged / "wal" / path.name).unlink()
        assert judge(damaged, vouched) == "noticed", path.name
