"""Python processes of Spark that begin as copies of one which has imported what they import.

A session starts about ten: a daemon for each kind of worker, its workers, a runner for each query.
Each imports pyarrow, the connector, and pyspark from a zip file without bytecode, which it
compiles: most of the processor time of a short query. And Spark gives a worker ten seconds to
start, whatever else the machine does.

Here Spark's interpreter is a launcher, which hands its arguments, environment and descriptors to a
template. That forks; the launcher stays, as the process that Spark knows, until the copy ends. Only
the test suite uses it, and `build.py crashes --warm`: the sessions of README and examples, and the
other verbs of `build.py`, start their workers as a user's do.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

INTERPRETER_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""Spark plans data sources that it has found by itself with the second."""
START_S = 120.0
REQUEST_S = 60.0
OWN_MODULES = ("spark_world.pipeline", "spark_world.probe")
IMPORTED = (
    "pandas",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark_warren.datasource",
    "pyspark_warren.sink.sink",
    "pyspark_warren.source",
    "spark_world.rabbit",
    "spark_world.sources",
)
FROM_4_1 = ("pyspark.sql.worker.data_source_pushdown_filters",)
"""What Spark 4.0 does not have."""
READY = b"ready\n"
LAUNCHER = """\
#!{python} -SE
import json, os, socket, sys
words = sys.argv[1:]
module = words[1] if words[:1] == ["-m"] and len(words) > 1 else ""
made = socket.socket(socket.AF_UNIX)
if not (module.startswith("pyspark.") or module in {own!r}) or made.connect_ex({place!r}):
    os.execv({python!r}, [{python!r}, *words])
job = json.dumps([words[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(made, [len(job).to_bytes(4, "big")], [0, 1, 2])
made.sendall(job)
for descriptor in (0, 1, 2):
    os.close(descriptor)
os._exit(int(made.recv(4) or b"1"))
"""
"""The copy ends with the launcher: the template sees the end of its connection."""


class WarmPython:
    """The launcher and its template; both are there until `close`."""

    def __init__(self) -> None:
        from spark_world.runs import PATH

        self._directory = tempfile.TemporaryDirectory(prefix="warren-python-")
        place = str(Path(self._directory.name) / "socket")
        self.launcher = Path(self._directory.name) / "python"
        text = LAUNCHER.format(python=sys.executable, place=place, own=OWN_MODULES)
        self.launcher.write_text(text, encoding="utf-8")
        self.launcher.chmod(0o755)
        self._template = subprocess.Popen(
            [sys.executable, "-P", "-u", __file__, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Otherwise numpy starts threads of OpenBLAS, and pyarrow one of jemalloc; a fork would
            # copy one thread of several.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(PATH),
                "PYTHONHASHSEED": "0",  # that of Spark's workers
                "OPENBLAS_NUM_THREADS": "1",
                "JE_ARROW_MALLOC_CONF": "background_thread:false",
            },
        )
        assert self._template.stdout is not None
        said = self._template.stdout.readline()
        assert said == READY, f"the template of Spark's Python processes said {said!r}"

    def close(self) -> None:
        """End the template; what it has started ends with its launchers."""
        assert self._template.stdin is not None and self._template.stdout is not None
        self._template.stdin.close()
        self._template.wait(START_S)
        self._template.stdout.close()
        self._directory.cleanup()


class _Interpreter:
    """What starts Spark's Python processes: this interpreter, or within `warm` the launcher."""

    def __init__(self) -> None:
        self.is_warm = False
        self.made: WarmPython | None = None

    def path(self) -> str:
        if self.is_warm and self.made is None:
            self.made = WarmPython()
        return str(self.made.launcher) if self.made is not None else sys.executable


_INTERPRETER = _Interpreter()


def interpreter() -> str:
    """Return the interpreter for Spark's Python processes."""
    return _INTERPRETER.path()


@contextmanager
def warm() -> Iterator[None]:
    """Let Spark's Python processes begin as copies; the template starts at the first use."""
    _INTERPRETER.is_warm = True
    try:
        yield
    finally:
        _INTERPRETER.is_warm = False
        if _INTERPRETER.made is not None:
            _INTERPRETER.made.close()
            _INTERPRETER.made = None


