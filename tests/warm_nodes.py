"""Nodes that begin as copies of a process which has imported the broker: a start without imports.

A real node's process spends most of its start importing, and the tests start hundreds. What is
forked is a process like any other: with its own session, log, directory, and memory. What the tests
of starting itself are about stays as it is: a node in another environment than the test run's
(COLD_NODES: the command line's cluster and the documented examples in `tests/python`), and what
starts `python -m warren_broker` by itself.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

START_S = 60.0
COLD_NODES = "COLD_NODES"
"""Set in a test's environment, this variable lets its nodes start as a user's do."""
OWN_PATHS = 2
"""Folders that `node_environment` puts before PYTHONPATH: of the broker, and of Raft."""
SURVEY_PATIENCE_MS = 30_000
"""How long these nodes wait for an answer of another one. Half a second, the usual time, is too
little on a busy machine: what a node declares is then not seen at once on one that waits for a
processor, and limits and lists leave out its connections. A node that hangs is suspected after two
seconds, and not waited for from then on."""
NOT_OF_NODES = (
    "PYTEST_CURRENT_TEST",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_PYTHON",
    "RABBITMQ_PASSWORD",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
)
"""Variables that do not concern a node: all but the first are set for Spark's processes, the last
two by PySpark when a session starts."""


class WarmNode:
    """A node's process, as far as `subprocess.Popen` describes one.

    pid         of the node
    returncode  None: it runs
    """

    def __init__(self, template: Template, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._template = template

    def poll(self) -> int | None:
        """Return the exit code; None: it runs."""
        if self.returncode is None:
            self._template.read_ends(self)
        return self.returncode


class Template:
    """The process that the nodes are copies of; starts with the first one, ends with this one.

    environment  its own, and that of its copies
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = environment
        self._received = b""
        self._nodes: dict[int, WarmNode] = {}

    def spawn(self, config: str, directory: str, log: str) -> WarmNode:
        """Start a node."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-u", __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=self._environment,
                    start_new_session=True,
                )
            assert self._process.stdin is not None
            asked = {"config": config, "directory": directory, "log": log}
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
            started = self._read(START_S)
            assert started is not None, "the template does not answer"
            node = self._nodes[started["pid"]] = WarmNode(self, started["pid"])
            return node

    def read_ends(self, node: WarmNode) -> None:
        """Take note of the nodes that have ended."""
        with self._lock:
            while node.returncode is None and self._read(0.0) is not None:
                pass

    def close(self) -> None:
        """End the template; nodes continue."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(START_S)
            self._process.stdout.close()

    def _read(self, timeout_s: float) -> dict[str, int] | None:
        """Return the next node that has started; without a timeout also one that has ended."""
        assert self._process is not None and self._process.stdout is not None
        out = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while True:
            line, found, rest = self._received.partition(b"\n")
            if found:
                self._received = rest
                said: dict[str, int] = json.loads(line)
                if "code" in said:
                    self._nodes.pop(said["pid"]).returncode = said["code"]
                if "code" not in said or not timeout_s:
                    return said
                continue
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([out], [], [], left_s)[0]:
                return None
            data = os.read(out, 1 << 16)
            assert data, "the template has ended"
            self._received += data


@contextmanager
def warm_nodes() -> Iterator[None]:
    """Let `LocalCluster` start its nodes from a template."""
    from warren import local

    def environment() -> dict[str, str]:
        now = local.node_environment()
        # What follows the folders of the node's packages is the test run's, or Spark's.
        now["PYTHONPATH"] = os.pathsep.join(now["PYTHONPATH"].split(os.pathsep)[:OWN_PATHS])
        return {name: value for name, value in now.items() if name not in NOT_OF_NODES}

    cold, usual = local.spawn_node, environment()
    template = Template(usual)

    def spawn_node(node: local.LocalNode, inside: Sequence[str] = ()) -> Any:
        if inside or environment() != usual:
            return cold(node, inside)
        local.forget_files(node)
        return template.spawn(str(node.config_file), str(node.directory), str(node.log_file))

    local.spawn_node = spawn_node
    try:
        yield
    finally:
        local.spawn_node = cold
        template.close()


# ------------------------------------------------------------------ in the template's process


def serve() -> None:
    """Start a node for each line of the input, say which ones have ended, until the input ends."""
    import warren_broker.__main__
    from warren_broker.cluster import survey

    survey.SURVEY_PATIENCE_MS = SURVEY_PATIENCE_MS
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would copy one thread of several"
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    received = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 1 << 12)
            _say_ends()
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                _derive_key(asked["config"])
                pid = os.fork()
                if pid == 0:
                    _be_a_node(asked, (woken, wake), warren_broker.__main__.main)
                print(json.dumps({"pid": pid}), flush=True)


def _derive_key(config: str) -> None:
    """Derive the key between the nodes of this node's cluster, which is remembered.

    It is slow on purpose: half of the processor time of a start from here, and 32 MiB.
    """
    from warren_broker.config import ConfigError, load
    from warren_broker.node import host_config
    from warren_raft.runtime.net.handshake import peer_key

    with suppress(ConfigError, OSError):  # the node itself says what is wrong
        settings = host_config(load(Path(config)))
        peer_key(settings.secret, settings.cluster)


def _say_ends() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        print(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)


def _be_a_node(asked: dict[str, str], pipe: tuple[int, int], main: Any) -> NoReturn:
    """Do what a new interpreter would do with `-m warren_broker --config FILE`."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, into in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(fd, into)
        for fd in (*pipe, log, nothing):
            os.close(fd)
        os.chdir(asked["directory"])
        arguments = ["--config", asked["config"]]
        sys.argv = ["warren_broker", *arguments]
        sys.orig_argv = [sys.executable, "-m", "warren_broker", *arguments]
        code = main(arguments)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
