"""The order of changes to a disk: names are durable before anything rests on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.raft.storage.kit import Disk, wal_files
from tests.raft.storage.test_whole_directory import Life
from warren_raft.storage import quarantine
from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.files import Files


class Call(NamedTuple):
    """One call: by which thread, what, of which path, and to which name."""

    thread: str
    what: str
    path: str
    to: str = ""


def of_descriptor(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Everything that is asked of the system, as it happens."""
    found: list[Call] = []

    def note(what: str, path: object, to: object = "") -> None:
        found.append(Call(threading.current_thread().name, what, str(path), str(to)))

    def watch(name: str, say: Callable[..., None]) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def call(*args: Any, **named: Any) -> Any:
            say(*args)
            return real(*args, **named)

        monkeypatch.setattr(os, name, call)

    watch("fsync", lambda fd: note("sync", of_descriptor(fd)))
    watch("fdatasync", lambda fd: note("sync", of_descriptor(fd)))
    watch("pwritev", lambda fd, *_: note("write", of_descriptor(fd)))
    watch("ftruncate", lambda fd, *_: note("write", of_descriptor(fd)))
    watch("rename", lambda old, new: note("rename", old, new))
    watch("unlink", lambda path: note("unlink", path))
    watch("mkdir", lambda path, *_: note("mkdir", path))
    return found


def live(root: Path) -> None:
    """A start in nothing, several files, snapshots of both kinds, segments, a restart."""
    life = Life(root, Files())
    for _ in range(4):
        life.write(1, 3, 2, "n2")
        life.write(2, 2, 3, "n3")
        life.write(4, 3, 2)
        life.write(3, 2, 1)
    life.disk.compact(life.snapshot(1, [1, 2, 3, 7, 9]))
    life.disk.store.delete(3)
    life.disk.sync()
    life.fall_behind(9, 5)
    life.write(1, 9, 6)
    life.disk.compact(life.snapshot(1, [2, 7, 16]))
    life.mark()
    life.disk.close()
    disk = Disk(life.root, file_bytes=900)
    disk.write(2, 9, [b"again"], 7)
    disk.close()


@pytest.fixture
def lived(tmp_path: Path, calls: list[Call]) -> list[Call]:
    """What was asked of the system in a whole life."""
    live(tmp_path)
    return calls


def check_names(calls: list[Call]) -> int:
    """After each change of a name its directory is synced before anything else is asked for."""
    changes = 0
    for thread in {call.thread for call in calls}:
        own = [call for call in calls if call.thread == thread]
        for at, call in enumerate(own):
            if call.what not in ("rename", "unlink", "mkdir"):
                continue
            changes += 1
            name = call.to or call.path
            assert own[at + 1] == Call(thread, "sync", os.path.dirname(name)), (call, own[at + 1])
            if call.to and os.path.dirname(call.path) != os.path.dirname(call.to):
                after = own[at + 2]
                assert after == Call(thread, "sync", os.path.dirname(call.path)), (call, after)
    return changes


def check_contents(calls: list[Call]) -> None:
    """What is given its name was synced after it was written."""
    unsynced: set[str] = set()
    for call in calls:
        if call.what == "write":
            unsynced.add(call.path)
        elif call.what == "sync":
            unsynced.discard(call.path)
        elif call.what == "rename":
            assert call.path not in unsynced, call


def of_log_files(calls: list[Call], what: str) -> Iterator[tuple[int, Call]]:
    """Yield each rename to (or unlink of) a file of the log, with its position in `calls`."""
    for at, call in enumerate(calls):
        if call.what == what and (call.to or call.path).endswith(".wal"):
            yield at, call


def test_a_changed_name_is_durable_before_anything_rests_on_it(
    tmp_path: Path, calls: list[Call]
) -> None:
    live(tmp_path)
    assert check_names(calls) > 40
    check_contents(calls)
    renamed = {Path(call.to).suffix for call in calls if call.what == "rename"}
    assert renamed >= {".wal", ".seg", ".idx", ".snap", ".manifest", ".json", ""}


def test_setting_aside_syncs_both_directories(tmp_path: Path, calls: list[Call]) -> None:
    live(tmp_path)
    calls.clear()
    disk = Disk(tmp_path / "life", file_bytes=900)
    disk.close()
    damage = LogDamaged(tmp_path, 0, "to be tried")
    quarantine.set_all_aside(Files(), disk.store.directory, damage, lambda: 7)
    assert check_names(calls) > 12
    moved = [call for call in calls if call.what == "rename" and "/damaged/" in call.to]
    named = next(at for at, call in enumerate(calls) if call.to.endswith("/node.json"))
    first = next(
        at for at, call in enumerate(calls) if call in moved and not call.to.endswith("/moving")
    )
    assert named < first, "it is another disk before the first file is moved"


def test_a_new_file_of_the_log_is_named_elsewhere_before_its_first_record(
    tmp_path: Path, lived: list[Call]
) -> None:
    named = list(of_log_files(lived, "rename"))
    for at, call in named:
        rest = [each for each in lived[at + 1 :] if each.thread == call.thread]
        first = next(n for n, each in enumerate(rest) if each[1:3] == ("write", call.to))
        before = rest[:first]
        for name in ("wal/synced", "synced"):
            path = str(tmp_path / "life" / name)
            wrote = [
                n
                for n, each in enumerate(before)
                if each.what == "write" and each.path in (path, path + ".new")
            ]
            assert wrote, (call.to, name, before)
            assert any(
                each.what == "sync" and each.path in (path, path + ".new")
                for each in before[wrote[-1] :]
            ), (call.to, name)
    assert len(named) >= 5 and len(named) >= len(wal_files(tmp_path / "life"))


def test_nothing_is_removed_before_the_manifest_that_does_without_it(
    tmp_path: Path, lived: list[Call]
) -> None:
    removed = list(of_log_files(lived, "unlink"))
    for at, call in removed:
        before = [each for each in lived[:at] if each.what == "rename"]
        puts = [n for n, each in enumerate(before) if each.to.endswith("groups.manifest")]
        made = [n for n, each in enumerate(before) if each.to.endswith((".idx", ".seg"))]
        assert puts and (not made or made[-1] < puts[-1]), call
    assert len(removed) >= 3
    gone = [call.path for call in lived if call.what == "unlink"]
    for path in gone:
        if path.endswith(".seg") and path[:-4] + ".idx" in gone:
            assert gone.index(path[:-4] + ".idx") < gone.index(path), "the index is removed first"


def test_one_file_of_the_log_costs_no_sync_but_at_its_beginning(
    tmp_path: Path, calls: list[Call]
) -> None:
    disk = Disk(tmp_path)
    disk.write(1, 1, [b"first"], 1)
    calls.clear()
    disk.write_apart(1, range(2, 12), b"more")
    (wal,) = wal_files(tmp_path)
    syncs = [call for call in calls if call.what == "sync"]
    assert [call.path for call in syncs] == [str(wal)] * 10
    disk.close()
