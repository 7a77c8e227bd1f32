"""A disk that becomes slow, a clock that jumps: neither stops heartbeats or moves a leader."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S, PROMPTLY_S, TooSlow, with_time_enough
from tests.raft.runtime import kit
from tests.raft.runtime.kit import NODES, Cluster, Listing, Recorder, until
from warren_raft.config import RaftConfig
from warren_raft.machine import GroupSpec
from warren_raft.runtime import disk_backpressure
from warren_raft.runtime import loop as loop_module
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.stalled_disk import Condition, DiskWatch
from warren_raft.storage import wal
from warren_raft.storage.files import Files

SYNC_S = 0.2
SUSPECT_MS = 500


class SlowFiles(Files):
    """Every sync takes SYNC_S once it is slow; on_loop counts those that kept the loop.

    No power fails here, so nothing needs to be on the disk: a busy machine's own syncs take longer
    than SUSPECT_MS, and a leader's disk would be suspect.
    """

    def __init__(self) -> None:
        self.slow = False
        self.on_loop = 0
        self.never = threading.Event()

    def sync_data(self, fd: int) -> None:
        if self.slow:
            self.never.wait(SYNC_S)
            self.on_loop += threading.current_thread() is threading.main_thread()


class SlowCluster(Cluster):
    """The disk of one node, or of none, can become slow."""

    def __init__(self, root: Path, node: str = "") -> None:
        self.slow_node, self.files = node, SlowFiles()
        super().__init__(root, heartbeat_ms=50, suspect_after_ms=SUSPECT_MS)

    def start(self, node: str) -> Host:
        observer = self.observers[node] = Recorder()
        files = self.files if node == self.slow_node else SlowFiles()
        host = Host(self.config(node), self.loop, observer, files=files)
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
    quick = number = 0
    while quick < 10 or number < 25:
        began = time.monotonic()
        index = host.propose(1, b"%d" % number)
        cluster.until(lambda index=index: host.applied_index(1) >= index)
        quick += time.monotonic() - began < SYNC_S
        number += 1
        # Two members with quick disks are a majority, whichever leads: were the slow one waited
        # for, each entry would take SYNC_S.
        assert number < 1_000, f"{quick} of {number} entries took less than a sync"
    # One sync may be on the loop, the one that finds out.
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
    cluster = SlowCluster(tmp_path)
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
    assert time.monotonic() - began < PROMPTLY_S
    cluster.close()


def test_the_system_s_clock_follows_a_step_forward_and_goes_on_after_one_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {"wall": 10**18, "steady": 5 * 10**9}
    monkeypatch.setattr(loop_module.time, "time_ns", lambda: now["wall"])
    monkeypatch.setattr(loop_module.time, "monotonic_ns", lambda: now["steady"])
    clock = loop_module.SystemClock()
    began = clock.epoch_ms()

    def after(seconds: int, jump_hours: int = 0) -> int:
        now["steady"] += seconds * 10**9
        now["wall"] += (seconds + jump_hours * 3600) * 10**9
        return clock.epoch_ms() - began

    assert after(1) == 1_000
    assert after(1, 3) == 2_000 + 3 * 3_600_000
    assert after(1, -5) == 3_000 + 3 * 3_600_000
    assert after(60) == 63_000 + 3 * 3_600_000


# ------------------------------------------------------------------ disks that do not answer

BIG = bytes(20 << 10)
"""More than is written on the loop's own thread."""
HANG_MS = 400


class HangingFiles(Files):
    """A sync does not return while `hangs`; each takes `sync_s`, however slow the disk is.

    No power fails here, so nothing needs to be on the disk: a busy machine's own syncs take longer
    than HANG_MS, and every node's disk would be suspect.
    """

    def __init__(self) -> None:
        self.released = threading.Event()
        self.released.set()
        self.sync_s = 0.0
        self.never = threading.Event()

    def hang(self, hangs: bool = True) -> None:
        """From now on, or no more."""
        self.released.clear() if hangs else self.released.set()

    def sync_data(self, fd: int) -> None:
        self.never.wait(self.sync_s)
        self.released.wait()


