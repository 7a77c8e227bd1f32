"""The commands and values of docs/how-to/kubernetes.md, which the checks run."""

from __future__ import annotations

from tests.pages import blocks
from tools.environment import ROOT

CHART = ROOT / "deploy" / "chart"
_PAGE = "how-to/kubernetes.md"


def commands(section: str) -> list[str]:
    """Return the commands of a section, in order."""
    found = [block for block in blocks(_PAGE) if block.kind == "sh" and block.heading == section]
    return [line for block in found for line in block.text.splitlines()]


def files() -> dict[str, str]:
    """Return the files of values that the page has, by name."""
    found = [block.text.partition("\n") for block in blocks(_PAGE) if block.kind == "yaml"]
    return {first.removeprefix("# "): rest for first, _, rest in found}
