"""CPU seconds of a Spark session and a cluster by kind of process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.processes import cpu_s

KINDS: Final = ("JVM", "workers", "driver", "nodes")
SAMPLE_S: Final = 0.2


class SparkMeter:
    """A meter of this process's descendants and of the nodes, from its construction to `stop`.

    Processes come and go, so it samples: what one uses between its last sample and its end is not
    counted.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = tuple(nodes)
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._kinds: dict[int, str] = {}
        self._history: list[tuple[float, dict[str, float]]] = []
        self._over = threading.Event()
        self._sample(first=True)
        self._thread = threading.Thread(target=self._run, name="spark-meter", daemon=True)
        self._thread.start()

    def stop(self, since: float = 0.0) -> dict[str, float]:
        """Return the CPU seconds of each kind from that time (of the system's clock) on."""
        self._over.set()
        self._thread.join()
        self._sample()
        before = next(spent for when, spent in self._history if when >= since)
        _, after = self._history[-1]
        return {kind: after[kind] - before[kind] for kind in KINDS}

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._sample()

    def _sample(self, first: bool = False) -> None:
        kinds = descendants(os.getpid()) | dict.fromkeys(self._nodes, "nodes")
        for pid, kind in kinds.items():
            self._kinds.setdefault(pid, kind)
            self._last[pid] = max(cpu_s(pid), self._last.get(pid, 0.0))
            if first:
                self._first[pid] = self._last[pid]
        spent = dict.fromkeys(KINDS, 0.0)
        for pid, kind in self._kinds.items():
            spent[kind] += self._last[pid] - self._first.get(pid, 0.0)
        self._history.append((time.time(), spent))


def descendants(root: int) -> dict[int, str]:
    """Return the kind of every Java and Python process below one."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(name)] = int(fields[1])
    found: dict[int, str] = {}
    for pid in parents:
        above = parents[pid]
        while above not in (0, root):
            above = parents.get(above, 0)
        kind = _kind(pid) if above == root else None
        if kind is not None:
            found[pid] = kind
    return found


def _kind(pid: int) -> str | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if "pyspark.daemon" in words and "pyspark.worker" in words:
        return "workers"
    if any(word.startswith("pyspark.") for word in words):
        return "driver"
    return "JVM" if words[0].endswith("java") else None
