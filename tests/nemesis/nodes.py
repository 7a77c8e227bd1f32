"""The broker processes of a run, each on its own machine of the network."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from nemesis import disks
from nemesis.network import AMQP_PORT, PEERS_PORT, Network
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import WarrenError
from warren.local import LocalNode, _toml, guard, spawn_node
from warren.ports import ReservedPorts
from warren.uri import Address

START_S = 60.0
POLL_S = 0.02
LOG_TAIL_LINES = 12
STARTED_S = 60.0


class Nodes:
    """Nodes 0, 1, 2 … : start, kill, pause, take the disk from.

    Each node's data directory is a file system of its own where that is possible and own_disks
    (`disks`, else None; `what` says which).
    Invariant: `down` and `paused` name what the run did itself; any other node that does not run
    has died by itself.
    """

    def __init__(
        self,
        count: int,
        directory: Path,
        network: Network,
        settings: dict[str, Any],
        own_disks: bool = True,
        cluster: str = "nemesis",
    ) -> None:
        self.network = network
        self.directory = directory
        self.cluster = cluster
        self.down: set[int] = set(range(count))
        self.paused: set[int] = set()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._guards: dict[int, subprocess.Popen[bytes]] = {}
        self._reserved = ReservedPorts()
        ports = [
            (AMQP_PORT, PEERS_PORT)
            if network.can_cut
            else (self._reserved.take(), self._reserved.take())
            for _ in range(count)
        ]
        self.nodes = tuple(
            LocalNode(f"node-{i}", amqp, peers, str(directory / "nodes" / f"node-{i}"))
            for i, (amqp, peers) in enumerate(ports)
        )
        for node in self.nodes:
            node.data_dir.mkdir(parents=True)
        self.disks, self.what = None, "one disk for all"
        if own_disks:
            folders = [node.data_dir for node in self.nodes]
            self.disks, self.what = disks.make(directory / "nodes", folders)
        for i in range(count):
            self._configure(i, settings)

    def _configure(self, i: int, settings: dict[str, Any]) -> None:
        node, host = self.nodes[i], self.network.host(i)
        tables: dict[str, dict[str, Any]] = {
            "listen": {
                "amqp": f"{host}:{node.amqp_port}",
                "amqps": "none",
                "peers": f"{host}:{node.peers_port}",
            },
            "peers": {
                each.name: f"{self.network.host(j)}:{each.peers_port}"
                for j, each in enumerate(self.nodes)
            },
            **settings,
        }
        lines = [
            f"{key} = {_toml(value)}"
            for key, value in (
                ("node", node.name),
                ("cluster", self.cluster),
                ("secret", "nemesis"),
                ("data_dir", str(node.data_dir)),
                ("loopback_users", "none"),
            )
        ]
        for name, table in tables.items():
            lines += [f"[{name}]", *(f"{json.dumps(k)} = {_toml(v)}" for k, v in table.items())]
        node.config_file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def __len__(self) -> int:
        return len(self.nodes)

    # ------------------------------------------------------------ processes

    def start(self, i: int) -> None:
        """Does not wait until it serves."""
        node = self.nodes[i]
        self._processes[i] = spawn_node(node, self.network.inside(i))
        self._dismiss_guard(i)
        self._guards[i] = guard(self._processes[i].pid)
        self.down.discard(i)

    def _dismiss_guard(self, i: int) -> None:
        """Before the number of a process that has ended can be another's."""
        guard = self._guards.pop(i, None)
        if guard is not None:
            guard.kill()
            guard.communicate()

    def kill(self, i: int) -> None:
        """kill -9."""
        self._end(i, signal.SIGKILL, 10.0)

    def stop(self, i: int) -> None:
        """SIGTERM, and wait."""
        self._end(i, signal.SIGTERM, 10.0)

    def _end(self, i: int, how: signal.Signals, patience_s: float) -> None:
        self.down.add(i)
        self.paused.discard(i)
        process = self._processes.get(i)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._dismiss_guard(i)

    def pause(self, i: int) -> None:
        """SIGSTOP."""
        if i not in self.down:
            self._processes[i].send_signal(signal.SIGSTOP)
            self.paused.add(i)

    def resume(self, i: int) -> None:
        """SIGCONT."""
        if i in self.paused:
            self._processes[i].send_signal(signal.SIGCONT)
            self.paused.discard(i)

    def disk(self, i: int) -> disks.Disk:
        """Its own file system; only where there are some."""
        assert self.disks is not None, self.what
        return self.disks[i]

    def mend_disks(self) -> None:
        """Every disk has space, and answers."""
        for i in range(len(self) if self.disks is not None else 0):
            self.disk(i).thaw()
            self.disk(i).unfill()

    def cut_power(self, i: int, flag: int) -> None:
        """Its machine loses power: the process is gone, and what it had not synced."""
        self.down.add(i)
        self.disk(i).cut_power(flag)
        self.kill(i)
        self.disk(i).unmount()
        self.disk(i).mount()

    def starts(self, i: int, unready_s: float = STARTED_S) -> bool:
        """Start it; False: it has ended by itself before it listened, so it refuses to start.

        One that does neither for `unready_s` is left to the caller that waits for the cluster to be
        whole.
        """
        self.start(i)
        ready = self.nodes[i].data_dir / "ready.json"
        ends = time.monotonic() + unready_s
        while not ready.exists():
            if self._processes[i].poll() is not None:
                self.stop(i)
                return False
            if time.monotonic() > ends:
                break
            time.sleep(POLL_S)
        return True

    def wipe(self, i: int) -> None:
        """Its disk is another, empty one; it must be down."""
        assert i in self.down, i
        for path in self.nodes[i].data_dir.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def died(self) -> list[int]:
        """Nodes that ended by themselves."""
        return [
            i
            for i, process in self._processes.items()
            if i not in self.down and process.poll() is not None
        ]

    def pid(self, i: int) -> int | None:
        """Its process; None: it does not run."""
        process = self._processes.get(i)
        return None if process is None or process.poll() is not None else process.pid

    def memory_bytes(self, i: int) -> int:
        """Resident memory; 0: it does not run."""
        pid = self.pid(i)
        if pid is None:
            return 0
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def close(self) -> None:
        """End every process, mount and namespace."""
        self.mend_disks()  # a process that waits for its disk cannot be killed
        for i in list(self._processes):
            self.kill(i)
        if self.disks is not None:
            self.disks.close()
        self.network.close()

    # ------------------------------------------------------------ questions

    def endpoint(self, i: int) -> tuple[str, int]:
        """Where clients find node i."""
        return self.network.host(i), self.nodes[i].amqp_port

    def address(self, first: int = 0, timeout_s: float = 30.0) -> Address:
        """Every node."""
        count = len(self.nodes)
        hosts = tuple(self.endpoint((first + i) % count) for i in range(count))
        return Address(hosts=hosts, request_timeout_s=timeout_s, connect_timeout_s=3.0)

    def leader_of(self, queue: str, timeout_s: float = 3.0) -> int | None:
        """As far as can be found out by then."""
        names = [node.name for node in self.nodes]
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                with Connection(self.address(timeout_s=1.0)) as connection:
                    leader = Admin(connection).queues.get(queue).leader
                if leader in names:
                    return names.index(leader)
            except WarrenError:
                pass
            time.sleep(POLL_S)
        return None

    def wait_serving(self, timeout_s: float = START_S) -> None:
        """Until every node answers a request that takes a majority; raises Unavailable."""
        for i in range(len(self.nodes)):
            address = Address(hosts=(self.endpoint(i),), request_timeout_s=timeout_s)
            with Connection(address) as connection:
                Admin(connection).queues.list()

    def log_tail(self, i: int) -> str:
        """The end of what it wrote."""
        path = self.nodes[i].log_file
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])
