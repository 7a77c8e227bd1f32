"""What the runs of real nodes under faults have in common: words, waiting, the verdict."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from nemesis import history
from nemesis.checker import Checker, Verdict
from nemesis.nodes import Nodes
from warren.admin import Queue
from warren.errors import Unavailable

POLL_S = 0.25
TRACE_CHARS = 3000


class Story:
    """Says what happens, and records what must not be."""

    def __init__(self, directory: Path) -> None:
        self.began = time.monotonic()
        self.record = history.Recorder(directory / "history.jsonl")

    def say(self, text: str) -> None:
        """For people, with the time since the start."""
        print(f"{time.monotonic() - self.began:7.1f}  {text}", flush=True)

    def problem(self, what: str) -> None:
        """Something that must not be."""
        self.say(f"PROBLEM: {what}")
        self.record("problem", what=what)

    def look_for_dead(self, nodes: Nodes, cluster: str = "") -> None:
        """A node that has ended by itself is a problem; start it again."""
        for i in nodes.died():
            self.problem(f"{cluster}node-{i} ended by itself:\n{nodes.log_tail(i)}")
            nodes.stop(i)
            nodes.start(i)

    def look_for_tracebacks(self, nodes: Nodes, cluster: str = "") -> None:
        """A traceback in the log of a node is a problem."""
        for i, node in enumerate(nodes.nodes):
            text = node.log_file.read_text(encoding="utf-8", errors="replace")
            if "Traceback" in text:
                where = text[text.index("Traceback") :][:TRACE_CHARS]
                self.problem(f"{cluster}node-{i} has written a traceback:\n{where}")

    def until(
        self,
        patience_s: float,
        what: str,
        left: Callable[[], object],
        meanwhile: Callable[[], None],
    ) -> None:
        """Wait until nothing is left; else it is a problem."""
        ends = time.monotonic() + patience_s
        while True:
            try:
                rest = left()
            except Unavailable as error:
                rest = f"no answer: {error}"
                self.say(rest)
            if not rest:
                return
            if time.monotonic() > ends:
                self.problem(f"{what} after {patience_s:g} s: {rest}")
                return
            time.sleep(POLL_S)
            meanwhile()

    def verdict(self) -> Verdict:
        """Judge the history, which is complete."""
        self.record.close()
        return Checker().check(history.read(self.record.path))

    def conclude(self, verdict: Verdict, directory: Path, keep: bool, again: str) -> int:
        """Print a verdict; return the exit code. again: the command that repeats the schedule."""
        print("\n".join(verdict.lines()))
        if not verdict.clean:
            print(f"wrong; logs and history are in {directory}; the same schedule again:\n{again}")
            return 1
        print(f"clean, {time.monotonic() - self.began:.0f} s")
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
        return 0


def left_in(queue: Queue, staged: bool = True) -> str:
    """Return what is left in a queue, in words; "" when it is empty. staged: stages count."""
    counts = {
        "ready": queue.messages_ready,
        "unacknowledged": queue.messages_unacknowledged,
        "claimed": queue.messages_claimed,
        "staged": queue.messages_staged if staged else 0,
        "dead-lettering": queue.messages_dlx,
    }
    found = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{queue.name}: {found}" if found else ""


@contextlib.contextmanager
def kept_directory(given: str | None, prefix: str) -> Iterator[Path]:
    """An empty directory for logs and history."""
    path = Path(given or tempfile.mkdtemp(prefix=prefix))
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        sys.exit(f"{path} is not empty: a run keeps its logs there; name another --directory")
    yield path


def parsed(
    parser: argparse.ArgumentParser, arguments: list[str] | None, known: Collection[str]
) -> argparse.Namespace:
    """Add and parse the options of every run; `faults` is checked."""
    parser.add_argument("--seed", type=int, default=1, help="of the schedule and the clients")
    parser.add_argument("--faults", default="", help=f"only these: {','.join(known)}")
    parser.add_argument("--directory", help="where logs and history go; kept")
    options = parser.parse_args(arguments)
    unknown = [kind for kind in options.faults.split(",") if kind and kind not in known]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}; known: {', '.join(known)}")
    return options
