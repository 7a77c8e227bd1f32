"""The sections of `build.py test` and `build.py long`, their order, and the summary at the end."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tools import console, debian, spark_archive
from tools.environment import LOGS, ROOT, STATE, environment, java_environment, python

SIM_SEEDS = 200
"""The suite's worlds are always the same: its verdict depends on the commit alone. Those of the
long tests, as of `build.py sim`, are other ones each day."""
SIM_WHOLE_SEEDS = 40
"""Of whole nodes: a world is nine times as large. As many more are among the long tests."""
DEMO_FRACTION = "0.1"
WITHOUT_SPARK = frozenset(("live", "raft", "broker", "sim"))
"""Folders with tests that start no Spark session."""
INTERPRETED = ["tests/wire/kernel", "tests/wire/amqp091"]
"""Run a second time with the kernel interpreted."""
FIRST = (
    ("connector/amqp10",),
    ("connector/amqp",),
    ("connector",),
    ("live",),
    ("raft",),
    ("connector/oauth",),
    ("differ", "nemesis"),
)
LAST = (("broker",), ("sim",))
"""Folders of tests in starting order, the longest first; those that are named in neither form one
more section between them. What another section has is left out of a folder."""
PARTS = {
    "live": (
        4,
        (
            "queue_moves",
            "directories",
            "delivery_bounds",
            "tls",
            "bad_input",
            "mirror_policies",
            "rabbitmqadmin",
            "management_ui",
            "shovel10",
            "federated_exchanges",
            "federated_queues",
            "failing_sync",
            "http_api_recorded",
            "membership",
            "failover",
            "shovel",
            "lost_node",
            "celery_quorum",
            "http_api_faults",
            "older_copies",
            "tls_clients",
            "http_rates",
            "http_body_types",
            "token_login",
            "mirrored_queues_document",
            "pika",
            "hung_disk",
            "damage",
            "migrate",
            "definitions",
            "policies",
            "key_server",
            "keeping_exchanges",
            "http_statistics",
            "bounds",
            "compressed_blocks",
            "semantics",
            "amqp10",
            "recycled_log",
            "http_connections",
        ),
    ),
    "connector": (
        2,
        (
            "exactly_once",
            "session",
            "batches_real",
            "pages",
            "encode",
            "foreach_batch",
            "expiring",
            "demo_proof",
            "queues_worlds",
            "prefetch_worlds",
            "without_broker",
            "spark",
            "real_broker",
            "poison",
        ),
    ),
}
"""Folders with so many slow tests that they make several sections each: how many, and their files
that took longest when they were measured, the longest first; subfolders stay whole."""
LANES_PER_CORE = 4
LANES_MAX = 8
"""Of sections with other processes: their tests wait more than they compute, a core has work of
three to eight of them. So many begin at once that those which only wait, as Raft's, do not follow
those that compute: with six lanes, a core was idle in the last quarter of a run."""
COMPUTING_LANES_MAX = 2
"""Of sections that only compute, one per core: they take what the others leave from the beginning,
instead of following them."""
NICENESS = 10
"""Of sections that only compute. Spark gives a Python process ten seconds to start, and clients
have time limits of their own, whatever else the machine does. With 5 the sections that compute
ended four minutes before those of Spark, which then left a core idle."""
TYPED = (
    "broker/warren_wire",
    "raft/warren_raft",
    "broker/warren_machines",
    "broker/warren_broker",
    "python/warren",
    "connector/pyspark_warren",
    "tools",
    "bench",
    "build.py",
    "examples",
)
"""Checked by mypy in one run, which takes the packages apart once."""
LONG = "long"
"""The mark of tests that `build.py long` runs, and `build.py test` leaves out."""
COUNTED = ("passed", "failed", "errors", "skipped")
SLOWEST = 15
"""Tests that the summary names."""


class Outcome(NamedTuple):
    """How a section ended.

    seconds      from its start to its end
    cpu_seconds  processor time of its process and of those that it waited for
    """

    title: str
    worked: bool
    seconds: float
    cpu_seconds: float


@dataclass
class Totals:
    """Results of all sections: counts of tests; each section's result and times.

    tests  (seconds, name) of each test that reports have
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    sections: list[Outcome] = field(default_factory=list)
    tests: list[tuple[float, str]] = field(default_factory=list)

    def add_report(self, report: Path) -> None:
        """Add the counts of a JUnit report."""
        if not report.exists():
            return
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            bad = {
                key: int(suite.get(name, "0"))
                for key, name in (
                    ("failed", "failures"),
                    ("errors", "errors"),
                    ("skipped", "skipped"),
                )
            }
            for key, value in bad.items():
                self.counts[key] += value
            self.counts["passed"] += int(suite.get("tests", "0")) - sum(bad.values())
            self.tests += [
                (float(test.get("time", "0")), f"{test.get('classname')}.{test.get('name')}")
                for test in suite.iter("testcase")
            ]

    def slowest(self) -> list[tuple[float, str]]:
        """Return the tests that took longest, with their seconds, the slowest first."""
        return sorted(self.tests, reverse=True)[:SLOWEST]

    def line(self, seconds: float) -> str:
        """Format the closing line like pytest's."""
        parts = [
            f"{self.counts[key]} {key}"
            for key in COUNTED
            if self.counts[key] or key in ("passed", "failed")
        ]
        return f" {', '.join(parts)} in {seconds:.2f}s ".center(80, "=")


