"""What crosses a limit today, with the number it may not rise above.

Nothing is added here in passing. A place that came below its number must have it lowered, one
below the limit must go from the table: the tests see to both.
"""

from __future__ import annotations

RATCHET: dict[tuple[str, str], int] = {}
"""(rule, place) → number. Rules: module_lines, function_lines, swallowed."""


def over(rule: str, limit: int, measured: dict[str, int]) -> list[str]:
    """Findings: places above limit and ratchet; ratchet entries that are needed no more."""
    findings = []
    for place, number in sorted(measured.items()):
        allowed = max(limit, RATCHET.get((rule, place), 0))
        if number > allowed:
            findings.append(f"{place}: {number}, limit {allowed}")
    for (entry_rule, place), allowed in sorted(RATCHET.items()):
        now = measured.get(place, 0)
        if entry_rule == rule and now < allowed:
            why = "is within the limit: remove it" if now <= limit else f"is {now} now: lower it"
            findings.append(f"tests/tidy/ratchet.py: {rule} {place} {why}")
    return findings
