"""What `build.py test` runs, in which order, with one summary at the end."""

from __future__ import annotations

import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools import console, debian
from tools.environment import LOGS, ROOT, STATE, environment, java_environment, python

SIM_SEEDS = 300
SIM_WHOLE_SEEDS = 300
DEMO_FRACTION = "0.1"
INTERPRETED = ["tests/broker/kernel", "tests/broker/wire"]
"""Run a second time with the kernel interpreted."""
BESIDE = ("bench", "broker", "house", "raft", "sim")
"""Folders of tests without Java, which need one core while Spark waits for its micro-batches."""
COUNTED = ("passed", "failed", "errors", "skipped")


@dataclass
class Totals:
    """What came of all sections: counts of tests, and each section's name, result and seconds."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    sections: list[tuple[str, bool, float]] = field(default_factory=list)

    def add_report(self, report: Path) -> None:
        """Count what a pytest run wrote to its JUnit report."""
        if not report.exists():
            return
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            bad = {key: int(suite.get(name, "0")) for key, name in
                   (("failed", "failures"), ("errors", "errors"), ("skipped", "skipped"))}
            for key, value in bad.items():
                self.counts[key] += value
            self.counts["passed"] += int(suite.get("tests", "0")) - sum(bad.values())

    def line(self, seconds: float) -> str:
        """The closing line, in pytest's form."""
        parts = [f"{self.counts[key]} {key}" for key in COUNTED
                 if self.counts[key] or key in ("passed", "failed")]
        return f" {', '.join(parts)} in {seconds:.2f}s ".center(80, "=")


class Suite:
    """One run of `build.py test`."""

    def __init__(self, fast: bool, only: str | None, compiled: bool) -> None:
        self.fast = fast
        self.only = only
        self.compiled = compiled
        self.totals = Totals()
        self.started = time.monotonic()

    def section(self, title: str, run: Callable[[], bool]) -> None:
        """Run one section; keep its result and time."""
        console.section(title)
        started = time.monotonic()
        worked = run()
        self.totals.sections.append((title, worked, time.monotonic() - started))

    def check(self, title: str, run: Callable[[], bool]) -> None:
        """A section that counts as one test."""
        def counted() -> bool:
            worked = run()
            self.totals.counts["passed" if worked else "failed"] += 1
            return worked
        self.section(title, counted)

    def command(self, name: str, arguments: list[str]) -> tuple[list[str], Path]:
        """A pytest run, and the report that it writes."""
        report = STATE / "reports" / f"{name}.xml"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        chosen = ["-k", self.only] if self.only else []
        run = [str(python()), "-m", "pytest", "-q", f"--junitxml={report}", *chosen, *arguments]
        return run, report

    def ended(self, code: int, report: Path) -> bool:
        """Count it. An empty selection (exit code 5) is a failure unless -k asked for it."""
        self.totals.add_report(report)
        return code == 0 or (code == 5 and self.only is not None)

    def pytest(self, name: str, arguments: list[str], env: dict[str, str]) -> bool:
        """One pytest run."""
        command, report = self.command(name, arguments)
        return self.ended(console.loud(command, env=env, cwd=ROOT), report)

    def tests(self, mark: list[str], env: dict[str, str]) -> bool:
        """All but tidy: what needs no Java beside the rest, its output after that of the rest."""
        folders = sorted(path.name for path in (ROOT / "tests").iterdir()
                         if path.is_dir() and not path.name.startswith(("_", ".")))
        rest = [name for name in folders if name not in (*BESIDE, "tidy")]
        command, report = self.command("beside", [*paths(BESIDE), *mark])
        log = LOGS / "tests-beside.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            beside = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=ROOT)
        try:
            worked = self.pytest("tests", [*paths(rest), *mark], env)
        finally:
            code = beside.wait()
        console.say(log.read_text(encoding="utf-8", errors="replace").rstrip())
        return self.ended(code, report) and worked

    def run(self) -> int:
        """Everything, in order; the process's exit code."""
        debian.ensure(LOGS)
        java = java_environment()
        mark = ["-m", "not slow"] if self.fast else []
        kernel = "compiled" if self.compiled else "interpreted: no C compiler"
        if self.only is None:
            self.section("tidy: house rules as tests",
                         lambda: self.pytest("tidy", ["tests/tidy"], environment()))
            for name, lint in linters():
                self.check(name, lint)
        self.section(f"tests (kernel {kernel})", lambda: self.tests(mark, java))
        again = [path for path in INTERPRETED if (ROOT / path).exists()]
        if self.compiled and again:
            self.section("kernel and wire again, interpreted", lambda: self.pytest(
                "interpreted", [*again, *mark], environment(WARREN_KERNEL="interpreted")))
        if self.only is None and not self.fast:
            self.check(f"simulation, {SIM_SEEDS} seeds", lambda: console.loud(
                [str(python()), "-m", "sim.run", "--seeds", str(SIM_SEEDS)],
                env=with_tests(environment()), cwd=ROOT) == 0)
            self.check(f"simulation of whole nodes, {SIM_WHOLE_SEEDS} seeds", lambda: console.loud(
                [str(python()), "-m", "sim.run", "--whole", "--seeds", str(SIM_WHOLE_SEEDS)],
                env=with_tests(environment()), cwd=ROOT) == 0)
            self.check("demo, a tenth of the input", lambda: console.loud(
                demo_command(["--fraction", DEMO_FRACTION]), env=java, cwd=ROOT) == 0)
        return self.close()

    def close(self) -> int:
        """The table of sections, then the one line that sums up."""
        console.section("summary")
        for title, worked, seconds in self.totals.sections:
            console.say(f" {'✓' if worked else '✗'} {title:<56} {seconds:8.1f} s")
        worked = all(worked for _, worked, _ in self.totals.sections)
        if not worked and not self.totals.counts["failed"] + self.totals.counts["errors"]:
            self.totals.counts["errors"] += 1  # a section that died before it could count
        console.say(self.totals.line(time.monotonic() - self.started))
        return 0 if worked else 1


def paths(folders: Iterable[str]) -> list[str]:
    """The folders of tests, as arguments."""
    return [f"tests/{name}" for name in folders]


def linters() -> list[tuple[str, Callable[[], bool]]]:
    """Name and run of each linter."""
    def ruff() -> bool:
        return console.loud([str(python()), "-m", "ruff", "check", "."],
                            env=environment(), cwd=ROOT) == 0

    def mypy() -> bool:
        return console.loud([str(python()), "-m", "mypy"], env=environment(), cwd=ROOT) == 0

    return [("ruff", ruff), ("mypy", mypy)]


def with_tests(env: dict[str, str]) -> dict[str, str]:
    """The tests' folder on the path too: `sim` lives there."""
    return dict(env, PYTHONPATH=str(ROOT / "tests"))


def demo_command(arguments: list[str]) -> list[str]:
    """How the demo is started."""
    return [str(python()), str(ROOT / "examples" / "flights" / "demo.py"), *arguments]
