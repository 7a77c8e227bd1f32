"""A member whose entries are gone gets a snapshot with what it refers to, then goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tests.raft.runtime.kit import NODES, Cluster, until
from warren_raft.machine import Applied, GroupSpec, Meta

GROUP = 5


class Shelf:
    """`put` keeps its entry alive until it is taken: `take INDEX`, or `take * but every NTH`."""

    version = 1

    def init(self) -> dict[str, Any]:
        return {"live": [], "count": 0}

    def apply(self, meta: Meta, command: bytes, state: dict[str, Any]) -> Applied:
        state["count"] += 1
        words = command[:20].split(b" ")
        if words[0] == b"put":
            state["live"].append(meta.index)
        elif words[0] == b"thin":
            state["live"] = [i for i in state["live"] if i % int(words[1]) == 0]
        return Applied(reply=state["count"])

    def leader_effects(self, state: dict[str, Any]) -> tuple[Any, ...]:
        return ()

    def snapshot(self, state: dict[str, Any]) -> bytes:
        return msgspec.msgpack.encode(state)

    def restore(self, data: bytes) -> dict[str, Any]:
        return msgspec.msgpack.decode(data)

    def live_indexes(self, state: dict[str, Any]) -> tuple[int, ...]:
        return tuple(state["live"])


def begin(root: Path, nodes: tuple[str, ...] = NODES) -> Cluster:
    cluster = Cluster(root, nodes, wal_file_bytes=60_000, memtable_bytes=30_000)
    for host in cluster.hosts.values():
        host.start_group(GroupSpec(GROUP, nodes), Shelf())
    return cluster


def leader(cluster: Cluster) -> str:
    until(cluster.loop, lambda: any(h.is_leader(GROUP) for h in cluster.hosts.values()))
    return next(name for name, host in cluster.hosts.items() if host.is_leader(GROUP))


def body(at: int) -> bytes:
    return b"put %d " % at + bytes([at % 251]) * 700


def write(cluster: Cluster, first: int, last: int) -> None:
    """Put first … last, forget most of what was put."""
    for at in range(first, last, 20):
        host = cluster.hosts[leader(cluster)]
        for one in range(at, at + 20):
            host.propose(GROUP, body(one))
        index = host.propose(GROUP, b"thin 17")
        until(cluster.loop, lambda index=index, host=host: host.applied_index(GROUP) >= index)


def same(cluster: Cluster) -> bool:
    applied = {host.applied_index(GROUP) for host in cluster.hosts.values()}
    states = [host.state(GROUP) for host in cluster.hosts.values()]
    return len(applied) == 1 and all(state == states[0] for state in states)


def check_live(cluster: Cluster) -> int:
    for host in cluster.hosts.values():
        for index in host.state(GROUP)["live"]:
            assert host.read_entry(GROUP, index).data.startswith(b"put "), index
        host._groups[GROUP].store.log.check()
        host._groups[GROUP].node.check()
    return len(host.state(GROUP)["live"])


def first_index(cluster: Cluster, node: str) -> int:
    return cluster.hosts[node]._groups[GROUP].store.first_index()


def test_a_member_that_was_away_for_long_begins_anew_after_a_snapshot(tmp_path: Path) -> None:
    cluster = begin(tmp_path)
    write(cluster, 0, 200)
    until(cluster.loop, lambda: same(cluster))
    away = next(name for name in NODES if name != leader(cluster))
    end = cluster.hosts[away].applied_index(GROUP)
    cluster.stop(away)
    until(cluster.loop, lambda: all(h.suspected(away) for h in cluster.hosts.values()))
    write(cluster, 200, 1200)
    until(cluster.loop, lambda: first_index(cluster, leader(cluster)) > end + 100)
    cluster.start(away).start_group(GroupSpec(GROUP, NODES), Shelf())
    write(cluster, 1200, 1400)
    until(cluster.loop, lambda: same(cluster))
    assert first_index(cluster, away) > end
    assert check_live(cluster) > 20
    for node in NODES:  # and all of it is on disk
        cluster.stop(node)
    for node in NODES:
        cluster.start(node).start_group(GroupSpec(GROUP, NODES), Shelf())
    leader(cluster)
    until(cluster.loop, lambda: same(cluster))
    assert check_live(cluster) > 20
    for node in NODES:
        cluster.stop(node)


def test_a_member_without_anything_gets_everything_that_lives(tmp_path: Path) -> None:
    cluster = begin(tmp_path)
    write(cluster, 0, 600)
    until(cluster.loop, lambda: first_index(cluster, leader(cluster)) > 100)
    until(cluster.loop, lambda: same(cluster))
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
    assert check_live(cluster) > 20
    for node in NODES:
        cluster.stop(node)


def test_the_disk_of_every_member_follows_what_lives(tmp_path: Path) -> None:
    cluster = begin(tmp_path)
    write(cluster, 0, 3000)
    until(cluster.loop, lambda: same(cluster))
    written = sum(len(body(at)) for at in range(3000))
    for node in NODES:
        held = sum(f.stat().st_size for f in (tmp_path / node).rglob("*") if f.is_file())
        assert held < written / 4, (node, held, written)
    check_live(cluster)
    for node in NODES:
        cluster.stop(node)
