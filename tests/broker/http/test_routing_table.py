"""Paths of the HTTP API: segments, patterns, methods, and the document that describes them."""

from __future__ import annotations

import inspect
import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren_broker.http.calls import HttpCall
from warren_broker.http.exchanges import properties_key
from warren_broker.http.openapi import document
from warren_broker.http.replies import HttpRefusal, HttpReply
from warren_broker.http.routes import TABLE
from warren_broker.http.routing_table import RouteTable, http_route, segments_of
from warren_wire.admin.resources import ROUTES


async def one(call: HttpCall) -> None:
    return None


async def other(call: HttpCall, name: str) -> None:
    return None


MADE = (
    http_route("GET /a/:name", other),
    http_route("PUT /a/:given", other),
    http_route("GET /a/fixed", one),
)


def refused(call: object) -> HttpReply:
    with pytest.raises(HttpRefusal) as found:
        call()  # type: ignore[operator]
    return found.value.reply


def test_a_literal_counts_before_a_name() -> None:
    table = RouteTable(MADE)
    assert table.find("GET", ["a", "fixed"]) == (MADE[2], [])
    assert table.find("HEAD", ["a", "x"]) == (MADE[0], ["x"])
    reply = refused(lambda: table.find("DELETE", ["a", "x"]))
    assert (reply.status, reply.headers["allow"]) == (405, "HEAD, GET, PUT, OPTIONS")
    assert refused(lambda: table.find("GET", ["b"])).status == 404
    assert table.allowed(["a", "x"]) == "HEAD, GET, PUT, OPTIONS"
    with pytest.raises(AssertionError):
        RouteTable([*MADE, http_route("GET /a/:again", other)])


def test_segments_are_decoded_one_by_one() -> None:
    assert segments_of(b"/api/queues/%2F/a%2Fb%20%C3%BC", "") == ["queues", "/", "a/b ü"]
    assert segments_of(b"/p/api/overview/", "/p") == ["overview"]
    assert segments_of(b"/api/a/../..%2f..", "") == ["a", "..", "../.."], "names, no directories"
    for path in (b"/", b"/api", b"/other/a", b"/api/" + b"a/" * 20):
        assert refused(lambda path=path: segments_of(path, "")).status == 404, path
    assert refused(lambda: segments_of(b"/api/%ff", "")).status == 400
    assert refused(lambda: segments_of(b"/api/" + b"a" * 5_000, "")).status == 400


def test_each_route_is_found_and_is_given_its_names() -> None:
    for route in TABLE.routes:
        path = [f"n{at}" if part == ":" else part for at, part in enumerate(route.path)]
        names = [part for part, of in zip(path, route.path, strict=True) if of == ":"]
        assert TABLE.find(route.method, path) == (route, names)
        inspect.signature(route.by).bind(None, *names)


def test_what_the_node_reads_with_a_tag_is_refused_before_its_body_is_read() -> None:
    for node, kind in ROUTES.values():
        for path in node.http.paths if node.http else ():
            segments = ["x" if part[0] == ":" else part for part in path[1:].split("/")]
            route, _ = TABLE.find(node.method, segments)
            assert route.tag == (node.tag or "management"), (node.shown, kind)


def test_each_route_is_in_the_openapi_document() -> None:
    found = json.loads(msgspec.json.encode(document(TABLE.routes)))
    assert found["openapi"] == "3.1.0"
    described = {
        (method.upper(), tuple(":" if part[0] == "{" else part for part in path[1:].split("/")))
        for path, methods in found["paths"].items()
        for method in methods
    }
    assert described == {(route.method, route.path) for route in TABLE.routes}
    assert len(found["paths"]) == len({path for _, path in described}), "a path stands twice"
    for path, methods in found["paths"].items():
        for one in methods.values():
            given = {each["name"] for each in one["parameters"] if each["in"] == "path"}
            assert given == set(re.findall(r"{(\w+)}", path))
    named = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found))
    assert named and set(named) <= found["components"]["schemas"].keys()
    put = found["paths"]["/queues/{vhost}/{queue}"]["put"]["requestBody"]["content"]
    properties = put["application/json"]["schema"]["properties"]
    assert properties.keys() == {"durable", "auto_delete", "arguments"}
    policy = found["paths"]["/policies/{vhost}/{name}"]["get"]["responses"]["200"]
    assert policy["content"]["application/json"]["schema"]["$ref"].endswith("/PolicyInfo")


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