class HangingCluster(Cluster):
    """Any disk can hang; group 1 is led by a."""

    def __init__(self, root: Path, nodes: tuple[str, ...] = NODES, **settings: Any) -> None:
        self.files: dict[str, HangingFiles] = {node: HangingFiles() for node in nodes}
        times = {"heartbeat_ms": 20, "suspect_after_ms": HANG_MS}
        super().__init__(root, nodes, **(times | settings))
        self.start_group(1, "a")
        self.until(self._led_by_a)
        self.write("a")
        self.begun = {node: len(self.leaders(node)) for node in nodes}

    def start(self, node: str) -> Host:
        observer = self.observers[node] = Recorder()
        host = Host(self.config(node), self.loop, observer, files=self.files[node])
        host.start()
        self.ports[node], self.hosts[node] = host.port, host
        return host

    def _led_by_a(self) -> bool:
        leader = self.leader(1)
        if leader is not None and leader.node_id != "a" and not leader.hands_over(1):
            leader.transfer(1, "a")
        return self.hosts["a"].is_leader(1)

    def write(self, leader: str) -> int:
        """An entry that every member with a disk applies."""
        host = self.hosts[leader]
        index = host.propose(1, BIG)
        self.until(
            lambda: all(
                h.applied_index(1) >= index
                for n, h in self.hosts.items()
                if self.files[n].released.is_set()
            )
        )
        return index

    def run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        until(self.loop, lambda: time.monotonic() > end, seconds + 10)

    def leaders(self, node: str) -> list[str | None]:
        """The leaders of group 1 that the node was told of, in order."""
        return [event[2] for event in self.observers[node].events if event[0] == "leader"]

    @property
    def moved(self) -> bool:
        """Since the beginning the leader was another one, or none."""
        return any(len(self.leaders(node)) > self.begun[node] for node in self.nodes)

    def close(self) -> None:
        for files in self.files.values():
            files.sync_s = 0
            files.hang(False)
        super().close()


ATTEMPTS = 5
"""Of what a stall of this process may spoil; a fault spoils each."""


def test_a_leader_whose_disk_hangs_hands_over_and_takes_nothing_until_it_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(ATTEMPTS):
        caplog.clear()
        root = tmp_path / str(number)
        cluster = HangingCluster(root)
        try:
            return _hand_over(cluster, root, caplog)
        except AssertionError:
            if not any(f"{node}: the disk under" in caplog.text for node in ("b", "c")):
                raise
        finally:
            cluster.close()
    raise AssertionError(f"another disk was slow by itself, each time: {caplog.text}")


def _hand_over(cluster: HangingCluster, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Hang a leader's disk and check what follows while those of the others are quick."""
    a = cluster.hosts["a"]
    cluster.files["a"].hang()
    a.propose(1, BIG)
    cluster.until(lambda: cluster.leader(1) not in (None, a))
    leader = cluster.leader(1)
    assert leader is not None
    assert "does not answer: a write of the log has been under way" in caplog.text
    assert "Groups led here: 1, transferred: 1, kept because" in caplog.text
    assert str(root / "a") in caplog.text
    assert leader.disk_slow("a") and a.disk_slow("a") and not a.disk_slow(leader.node_id)
    for _ in range(5):  # the two others continue
        cluster.write(leader.node_id)
    leader.transfer(1, "a")
    cluster.until(lambda: not leader.hands_over(1))
    assert cluster.leader(1) is leader, "the leadership went to a disk that does not answer"
    assert "answers again" not in caplog.text
    cluster.files["a"].hang(False)
    cluster.until(lambda: "answers again, after" in caplog.text)
    index = cluster.write(leader.node_id)
    cluster.until(lambda: a.applied_index(1) >= index)
    leader.transfer(1, "a")
    cluster.until(lambda: a.is_leader(1))


def test_a_small_hanging_write_holds_the_loop_for_a_moment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "SYNC_MS_SHORT", 10**9)  # however busy this machine is
    monkeypatch.setattr(wal, "SYNC_MS_LONG", 10**9)
    longest_s = []
    for number in range(ATTEMPTS):
        caplog.clear()
        longest_s.append(_longest_gap_s(tmp_path / str(number), caplog))
        if longest_s[-1] < HANG_MS / 1000:
            return
    raise AssertionError(
        f"the loop stood for as long as it takes to be suspected, each time: {longest_s} s"
    )


