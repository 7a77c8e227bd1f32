"""Paths of the HTTP API: segments, patterns, methods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren_broker.http.binding_keys import properties_key
from warren_broker.http.calls import HttpCall
from warren_broker.http.replies import HttpRefusal, HttpReply
from warren_broker.http.routes import ROUTES
from warren_broker.http.routing_table import (
    Answered,
    found_route,
    http_route,
    options_of,
    segments_of,
)


async def one(call: HttpCall) -> HttpReply:
    return HttpReply(200)


async def other(call: HttpCall) -> HttpReply:
    return HttpReply(200)


TABLE = (http_route("/a/fixed", GET=one), http_route("/a/:name", GET=other, PUT=one))


def refused(call: object) -> HttpReply:
    with pytest.raises(HttpRefusal) as found:
        call()  # type: ignore[operator]
    return found.value.reply


def test_the_first_pattern_that_fits_counts() -> None:
    assert found_route(TABLE, "GET", ["a", "fixed"]) == (Answered(one), ())
    assert found_route(TABLE, "HEAD", ["a", "x"]) == (Answered(other), ("x",))
    reply = refused(lambda: found_route(TABLE, "DELETE", ["a", "x"]))
    assert (reply.status, reply.headers["allow"]) == (405, "HEAD, GET, PUT, OPTIONS")
    assert refused(lambda: found_route(TABLE, "GET", ["b"])).status == 404
    assert options_of(TABLE, ["a", "x"]) == "HEAD, GET, PUT, OPTIONS"


def test_segments_are_decoded_one_by_one() -> None:
    assert segments_of(b"/api/queues/%2F/a%2Fb%20%C3%BC", "") == ["queues", "/", "a/b ü"]
    assert segments_of(b"/p/api/overview/", "/p") == ["overview"]
    assert segments_of(b"/api/a/../..%2f..", "") == ["a", "..", "../.."], "names, no directories"
    for path in (b"/", b"/api", b"/other/a", b"/api/" + b"a/" * 20):
        assert refused(lambda path=path: segments_of(path, "")).status == 404, path
    assert refused(lambda: segments_of(b"/api/%ff", "")).status == 400
    assert refused(lambda: segments_of(b"/api/" + b"a" * 5_000, "")).status == 400


def test_no_pattern_is_hidden_behind_another() -> None:
    for at, route in enumerate(ROUTES):
        given_path = [part.replace(":", "") or "x" for part in route.pattern]
        for before in ROUTES[:at]:
            hides = len(before.pattern) == len(route.pattern) and all(
                b.startswith(":") or b == p for b, p in zip(before.pattern, given_path, strict=True)
            )
            assert not hides, (before.pattern, route.pattern)


@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.dictionaries(st.text(max_size=3), st.integers(0, 9)))
    ),
)
def test_keys_of_bindings_tell_them_apart(bindings: list[tuple[str, dict[str, int]]]) -> None:
    distinct = {(key, tuple(sorted(arguments.items()))) for key, arguments in bindings}
    keys = {properties_key(key, arguments) for key, arguments in bindings}
    assert len(keys) == len(distinct)
    assert all(key and key.isascii() and "/" not in key for key in keys)


def test_keys_of_bindings_are_rabbitmqs_without_arguments() -> None:
    assert properties_key("", {}) == "~"
    assert properties_key("a.b", {}) == "a.b"
    assert properties_key("~", {}) == "%7E"
