"""A member that has much to apply still receives from its peers, and answers them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.raft.runtime.kit import NODES, Cluster, Listing, until
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime import ready_loop

GROUPS = range(1, 7)
ENTRIES = 3_000
APPLY_S = 0.0001
SUSPECT_MS = 1_000


class Laborious(Listing):
    """Every command takes a while, once `works`."""

    works = False

    def apply(self, meta: Meta, command: bytes, state: list[bytes]) -> Applied:
        ends = time.thread_time() + APPLY_S
        while self.works and time.thread_time() < ends:
            pass
        return super().apply(meta, command, state)


def test_a_long_replay_does_not_keep_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path, suspect_after_ms=SUSPECT_MS)
    for group in GROUPS:
        cluster.start_group(group, "a")
    cluster.until(lambda: all(cluster.leader(group) for group in GROUPS))
    for group in GROUPS:
        leader = cluster.await_leader(group)
        for number in range(ENTRIES):
            last = leader.propose(group, b"%d" % number)
        cluster.until(
            lambda group=group, last=last: all(
                host.applied_index(group) >= last for host in cluster.hosts.values()
            ),
        )
    cluster.kill("c")
    host = cluster.start("c")
    monkeypatch.setattr(Laborious, "works", True)
    for group in GROUPS:
        host.start_group(GroupSpec(group, NODES), Laborious())
    longest_s, turns_ = 0.0, 0
    done = False
    while not done:
        began = time.thread_time()  # of this thread: other programs may have the processor, too
        cluster.loop.run_turn(20)
        longest_s = max(longest_s, time.thread_time() - began)
        turns_ += 1
        done = all(host.applied_index(group) >= ENTRIES for group in GROUPS)
        assert turns_ < 100_000
    # All of it takes 1.8 s at least; the other two hosts are on the same loop.
    assert longest_s < SUSPECT_MS / 1000, f"one turn took {longest_s:.1f} s"
    for group in GROUPS:
        commands = [command for command in host.state(group) if command.isdigit()]
        assert commands == [b"%d" % number for number in range(ENTRIES)]
    cluster.close()


def test_what_is_put_off_is_applied_in_order_and_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_loop, "TURN_MS_MAX", -1)  # every turn is too long
    cluster = Cluster(tmp_path)
    for group in GROUPS:
        cluster.start_group(group, NODES[group % 3])
    cluster.until(lambda: all(cluster.leader(group) for group in GROUPS))
    for number in range(50):
        for group in GROUPS:
            leader = cluster.leader(group)
            assert leader is not None
            leader.propose(group, b"%d" % number)
        cluster.loop.run_turn(0)
    wanted = [b"%d" % number for number in range(50)]
    until(
        cluster.loop,
        lambda: all(
            host.state(group) == wanted for host in cluster.hosts.values() for group in GROUPS
        ),
    )
    cluster.close()
