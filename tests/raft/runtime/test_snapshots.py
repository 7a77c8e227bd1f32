"""A member that lacks dropped entries gets a snapshot with the entries it refers to."""

from __future__ import annotations

from pathlib import Path

from tests.disk_use import bytes_held
from tests.raft.runtime import shelves
from tests.raft.runtime.kit import NODES, until
from warren_raft.machine import GroupSpec


def test_a_member_that_was_down_for_long_catches_up_from_a_snapshot(tmp_path: Path) -> None:
    cluster, away, end = shelves.left_behind(tmp_path)
    cluster.start(away).start_group(GroupSpec(shelves.GROUP, NODES), shelves.Shelf())
    shelves.write(cluster, 1200, 1400)
    until(cluster.loop, lambda: shelves.same(cluster))
    assert shelves.first_index(cluster, away) > end
    assert shelves.check_live(cluster) > 20
    shelves.check_after_restart(cluster)


def test_a_member_with_an_empty_disk_gets_every_live_entry(tmp_path: Path) -> None:
    cluster = shelves.compacted(tmp_path)
    away = next(name for name in NODES if name != shelves.leader(cluster))
    cluster.stop(away)
    (tmp_path / away).rename(tmp_path / "lost")
    until(cluster.loop, lambda: all(h.suspected(away) for h in cluster.hosts.values()))
    shelves.write(cluster, 600, 700)
    # A leader that knows what a member held refuses, rightly, to believe that it is gone: such a
    # member has to be replaced. One that begins to lead now knows nothing of it.
    old = shelves.leader(cluster)
    other = next(name for name in cluster.hosts if name != old)
    cluster.hosts[old].transfer(shelves.GROUP, other)
    until(cluster.loop, lambda: cluster.hosts[other].is_leader(shelves.GROUP))
    cluster.start(away).start_group(GroupSpec(shelves.GROUP, NODES), shelves.Shelf())
    until(cluster.loop, lambda: shelves.same(cluster))
    assert shelves.check_live(cluster) > 20
    cluster.stop(away)
    cluster.start(away).start_group(GroupSpec(shelves.GROUP, NODES), shelves.Shelf())
    until(cluster.loop, lambda: shelves.same(cluster))
    shelves.end_with_everything_live(cluster)


def test_the_disk_of_every_member_holds_little_more_than_live_entries(tmp_path: Path) -> None:
    cluster = shelves.begin(tmp_path)
    shelves.write(cluster, 0, 3000)
    until(cluster.loop, lambda: shelves.same(cluster))
    written = sum(len(shelves.body(at)) for at in range(3000))
    for node in NODES:  # what compaction has under way is finished
        until(cluster.loop, lambda node=node: bytes_held(tmp_path / node) < written / 4)
    shelves.check_live(cluster)
    shelves.stop(cluster)
