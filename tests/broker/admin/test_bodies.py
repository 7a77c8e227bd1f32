"""The bodies of `/management` requests: what is read, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest

from warren_wire.admin.claims import GO_ON_AFTER_MAX, OpenClaimRequest, ReleaseClaimRequest
from warren_wire.admin.delayed import EndDelayRequest
from warren_wire.admin.queues import (
    DeclareQueueRequest,
    ForgetSinkRequest,
    ListSinksRequest,
    ReleaseRelayRequest,
    RetryDelayedRequest,
    ViewEdgesRequest,
)
from warren_wire.admin.requests import INT64_MAX
from warren_wire.admin.resources import parse_request
from warren_wire.arguments import DURATION_MS_MAX
from warren_wire.errors import InvalidArgument

CLAIM = "/queues/q/readers/r/claims/1"
OPEN: dict[str, Any] = {"epoch": 3, "max_messages": 1, "max_bytes": 2}


def test_keys_that_are_absent_or_none_have_their_defaults() -> None:
    asked = parse_request("PUT", CLAIM, {**OPEN, "ttl_ms": None})
    assert asked == OpenClaimRequest("q", "r", 1, 3, 1, 2, 0, False)
    assert parse_request("PUT", "/queues/q", None) == DeclareQueueRequest("q")
    arguments = parse_request("PUT", "/queues/q", {"arguments": {1: "a", "b": 2}})
    assert arguments == DeclareQueueRequest("q", arguments={"1": "a", "b": 2})
    retry = parse_request("POST", "/queues/q%2F1/messages/delayed/retry", None)
    assert retry == RetryDelayedRequest("q/1")
    ended = parse_request("DELETE", "/queues/q%2F1/messages/delayed/7-8-9", None)
    assert ended == EndDelayRequest("q/1", "7-8-9", True)
    cut = parse_request("GET", "/queues/q%2F1/view?states=ready,dead&pieces=7", None)
    assert cut == ViewEdgesRequest("q/1", ("ready", "dead"), 7)
    listed = parse_request("GET", "/queues/q%2F1/sinks?sink=a%20b&run=r&count=7", None)
    assert listed == ListSinksRequest("q/1", "a b", "r", 7)
    assert parse_request("GET", "/queues/q/sinks", None) == ListSinksRequest("q", "", "", 500)
    forgotten = parse_request("DELETE", "/queues/q%2F1/sinks/a%20b?run=r&force=true", None)
    assert forgotten == ForgetSinkRequest("q/1", "a b", "r", True)
    forgotten = parse_request("DELETE", "/queues/q/sinks/s", None)
    assert forgotten == ForgetSinkRequest("q", "s", "", False)
    with pytest.raises(InvalidArgument, match="force=yes: true or false"):
        parse_request("DELETE", "/queues/q/sinks/s?force=yes", None)
    released = parse_request("POST", "/queues/q%2F1/relays/release", {"relay": "r" * 300})
    assert released == ReleaseRelayRequest("q/1", "r" * 300)
    with pytest.raises(InvalidArgument, match="relay: a string is expected, its name"):
        parse_request("POST", "/queues/q/relays/release", None)
    operator = parse_request("POST", "/queues/q/readers/r/release", {"epoch": -1, "number": 0})
    assert operator == ReleaseClaimRequest("q", "r", 0, -1)


@pytest.mark.parametrize("path", ["/connections", "/statistics/queues", "/statistics/vhosts"])
def test_samples_are_of_what_is_named(path: str) -> None:
    """Of each there are up to 17 KB on each node."""
    one: Any = parse_request("GET", f"{path}?name=x&samples=true", None)
    every: Any = parse_request("GET", f"{path}?samples=true", None)
    assert (one.samples, every.samples) == (True, False)


def test_a_pattern_may_be_longer_than_a_name() -> None:
    asked: Any = parse_request("GET", f"/queues?pattern={'a' * 300}", None)
    assert asked.pattern == "a" * 300


@pytest.mark.parametrize(
    ("method", "path", "body", "text"),
    [
        ("PUT", CLAIM, [1], "the body is a list; a map is expected"),
        ("PUT", CLAIM, {}, "the body lacks 'epoch'"),
        ("PUT", CLAIM, {**OPEN, "max_bytes": None}, "the body lacks 'max_bytes'"),
        ("PUT", CLAIM, {**OPEN, "epoch": "3"}, "epoch='3' is a str; int is expected"),
        ("PUT", CLAIM, {**OPEN, "epoch": 3.0}, "epoch=3.0 is a float; int is expected"),
        (
            "PUT",
            CLAIM,
            {**OPEN, "epoch": True},
            f"epoch=True: a number from 0 to {INT64_MAX} is expected",
        ),
        (
            "PUT",
            CLAIM,
            {**OPEN, "max_messages": 0},
            f"max_messages=0: a number from 1 to {INT64_MAX} is expected",
        ),
        (
            "PUT",
            CLAIM,
            {**OPEN, "max_bytes": INT64_MAX + 1},
            f"max_bytes={INT64_MAX + 1}: a number from 1 to {INT64_MAX} is expected",
        ),
        (
            "PUT",
            CLAIM,
            {**OPEN, "ttl_ms": DURATION_MS_MAX + 1},
            f"ttl_ms={DURATION_MS_MAX + 1}: a number from 0 to {DURATION_MS_MAX} is expected",
        ),
        (
            "POST",
            "/queues/q/readers/r",
            {"expires_ms": INT64_MAX},
            f"expires_ms={INT64_MAX}: a number from 0 to {DURATION_MS_MAX} is expected",
        ),
        (
            "POST",
            "/queues/q/readers/r",
            {"go_on_after": INT64_MAX},
            f"go_on_after={INT64_MAX}: a number from 0 to {GO_ON_AFTER_MAX} is expected",
        ),
        (
            "POST",
            "/sinks/s/runs/r/batches/1",
            {"epoch": 1, "queues": {"q": "9" * 5000 + ":1:1"}},
            f"queues['q'] {'9' * 40!r} is not a number from 0 to {INT64_MAX}",
        ),
        ("PUT", CLAIM, {**OPEN, "keep_empty": 1}, "keep_empty=1 is a int; bool is expected"),
        (
            "POST",
            "/queues/q/readers/r/release",
            {"epoch": -2, "number": 0},
            f"epoch=-2: a number from -1 to {INT64_MAX} is expected",
        ),
        (
            "PUT",
            "/queues/q",
            {"durabel": True},
            "unknown key 'durabel' in the body; known: durable, exclusive, auto_delete, arguments",
        ),
        ("PUT", "/queues/q", {"arguments": "x"}, "arguments='x' is a str; dict is expected"),
        (
            "POST",
            "/bindings",
            {"binding_key": "x" * 256},
            "the body lacks 'source'",
        ),
        (
            "POST",
            "/bindings",
            {"source": "s", "binding_key": "é" * 128},
            f"binding_key {'é' * 40!r}… is longer than 255 bytes",
        ),
        ("POST", "/nodes/n/drain", {"x": 1}, "unknown key 'x' in the body; known: none"),
        (
            "POST",
            "/queues/quorum/replicas/on/n/grow",
            {"strategy": "some"},
            "strategy='some': one of all, even is expected",
        ),
        ("PUT", "/users/u", {"password": 12345}, "password is a int; str is expected"),
        (
            "PUT",
            "/vhosts/v",
            {"description": 5},
            "description=5 is a int; str is expected",
        ),
        (
            "DELETE",
            "/sinks/s/runs/r/batches/1",
            {"epoch": 1, "queues": {}},
            "queues: a map of 1 to 10000 names is expected",
        ),
    ],
)
def test_the_words_of_a_refusal(method: str, path: str, body: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_request(method, path, body)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", "/queues/q/messages/delayed?count=0", "count=0: a number from 1 to 500"),
        ("GET", "/queues/q/messages/delayed?count=501", "count=501: a number from 1 to 500"),
        ("GET", "/queues/q/messages/delayed?count=-1", "count=-1: a number from 1 to 500"),
        ("GET", "/queues/q/view?states=all&pieces=1001", "pieces=1001: a number from 1 to 1000"),
        ("GET", "/queues/q/view?states=all&pieces=0", "pieces=0: a number from 1 to 1000"),
        ("DELETE", "/queues/q/messages/delayed/first", "id 'first': GET /queues/:queue/messages"),
        ("POST", "/queues/q/messages/delayed/1-2/retry", "id '1-2': GET /queues/:queue/messages"),
    ],
)
def test_delayed_messages_without_a_place(method: str, path: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_request(method, path, None)
    assert refused.value.detail.startswith(text)
