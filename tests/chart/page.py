"""The commands and values of docs/how-to/kubernetes.md, which the checks run."""

from __future__ import annotations

import re

from tools.environment import ROOT

CHART = ROOT / "deploy" / "chart"
_PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
_SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", _PAGE, re.MULTILINE))


def commands(section: str) -> list[str]:
    """Return the commands of a section, in order."""
    blocks = re.findall(r"^```sh\n(.+?)^```", _SECTIONS[section], re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def files() -> dict[str, str]:
    """Return the files of values that the page has, by name."""
    found = re.findall(r"^```yaml\n# (\S+)\n(.+?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    return dict(found)
