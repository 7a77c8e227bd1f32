"""Durable commits per second of three processes on this machine: `python -m` or run as a file.

python tests/raft/bench_replication.py --seconds 5 --size 4096 --window 64 --groups 1
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from warren.ports import ReservedPorts
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.observer import Observer

NODES = ("n1", "n2", "n3")
NOTHING = Applied()


class Counting:
    """The state counts commands."""

    def init(self) -> list[int]:
        return [0]

    def apply(self, meta: Meta, command: bytes, state: list[int]) -> Applied:
        state[0] += 1
        return NOTHING

    def leader_effects(self, state: list[int]) -> tuple[Any, ...]:
        return ()

    def snapshot(self, state: list[int]) -> bytes:
        return str(state[0]).encode()

    def form(self, state: object) -> int:
        return 1

    def restore(self, data: bytes) -> list[int]:
        return [int(data)]

    def live_indexes(self, state: list[int]) -> tuple[int, ...]:
        return ()


class Load(Observer):
    """Keeps `window` proposals under way in every group that this node leads."""

    def __init__(self, window: int, size: int, seconds: float) -> None:
        self.window = window
        self.data = bytes(size)
        self.seconds = seconds
        self.host: Host
        self.loop: Loop
        self.sent: dict[int, float] = {}
        self.latencies: list[float] = []
        self.started = 0.0
        self.done = 0

    def became_leader(self, group: int, effects: tuple[Any, ...]) -> None:
        self.started = self.started or time.perf_counter()
        for _ in range(self.window):
            self.propose(group)

    def propose(self, group: int) -> None:
        index = self.host.propose(group, self.data)
        self.sent[(group << 40) + index] = time.perf_counter()

    def applied(  # type: ignore[no-untyped-def]
        self, group, meta, data, applied, leading
    ) -> None:
        if not leading:
            return
        now = time.perf_counter()
        self.latencies.append(now - self.sent.pop((group << 40) + meta.index))
        self.done += 1
        if now - self.started > self.seconds:
            self.loop.stop()
        else:
            self.propose(group)


def run_node(node: str, ports: dict[str, int], root: str, options: dict[str, Any]) -> None:
    """One process; the leader prints and ends, the others are ended."""
    loop = Loop()
    load = Load(options["window"], options["size"], options["seconds"])
    config = HostConfig(
        node=node,
        cluster="bench",
        secret=b"bench secret",
        listen=("127.0.0.1", ports[node]),
        peers={other: ("127.0.0.1", ports[other]) for other in NODES if other != node},
        data_dir=Path(root) / node,
    )
    host = Host(config, loop, load)
    load.host, load.loop = host, loop
    host.start()
    while not all(host.connected(other) for other in NODES if other != node):
        loop.run_turn(10)
    for group in range(1, options["groups"] + 1):
        host.start_group(GroupSpec(group, NODES, preferred=NODES[0]), Counting())
    if options["profile"] and node == options["profile"]:
        import cProfile
        import pstats

        profile = cProfile.Profile()
        try:
            profile.runcall(loop.run)
        finally:
            pstats.Stats(profile).sort_stats("tottime").print_stats(28)
    else:
        loop.run()
    elapsed = time.perf_counter() - load.started
    times = sorted(load.latencies)
    wal = host._logs.wal
    print(
        f"{load.done / elapsed:,.0f} commits/s, {load.done * options['size'] / elapsed / 1e6:,.1f} "
        f"MB/s, p50 {times[len(times) // 2] * 1e3:.2f} ms, p99 "
        f"{times[len(times) * 99 // 100] * 1e3:.2f} ms, "
        f"{wal.batches / elapsed:,.0f} syncs/s, cpu {time.process_time() / elapsed:.2f}",
        flush=True,
    )
    host.stop()


def main() -> None:
    """Run three nodes until the leader is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024, help="bytes per command")
    parser.add_argument("--window", type=int, default=64, help="commands under way per group")
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--profile", default="", help="node whose profile is printed")
    options = vars(parser.parse_args())
    root = tempfile.mkdtemp(prefix="warren-bench-")
    reserved = ReservedPorts()
    ports = {node: reserved.take() for node in NODES}
    context = multiprocessing.get_context("spawn")
    nodes = [context.Process(target=run_node, args=(node, ports, root, options)) for node in NODES]
    try:
        for process in nodes:
            process.start()
        nodes[0].join(options["seconds"] + 30)
    finally:
        for process in nodes:
            process.kill()
            process.join()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
