"""RabbitMQ from Debian: found or installed, and run as three nodes on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bench.generator import PLACE, Missing
from bench.ports import free_ports
from bench.processes import disk_bytes
from tools import chroot
from warren.local import guard
from warren_wire.amqp091.codec import PROTOCOL_HEADER

NODES = 3
SUITE = "forky"
PACKAGE = "rabbitmq-server"
CHROOT = Path("/var/tmp/warren-bench-peer")
LOG = PLACE / "chroot.log"
DATA = "/var/tmp/warren-bench-data"
START_S = 300.0
STOP_S = 180.0
POLL_S = 0.05
ANSWER_S = 5.0
ON_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
cluster_formation.peer_discovery_backend = classic_config
{members}
vm_memory_high_watermark.absolute = 8GB
disk_free_limit.absolute = 1GB
log.file.level = warning
log.console = false
"""


def server(root: Path) -> str | None:
    """Return the folder of the newest server's programs, relative to `root`."""
    found = root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")
    ascending = sorted(
        found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.parent.name)]
    )
    return f"/{ascending[-1].relative_to(root)}" if ascending else None


def find(notes: list[str]) -> Path:
    """Find RabbitMQ: RMQ_ROOT, the chroot (made where possible), or the system's package.

    notes   takes remarks on the choice
    raises  Missing
    """
    named = os.environ.get("RMQ_ROOT")
    if named:
        if server(Path(named)) is None:
            raise Missing(f"no RabbitMQ below RMQ_ROOT={named}")
        return Path(named)
    try:
        with chroot.locked(CHROOT):
            if server(CHROOT) is None:
                print(f"  setting up Debian {SUITE}'s RabbitMQ in {CHROOT}", flush=True)
                chroot.make(CHROOT, SUITE, [PACKAGE], LOG)
            chroot.mount(CHROOT)
    except chroot.NotMade as error:
        reason = f"its chroot cannot be made: {error}; {LOG} may say more"
        if server(Path("/")) is None:
            raise Missing(f"{reason}; apt-get install rabbitmq-server has an older one") from None
        notes.append(f"Debian {SUITE}'s RabbitMQ: {reason}; the system's older one is the peer")
        return Path("/")
    return CHROOT


