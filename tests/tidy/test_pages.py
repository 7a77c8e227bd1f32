"""What the pages name exists."""

from __future__ import annotations

import re

from tidy import house

NAMED = re.compile(r"[\w./{},*…-]+\.py\b")
NAMED_TEST = re.compile(r"`(tests/[\w./]+\.py)::(test_\w+)")
NOT_OURS = {"orders.py", "payments.py"}
"""Files of tutorials and how-to pages."""


def test_every_module_that_a_page_names_exists() -> None:
    """By the end of its path: `core/raft_node.py` is raft/warren_raft/core/raft_node.py."""
    places = [f"/{module.place}" for module in house.everything()]
    pages = [*sorted((house.ROOT / "docs").rglob("*.md")), *sorted(house.ROOT.glob("*.md"))]
    findings = []
    for page in pages:
        if page.name == "CHANGELOG.md":
            continue  # it tells what was
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for name in NAMED.findall(line):
                known = any(place.endswith(f"/{name.lstrip('./')}") for place in places)
                if not known and name not in NOT_OURS and not set(name) & set("{}*…"):
                    findings.append(f"{page.name}:{number}: {name}")
    house.report(findings, "name the module where it is now")


def test_every_walk_has_a_diagram() -> None:
    text = (house.ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    walks = re.split(r"^### Walk: ", text, flags=re.MULTILINE)[1:]
    assert len(walks) == 5
    findings = [walk.splitlines()[0] for walk in walks if "```mermaid" not in walk]
    house.report(findings, "draw it as one Mermaid sequence diagram")


def test_every_test_that_a_page_names_exists() -> None:
    findings = []
    for page in sorted((house.ROOT / "docs").rglob("*.md")):
        for place, name in NAMED_TEST.findall(page.read_text(encoding="utf-8")):
            file = house.ROOT / place
            if not file.exists() or f"def {name}(" not in file.read_text(encoding="utf-8"):
                findings.append(f"{page.name}: {place}::{name}")
    house.report(findings, "name the test as it is called now")


def test_every_row_beside_other_connectors_names_a_test_and_what_the_others_do() -> None:
    """A promise has a test, and a cell about another connector was looked up."""
    page = house.ROOT / "docs" / "project" / "connectors_compared.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    findings = []
    rows = 0
    for number, line in enumerate(lines, 1):
        if not line.startswith("| ") or line.startswith("| ---") or "| --- |" in lines[number]:
            continue  # no row, a rule, or the heads above one
        rows += 1
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if not NAMED_TEST.search(cells[-1]):
            findings.append(f"{page.name}:{number}: no test")
        if not all(cells) or "unknown" in cells:
            findings.append(f"{page.name}:{number}: a cell that says nothing")
    assert rows > 40
    house.report(findings, "name the test in the last cell; look up what the others do, and say it")
