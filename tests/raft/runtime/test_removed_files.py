"""Files of the log that are removed by hand under a running node: it continues, and is repaired."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.raft.runtime.kit import NODES, Cluster, until
from tests.raft.runtime.shelves import (
    GROUP,
    check_after_restart,
    check_live,
    compacted,
    leader,
    same,
    sealed_live,
    store_of,
    write,
)
from warren_raft.runtime.host import Host
from warren_raft.runtime.repair import LINES_PER_FILE_MAX
from warren_raft.runtime.scrub import Scrub
from warren_raft.storage import compaction
from warren_raft.storage.catalog import Segment
from warren_raft.storage.errors import EntryDamaged
from warren_raft.storage.manifest import NAME


def at_rest(cluster: Cluster, host: Host) -> None:
    """No file is being written."""
    until(cluster.loop, lambda: same(cluster) and not host._logs.compactor.busy)


def held(host: Host, file: int) -> list[int]:
    """The entries that the node reads from that file."""
    log = store_of(host).log
    return [index for index in sealed_live(host) if log.place(index).file == file]


def fullest(host: Host) -> Segment:
    """The segment with the most live entries."""
    return max(host._logs.log_files.segments, key=lambda one: len(held(host, one.id)))


def forget_memory(host: Host) -> None:
    """Have entries read from the disk again, from files that are opened again."""
    for index in sealed_live(host):
        store_of(host).log.forget(index)
    host._logs.log_files.close()


@pytest.mark.parametrize("leads", [True, False])
def test_a_segment_that_was_removed_is_written_again(
    tmp_path: Path, leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the node when the segment was to be rewritten."""
    caplog.set_level(logging.WARNING, "warren.raft")
    cluster = compacted(tmp_path)
    name = leader(cluster)
    host = cluster.hosts[name if leads else next(node for node in NODES if node != name)]
    at_rest(cluster, host)
    gone = fullest(host)
    lost = held(host, gone.id)
    assert lost
    forget_memory(host)
    gone.data.unlink()
    # A quarter of it stays live, and it is rewritten when more than half is dead.
    index = cluster.hosts[leader(cluster)].propose(GROUP, b"thin 68")
    until(cluster.loop, lambda: host.applied_index(GROUP) >= index)
    write(cluster, 600, 1000)
    until(cluster.loop, lambda: gone not in host._logs.log_files.segments)
    until(cluster.loop, lambda: not host.repair.wanted and not host._logs.compactor.damaged)
    assert any(str(gone.data) in line for line in caplog.messages)
    assert check_live(cluster) > 10
    check_after_restart(cluster)


def test_the_scrub_finds_what_was_removed(tmp_path: Path) -> None:
    """A segment, an index, a snapshot and the manifest; none of them is read meanwhile."""
    cluster = compacted(tmp_path)
    host = cluster.hosts[leader(cluster)]
    at_rest(cluster, host)
    logs = host._logs
    written = 600
    while len(logs.log_files.segments) < 2:  # on a busy machine one cycle may have made one of all
        write(cluster, written, written + 200)
        written += 200
        at_rest(cluster, host)
    gone = fullest(host)
    assert held(host, gone.id)
    other = next(one for one in logs.log_files.segments if one is not gone)
    snapshot = logs.snapshot_path(store_of(host))
    manifest = logs.directory.path / NAME
    removed = [gone.data, other.index, snapshot, manifest]
    forget_memory(host)
    for path in removed:
        path.unlink()
    host._scrub = Scrub(logs, 1 << 30, 10**9, 0)
    host._scrub._next_ms = 0
    until(cluster.loop, lambda: host._scrub.rounds)
    until(cluster.loop, lambda: all(one not in logs.log_files.segments for one in (gone, other)))
    until(cluster.loop, lambda: not (logs.compactor.damaged or logs.compactor.snapshots_damaged))
    until(cluster.loop, lambda: logs.snapshot_path(store_of(host)).exists() and manifest.exists())
    assert host.repair.healed and check_live(cluster) > 20
    check_after_restart(cluster)


def test_a_file_of_the_log_that_was_removed_is_repaired_when_it_is_sealed(tmp_path: Path) -> None:
    cluster = compacted(tmp_path)
    host = cluster.hosts[leader(cluster)]
    at_rest(cluster, host)
    logs = host._logs
    gone = logs.wal.current_file
    last = host.propose(GROUP, b"put " + bytes(700))
    until(cluster.loop, lambda: host.applied_index(GROUP) >= last and same(cluster))
    assert store_of(host).log.place(last).file == gone
    store_of(host).log.forget(last)
    logs.log_files.wal_path(gone).unlink()
    logs.wal.roll()
    write(cluster, 600, 1000)
    until(cluster.loop, lambda: gone not in logs.log_files.use.live)
    until(cluster.loop, lambda: not host.repair.wanted and not logs.compactor.damaged)
    assert check_live(cluster) > 10
    check_after_restart(cluster)


def test_the_log_names_the_first_entries_of_a_file_that_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "warren.raft")
    cluster = compacted(tmp_path)
    host = cluster.hosts[leader(cluster)]
    at_rest(cluster, host)
    gone = fullest(host)
    many = LINES_PER_FILE_MAX + 5
    for number in range(many):
        assert host.repair._names(gone.id) is (number < LINES_PER_FILE_MAX)
    assert sum("not all are named" in line for line in caplog.messages) == 1
    for node in NODES:
        cluster.stop(node)


def test_the_repair_of_a_missing_file_begins_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with many small entries held up the node for as long as all of them took."""
    cluster = compacted(tmp_path)
    name = leader(cluster)
    host = cluster.hosts[next(node for node in NODES if node != name)]
    at_rest(cluster, host)
    logs = host._logs
    gone = fullest(host)
    lost = held(host, gone.id)
    at_once = 3
    assert len(lost) > 2 * at_once
    monkeypatch.setattr(compaction, "REPORTED_AT_ONCE", at_once)
    begun: list[int] = []
    others_have = logs.compactor.others_have

    def counted(damage: EntryDamaged) -> bool:
        begun.append(damage.index)
        return others_have(damage)

    monkeypatch.setattr(logs.compactor, "others_have", counted)
    forget_memory(host)
    gone.data.unlink()
    logs.compactor.damaged.add(gone.id)
    most = 0
    logs.compactor.run([])
    while gone in logs.log_files.segments:
        before = len(begun)
        cluster.loop.run_turn(20)
        most = max(most, len(begun) - before)
    assert set(lost) <= set(begun)
    assert most == at_once
    until(cluster.loop, lambda: not host.repair.wanted and not logs.compactor.damaged)
    assert check_live(cluster) > 10
    check_after_restart(cluster)
