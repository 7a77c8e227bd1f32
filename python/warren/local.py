"""A local cluster, for tests or a notebook: broker processes on loopback."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from warren.admin import Admin
from warren.connection import Connection
from warren.errors import NotFound, PeerError, Unavailable, UsageError, WarrenError
from warren.uri import Address

NODES_MAX = 9
START_S = 60.0
STOP_S = 10.0
POLL_S = 0.02
LOG_TAIL_LINES = 20
STATE_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node's place: its name, ports on loopback, directory."""

    name: str
    amqp_port: int
    peers_port: int
    directory: str

    @property
    def config_file(self) -> Path:
        """The TOML file that it is started with."""
        return Path(self.directory) / "warren.toml"

    @property
    def data_dir(self) -> Path:
        """Where it keeps its data, and `ready.json` while it runs."""
        return Path(self.directory) / "data"

    @property
    def log_file(self) -> Path:
        """Its standard output and error."""
        return Path(self.directory) / "log.txt"


class LocalCluster:
    """Broker processes `python -m warren_broker` on loopback, numbered 0, 1, 2 …

    nodes      how many, 1 to 9
    directory  where configuration, data and logs are; None: a temporary one that goes with `stop`.
               One that holds a cluster already is taken up as it is: nodes, ports and data
    settings   more keys of the nodes' configuration, such as {"raft": {"heartbeat_ms": 50}}
    detached   the processes outlive this one; stop them with `LocalCluster(directory=…).stop()`

    `start` waits until every node serves; using it as a context manager starts and stops it.
    """

    def __init__(
        self,
        nodes: int = 3,
        directory: str | Path | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        detached: bool = False,
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
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._pids: dict[int, int] = {}
        self._guards: dict[int, subprocess.Popen[bytes]] = {}
        state = self.directory / STATE_FILE
        if state.exists():
            self.nodes, self._pids = _read_state(state)
        else:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.nodes = _new_nodes(nodes, self.directory)
            for node in self.nodes:
                _write_config(node, self.nodes, settings or {})
            self._write_state()

    # -------------------------------------------------------------- addresses

    @property
    def address(self) -> Address:
        """All nodes, as user guest."""
        return Address(hosts=tuple(("127.0.0.1", node.amqp_port) for node in self.nodes))

    @property
    def uri(self) -> str:
        """All nodes as a URI, with the password (guest)."""
        return self.address.uri()

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of every node."""
        return tuple(f"127.0.0.1:{node.amqp_port}" for node in self.nodes)

    @property
    def hosts(self) -> str:
        """host:port of every node, comma-separated."""
        return ",".join(self.addresses)

    def node_address(self, i: int) -> Address:
        """Node i alone."""
        return Address(hosts=(("127.0.0.1", self.nodes[i].amqp_port),))

    def connect(self) -> Connection:
        """A new connection to the cluster."""
        return Connection(self.address)

    # -------------------------------------------------------------- processes

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, i: int | None = None, timeout_s: float = START_S) -> LocalCluster:
        """Start node i, or every node that does not run.

        One node: waits until it listens (it serves as soon as a majority does). All: waits until
        every one has answered. Unavailable, with the end of the node's log, when that takes too
        long.
        """
        deadline = time.monotonic() + timeout_s
        wanted = range(len(self.nodes)) if i is None else (i,)
        started = [each for each in wanted if not self.is_running(each)]
        try:
            for each in started:
                self._spawn(each)
            for each in wanted:
                self._wait_listening(each, deadline)
            if i is None:
                for each in wanted:
                    self._wait_serving(each, deadline)
        except WarrenError:
            for each in started:
                self.kill(each)
            raise
        return self

    def kill(self, i: int) -> None:
        """kill -9: node i loses what was not on disk."""
        self._signal(i, signal.SIGKILL)
        self._reap(i, time.monotonic() + STOP_S)

    def stop_node(self, i: int, timeout_s: float = STOP_S) -> None:
        """Ask node i to stop; kills it when it has not by then."""
        self._signal(i, signal.SIGTERM)
        if not self._reap(i, time.monotonic() + timeout_s):
            self.kill(i)

    def restart(self, i: int, *, kill: bool = False, timeout_s: float = START_S) -> None:
        """Stop (or kill -9) node i, start it again."""
        if kill:
            self.kill(i)
        else:
            self.stop_node(i)
        self.start(i, timeout_s)

    def pause(self, i: int) -> None:
        """SIGSTOP: node i neither answers nor dies."""
        self._signal(i, signal.SIGSTOP)

    def resume(self, i: int) -> None:
        """SIGCONT after `pause`."""
        self._signal(i, signal.SIGCONT)

    def stop(self) -> None:
        """Stop every node; a temporary directory goes."""
        for i in range(len(self.nodes)):
            self._signal(i, signal.SIGCONT)  # a paused one could not stop
            self._signal(i, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for i in range(len(self.nodes)):
            if not self._reap(i, deadline):
                self.kill(i)
        atexit.unregister(self.stop)
        if self._temporary is not None:
            self._temporary.cleanup()

    def is_running(self, i: int) -> bool:
        """Whether node i's process lives."""
        process = self._processes.get(i)
        if process is not None:
            return process.poll() is None
        return _is_node(self._pids.get(i, 0), self.nodes[i])

    def pid(self, i: int) -> int:
        """Node i's process; 0: none was started."""
        return self._pids.get(i, 0)

    def log(self, i: int) -> str:
        """What node i has written so far."""
        path = self.nodes[i].log_file
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    # -------------------------------------------------------------- questions

    def leader_of(self, queue: str, *, vhost: str = "/", timeout_s: float = START_S) -> int:
        """The number of the node that leads the queue; waits for one. NotFound, Unavailable."""
        deadline = time.monotonic() + timeout_s
        names = [node.name for node in self.nodes]
        address = Address(hosts=self.address.hosts, vhost=vhost, request_timeout_s=timeout_s)
        with Connection(address) as connection:
            while True:
                leader = Admin(connection).queue(queue).leader
                if leader in names:
                    return names.index(leader)
                if time.monotonic() > deadline:
                    raise Unavailable(f"queue {queue!r} has no leader after {timeout_s:g} s")
                time.sleep(POLL_S)

    # -------------------------------------------------------------- inside

    def _spawn(self, i: int) -> None:
        self._dismiss_guard(i)
        node = self.nodes[i]
        ready = node.data_dir / "ready.json"
        ready.unlink(missing_ok=True)
        with node.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "warren_broker", "--config", str(node.config_file)],
                cwd=node.directory,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes[i] = process
        self._pids[i] = process.pid
        self._write_state()
        if not self._detached:
            self._guards[i] = _guard(process.pid)
            atexit.unregister(self.stop)
            atexit.register(self.stop)

    def _wait_listening(self, i: int, deadline: float) -> None:
        """Until the node says so itself."""
        while not (self.nodes[i].data_dir / "ready.json").exists():
            self._check_alive(i, deadline, "is not ready")
            time.sleep(POLL_S)

    def _wait_serving(self, i: int, deadline: float) -> None:
        """Until it has answered a request, for which the cluster needs its majority."""
        address = Address(hosts=(("127.0.0.1", self.nodes[i].amqp_port),), request_timeout_s=1.0)
        with Connection(address) as connection:
            while True:
                try:
                    Admin(connection).exchanges()
                    return
                except (Unavailable, PeerError) as error:
                    self._check_alive(i, deadline, str(error))
                    time.sleep(POLL_S)

    def _check_alive(self, i: int, deadline: float, what: str) -> None:
        if self.is_running(i) and time.monotonic() < deadline:
            return
        how = "ran out of time" if self.is_running(i) else "has ended"
        tail = "\n".join(self.log(i).splitlines()[-LOG_TAIL_LINES:])
        raise Unavailable(
            f"node {self.nodes[i].name} {how}: {what}\n{self.nodes[i].log_file}:\n{tail}"
        )

    def _signal(self, i: int, which: signal.Signals) -> None:
        if self.is_running(i):
            os.kill(self._pids[i], which)

    def _reap(self, i: int, deadline: float) -> bool:
        """Wait for node i's end; whether it came in time."""
        while self.is_running(i):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        self._dismiss_guard(i)
        (self.nodes[i].data_dir / "ready.json").unlink(missing_ok=True)
        return True

    def _dismiss_guard(self, i: int) -> None:
        """Before the number of a node that has ended can be another process's."""
        guard = self._guards.pop(i, None)
        if guard is not None:
            guard.kill()
            guard.communicate()

    def _write_state(self) -> None:
        state = {
            "nodes": [asdict(node) for node in self.nodes],
            "pids": {str(i): pid for i, pid in self._pids.items()},
        }
        new = self.directory / (STATE_FILE + ".new")
        new.write_text(json.dumps(state, indent=2), encoding="utf-8")
        new.replace(self.directory / STATE_FILE)


