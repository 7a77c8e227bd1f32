"""Clusters with a machine that keeps entries live, and damage done to such entries on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from tests.raft.runtime.kit import NODES, Cluster, until
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime.host import Host
from warren_raft.storage.errors import EntryDamaged

GROUP = 5


class Shelf:
    """A machine with a snapshot that refers to entries.

    `put` keeps its own entry live; `thin N` keeps of the live entries only those with an index
    that N divides.
    """

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

    def form(self, state: object) -> int:
        return 1

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
    """Wait for a leader; return its name."""
    until(cluster.loop, lambda: any(h.is_leader(GROUP) for h in cluster.hosts.values()))
    return next(name for name, host in cluster.hosts.items() if host.is_leader(GROUP))


def body(at: int) -> bytes:
    return b"put %d " % at + bytes([at % 251]) * 700


def write(cluster: Cluster, first: int, last: int) -> None:
    """Put first … last - 1; after every 20 of them keep about one in 17 live."""
    for at in range(first, last, 20):
        host = cluster.hosts[leader(cluster)]
        for one in range(at, at + 20):
            host.propose(GROUP, body(one))
        index = host.propose(GROUP, b"thin 17")
        until(cluster.loop, lambda index=index, host=host: host.applied_index(GROUP) >= index)


def same(cluster: Cluster) -> bool:
    """Return whether all members applied the same entries and hold the same state."""
    applied = {host.applied_index(GROUP) for host in cluster.hosts.values()}
    states = [host.state(GROUP) for host in cluster.hosts.values()]
    return len(applied) == 1 and all(state == states[0] for state in states)


def writes_again(cluster: Cluster) -> None:
    """More entries after those that were lost or damaged reach all members."""
    write(cluster, 600, 700)
    until(cluster.loop, lambda: same(cluster))


def check_live(cluster: Cluster) -> int:
    """Read every live entry on every member, check the logs; return the number of live entries."""
    for host in cluster.hosts.values():
        for index in host.state(GROUP)["live"]:
            assert host.read_entry(GROUP, index).data.startswith(b"put "), index
        host._groups[GROUP].store.log.check()
        host._groups[GROUP].node.check()
    return len(host.state(GROUP)["live"])


def first_index(cluster: Cluster, node: str) -> int:
    return cluster.hosts[node]._groups[GROUP].store.first_index()


def stop(cluster: Cluster) -> None:
    """Stop every member that runs."""
    for node in NODES:
        if node in cluster.hosts:
            cluster.stop(node)


def store_of(host: Host):  # type: ignore[no-untyped-def]
    return host._groups[GROUP].store


def damage_entries(host: Host, indexes: list[int], at: int = 60) -> set[Path]:
    """Flip a bit in the record of each entry, and drop it from memory; return the files touched.

    Not while files are rewritten: the new one would hold what is damaged in the old one.
    """
    logs, store = host._logs, store_of(host)
    until(host._loop, lambda: not logs.compactor.busy)
    touched = set()
    for index in indexes:
        store.log.forget(index)
        place = store.log.place(index)
        path = logs.log_files.path_of(place.file)
        with path.open("r+b") as file:  # one byte: the log may be writing to the file
            file.seek(place.offset + at % (56 + place.length))
            (byte,) = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes((byte ^ 16,)))
        touched.add(path)
    return touched


def sealed_live(host: Host) -> list[int]:
    """Return the live entries that lie in files of the log which are complete."""
    store = store_of(host)
    newest = host._logs.wal.current_file
    return [i for i in host.state(GROUP)["live"] if store.log.place(i).file != newest]


def read_when_healed(cluster: Cluster, host: Host, index: int) -> bytes:
    """Read a damaged entry as soon as it is repaired."""
    found: list[bytes] = []

    def read() -> None:
        try:
            found.append(host.read_entry(GROUP, index).data)
        except EntryDamaged:
            host.repair.when(GROUP, index, read)

    read()
    until(cluster.loop, lambda: found)
    return found[0]


def compacted(root: Path) -> Cluster:
    """Start three members, apply 600 commands, wait until the leader's log begins above 100."""
    cluster = begin(root)
    write(cluster, 0, 600)
    until(cluster.loop, lambda: first_index(cluster, leader(cluster)) > 100)
    until(cluster.loop, lambda: same(cluster))
    return cluster


