"""What one message costs at a steady rate: CPU, sleeps, system calls and Python's functions.

Each table adds up: the rows of the nodes to their sum, the columns of a row to the node's whole.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench import generator
from bench.peers import Warren
from bench.processes import load
from bench.report import show
from bench.rounds import Plan

RATES = (100, 1_000)
SHOWN = ("epoll_wait", "recvfrom", "sendmsg", "pwritev2", "fdatasync", "futex")
LEAD_S = 3
"""Until every cache and file is in use."""
_CALLS = re.compile(r"^ +(\w+) +(\d+) +\d+ +[\d.]+", re.M)
_SLEEPS = re.compile(r"^voluntary_ctxt_switches:\s+(\d+)", re.M)
Used = Counter[str]


def turns(plan: Plan) -> list[dict[str, Any]]:
    """Count what the nodes of a cluster do at each rate, and the functions of a message."""
    results = []
    with Warren() as peer:
        for rate in RATES:
            results += _at(peer, rate, plan.seconds)
    notes = [] if shutil.which("perf") else ["no perf: system calls are not counted"]
    show("One message of 1 KB, acknowledged: each node, and all", results, notes)
    calls = _functions()
    show("Functions of Python for a message, one at a time, by folder", calls, [])
    return [*results, *calls]


def _at(peer: Warren, rate: int, seconds: int) -> list[dict[str, Any]]:
    program, queue, targets = generator.find(), f"turns-{rate}", peer.targets()
    generator.run(program, "declare", targets=targets, queue=queue)
    options = {"time": seconds + LEAD_S + 1, "rate": rate, "size": 1_024, "ack-every": 1}
    options |= {"window": 1_000, "prefetch": 1_000}
    given = [f"--{name}={value}" for name, value in options.items()]
    command = [str(program), "pubsub", f"--targets={targets}", f"--queue={queue}", *given]
    leader, pids = peer.leader(queue), peer.pids()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        time.sleep(LEAD_S)
        before, began = [_used(pid) for pid in pids], time.monotonic()
        traces = [_Trace(pid) for pid in pids] if shutil.which("perf") else []
        time.sleep(seconds)
        found = [each.counted() for each in traces] or [Counter() for _ in pids]
        messages = rate * (time.monotonic() - began)
        for calls, pid, earlier in zip(found, pids, before, strict=True):
            calls.update(_used(pid) - earlier)
        running.wait()
    common = {"msg/s": f"{rate:,}", "load": f"{load():.1f}"}
    rows = [
        {"node": "leader" if at == leader else "follower", **common, **_row(each, messages)}
        for at, each in enumerate(found)
    ]
    return [*rows, {"node": "all", **common, **_row(sum(found, Counter()), messages)}]


def _row(used: Used, messages: float) -> dict[str, str]:
    rest = sum(used.values()) - sum(used[name] for name in (*SHOWN, "CPU µs", "sleeps"))
    columns = {name: used[name] for name in ("CPU µs", "sleeps", *SHOWN)} | {"other calls": rest}
    return {name: f"{count / messages:,.2f}" for name, count in columns.items()}


def _used(pid: int) -> Used:
    """Return CPU µs and sleeps of all threads of a process since its start."""
    used: Used = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        sleeps = _SLEEPS.search((task / "status").read_text())
        used["sleeps"] += int(sleeps[1]) if sleeps else 0
        used["CPU µs"] += int((task / "schedstat").read_text().split()[0]) // 1_000
    return used


class _Trace:
    """A count of a process's system calls."""

    def __init__(self, pid: int) -> None:
        self._file = generator.PLACE / f"turns-{pid}.txt"
        command = ["perf", "trace", "-s", "-o", str(self._file), "-p", str(pid)]
        self._running = subprocess.Popen(command)

    def counted(self) -> Used:
        """End it; return the calls by name."""
        self._running.send_signal(signal.SIGINT)
        self._running.wait()
        used: Used = Counter()
        for name, count in _CALLS.findall(self._file.read_text()):
            used[name] += int(count)
        self._file.unlink()
        return used


def _functions() -> list[dict[str, Any]]:
    from tests.instructions import turns as counted

    measured = counted.measure()
    folders: dict[str, Used] = {}
    for role, calls in measured.roles.items():
        for code, count in calls.items():
            path = Path(code.co_filename)
            folders.setdefault("/".join(path.parts[-3:-1]), Counter())[role] += count
    folders["all"] = sum(folders.values(), Counter())
    rows = sorted(folders.items(), key=lambda each: each[1].total())
    return [
        {"folder": name}
        | {role: f"{used[role] / counted.MESSAGES:,.1f}" for role in measured.roles}
        for name, used in rows
    ]
