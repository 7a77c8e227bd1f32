"""The suites: how each client is installed, run, and what its tests said."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

from tools import console, java
from tools.environment import LOGS, STATE

PLACE = STATE / "clients"
PYTHON_CLIENT = "rabbitmq-amqp-python-client"
PYTHON_VERSION = "1.0.1"
PYTEST = ("pytest==8.4.2", "pytest-asyncio==1.2.0", "pytest-timeout==2.4.0")
PYTHON_HELPERS = ("pika==1.4.0", "requests==2.32.5", "pyjwt==2.10.1")
PYTHON_TEST_S_MAX, PYTHON_FILE_S_MAX = 45, 300
QPID_JMS_VERSION = "2.6.1"
JMS_CHECKS = Path(__file__).parent / "java" / "JmsChecks.java"
JMS_QUEUE = "jms-checks"
JMS_S_MAX = 600

STREAMS = "declares streams, which Warren does not have"
HTTP_API = "asks the HTTP API, which Warren does not have"
TLS_FILES = "needs TLS files that only its own continuous integration has"
OAUTH = "logs in with OAuth 2"
PYTHON_NOT_APPLICABLE: tuple[tuple[str, str], ...] = (
    (r"test_streams\.py|stream|test_multiple_publishers|test_publisher_.*multiple", STREAMS),
    (r"reconnect|disconnection|connection_vhost$", HTTP_API),
    (r"ssl|tls", TLS_FILES),
    (r"auth|oauth|token", OAUTH),
)
"""(what a test's id matches, why it is not run); the first that matches counts."""

PYTHON_ENDLESS_ON_WARREN = r"vhost_not_exists"
ENDLESS = "not run: the client connects again without end when a Close refuses the vhost"
"""Tests that do not end on Warren count as failed there, and are not run. RabbitMQ hangs up."""


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
    """

    queue: str

    def install(self) -> None:
        """Install the client; raises NotRun."""

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run its tests on the broker on port 5672 of loopback; raises NotRun.

        sources    checkouts, for tests that are not in a package; None: none
        directory  an existing one, for what it writes
        on_warren  the broker is Warren, not RabbitMQ
        """


class PythonClient:
    """RabbitMQ's own client in Python, with the tests of a checkout: its sdist has none."""

    queue = ""

    def __init__(self) -> None:
        self._venv = PLACE / f"python-{PYTHON_VERSION}"
        self._python = self._venv / "bin" / "python"

    def install(self) -> None:
        """Install the release from PyPI into an environment of its own."""
        done = self._venv / "complete"
        if done.exists():
            return
        shutil.rmtree(self._venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(self._venv)], check=True)
        wanted = [f"{PYTHON_CLIENT}=={PYTHON_VERSION}", *PYTEST, *PYTHON_HELPERS]
        pip = [str(self._python), "-m", "pip", "--disable-pip-version-check", "install", *wanted]
        log = LOGS / "clients-pip.log"
        if not console.quiet(f"{PYTHON_CLIENT} {PYTHON_VERSION}", pip, log):
            raise NotRun(f"pip failed, see {log}")
        done.touch()

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the tests of the checkout, file by file, on the installed release."""
        tests = None if sources is None else sources / PYTHON_CLIENT / "tests"
        if tests is None or not tests.is_dir():
            raise NotRun(
                f"its package has no tests; give --sources DIRECTORY with a checkout of "
                f"{PYTHON_CLIENT} in it"
            )
        if not (self._venv / "complete").exists():
            raise NotRun("it is not installed")
        copy = directory / "python"  # without the checkout's own client
        shutil.copytree(tests, copy / "tests")
        outcome = Outcome("python")
        for file in sorted((copy / "tests").rglob("test_*.py")):
            self._run_file(copy, file, outcome, on_warren)
        return outcome

    def _run_file(self, copy: Path, file: Path, outcome: Outcome, on_warren: bool) -> None:
        name = str(file.relative_to(copy))
        listed = self._pytest(copy, "--collect-only", "-q", name).splitlines()
        found = [line for line in listed if "::" in line and not line.startswith(("ERROR", "E "))]
        if not found:
            outcome.failed.append(f"{name}: no test could be collected")
            return
        chosen = []
        for test in found:
            reason = not_applicable(test)
            if on_warren and re.search(PYTHON_ENDLESS_ON_WARREN, test):
                outcome.failed.append(f"{test}: {ENDLESS}")
            elif reason is None:
                chosen.append(test)
            else:
                outcome.not_applicable[reason] += 1
        if not chosen:
            return
        report = copy / "report.xml"
        report.unlink(missing_ok=True)
        self._pytest(copy, f"--junitxml={report}", f"--timeout={PYTHON_TEST_S_MAX}", *chosen)
        if not report.exists():
            outcome.failed.append(f"{name}: not done within {PYTHON_FILE_S_MAX} s")
            return
        read_report(report.read_text(encoding="utf-8"), outcome)

    def _pytest(self, copy: Path, *arguments: str) -> str:
        mode = ["-o", "asyncio_mode=auto", "-p", "no:cacheprovider"]
        command = [str(self._python), "-m", "pytest", f"--rootdir={copy}", *mode, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=copy,
                capture_output=True,
                text=True,
                check=False,
                timeout=PYTHON_FILE_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout


def not_applicable(test: str) -> str | None:
    """Return why a test of the Python client is not run; None: it is."""
    for pattern, reason in PYTHON_NOT_APPLICABLE:
        if re.search(pattern, test):
            return reason
    return None


def read_report(text: str, outcome: Outcome) -> None:
    """Add the tests of a JUnit report."""
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        if problem is not None:
            said = (problem.get("message") or "").splitlines() or [""]
            outcome.failed.append(f"{name}: {said[0][:200]}")
        elif case.find("skipped") is not None:
            outcome.not_applicable["skipped by the suite itself"] += 1
        else:
            outcome.passed.append(name)


class QpidJms:
    """Qpid's JMS client, with a program of this project."""

    queue = JMS_QUEUE

    def __init__(self) -> None:
        self._jars = PLACE / f"qpid-jms-{QPID_JMS_VERSION}"

    def install(self) -> None:
        """Download the client and what it needs with Maven."""
        done = self._jars / "complete"
        if done.exists():
            return
        if shutil.which("mvn") is None:
            raise NotRun("Maven is missing: apt-get install maven")
        shutil.rmtree(self._jars, ignore_errors=True)
        self._jars.mkdir(parents=True)
        (self._jars / "pom.xml").write_text(POM.format(version=QPID_JMS_VERSION))
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={self._jars}"]
        command = ["mvn", "-q", "-B", "-f", str(self._jars / "pom.xml"), *copy]
        log = LOGS / "clients-maven.log"
        if not console.quiet(f"qpid-jms-client {QPID_JMS_VERSION}", command, log):
            raise NotRun(f"Maven failed, see {log}")
        done.touch()

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the program."""
        if not (self._jars / "complete").exists():
            raise NotRun("it is not installed")
        if shutil.which("java") is None or shutil.which("javac") is None:
            raise NotRun(f"there is no JDK on PATH, {java.JAVA_MIN} or newer")
        uri, address = "amqp://127.0.0.1:5672", f"/queues/{JMS_QUEUE}"
        command = ["java", "-cp", f"{self._jars}/*", str(JMS_CHECKS), uri, address]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=JMS_S_MAX
            )
        except subprocess.TimeoutExpired:
            return Outcome("qpid-jms", failed=[f"not done within {JMS_S_MAX} s"])
        outcome = read_checks("qpid-jms", done.stdout)
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


POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>warren</groupId>
  <artifactId>clients</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.qpid</groupId>
      <artifactId>qpid-jms-client</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""
SUITES: dict[str, Suite] = {"qpid-jms": QpidJms(), "python": PythonClient()}
