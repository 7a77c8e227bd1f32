"""NATS JetStream as a second peer: a work queue of three replicas beside a quorum queue of Warren.

The server and the generator are built by Go from its module proxy. JetStream answers a publisher
before its write is synced, and syncs every two minutes, unless `sync_interval` says `always`: both
are measured. Its consumer is a durable pull consumer that acknowledges each message.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from bench import generator
from bench.generator import PLACE, Missing
from bench.peers import Warren
from bench.ports import free_ports
from bench.processes import load
from bench.report import show
from bench.rounds import Column, Plan, table
from warren.local import guard

VERSION = "v2.15.2"
NODES = 3
PROGRAMS = PLACE / "go"
SOURCES = Path(__file__).resolve().parent / "nats_load"
DATA = PLACE / "nats"
START_S = 60.0
POLL_S = 0.1
WARMUP_S = 2
BUILD_S_MAX = 900
CONFIG = """\
server_name: n{node}
listen: 127.0.0.1:{port}
http: 127.0.0.1:{monitor}
jetstream {{ store_dir: "{store}", sync_interval: {sync} }}
cluster {{ name: bench, listen: 127.0.0.1:{own}, routes: [{routes}] }}
"""
LOADS: tuple[tuple[str, dict[str, float]], ...] = (
    ("100 B", {"size": 100}),
    ("1 KB", {}),
    ("1,000 msg/s", {"rate": 1_000}),
    ("100 msg/s", {"rate": 100}),
)
COLUMNS = [
    Column("msg/s", ",.0f", lambda one: one["consumed_per_s"]),
    Column("confirm p50 ms", ".2f", lambda one: one["confirm_ms"]["p50"]),
    Column("p99 ms", ".1f", lambda one: one["confirm_ms"]["p99"]),
    Column("cores of the nodes", ".2f", lambda one: one["cpu"]["watched_cores"]),
]


def programs() -> tuple[Path, Path]:
    """Return the server's program and the generator's, built when they are missing; Missing."""
    go = shutil.which("go")
    if go is None:
        raise Missing("no Go, with which NATS is built: apt-get install golang")
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    server, client = PROGRAMS / "nats-server", PROGRAMS / "nats_load"
    if not server.exists():
        source = f"github.com/nats-io/nats-server/v2@{VERSION}"
        _go([go, "install", source], SOURCES, GOBIN=str(PROGRAMS))
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if not client.exists() or client.stat().st_mtime < newest:
        _go([go, "build", "-o", str(client), "."], SOURCES)
    return server, client


def _go(command: list[str], where: Path, **more: str) -> None:
    done = subprocess.run(
        command,
        cwd=where,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=BUILD_S_MAX,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Missing(f"NATS does not build: {last[0]}")


class Nats:
    """Three servers; a context manager that starts them empty and stops them."""

    def __init__(self, server: Path, synced: bool) -> None:
        self._server = server
        self._synced = synced
        self.name = f"NATS {VERSION.removeprefix('v')}, {'synced' if synced else 'not synced'}"
        first = free_ports(3 * NODES)
        self._ports = [first + i for i in range(NODES)]
        self._routes = [first + NODES + i for i in range(NODES)]
        self._monitors = [first + 2 * NODES + i for i in range(NODES)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._guards: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Nats:
        shutil.rmtree(DATA, ignore_errors=True)
        for i in range(NODES):
            home = DATA / f"n{i}"
            home.mkdir(parents=True)
            config = home / "nats.conf"
            config.write_text(
                CONFIG.format(
                    node=i,
                    port=self._ports[i],
                    monitor=self._monitors[i],
                    store=home / "data",
                    sync="always" if self._synced else "2m",
                    own=self._routes[i],
                    routes=", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes),
                )
            )
            with (home / "log").open("ab") as out:
                command = [str(self._server), "-c", str(config)]
                self._processes.append(subprocess.Popen(command, stdout=out, stderr=out))
            self._guards.append(guard(self._processes[-1].pid))
        self._await_leader()
        return self

    def _await_leader(self) -> None:
        deadline = time.monotonic() + START_S
        while not any(map(_leads, self._monitors)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not form a cluster; see {DATA}/n0/log")
            time.sleep(POLL_S)

    def __exit__(self, *failure: object) -> None:
        for process, watching in zip(self._processes, self._guards, strict=True):
            process.kill()
            process.wait()
            watching.kill()
            watching.communicate()
        self._processes, self._guards = [], []
        shutil.rmtree(DATA, ignore_errors=True)

    def targets(self) -> str:
        """Return host:port of every node, comma-separated."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def pids(self) -> list[int]:
        """Return the pid of every node."""
        return [process.pid for process in self._processes]


def _leads(monitor: int) -> bool:
    """Return whether that server says that JetStream's group of servers has a leader."""
    request = b"GET /jsz HTTP/1.0\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", monitor), timeout=1) as connection:
            connection.sendall(request)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    except OSError:
        return False
    status = json.loads(answer.partition(b"\r\n\r\n")[2])
    cluster = status.get("meta_cluster") or {}
    return bool(cluster.get("leader")) and cluster.get("cluster_size") == NODES


def _run(
    ours: Path, client: Path, peer: Warren | Nats, options: dict[str, float]
) -> dict[str, Any]:
    pids = ",".join(map(str, peer.pids()))
    given: dict[str, Any] = {"size": 1_024, "window": 1_000, "prefetch": 1_000, **options}
    given |= {"targets": peer.targets(), "watch": pids, "warmup": WARMUP_S}
    if isinstance(peer, Warren):
        return generator.run(ours, "pubsub", queue="nats", ack_every=1, **given)
    return generator.run(client, "pubsub", **given)


def nats(plan: Plan) -> list[dict[str, Any]]:
    """Measure Warren, NATS that syncs each write, and NATS as it comes, in turn."""
    server, client = programs()
    ours = generator.find()
    results = []
    wanted = [each for each in LOADS if not plan.load or each[0] in plan.load]
    for turn in range(plan.rounds):
        for peer in (Warren(), Nats(server, True), Nats(server, False)):
            for name, options in wanted:
                with peer:
                    report = _run(ours, client, peer, options | {"time": plan.seconds})
                one = {"peer": peer.name, "round": turn, "load": load(), "name": name, **report}
                results.append(one)
                said = "  ".join(f"{c.title} {c.value(one):{c.form}}" for c in COLUMNS)
                print(f"  round {turn + 1}  {peer.name:24} {name:12} {said}", flush=True)
    for name, _ in LOADS:
        of_load = [one for one in results if one["name"] == name]
        if of_load:
            wrong = "; ".join(filter(None, map(generator.faults, of_load))) or "nothing"
            show(
                f"{name}, each message acknowledged; found wrong: {wrong}",
                table(of_load, COLUMNS),
                [],
            )
    return results
