"""Clients of the HTTP API: `rabbitmqadmin`, and RabbitMQ's client in Java."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from clients import http_setup
from clients.outcome import (
    PLACE,
    NotRun,
    Outcome,
    Reasons,
    checkout,
    copy_of,
    install_once,
    installed,
    read_report,
    run_checks,
    run_installer,
)

ADMIN_VERSION = "2.35.0"
ADMIN_CHECKS = Path(__file__).parent / "python" / "rabbitmqadmin_checks.py"
ADMIN_S_MAX = 900
HOP_SOURCES = "src/**/*.java"
HOP_S_MAX = 1200
HOP_CLASSES = ("ClientTest", "ReactorNettyClientTest")
"""Those that ask a broker."""
HOP_OFFLINE = "UtilsTest"
STREAMS_AND_MQTT = "declares streams or connects over MQTT, which Warren does not have"
HOP_REASONS: Reasons = (
    (r"(?i)stream|mqtt", STREAMS_AND_MQTT),
    (
        r"getApi(?:Channels|Overview|ConnectionsNameChannels|ConnectionsWithNameChannels)",
        "expects a node with a name that begins with rabbit",
    ),
)
MVN = ["mvn", "-q", "-B"]


class RabbitmqAdmin:
    """The command line of RabbitMQ's HTTP API, version 2, with a program of this project."""

    queue = ""
    http = True

    def __init__(self) -> None:
        self._place = PLACE / f"rabbitmqadmin-{ADMIN_VERSION}"

    def install(self, sources: Path | None) -> None:
        """Compile it with Cargo, which takes minutes."""
        install_once(self._place, self._install)

    def _install(self) -> None:
        named = ["rabbitmqadmin", "--version", ADMIN_VERSION, "--locked"]
        command = ["cargo", "install", *named, "--root", str(self._place)]
        run_installer(f"rabbitmqadmin {ADMIN_VERSION}", command, "Cargo", "cargo")

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the program."""
        if not installed(self._place):
            raise NotRun("it is not installed")
        program = self._place / "bin" / "rabbitmqadmin"
        command = [sys.executable, str(ADMIN_CHECKS), str(program), str(directory)]
        return run_checks("rabbitmqadmin", command, ADMIN_S_MAX)


class Hop:
    """RabbitMQ's client of the HTTP API in Java, with its tests, of a checkout."""

    queue = ""
    http = True

    def install(self, sources: Path | None) -> None:
        """Compile a copy of the checkout with Maven, and have it download what its tests need."""
        origin = checkout(sources, "hop", "src").parent
        place = copy_of(origin, "hop", HOP_SOURCES)

        def make() -> None:
            ignored = shutil.ignore_patterns(".git", "target")
            shutil.copytree(origin, place, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            command = [*MVN, "-f", str(place / "pom.xml"), "test-compile", "surefire:test"]
            run_installer("hop", [*command, f"-Dtest={HOP_OFFLINE}"], "Maven", "maven")

        install_once(place, make)

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the classes; tests that do not apply run, too, and do not count."""
        place = copy_of(checkout(sources, "hop", "src").parent, "hop", HOP_SOURCES)
        if not installed(place):
            raise NotRun("it is not installed")
        for name in ("vh1", "vh2"):
            http_setup.vhost(name)
        topic = {"exchange": "amq.topic", "write": ".*", "read": ".*"}
        assert http_setup.http()("PUT", "/topic-permissions/%2F/guest", topic).status < 300
        reports = place / "target" / "surefire-reports"
        shutil.rmtree(reports, ignore_errors=True)
        chosen = f"-Dtest={','.join(HOP_CLASSES)}"
        command = [*MVN, "-o", "-f", str(place / "pom.xml"), "surefire:test", chosen]
        outcome = Outcome("hop")
        try:
            subprocess.run(command, capture_output=True, check=False, timeout=HOP_S_MAX)
        except subprocess.TimeoutExpired:
            outcome.failed.append(f"not done within {HOP_S_MAX} s")
        for report in sorted(reports.glob("TEST-*.xml")):
            read_report(report.read_text(encoding="utf-8"), outcome, HOP_REASONS)
        return outcome
