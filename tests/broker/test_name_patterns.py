"""Patterns over names: the same answers as Python's engine, in bounded time."""

from __future__ import annotations

import re
import sys
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warren_broker.name_patterns import (
    AUTOMATON_NODES_MAX,
    PATTERN_NESTING_MAX,
    BadPattern,
    NameMatcher,
    Pattern,
)

ATOMS = st.sampled_from(
    ["a", "b", "c", "\\.", ".", "[ab]", "[^a]", "\\d", "\\w", "^", "$", "A", "[a-c]", "(?i:b)", "1"]
)


def _more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,2}", "{0,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"({text})"),
    )


PATTERNS = st.recursive(ATOMS, _more, max_leaves=8)
LOOKING = st.one_of(
    PATTERNS,
    st.tuples(st.sampled_from(["!", "="]), PATTERNS, PATTERNS).map(
        lambda three: f"^(?{three[0]}{three[1]}){three[2]}"
    ),
    st.tuples(PATTERNS, PATTERNS, PATTERNS).map(
        lambda three: f"^(?:(?!{three[0]}){three[1]}|{three[2]})"
    ),
)
NAMES = st.text(alphabet="abcABC1.é", max_size=8)


@settings(max_examples=400, deadline=None)
@given(st.lists(LOOKING, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=8))
@example(["^(?!amq\\.).*"], ["amq.x", "orders", ""])
@example(["^$"], ["", "a"])
@example(["(?i)ABC$", "b"], ["xabc", "b"])
def test_the_first_pattern_found_is_that_of_pythons_engine(
    patterns: list[str], names: list[str]
) -> None:
    matcher = NameMatcher([Pattern(text) for text in patterns])
    oracles = [re.compile(text, re.ASCII) for text in patterns]
    for name in names:
        found = (at for at, oracle in enumerate(oracles) if oracle.search(name))
        assert matcher.first(name) == next(found, None), (patterns, name)


UNICODE_ATOMS = st.sampled_from(
    [
        "\\w",
        "\\W",
        "\\d",
        "\\D",
        "\\s",
        "[^\\w]",
        "(?i:k)",
        "(?i:é)",
        "(?i:[a-zß])",
        "(?i:ſ)",
        "(?a:\\w)",
        "(?i:[^s])",
        "é",
        "[à-ÿ]",
        "(?s:.)",
        ".",
        "(?i:İ)",
        "$",
        "^",
    ]
)
"""What ASCII and all of Unicode differ in."""


@settings(max_examples=400, deadline=None)
@given(
    st.recursive(UNICODE_ATOMS, _more, max_leaves=6),
    st.lists(st.text(alphabet="kKſsSéÉßẞ٣\u212a\u00a0İi7_ \n", max_size=6), min_size=1, max_size=8),
)
@example("(?i)K", ["\u212a"])
@example("^\\w+$", ["größe", "a b"])
def test_unicode_classes_are_those_of_pythons_engine(text: str, names: list[str]) -> None:
    matcher = NameMatcher([Pattern(text, re.UNICODE)])
    oracle = re.compile(text)
    for name in names:
        if not name.endswith("\n"):  # Python's $ also matches in front of that
            assert (matcher.first(name) is not None) is bool(oracle.search(name)), (text, name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(", "should be regular expression but is invalid: missing ), unterminated subpattern"),
        ("a**", "should be regular expression but is invalid: multiple repeat"),
        (r"(a)\1", "uses groupref, which is not supported"),
        (r"\bqueue", "uses at_boundary"),
        ("a(?!b)", "only (?!…) and (?=…) directly behind a leading ^"),
        ("(?!b)", "directly behind a leading ^"),
        ("(?<=b)a", "look-around"),
        ("(?m)^a", "flags other than"),
        ("[[:alpha:]]", "Possible nested set"),
        ("(?>a)", "uses atomic_group"),
        ("a" * 1025, "must not exceed 1024 bytes"),
        ("(?:a{100}){100}", f"more than {AUTOMATON_NODES_MAX} nodes"),
        ("(?:){100000000}", f"more than {AUTOMATON_NODES_MAX} nodes"),
        ("(" * 101 + ")" * 101, "is nested too deeply: more than 100 levels"),
        ("(?:a" * 51 + "|b)*" * 51, "is nested too deeply"),
    ],
)
def test_what_cannot_be_matched_in_bounded_time_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadPattern, match=re.escape(why)):
        Pattern(text)


def test_nesting_is_bounded_and_what_is_within_the_bound_can_be_used_anywhere() -> None:
    """How deep a pattern may be was up to the calls that led to it, and to Python's limit."""
    deepest = "(" * PATTERN_NESTING_MAX + "q" + ")" * PATTERN_NESTING_MAX
    limit = sys.getrecursionlimit()

    def below(calls: int) -> bool:
        if calls:
            return below(calls - 1)
        return NameMatcher([Pattern(deepest)]).first("a q") == 0

    assert below(300)
    for limit_now in (limit, 20_000):
        sys.setrecursionlimit(limit_now)
        try:
            with pytest.raises(BadPattern, match="nested too deeply|recursion"):
                Pattern("(" * 500 + ")" * 500)
        finally:
            sys.setrecursionlimit(limit)


@pytest.mark.parametrize("text", ["(a+)+$", "(a|aa)+$", "(a|b)*a(a|b){60}$", "(.*a){20}$"])
def test_patterns_that_hold_a_backtracking_engine_for_minutes_take_milliseconds(text: str) -> None:
    matcher = NameMatcher([Pattern(text)])
    began = time.process_time()
    assert matcher.first("ab" * 30 + "a" * 180 + "!") is None
    assert time.process_time() - began < 2


def test_ten_thousand_names_and_twenty_patterns_take_less_than_100_ms() -> None:
    texts = [f"^team{i}\\..*\\.(orders|invoices)$" for i in range(19)]
    matcher = NameMatcher([Pattern(text) for text in (*texts, "^(?!amq\\.)t.*retry")])
    names = [f"team{i % 50}.service{i}.{('orders', 'retry')[i % 2]}" for i in range(10_000)]
    took = []
    for _ in range(5):
        began = time.process_time()
        found = [matcher.first(name) for name in names]
        took.append(time.process_time() - began)
    assert found[1] == 19 and found[2] == 2 and found[20] is None, found[:21]
    assert min(took) < 0.1, took
