"""The trie against a regular expression that says the same slowly."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren_machines.metadata.records import Binding
from warren_machines.routing.matcher import RoutedMessage
from warren_machines.routing.topic import TopicMatcher
from warren_machines.steps import STEPS_UNBOUNDED, Steps

WORDS = st.sampled_from(["a", "b", "", "*", "#", "aa"])
PATTERNS = st.lists(WORDS, max_size=5).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", "", "aa", "*", "#"]), max_size=6).map(".".join)


def words(text: str) -> list[str]:
    return text.split(".") if text else []


def expected(pattern: str, key: str) -> bool:
    """Every word of the key becomes `<word>`, so that words cannot run into each other."""
    parts = {"*": "<[^<>]*>", "#": "(?:<[^<>]*>)*"}
    form = "".join(parts.get(word, f"<{re.escape(word)}>") for word in words(pattern))
    return re.fullmatch(form, "".join(f"<{word}>" for word in words(key))) is not None


def binding(pattern: str, queue: str) -> Binding:
    return Binding("/", "x", queue, True, pattern)


def matched(matcher: TopicMatcher, key: str) -> set[str]:
    found: dict[tuple[bool, str], None] = {}
    list(matcher.match(RoutedMessage((key,)), found, Steps(STEPS_UNBOUNDED)))
    return {name for _, name in found}


@settings(max_examples=400, deadline=None)
@given(
    st.lists(PATTERNS, min_size=1, max_size=8), st.lists(KEYS, min_size=1, max_size=8), st.data()
)
def test_like_a_regular_expression(
    patterns: list[str], keys: list[str], data: st.DataObject
) -> None:
    matcher = TopicMatcher()
    there = {f"q{number}": pattern for number, pattern in enumerate(patterns)}
    for queue, pattern in there.items():
        one = binding(pattern, queue)
        matcher.add(one.key, one)
    for key in keys:
        assert matched(matcher, key) == {q for q, p in there.items() if expected(p, key)}
    for queue in data.draw(st.lists(st.sampled_from(sorted(there)), unique=True)):
        one = binding(there.pop(queue), queue)
        matcher.remove(one.key, one)
    for key in keys:
        assert matched(matcher, key) == {q for q, p in there.items() if expected(p, key)}


@pytest.mark.parametrize(
    "pattern, key, hit",
    [
        ("#", "", True),
        ("#", "a.b", True),
        ("*", "", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#.a", "a", True),
        ("#.a", "b", False),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a..c", True),
        ("a.*.c", "a.c", False),
        ("#.b.#", "a.b.c", True),
        ("#.#", "", True),
        ("*.#", "", False),
        ("", "", True),
        ("", "a", False),
        ("a", "A", False),
    ],
)
def test_by_hand(pattern: str, key: str, hit: bool) -> None:
    matcher = TopicMatcher()
    one = binding(pattern, "q")
    matcher.add(one.key, one)
    assert bool(matched(matcher, key)) is hit is expected(pattern, key)
    matcher.remove(one.key, one)
    assert not matched(matcher, key) and not matcher.root.next


def test_many_hashes_do_not_explode() -> None:
    matcher = TopicMatcher()
    one = binding(".".join(["#", "a"] * 40), "q")
    matcher.add(one.key, one)
    assert not matched(matcher, ".".join(["a"] * 39))
    assert matched(matcher, ".".join(["a"] * 200)) == {"q"}
