"""The programs of the two releases, and nodes of a local cluster that run the one or the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warren import local
from warren.local_node import LocalNode
from warren_raft import versions

ROOT = Path(__file__).resolve().parents[2]
WORKTREES = ROOT / ".warren" / "upgrade"
PARTS = ("raft", "broker", "python")


@dataclass(frozen=True)
class Program:
    """A program that runs a node.

    module   that is run
    places   of its packages, before all others
    version  the newest of a cluster that it has
    """

    name: str
    module: str
    places: tuple[Path, ...]
    version: int = versions.NEWEST


THIS = Program("this tree", "warren_broker", tuple(ROOT / part for part in PARTS))
VARIANT = Program(
    f"its variant of version {versions.NEWEST + 1}",
    "upgrade.variant",
    (ROOT / "tests", ROOT, *(ROOT / part for part in PARTS)),
    versions.NEWEST + 1,
)


def released() -> Program | None:
    """Return the newest release, checked out; None: nothing is released yet."""
    tags = _git("tag", "--list", "v*", "--sort=-version:refname").split()
    if not tags:
        return None
    place = WORKTREES / tags[0]
    if not place.exists():
        _git("worktree", "add", "--detach", str(place), tags[0])
    places = tuple(place / part for part in PARTS)
    said = (place / "raft/warren_raft/versions.py").read_text(encoding="utf-8")
    found = re.search(r"^NEWEST.*= (\d+)$", said, re.MULTILINE)
    assert found is not None, said
    return Program(tags[0], "warren_broker", places, int(found[1]))


def _git(*command: str) -> str:
    return subprocess.run(
        ["git", *command], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


class Programs:
    """Which program each node of a cluster is started with."""

    def __init__(self, first: Program) -> None:
        self._first = first
        self._of: dict[str, Program] = {}
        local.spawn_node = self._spawn

    def use(self, node: str, program: Program) -> None:
        """Start that node with another program from its next start on."""
        self._of[node] = program

    def _spawn(self, node: LocalNode, inside: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        local.forget_files(node)
        with node.log_file.open("ab") as log:
            return subprocess.Popen(
                self.command(node),
                cwd=node.directory,
                env=self.environment(node),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def command(self, node: LocalNode) -> list[str]:
        """Return the command that runs a node."""
        program = self._of.get(node.name, self._first)
        return [sys.executable, "-m", program.module, "--config", str(node.config_file)]

    def environment(self, node: LocalNode) -> dict[str, str]:
        """Return the environment of its process."""
        program = self._of.get(node.name, self._first)
        places = os.pathsep.join(map(str, program.places))
        return {**os.environ, "PYTHONPATH": places, "PYTHONUNBUFFERED": "1"}
