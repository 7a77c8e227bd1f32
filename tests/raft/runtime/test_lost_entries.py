"""An entry that no member has any more delays only what needs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.raft.runtime.kit import NODES, Cluster, until
from tests.raft.runtime.shelves import (
    GROUP,
    Shelf,
    begin,
    check_after_restart,
    compacted,
    damage_entries,
    first_index,
    follower_with_a_damaged_entry,
    leader,
    read_when_healed,
    same,
    sealed_live,
    stop,
    store_of,
    write,
)
from warren_raft.machine import GroupSpec
from warren_raft.messages import EntryIs
from warren_raft.runtime import repair
from warren_raft.runtime.disk_backpressure import DiskBackpressure
from warren_raft.runtime.host import Host
from warren_raft.runtime.snapshots import Transfers

MANY = 10**9


def snapshot_after(host: Host, entries: int) -> None:
    """Have that host take a snapshot by itself only after so many entries."""
    host._snapshot_policy._config = replace(
        host._snapshot_policy._config, snapshot_entries_min=entries
    )


def one_is_behind(tmp_path: Path) -> tuple[Cluster, str, str, str, int]:
    """The leader holds its whole log; another member dropped it; one is down, and lacks a half.

    returns  cluster, leader, the other member, the member that is down, its last entry
    """
    cluster = begin(tmp_path)
    name = leader(cluster)
    other, away = (node for node in NODES if node != name)
    for host in cluster.hosts.values():
        snapshot_after(host, MANY)
    write(cluster, 0, 200)
    until(cluster.loop, lambda: same(cluster))
    end = cluster.hosts[away].applied_index(GROUP)
    cluster.stop(away)
    snapshot_after(cluster.hosts[other], 1)
    write(cluster, 200, 600)
    until(cluster.loop, lambda: same(cluster) and first_index(cluster, other) > end + 100)
    # A compaction under way would copy what is damaged next as it was.
    until(cluster.loop, lambda: not any(h._logs.compactor.busy for h in cluster.hosts.values()))
    assert leader(cluster) == name and first_index(cluster, name) == 1
    return cluster, name, other, away, end


def come_back(cluster: Cluster, away: str) -> None:
    """Start the member that was down; wait until its peers reach it."""
    cluster.start(away).start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: all(not h.suspected(away) for h in cluster.hosts.values()))


def test_a_leader_drops_unreadable_entries_that_it_kept_for_a_member(tmp_path: Path) -> None:
    cluster, name, _, away, end = one_is_behind(tmp_path)
    host = cluster.hosts[name]
    live = host.state(GROUP)["live"]
    damage_entries(host, [next(index for index in range(end + 1, end + 40) if index not in live)])
    come_back(cluster, away)
    until(cluster.loop, lambda: same(cluster))
    assert leader(cluster) == name
    assert host.repair.healed == 0
    assert first_index(cluster, name) > end and first_index(cluster, away) > end
    until(cluster.loop, lambda: not host.repair.wanted and not host._logs.compactor.damaged)
    write(cluster, 600, 700)
    until(cluster.loop, lambda: same(cluster))
    check_after_restart(cluster)


def test_a_snapshot_that_refers_to_what_is_lost_gives_way_to_one_that_does_not(
    tmp_path: Path,
) -> None:
    cluster, name, other, away, end = one_is_behind(tmp_path)
    host = cluster.hosts[name]
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    snapshot_after(host, 1)
    write(cluster, 600, 640)
    until(cluster.loop, lambda: first_index(cluster, name) > end + 100)
    snapshot_after(host, MANY)
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    wanted = next(index for index in sealed_live(host) if index > end)
    # Nothing refers to it any more, but for the leader's snapshot.
    index = host.propose(GROUP, b"thin 1000000")
    until(cluster.loop, lambda: host.applied_index(GROUP) >= index)
    write(cluster, 640, 1000)
    gone = store_of(cluster.hosts[other]).log
    until(cluster.loop, lambda: gone.first > wanted and wanted not in gone.live_places.indexes())
    assert wanted in store_of(host).log.live_places.indexes()
    damage_entries(host, [wanted])
    come_back(cluster, away)
    until(cluster.loop, lambda: same(cluster))
    assert leader(cluster) == name
    write(cluster, 1000, 1100)
    until(cluster.loop, lambda: same(cluster))
    check_after_restart(cluster)


def test_a_live_entry_that_is_lost_delays_only_the_members_that_need_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "REPAIR_RETRY_MS", 100)
    caplog.set_level(logging.WARNING, "warren.raft")
    cluster, name, other, away, end = one_is_behind(tmp_path)
    host = cluster.hosts[name]
    wanted = next(index for index in host.state(GROUP)["live"] if index > end)
    for each in (host, cluster.hosts[other]):
        damage_entries(each, [wanted])
        snapshot_after(each, 1)
    host._groups[GROUP]._retained_bytes_max = 0  # so that the member behind needs a snapshot
    come_back(cluster, away)
    behind = cluster.hosts[away]
    waiting: list[bool] = []
    with pytest.raises(repair.EntryDamaged):
        host.read_entry(GROUP, wanted)
    host.repair.when(GROUP, wanted, lambda: waiting.append(True))

    def lost() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelno == logging.CRITICAL]

    until(cluster.loop, lambda: lost())
    write(cluster, 600, 800)
    write(cluster, 800, 1000)
    # Snapshots are taken, files are rewritten, although a member waits for one.
    until(cluster.loop, lambda: first_index(cluster, name) > 650)
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    cycles, asked = host._logs.compactor.cycles, len(caplog.records)
    oldest = min(host._logs.log_files.use.live)
    write(cluster, 1000, 1600)
    until(cluster.loop, lambda: min(host._logs.log_files.use.live) > oldest)
    assert host._logs.compactor.cycles > cycles
    assert behind.applied_index(GROUP) < wanted
    assert wanted in host.state(GROUP)["live"] and not waiting
    found = [line for line in lost() if line.startswith(f"{name}: ")]
    assert len(found) == 1 and f"entry {wanted} of group {GROUP} is lost" in found[0], found
    assert len(caplog.records) < asked + 10
    # It is no longer live: no member needs it.
    index = host.propose(GROUP, b"thin 1000000")
    until(cluster.loop, lambda: host.applied_index(GROUP) >= index)
    until(cluster.loop, lambda: same(cluster) and waiting)
    until(cluster.loop, lambda: not host.repair.wanted and not host._logs.compactor.damaged)
    assert not host._logs.compactor.left
    write(cluster, 1600, 2100)
    until(cluster.loop, lambda: same(cluster))
    check_after_restart(cluster)


def mute(host: Host) -> None:
    """Let a host stay connected and never answer whether it has an entry."""
    host.repair._answer = lambda group, message: None


def test_a_member_that_never_answers_does_not_keep_the_next_from_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "REPAIR_RETRY_MS", 200)
    cluster = compacted(tmp_path)
    name = leader(cluster)
    mute(cluster.hosts[name])  # it is asked first
    host = next(h for h in cluster.hosts.values() if h.node_id != name)
    wanted = sealed_live(host)[0]
    right = host.read_entry(GROUP, wanted).data
    damage_entries(host, [wanted])
    assert read_when_healed(cluster, host, wanted) == right
    stop(cluster)


def test_an_answer_that_comes_when_another_is_asked_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "REPAIR_RETRY_MS", 100)
    cluster = compacted(tmp_path)
    host = cluster.hosts[leader(cluster)]
    slow, deaf = (h for h in cluster.hosts.values() if h is not host)
    mute(deaf)
    answer: Callable[..., None] = slow.repair._answer
    slow.repair._answer = lambda group, message: slow._loop.call_later(
        250, lambda: answer(group, message)
    )
    wanted = sealed_live(host)[0]
    damage_entries(host, [wanted])
    assert read_when_healed(cluster, host, wanted)
    stop(cluster)


def test_lost_entries_do_not_keep_others_from_being_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "REPAIRS_UNDER_WAY_MAX", 2)
    monkeypatch.setattr(repair, "REPAIR_RETRY_MS", 100)
    cluster = compacted(tmp_path)
    host = cluster.hosts[leader(cluster)]
    *lost, wanted = sealed_live(host)[:6]
    for each in cluster.hosts.values():
        found = each.repair._find

        def find(group, index, term, found=found):  # type: ignore[no-untyped-def]
            return None if index in lost else found(group, index, term)

        each.repair._find = find
    damage_entries(host, [*lost, wanted])
    for index in lost:
        with pytest.raises(repair.EntryDamaged):
            host.read_entry(GROUP, index)
    assert read_when_healed(cluster, host, wanted)
    assert host.repair.wanted == len(lost)
    stop(cluster)


def test_a_snapshot_waits_for_entries_that_wait_for_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was handed out before would be applied to the state that the snapshot brings."""
    cluster, away = follower_with_a_damaged_entry(tmp_path)
    host = cluster.start(away)
    held: list = []
    ripe = DiskBackpressure.ripe

    def hold(pace: DiskBackpressure, to_apply: list) -> list:
        if pace is not host._backpressure:
            return ripe(pace, to_apply)
        held.extend(to_apply)
        return []

    monkeypatch.setattr(DiskBackpressure, "ripe", hold)
    ended: list[int] = []
    end = Transfers._end

    def count(transfers: Transfers, group) -> None:  # type: ignore[no-untyped-def]
        if transfers is host._transfers:
            ended.append(group.node.log.applying)
        end(transfers, group)

    monkeypatch.setattr(Transfers, "_end", count)
    host.start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: ended)
    assert ended[0] == 4 and host.applied_index(GROUP) == 0
    assert store_of(host).snapshot_index == 0 and first_index(cluster, away) == 1
    monkeypatch.setattr(DiskBackpressure, "ripe", ripe)
    for group, ready in held:
        host._ready_loop._apply(group, ready)
    until(cluster.loop, lambda: same(cluster))
    assert first_index(cluster, away) > 5
    write(cluster, 600, 700)
    until(cluster.loop, lambda: same(cluster))
    check_after_restart(cluster)


def test_only_the_member_that_was_asked_is_believed(tmp_path: Path) -> None:
    cluster = compacted(tmp_path)
    host = cluster.hosts[leader(cluster)]
    asked: list[str] = []
    host.repair._send = lambda message: asked.append(message.to)
    wanted = sealed_live(host)[0]
    entry = host.read_entry(GROUP, wanted)
    damage_entries(host, [wanted])
    with pytest.raises(repair.EntryDamaged):
        host.read_entry(GROUP, wanted)
    (first,) = asked
    (second,) = (node for node in NODES if node not in (first, host.node_id))
    fits = (wanted, entry.term, entry.kind, entry.time_ms, entry.data)
    host.repair.take(EntryIs(GROUP, second, host.node_id, 1, *fits))
    assert host.repair.awaits(GROUP, wanted)
    host.repair.take(EntryIs(GROUP, first, host.node_id, 1, *fits))
    assert host.read_entry(GROUP, wanted).data == entry.data
    stop(cluster)
