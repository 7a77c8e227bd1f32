"""Flame graphs of processes while they work: py-spy for Python, async-profiler for a JVM.

A profiled process is slower, so each graph is made in a run of its own, of which no figure counts.
"""

from __future__ import annotations

import html
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.generator import PLACE, Missing

FLAMES: Final = PLACE / "flames"
LEVELS: Final = ("python", "native")
"""Of a graph: Python's functions alone, or with those of C and of the compiled kernel."""
RATE_PER_S: Final = 200
START_S: Final = 60
END_S: Final = 120
ASYNC_PROFILER: Final = "tools.profiler:async-profiler:4.0"
REFUSED: Final = (
    "py-spy may not look into another process: be root, or sysctl kernel.yama.ptrace_scope=0"
)
PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Flame graphs</title></head><body>
<h1>Flame graphs</h1>
<ul>
{items}
</ul>
</body></html>
"""


class Watched(NamedTuple):
    """A process of which a graph is made.

    name   of the graph's file
    below  with every Python process that it has started, and without itself unless it is Python
    java   it is a JVM
    """

    name: str
    pid: int
    below: bool = False
    java: bool = False


@contextmanager
def flame_graphs(place: Path, processes: Sequence[Watched], level: str) -> Iterator[None]:
    """Sample processes until the end of the block; write a graph of each into a directory.

    level   of LEVELS; a JVM, which has no Python, has its graph at the native one
    raises  Missing: a profiler is missing, or is not allowed to look
    """
    place.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for each in processes:
            if not each.java:
                stack.enter_context(_python(place / f"{each.name}-{level}.svg", each, level))
            elif level == LEVELS[-1]:
                stack.enter_context(_java(place / f"{each.name}.html", each.pid))
        yield


def profile(place: Path, processes: Sequence[Watched], work: Callable[[], object]) -> str:
    """Do the work once for each level, and make the graphs; return why there are none, or ""."""
    try:
        for level in LEVELS:
            with flame_graphs(place, processes, level):
                work()
    except Missing as missing:
        return str(missing)
    return ""


def index(place: Path) -> Path | None:
    """Write a page with links to the graphs below a directory; None: there are none."""
    graphs = sorted([*place.rglob("*.svg"), *place.rglob("*/*.html")])
    if not graphs:
        return None
    names = [str(path.relative_to(place)) for path in graphs]
    items = [f'<li><a href="{html.escape(name)}">{html.escape(name)}</a></li>' for name in names]
    page = place / "index.html"
    page.write_text(PAGE.format(items="\n".join(items)), encoding="utf-8")
    return page


def folder_name(text: str) -> str:
    """Return the name of a load or pair as that of a directory."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@contextmanager
def _python(path: Path, watched: Watched, level: str) -> Iterator[None]:
    """Sample a Python process, or those below a process."""
    program = Path(sys.executable).parent / "py-spy"
    if not program.exists():
        raise Missing("py-spy is missing: pip install py-spy")
    command = [str(program), "record", "--rate", str(RATE_PER_S), "--threads"]
    command += ["--native"] if level == "native" else []
    command += ["--subprocesses"] if watched.below else []
    command += ["--output", str(path), "--pid", str(watched.pid)]
    with path.with_suffix(".log").open("w+b") as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert child.stdout is not None
        try:
            if b"Sampling process" not in child.stdout.readline():
                child.wait(START_S)
                raise Missing(_why(log.name))
            yield
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            child.communicate(timeout=END_S)
    if not path.exists():
        raise Missing(f"py-spy wrote no graph of {watched.name}: {_why(log.name)}")
    Path(log.name).unlink()


def _why(log: str) -> str:
    text = Path(log).read_text(encoding="utf-8", errors="replace").strip()
    return REFUSED if "ermission" in text else text or "py-spy ended without a word"


@contextmanager
def _java(path: Path, pid: int) -> Iterator[None]:
    """Sample a JVM."""
    agent = _agent()
    _jcmd(pid, agent, f"start,event=itimer,interval={1000 // RATE_PER_S}ms,threads")
    try:
        yield
    finally:
        _jcmd(pid, agent, f"stop,file={path}")


def _jcmd(pid: int, agent: Path, command: str) -> None:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("jcmd", path=f"{home}/bin" if home else None)
    if program is None:
        raise Missing("no jcmd, which a JDK has: apt-get install openjdk-17-jdk-headless")
    # The quotes keep jcmd from reading the commas as its own.
    done = subprocess.run(
        [program, str(pid), "JVMTI.agent_load", str(agent), f'"{command}"'],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    if done.returncode or "return code: 0" not in done.stdout:
        raise Missing(f"async-profiler refused {command!r}: {(done.stdout + done.stderr).strip()}")


def _agent() -> Path:
    """Return async-profiler's library, downloaded with Maven when it is missing."""
    agent = PLACE / "async-profiler" / "libasyncProfiler.so"
    if agent.exists():
        return agent
    if shutil.which("mvn") is None:
        raise Missing("the JVM's graph needs Maven for async-profiler: apt-get install maven")
    agent.parent.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ASYNC_PROFILER}"]
    command.append(f"-DoutputDirectory={agent.parent}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = next(iter(agent.parent.glob("*.jar")), None)
    if done.returncode or found is None:
        raise Missing(f"Maven did not get {ASYNC_PROFILER}: {done.stdout.strip()[-300:]}")
    member = "linux-arm64" if platform.machine() == "aarch64" else "linux-x64"
    with zipfile.ZipFile(found) as jar:
        agent.write_bytes(jar.read(f"{member}/{agent.name}"))
    return agent
