"""Reads of a disk do not return: the loop's thread stands, and the other nodes take over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.raft.runtime.kit import Cluster, Listing, Recorder
from warren_raft.machine import GroupSpec
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.stalled_disk import Condition, DiskWatch
from warren_raft.storage.files import Files

HANG_MS = 1_500
DATA = bytes(2000)


class HangingReads(Files):
    """A read does not return while it hangs."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.released.set()
        self.begun = threading.Event()

    def read_at(self, fd: int, offset: int, length: int) -> bytes:
        self.begun.set()
        self.released.wait()
        return super().read_at(fd, offset, length)


class OneHangs(Cluster):
    """Node a has a loop and a thread of its own, which its disk can hold; a leads group 1."""

    def __init__(self, root: Path) -> None:
        self.own = Loop()
        self.files = HangingReads()
        super().__init__(root, heartbeat_ms=20, suspect_after_ms=HANG_MS, memtable_bytes=1)
        self.a = self.hosts["a"]
        self.thread = threading.Thread(target=self.own.run, daemon=True)
        self.thread.start()
        for node, host in self.hosts.items():
            self.on(
                node,
                lambda host=host: host.start_group(
                    GroupSpec(1, self.nodes, preferred="a"), Listing()
                ),
            )
        self.until(self._led_by_a)
        for _ in range(5):
            self.first = self.write("a")

    def _led_by_a(self) -> bool:
        for node in self.leaders():
            if not self.hosts[node].hands_over(1):
                self.hosts[node].transfer(1, "a")
        return self.a.is_leader(1)

    def start(self, node: str) -> Host:
        if node != "a":
            return super().start(node)
        self.observers[node] = Recorder()
        host = Host(self.config(node), self.own, self.observers[node], files=self.files)
        host.start()
        self.ports[node], self.hosts[node] = host.port, host
        return host

    def on(self, node: str, call: Callable[[], Any]) -> Any:
        """Call on the node's own thread; what it returns."""
        if node != "a":
            return call()
        found: list[Any] = []
        self.own.post(lambda: found.append(call()))
        self.until(lambda: found)
        return found[0]

    def write(self, leader: str) -> int:
        """Apply an entry on every node with a disk that answers."""
        index: int = self.on(leader, lambda: self.hosts[leader].propose(1, DATA))
        answer = [h for n, h in self.hosts.items() if n != "a" or self.files.released.is_set()]
        self.until(lambda: all(host.applied_index(1) >= index for host in answer))
        return index

    def hang(self) -> None:
        """Node a reads an entry that is not in memory any more, and its disk does not answer."""
        log = self.a._logs.groups[1].log
        self.until(lambda: self.first not in log.entries)  # it is written later when all is busy
        self.files.released.clear()
        self.files.begun.clear()
        self.own.post(lambda: self.a.read_entry(1, self.first))
        self.until(self.files.begun.is_set)

    def leaders(self) -> list[str]:
        return [node for node in ("b", "c") if self.hosts[node].is_leader(1)]

    def close(self) -> None:
        self.files.released.set()
        self.on("a", self.a.stop)
        self.own.stop()
        self.thread.join()
        self.own.close()
        del self.hosts["a"]
        super().close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OneHangs]:
    made = OneHangs(tmp_path)
    yield made
    made.close()


def test_a_leader_whose_reads_hang_is_replaced_and_says_why(
    tmp_path: Path, cluster: OneHangs, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.hang()
    cluster.until(cluster.leaders)
    (leader,) = cluster.leaders()
    cluster.until(lambda: "does not answer: a read of the log has been under way" in caplog.text)
    assert str(tmp_path / "a") in caplog.text
    last = cluster.write(leader)
    caplog.clear()
    cluster.files.released.set()
    cluster.until(lambda: cluster.a.applied_index(1) >= last)
    cluster.until(lambda: "does not answer: a read of the log took" in caplog.text)
    # Its disk may hang again: no node hands a leadership to it for a while.
    cluster.until(lambda: all(cluster.hosts[node].disk_slow("a") for node in ("b", "c")))
    assert cluster.leaders() == [leader]


def test_a_read_that_took_long_counts_as_a_write_that_did() -> None:
    quick, slow, stalled = Condition
    watch = DiskWatch(2_000)
    assert watch.look(100, 0, False, 400) is quick
    assert watch.look(200, 0, False, 500) is slow
    assert watch.look(300, 0, False, 2_000) is stalled
    assert watch.look(400, 0, False, 0) is slow
    assert watch.look(300 + watch.quiet_ms, 0, False) is quick
    # The loop stood still meanwhile, which says nothing of a write; of the read it does.
    assert watch.look(90_000, 0, True, 2_000) is stalled
    assert watch.age_ms(90_000) == 0
