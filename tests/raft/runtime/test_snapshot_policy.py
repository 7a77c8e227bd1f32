"""The snapshot policy looks at the groups that have applied entries, not at all there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.runtime.kit import Cluster, Listing
from warren_raft.machine import GroupSpec
from warren_raft.runtime import snapshot_policy
from warren_raft.runtime.group import Group

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
