"""A member whose entries are gone gets a snapshot with what it refers to, then goes on."""

from __future__ import annotations

from pathlib import Path

from tests.raft.runtime.kit import NODES, until
from tests.raft.runtime.shelves import (
    GROUP,
    Shelf,
    begin,
    body,
    check_after_restart,
    check_live,
    compacted,
    end_with_everything_live,
    first_index,
    leader,
    left_behind,
    same,
    stop,
    write,
)
from warren_raft.machine import GroupSpec


def test_a_member_that_was_away_for_long_begins_anew_after_a_snapshot(tmp_path: Path) -> None:
    cluster, away, end = left_behind(tmp_path)
    cluster.start(away).start_group(GroupSpec(GROUP, NODES), Shelf())
    write(cluster, 1200, 1400)
    until(cluster.loop, lambda: same(cluster))
    assert first_index(cluster, away) > end
    assert check_live(cluster) > 20
    check_after_restart(cluster)


def test_a_member_without_anything_gets_everything_that_lives(tmp_path: Path) -> None:
    cluster = compacted(tmp_path)
    away = next(name for name in NODES if name != leader(cluster))
    cluster.stop(away)
    (tmp_path / away).rename(tmp_path / "lost")
    until(cluster.loop, lambda: all(h.suspected(away) for h in cluster.hosts.values()))
    write(cluster, 600, 700)
    # A leader that knows what a member held does not believe that it is gone, rightly: such a
    # member has to be replaced. One that begins to lead now knows nothing of it.
    old = leader(cluster)
    other = next(name for name in cluster.hosts if name != old)
    cluster.hosts[old].transfer(GROUP, other)
    until(cluster.loop, lambda: cluster.hosts[other].is_leader(GROUP))
    cluster.start(away).start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: same(cluster))
    assert check_live(cluster) > 20
    cluster.stop(away)
    cluster.start(away).start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: same(cluster))
    end_with_everything_live(cluster)


def test_the_disk_of_every_member_follows_what_lives(tmp_path: Path) -> None:
    cluster = begin(tmp_path)
    write(cluster, 0, 3000)
    until(cluster.loop, lambda: same(cluster))
    written = sum(len(body(at)) for at in range(3000))
    for node in NODES:
        held = sum(f.stat().st_size for f in (tmp_path / node).rglob("*") if f.is_file())
        assert held < written / 4, (node, held, written)
    check_live(cluster)
    stop(cluster)