def left_behind(root: Path) -> tuple[Cluster, str, int]:
    """Stop a follower and compact the leader's log far above the follower's last entry.

    returns  cluster, the follower's name, the last index that it applied
    """
    cluster = begin(root)
    write(cluster, 0, 200)
    until(cluster.loop, lambda: same(cluster))
    away = next(name for name in NODES if name != leader(cluster))
    end = cluster.hosts[away].applied_index(GROUP)
    cluster.stop(away)
    until(cluster.loop, lambda: all(h.suspected(away) for h in cluster.hosts.values()))
    write(cluster, 200, 1200)
    until(cluster.loop, lambda: first_index(cluster, leader(cluster)) > end + 100)
    return cluster, away, end


def restart(cluster: Cluster) -> None:
    """Stop every member, start them from their disks, wait until their states are equal."""
    stop(cluster)
    for node in NODES:
        cluster.start(node).start_group(GroupSpec(GROUP, NODES), Shelf())
    leader(cluster)
    until(cluster.loop, lambda: same(cluster))


def restart_all_but(cluster: Cluster, away: str) -> None:
    """Stop and start the members that run, while that one is down."""
    for node in NODES:
        if node != away:
            cluster.stop(node)
            cluster.start(node).start_group(GroupSpec(GROUP, NODES), Shelf())
    leader(cluster)


def end_with_everything_live(cluster: Cluster) -> None:
    """Check that every live entry is readable on every member, and stop."""
    assert check_live(cluster) > 20
    stop(cluster)


def check_after_restart(cluster: Cluster) -> None:
    """Check that every live entry is on every disk: restart, read them, and stop."""
    restart(cluster)
    end_with_everything_live(cluster)


def follower_with_a_damaged_entry(tmp_path: Path) -> tuple[Cluster, str]:
    """Stop a member without a snapshot and with a damaged entry 5.

    The others no longer need that entry, and the member has not fallen behind them.
    """
    many = 10**9
    cluster = Cluster(
        tmp_path, wal_file_bytes=60_000, memtable_bytes=30_000, snapshot_entries_min=many
    )
    for host in cluster.hosts.values():
        host.start_group(GroupSpec(GROUP, NODES), Shelf())
    write(cluster, 0, 300)
    until(cluster.loop, lambda: same(cluster))
    away = next(name for name in NODES if name != leader(cluster))
    store = store_of(cluster.hosts[away])
    until(
        cluster.loop, lambda: store.log.place(5).file in cluster.hosts[away]._logs.log_files.paths
    )
    del cluster.settings["snapshot_entries_min"]
    for name in NODES:
        if name != away:
            cluster.stop(name)
            cluster.start(name).start_group(GroupSpec(GROUP, NODES), Shelf())
    write(cluster, 300, 600)
    others = [name for name in NODES if name != away]
    until(cluster.loop, lambda: all(first_index(cluster, name) > 100 for name in others))
    until(cluster.loop, lambda: same(cluster))
    assert all(cluster.hosts[name].applied_index(GROUP) > 600 for name in NODES)
    assert store.snapshot_index == 0
    # It may have been elected after the restarts, or have applied the last entry before its own
    # disk has it: then it would need a snapshot, and entry 5 would never be read.
    if leader(cluster) == away:
        cluster.hosts[away].transfer(GROUP, others[0])
        until(cluster.loop, lambda: cluster.hosts[others[0]].is_leader(GROUP))
    lead = cluster.hosts[leader(cluster)]._groups[GROUP].node
    assert lead.leadership is not None
    known = lead.leadership.progress[away]
    until(cluster.loop, lambda: known.match == lead.log.last and same(cluster))
    damage_entries(cluster.hosts[away], [5])
    cluster.stop(away)
    return cluster, away