# ------------------------------------------------------------------ in the template's process


class Job(NamedTuple):
    """What a new interpreter would have been started with."""

    words: list[str]
    environment: dict[str, str]
    directory: str
    descriptors: list[int]


class Server:
    """The template's loop.

    running  process → connection of its launcher
    """

    def __init__(self, place: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(place)
        self._listener.listen(128)
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for each in (self._listener, self._woken, 0):
            self._selector.register(each, selectors.EVENT_READ)
        self.running: dict[int, socket.socket] = {}

    def serve(self) -> Job | None:
        """Fork for each launcher until the input ends; return the job in a copy, else None."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its input
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        os.write(1, READY)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj is self._woken:
                    self._woken.recv(1 << 12)
                    self._say_ends()
                elif key.fileobj is self._listener:
                    job = self._start()
                    if job is not None:
                        return job
                else:
                    self._end(key.data)

    def _start(self) -> Job | None:
        """Fork for the next launcher; return its job in the copy."""
        made, _ = self._listener.accept()
        made.settimeout(REQUEST_S)
        try:
            job = received(made)
        except (OSError, ValueError):
            made.close()  # it has ended already
            return None
        pid = os.fork()
        if not pid:
            self._leave()
            return job
        for descriptor in job.descriptors:
            os.close(descriptor)
        self.running[pid] = made
        self._selector.register(made, selectors.EVENT_READ, pid)
        return None

    def _leave(self) -> None:
        """Close, in a copy, what is the template's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for each in (self._listener, self._woken, self._wake, *self.running.values()):
            each.close()

    def _end(self, pid: int) -> None:
        """A launcher was ended: so is its copy."""
        made = self._forget(pid)
        if made is not None:
            made.close()
            os.kill(pid, signal.SIGTERM)

    def _say_ends(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            made = self._forget(pid)
            if made is not None:
                code = os.waitstatus_to_exitcode(status)
                with suppress(OSError):  # its launcher has been ended
                    made.send(b"%d" % (code if code >= 0 else 128 - code))
                made.close()

    def _forget(self, pid: int) -> socket.socket | None:
        made = self.running.pop(pid, None)
        if made is not None:
            self._selector.unregister(made)
        return made


def received(made: socket.socket) -> Job:
    """Return what a launcher asks for."""
    head, descriptors, _, _ = socket.recv_fds(made, 4, 3)
    if len(head) < 4 or len(descriptors) < 3:
        raise ValueError("the launcher ended before it had asked")
    left, data = int.from_bytes(head, "big"), b""
    while len(data) < left:
        more = made.recv(left - len(data))
        if not more:
            raise ValueError("the launcher ended before it had asked")
        data += more
    words, environment, directory = json.loads(data)
    return Job(words, environment, directory, descriptors)


def become(job: Job, base: list[str]) -> None:
    """Do what a new interpreter would do with `-m MODULE ARGUMENTS`.

    base  the search path without PYTHONPATH
    """
    for descriptor, into in zip(job.descriptors, (0, 1, 2), strict=True):
        os.dup2(descriptor, into)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(job.environment)
    os.chdir(job.directory)
    module, *arguments = job.words
    paths = job.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [os.getcwd(), *filter(None, paths), *base]
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None and spec.loader is not None, module
    loader: Any = spec.loader
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=spec.origin, __spec__=spec, __package__=spec.parent)
    sys.argv = [spec.origin, *arguments]
    sys.orig_argv = [sys.executable, "-m", *job.words]
    sys.modules["__main__"] = main
    exec(loader.get_code(module), main.__dict__)


def run() -> None:
    """Be the template, and then, in a copy of it, what Spark has started."""
    paths = set(os.environ["PYTHONPATH"].split(os.pathsep))
    base = [path for path in sys.path if path not in paths]
    for name in IMPORTED:
        if name not in FROM_4_1 or importlib.util.find_spec(name):
            importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would copy one thread of several"
    gc.collect()
    gc.freeze()
    job = Server(sys.argv[1]).serve()
    if job is not None:
        become(job, base)


if __name__ == "__main__":
    run()
