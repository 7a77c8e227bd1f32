"""Each command of `warren` that a page names is one; each block of a page is run by a test."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import typer

from tests import pages
from tidy import house
from warren.cli.app import app
from warren_broker.config import NodeConfig

NAMED = re.compile(r"(?:^ {4,}|^\$ |`|^)warren ([a-z][a-z-]*)(?: ([a-z][a-z-]+))?", re.MULTILINE)
PRINTED = {"ready", "batch"}
"""Words behind the name in lines that a node or a driver prints."""
RUN = ("python", "sh", "console", "sql")
READ = ("toml", "json", "yaml")
SHOWN = ("", "text", "mermaid")
INDENTED = re.compile(r"^ {4,}(?:\$ )?(?:warren|warren-broker|python3?|pip|docker|curl) ")


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


def test_every_block_is_run_by_a_test() -> None:
    findings = []
    for name in pages.pages():
        for block in pages.blocks(name):
            where = f"{name}: {block.text.splitlines()[0]}"
            if block.kind not in RUN + READ + SHOWN:
                findings.append(f"{where}: a block of kind {block.kind!r}")
            elif block.kind == "console" and pages.by_verb(name, block) is None:
                findings.append(f"{where}: no verb of build.py runs it")
            elif block.kind in RUN and not pages.by_verb(name, block):
                if name not in pages.SHARED and name not in pages.ELSEWHERE:
                    findings.append(where)
    house.report(findings, "add the page to tests/pages.py, and say in which test it runs")


def test_a_command_is_in_a_block() -> None:
    findings = []
    for name, page in pages.pages().items():
        text = pages.BLOCK.sub("", page.read_text(encoding="utf-8"))
        findings += [f"{name}: {line}" for line in text.splitlines() if INDENTED.match(line)]
    house.report(findings, "put ```sh around it: a block is run by a test")


def test_what_runs_a_page_names_it() -> None:
    """And nothing is in a table of tests/pages.py without need."""
    findings = []
    for name, place in pages.ELSEWHERE.items():
        file = house.ROOT / place
        wanted = name if name in file.read_text(encoding="utf-8") else name.split("/")[-1]
        if f'"{wanted}"' not in file.read_text(encoding="utf-8"):
            findings.append(f"{place} does not run {name}")
    for (name, words), (place, part) in pages.BY_VERB.items():
        if part not in (house.ROOT / place).read_text(encoding="utf-8"):
            findings.append(f"{place} has no {part}")
        if not any(block.text.startswith(words) for block in pages.blocks(name)):
            findings.append(f"{name} has no block {words!r}")
    findings += [f"{name}: no block" for name in pages.SHARED if not pages.blocks(name)]
    house.report(findings, "correct tests/pages.py")


@pytest.mark.parametrize("name", pages.pages())
def test_configurations_of_a_page_are_read(name: str) -> None:
    """What follows on a page is read with what stands above it."""
    values: dict[str, Any] = {"node": "a", "secret": "a long random text"}
    for block in pages.blocks(name):
        if block.kind == "toml":
            values |= tomllib.loads(block.text)
            NodeConfig.model_validate(values)
        elif block.kind == "json":
            json.loads(block.text)