def _longest_gap_s(root: Path, caplog: pytest.LogCaptureFixture) -> float:
    cluster = HangingCluster(root)
    a, loop = cluster.hosts["a"], cluster.loop
    main, gaps, seen = threading.get_ident(), [], [time.monotonic()]
    meanwhile: list[float] = []

    def step() -> None:
        gaps.append(time.monotonic() - seen[-1])
        seen.append(time.monotonic())
        if not cluster.files["a"].released.is_set():
            meanwhile.append(seen[-1])
        leader = cluster.leader(1)
        if leader not in (None, a):
            cluster.files["a"].hang(False)
            if leader.applied_index(1) == a.applied_index(1) and not a._disk.stalled:
                loop.stop()
        loop.call_later(5, step)

    hung: list[bool] = []
    sync = cluster.files["a"].sync_data

    def sync_data(fd: int) -> None:
        # Not before: a write of the background thread that hangs would move the leadership, too.
        if threading.get_ident() == main and not hung:
            hung.append(True)
            cluster.files["a"].hang()
        sync(fd)

    cluster.files["a"].sync_data = sync_data  # type: ignore[method-assign]
    loop.call_later(0, step)
    loop.call_later(0, lambda: a.propose(1, b"small, and it hangs"))
    loop.call_later(round(PATIENCE_S * 1000), loop.stop)
    loop.run()
    assert hung, "the write that hangs was not on the loop's thread"
    assert cluster.leader(1) is not a and len(meanwhile) > 5
    assert "another thread runs the event loop" in caplog.text
    assert "does not answer" in caplog.text and "answers again" in caplog.text
    assert not any("suspected" in str(e[0]) for o in cluster.observers.values() for e in o.events)
    cluster.close()
    return max(gaps)


def test_a_leader_stays_where_the_others_are_no_majority_or_hang_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = HangingCluster(tmp_path)
    a = cluster.hosts["a"]
    for files in cluster.files.values():
        files.hang()
    index = a.propose(1, BIG)
    cluster.until(lambda: caplog.text.count("does not answer") == 3)
    cluster.run_for(3 * HANG_MS / 1000)
    assert not cluster.moved and cluster.leader(1) is a
    assert not a.hands_over(1) and a.applied_index(1) < index
    for files in cluster.files.values():
        files.hang(False)
    cluster.until(lambda: all(h.applied_index(1) >= index for h in cluster.hosts.values()))
    assert cluster.leader(1) is a
    cluster.close()


def test_a_slow_disk_counts_for_the_majority_and_is_not_handed_the_leadership(
    tmp_path: Path,
) -> None:
    takers = []
    for number in range(ATTEMPTS):
        takers.append(_taker_beside_a_slow_disk(tmp_path / str(number)))
        if takers[-1] == "b":
            return
    raise AssertionError(takers)


def _taker_beside_a_slow_disk(root: Path) -> str:
    """Return the node that takes over while the disk of c is slow, and that of b was before."""
    cluster = HangingCluster(root)
    a = cluster.hosts["a"]
    for name in ("b", "c"):
        cluster.files[name].sync_s = HANG_MS / 1000 * 0.5
        for _ in range(100):  # one write may be missed, if this process stands meanwhile
            cluster.write("a")
            cluster.run_for(0.1)
            if a.disk_slow(name):
                break
        assert a.disk_slow(name)
        cluster.files[name].sync_s = 0
        if name == "b":
            cluster.until(lambda: not a.disk_slow("b"))
    cluster.files["a"].hang()
    a.propose(1, BIG)
    cluster.until(lambda: cluster.leader(1) not in (None, a))
    leader = cluster.leader(1)
    cluster.close()
    return leader.node_id if leader is not None else ""


@pytest.mark.parametrize("share", [0.4, 1.5])
def test_disks_that_are_all_slow_move_no_leader(tmp_path: Path, share: float) -> None:
    # One thread that gets no processor for a moment makes one disk slower than the others.
    assert any(not _moved(tmp_path / str(number), share) for number in range(ATTEMPTS))


def _moved(root: Path, share: float) -> bool:
    """Return whether the leader was another one while all disks were that slow."""
    cluster = HangingCluster(root)
    a = cluster.hosts["a"]
    for number, files in enumerate(cluster.files.values()):
        files.sync_s = share * HANG_MS / 1000 + 0.02 * number
    proposed = []
    end = time.monotonic() + 12 * share * HANG_MS / 1000
    while time.monotonic() < end:  # so that a write is always under way, at each in its own time
        proposed.append(a.propose(1, BIG))
        cluster.run_for(0.05)
        if cluster.moved:
            break
    else:
        cluster.until(lambda: a.applied_index(1) >= proposed[-1] or cluster.moved)
    moved = cluster.moved
    cluster.close()
    return moved


