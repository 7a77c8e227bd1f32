"""The Python blocks of docs/how-to/decode.md, for tests that run them as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "decode.md"


def blocks(heading: str) -> list[str]:
    """The blocks below a heading of third level, in their order."""
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(
        rf"^### {re.escape(heading)}\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL
    )
    return [str(each) for each in re.findall(r"^```python\n(.*?)^```$", found, re.M | re.S)]


def placed(block: str, hosts: str, directory: Path) -> str:
    """A block with a cluster's hosts, and a directory in the place of /data."""
    return block.replace("broker1,broker2,broker3", hosts).replace("/data", str(directory))
