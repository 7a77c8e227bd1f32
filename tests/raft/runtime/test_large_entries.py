"""A group with few entries, which are large: what they have freed is given back as they go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.disk_use import bytes_held
from tests.raft.runtime.kit import Cluster
from tests.raft.runtime.shelves import GROUP, Shelf
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime import snapshot_policy

LARGE = b"put " + bytes(20_000)
PUT = 40
DEAD_BYTES_MANY = 400_000


class Counting(Shelf):
    """Counts how often it was asked for its live entries.

    `drop N` ends the oldest N of them; `free N` does, and says so.
    """

    def __init__(self) -> None:
        self.asked = 0

    def apply(self, meta: Meta, command: bytes, state: dict[str, Any]) -> Applied:
        done = super().apply(meta, command, state)
        if command.startswith((b"drop ", b"free ")):
            ended = int(command[5:])
            del state["live"][:ended]
            if command.startswith(b"free "):
                done = Applied(done.reply, frees=ended * len(LARGE))
        return done

    def live_indexes(self, state: dict[str, list[int]]) -> tuple[int, ...]:
        self.asked += 1
        return super().live_indexes(state)


class Node:
    """A node with one group; the policy looks only when it is asked to."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, wal_file_bytes: int) -> None:
        monkeypatch.setattr(snapshot_policy, "DEAD_BYTES_MANY", DEAD_BYTES_MANY)
        for name in ("LOOK_EVERY_MS", "LOOK_FAST_MS"):
            monkeypatch.setattr(snapshot_policy, name, 1 << 60)
        self.cluster = Cluster(root, ("a",), wal_file_bytes=wal_file_bytes)
        self.host = self.cluster.hosts["a"]
        self.machine = Counting()
        self.host.start_group(GroupSpec(GROUP, ("a",)), self.machine)
        self.cluster.until(lambda: self.host.is_leader(GROUP))
        self.policy, self.store = self.host._snapshot_policy, self.host._logs
        self.rests()
        self.policy._closed = False  # there are no files of an earlier process

    def rests(self) -> None:
        """Wait until nothing is asked for or under way."""
        self.cluster.until(lambda: not self.policy._asked and not self.store.compactor.busy)

    def propose(self, *commands: bytes) -> int:
        """Wait until all of them are applied and on disk; return the last one's index."""
        for command in commands:
            last = self.host.propose(GROUP, command)
        self.cluster.until(
            lambda: self.host.applied_index(GROUP) >= last and self.store.wal.idle,
        )
        return last

    def look(self, closed: bool) -> int:
        """Have the policy look, as at the end of a file or between; return the snapshot's index."""
        if closed:
            self.store.wal.roll()
            self.policy.file_closed()
        else:
            self.policy._ask()
        self.rests()
        return self.store.groups[GROUP].snapshot_index


@pytest.mark.parametrize("closed", [False, True])
def test_one_entry_that_frees_much_is_worth_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """A queue that had given all of 480 MB to Spark kept it until 64 more entries were applied."""
    node = Node(tmp_path, monkeypatch, wal_file_bytes=2 << 20)
    node.propose(*[LARGE] * PUT)
    assert node.look(closed) == 0, "nothing is dead"
    assert bytes_held(tmp_path) > PUT * len(LARGE)
    last = node.propose(b"thin 1000000")
    assert node.look(closed) == last
    node.cluster.until(lambda: bytes_held(tmp_path) < DEAD_BYTES_MANY)
    node.cluster.close()


def with_backlog(node: Node) -> int:
    """Have the group hold a megabyte of entries, and 441 KB of it be dead: less than half."""
    for _ in range(10):
        node.propose(*[LARGE] * 5)  # one write each: files end between them
    node.rests()
    return node.propose(b"drop 22")


def test_a_file_full_of_dead_bytes_is_worth_a_snapshot_beside_a_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue of five batches of Spark gave none of them back until three were settled."""
    node = Node(tmp_path, monkeypatch, wal_file_bytes=300_000)
    last = with_backlog(node)
    newest = node.store.wal.current_file
    assert node.store.wal.newest_bytes > 300_000 // 4
    assert node.look(closed=False) == last
    assert node.store.wal.current_file == newest, "most of it is live: it is not completed"
    node.cluster.close()


def test_what_is_not_worth_it_between_two_files_is_looked_at_when_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look between them was the last one until the queue was written to again."""
    node = Node(tmp_path, monkeypatch, wal_file_bytes=8 << 20)
    last = with_backlog(node)
    assert node.look(closed=False) == 0
    assert node.look(closed=True) == last
    assert not node.policy._declined
    node.cluster.close()


