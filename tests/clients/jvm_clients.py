"""Clients for the JVM: Qpid's JMS client, and RabbitMQ's client in Java."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from clients.outcome import (
    COMMANDS,
    PLACE,
    STREAMS,
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
from tools import java

QPID_JMS_VERSION = "2.6.1"
JMS_CHECKS = Path(__file__).parent / "java" / "JmsChecks.java"
JMS_QUEUE = "jms-checks"
JMS_S_MAX = 600

CLIENT = "rabbitmq-amqp-java-client"
SOURCES = "**/*.java"
MVN = ["mvn", "-q", "-B"]
SUITE_S_MAX = 1200
CLASSES = (
    "AddressFormatTest",
    "AffinityTest",
    "AmqpConsumerTest",
    "AmqpMessageTest",
    "AmqpQueueSpecificationTest",
    "AmqpTest",
    "BatchDispositionTest",
    "ByteCapacityTest",
    "ClientTest",
    "ConnectionSettingsTest",
    "ConsumerOutcomeTest",
    "DelayedRetryTest",
    "EntityRecoveryTest",
    "IdleTimeoutTest",
    "ManagementTest",
    "RecordingTopologyListenerTest",
    "RequestResponseTest",
    "ResourceListenerTest",
)
"""Those of which most tests need neither `rabbitmqctl`, streams, certificates nor OAuth 2."""
OFFLINE = "ByteCapacityTest"
"""Needs no broker."""
NOT_APPLICABLE: Reasons = (
    (r"[.]stream|subscriptionListenerShouldBeCalledOnRecovery", STREAMS),
    (r"(?:sameConnectionShouldBeReturned|durableByDefault).*QueueType.*\[3\]", STREAMS),
    (r"explicitDurabilityShouldBeEnforced.*\[[56]\]", STREAMS),
    (r"(?:After|During|Across)Recovery|ConnectionIsClosed|AfterConnectionFailure", COMMANDS),
    (r"pauseShouldStopMessageArrival|[.]connectionClosing|AfterPermissionsChanged", COMMANDS),
)
NO_COMMANDS = """\
#!/bin/sh
case "$*" in *amqp_address_v1*) echo false ;; *) exit 1 ;; esac
"""
"""In place of `rabbitmqctl`: whether a feature is off is the only question that has an answer."""


class QpidJms:
    """Qpid's JMS client, with a program of this project."""

    queue = JMS_QUEUE
    http = False

    def __init__(self) -> None:
        self._jars = PLACE / f"qpid-jms-{QPID_JMS_VERSION}"

    def install(self, sources: Path | None) -> None:
        """Download the client and what it needs with Maven."""
        install_once(self._jars, self._install)

    def _install(self) -> None:
        (self._jars / "pom.xml").write_text(POM.format(version=QPID_JMS_VERSION))
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={self._jars}"]
        command = [*MVN, "-f", str(self._jars / "pom.xml"), *copy]
        run_installer(f"qpid-jms-client {QPID_JMS_VERSION}", command, "Maven", "maven")

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the program."""
        if not installed(self._jars):
            raise NotRun("it is not installed")
        need_jdk()
        uri, address = "amqp://127.0.0.1:5672", f"/queues/{JMS_QUEUE}"
        command = ["java", "-cp", f"{self._jars}/*", str(JMS_CHECKS), uri, address]
        return run_checks("qpid-jms", command, JMS_S_MAX)


class JavaClient:
    """RabbitMQ's own client in Java, with its tests, of a checkout: its packages have none."""

    queue = ""
    http = False

    def install(self, sources: Path | None) -> None:
        """Compile a copy of the checkout with Maven, and have it download what its tests need."""
        origin = checkout(sources, CLIENT, "src")
        need_jdk()
        place = copy_of(origin, "java", SOURCES)

        def make() -> None:
            ignored = shutil.ignore_patterns(".git", "target")
            shutil.copytree(origin.parent, place, ignore=ignored, dirs_exist_ok=True)
            command = [*MVN, "-f", str(place / "pom.xml"), "test-compile", "surefire:test"]
            run_installer(f"{CLIENT}", [*command, f"-Dtest={OFFLINE}"], "Maven", "maven")

        install_once(place, make)

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the classes; tests that do not apply run, too, and do not count."""
        place = copy_of(checkout(sources, CLIENT, "src"), "java", SOURCES)
        if not installed(place):
            raise NotRun("it is not installed")
        commands, reports = directory / "rabbitmqctl", place / "target" / "surefire-reports"
        shutil.rmtree(reports, ignore_errors=True)
        commands.write_text(NO_COMMANDS)
        commands.chmod(0o755)
        said = {
            "test": ",".join(CLASSES),
            "rabbitmqctl.bin": commands,
        }
        settings = [f"-D{key}={value}" for key, value in said.items()]
        command = [*MVN, "-o", "-f", str(place / "pom.xml"), "surefire:test", *settings]
        outcome = Outcome("java")
        try:
            subprocess.run(command, capture_output=True, check=False, timeout=SUITE_S_MAX)
        except subprocess.TimeoutExpired:
            outcome.failed.append(f"not done within {SUITE_S_MAX} s")
        found = sorted(reports.glob("TEST-*.xml"))
        for report in found:
            read_report(report.read_text(encoding="utf-8"), outcome, NOT_APPLICABLE)
        if len(found) < len(CLASSES):
            outcome.failed.append(f"{len(found)} of {len(CLASSES)} classes have a report")
        return outcome


def need_jdk() -> None:
    """Raise NotRun unless there is one."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        raise NotRun(f"there is no JDK on PATH, {java.JAVA_MIN} or newer")


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
