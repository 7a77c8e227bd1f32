"""Raft without a broker: three members of warren_raft, of PySyncObj and of pyraft."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.generator import PLACE, Missing
from bench.ports import free_ports
from bench.processes import load
from bench.report import show
from bench.rounds import Plan, span
from warren.local import guard

HERE = Path(__file__).resolve().parent / "members"
BYTES = 100
OUTSTANDING = (1, 1000)
ANSWER_S = 60.0


@dataclass(frozen=True)
class Library:
    """A Raft implementation.

    package     on PyPI; None: warren_raft
    guarantees  what "committed" means, read from its code
    """

    name: str
    program: str
    package: str | None
    guarantees: str


LIBRARIES = (
    Library(
        "Warren",
        "warren_member.py",
        None,
        "fdatasync on a majority before commit; term and vote synced before the vote; "
        "checksums; survives kill -9 and power loss",
    ),
    Library(
        "PySyncObj 0.3.14",
        "pysyncobj_member.py",
        "pysyncobj==0.3.14",
        "journal in a memory map, never synced (survives kill -9, not power loss); term and "
        "vote in memory only: a member that restarts can vote twice in a term; no checksums",
    ),
    Library(
        "pyraft 1.0.0",
        "pyraft_member.py",
        "pyraft==1.0.0",
        "a follower acknowledges before it writes, and writes without sync; term and vote in "
        "memory only; whatever a restart finds is overwritten (files are opened with 'w')",
    ),
)


def raft(plan: Plan) -> list[dict[str, Any]]:
    """Measure commits per second and latency, one library at a time."""
    notes: list[str] = []
    pythons = {}
    for library in LIBRARIES:
        try:
            pythons[library.name] = _python(library)
        except Missing as missing:
            notes.append(f"{library.name} is not measured: {missing}")
    results = []
    for turn in range(plan.rounds):
        for outstanding in OUTSTANDING:
            for library in LIBRARIES:
                if library.name not in pythons:
                    continue
                one = _run(library, pythons[library.name], outstanding, plan.seconds)
                results.append(
                    {
                        "library": library.name,
                        "round": turn,
                        "load": load(),
                        "outstanding": outstanding,
                        **one,
                    }
                )
                print(
                    f"  round {turn + 1}  {library.name:<18} {outstanding:>5} outstanding  "
                    f"{one['commits_per_s']:>9,.0f} commits/s  p50 {one['p50_ms']:.2f} ms  "
                    f"p99 {one['p99_ms']:.2f} ms",
                    flush=True,
                )
    show(
        f"Raft alone: three members, commands of {BYTES} B, proposed in the leader's process",
        _rows(results),
        notes,
    )
    return results


def _rows(results: list[dict[str, Any]]) -> list[dict[str, str]]:
    rows = []
    for outstanding in OUTSTANDING:
        for library in LIBRARIES:
            of_it = [
                one
                for one in results
                if (one["library"], one["outstanding"]) == (library.name, outstanding)
            ]
            ours = {
                one["round"]: one["commits_per_s"]
                for one in results
                if (one["library"], one["outstanding"]) == ("Warren", outstanding)
            }
            if of_it:
                times = [
                    ours[one["round"]] / one["commits_per_s"]
                    for one in of_it
                    if one["commits_per_s"] and library.package
                ]
                rows.append(
                    {
                        "outstanding": str(outstanding),
                        "library": library.name,
                        "commits/s": span([one["commits_per_s"] for one in of_it], ",.0f"),
                        "p50 ms": span([one["p50_ms"] for one in of_it], ".2f"),
                        "p99 ms": span([one["p99_ms"] for one in of_it], ".2f"),
                        "Warren has": span(times, ".2f") + " x" if times else "",
                        "what a commit means": library.guarantees
                        if outstanding == OUTSTANDING[0]
                        else "as above",
                    }
                )
    return rows


def _python(library: Library) -> str:
    """Return the interpreter that runs it: this one, or that of its own venv; raises Missing."""
    if library.package is None:
        return sys.executable
    home = PLACE / "venvs" / library.package.replace("==", "-")
    python = home / "bin" / "python"
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        # pyraft pins redis and setuptools of 2019; its members need neither
        done = subprocess.run(
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-deps",
                library.package,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:]
            raise Missing(f"pip install {library.package}: {''.join(last)}")
        (home / "done").touch()
    return str(python)


def _run(library: Library, python: str, outstanding: int, seconds: int) -> dict[str, Any]:
    directory = PLACE / "raft"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    port = free_ports(6)
    environment = dict(os.environ)
    if library.package is None:
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent.parent), *sys.path])
    processes = []
    guards = []
    with (directory / "log").open("wb") as errors:
        for number in range(3):
            command = [
                python,
                str(HERE / library.program),
                str(number),
                str(port),
                str(directory),
                str(outstanding),
                str(seconds),
                str(BYTES),
            ]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
            processes.append(process)
            guards.append(guard(process.pid))
    try:
        return _answer(library, processes, seconds + ANSWER_S, directory)
    finally:
        for process, guarding in zip(processes, guards, strict=True):
            process.kill()
            process.wait()
            guarding.kill()
            guarding.communicate()
        shutil.rmtree(directory, ignore_errors=True)


def _answer(
    library: Library, processes: list[subprocess.Popen[bytes]], timeout_s: float, directory: Path
) -> dict[str, Any]:
    outputs = {process.stdout.fileno(): process for process in processes if process.stdout}
    ready, _, _ = select.select(list(outputs), [], [], timeout_s)
    for fd in ready:
        out = outputs[fd].stdout
        assert out is not None
        line = out.readline()
        if line.strip():
            answer: dict[str, Any] = json.loads(line)
            return answer
    text = (directory / "log").read_text(errors="replace").strip()[-600:]
    raise RuntimeError(f"{library.name} gave no answer: {text}")
