"""Patterns of permissions: what matches, what can be set, what takes no time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren_machines.metadata import permissions
from warren_machines.metadata.permissions import Permissions, check_topic
from warren_machines.metadata.records import Grant
from warren_machines.metadata.vhosts_and_users import check_patterns
from warren_wire.errors import AccessRefused, InvalidArgument
from wire.test_name_patterns import LOOKING

NAMES = st.text(alphabet="abcABC1.é", max_size=8)


def allows(pattern: str, name: str) -> bool:
    return Permissions(read=pattern).allows("read", name)


@settings(max_examples=300, deadline=None)
@given(LOOKING, st.lists(NAMES, min_size=1, max_size=6))
def test_what_matches_is_what_pythons_engine_finds(pattern: str, names: list[str]) -> None:
    oracle = re.compile(pattern, re.ASCII)
    for name in names:
        assert allows(pattern, name) is bool(oracle.search(name)), (pattern, name)


def test_topic_patterns_have_the_names_put_in() -> None:
    pattern = "^{vhost}.({username}+)+$"
    user, vhost = "a." * 100, "v*" * 100
    check_patterns(Grant(vhost, user, "", pattern, pattern, "amq.topic"))
    held = Permissions(read=pattern)
    with pytest.raises(AccessRefused, match="read access to topic"):
        keys = (f"{vhost}.{user}", f"{vhost}.{user}!")
        check_topic(held, "read", keys, "amq.topic", vhost, user)
    check_topic(held, "read", (f"{vhost}.{user}.",), "amq.topic", vhost, user)


def test_a_topic_pattern_is_looked_up_once_for_the_same_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(permissions, "_found", lambda pattern, key: asked.append(key) or True)
    check_topic(Permissions(read="^a"), "read", ["a", "b", "a"] * 100, "amq.topic", "/", "u")
    assert asked == ["a", "b"]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[", "should be regular expression but is invalid"),
        (r"(a)\1", "has a back reference"),
        ("(?<=b)a", "look-around"),
        ("a" * 1025, "must not exceed 1024 bytes"),
        ("(?:{username}){40}", "is too large"),
    ],
)
def test_what_takes_unbounded_time_cannot_be_set(pattern: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(why)) as refused:
        check_patterns(Grant("/", "u" * 200, ".*", pattern, ".*", "amq.topic"))
    assert refused.value.detail.startswith(f"permission pattern write={pattern!r} ")


def test_a_stored_pattern_that_can_no_longer_be_set_allows_nothing() -> None:
    assert not allows(r"^(.)\1$", "aa") and not allows("[", "[")
    assert allows("a" * 2000, "a" * 2001), "a pattern of any length"


def test_an_empty_pattern_allows_nothing_but_an_empty_name() -> None:
    assert not allows("", "a") and allows("", "")
