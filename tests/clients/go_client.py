"""Clients in Go, of which the modules have their tests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients import http_setup
from clients.outcome import (
    HTTP_API,
    OAUTH,
    PLACE,
    SKIPPED,
    STREAMS,
    TLS_FILES,
    NotRun,
    Outcome,
    Reasons,
    copy_of,
    install_once,
    installed,
    reason_for,
    run_installer,
)

PROGRAM = "client.test"
SUITE_S_MAX = 1200

NOT_APPLICABLE: Reasons = (
    (r"OAuth2", OAUTH),
    (r"Consumer stream test", STREAMS),
    (r"different vhosts with Anonymous and External", TLS_FILES),
    (r"REST API|auto-recovery is disabled|topology recovery end-to-end tests", HTTP_API),
    (r"AMQP Environment Test .*different vhosts", "logs in to a vhost that is made beforehand"),
    (
        r"Declare With Parameters and Get/Delete",
        "expects a node with a name that begins with rabbit",
    ),
)


@dataclass(frozen=True)
class GoClient:
    """A client's own tests, compiled outside the namespace and run in it.

    package  the folder in the module with the tests; ".": the module itself
    reasons  what does not apply
    prepare  makes what the tests expect on the broker
    """

    name: str
    module: str
    version: str
    package: str
    reasons: Reasons
    prepare: Callable[[], None] = lambda: None
    http: bool = False
    queue: str = ""

    def install(self, sources: Path | None) -> None:
        """Copy the checkout, or else download the module, and compile its tests."""
        place = self._place(sources)

        def make() -> None:
            module = place / "module"
            shutil.copytree(self._checkout(sources) or download(self.module, self.version), module)
            for each in (module, *module.rglob("*")):
                each.chmod(0o755)  # Go's cache of modules is read-only
            compiled = ["go", "test", "-c", "-o", str(place / PROGRAM), f"./{self.package}"]
            run_installer(self.module, compiled, "Go", "golang", cwd=module)

        install_once(place, make)

    def _place(self, sources: Path | None) -> Path:
        own = self._checkout(sources)
        if own is None:
            return PLACE / f"{self.name}-{self.version}"
        return copy_of(own, self.name, "**/*.go")

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run them."""
        place = self._place(sources)
        if not installed(place):
            raise NotRun("it is not installed")
        self.prepare()
        report = directory / f"{self.name}.json"
        left_out = "|".join(f"(?:{pattern})" for pattern, _ in self.reasons)
        flags = [f"-ginkgo.json-report={report}", f"-ginkgo.skip={left_out}", "-ginkgo.no-color"]
        command = [str(place / PROGRAM), *flags, f"-ginkgo.timeout={SUITE_S_MAX - 60}s"]
        try:
            subprocess.run(
                command,
                cwd=place / "module" / self.package,
                capture_output=True,
                check=False,
                timeout=SUITE_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return Outcome(self.name, failed=[f"not done within {SUITE_S_MAX} s"])
        if not report.exists():
            return Outcome(self.name, failed=["it has written no report"])
        return read_ginkgo(report.read_text(encoding="utf-8"), self.name, self.reasons)

    def _checkout(self, sources: Path | None) -> Path | None:
        """Return the checkout of the client; its folder is named like the module."""
        name = re.sub(r"/v[0-9]+$", "", self.module).rpartition("/")[2]
        found = None if sources is None else sources / name
        return found if found is not None and (found / self.package).is_dir() else None


def download(module: str, version: str) -> Path:
    """Return the folder of a module, from Go's proxy; raises NotRun."""
    if shutil.which("go") is None:
        raise NotRun("Go is missing: apt-get install golang")
    named = ["go", "mod", "download", "-json", f"{module}@{version}"]
    done = subprocess.run(named, capture_output=True, text=True, check=False, cwd="/")
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    if done.returncode != 0 or "Dir" not in found:
        said = found.get("Error") or done.stderr
        raise NotRun(f"Go cannot download it: {' '.join(str(said).split())[-160:]}")
    return Path(found["Dir"])


def prepare_rabbit_hole() -> None:
    """Make what rabbit-hole's script makes with `rabbitmqctl`."""
    http_setup.vhost("rabbit/hole")
    http_setup.user("policymaker", "policymaker", "policymaker")


AMQP10 = GoClient(
    "go",
    "github.com/rabbitmq/rabbitmq-amqp-go-client",
    "v1.2.0",
    "pkg/rabbitmqamqp",
    NOT_APPLICABLE,
)
RABBIT_HOLE = GoClient(
    "rabbit-hole",
    "github.com/michaelklishin/rabbit-hole/v3",
    "v3.6.0",
    ".",
    (),
    prepare_rabbit_hole,
    http=True,
)


def read_ginkgo(text: str, suite: str, reasons: Reasons) -> Outcome:
    """Return what a report of Ginkgo in JSON says."""
    outcome = Outcome(suite)
    for suite in json.loads(text):
        for spec in suite["SpecReports"] or ():
            if spec["LeafNodeType"] != "It":
                if spec["State"] == "failed":
                    outcome.failed.append(f"{spec['LeafNodeType']}: {_why(spec)}")
                continue
            name = " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])
            if spec["State"] == "passed":
                outcome.passed.append(name)
            elif spec["State"] in ("skipped", "pending"):
                outcome.not_applicable[reason_for(name, reasons) or SKIPPED] += 1
            else:
                outcome.failed.append(f"{name}: {spec['State']}: {_why(spec)}")
    return outcome


def _why(spec: dict[str, Any]) -> str:
    return re.sub(r"\s+", " ", str((spec.get("Failure") or {}).get("Message", "")))[:200]
