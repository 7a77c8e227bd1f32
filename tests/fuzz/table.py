"""The table of CONTRIBUTING.md: what was fuzzed so far, over all directories.

`build.py fuzz --record` adds what the runs of this directory have done since the last time that it
was called here. Executions and findings add up; the rest is of the newest run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date

KEYS = ("executions", "per_second", "edges", "features", "inputs", "findings")
ADDED = ("executions", "findings")
HEAD = (
    "| target | executions | per second | edges | features | inputs kept | findings |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)
Totals = Mapping[str, Mapping[str, int]]
_ROW = re.compile(r"^\| ([a-z0-9.-]+) \|((?: [\d,]+ \|){6})$", re.MULTILINE)
_SUM = re.compile(r"On \d{4}-\d\d-\d\d it had ([\d,]+) executions")


def rows(totals: Totals) -> list[str]:
    """Return the table's lines, without its head."""
    return [
        f"| {name} | " + " | ".join(f"{one[key]:,}" for key in KEYS) + " |"
        for name, one in totals.items()
    ]


def read(page: str) -> dict[str, dict[str, int]]:
    """Return what the page's table says."""
    found = {}
    for name, cells in _ROW.findall(page):
        numbers = [int(cell.replace(",", "")) for cell in cells.split("|") if cell.strip()]
        found[name] = dict(zip(KEYS, numbers, strict=True))
    return found


def since(totals: Totals, recorded: Totals) -> dict[str, dict[str, int]]:
    """Return the totals of a directory less what was recorded; targets with no more are left out.

    recorded  its totals at the last time
    """
    found = {}
    for name, one in totals.items():
        before = recorded.get(name, {})
        fresh = {**one, **{key: one[key] - before.get(key, 0) for key in ADDED}}
        if fresh["executions"]:
            found[name] = fresh
    return found


def updated(page: str, more: Totals, today: date) -> str:
    """Return the page with these added; raises ValueError when it has no such table."""
    there = read(page)
    if not there or HEAD[0] not in page or not _SUM.search(page):
        raise ValueError("CONTRIBUTING.md has no table of fuzzing, or no sentence with its sum")
    for name, one in more.items():
        before = there.get(name, {})
        there[name] = {**one, **{key: one[key] + before.get(key, 0) for key in ADDED}}
    start = page.index(HEAD[0])
    end = max(match.end() for match in _ROW.finditer(page))
    table = "\n".join([*HEAD, *rows(there)])
    total = sum(one["executions"] for one in there.values())
    whole = page[:start] + table + page[end:]
    return _SUM.sub(f"On {today:%Y-%m-%d} it had {total:,} executions", whole)
