"""The Python blocks of docs/how-to/decode.md, for tests that run them as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "decode.md"


def blocks(heading: str) -> list[str]:
    """The blocks below a heading until the next one, in their order; "": the page's beginning."""
    text = PAGE.read_text(encoding="utf-8")
    above = rf"^## {re.escape(heading)}\n" if heading else r"\A# [^\n]*\n"
    (found,) = re.findall(rf"{above}(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [str(each) for each in re.findall(r"^```python\n(.*?)^```$", found, re.M | re.S)]


def placed(block: str, hosts: str, directory: Path) -> str:
    """A block with a cluster's hosts, and a directory in the place of /data."""
    return block.replace("broker1,broker2,broker3", hosts).replace("/data", str(directory))
