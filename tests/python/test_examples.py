"""The examples of docs/reference/client.md, run as they stand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests import pages
from tests.warm_nodes import COLD_NODES

PAGE = "reference/client.md"
EXAMPLES = pages.ROOT / "examples"


@pytest.mark.live
def test_the_page_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COLD_NODES, "1")  # as a reader's nodes start
    examples = pages.python_blocks(PAGE)
    assert len(examples) >= 6
    names: dict[str, Any] = {}
    try:
        for number, example in enumerate(examples):
            exec(compile(example, f"{PAGE}, example {number + 1}", "exec"), names)
    finally:
        if "cluster" in names:
            names["cluster"].stop()


@pytest.mark.parametrize(
    "name", ["celery_dashboard/celery_dashboard", "enrichment/enrichment", "etl/etl", "lake/lake"]
)
def test_an_example_without_arguments_says_its_usage(name: str) -> None:
    """They ended with an IndexError or a ValueError."""
    path = EXAMPLES / f"{name}.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("usage: "), done.stderr
