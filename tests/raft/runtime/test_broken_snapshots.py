"""A snapshot that a peer sends and that is none: its member waits, and its node continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.raft.runtime import shelves
from tests.raft.runtime.kit import NODES, until
from tests.raft.runtime.shelves import GROUP, Shelf
from warren_raft.core.snapshot_transfer import OutgoingSnapshot
from warren_raft.index_set import Indexes
from warren_raft.machine import GroupSpec
from warren_raft.messages import AnyRaftMessage, SnapshotChunk
from warren_raft.runtime import snapshots
from warren_raft.storage.snapshot import Snapshot
from warren_raft.versions import NEWEST

OTHER = 6

BROKEN: dict[str, Callable[[Snapshot], bytes]] = {
    "no snapshot at all": lambda one: b"\x93" + b"\x01" * 40,
    "cut short": lambda one: msgspec.msgpack.encode(one)[:-9],
    "a voter twice": lambda one: encoded(one, voters=("a", "a", "b")),
    "voters out of order": lambda one: encoded(one, voters=("c", "b", "a")),
    "a voter that is a learner": lambda one: encoded(one, learners=("a",)),
    "an id of no voter": lambda one: encoded(one, ids=(("z", 5),)),
    "of another group": lambda one: encoded(one, group=one.group + 1),
    "up to another entry": lambda one: encoded(one, index=one.index + 1),
    "of another term": lambda one: encoded(one, term=one.term + 1),
    "a list of live entries that is none": lambda one: encoded(one, live=b"\x07" * 21),
    "live entries above its last one": lambda one: encoded(
        one, live=Indexes.of([1, one.index + 5]).tobytes()
    ),
    "a state that is none": lambda one: encoded(one, state=b"\xc1"),
    "a newer machine's": lambda one: encoded(one, version=NEWEST + 1),
}


def encoded(snapshot: Snapshot, **fields: object) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(snapshot, **fields))


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_snapshot_does_not_end_the_node(
    tmp_path: Path,
    broken: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A member that is behind is sent it; then it is sent a good one."""
    caplog.set_level(logging.ERROR, "warren.raft")
    monkeypatch.setattr(snapshots, "REFUSED_AGAIN_MS", 300)
    cluster, away, end = shelves.left_behind(tmp_path)
    whole: dict[OutgoingSnapshot, bytes] = {}
    mended: list[bool] = []
    construct = OutgoingSnapshot.__init__

    def spoil(self: OutgoingSnapshot, *given: Any) -> None:
        construct(self, *given)
        if mended:
            return
        whole[self] = self.payload
        self.payload = BROKEN[broken](msgspec.msgpack.decode(self.payload, type=Snapshot))

    monkeypatch.setattr(OutgoingSnapshot, "__init__", spoil)
    host = cluster.start(away)
    before = sorted((tmp_path / away / "snapshots").iterdir())
    host.start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: any("is refused" in line for line in caplog.messages))
    (said, *_) = (line for line in caplog.messages if "is refused" in line)
    assert f"that {shelves.leader(cluster)} sent is refused" in said
    # The node continues: another group of it elects, whomever, and is applied.
    hosts = list(cluster.hosts.values())
    for each in hosts:
        each.start_group(GroupSpec(OTHER, NODES, preferred=away), Shelf())
    until(cluster.loop, lambda: any(each.is_leader(OTHER) for each in hosts))
    (leader,) = (each for each in hosts if each.is_leader(OTHER))
    index = leader.propose(OTHER, b"put 1")
    until(cluster.loop, lambda: host.applied_index(OTHER) >= index)
    assert host.applied_index(GROUP) <= end
    assert sorted((tmp_path / away / "snapshots").iterdir()) == before
    mended.append(True)
    for sent, payload in whole.items():
        sent.payload = payload
    until(cluster.loop, lambda: shelves.same(cluster))
    assert shelves.check_live(cluster) > 20
    shelves.check_after_restart(cluster)


def test_a_refused_snapshot_is_not_received_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sender offers it once a second: it would be all of it each time."""
    caplog.set_level(logging.ERROR, "warren.raft")
    monkeypatch.setattr(snapshots, "OFFER_AGAIN_MS", 20)
    cluster, away, _ = shelves.left_behind(tmp_path)
    host = cluster.start(away)
    host.start_group(GroupSpec(GROUP, NODES), Shelf())
    accepted: list[object] = []
    offers: list[SnapshotChunk] = []

    def refuse(*given: Any) -> None:
        accepted.append(given)
        raise ValueError("not today")

    def count(self: Any, group: Any, part: SnapshotChunk, now_ms: int) -> bool:
        offers.append(part)
        return asked(self, group, part, now_ms)

    asked = snapshots.Transfers._is_refused
    monkeypatch.setattr(snapshots.Transfers, "_accepted", refuse)
    monkeypatch.setattr(snapshots.Transfers, "_is_refused", count)
    until(cluster.loop, lambda: accepted)
    seen = len(offers)
    until(cluster.loop, lambda: len(offers) > seen + 10)
    assert len(accepted) == 1
    monkeypatch.undo()
    host._transfers._refused.clear()
    until(cluster.loop, lambda: shelves.same(cluster))
    shelves.stop(cluster)


def test_live_entries_that_do_not_ascend_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An assertion of the log ended the node."""
    cluster, away, _ = shelves.left_behind(tmp_path)
    turned: list[SnapshotChunk] = []
    send = snapshots.Transfers.__init__

    def backwards(self: snapshots.Transfers, *given: Any) -> None:
        send(self, *given)
        plain = self.send

        def out(message: AnyRaftMessage) -> None:
            if isinstance(message, SnapshotChunk) and len(message.entries) > 1 and not turned:
                turned.append(message)
                message = msgspec.structs.replace(message, entries=message.entries[::-1])
            plain(message)

        self.send = out

    monkeypatch.setattr(snapshots.Transfers, "__init__", backwards)
    shelves.restart_all_but(cluster, away)
    cluster.start(away).start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: shelves.same(cluster))
    assert turned
    shelves.check_after_restart(cluster)
