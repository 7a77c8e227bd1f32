"""Deployments of Spark: processes that Spark's own scripts start, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spark_world.runs import POLL_S, RUN_S_MAX

from bench.ports import free_ports
from sparks import venvs

START_S = 180
MEMORY = "512m"
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Process:
    """A process in a session of its own, which ends with it.

    port  what it serves; `start` waits for that
    """

    def __init__(
        self, command: list[str], env: dict[str, str], log: Path, port: int | None = None
    ) -> None:
        self.command, self.env, self.log, self.port = command, env, log, port
        self.start()

    def start(self) -> None:
        """Start it, also again; its output goes to the log."""
        with self.log.open("ab") as out:
            self.popen = subprocess.Popen(
                self.command,
                env=self.env,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while self.port is not None and not is_served(self.port):
            assert self.popen.poll() is None and time.monotonic() < deadline, self.tail()
            time.sleep(POLL_S)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *failure: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.popen.pid

    def kill(self) -> None:
        """Kill it and what it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()

    def tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def wait_for(self, words: str) -> None:
        """Wait until its log has these words."""
        deadline = time.monotonic() + START_S
        while words not in self.log.read_text(encoding="utf-8", errors="replace"):
            assert self.popen.poll() is None and time.monotonic() < deadline, self.tail()
            time.sleep(POLL_S)


def _kill(program: Process) -> str:
    program.kill()
    return "the driver killed"


@dataclass(frozen=True)
class Place:
    """Where a program with a query is run.

    name          for the table
    command       what runs the program, before its path and its arguments
    env           its environment, in which SPARK_REMOTE or MASTER is set
    end_driver    ends the process with the driver, and the program with it; says what it did
    end_executor  ends one of several executors; None: there are none
    scheme        of the program's path
    output        returns where what the driver prints is; None: in the program's log
    options       of the connector, beside the hosts
    """

    name: str
    command: list[str]
    env: dict[str, str]
    end_driver: Callable[[Process], str] = _kill
    end_executor: Callable[[], str] | None = None
    scheme: str = ""
    output: Callable[[], Path] | None = None
    options: dict[str, str] = field(default_factory=dict)


def executors(worker: Process) -> list[int]:
    """Return the executors that a worker has started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
            command = stat.with_name("cmdline").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        if int(after_name[1]) == worker.pid and EXECUTOR in command:
            found.append(int(stat.parent.name))
    return found


def is_served(port: int) -> bool:
    """Return whether a process listens on that port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def with_java(env: dict[str, str], java_home: str) -> dict[str, str]:
    """Add Java, and loopback as Spark's address."""
    return {**env, "JAVA_HOME": java_home, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def local(version: str, java_home: str, directory: Path) -> Iterator[Place]:
    """A driver with its tasks in one process."""
    venv = venvs.session(version)
    env = with_java(venvs.bare_environment(venv), java_home)
    env |= {"MASTER": "local[2]", "PYSPARK_PYTHON": str(venv / "bin" / "python")}
    yield Place(f"PySpark {version}, local[2]", [str(venv / "bin" / "python")], env)


@contextmanager
def standalone(version: str, java_home: str, directory: Path) -> Iterator[Place]:
    """A master and two workers, each with an environment of its own, and a driver beside them."""
    driver = venvs.session(version)
    run = str(venvs.spark_home(driver) / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    port = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(name: str, venv: Path, *arguments: str, port: int | None = None) -> Process:
            env = with_java(venvs.bare_environment(venv), java_home)
            env["SPARK_DAEMON_MEMORY"] = MEMORY
            process = Process([run, *arguments], env, directory / f"{name}.log", port)
            stack.callback(process.kill)
            return process

        ports = ["--host", "127.0.0.1", "--webui-port", "0", "--port"]
        start("master", driver, f"{deploy}.master.Master", *ports, str(port), port=port)
        workers = []
        for number in (1, 2):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"w{number}")]
            venv = venvs.executor(f"worker-{number}")
            name = f"{deploy}.worker.Worker"
            worker = start(f"worker-{number}", venv, name, *ports, "0", *size, master)
            worker.wait_for("Successfully registered with master")
            workers.append(worker)
        env = with_java(venvs.bare_environment(driver), java_home)
        # The name is looked up in the PATH of each process: every worker has another `python3`.
        env |= {"MASTER": master, "PYSPARK_PYTHON": "python3"}
        name = f"PySpark {version}, standalone with two workers"

        def kill_executor() -> str:
            victims = [pid for worker in workers for pid in executors(worker)]
            assert len(victims) == len(workers), victims
            os.kill(victims[0], signal.SIGKILL)
            return "an executor killed"

        yield Place(name, [str(driver / "bin" / "python")], env, end_executor=kill_executor)


@contextmanager
def connect(version: str, client_version: str, java_home: str, directory: Path) -> Iterator[Place]:
    """A Spark Connect server, and a client without a JVM and without Warren."""
    venv, client = venvs.session(version, "pyspark[connect]"), venvs.client(client_version)
    port = free_ports(1)
    env = with_java(venvs.bare_environment(venv), java_home)
    env["PYSPARK_PYTHON"] = str(venv / "bin" / "python")
    conf = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.ui.enabled": "false"}
    conf |= {"spark.connect.grpc.binding.port": str(port), "spark.driver.host": "127.0.0.1"}
    # PySpark 4.0 comes without sbin/start-connect-server.sh, which runs this.
    command = [str(venvs.spark_home(venv) / "bin" / "spark-submit"), "--class", CONNECT_SERVER]
    command += ["--master", "local[2]", "--driver-memory", MEMORY]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    command.append("spark-internal")
    server = Process(command, env, directory / "connect.log", port)
    try:
        client_env = {**venvs.bare_environment(client), "SPARK_REMOTE": f"sc://127.0.0.1:{port}"}
        name = f"pyspark-client {client_version} to Spark Connect {version}"

        def kill_server(program: Process) -> str:
            server.kill()
            server.start()  # the client asks for up to ten minutes before it gives up
            assert program.popen.wait(RUN_S_MAX) != 0, program.tail()
            return "the server killed"

        yield Place(name, [str(client / "bin" / "python")], client_env, kill_server)
    finally:
        server.kill()