def existing_cluster(directory: str | Path) -> LocalCluster:
    """The cluster in that directory; NotFound when there is none."""
    if not (Path(directory) / STATE_FILE).exists():
        raise NotFound(f"no cluster in {directory}; start one with `warren cluster start`")
    return LocalCluster(directory=directory, detached=True)


def _read_state(path: Path) -> tuple[tuple[LocalNode, ...], dict[int, int]]:
    state = json.loads(path.read_text(encoding="utf-8"))
    nodes = tuple(LocalNode(**node) for node in state["nodes"])
    return nodes, {int(i): int(pid) for i, pid in state["pids"].items()}


def _new_nodes(count: int, directory: Path) -> tuple[LocalNode, ...]:
    """Nodes on ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 * count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    nodes = []
    for i in range(count):
        place = directory / f"node-{i}"
        place.mkdir(exist_ok=True)
        nodes.append(LocalNode(f"node-{i}", ports[2 * i], ports[2 * i + 1], str(place)))
    return tuple(nodes)


def _write_config(
    node: LocalNode, nodes: tuple[LocalNode, ...], settings: Mapping[str, Any]
) -> None:
    """The node's TOML file; see `warren_broker.config`."""
    values: dict[str, Any] = {
        "node": node.name,
        "cluster": "local",
        "secret": "local",
        "data_dir": str(node.data_dir),
        "listen": {"amqp": f"127.0.0.1:{node.amqp_port}", "peers": f"127.0.0.1:{node.peers_port}"},
        "peers": {each.name: f"127.0.0.1:{each.peers_port}" for each in nodes},
    }
    for key, value in settings.items():
        both = isinstance(value, Mapping) and isinstance(values.get(key), dict)
        values[key] = {**values[key], **value} if both else value
    lines = [
        f"{key} = {_toml(value)}" for key, value in values.items() if not isinstance(value, Mapping)
    ]
    for key, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{key}]", *(f"{json.dumps(k)} = {_toml(v)}" for k, v in table.items())]
    node.config_file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _guard(pid: int) -> subprocess.Popen[bytes]:
    """A process that kills `pid` when this one ends, however it ends: then its input is closed."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read _; kill -9 {pid}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _toml(value: Any) -> str:
    """A string, number or flag as TOML, which for these is JSON."""
    if not isinstance(value, (str, int, float)):
        raise UsageError(f"setting {value!r}: a text, number or flag is expected")
    return json.dumps(value)


def _environment() -> dict[str, str]:
    """This process's environment, with the packages that it has imported itself on the path."""
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
    """Whether that process is this node, not another that got its number later."""
    if pid <= 0:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return str(node.config_file).encode() in command