def test_a_log_that_is_written_fast_is_looked_at_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch, wal_file_bytes=2 << 20)
    last = with_backlog(node)
    monkeypatch.setattr(snapshot_policy, "LOOK_FAST_MS", 1)
    node.propose(b"drop 28", *[LARGE] * 6)
    node.cluster.until(lambda: node.store.groups[GROUP].snapshot_index >= last)
    node.cluster.close()


def test_few_entries_add_up_while_little_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch, wal_file_bytes=8 << 20)
    node.propose(*[LARGE] * PUT)
    applied, entries_min = PUT + 1, node.policy.config.snapshot_entries_min
    while applied + 10 < entries_min:
        node.propose(*[b"put"] * 10)
        applied += 10
        assert node.look(closed=True) == 0
    last = node.propose(*[b"put"] * 10)
    assert node.look(closed=True) == last, "enough is new since the last snapshot"
    node.cluster.close()


def test_many_live_entries_are_not_counted_for_a_few_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_policy, "LARGE_LIVE_MAX", PUT - 1)
    node = Node(tmp_path, monkeypatch, wal_file_bytes=8 << 20)
    node.propose(*[LARGE] * PUT)
    node.look(closed=True)
    asked = node.machine.asked
    node.propose(b"thin 1000000")
    assert node.look(closed=True) == 0 and node.machine.asked == asked
    node.cluster.close()


@pytest.mark.parametrize("commands", [[b"free 20"], [b"free 10", b"free 10"]])
def test_a_file_full_that_is_freed_is_looked_at_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[bytes]
) -> None:
    """The batch after a settled one was written to new files until a heartbeat's look came."""
    node = Node(tmp_path, monkeypatch, wal_file_bytes=400_000)
    for _ in range(10):
        node.propose(*[LARGE] * 5)  # one write each: files end between them
    node.rests()
    last = 0
    for command in commands:
        assert node.store.groups[GROUP].snapshot_index == 0
        last = node.propose(command)
    node.cluster.until(lambda: node.store.groups[GROUP].snapshot_index == last)
    assert node.host._groups[GROUP].freed == 0
    node.cluster.close()


def test_less_than_a_file_that_is_freed_waits_for_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch, wal_file_bytes=400_000)
    node.propose(*[LARGE] * 50)
    node.rests()
    asked = node.machine.asked
    node.propose(b"free 19")
    assert not node.policy._asked and node.machine.asked == asked
    assert node.host._groups[GROUP].freed == 19 * len(LARGE)
    node.cluster.close()


def test_a_snapshot_amid_the_entries_hides_no_dead_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In proportion the live ones were counted on both sides of it: 400 KB of dead ones were none.

    So on one node of three, where a file had ended after the 64th block, a settled batch of Spark
    stayed in the log until most of the queue was settled.
    """
    node = Node(tmp_path, monkeypatch, wal_file_bytes=400_000)
    for _ in range(4):
        node.propose(*[LARGE] * 5)
    node.rests()
    group = node.host._groups[GROUP]
    taken = snapshot_policy.take_now(group)
    assert taken is not None
    node.store.compactor.run([taken])
    node.rests()
    for _ in range(4):
        node.propose(*[LARGE] * 5)
    node.rests()
    last = node.propose(b"drop 21")
    assert node.look(closed=False) == last
    node.cluster.close()


def test_a_new_file_that_is_barely_begun_gives_way_to_a_spare_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in which a settlement frees others is begun before them, and took the next batch."""
    node = Node(tmp_path, monkeypatch, wal_file_bytes=2 << 20)
    wal, spares = node.store.wal, node.store.spares
    for _ in range(24):
        node.propose(*[LARGE] * 10)
    node.rests()
    wal.roll()
    node.propose(b"free 240")
    begun = wal.current_file
    assert wal.newest_grows and wal.newest_bytes < (2 << 20) // 16
    node.cluster.until(lambda: spares.count > 0)
    node.rests()
    assert wal.current_file == begun + 1
    node.propose(LARGE)
    assert wal.recycled == 1 and not wal.newest_grows
    node.propose(*[LARGE] * 10)
    assert wal.current_file == begun + 1
    node.cluster.close()
