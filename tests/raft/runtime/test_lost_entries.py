"""An entry that no member has any more delays only what needs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.raft.runtime import shelves
from tests.raft.runtime.kit import NODES, Cluster, until
from warren_raft.machine import GroupSpec
from warren_raft.messages import EntryIs
from warren_raft.runtime import repair
from warren_raft.runtime.disk_backpressure import DiskBackpressure
from warren_raft.runtime.host import Host
from warren_raft.runtime.snapshots import Transfers

MANY = 10**9


def snapshot_after(host: Host, entries: int) -> None:
    """Have that host take a snapshot by itself only after so many entries."""
    host._snapshot_policy.config = replace(
        host._snapshot_policy.config, snapshot_entries_min=entries
    )


def one_is_behind(tmp_path: Path) -> tuple[Cluster, str, str, str, int]:
    """The leader holds its whole log; another member dropped it; one is down, and lacks a half.

    returns  cluster, leader, the other member, the member that is down, its last entry
    """
    cluster = shelves.begin(tmp_path)
    name = shelves.leader(cluster)
    other, away = (node for node in NODES if node != name)
    for host in cluster.hosts.values():
        snapshot_after(host, MANY)
    shelves.write(cluster, 0, 200)
    until(cluster.loop, lambda: shelves.same(cluster))
    end = cluster.hosts[away].applied_index(shelves.GROUP)
    cluster.stop(away)
    snapshot_after(cluster.hosts[other], 1)
    shelves.write(cluster, 200, 600)
    until(
        cluster.loop,
        lambda: shelves.same(cluster) and shelves.first_index(cluster, other) > end + 100,
    )
    assert shelves.leader(cluster) == name and shelves.first_index(cluster, name) == 1
    return cluster, name, other, away, end


def come_back(cluster: Cluster, away: str) -> None:
    """Start the member that was down; wait until its peers reach it."""
    cluster.start(away).start_group(GroupSpec(shelves.GROUP, NODES), shelves.Shelf())
    until(cluster.loop, lambda: all(not h.suspected(away) for h in cluster.hosts.values()))


def test_a_leader_drops_unreadable_entries_that_it_kept_for_a_member(tmp_path: Path) -> None:
    cluster, name, _, away, end = one_is_behind(tmp_path)
    host = cluster.hosts[name]
    live = host.state(shelves.GROUP)["live"]
    shelves.damage_entries(
        host, [next(index for index in range(end + 1, end + 40) if index not in live)]
    )
    come_back(cluster, away)
    until(cluster.loop, lambda: shelves.same(cluster))
    assert shelves.leader(cluster) == name
    assert host.repair.healed == 0
    assert shelves.first_index(cluster, name) > end and shelves.first_index(cluster, away) > end
    until(cluster.loop, lambda: not host.repair.wanted and not host._logs.compactor.damaged)
    shelves.writes_again(cluster)
    shelves.check_after_restart(cluster)


def test_a_snapshot_that_refers_to_what_is_lost_gives_way_to_one_that_does_not(
    tmp_path: Path,
) -> None:
    cluster, name, other, away, end = one_is_behind(tmp_path)
    host = cluster.hosts[name]
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    snapshot_after(host, 1)
    shelves.write(cluster, 600, 640)
    until(cluster.loop, lambda: shelves.first_index(cluster, name) > end + 100)
    snapshot_after(host, MANY)
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    wanted = next(index for index in shelves.sealed_live(host) if index > end)
    # Nothing refers to it any more, but for the leader's snapshot.
    index = host.propose(shelves.GROUP, b"thin 1000000")
    until(cluster.loop, lambda: host.applied_index(shelves.GROUP) >= index)
    shelves.write(cluster, 640, 1000)
    gone = shelves.store_of(cluster.hosts[other]).log
    until(cluster.loop, lambda: gone.first > wanted and wanted not in gone.live_places.indexes())
    assert wanted in shelves.store_of(host).log.live_places.indexes()
    shelves.damage_entries(host, [wanted])
    come_back(cluster, away)
    until(cluster.loop, lambda: shelves.same(cluster))
    assert shelves.leader(cluster) == name
    shelves.write(cluster, 1000, 1100)
    until(cluster.loop, lambda: shelves.same(cluster))
    shelves.check_after_restart(cluster)


def test_a_live_entry_that_is_lost_delays_only_the_members_that_need_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "REPAIR_RETRY_MS", 100)
    caplog.set_level(logging.WARNING, "warren.raft")
    cluster, name, other, away, end = one_is_behind(tmp_path)
    host = cluster.hosts[name]
    wanted = next(index for index in host.state(shelves.GROUP)["live"] if index > end)
    both = (host, cluster.hosts[other])
    # In the same turn: a rewriting that begins between asks for what only one has lost by then.
    until(cluster.loop, lambda: not any(each._logs.compactor.busy for each in both))
    for each in both:
        shelves.damage_entries(each, [wanted])
    for each in both:
        snapshot_after(each, 1)
    host._groups[
        shelves.GROUP
    ]._retained_bytes_max = 0  # so that the member behind needs a snapshot
    come_back(cluster, away)
    behind = cluster.hosts[away]
    waiting: list[bool] = []
    with pytest.raises(repair.EntryDamaged):
        host.read_entry(shelves.GROUP, wanted)
    host.repair.when(shelves.GROUP, wanted, lambda: waiting.append(True))

    def lost() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelno == logging.CRITICAL]

    until(cluster.loop, lambda: lost())
    shelves.write(cluster, 600, 800)
    shelves.write(cluster, 800, 1000)
    # Snapshots are taken, files are rewritten, although a member waits for one.
    until(cluster.loop, lambda: shelves.first_index(cluster, name) > 650)
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    cycles, asked = host._logs.compactor.cycles, len(caplog.records)
    oldest = host._logs.log_files.first_file
    shelves.write(cluster, 1000, 1600)
    until(cluster.loop, lambda: host._logs.log_files.first_file > oldest)
    until(cluster.loop, lambda: host._logs.compactor.cycles > cycles)  # the cycle of that ends
    assert behind.applied_index(shelves.GROUP) < wanted
    assert wanted in host.state(shelves.GROUP)["live"] and not waiting
    found = [line for line in lost() if line.startswith(f"{name}: ")]
    assert len(found) == 1 and f"entry {wanted} of group {shelves.GROUP} is lost" in found[0], found
    assert len(caplog.records) < asked + 10
    # It is no longer live: no member needs it.
    index = host.propose(shelves.GROUP, b"thin 1000000")
    until(cluster.loop, lambda: host.applied_index(shelves.GROUP) >= index)
    until(cluster.loop, lambda: shelves.same(cluster) and waiting)
    until(cluster.loop, lambda: not host.repair.wanted and not host._logs.compactor.damaged)
    assert not host._logs.compactor.left
    shelves.write(cluster, 1600, 2100)
    until(cluster.loop, lambda: shelves.same(cluster))
    shelves.check_after_restart(cluster)


def mute(host: Host) -> None:
    """Let a host stay connected and never answer whether it has an entry."""
    host.repair._answer = lambda group, message: None  # type: ignore[method-assign]


def test_a_member_that_never_answers_does_not_keep_the_next_from_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "REPAIR_RETRY_MS", 200)
    cluster = shelves.compacted(tmp_path)
    name = shelves.leader(cluster)
    mute(cluster.hosts[name])  # it is asked first
    host = next(h for h in cluster.hosts.values() if h.node_id != name)
    wanted = shelves.sealed_live(host)[0]
    right = host.read_entry(shelves.GROUP, wanted).data
    shelves.damage_entries(host, [wanted])
    assert shelves.read_when_healed(cluster, host, wanted) == right
    shelves.stop(cluster)


def test_an_answer_that_comes_when_another_is_asked_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "REPAIR_RETRY_MS", 100)
    cluster = shelves.compacted(tmp_path)
    host = cluster.hosts[shelves.leader(cluster)]
    slow, deaf = (h for h in cluster.hosts.values() if h is not host)
    mute(deaf)
    answer: Callable[..., None] = slow.repair._answer

    def late(group: Any, message: Any) -> None:
        slow._loop.call_later(250, lambda: answer(group, message))

    slow.repair._answer = late  # type: ignore[method-assign]
    wanted = shelves.sealed_live(host)[0]
    shelves.damage_entries(host, [wanted])
    assert shelves.read_when_healed(cluster, host, wanted)
    shelves.stop(cluster)


def test_lost_entries_do_not_keep_others_from_being_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "REPAIRS_UNDER_WAY_MAX", 2)
    monkeypatch.setattr(repair, "REPAIR_RETRY_MS", 100)
    cluster = shelves.compacted(tmp_path)
    host = cluster.hosts[shelves.leader(cluster)]
    *lost, wanted = shelves.sealed_live(host)[:6]
    for each in cluster.hosts.values():
        found = each.repair._find

        def find(group, index, term, found=found):  # type: ignore[no-untyped-def]
            return None if index in lost else found(group, index, term)

        each.repair._find = find  # type: ignore[method-assign]
    shelves.damage_entries(host, [*lost, wanted])
    for index in lost:
        with pytest.raises(repair.EntryDamaged):
            host.read_entry(shelves.GROUP, index)
    assert shelves.read_when_healed(cluster, host, wanted)
    assert host.repair.wanted == len(lost)
    shelves.stop(cluster)


def test_an_entry_that_a_rewrite_has_read_before_its_damage_is_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = shelves.compacted(tmp_path)
    host = cluster.hosts[shelves.leader(cluster)]
    wanted = shelves.sealed_live(host)[0]
    shelves.damage_entries(host, [wanted])
    with pytest.raises(repair.EntryDamaged):
        host.read_entry(shelves.GROUP, wanted)
    place = shelves.store_of(host).log.place(wanted)
    host._lost.report(host._groups[shelves.GROUP], wanted)
    moved = place._replace(file=place.file + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(shelves.store_of(host).log), "place", lambda log, index: moved)
        host._lost.beat()
    assert not [r for r in caplog.records if r.levelno == logging.CRITICAL]
    host._lost.report(host._groups[shelves.GROUP], wanted)
    host._lost.beat()
    assert [r for r in caplog.records if r.levelno == logging.CRITICAL]
    shelves.stop(cluster)


def test_a_snapshot_waits_for_entries_that_wait_for_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was handed out before would be applied to the state that the snapshot brings."""
    cluster, away = shelves.follower_with_a_damaged_entry(tmp_path)
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
    host.start_group(GroupSpec(shelves.GROUP, NODES), shelves.Shelf())
    until(cluster.loop, lambda: ended)
    assert ended[0] == 4 and host.applied_index(shelves.GROUP) == 0
    assert shelves.store_of(host).snapshot_index == 0 and shelves.first_index(cluster, away) == 1
    monkeypatch.setattr(DiskBackpressure, "ripe", ripe)
    for group, ready in held:
        host._ready_loop._apply(group, ready)
    until(cluster.loop, lambda: shelves.same(cluster))
    assert shelves.first_index(cluster, away) > 5
    shelves.writes_again(cluster)
    shelves.check_after_restart(cluster)


def test_only_the_member_that_was_asked_is_believed(tmp_path: Path) -> None:
    cluster = shelves.compacted(tmp_path)
    host = cluster.hosts[shelves.leader(cluster)]
    asked: list[str] = []
    host.repair.send = lambda message: asked.append(message.to)
    wanted = shelves.sealed_live(host)[0]
    entry = host.read_entry(shelves.GROUP, wanted)
    shelves.damage_entries(host, [wanted])
    with pytest.raises(repair.EntryDamaged):
        host.read_entry(shelves.GROUP, wanted)
    (first,) = asked
    (second,) = (node for node in NODES if node not in (first, host.node_id))
    fits = (wanted, entry.term, entry.kind, entry.time_ms, entry.data)
    host.repair.take(EntryIs(shelves.GROUP, second, host.node_id, 1, *fits))
    assert host.repair.awaits(shelves.GROUP, wanted)
    host.repair.take(EntryIs(shelves.GROUP, first, host.node_id, 1, *fits))
    assert host.read_entry(shelves.GROUP, wanted).data == entry.data
    shelves.stop(cluster)
