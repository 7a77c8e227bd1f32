"""Patterns of permissions: what matches, what can be set, what takes no time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.test_name_patterns import LOOKING
from warren_broker.errors import AccessRefused, InvalidArgument
from warren_broker.metadata.records import Grant
from warren_broker.metadata.vhosts_and_users import check_patterns
from warren_broker.permissions import Permissions, check_topic

NAMES = st.text(alphabet="abcABC1.é", max_size=8)
HOSTILE = "(a+)+$"
LONG_NAME = "a" * 250 + "!"


def allows(pattern: str, name: str) -> bool:
    return Permissions(read=pattern).allows("read", name)


@settings(max_examples=300, deadline=None)
@given(LOOKING, st.lists(NAMES, min_size=1, max_size=6))
def test_what_matches_is_what_pythons_engine_finds(pattern: str, names: list[str]) -> None:
    oracle = re.compile(pattern)
    for name in names:
        assert allows(pattern, name) is bool(oracle.search(name)), (pattern, name)


@pytest.mark.parametrize(
    "hostile", [HOSTILE, "(a|a)*$", "(.*a){12}$", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_a_hostile_pattern_holds_no_node(hostile: str) -> None:
    check_patterns(Grant("/", "u", hostile, hostile, hostile))
    begun = time.process_time()
    for at in range(50):
        allows(hostile, f"{LONG_NAME}{at}")
    assert time.process_time() - begun < 5


def test_a_hostile_topic_pattern_holds_no_node_whatever_the_names() -> None:
    pattern = "^{vhost}.({username}+)+$"
    user, vhost = "a" * 255, "v" * 255
    grant = Grant(vhost, user, "", pattern, pattern, "amq.topic")
    check_patterns(grant)
    begun = time.process_time()
    with pytest.raises(AccessRefused):
        check_topic(Permissions(read=pattern), "read", f"{vhost}.{user}!", "amq.topic", vhost, user)
    assert time.process_time() - begun < 5
    check_topic(Permissions(read=pattern), "read", f"{vhost}.{user}a", "amq.topic", vhost, user)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[", "should be regular expression but is invalid"),
        (r"(a)\1", "uses groupref, which is not supported"),
        (r"\bq", "uses at_boundary"),
        ("(?<=b)a", "look-around"),
        ("a" * 1025, "must not exceed 1024 bytes"),
        ("(?:{username}){40}", "is too large"),
    ],
)
def test_what_takes_unbounded_time_cannot_be_set(pattern: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(why)) as refused:
        check_patterns(Grant("/", "u" * 200, ".*", pattern, ".*", "amq.topic"))
    assert refused.value.detail.startswith(f"permission pattern write={pattern!r} ")


def test_a_stored_pattern_that_can_no_longer_be_set_keeps_working() -> None:
    assert allows(r"\bq", "a q") and not allows(r"\bq", "aq")
    assert allows(r"^(.)\1$", "aa") and not allows(r"^(.)\1$", "ab")
    assert not allows("[", "["), "no regular expression allows nothing"
    assert allows("a" * 2000, "a" * 2001), "a pattern of any length"


def test_an_empty_pattern_allows_nothing_but_an_empty_name() -> None:
    assert not allows("", "a") and allows("", "")
