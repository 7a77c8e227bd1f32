"""Clients of AMQP 0.9.1, of which the packages have their tests: in Go and in JavaScript."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from clients.go_client import PROGRAM, download
from clients.outcome import (
    PLACE,
    SKIPPED,
    NotRun,
    Outcome,
    Reasons,
    install_once,
    installed,
    reason_for,
    run_installer,
)

GO_091 = "github.com/rabbitmq/amqp091-go"
GO_091_VERSION = "v1.16.0"
AMQPLIB_VERSION = "2.0.1"
CLAIRE = "claire@0.4.1"
"""What amqplib's tests need beside it."""
GO_091_S_MAX = 900
AMQPLIB_S_MAX = 600
TEST_MS_MAX = 30_000
AMQPLIB_REASONS: Reasons = ((r"ipv6", "connects over IPv6, which nothing listens on here"),)


class AmqpGo:
    """RabbitMQ's client in Go, with the tests of its module, which ask the HTTP API, too."""

    queue = ""
    http = True

    def __init__(self) -> None:
        self._place = PLACE / f"amqp091-go-{GO_091_VERSION}"

    def install(self, sources: Path | None) -> None:
        """Download the module and compile its tests."""
        install_once(self._place, self._install)

    def _install(self) -> None:
        module = self._place / "module"
        shutil.copytree(download(GO_091, GO_091_VERSION), module)
        for each in (module, *module.rglob("*")):
            each.chmod(0o755)  # Go's cache of modules is read-only
        compiled = ["go", "test", "-tags", "integration", "-c", "-o", str(self._place / PROGRAM)]
        run_installer(GO_091, [*compiled, "."], "Go", "golang", cwd=module)

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run them."""
        if not installed(self._place):
            raise NotRun("it is not installed")
        command = [str(self._place / PROGRAM), "-test.v", f"-test.timeout={GO_091_S_MAX - 60}s"]
        env = dict(os.environ, AMQP_URL="amqp://guest:guest@127.0.0.1:5672/")
        try:
            done = subprocess.run(
                command,
                cwd=self._place / "module",
                env=env,
                capture_output=True,
                text=True,
                check=False,
                timeout=GO_091_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return Outcome("amqp091-go", failed=[f"not done within {GO_091_S_MAX} s"])
        return read_go_test("amqp091-go", done.stdout)


class Amqplib:
    """The client for Node in most use, with the tests of its package."""

    queue = ""
    http = False

    def __init__(self) -> None:
        self._modules = PLACE / f"amqplib-{AMQPLIB_VERSION}"

    def install(self, sources: Path | None) -> None:
        """Install the client from npm's registry."""
        install_once(self._modules, self._install)

    def _install(self) -> None:
        named = [f"amqplib@{AMQPLIB_VERSION}", CLAIRE]
        command = ["npm", "install", "--prefix", str(self._modules), *named]
        run_installer(f"amqplib {AMQPLIB_VERSION}", command, "npm", "npm")

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run them with Node's own runner."""
        if not installed(self._modules):
            raise NotRun("it is not installed")
        if shutil.which("node") is None:
            raise NotRun("there is no node on PATH: apt-get install nodejs")
        package = self._modules / "node_modules" / "amqplib"
        files = sorted(str(file.relative_to(package)) for file in package.glob("test/*.test.js"))
        flags = ["--test", f"--test-timeout={TEST_MS_MAX}", "--test-reporter=tap"]
        try:
            done = subprocess.run(
                ["node", *flags, *files],
                cwd=package,
                capture_output=True,
                text=True,
                check=False,
                timeout=AMQPLIB_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return Outcome("amqplib", failed=[f"not done within {AMQPLIB_S_MAX} s"])
        return read_tap("amqplib", done.stdout, AMQPLIB_REASONS)


def read_go_test(suite: str, text: str) -> Outcome:
    """Return what `go test -v` printed of whole tests; their parts do not count."""
    outcome = Outcome(suite)
    for said, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\S+)", text, re.MULTILINE):
        if said == "SKIP":
            outcome.not_applicable[SKIPPED] += 1
        else:
            (outcome.passed if said == "PASS" else outcome.failed).append(name)
    ended = re.search(r"^panic: .*", text, re.MULTILINE)
    if ended is not None:
        outcome.failed.append(ended[0])
    return outcome


def read_tap(suite: str, text: str, reasons: Reasons) -> Outcome:
    """Return what Node's runner printed in TAP; only tests without parts count."""
    outcome = Outcome(suite)
    depth = -1
    for spaces, bad, name in re.findall(r"^( *)(not )?ok [0-9]+ - (.*)$", text, re.MULTILINE):
        if len(spaces) < depth:  # the sum of what came before it
            depth = len(spaces)
            continue
        depth = len(spaces)
        reason = reason_for(name, reasons)
        if reason is not None:
            outcome.not_applicable[reason] += 1
        else:
            (outcome.failed if bad else outcome.passed).append(name)
    return outcome
