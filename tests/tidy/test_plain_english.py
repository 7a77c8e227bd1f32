"""Docstrings, comments and docs use the field's words: machines are `it` and `which`."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

from tidy import house
from tidy.ratchet import WORDS

BANNED = {
    "who": "which (for machines and programs), the client, the user",
    "whom": "which, to which",
    "whose": "of which, with its",
    "whoever": "the caller, the program that",
    "nobody": "no node, no client, nothing",
    "somebody": "another client, another node",
    "anybody": "any client, any node",
    "everybody": "every client, every node",
    "anew": "again, a new attempt",
    "afresh": "again, from the beginning",
    "goes on": "continues",
    "go on": "continue",
    "rots": "is damaged on disk",
    "friend": "another client, another node",
    "let go of": "release, forget, drop",
    "heard of": "reachable, known",
    "deeds": "side effects",
    "in the past": "of an earlier term, before",
    "lives in the past": "has an earlier term",
    "is short of": "is low on (memory, disk)",
    "be had": "be available",
    "hitherto": "until now",
    "thereof": "of it",
}
"""A word for people, or a riddle, and what to write instead."""

FOLDERS = ("raft", "broker", "python", "connector", "docs", "tests", "tools", "bench", "examples")
PATTERN = re.compile(
    r"\b(" + "|".join(sorted(BANNED, key=len, reverse=True)).replace(" ", r"\s+") + r")\b",
    re.IGNORECASE,
)


def prose(path: Path) -> str:
    """What a file says in English: all of a page; comments and docstrings of a module.

    A module without any banned word is not taken apart.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md" or not PATTERN.search(text):
        return text
    return "\n".join(
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        or (token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""')))
    )


@cache
def counted() -> dict[str, Counter[str]]:
    """Per folder how often each banned word occurs."""
    found = {folder: Counter[str]() for folder in FOLDERS}
    for folder in FOLDERS:
        for path in sorted((house.ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md") and path != Path(__file__).resolve():
                for word in PATTERN.findall(prose(path)):
                    found[folder][" ".join(word.lower().split())] += 1
    return found


def test_banned_words_become_fewer() -> None:
    findings = [
        f"{folder}/: {word!r} {count} times, at most {WORDS.get(folder, {}).get(word, 0)}; "
        f"say: {BANNED[word]}"
        for folder, words in counted().items()
        for word, count in sorted(words.items())
        if count > WORDS.get(folder, {}).get(word, 0)
    ]
    house.report(findings, "people are `who`, machines are `which`; lower WORDS in ratchet.py")


def test_the_ratchet_names_banned_words_only() -> None:
    stale = [
        f"{folder}: {word}"
        for folder, words in WORDS.items()
        for word in words
        if word not in BANNED
    ]
    house.report(stale, "remove it from WORDS in tests/tidy/ratchet.py")
