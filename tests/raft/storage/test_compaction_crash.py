"""Stopped at every file operation of a life with snapshots, nothing that lives is lost.

A model plays a few queues: entries come, some are referred to, snapshots name those. The disk stops
at its n-th operation, for every n, tearing what it was writing; then the directory is read again.
"""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.disk_use import bytes_held
from tests.raft.storage.kit import Disk
from warren_raft.index_set import Indexes
from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.files import Files
from warren_raft.storage.rewrite import write_snapshots
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import Entry, EntryKind, HardState


class StoppingFiles(Files):
    """Counts what changes the disk; from the n-th such call on nothing happens any more.

    A write that is stopped leaves its first half. Nothing is really synced: that takes too long.
    """

    def __init__(self, stop_at: int | None = None) -> None:
        self.calls = 0
        self.stop_at = stop_at

    def _step(self) -> None:
        self.calls += 1
        if self.stop_at is not None and self.calls >= self.stop_at:
            raise OSError(errno.EIO, "stopped")

    def create(self, path: Path, data: bytes) -> int:
        fd = self.open_write(path.with_name(path.name + ".new"))
        try:
            self.write_at(fd, 0, [data])
            self.sync_data(fd)
            self.rename(path.with_name(path.name + ".new"), path)
        except BaseException:
            self.close(fd)
            raise
        return fd

    def open_write(self, path: Path) -> int:
        self._step()
        return super().open_write(path)

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)

    def write_at(self, fd: int, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        try:
            self._step()
        except OSError:
            whole = b"".join(buffers)
            super().write_at(fd, offset, [whole[: len(whole) // 2]])
            raise
        super().write_at(fd, offset, buffers)

    def sync_data(self, fd: int) -> None:
        self._step()

    def sync_directory(self, path: Path) -> None:
        pass

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)


class FullFiles(StoppingFiles):
    """From the background writer's n-th change on there is no space for a few of them."""

    def __init__(self, full_at: int, last: int) -> None:
        super().__init__()
        self.full_at = full_at
        self.full_to = last
        self.refused = 0

    def _step(self) -> None:
        if threading.current_thread().name != "background-writer":
            return
        self.calls += 1
        if self.full_at <= self.calls < self.full_to:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    def rename(self, old: Path, new: Path) -> None:
        Files.rename(self, old, new)  # needs none

    def remove(self, path: Path) -> None:
        Files.remove(self, path)


class Model:
    """What four queues must have on disk; `vouched` is what a sync returned for.

    The fourth has no majority: its entries are replaced now and then, and nothing of it is applied
    but what another member's snapshot says.
    """

    def __init__(self, seed: int, disk: Disk) -> None:
        self.rng = Random(seed)
        self.disk = disk
        self.entries: dict[int, list[bytes]] = {1: [], 2: [], 3: [], 4: []}
        self.live: dict[int, set[int]] = {1: set(), 2: set(), 3: set(), 4: set()}
        self.vouched: dict[int, int] = {1: 0, 2: 0, 3: 0, 4: 0}
        self.term = 1
        self.before: list[tuple[int, list[bytes]]] = []
        """Of the fourth: what it was before what is not vouched for, base included."""

    def write(self, group: int) -> None:
        """A few entries; some of the older ones are referred to no longer, most of the time."""
        rng, log = self.rng, self.entries[group]
        first = len(log) + 1
        datas = [b"%d:%d:" % (group, first + i) + b"x" * rng.randrange(150) for i in range(4)]
        log += datas
        store = self.disk.group(group)
        if rng.random() < 0.2:
            self.term += 1
        state = HardState(self.term, f"n{self.term}")
        self.live[group] |= set(range(first, first + 4))
        self.disk.write(group, first, datas, self.term, state)
        self.vouched[group] = store.applied = len(log)
        for index in sorted(self.live[group]):
            if rng.random() < (0.7, 0.05, 0.4)[group - 1]:
                self.live[group].discard(index)

    def contend(self) -> None:
        """Entries of a leader that never gets a majority, over some of the one before it."""
        rng, store = self.rng, self.disk.group(4)
        log = self.entries[4]
        first = max(store.applied + 1, len(log) + 1 - rng.choice((0, 0, 2, 5, 9)))
        self.term += 1
        datas = [b"4:%d:%d:" % (self.term, first + i) + b"x" * rng.randrange(150) for i in range(4)]
        self.before.append((store.applied, list(log)))
        self.entries[4] = log[: first - 1] + datas
        self.disk.write(4, first, datas, self.term, HardState(self.term, f"n{self.term}"))
        self.vouched[4] = len(self.entries[4])
        self.before.clear()

    def fall_behind(self) -> None:
        """Another member's snapshot takes the place of the fourth's log, in the middle of it."""
        rng, store = self.rng, self.disk.group(4)
        log = self.entries[4]
        if len(log) < store.applied + 6:
            return
        index = len(log) - rng.randrange(4)
        self.term += 1
        store.append(HardState(self.term, f"n{self.term}"), ())  # before it, as a member does
        store.begin_incoming()
        live = sorted(rng.sample(range(store.applied + 1, index + 1), 2))
        theirs = list(log[:index])
        for each in live:
            theirs[each - 1] = b"4:theirs:%d" % each
            store.receive(Entry(each, self.term, EntryKind.COMMAND, 1, theirs[each - 1]))
        snapshot = Snapshot(
            4,
            index,
            self.term,
            1000 + index,
            store.born,
            1,
            ("n1",),
            (),
            Indexes.of(live).tobytes(),
            repr(live).encode(),
        )
        snapshot = msgspec.structs.replace(snapshot, base=store.voided(snapshot))
        self.disk.sync()
        self.before.append((store.applied, list(log)))
        self.entries[4], self.vouched[4] = theirs, index
        write_snapshots(self.disk.store.files, self.disk.store.directory.snapshots, [snapshot])
        places = store.incoming_places(snapshot, store.applied)
        assert places is not None
        old = self.disk.store.snapshot_path(store) if store.snapshot_index else None
        store.install(snapshot, places)
        self.live[4] = set(live)
        store.end_incoming()
        if old is not None:
            self.disk.store.files.remove(old)
        if rng.random() < 0.5:
            self.disk.sync()
        self.before.clear()

    def snapshot(self, group: int) -> Snapshot:
        store = self.disk.group(group)
        index = store.applied
        live = sorted(self.live[group])
        return Snapshot(
            group,
            index,
            store.term(index),
            1000 + index,
            store.born,
            1,
            ("n1",),
            (),
            Indexes.of(live).tobytes(),
            repr(live).encode(),
        )

    def play(self, rounds: int) -> None:
        for at in range(rounds):
            for group in (1, 2, 3):
                if self.rng.random() < 0.6:
                    self.write(group)
            if self.rng.random() < 0.6:
                self.contend()
            if at % 5 == 4:
                self.fall_behind()
            if at == rounds // 2:
                self.entries[3], self.live[3], self.vouched[3] = [], set(), 0
                self.disk.store.delete(3)
                self.disk.sync()
            if at % 3 == 2:
                self.disk.compact(
                    *[self.snapshot(g) for g in (1, 2, 3) if self.entries[g] and at % 2]
                )

    def check(self, disk: Disk) -> None:
        """What is there is what was written, and enough of it."""
        wal = [p for p in (disk.store.directory.wal).iterdir() if p.suffix == ".wal"]
        assert len(wal) < 60, len(wal)
        if self.before:
            self._check_fourth_before(disk)
        for group, entries in self.entries.items():
            if group == 4 and self.before:
                continue
            store = disk.store.groups.get(group)
            if store is None:
                assert not self.vouched[group], (group, self.vouched[group])
                continue
            if not entries:
                continue  # its end may not have come to the disk
            log = store.log
            log.check()
            base = store.snapshot_index
            assert log.first == base + 1, (group, log.first, base)
            assert log.last >= self.vouched[group], (group, log.last, self.vouched[group])
            named = list(store.snapshot.live_indexes()) if store.snapshot else list(log.live)
            assert list(log.live) == named, group
            # Nothing that lives now may be missing; what the snapshot does not name was let go.
            for index in sorted(set(named) | set(range(base + 1, log.last + 1))):
                assert store.read(index).data == entries[index - 1], (group, index)
            assert all(i in named for i in self.live[group] if i <= base), group
            assert store.hard_state.term <= self.term

    def _check_fourth_before(self, disk: Disk) -> None:
        """Stopped while it changed: each entry is of before or of after, the old ones a prefix."""
        store = disk.store.groups.get(4)
        if store is None:
            return
        store.log.check()
        (applied, old), new = self.before[0], self.entries[4]
        found = [store.read(i).data for i in range(store.log.first, store.log.last + 1)]
        base = store.log.first - 1
        assert base in (applied, store.snapshot_index), (base, applied)
        ends = [log[base : base + len(found)] for log in (old, new)]
        mixed = found in ends or any(
            found == old[base:cut] + new[cut : base + len(found)] for cut in range(base, len(old))
        )
        assert mixed, (base, [f[:12] for f in found], [o[:12] for o in old[base:]])
        for index in store.log.live:
            store.read(index)


def life(root: Path, seed: int, stop_at: int | None) -> tuple[Model | None, int]:
    """Play until the end or the stop; the model as it was then, and how many calls there were."""
    files = StoppingFiles(stop_at)
    model = None
    disk = None
    try:
        disk = Disk(root, files, file_bytes=900)
        model = Model(seed, disk)
        model.play(24)
    except (WriteFailed, OSError):
        pass
    finally:
        if disk is not None:
            disk.close()
            assert stop_at is not None or disk.store.wal.recycled > 3
    return model, files.calls


@pytest.mark.parametrize(
    "seed", [*(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2)), 3]
)
def test_a_life_can_be_stopped_anywhere(tmp_path: Path, seed: int) -> None:
    _, calls = life(tmp_path / "whole", seed, None)
    assert calls > 200, calls
    step = 3 if seed == 1 else 7
    for stop_at in range(8, calls + 1, step):
        root = tmp_path / f"stop-{stop_at}"
        model, _ = life(root, seed, stop_at)
        if model is None:
            shutil.rmtree(root)
            continue
        for _ in range(2):  # what a start repairs stays repaired
            disk = Disk(root, StoppingFiles(), file_bytes=900)
            model.check(disk)
            disk.close()
        disk = Disk(root, StoppingFiles(), file_bytes=900)
        for group, store in disk.store.groups.items():
            if group != 4:
                store.applied = store.log.last
        disk.compact()
        model.check(disk)
        disk.close()
        shutil.rmtree(root)


@pytest.mark.long
def test_a_disk_that_is_full_for_a_while_only_puts_it_off(tmp_path: Path) -> None:
    whole = FullFiles(10**9, 10**9)
    disk = Disk(tmp_path / "whole", whole, file_bytes=900)
    Model(4, disk).play(18)
    disk.close()
    assert whole.calls > 60, whole.calls
    for full_at in range(1, whole.calls):
        files = FullFiles(full_at, full_at + 1 + full_at % 5)
        root = tmp_path / f"full-{full_at}"
        disk = Disk(root, files, file_bytes=900)
        model = Model(4, disk)
        model.play(18)
        disk.close()
        assert files.refused, full_at
        disk = Disk(root, StoppingFiles(), file_bytes=900)
        model.check(disk)
        disk.close()
        shutil.rmtree(root)


def test_the_disk_holds_what_lives(tmp_path: Path) -> None:
    disk = Disk(tmp_path, StoppingFiles(), file_bytes=4000)
    model = Model(5, disk)
    for _ in range(300):
        model.write(1)
        disk.compact(model.snapshot(1))
    model.live[1] = set(sorted(model.live[1])[-3:])
    disk.compact(model.snapshot(1))
    disk.compact()
    held = bytes_held(tmp_path)
    written = sum(len(data) + 56 for data in model.entries[1])
    assert written > 100_000 and held < 20_000, (written, held)
    model.check(disk)
    disk.close()
    disk = Disk(tmp_path, file_bytes=4000)
    model.check(disk)
    disk.close()
