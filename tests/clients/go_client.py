"""RabbitMQ's AMQP 1.0 client in Go: its module has its tests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

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

MODULE = "github.com/rabbitmq/rabbitmq-amqp-go-client"
VERSION = "v1.2.0"
PACKAGE = "pkg/rabbitmqamqp"
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


class GoClient:
    """The client's own tests, compiled outside the namespace and run in it."""

    queue = ""

    def install(self, sources: Path | None) -> None:
        """Copy the checkout, or else download the module, and compile its tests."""
        place = self._place(sources)

        def make() -> None:
            module = place / "module"
            shutil.copytree(_checkout(sources) or _download(), module)
            for each in (module, *module.rglob("*")):
                each.chmod(0o755)  # Go's cache of modules is read-only
            compiled = ["go", "test", "-c", "-o", str(place / PROGRAM), f"./{PACKAGE}"]
            run_installer(f"{MODULE}", compiled, "Go", "golang", cwd=module)

        install_once(place, make)

    def _place(self, sources: Path | None) -> Path:
        own = _checkout(sources)
        return PLACE / f"go-{VERSION}" if own is None else copy_of(own, "go", "**/*.go")

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run them."""
        place = self._place(sources)
        if not installed(place):
            raise NotRun("it is not installed")
        report = directory / "go.json"
        left_out = "|".join(f"(?:{pattern})" for pattern, _ in NOT_APPLICABLE)
        flags = [f"-ginkgo.json-report={report}", f"-ginkgo.skip={left_out}", "-ginkgo.no-color"]
        command = [str(place / PROGRAM), *flags, f"-ginkgo.timeout={SUITE_S_MAX - 60}s"]
        try:
            subprocess.run(
                command,
                cwd=place / "module" / PACKAGE,
                capture_output=True,
                check=False,
                timeout=SUITE_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return Outcome("go", failed=[f"not done within {SUITE_S_MAX} s"])
        if not report.exists():
            return Outcome("go", failed=["it has written no report"])
        return read_ginkgo(report.read_text(encoding="utf-8"))


def _checkout(sources: Path | None) -> Path | None:
    found = None if sources is None else sources / MODULE.rpartition("/")[2]
    return found if found is not None and (found / PACKAGE).is_dir() else None


def _download() -> Path:
    if shutil.which("go") is None:
        raise NotRun("Go is missing: apt-get install golang")
    named = ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    done = subprocess.run(named, capture_output=True, text=True, check=False, cwd="/")
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    if done.returncode != 0 or "Dir" not in found:
        said = found.get("Error") or done.stderr
        raise NotRun(f"Go cannot download it: {' '.join(str(said).split())[-160:]}")
    return Path(found["Dir"])


def read_ginkgo(text: str) -> Outcome:
    """Return what a report of Ginkgo in JSON says."""
    outcome = Outcome("go")
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
                outcome.not_applicable[reason_for(name, NOT_APPLICABLE) or SKIPPED] += 1
            else:
                outcome.failed.append(f"{name}: {spec['State']}: {_why(spec)}")
    return outcome


def _why(spec: dict[str, Any]) -> str:
    return re.sub(r"\s+", " ", str((spec.get("Failure") or {}).get("Message", "")))[:200]
