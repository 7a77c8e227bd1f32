"""What a suite is, and how what its tests said is read."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias
from xml.etree import ElementTree

from tools import console
from tools.environment import LOGS, STATE

PLACE = STATE / "clients"

STREAMS = "declares streams, which Warren does not have"
HTTP_API = "asks the HTTP API, which is not on the three nodes of these suites"
COMMANDS = "calls rabbitmqctl"
TLS_FILES = "needs TLS files that only its own continuous integration has"
OAUTH = "logs in with OAuth 2"
SKIPPED = "skipped by the suite itself"
Reasons: TypeAlias = Sequence[tuple[str, str]]
"""(what a test's name matches, why it is not run, or does not count); the first match counts."""


class NotRun(Exception):
    """A suite cannot be run here; the text says why, and what to do."""


@dataclass
class Outcome:
    """What a suite's tests said.

    why             the suite was not run, for this reason
    not_applicable  how many of its tests were left out, by reason
    """

    suite: str
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    not_applicable: Counter[str] = field(default_factory=Counter)
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was run, something passed and nothing failed."""
        return not self.why and bool(self.passed) and not self.failed

    def reasons(self) -> list[tuple[str, int]]:
        """Return (reason, tests) of what was left out, the most frequent first."""
        return self.not_applicable.most_common()


class Suite(Protocol):
    """One client's tests.

    queue  an empty quorum queue that it needs; "": none
    http   it asks the HTTP API, which has its default port on a broker of one node
    """

    queue: str
    http: bool

    def install(self, sources: Path | None) -> None:
        """Install the client; raises NotRun.

        sources  checkouts, for tests that are not in a package; None: none
        """

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run its tests on the broker on port 5672 of loopback; raises NotRun.

        directory  an existing one, for what it writes
        on_warren  the broker is Warren, not RabbitMQ
        """


def install_once(place: Path, make: Callable[[], None]) -> None:
    """Fill a directory unless it is complete."""
    if installed(place):
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    make()
    (place / "complete").touch()


def installed(place: Path) -> bool:
    """Return whether `install_once` has filled the directory."""
    return (place / "complete").exists()


def copy_of(origin: Path, suite: str, pattern: str) -> Path:
    """Return the folder for a copy of sources: another one when one of these files has changed."""
    digest = hashlib.sha256()
    for file in sorted(origin.glob(pattern)):
        digest.update(str(file.relative_to(origin)).encode() + file.read_bytes())
    return PLACE / f"{suite}-{digest.hexdigest()[:12]}"


def run_installer(
    what: str, command: list[str], program: str, package: str, cwd: Path | None = None
) -> None:
    """Run a package client; raises NotRun.

    program  its name; package: Debian's for it
    """
    if shutil.which(command[0]) is None:
        raise NotRun(f"{program} is missing: apt-get install {package}")
    log = LOGS / f"clients-{Path(command[0]).name}.log"
    if not console.quiet(what, command, log, cwd=cwd):
        raise NotRun(f"{program} failed, see {log}")


def checkout(sources: Path | None, name: str, under: str) -> Path:
    """Return the folder `under` of a client's checkout; raises NotRun."""
    found = None if sources is None else sources / name
    if found is None or not (found / under).is_dir():
        raise NotRun(
            f"its package has no tests; give --sources DIRECTORY with a checkout of {name} in it"
        )
    return found / under


def run_checks(
    suite: str, command: list[str], within_s: int, env: Mapping[str, str] | None = None
) -> Outcome:
    """Run a program of this project, which prints a line for each check (`read_checks`)."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=within_s, env=env
        )
    except subprocess.TimeoutExpired:
        return Outcome(suite, failed=[f"not done within {within_s} s"])
    outcome = read_checks(suite, done.stdout)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        outcome.failed.append(f"the program ended with {done.returncode}: {''.join(last)}")
    return outcome


def read_checks(suite: str, text: str) -> Outcome:
    """Return what a program printed: a line "passed NAME" or "failed NAME: why" for each check."""
    outcome = Outcome(suite)
    for line in text.splitlines():
        said, _, name = line.partition(" ")
        if said in ("passed", "failed"):
            (outcome.passed if said == "passed" else outcome.failed).append(name)
    return outcome


def reason_for(test: str, reasons: Reasons) -> str | None:
    """Return why a test is not run, or does not count; None: it does."""
    return next((reason for pattern, reason in reasons if re.search(pattern, test)), None)


def read_report(text: str, outcome: Outcome, reasons: Reasons = ()) -> None:
    """Add the tests of a JUnit report; those with a reason do not count, whatever they said."""
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        reason = reason_for(name, reasons)
        if reason is None and case.find("skipped") is not None:
            reason = SKIPPED
        if reason is not None:
            outcome.not_applicable[reason] += 1
        elif problem is not None:
            said = (problem.get("message") or "").splitlines() or [""]
            outcome.failed.append(f"{name}: {said[0][:200]}")
        else:
            outcome.passed.append(name)
