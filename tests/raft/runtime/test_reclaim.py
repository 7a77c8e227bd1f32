"""A disk that is nearly full gets back unneeded space at once, without further writes."""

from __future__ import annotations

from pathlib import Path

from tests.disk_use import bytes_held
from tests.raft.runtime.kit import Cluster
from tests.raft.runtime.shelves import Shelf, body
from warren_raft.machine import GroupSpec

GROUPS = (5, 6, 7)
BODY = 700
PUT = 400


def filled(root: Path) -> Cluster:
    """A node with three groups of 280 KB each; a file of its log holds all of it."""
    cluster = Cluster(root, ("a",), wal_file_bytes=8 << 20, snapshot_entries_min=100_000)
    host = cluster.hosts["a"]
    for group in GROUPS:
        host.start_group(GroupSpec(group, ("a",)), Shelf())
    cluster.until(lambda: all(host.is_leader(group) for group in GROUPS))
    for group in GROUPS:
        for at in range(PUT):
            host.propose(group, body(at))
    cluster.until(lambda: all(host.state(group)["count"] == PUT for group in GROUPS))
    return cluster


def quiet(cluster: Cluster) -> None:
    """Nothing is asked for or under way."""
    host = cluster.hosts["a"]
    cluster.until(lambda: not host._snapshot_policy._asked and not host._logs.compactor.busy)


def test_what_few_entries_have_freed_is_let_go_of(tmp_path: Path) -> None:
    """160 of 221 MB were consumed and acknowledged under the alarm: nothing of it was freed, for
    the acknowledgements were too few entries to make a snapshot worth its cost."""
    cluster = filled(tmp_path)
    try:
        host = cluster.hosts["a"]
        for group in GROUPS[:2]:
            host.propose(group, b"thin 1000000")
        cluster.until(lambda: all(host.state(group)["live"] == [] for group in GROUPS[:2]))
        before = bytes_held(tmp_path)
        assert before > 3 * PUT * BODY
        host._snapshot_policy._look()
        quiet(cluster)
        assert bytes_held(tmp_path) >= before, "so few entries are not worth a snapshot otherwise"
        host.reclaim_disk()
        cluster.until(lambda: bytes_held(tmp_path) < before - 2 * PUT * BODY)
        assert bytes_held(tmp_path) < PUT * BODY + 100_000, "what is left is the third group's"
        live = host.state(7)["live"]
        assert len(live) == PUT
        assert all(host.read_entry(7, index).data == body(at) for at, index in enumerate(live))
        quiet(cluster)
        host.reclaim_disk()
        quiet(cluster)
        cycles = host._logs.compactor.cycles
        for _ in range(5):  # the alarm asks again and again: nothing is done for nothing
            host.reclaim_disk()
            quiet(cluster)
        assert host._logs.compactor.cycles == cycles
    finally:
        cluster.close()
    cluster = Cluster(tmp_path, ("a",), wal_file_bytes=8 << 20, snapshot_entries_min=100_000)
    try:
        host = cluster.hosts["a"]
        for group in GROUPS:
            host.start_group(GroupSpec(group, ("a",)), Shelf())
        cluster.until(lambda: len(host.state(7)["live"]) == PUT)
        assert host.state(5)["live"] == [] and host.state(5)["count"] == PUT + 1
    finally:
        cluster.close()
