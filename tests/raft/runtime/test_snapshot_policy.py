"""The snapshot policy looks at the groups that have applied entries, not at all there are."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.disk_use import bytes_held
from tests.raft.runtime.kit import Cluster, Listing
from tests.raft.runtime.shelves import GROUP, Shelf, body
from warren_raft.machine import GroupSpec
from warren_raft.runtime import snapshot_policy
from warren_raft.runtime.group import Group
from warren_raft.storage import spare_files

GROUPS = range(1, 31)


def test_groups_in_which_nothing_was_applied_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path, ("a",), snapshot_entries_min=8)
    host = cluster.hosts["a"]
    policy = host._snapshot_policy
    looked: list[int] = []
    due = snapshot_policy.due_snapshot

    def noted(group: Group, closed: bool, config: object) -> object:
        looked.append(group.id)
        return due(group, closed, config)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot_policy, "due_snapshot", noted)
    for group in GROUPS:
        host.start_group(GroupSpec(group, ("a",)), Listing())
    cluster.until(lambda: all(map(host.is_leader, GROUPS)))
    cluster.until(lambda: not policy._asked and not host._logs.compactor.busy)

    def look(closed: bool = False) -> list[int]:
        looked.clear()
        policy._closed = closed
        policy._look()
        cluster.until(lambda: not policy._asked and not host._logs.compactor.busy)
        return list(looked)

    def propose(group: int, entries: int) -> None:
        for number in range(entries):
            last = host.propose(group, b"%d" % number)
        cluster.until(lambda: host.applied_index(group) >= last)

    assert look() == list(GROUPS), "each has applied its leader's first entry"
    assert look(closed=True) == []
    propose(9, 1)
    propose(4, 1)
    assert look() == [4, 9], "in the order of their numbers"
    propose(5, 5_000)
    host._groups[5].sending = True
    assert look() == [5]
    assert look(closed=True) == [5], "its snapshot is being sent: it is looked at again"
    host._groups[5].sending = False
    before = host._groups[5].store.snapshot_index
    assert look(closed=True) == [5]
    assert host._groups[5].store.snapshot_index > before, "enough is new"
    assert look(closed=True) == []
    propose(6, 1)
    host.delete_group(6)
    assert look() == []
    cluster.close()


@pytest.mark.parametrize("closed", [False, True])
def test_a_look_that_falls_into_another_cycle_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """All of a queue is acknowledged while a file is rewritten for a repair, and nothing is written
    after that: its space stayed taken until something was."""
    monkeypatch.setattr(snapshot_policy, "LOOK_EVERY_MS", 200)
    monkeypatch.setattr(spare_files, "SPARES_WINDOW_MS", 2_000)
    cluster = Cluster(tmp_path, ("a",), wal_file_bytes=200_000)
    host = cluster.hosts["a"]
    policy, store = host._snapshot_policy, host._logs
    host.start_group(GroupSpec(GROUP, ("a",)), Shelf())
    cluster.until(lambda: host.is_leader(GROUP) and not store.compactor.busy)
    policy._closed = False  # there are no files of an earlier process
    released = threading.Event()
    try:
        store.background_writer.run(released.wait, lambda _: None, lambda error: None)
        store.compactor.manifest_damaged = True
        store.compactor.run([])
        for at in range(200):
            host.propose(GROUP, body(at))
        last = host.propose(GROUP, b"thin 1000000")
        cluster.until(lambda: host.applied_index(GROUP) >= last and store.wal.idle)
        if closed:
            store.wal.roll()
            policy.file_closed()
        cluster.until(lambda: policy._batches == store.wal.batches and not policy._asked)
    finally:
        released.set()
    cluster.until(lambda: store.groups[GROUP].snapshot_index == last)
    cluster.until(lambda: bytes_held(tmp_path) < 100_000)
    cluster.close()


def test_a_group_is_looked_at_when_its_snapshot_has_been_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written after that: its space stayed taken until something was."""
    monkeypatch.setattr(snapshot_policy, "LOOK_EVERY_MS", 200)
    cluster = Cluster(tmp_path, ("a",), wal_file_bytes=200_000)
    host = cluster.hosts["a"]
    policy, store = host._snapshot_policy, host._logs
    host.start_group(GroupSpec(GROUP, ("a",)), Shelf())
    cluster.until(lambda: host.is_leader(GROUP) and not store.compactor.busy)
    monkeypatch.setattr(host._transfers, "sending", lambda group: True)
    host._groups[GROUP].sending = True
    for at in range(200):
        host.propose(GROUP, body(at))
    last = host.propose(GROUP, b"thin 1000000")
    cluster.until(lambda: host.applied_index(GROUP) >= last and store.wal.idle)
    cluster.until(lambda: policy._batches == store.wal.batches and not policy._asked)
    assert store.groups[GROUP].snapshot_index == 0
    monkeypatch.undo()
    host._groups[GROUP].sending = False
    cluster.until(lambda: store.groups[GROUP].snapshot_index == last)
    cluster.close()
