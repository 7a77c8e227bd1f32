"""A local cluster, for tests or a notebook: broker processes on loopback."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from warren.admin import Admin
from warren.connection import Connection
from warren.errors import NotFound, Unavailable, UsageError, WarrenError
from warren.local_node import (
    STATE_FILE,
    LocalNode,
    State,
    _toml,  # noqa: F401  the nemesis writes its configurations with it
    new_nodes,
    read_state,
    write_config,
    write_state,
)
from warren.ports import ReservedPorts
from warren.uri import Address
from warren_wire.node_files import LISTENING_FILE, READY_FILE

__all__ = ["LocalCluster"]

Which: TypeAlias = int | str
"""A node's number among `LocalCluster.nodes`, from 0, or its name."""

NODES_MAX = 9
START_S = 60.0
STOP_S = 10.0
POLL_S = 0.02
LOG_TAIL_LINES = 20


class LocalCluster:
    """Broker processes `python -m warren_broker` on loopback, numbered 0, 1, 2 …

    nodes      how many, 1 to 9
    directory  where configuration, data and logs are; None: a temporary one that `stop` deletes.
               One with an existing cluster is used as it is: nodes, ports and data
    settings   more keys of the nodes' configuration, such as {"raft": {"heartbeat_ms": 50}}
    detached   the processes outlive this one; stop them with `LocalCluster(directory=…).stop()`
    port       the first node's client port, the others follow; None: any free ones

    `start` waits until every node serves clients; a context manager starts and stops it.
    """

    def __init__(
        self,
        nodes: int = 3,
        directory: str | Path | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        detached: bool = False,
        port: int | None = None,
    ) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise UsageError(f"{nodes} nodes: a local cluster has 1 to {NODES_MAX}")
        self._temporary = (
            tempfile.TemporaryDirectory(prefix="warren-") if directory is None else None
        )
        self.directory = Path(
            self._temporary.name if self._temporary else str(directory)
        ).absolute()
        self._detached = detached
        self._ports = ReservedPorts()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._guards: dict[str, subprocess.Popen[bytes]] = {}
        if (self.directory / STATE_FILE).exists():
            state = read_state(self.directory)
            self.nodes, self._next = state.nodes, state.next
            for node in self.nodes:
                self._ports.mark(node.amqp_port)
                self._ports.mark(node.peers_port)
            self._pids, self._settings = dict(state.pids), dict(state.settings)
        else:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.nodes = new_nodes(range(nodes), self.directory, self._ports, port)
            self._next = nodes
            self._pids, self._settings = {}, dict(settings or {})
            self._configure()
            self._write_state()

    # -------------------------------------------------------------- addresses

    @property
    def address(self) -> Address:
        """The address of all nodes, as user guest."""
        return Address(hosts=tuple(("127.0.0.1", node.amqp_port) for node in self.nodes))

    @property
    def uri(self) -> str:
        """The URI of all nodes, with the password (guest)."""
        return self.address.uri()

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of every node."""
        return tuple(f"127.0.0.1:{node.amqp_port}" for node in self.nodes)

    @property
    def hosts(self) -> str:
        """host:port of every node, comma-separated."""
        return ",".join(self.addresses)

    def node_address(self, i: Which) -> Address:
        """Return the address of node i only."""
        return Address(hosts=(("127.0.0.1", self.node(i).amqp_port),))

    def connect(self) -> Connection:
        """Open a new connection to the cluster."""
        return Connection(self.address)

    def node(self, i: Which) -> LocalNode:
        """Return a node by number or name; raises NotFound."""
        for number, node in enumerate(self.nodes):
            if i in (number, node.name):
                return node
        names = ", ".join(node.name for node in self.nodes)
        raise NotFound(f"no node {i!r} in {self.directory}: there are {names}, from number 0")

    # -------------------------------------------------------------- processes

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def start(self, i: Which | None = None, timeout_s: float = START_S) -> LocalCluster:
        """Start node i, or every node that is not running.

        One node: waits until it listens (it serves clients once a majority runs). All: waits until
        every one has answered. Raises Unavailable, with the end of the node's log, when that takes
        too long.
        """
        wanted = self.nodes if i is None else (self.node(i),)
        return self._start(wanted, i is None, time.monotonic() + timeout_s)

    def _start(self, wanted: tuple[LocalNode, ...], serving: bool, deadline: float) -> LocalCluster:
        started = [node for node in wanted if not self.is_running(node.name)]
        try:
            for node in started:
                self._spawn(node)
            for node in wanted:
                self._wait(node, LISTENING_FILE, deadline, "does not listen")
            if serving:
                for node in wanted:
                    self._wait(node, READY_FILE, deadline, "does not serve clients")
        except WarrenError:
            for node in started:
                self.kill(node.name)
            raise
        return self

    def spawn(self, i: Which) -> None:
        """Start node i's process unless it runs, without waiting."""
        if not self.is_running(i):
            self._spawn(self.node(i))

    def kill(self, i: Which) -> None:
        """Kill node i with SIGKILL: it loses what was not on disk."""
        node = self.node(i)
        self._signal(node, signal.SIGKILL)
        self._reap(node, time.monotonic() + STOP_S)

    def stop_node(self, i: Which, timeout_s: float = STOP_S) -> None:
        """Stop node i with SIGTERM; kill it after the timeout."""
        node = self.node(i)
        self._signal(node, signal.SIGTERM)
        if not self._reap(node, time.monotonic() + timeout_s):
            self.kill(i)

    def restart(self, i: Which, *, kill: bool = False, timeout_s: float = START_S) -> None:
        """Stop (or kill) node i and start it again."""
        if kill:
            self.kill(i)
        else:
            self.stop_node(i)
        self.start(i, timeout_s)

    def pause(self, i: Which) -> None:
        """Send SIGSTOP: node i neither answers nor ends."""
        self._signal(self.node(i), signal.SIGSTOP)

    def resume(self, i: Which) -> None:
        """Send SIGCONT after `pause`."""
        self._signal(self.node(i), signal.SIGCONT)

    def stop(self) -> None:
        """Stop every node; delete a temporary directory."""
        for node in self.nodes:
            self._signal(node, signal.SIGCONT)  # a paused process could not stop
            self._signal(node, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for node in self.nodes:
            if not self._reap(node, deadline):
                self.kill(node.name)
        atexit.unregister(self.stop)
        if self._temporary is not None:
            self._temporary.cleanup()

    def is_running(self, i: Which) -> bool:
        """Return whether node i's process is running."""
        node = self.node(i)
        process = self._processes.get(node.name)
        if process is not None:
            return process.poll() is None
        return _is_node(self._pids.get(node.name, 0), node)

    def pid(self, i: Which) -> int:
        """Return the pid of node i's process; 0: none was started."""
        return self._pids.get(self.node(i).name, 0)

    def log(self, i: Which) -> str:
        """Return the log of node i so far."""
        path = self.node(i).log_file
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    # -------------------------------------------------------------- adding and removing nodes

    def add_node(self, *, start: bool = True, timeout_s: float = START_S) -> LocalNode:
        """Add a node, the last one of `nodes`; the others need no new configuration.

        It joins the running cluster when it is started, which waits until it serves clients; it
        has no members of queues until some are added (`Admin.nodes.grow`). In a cluster that was
        never started it is one of the founders.
        """
        if len(self.nodes) == NODES_MAX:
            raise UsageError(f"a local cluster has 1 to {NODES_MAX} nodes")
        (node,) = new_nodes((self._next,), self.directory, self._ports)
        founded = any(each.data_dir.exists() for each in self.nodes)
        self.nodes = (*self.nodes, node)
        self._next += 1
        if founded:
            write_config(node, self.nodes, self._settings)
        else:
            self._configure()
        self._write_state()
        if start:
            self._start((node,), True, time.monotonic() + timeout_s)
        return node

    def wipe_node(self, i: Which) -> None:
        """Kill node i and empty its data directory, as a lost disk would.

        Started again, it gets all data from the others, and does not vote before it has it.
        """
        self.kill(i)
        data = self.node(i).data_dir
        for each in sorted(data.iterdir()) if data.exists() else ():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    def remove_node(self, i: Which) -> None:
        """Kill node i and delete its directory, after `Admin.nodes.forget` for the cluster.

        The numbers of the nodes after it decrease by one.
        """
        node = self.node(i)
        if len(self.nodes) == 1:
            raise UsageError(f"{node.name} is the only node: `stop` the cluster instead")
        self.kill(i)
        self.nodes = tuple(each for each in self.nodes if each is not node)
        self._processes.pop(node.name, None)
        self._pids.pop(node.name, None)
        self._write_state()
        shutil.rmtree(node.directory)

    # -------------------------------------------------------------- leaders

    def leader_of(self, queue: str, *, vhost: str = "/", timeout_s: float = START_S) -> int:
        """Return the number of the queue's leader; waits for one. Raises NotFound, Unavailable."""
        deadline = time.monotonic() + timeout_s
        names = [node.name for node in self.nodes]
        address = Address(hosts=self.address.hosts, vhost=vhost, request_timeout_s=timeout_s)
        with Connection(address) as connection:
            while True:
                leader = Admin(connection).queues.get(queue).leader
                if leader in names:
                    return names.index(leader)
                if time.monotonic() > deadline:
                    raise Unavailable(f"queue {queue!r} has no leader after {timeout_s:g} s")
                time.sleep(POLL_S)

    # -------------------------------------------------------------- inside

    def _spawn(self, node: LocalNode) -> None:
        self._dismiss_guard(node)
        process = spawn_node(node)
        self._processes[node.name] = process
        self._pids[node.name] = process.pid
        self._write_state()
        if not self._detached:
            self._guards[node.name] = guard(process.pid)
            atexit.unregister(self.stop)
            atexit.register(self.stop)

    def _wait(self, node: LocalNode, file: str, deadline: float, what: str) -> None:
        """Wait until the node has made that file."""
        while not (node.data_dir / file).exists():
            self._check_alive(node, deadline, what)
            time.sleep(POLL_S)

    def _check_alive(self, node: LocalNode, deadline: float, what: str) -> None:
        running = self.is_running(node.name)
        if running and time.monotonic() < deadline:
            return
        how = "ran out of time" if running else "has ended"
        tail = "\n".join(self.log(node.name).splitlines()[-LOG_TAIL_LINES:])
        raise Unavailable(f"node {node.name} {how}: {what}\n{node.log_file}:\n{tail}")

    def _signal(self, node: LocalNode, which: signal.Signals) -> None:
        if self.is_running(node.name):
            os.kill(self._pids[node.name], which)

    def _reap(self, node: LocalNode, deadline: float) -> bool:
        """Wait for the end of the node's process; return whether it came in time."""
        while self.is_running(node.name):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        self._dismiss_guard(node)
        forget_files(node)
        return True

    def _dismiss_guard(self, node: LocalNode) -> None:
        """End a stopped node's guard before the pid can be another process's."""
        dismissed = self._guards.pop(node.name, None)
        if dismissed is not None:
            dismissed.kill()
            dismissed.communicate()

    def _configure(self) -> None:
        for node in self.nodes:
            write_config(node, self.nodes, self._settings)

    def _write_state(self) -> None:
        write_state(self.directory, State(self.nodes, self._pids, self._settings, self._next))


def existing_cluster(directory: str | Path) -> LocalCluster:
    """Return the cluster in that directory; raises NotFound when there is none."""
    if not (Path(directory) / STATE_FILE).exists():
        raise NotFound(f"no cluster in {directory}; start one with `warren cluster start`")
    return LocalCluster(directory=directory, detached=True)


def spawn_node(node: LocalNode, inside: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start a node's process in a session of its own; its output goes to its log file.

    inside  the command that runs it elsewhere, as in another network namespace
    """
    forget_files(node)
    with node.log_file.open("ab") as log:
        return subprocess.Popen(
            [*inside, sys.executable, "-m", "warren_broker", "--config", str(node.config_file)],
            cwd=node.directory,
            env=node_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def forget_files(node: LocalNode) -> None:
    """Remove the files that a killed process could not remove."""
    for name in (READY_FILE, LISTENING_FILE):
        (node.data_dir / name).unlink(missing_ok=True)


def guard(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that kills `pid` (negative: its group) when this one ends.

    Then its input is closed.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read _; kill -9 {pid}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def node_environment() -> dict[str, str]:
    """Return this process's environment, with its own import paths in PYTHONPATH."""
    environment = dict(os.environ)
    places = []
    for package in ("warren_broker", "warren_raft"):
        found = importlib.util.find_spec(package)
        if found is not None and found.submodule_search_locations:
            places.append(str(Path(next(iter(found.submodule_search_locations))).parent))
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([*places, before] if before else places)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def _is_node(pid: int, node: LocalNode) -> bool:
    """Return whether that process is this node, not another one that got its pid later."""
    if pid <= 0:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return str(node.config_file).encode() in command
