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
        "whose": 10,
    },
    "broker": {
        "nobody": 1,
    },
    "python": {
        "who": 1,
    },
    "docs": {
        "nobody": 1,
        "who": 1,
    },
    "tests": {
        "anew": 1,
        "go on": 1,
        "who": 1,
        "whose": 30,
    },
}
"""Folder → banned word → how often it may still occur in it (tests/tidy/test_plain_english.py)."""


LONG_TEST_NAMES = 1_070
"""How many tests may still have a name of more than ten words (tests/tidy/test_words.py): an upper
bound, as in WORDS."""
ANY_PER_1000_LINES = 11.8
"""How often the packages may say `Any` (tests/tidy/test_untyped_values.py): an upper bound."""


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