@dataclass(frozen=True)
class Section:
    """One process of the suite.

    title    shown to the user; unique within a run
    command  program and arguments
    env      its complete environment
    report   the JUnit report that it writes; None: it counts as one test
    waits    other processes run in it, and wait for each other; False: it only computes
    spark    it starts Spark sessions: it begins when the archive of their classes is there
    """

    title: str
    command: Sequence[str]
    env: Mapping[str, str]
    report: Path | None = None
    waits: bool = False
    spark: bool = False

    @property
    def log(self) -> Path:
        """The file that takes its output while it runs."""
        name = "".join(c if c.isalnum() else "-" for c in self.title)
        return LOGS / f"suite-{name}.log"


class Suite:
    """One run of `build.py test`, or of `build.py long`.

    fast      without slow tests, simulation and demo
    only      an expression that chooses tests, also long ones, as pytest's -k
    compiled  whether the kernel is; if so, some tests run again with the interpreted one
    long      the long tests, and nothing else
    """

    def __init__(self, fast: bool, only: str | None, compiled: bool, long: bool = False) -> None:
        self.fast = fast
        self.only = only
        self.compiled = compiled
        self.long = long
        self.totals = Totals()
        self.started = time.monotonic()
        self._lock = threading.Lock()
        self._archived = threading.Event()

    def pytest(
        self,
        title: str,
        arguments: Iterable[str],
        env: Mapping[str, str],
        waits: bool = False,
        spark: bool = False,
    ) -> Section:
        """Make the section of a pytest run."""
        name = "".join(c if c.isalnum() else "-" for c in title)
        report = STATE / "reports" / f"{name}.xml"
        chosen = ["-k", self.only] if self.only else []
        command = [str(python()), "-m", "pytest", "-q", f"--junitxml={report}", *chosen]
        return Section(title, [*command, *arguments], env, report, waits, spark)

    def sections(self) -> list[Section]:
        """Return all sections in starting order."""
        if self.long:
            return self.long_sections()
        java = java_environment()
        left_out = [*(["slow"] if self.fast else []), *([LONG] if self.only is None else [])]
        mark = ["-m", " and ".join(f"not {name}" for name in left_out)] if left_out else []
        kernel = "" if self.compiled else " (kernel interpreted: no C compiler)"
        made = [
            self.pytest(
                f"tests: {title}{kernel}",
                [*chosen, *mark],
                java,
                waits=folders not in LAST,
                spark=not WITHOUT_SPARK.issuperset(folders),
            )
            for folders in (*FIRST, others(), *LAST)
            for title, chosen in parts(folders)
        ]
        again = [path for path in INTERPRETED if (ROOT / path).exists()]
        if self.compiled and again:
            made.append(
                self.pytest(
                    "kernel and wire again, interpreted",
                    [*again, *mark],
                    environment(WARREN_KERNEL="interpreted"),
                )
            )
        if self.only is None:
            made[:0] = self.checks()  # early: they are quick, and often fail
        if self.only is None and not self.fast:
            sim = [str(python()), "-m", "sim.run", "--start", "0", "--seeds", str(SIM_SEEDS)]
            made += [
                Section(f"simulation, {SIM_SEEDS} seeds", sim, with_tests(environment())),
                whole_worlds(0),
                Section(
                    "demo, a tenth of the input",
                    demo_command(["--fraction", DEMO_FRACTION]),
                    java,
                    waits=True,
                    spark=True,
                ),
            ]
        return made

    def long_sections(self) -> list[Section]:
        """Return the sections of the long tests, a folder each."""
        java = java_environment()
        made = [
            self.pytest(
                f"long tests: {folder}",
                [*files, "-m", LONG],
                java,
                waits=(folder,) not in LAST,
                spark=folder.partition("/")[0] not in WITHOUT_SPARK,
            )
            for folder, files in long_files().items()
        ]
        return made if self.only is not None else [*made, whole_worlds(None)]

    def checks(self) -> list[Section]:
        """Return the sections of house rules and linters."""
        tidy = self.pytest("tidy: house rules as tests", ["tests/tidy"], environment())
        return [
            tidy,
            *(Section(name, command, environment()) for name, command in linters(self.fast)),
        ]

    def run(self) -> int:
        """Run all sections; return the exit code."""
        debian.ensure(LOGS)
        sections = self.sections()
        cores = os.cpu_count() or 1
        computing = self._lanes(
            [one for one in sections if not one.waits], COMPUTING_LANES_MAX, cores
        )
        waiting = self._lanes(
            [one for one in sections if one.waits], LANES_MAX, LANES_PER_CORE * cores
        )
        for lane in computing:
            lane.start()
        try:
            # The longest sections need it, and beside all the others it takes four times as long.
            if any(one.spark for one in sections):
                spark_archive.spark_environment(make=True)
        finally:
            self._archived.set()
        for lane in waiting:
            lane.start()
        for lane in (*computing, *waiting):
            lane.join()
        return self.close()

    def _lanes(self, sections: list[Section], most: int, count: int) -> list[threading.Thread]:
        """Return threads that run these sections, the first ones first."""
        waiting = deque(sections)
        return [
            threading.Thread(target=self._lane, args=(waiting,)) for _ in range(min(most, count))
        ]

    def _lane(self, waiting: deque[Section]) -> None:
        while True:
            with self._lock:
                if not waiting:
                    return
                section = waiting.popleft()
                console.say(f"   … {section.title}")
            self._section(section)

    def _section(self, section: Section) -> None:
        """Run one section, print its output, record its result and time."""
        env = dict(section.env)
        if section.spark:
            self._archived.wait()
            env = spark_archive.with_archive(env)
        started = time.monotonic()
        section.log.parent.mkdir(parents=True, exist_ok=True)
        if section.report is not None:
            section.report.parent.mkdir(parents=True, exist_ok=True)
            section.report.unlink(missing_ok=True)
        with section.log.open("wb") as out:
            process = subprocess.Popen(
                list(section.command),
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=ROOT,
            )
            if not section.waits:
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            _, status, used = os.wait4(process.pid, 0)
            code = process.returncode = os.waitstatus_to_exitcode(status)
        # An empty selection (exit code 5) is a failure unless -k asked for it.
        worked = code == 0 or (code == 5 and self.only is not None)
        with self._lock:
            console.section(section.title)
            console.say(section.log.read_text(encoding="utf-8", errors="replace").rstrip())
            elapsed = time.monotonic() - started
            cpu = used.ru_utime + used.ru_stime
            self.totals.sections.append(Outcome(section.title, worked, elapsed, cpu))
            if section.report is not None:
                self.totals.add_report(section.report)
            else:
                self.totals.counts["passed" if worked else "failed"] += 1

    def close(self) -> int:
        """Print the table of sections and the closing line; return the exit code."""
        console.section("summary")
        console.say(f"{'seconds':>68} {'of CPU':>8}")
        for each in self.totals.sections:
            mark = "✓" if each.worked else "✗"
            console.say(f" {mark} {each.title:<56} {each.seconds:8.1f} {each.cpu_seconds:8.1f}")
        console.say("\nslowest tests, seconds")
        for seconds, name in self.totals.slowest():
            console.say(f"{seconds:8.1f} {name}")
        worked = all(each.worked for each in self.totals.sections)
        if not worked and not self.totals.counts["failed"] + self.totals.counts["errors"]:
            self.totals.counts["errors"] += 1  # a section that ended before it reported
        console.say(self.totals.line(time.monotonic() - self.started))
        return 0 if worked else 1


