"""Patterns over names: the same answers as Python's engine, in bounded time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warren_wire.name_patterns import (
    MATCHER_STEPS_MAX,
    PROGRAM_BYTES_MAX,
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
        lambda three: f"^(?{three[0]}{three[1]})(?:{three[2]})"
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


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
@example("a|b [c]#-\n\0", "a")
def test_an_escaped_name_is_found_in_names_that_contain_it(inner: str, outer: str) -> None:
    matcher = NameMatcher([Pattern(f"^{re.escape(inner)}")])
    assert (matcher.first(outer) is not None) is outer.startswith(inner)
    assert matcher.first(inner + outer) == 0


@pytest.mark.parametrize(
    ("text", "found", "not_found"),
    [
        ("", ["", "a"], []),
        ("^$", [""], ["a", "\n"]),
        ("a$", ["a", "ba"], ["a\n", "ab"]),
        ("^.*$", ["", "größe", "\udcff"], ["a\nb"]),
        ("^.$", ["a", "é", "\udcff"], ["", "\n", "ab", "\udcff\udcff"]),
        ("(?m)^a$", ["b\na"], ["ba"]),
        ("(?s)^.*$", ["a\nb"], []),
        ("(?i)GRÖSSE", ["größe", "grösse"][1:], ["gr"]),
        (r"^\w+$", ["abc_1"], ["größe", "a b"]),
        (r"\bq", ["a q", "q"], ["aq"]),
        (r"^[[:alpha:]]+\x2e\Q.*\E$", ["ab..*"], ["ab.cc"]),
        (r"^\p{L}+$", ["größe"], ["1"]),
        ("\ufffd", ["\udcff", "\ufffd"], ["a"]),
    ],
)
def test_what_a_pattern_is_found_in(text: str, found: list[str], not_found: list[str]) -> None:
    """RabbitMQ and Python find `a$` in "a\n", too; a byte that is no UTF-8 is one character."""
    matcher = NameMatcher([Pattern(text)])
    assert [name for name in [*found, *not_found] if matcher.first(name) == 0] == found


@pytest.mark.parametrize(
    ("text", "found", "not_found"),
    [
        ("^(?!amq\\.).*", ["orders", "", "amq"], ["amq.x"]),
        ("^(?!amq\\.)(?!tmp)(?=.*x)[a-z]+$", ["ax"], ["amq.x", "tmpx", "a", "ax1"]),
        ("(?i)^(?!AMQ\\.)q", ["q1", "Q"], ["amq.q", "x"]),
        ("\\A(?!a|b)(?:c|d)", ["c", "d"], ["a", "ac"]),
        ("^(?!a[)]\\)b|\\Q)\\E)", ["a)b"], ["a))b", ")"]),
        ("^(?!(?:x(y)*)z)[]|)]", ["]", "|", ")"], ["xyz", "a"]),
    ],
)
def test_look_aheads_behind_a_leading_anchor_are_taken_apart(
    text: str, found: list[str], not_found: list[str]
) -> None:
    matcher = NameMatcher([Pattern(text), Pattern("")])
    names = [*found, *not_found]
    assert [name for name in names if matcher.first(name) == 0] == found
    assert [name for name in names if matcher.first(name) == 1] == not_found


def test_case_is_ignored_where_it_is_asked_for() -> None:
    assert NameMatcher([Pattern("^(?!A)É", ignore_case=True)]).first("é") == 0
    assert NameMatcher([Pattern("^(?!A).", ignore_case=True)]).first("a") is None


TOO_LARGE = f"is too large: its program with the repeats written out needs more than {256 << 10:,}"
LOOK_AROUND = "only (?!…) and (?=…) directly behind a leading ^"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(", "should be regular expression but is invalid: missing ): ("),
        ("a**", "should be regular expression but is invalid: bad repetition operator: **"),
        (r"(a)\1", "has a back reference, which is not supported: invalid escape sequence: \\1"),
        ("a(?!b)", LOOK_AROUND),
        ("(?!b)", LOOK_AROUND),
        ("^(?!a)b|c", LOOK_AROUND),
        ("^(?!a(?=b))c", LOOK_AROUND),
        ("(?<=b)a", LOOK_AROUND),
        ("(?<!b)a", LOOK_AROUND),
        ("^(?!a", LOOK_AROUND),
        ("(?x)a b", "invalid perl operator: (?x"),
        ("(?>a)", "invalid perl operator: (?>"),
        ("a++", "bad repetition operator: ++"),
        ("\ud800", "it is not UTF-8"),
        ("a" * 1025, "must not exceed 1024 bytes"),
        ("(?:a{100}){100}", "invalid repetition size: {100}"),
        (".?" * 380 + "a.{240}[cd]", TOO_LARGE),
        ("(?:.{500}){2}", TOO_LARGE),
    ],
)
def test_what_cannot_be_matched_in_bounded_time_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadPattern, match=re.escape(why)):
        Pattern(text)


def test_what_a_pattern_may_cost_is_known_and_bounded() -> None:
    assert Pattern("^orders$").steps < 20
    worst = Pattern("a.{240}[cd]")
    assert 1_000 < worst.steps < PROGRAM_BYTES_MAX // 64
    matcher = NameMatcher([worst] * 5)
    assert matcher.steps == 5 * worst.steps
    assert matcher.cost("a" * 254) == 255 * matcher.steps
    assert matcher.first("xa" * 127) is None
    assert matcher.first("x" + "a" * 250 + "cc") == 0


def test_the_first_of_more_patterns_than_one_program_holds_is_found() -> None:
    many = [Pattern(f"^n{at}.{{100}}$") for at in range(60)]
    assert sum(one.steps for one in many) > 2 * MATCHER_STEPS_MAX
    matcher = NameMatcher([*many, Pattern("^n5"), Pattern("^(?!n6)")])
    assert [matcher.first(f"n{at}" + "x" * 100) for at in (0, 1, 30, 59)] == [0, 1, 30, 59]
    assert [matcher.first(name) for name in ("n5", "x", "n6")] == [60, 61, None]


HOSTILE = """
import re2
from warren_wire.name_patterns import NameMatcher, Pattern

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

before = resident()
for request in range(60):
    matcher = NameMatcher([Pattern("a.{%d}[cd]" % (200 + request)), Pattern("(.*a){20}x")])
    for at in range(20):
        matcher.first(("xa" * 127)[at:] + "a" * at)
print(resident() - before)
"""


def test_hostile_patterns_leave_nothing_behind() -> None:
    """Three requests with such patterns made 79 MB 1,418, and a cache kept them."""
    run = subprocess.run(
        [sys.executable, "-c", HOSTILE],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) < 16 << 20, run.stdout
