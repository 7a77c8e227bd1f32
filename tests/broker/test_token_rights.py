"""What scopes permit; the table is what RabbitMQ 4.3.6 answered to the same tokens."""

from __future__ import annotations

import time

import pytest

from warren_broker.access.token_rights import (
    REMEMBERED_MAX,
    SCOPES_MAX,
    TokenRights,
    Wildcard,
    aliased,
    parse_scopes,
)

ALL = ("rabbitmq.read:*/*", "rabbitmq.write:*/*", "rabbitmq.configure:*/*")


def rights(*told: str) -> TokenRights:
    scopes, tags = parse_scopes(told, "rabbitmq.")
    return TokenRights("u", scopes, tags)


@pytest.mark.parametrize(
    ("told", "entered", "may"),
    [
        (ALL, True, "read write configure"),
        (("rabbitmq.read:*/q",), True, "read"),
        (("rabbitmq.read:%2F/q",), True, "read"),
        (("rabbitmq.read:%2f/*",), True, "read"),
        (("rabbitmq.read:*/%71",), True, "read"),
        (("rabbitmq.read:*/+q",), True, ""),
        (("rabbitmq.read:*/%2Bq",), True, ""),
        (("rabbitmq.read:*",), False, ""),
        (("rabbitmq.read:v/*",), False, ""),
        (("rabbitmq.read:*/*q*", "rabbitmq.configure:*/n*-x"), True, "read configure"),
        (("rabbitmq.write:*/amq.default",), True, "write"),
        (("rabbitmq.write:*/t/a.*",), True, "topic"),
        (("rabbitmq.write:*/t/*",), True, "topic"),
        (("rabbitmq.write:*/t/x",), True, ""),
        (("rabbitmq.write:*/t",), True, ""),
        (("rabbitmq.write:*/t/a.*/x",), False, ""),
        (("rabbitmq.READ:*/*",), False, ""),
        (("read:*/*",), False, ""),
        (("other.read:*/*",), False, ""),
        (("rabbitmq.tag:administrator",), False, ""),
        ((), False, ""),
    ],
)
def test_what_rabbitmq_answers(told: tuple[str, ...], entered: bool, may: str) -> None:
    """Entering /, reading queue q, publishing to it, declaring new-x, publishing a.b to topic t."""
    token = rights(*told)
    held = token.permissions("/")
    assert (held is not None) == entered
    if held is None:
        return
    found = [
        what
        for what, allowed in (
            ("read", held.allows("read", "q")),
            ("write", held.allows("write", "amq.default")),
            ("configure", held.allows("configure", "new-x")),
            ("topic", held.allows("write", "t") and token.allows_key("write", "/", "t", "a.b")),
        )
        if allowed
    ]
    assert found == may.split()


def test_a_scope_is_of_its_vhost_alone() -> None:
    token = rights("rabbitmq.read:a/q", "rabbitmq.write:b*/q/k")
    in_a, in_b = token.permissions("a"), token.permissions("bb")
    assert in_a is not None and in_b is not None and token.permissions("c") is None
    assert in_a.allows("read", "q") and not in_a.allows("write", "q")
    assert in_b.allows("write", "q") and not in_b.allows("read", "q")
    assert token.allows_key("write", "bb", "q", "k")
    assert not token.allows_key("write", "a", "q", "k")


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        (("q",), ["q"], ["", "qq", "Q"]),
        (("", ""), ["", "q", "a\nb"], []),
        (("a", "b"), ["ab", "a-b", "abb"], ["a", "b", "ba", "abc"]),
        (("ab", "ba"), ["abba", "ab-ba"], ["aba", "ab"]),
        (("", "q", ""), ["q", "aqb"], ["", "a"]),
        (("a", "x", "x", "b"), ["axxb", "a-x-x-b"], ["axb", "ab"]),
    ],
)
def test_wildcards(pattern: tuple[str, ...], matched: list[str], others: list[str]) -> None:
    one = Wildcard(pattern)
    assert [text for text in matched + others if one.matches(text)] == matched


def test_tags_and_aliases() -> None:
    """A text that is an alias stays a scope, as in RabbitMQ; what stands for it is no alias."""
    told = aliased(
        ["role", "rabbitmq.tag:monitoring", "rabbitmq.read:*/a"],
        {
            "role": ("rabbitmq.tag:management", "rabbitmq.read:*/*", "other"),
            "rabbitmq.read:*/a": ("rabbitmq.write:*/a",),
            "other": ("rabbitmq.configure:*/*",),
        },
    )
    token = rights(*told)
    assert token.tags == ("management", "monitoring")
    assert {scope.permission for scope in token.scopes} == {"read", "write"}


def test_scopes_are_bounded() -> None:
    """Those of others, and repeated ones, do not count; as in RabbitMQ."""
    most = [f"rabbitmq.read:v/{i}" for i in range(SCOPES_MAX)]
    rights(*most, *most, *(f"x{i}" for i in range(SCOPES_MAX)))
    with pytest.raises(ValueError, match="more than 2048 scopes"):
        rights(*most, "rabbitmq.read:v/one-more")


def test_many_names_and_scopes_are_answered_in_bounded_time_and_memory() -> None:
    """A publisher of many routing keys and exchanges does not hold the node for its scopes."""
    token = rights(*(f"rabbitmq.write:*/*{i}*{i}*/*{i}*{i}*" for i in range(SCOPES_MAX)))
    begun = time.process_time()
    for i in range(200):
        held = token.permissions(f"v{i}")
        assert held is token.permissions(f"v{i}") and held is not None
        held.allows("write", "1" * 255)
    assert time.process_time() - begun < 5
    held = token.permissions("/")
    assert held is not None
    begun = time.process_time()
    for _ in range(20_000):
        held.allows("write", "nothing")
    assert time.process_time() - begun < 1, "what was answered is not asked of the scopes again"
    few = rights("rabbitmq.write:*/*").permissions("/")
    assert few is not None
    for i in range(2 * REMEMBERED_MAX):
        assert few.allows("write", str(i))
    assert not token.allows_key("write", "/", "11", "nothing")
    assert token.allows_key("write", "/", "11", "a1b1c")