def whole_worlds(start: int | None) -> Section:
    """Return the section that simulates whole nodes from that seed on; None: from the day's."""
    first = [] if start is None else ["--start", str(start)]
    seeds = [*first, "--seeds", str(SIM_WHOLE_SEEDS)]
    return Section(
        f"simulation of whole nodes, {SIM_WHOLE_SEEDS} seeds",
        [str(python()), "-m", "sim.run", "--whole", *seeds],
        with_tests(environment()),
    )


def long_files() -> dict[str, list[str]]:
    """Return the files that have long tests, by the folder that they are in."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if f"mark.{LONG}" in path.read_text(encoding="utf-8"):
            folder = path.parent.relative_to(ROOT / "tests").as_posix()
            found.setdefault(folder, []).append(str(path.relative_to(ROOT)))
    return found


def others() -> tuple[str, ...]:
    """Return the folders of tests that neither FIRST nor LAST names."""
    named = {"tidy", *(name for folders in (*FIRST, *LAST) for name in folders)}
    return tuple(
        sorted(
            path.name
            for path in (ROOT / "tests").iterdir()
            if path.is_dir() and not path.name.startswith(("_", ".")) and path.name not in named
        )
    )


def parts(folders: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Return the sections that these folders make: title and paths of each."""
    (folder, *more) = folders
    if more or folder not in PARTS:
        return [(", ".join(folders), paths(folders))]
    found = [
        path
        for path in (ROOT / "tests" / folder).iterdir()
        if path.match("test_*.py") or (path.is_dir() and any(path.glob("test_*.py")))
        if (f"{folder}/{path.name}",) not in FIRST
    ]
    count, longest = PARTS[folder]
    dealt = [f"tests/{folder}/{path.name}" for path in by_length(found, longest)]
    # To and fro: else the first one would have the longest one of each round.
    turn = [*range(count), *reversed(range(count))]
    return [
        (
            f"{folder}, part {number + 1} of {count}",
            [name for at, name in enumerate(dealt) if turn[at % len(turn)] == number],
        )
        for number in range(count)
    ]


