"""RabbitMQ's AMQP 1.0 client in Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from clients.outcome import (
    HTTP_API,
    OAUTH,
    PLACE,
    STREAMS,
    TLS_FILES,
    NotRun,
    Outcome,
    Reasons,
    checkout,
    install_once,
    installed,
    read_report,
    reason_for,
    run_installer,
)

CLIENT = "rabbitmq-amqp-python-client"
VERSION = "1.0.1"
PYTEST = ("pytest==8.4.2", "pytest-asyncio==1.2.0", "pytest-timeout==2.4.0")
HELPERS = ("pika==1.4.0", "requests==2.32.5", "pyjwt==2.10.1")
TEST_S_MAX, FILE_S_MAX = 45, 300
TOO_LONG = f"not done within {FILE_S_MAX} s"

NOT_APPLICABLE: Reasons = (
    (r"test_streams\.py|stream|test_multiple_publishers|test_publisher_.*multiple", STREAMS),
    (r"reconnect|disconnection|connection_vhost$", HTTP_API),
    (r"ssl|tls", TLS_FILES),
    (r"auth|oauth|token", OAUTH),
)


class PythonClient:
    """RabbitMQ's own client in Python, with the tests of a checkout: its sdist has none."""

    queue = ""
    http = False

    def __init__(self) -> None:
        self._venv = PLACE / f"python-{VERSION}"
        self._python = self._venv / "bin" / "python"

    def install(self, sources: Path | None) -> None:
        """Install the release from PyPI into an environment of its own."""
        install_once(self._venv, self._install)

    def _install(self) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(self._venv)], check=True)
        wanted = [f"{CLIENT}=={VERSION}", *PYTEST, *HELPERS]
        pip = [str(self._python), "-m", "pip", "--disable-pip-version-check", "install", *wanted]
        run_installer(f"{CLIENT} {VERSION}", pip, "pip", "python3-venv")

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the tests of the checkout, file by file, on the installed release."""
        tests = checkout(sources, CLIENT, "tests")
        if not installed(self._venv):
            raise NotRun("it is not installed")
        copy = directory / "python"  # without the checkout's own client
        shutil.copytree(tests, copy / "tests")
        outcome = Outcome("python")
        for file in sorted((copy / "tests").rglob("test_*.py")):
            self._run_file(copy, file, outcome)
        return outcome

    def _run_file(self, copy: Path, file: Path, outcome: Outcome) -> None:
        name = str(file.relative_to(copy))
        collected = self._pytest(copy, "--collect-only", "-q", name)
        listed = collected.stdout.splitlines() if collected else []
        found = [line for line in listed if "::" in line and not line.startswith(("ERROR", "E "))]
        if not found:
            outcome.failed.append(f"{name}: no test could be collected")
            return
        chosen = []
        for test in found:
            reason = reason_for(test, NOT_APPLICABLE)
            if reason is None:
                chosen.append(test)
            else:
                outcome.not_applicable[reason] += 1
        if not chosen:
            return
        report = copy / "report.xml"
        report.unlink(missing_ok=True)
        done = self._pytest(copy, f"--junitxml={report}", f"--timeout={TEST_S_MAX}", *chosen)
        if not report.exists():
            ended = f"pytest ended with {done.returncode}, and no report" if done else TOO_LONG
            outcome.failed.append(f"{name}: {ended}")
            return
        read_report(report.read_text(encoding="utf-8"), outcome)

    def _pytest(self, copy: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
        """Run pytest; None: it was not done in time, and is killed."""
        mode = ["-o", "asyncio_mode=auto", "-p", "no:cacheprovider"]
        command = [str(self._python), "-m", "pytest", f"--rootdir={copy}", *mode, *arguments]
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        try:
            return subprocess.run(
                command,
                cwd=copy,
                capture_output=True,
                text=True,
                check=False,
                timeout=FILE_S_MAX,
                env=env,
            )
        except subprocess.TimeoutExpired:
            return None
