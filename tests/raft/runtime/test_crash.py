"""Three real processes, kill -9 of the leader again and again: nothing acknowledged is lost."""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from warren.ports import ReservedPorts
from warren_raft.storage.format import (
    FIRST_RECORD,
    RECORD_HEADER_BYTES,
    Damaged,
    decode_head,
    decode_record,
)

ROUNDS = 4
"""Leaders that are killed, and followed within PROMPT_S."""
PROMPT_S = 10
SCRIPT = Path(__file__).with_name("crash_node.py")
RAFT = Path(__file__).parents[3] / "raft"


class Process:
    """One node; all its messages reach the cluster's queue."""

    def __init__(self, cluster: Processes, node: str) -> None:
        ports = [f"{name}={port}" for name, port in cluster.ports.items()]
        self.log = (cluster.root / f"{node}.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), node, str(cluster.root), *ports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, "PYTHONPATH": str(RAFT)},
        )
        self.reader = threading.Thread(target=self._read, args=(cluster, node), daemon=True)
        self.reader.start()

    def _read(self, cluster: Processes, node: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                cluster.said.put((node, line.strip()))

    def tell(self, word: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.log.close()


class Processes:
    """The cluster as the test sees it: what was said, what was acknowledged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        names = ("a", "b", "c")
        self.reserved = ReservedPorts()
        self.ports = {name: self.reserved.take() for name in names}
        self.said: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.acknowledged: list[bytes] = []
        self.last_ack: dict[str, float] = {}
        self.nodes = {name: Process(self, name) for name in names}

    def listen(self) -> tuple[str, bytes]:
        node, line = self.said.get(timeout=PATIENCE_S)
        if line.startswith(b"ack "):
            self.acknowledged.append(line[4:])
            self.last_ack[node] = time.monotonic()
        return node, line

    def acknowledging_leader(self, more: int) -> str:
        """Hear `more` acknowledgements by one node; returns it."""
        count: dict[str, int] = {}
        while True:
            node, line = self.listen()
            if line.startswith(b"ack "):
                count[node] = count.get(node, 0) + 1
                if count[node] == more:
                    return node

    def drain(self) -> None:
        while not self.said.empty():
            self.listen()

    def dump(self, node: str) -> list[bytes]:
        path = self.root / f"{node}.dump"
        path.unlink(missing_ok=True)
        self.nodes[node].tell(b"dump")
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < deadline
            self.listen()
        return path.read_bytes().split(b"\n")

    def tear(self, node: str, rng: random.Random) -> None:
        """What a crash leaves of a write that was under way: some of its bytes."""
        newest = sorted((self.root / node / "wal").glob("*.wal"))[-1]
        data = newest.read_bytes()
        head = decode_head(data)
        at = last = FIRST_RECORD
        with suppress(Damaged):
            while at < len(data):
                last, at = at, decode_record(head.salt, data, at).end
        with newest.open("r+b") as file:
            file.seek(at)
            file.write(data[last : last + rng.randrange(len(head.tag), RECORD_HEADER_BYTES)])


@pytest.mark.live
def test_nothing_acknowledged_is_lost_when_leaders_are_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    cluster = Processes(tmp_path)
    gaps: list[float] = []
    try:
        # A machine that stands makes some of them late, and no node's fault makes only some so.
        while sum(gap < PROMPT_S for gap in gaps) < ROUNDS and len(gaps) < 3 * ROUNDS:
            leader = cluster.acknowledging_leader(rng.randrange(50, 400))
            cluster.nodes[leader].kill()
            killed = time.monotonic()
            cluster.drain()
            cluster.tear(leader, rng)
            while cluster.acknowledging_leader(1) == leader:
                pass
            gaps.append(time.monotonic() - killed)
            cluster.nodes[leader] = Process(cluster, leader)
        cluster.acknowledging_leader(100)
        for process in cluster.nodes.values():
            process.tell(b"quiet")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            states = [cluster.dump(node) for node in sorted(cluster.nodes)]
            if states[0] == states[1] == states[2] and cluster.said.empty():
                break
            assert time.monotonic() < deadline, [len(state) for state in states]
    finally:
        for process in cluster.nodes.values():
            process.kill()
    state = states[0]
    assert len(set(state)) == len(state), "applied twice"
    missing = set(cluster.acknowledged) - set(state)
    assert not missing, f"{len(missing)} of {len(cluster.acknowledged)} acknowledged are lost"
    assert len(cluster.acknowledged) > 50 * ROUNDS
    assert "cut a torn end" in "".join(
        (tmp_path / f"{node}.log").read_text() for node in cluster.nodes
    )
    print("gaps without an acknowledgement, s:", [round(gap, 3) for gap in gaps])
    assert sum(gap < PROMPT_S for gap in gaps) >= ROUNDS, gaps