def by_length(found: list[Path], longest: tuple[str, ...]) -> list[Path]:
    """Return files of tests in descending order of their time: as known, then by size."""
    known = {f"test_{name}.py": at for at, name in enumerate(longest)}
    return sorted(
        found,
        key=lambda path: (known.get(path.name, len(known)), -path.stat().st_size, path.name),
    )


def paths(folders: Iterable[str]) -> list[str]:
    """Return folders of tests as arguments, without what FIRST has apart."""
    apart = [name for names in FIRST for name in names if "/" in name]
    chosen = [f"tests/{name}" for name in folders]
    return chosen + [
        f"--ignore=tests/{name}" for name in apart if name.rpartition("/")[0] in set(folders)
    ]


def linters(fast: bool) -> list[tuple[str, list[str]]]:
    """Return the name and command of each linter.

    fast  for runs that are repeated: mypy keeps what it found in a cache; writing it takes a
          fifth of its time
    """
    mypy = [str(python()), "-m", "mypy", *([] if fast else [f"--cache-dir={os.devnull}"])]
    return [
        ("ruff", [str(python()), "-m", "ruff", "check", "."]),
        ("ruff format", [str(python()), "-m", "ruff", "format", "--check", "."]),
        ("mypy", [*mypy, *TYPED]),
        ("mypy: tests", [*mypy, "--config-file", "tests/mypy.ini", "tests"]),
    ]


def with_tests(env: dict[str, str]) -> dict[str, str]:
    """Add the tests' folder, which holds `sim`, to PYTHONPATH."""
    return dict(env, PYTHONPATH=str(ROOT / "tests"))


def demo_command(arguments: list[str]) -> list[str]:
    """Return the command that runs the demo."""
    return [str(python()), str(ROOT / "examples" / "flights" / "demo.py"), *arguments]
