"""The table of CONTRIBUTING.md adds up."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.fuzz import table
from tests.fuzz.targets import TARGETS

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
TODAY = date(2026, 11, 27)


def of(executions: int, findings: int = 0, edges: int = 7) -> dict[str, int]:
    """A target's totals."""
    return {
        "executions": executions,
        "per_second": 5,
        "edges": edges,
        "features": 9,
        "inputs": 3,
        "findings": findings,
    }


def test_executions_and_findings_add_up_and_the_rest_is_the_newest() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before = table.read(page)
    changed = table.updated(page, {"scan": of(1_000, 1)}, TODAY)
    after = table.read(changed)
    assert after["scan"]["executions"] == before["scan"]["executions"] + 1_000
    assert after["scan"]["findings"] == before["scan"]["findings"] + 1
    assert after["scan"]["edges"] == 7
    assert {**after, "scan": None} == {**before, "scan": None}
    total = sum(one["executions"] for one in after.values())
    assert f"On 2026-11-27 it had {total:,} executions" in changed
    assert len(changed.splitlines()) == len(page.splitlines())


def test_what_was_recorded_is_not_added_again() -> None:
    first = {"scan": of(10, 1), "block": of(5)}
    later = {"scan": of(30, 1, edges=8), "block": of(5)}
    assert table.since(first, {}) == first
    assert table.since(later, first) == {"scan": of(20, 0, edges=8)}
    assert table.since(later, later) == {}


def test_the_page_has_every_target_and_the_sum_of_its_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    there = table.read(page)
    assert list(there) == list(TARGETS)
    assert f"it had {sum(one['executions'] for one in there.values()):,} executions" in page


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table of fuzzing"):
        table.updated("# Contributing\n", {"scan": of(1)}, TODAY)
