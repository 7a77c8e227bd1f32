"""Clients of script languages with programs of this project: rhea, and Proton's Python binding."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from clients.outcome import (
    PLACE,
    NotRun,
    Outcome,
    install_once,
    installed,
    run_checks,
    run_installer,
)

RHEA_VERSION = "3.0.5"
RHEA_CHECKS = Path(__file__).parent / "javascript" / "rhea_checks.js"
RHEA_QUEUE = "rhea-checks"
PROTON_CHECKS = Path(__file__).parent / "python" / "proton_checks.py"
PROTON_QUEUE = "proton-checks"
CHECKS_S_MAX = 900


class Rhea:
    """A client in JavaScript."""

    queue = RHEA_QUEUE
    http = False

    def __init__(self) -> None:
        self._modules = PLACE / f"rhea-{RHEA_VERSION}"

    def install(self, sources: Path | None) -> None:
        """Install the client from npm's registry."""
        install_once(self._modules, self._install)

    def _install(self) -> None:
        command = ["npm", "install", "--prefix", str(self._modules), f"rhea@{RHEA_VERSION}"]
        run_installer(f"rhea {RHEA_VERSION}", command, "npm", "npm")

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the program."""
        if not installed(self._modules):
            raise NotRun("it is not installed")
        if shutil.which("node") is None:
            raise NotRun("there is no node on PATH: apt-get install nodejs")
        command = ["node", str(RHEA_CHECKS), "127.0.0.1", "5672", f"/queues/{RHEA_QUEUE}"]
        env = dict(os.environ, NODE_PATH=str(self._modules / "node_modules"))
        return run_checks("rhea", command, CHECKS_S_MAX, env)


class Proton:
    """Proton's binding for Python, which the broker's environment has."""

    queue = PROTON_QUEUE
    http = False

    def install(self, sources: Path | None) -> None:
        """Do nothing: it is there."""

    def run(self, sources: Path | None, directory: Path, on_warren: bool) -> Outcome:
        """Run the program."""
        uri, address = "amqp://guest:guest@127.0.0.1:5672", f"/queues/{PROTON_QUEUE}"
        command = [sys.executable, str(PROTON_CHECKS), uri, address]
        return run_checks("proton", command, CHECKS_S_MAX)