def test_a_follower_whose_disk_hangs_holds_nothing_up_and_keeps_little(tmp_path: Path) -> None:
    with_time_enough(lambda slow_s: _beside_a_hanging_disk(tmp_path / f"{slow_s:g}", slow_s), 1.0)


def _beside_a_hanging_disk(root: Path, slow_s: float) -> None:
    """The disk counts as slow after `slow_s`: what waited for it would wait as long."""
    suspect_ms = round(4_000 * slow_s)
    cluster = HangingCluster(root, wal_backlog_bytes_max=1 << 20, suspect_after_ms=suspect_ms)
    a, c = cluster.hosts["a"], cluster.hosts["c"]
    cluster.files["c"].hang()
    before = 0
    for _ in range(200):
        cluster.write("a")
        before += not a.disk_slow("c")
    if before < 10:
        cluster.close()
        raise TooSlow(f"{before} of 200 entries were applied before the disk counted as slow")
    cluster.until(lambda: a.disk_slow("c"))
    assert cluster.leader(1) is a
    # One message more than the bound may be taken before it is noticed.
    assert c._logs.wal.backlog_bytes <= (1 << 20) + a.config.raft.append_bytes_max + len(BIG)
    last = a.applied_index(1)
    cluster.files["c"].hang(False)
    cluster.until(lambda: c.applied_index(1) == last)
    cluster.close()


def test_answers_that_wait_for_a_disk_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_backpressure, "ANSWERS_MAX", 3)
    raft = RaftConfig(retransmit_ms=10)
    cluster = HangingCluster(tmp_path, raft=raft)
    a, c = cluster.hosts["a"], cluster.hosts["c"]
    cluster.files["c"].hang()
    cluster.write("a")
    cluster.run_for(0.5)
    assert len(c._groups[1].after_sync) <= 3
    cluster.files["c"].hang(False)
    cluster.until(lambda: c.applied_index(1) == a.applied_index(1))
    cluster.close()


def looks(watch: DiskWatch, *spans: tuple[int, int, bool], now_ms: int = 0) -> list[Condition]:
    """The condition at the end of each span: (milliseconds, writes done at each look, busy)."""
    found, writes = [], 0
    for length_ms, done, busy in spans:
        for _ in range(length_ms // 100):
            now_ms += 100
            writes += done
            watch.look(now_ms, writes, busy)
        found.append(watch.condition)
    return found


def test_a_disk_is_slow_at_a_quarter_and_stalled_at_the_whole_time() -> None:
    quick, slow, stalled = Condition.QUICK, Condition.SLOW, Condition.STALLED
    watch = DiskWatch(2_000)
    assert looks(watch, (500, 0, True), (100, 0, True)) == [quick, slow]
    watch = DiskWatch(2_000)
    assert looks(watch, (60_000, 1, True), (2_100, 0, True)) == [quick, stalled]
    assert looks(watch, (100, 1, True), now_ms=62_100) == [slow]


def test_a_disk_that_hangs_again_and_again_must_be_quick_for_longer_and_longer() -> None:
    watch, now_ms, quiet = DiskWatch(2_000), 0, []
    writes = 0
    for _ in range(7):
        for busy, until_ in ((True, Condition.STALLED), (False, Condition.QUICK)):
            began = now_ms
            while watch.condition is not until_:
                now_ms += 100
                watch.look(now_ms, writes, busy)
            if not busy:
                quiet.append(now_ms - began)
    assert [ms // 10_000 for ms in quiet] == [1, 2, 4, 8, 16, 16, 16]
    now_ms += 10_000_000
    watch.look(now_ms, writes, False)
    while watch.condition is not Condition.STALLED:
        now_ms += 100
        watch.look(now_ms, writes, True)
    assert watch.quiet_ms == 10_000


def test_a_process_that_was_stopped_itself_does_not_blame_the_disk() -> None:
    watch = DiskWatch(2_000)
    watch.look(100, 0, True)
    assert watch.look(60_000, 0, True) is Condition.QUICK
    assert watch.age_ms(60_000) == 0


def test_a_stopped_process_still_sees_that_its_disk_hangs() -> None:
    watch = DiskWatch(2_000)
    assert looks(watch, (2_200, 0, True)) == [Condition.STALLED]
    assert watch.look(60_000, 0, True) is Condition.STALLED, "the same write"
    assert watch.look(60_100, 1, True) is Condition.SLOW, "the next one"