class RabbitMQ:
    """Nodes that form a cluster; a context manager that starts them empty and stops them.

    root     where the file system with the server begins
    nodes    how many
    plugins  what is enabled; `rabbitmq_management` needs its port in `settings`
    settings  more lines of every node's rabbitmq.conf
    data     folder of all state, as the server sees it; anything in it is deleted
    raises   Missing: there is no server
    """

    tls = False

    def __init__(
        self,
        root: Path,
        nodes: int = NODES,
        plugins: Sequence[str] = (),
        settings: str = "",
        data: str = DATA,
    ) -> None:
        self.root = root
        self._count = nodes
        self._plugins = plugins
        self._settings = settings
        self._data = data
        programs = server(root)
        if programs is None:
            raise Missing(f"no RabbitMQ below {root}: apt-get install rabbitmq-server")
        self.programs = programs
        version = re.search(r"rabbitmq_server-([^/]+)", programs)
        assert version is not None, programs
        self.name = f"RabbitMQ {version[1]}"
        self.data = root / data.lstrip("/")
        amqp = free_ports(nodes)
        self._amqp = [amqp + i for i in range(nodes)]
        distribution = free_ports(nodes)
        self._distribution = [distribution + i for i in range(nodes)]
        self._epmd_port = free_ports(1)
        self._epmd: subprocess.Popen[bytes] | None = None
        self._epmd_guard: subprocess.Popen[bytes]
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._guards: dict[int, subprocess.Popen[bytes]] = {}
        self._emulators: dict[int, int] = {}

    def __enter__(self) -> RabbitMQ:
        if self.data.exists():
            shutil.rmtree(self.data)
        for i in range(self._count):
            self._configure(i)
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        for i in list(self._nodes):
            self.kill(i)
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
            self._epmd_guard.kill()
            self._epmd_guard.communicate()
        shutil.rmtree(self.data, ignore_errors=True)

    # ------------------------------------------------------------ see Peer

    def targets(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._amqp)

    def pids(self) -> list[int]:
        return [self._emulator(i) for i in range(self._count)]

    def data_bytes(self) -> list[int]:
        return [disk_bytes(self.data / f"r{i + 1}" / "data") for i in range(self._count)]

    def start(self) -> None:
        """Start all nodes and wait until they form a cluster."""
        self.spawn(range(self._count))
        deadline = time.monotonic() + START_S
        while not self._is_complete():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not form a cluster; see {self.data}/r1/log")
            time.sleep(POLL_S if self._count == 1 else 0.5)

    def spawn(self, which: range) -> None:
        self._start_epmd()
        for i in which:
            home = self.data / f"r{i + 1}"
            (home / "pid").unlink(missing_ok=True)
            self._emulators.pop(i, None)
            with (home / "log" / "out").open("ab") as out:
                self._nodes[i] = process = subprocess.Popen(
                    [
                        *self._inside(),
                        "env",
                        "-i",
                        *self._environment(i),
                        f"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS={ON_LOOPBACK}",
                        f"{self.programs}/rabbitmq-server",
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._guards[i] = guard(-process.pid)

    def stop(self) -> None:
        for i in self._nodes:
            os.kill(self._emulator(i), signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for i, process in list(self._nodes.items()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            self.kill(i)

    def stop_node(self, i: int) -> None:
        os.kill(self._emulator(i), signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._nodes[i].wait(STOP_S)
        self.kill(i)

    def kill(self, i: int) -> None:
        """Send SIGKILL to a node and to the script that started it."""
        process = self._nodes.pop(i)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        dismissed = self._guards.pop(i)
        dismissed.kill()
        dismissed.communicate()

    def leader(self, queue: str) -> int:
        table = self._control("-q", "list_queues", "name", "leader")
        for line in table.splitlines():
            name, _, node = line.partition("\t")
            if name == queue:
                return int(node.split("@")[0].removeprefix("r")) - 1
        raise RuntimeError(f"rabbitmqctl shows no queue {queue!r}")

    def evaluate(self, expression: str) -> str:
        """Evaluate an Erlang expression on the first node; what has no setting is set so."""
        return self._control("eval", expression)

    def more_settings(self, i: int) -> str:
        """Return lines of one node's rabbitmq.conf that differ between nodes."""
        return ""

    # ------------------------------------------------------------ inside

    def _emulator(self, i: int) -> int:
        """Return the process of the emulator, below the script that started it."""
        file = self.data / f"r{i + 1}" / "pid"
        deadline = time.monotonic() + START_S
        while i not in self._emulators:
            if self._nodes[i].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"node {i + 1} of {self.name} did not start; see {file.parent}/log"
                )
            text = file.read_text().strip() if file.exists() else ""
            if text.isdigit():
                self._emulators[i] = int(text)
            else:
                time.sleep(POLL_S)
        return self._emulators[i]

    def _inside(self) -> list[str]:
        return [] if self.root == Path("/") else ["chroot", str(self.root)]

    def _environment(self, i: int) -> list[str]:
        home = f"{self._data}/r{i + 1}"
        return [
            f"HOME={self._data}",
            "LANG=C.UTF-8",
            "LC_ALL=C.UTF-8",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            f"RABBITMQ_NODENAME=r{i + 1}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
            f"RABBITMQ_NODE_PORT={self._amqp[i]}",
            f"RABBITMQ_DIST_PORT={self._distribution[i]}",
            f"RABBITMQ_MNESIA_BASE={home}/data",
            f"RABBITMQ_MNESIA_DIR={home}/data/r{i + 1}",
            f"RABBITMQ_LOG_BASE={home}/log",
            f"RABBITMQ_LOGS={home}/log/r{i + 1}.log",
            f"RABBITMQ_CONFIG_FILE={home}/rabbitmq",
            f"RABBITMQ_ENABLED_PLUGINS_FILE={home}/enabled_plugins",
            f"RABBITMQ_PID_FILE={home}/pid",
            f"RABBITMQ_CONF_ENV_FILE={home}/none",
            f"RABBITMQ_FEATURE_FLAGS_FILE={home}/feature_flags",
            f"ERL_EPMD_PORT={self._epmd_port}",
            "ERL_EPMD_ADDRESS=127.0.0.1",
        ]

    def _configure(self, i: int) -> None:
        home = self.data / f"r{i + 1}"
        (home / "data").mkdir(parents=True)
        (home / "log").mkdir()
        members = "\n".join(
            f"cluster_formation.classic_config.nodes.{j + 1} = r{j + 1}@localhost"
            for j in range(self._count)
        )
        text = CONFIG.format(port=self._amqp[i], members=members) + self._settings
        text += self.more_settings(i)
        (home / "rabbitmq.conf").write_text(text)
        (home / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        cookie = self.data / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text("WARRENBENCH")
            cookie.chmod(0o400)

    def _start_epmd(self) -> None:
        if self._epmd is None:
            self._epmd = subprocess.Popen(
                [*self._inside(), "epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._epmd_guard = guard(self._epmd.pid)
            time.sleep(0.3)

    def _control(self, *arguments: str) -> str:
        done = subprocess.run(
            [
                *self._inside(),
                "env",
                "-i",
                *self._environment(0),
                f"{self.programs}/rabbitmqctl",
                "-n",
                "r1@localhost",
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def _is_complete(self) -> bool:
        """Return whether all nodes run, and know each other.

        A node accepts connections when everything else has started. rabbitmqctl, which takes a
        second or two of CPU, is asked only about several nodes.
        """
        for process in self._nodes.values():
            if process.poll() is not None:
                raise RuntimeError(f"a node of {self.name} has ended; see {self.data}/r*/log")
        if not all(answers("127.0.0.1", port) for port in self._amqp):
            return False
        running = "length([N || N <- [node() | nodes()], rabbit:is_running(N)])."
        return self._count == 1 or self.evaluate(running) == str(self._count)


def answers(host: str, port: int) -> bool:
    """Return whether a broker answers the header of AMQP 0.9.1."""
    try:
        with socket.create_connection((host, port), ANSWER_S) as made:
            made.sendall(PROTOCOL_HEADER)
            return bool(made.recv(1))
    except OSError:
        return False
