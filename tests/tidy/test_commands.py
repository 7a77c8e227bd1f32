"""Each command of `warren` that a page names is one."""

from __future__ import annotations

import re

import typer

from tidy import house
from warren.cli.app import app

NAMED = re.compile(r"(?:^ {4,}|^\$ |`|^)warren ([a-z][a-z-]*)(?: ([a-z][a-z-]+))?", re.MULTILINE)
PRINTED = {"ready", "batch"}
"""Words behind the name in lines that a node or a driver prints."""


def test_every_command_that_a_page_names_exists() -> None:
    root = typer.main.get_command(app)
    groups: dict[str, object] = root.commands  # type: ignore[attr-defined]
    known = {name: getattr(one, "commands", {}) for name, one in groups.items()}
    findings = []
    pages = [*sorted((house.ROOT / "docs").rglob("*.md")), house.ROOT / "README.md"]
    for page in pages:
        for line in page.read_text(encoding="utf-8").splitlines():
            for group, name in NAMED.findall(line):
                if group in PRINTED:
                    continue
                if group not in known or (name and known[group] and name not in known[group]):
                    findings.append(f"{page.name}: warren {group} {name}")
    house.report(findings, "name the command as it is called now")
