"""Policies through `/management`, from the request to its answer."""

from __future__ import annotations

from typing import Any

import pytest

from broker.admin.world import ManagementWorld
from warren_machines.metadata import commands
from warren_machines.metadata.policy_index import POLICY_STEPS_MAX

LIMIT = {"pattern": "^q", "definition": {"max-length": 5}, "priority": -2, "apply-to": "queues"}


class World(ManagementWorld):
    """Users with and without the right to policies."""

    users = {"ann": (), "pol": ("policymaker",), "watch": ("monitoring",)}
    grants = (("/", "pol"),)


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_policy_is_set_shown_listed_replaced_and_cleared(kind: str) -> None:
    world = World()
    assert world.ask("PUT", f"/{kind}/%2F/p", LIMIT) == (201, None)
    assert world.ask("PUT", f"/{kind}/%2F/p", LIMIT) == (204, None)
    shown = {"vhost": "/", "name": "p", **LIMIT}
    assert world.ask("GET", f"/{kind}/%2F/p") == (200, shown)
    body = {"pattern": ".*", "definition": {"max-length-bytes": 7}}
    assert world.ask("PUT", f"/{kind}/a%2Fb/other", body) == (201, None)
    other = {"vhost": "a/b", "name": "other", **body, "priority": 0, "apply-to": "all"}
    assert world.ask("GET", f"/{kind}") == (200, [shown, other])
    assert world.ask("GET", f"/{kind}/a%2Fb") == (200, [other])
    assert world.ask("PUT", f"/{kind}/%2F/high", {**body, "priority": 1})[0] == 201
    assert [one["name"] for one in world.ask("GET", f"/{kind}/%2F")[1]] == ["high", "p"]
    assert world.ask("DELETE", f"/{kind}/%2F/p") == (204, None)
    assert world.ask("DELETE", f"/{kind}/%2F/p")[0] == 404
    assert world.ask("GET", f"/{kind}/%2F/p")[0] == 404


def test_policies_and_operator_policies_of_one_name_are_two() -> None:
    world = World()
    world.ask("PUT", "/policies/%2F/p", LIMIT)
    assert world.ask("GET", "/operator-policies/%2F/p")[0] == 404


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"definition": {"max-length": 1}}, "the body lacks 'pattern'"),
        ({"pattern": ".*"}, "the body lacks 'definition'"),
        ({**LIMIT, "defintion": {}}, "unknown key 'defintion'"),
        ({**LIMIT, "pattern": 5}, "pattern should be a binary but was 5"),
        ({**LIMIT, "definition": [1]}, "definition must be a dictionary: [1]"),
        ({**LIMIT, "priority": "high"}, 'priority should be a number, actually was <<"high">>'),
        ({**LIMIT, "priority": True}, "priority should be a number, actually was true"),
        ({**LIMIT, "apply-to": "streams"}, "apply-to 'streams' unrecognised"),
        ({**LIMIT, "pattern": "(a+"}, "pattern should be regular expression but is invalid"),
        ({**LIMIT, "definition": {"max-length": "5"}}, '<<"5">> is not a valid maximum length'),
        ({**LIMIT, "definition": {"x": 1}}, "are not recognised policy settings"),
    ],
)
def test_a_policy_that_cannot_be_set_is_refused_and_changes_nothing(
    body: dict[str, Any], detail: str
) -> None:
    world = World()
    before = world.made.machine.snapshot(world.made.state)
    status, answer = world.ask("PUT", "/policies/%2F/p", body)
    assert status == 400 and detail in answer["detail"], answer
    assert world.made.machine.snapshot(world.made.state) == before


def test_an_unknown_vhost_is_not_found() -> None:
    for method, body in (("PUT", LIMIT), ("GET", None), ("DELETE", None)):
        assert World().ask(method, "/policies/gone/p", body)[0] == 404
    assert World().ask("GET", "/policies/gone")[0] == 404


@pytest.mark.parametrize("user", ["ann", "watch", "pol"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/operator-policies/%2F/p"),
        ("GET", "/operator-policies/%2F/p"),
        ("GET", "/operator-policies"),
        ("DELETE", "/operator-policies/%2F/p"),
        ("PUT", "/policies/a%2Fb/p"),
        ("GET", "/policies/a%2Fb"),
        ("DELETE", "/policies/a%2Fb/p"),
    ],
)
def test_who_may_not(user: str, method: str, path: str) -> None:
    world = World(user)
    world.made.do(commands.SetPolicy(commands.Policy("a/b", "p", ".*", {"max-length": 1})))
    before = world.made.machine.snapshot(world.made.state)
    assert world.ask(method, path, LIMIT if method == "PUT" else None)[0] == 403
    assert world.made.machine.snapshot(world.made.state) == before


def test_a_policymaker_sets_policies_of_the_vhosts_that_it_may_enter() -> None:
    world = World("pol")
    world.made.do(commands.SetPolicy(commands.Policy("a/b", "p", ".*", {"max-length": 1})))
    assert world.ask("PUT", "/policies/%2F/p", LIMIT)[0] == 201
    assert [one["vhost"] for one in world.ask("GET", "/policies")[1]] == ["/"]
    assert World("watch").ask("PUT", "/policies/%2F/p", LIMIT)[0] == 403


def test_the_patterns_of_a_vhost_have_a_size_in_all() -> None:
    """A thousand policies, each with a large pattern, made every queue's name cost seconds."""
    world = World("pol")
    large = {**LIMIT, "pattern": "a.{240}[cd]"}
    made = 0
    while (answer := world.ask("PUT", f"/policies/%2F/p{made}", large))[0] == 201:
        made += 1
        assert made * 1_000 <= POLICY_STEPS_MAX
    status, refused = answer
    assert (status, made > 10) == (409, True)
    told = refused["detail"]
    assert f"the patterns of the {made + 1} policies of vhost '/' are too large" in told
    assert f"{POLICY_STEPS_MAX:,} is the most" in told
    assert world.ask("PUT", "/policies/%2F/p0", LIMIT)[0] == 204, "a smaller one in place of one"
    assert world.ask("PUT", f"/policies/%2F/p{made}", large)[0] == 201
