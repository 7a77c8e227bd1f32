"""The examples of docs/client.md, run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.warm_nodes import COLD_NODES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"


@pytest.mark.live
def test_the_page_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COLD_NODES, "1")  # as a reader's nodes start
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) >= 6
    names: dict[str, Any] = {}
    try:
        for number, example in enumerate(examples):
            exec(compile(example, f"{PAGE.name}, example {number + 1}", "exec"), names)
    finally:
        if "cluster" in names:
            names["cluster"].stop()
