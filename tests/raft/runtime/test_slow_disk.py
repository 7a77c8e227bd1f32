"""A disk that becomes slow, a clock that jumps: neither stops heartbeats or moves a leader."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.raft.runtime import kit
from tests.raft.runtime.kit import NODES, Cluster, Listing, Recorder, until
from warren_raft.machine import GroupSpec
from warren_raft.runtime import clock as clock_module
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.storage.files import Files

SYNC_S = 0.2
SUSPECT_MS = 500


class SlowFiles(Files):
    """Every sync takes SYNC_S once it is slow; on_loop counts those that kept the loop."""

    def __init__(self) -> None:
        self.slow = False
        self.on_loop = 0
        self.never = threading.Event()

    def sync_data(self, fd: int) -> None:
        if self.slow:
            self.never.wait(SYNC_S)
            self.on_loop += threading.current_thread() is threading.main_thread()
        super().sync_data(fd)


class SlowCluster(Cluster):
    """The disk of one node can become slow."""

    def __init__(self, root: Path, node: str) -> None:
        self.slow_node, self.files = node, SlowFiles()
        super().__init__(root, heartbeat_ms=50, suspect_after_ms=SUSPECT_MS)

    def start(self, node: str) -> Host:
        if node != self.slow_node:
            return super().start(node)
        observer = self.observers[node] = Recorder()
        config = replace(self.config(node))
        host = Host(config, self.loop, observer, files=self.files)
        host.start()
        self.ports[node], self.hosts[node] = host.port, host
        return host


@pytest.mark.parametrize("leads", [True, False])
def test_a_slow_disk_moves_no_leader_and_holds_nobody_up(tmp_path: Path, leads: bool) -> None:
    cluster = SlowCluster(tmp_path, "a")
    wanted = "a" if leads else "b"
    cluster.start_group(1, wanted)
    host = cluster.await_leader(1)
    if host.node_id != wanted:
        host.transfer(1, wanted)
        cluster.until(lambda: cluster.hosts[wanted].is_leader(1))
        host = cluster.hosts[wanted]
    index = host.propose(1, b"quick")
    cluster.until(lambda: all(h.applied_index(1) >= index for h in cluster.hosts.values()))
    before = {name: len(o.events) for name, o in cluster.observers.items()}
    cluster.files.slow = True
    took = []
    for number in range(25):
        began = time.monotonic()
        index = host.propose(1, b"%d" % number)
        cluster.until(lambda index=index: host.applied_index(1) >= index)
        took.append(time.monotonic() - began)
    # Two members whose disks are quick are a majority, whoever leads; one sync may be on the loop,
    # the one that finds out.
    assert sorted(took)[len(took) // 2] < SYNC_S / 2, took
    assert cluster.files.on_loop <= 1, cluster.files.on_loop
    for name, observer in cluster.observers.items():
        news = [event for event in observer.events[before[name] :] if event[0] != "applied"]
        assert not news, (name, news)
    cluster.until(lambda: all(h.applied_index(1) >= index for h in cluster.hosts.values()))
    cluster.close()


class JumpingClock:
    """The machine's clock; its wall can be moved."""

    def __init__(self) -> None:
        self.jump_ms = 0
        self.offset_ms = 0

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def epoch_ms(self) -> int:
        # As SystemClock does with a wall that jumps: forward is followed, back is not.
        self.offset_ms = max(self.offset_ms, self.jump_ms)
        return self.monotonic_ms() + 10**12 + self.offset_ms


@pytest.mark.parametrize("hours", [3, -3])
def test_a_clock_that_jumps_moves_no_leader(
    tmp_path: Path, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = JumpingClock()
    monkeypatch.setattr(kit, "Loop", lambda: Loop(clock))
    cluster = Cluster(tmp_path, heartbeat_ms=50, suspect_after_ms=SUSPECT_MS)
    for host in cluster.hosts.values():
        host.start_group(GroupSpec(1, NODES, preferred="a"), Listing())
    host = cluster.await_leader(1)
    index = host.propose(1, b"before")
    cluster.until(lambda: all(h.applied_index(1) >= index for h in cluster.hosts.values()))
    before = {name: len(o.events) for name, o in cluster.observers.items()}
    clock.jump_ms = hours * 3_600_000
    end = time.monotonic() + 4 * SUSPECT_MS / 1000
    until(cluster.loop, lambda: time.monotonic() > end)
    index = host.propose(1, b"after")
    cluster.until(lambda: all(h.applied_index(1) >= index for h in cluster.hosts.values()))
    for name, observer in cluster.observers.items():
        news = [event for event in observer.events[before[name] :] if event[0] != "applied"]
        assert not news, (name, news)
    # A leader that dies then is replaced as soon as ever.
    dead = host.node_id
    cluster.stop(dead)
    began = time.monotonic()
    cluster.until(lambda: cluster.leader(1) is not None and cluster.leader(1).node_id != dead)
    assert time.monotonic() - began < 5
    cluster.close()


def test_the_system_s_clock_follows_a_step_forward_and_goes_on_after_one_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {"wall": 10**18, "steady": 5 * 10**9}
    monkeypatch.setattr(clock_module.time, "time_ns", lambda: now["wall"])
    monkeypatch.setattr(clock_module.time, "monotonic_ns", lambda: now["steady"])
    clock = clock_module.SystemClock()
    began = clock.epoch_ms()

    def after(seconds: int, jump_hours: int = 0) -> int:
        now["steady"] += seconds * 10**9
        now["wall"] += (seconds + jump_hours * 3600) * 10**9
        return clock.epoch_ms() - began

    assert after(1) == 1_000
    assert after(1, 3) == 2_000 + 3 * 3_600_000
    assert after(1, -5) == 3_000 + 3 * 3_600_000
    assert after(60) == 63_000 + 3 * 3_600_000
