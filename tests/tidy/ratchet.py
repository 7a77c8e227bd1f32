"""What crosses a limit today, with the number it may not rise above.

Nothing is added here in passing. The tests require that a number in RATCHET is lowered when its
place came below it, and that a place within the limit or a module that left its cycle is removed.
Numbers in WORDS are upper bounds: lower them from time to time.
"""

from __future__ import annotations

RATCHET: dict[tuple[str, str], int] = {}
"""(rule, place) → number. Rules: module_lines, function_lines, swallowed."""

CYCLES: tuple[frozenset[str], ...] = ()
"""Modules that import each other today. A set may only shrink; none is added."""

WORDS: dict[str, dict[str, int]] = {
    "raft": {
        "anew": 17,
        "anybody": 5,
        "be had": 1,
        "everybody": 3,
        "go on": 9,
        "goes on": 15,
        "heard of": 21,
        "let go of": 24,
        "lives in the past": 1,
        "nobody": 50,
        "rots": 4,
        "somebody": 12,
        "who": 55,
        "whoever": 12,
        "whom": 13,
        "whose": 51,
    },
    "broker": {
        "go on": 2,
        "nobody": 1,
        "who": 3,
        "whoever": 1,
        "whose": 3,
    },
    "python": {
        "anew": 3,
        "anybody": 2,
        "be had": 2,
        "go on": 2,
        "goes on": 7,
        "let go of": 1,
        "nobody": 5,
        "somebody": 1,
        "who": 9,
        "whoever": 4,
        "whose": 3,
    },
    "connector": {
        "anew": 3,
        "go on": 2,
        "goes on": 2,
        "somebody": 2,
        "who": 2,
        "whoever": 2,
        "whose": 9,
    },
    "docs": {
        "nobody": 1,
        "who": 1,
    },
    "tests": {
        "anew": 17,
        "anybody": 13,
        "be had": 2,
        "deeds": 1,
        "everybody": 12,
        "friend": 1,
        "go on": 14,
        "goes on": 26,
        "heard of": 16,
        "in the past": 1,
        "let go of": 4,
        "nobody": 61,
        "somebody": 28,
        "who": 63,
        "whoever": 31,
        "whom": 8,
        "whose": 48,
    },
    "tools": {
        "anew": 1,
        "go on": 1,
        "nobody": 1,
        "whoever": 1,
        "whose": 4,
    },
    "bench": {
        "afresh": 3,
        "everybody": 1,
        "let go of": 1,
    },
    "examples": {
        "anybody": 1,
        "everybody": 1,
        "go on": 3,
        "goes on": 1,
        "nobody": 2,
        "who": 1,
        "whose": 1,
    },
}
"""Folder → banned word → how often it may still occur in it (tests/tidy/test_plain_english.py)."""


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
