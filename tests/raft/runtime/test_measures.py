"""What a node measures: each figure follows what is done to it, and only there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.raft.runtime import shelves
from tests.raft.runtime.kit import NODES, until
from tests.raft.runtime.test_slow_disk import BIG, HangingCluster
from tests.raft.storage.kit import Disk
from warren_raft.machine import GroupSpec
from warren_raft.measures import Histogram
from warren_raft.runtime import loop as loop_module
from warren_raft.runtime.loop import Loop

HANG_S = 0.25


def above(histogram: Histogram, bound: float) -> int:
    """The number of observations above a bound."""
    return sum(histogram.counts[histogram.bounds.index(bound) + 1 :])


def test_a_value_at_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.1, 9.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2]
    assert histogram.total == pytest.approx(16.1)


def test_syncs_of_a_hanging_disk_and_commits_behind_it(tmp_path: Path) -> None:
    cluster = HangingCluster(tmp_path, suspect_after_ms=60_000)
    leader, slow = cluster.hosts["a"], cluster.hosts["b"]
    before = {name: host.measures() for name, host in cluster.hosts.items()}
    commits, syncs = sum(before["a"].commits.counts), above(before["b"].syncs, HANG_S)
    bytes_before, records_before = before["a"].sync_bytes.total, before["a"].sync_records.total
    assert commits > 0 and not syncs and not above(before["a"].commits, HANG_S)
    for node in "b", "c":
        cluster.files[node].hang()
    index = leader.propose(1, BIG)
    cluster.run_for(4 * HANG_S)
    assert leader.applied_index(1) < index and sum(leader.measures().commits.counts) == commits
    assert leader.measures().backlog_bytes == 0 < slow.measures().backlog_bytes
    for node in "b", "c":
        cluster.files[node].hang(False)
    cluster.until(lambda: slow.applied_index(1) >= index and not slow.measures().backlog_bytes)
    assert above(slow.measures().syncs, HANG_S) == 1, "the sync that hung"
    assert not above(leader.measures().syncs, HANG_S), "the leader's own disk is quick"
    assert above(leader.measures().commits, HANG_S) == 1
    assert sum(slow.measures().commits.counts) == 0, "it leads nothing"
    assert leader.measures().sync_bytes.total >= bytes_before + len(BIG)
    assert leader.measures().sync_records.total >= records_before + 1
    assert sum(leader.measures().applies.counts) > 0
    cluster.close()


def test_elections_and_leader_changes_and_the_conditions_of_peers(tmp_path: Path) -> None:
    cluster = HangingCluster(tmp_path, suspect_after_ms=60_000)
    left = ("b", "c")
    begun = {node: cluster.hosts[node].measures() for node in left}
    assert begun["b"].peers == {"connected": 2, "suspected": 0, "connecting": 0}
    won = sum(one.elections_won for one in begun.values())
    assert cluster.hosts["a"].measures().elections_won >= 1, "a leads"
    cluster.kill("a")
    cluster.until(lambda: cluster.leader(1) is not None)
    leader = cluster.await_leader(1).node_id
    cluster.until(lambda: all(h.leader(1) == leader for h in cluster.hosts.values()))
    now = {node: cluster.hosts[node].measures() for node in left}
    assert sum(one.elections_won for one in now.values()) == won + 1
    assert now[leader].elections > begun[leader].elections
    for node in left:
        assert now[node].leader_changes == begun[node].leader_changes + 1
        assert now[node].peers == {"connected": 1, "suspected": 1, "connecting": 0}
    cluster.close()


def test_snapshots_that_are_sent_and_installed_and_what_compaction_does(tmp_path: Path) -> None:
    cluster, away, _ = shelves.left_behind(tmp_path)
    leader = cluster.hosts[shelves.leader(cluster)]
    found = leader.measures()
    assert found.snapshots > 0 and found.compactions > 0 and found.snapshots_sent == 0
    assert found.wal_files > 0 < found.wal_bytes
    assert 0 < found.memtable_bytes <= found.memtable_bytes_max
    back = cluster.start(away)
    back.start_group(GroupSpec(shelves.GROUP, NODES), shelves.Shelf())
    until(cluster.loop, lambda: shelves.same(cluster))
    assert leader.measures().snapshots_sent >= 1
    assert back.measures().snapshots_installed == 1
    until(cluster.loop, lambda: not back.measures().receiving)
    shelves.stop(cluster)


def test_the_files_of_the_log_are_counted_as_they_are(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=20_000)
    disk.write_apart(1, range(1, 20), bytes(5_000))
    host = SimpleNamespace(_logs=disk.store)
    assert len(host._logs.log_files.use.live) == len(list(tmp_path.glob("wal/*.wal")))
    disk.close()


class HandTime:
    """Both clocks of a loop, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ms(self) -> int:
        return int(self.now_s * 1000)

    def epoch_ms(self) -> int:
        return int(self.now_s * 1000)


def test_a_long_turn_makes_a_late_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandTime()
    monkeypatch.setattr(loop_module, "time", clock)
    loop = Loop(clock)

    def hold() -> None:
        clock.now_s += 0.2

    loop.call_soon(hold)
    loop.call_later(50, lambda: None)
    loop.call_later(60, lambda: None)
    loop.run_turn(0)
    assert above(loop.turns, 0.1) == 1 and not above(loop.turns, 0.25)
    assert not sum(loop.lags.counts), "nothing was due when the turn began"
    loop.run_turn(0)
    assert sum(loop.lags.counts) == 1 and loop.lags.total == pytest.approx(0.15)
    assert sum(loop.turns.counts) == 2 and loop.turns.total == pytest.approx(0.2)
    loop.close()
