"""Limits through `/management`, from the request to its answer."""

from __future__ import annotations

from typing import Any

import pytest

from broker.admin.test_policies import World
from warren_machines.metadata import commands


def test_a_limit_of_a_vhost_is_set_listed_and_cleared() -> None:
    world = World()
    assert world.ask("GET", "/vhost-limits") == (200, [])
    assert world.ask("PUT", "/vhost-limits/a%2Fb/max-queues", {"value": 3}) == (204, None)
    assert world.ask("PUT", "/vhost-limits/a%2Fb/max-connections", {"value": -1}) == (204, None)
    both = [{"vhost": "a/b", "value": {"max-connections": -1, "max-queues": 3}}]
    assert world.ask("GET", "/vhost-limits") == (200, both)
    assert world.ask("GET", "/vhost-limits/a%2Fb") == (200, both)
    assert world.ask("GET", "/vhost-limits/%2F") == (200, [])
    assert world.ask("DELETE", "/vhost-limits/a%2Fb/max-queues") == (204, None)
    assert world.ask("DELETE", "/vhost-limits/a%2Fb/max-queues") == (204, None)
    assert world.ask("PUT", "/vhost-limits/a%2Fb", {"max-queues": 1}) == (204, None)
    assert world.ask("GET", "/vhost-limits")[1] == [{"vhost": "a/b", "value": {"max-queues": 1}}]
    assert world.ask("DELETE", "/vhost-limits/a%2Fb") == (204, None)
    assert world.ask("GET", "/vhost-limits") == (200, [])


def test_a_limit_of_a_user_is_set_listed_and_cleared() -> None:
    world = World()
    assert world.ask("PUT", "/user-limits/ann/max-channels", {"value": 0}) == (204, None)
    assert world.ask("GET", "/user-limits") == (
        200,
        [{"user": "ann", "value": {"max-channels": 0}}],
    )
    assert world.ask("DELETE", "/user-limits/ann") == (204, None)
    assert world.ask("GET", "/user-limits/ann") == (200, [])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/vhost-limits/%2F/max-channels", {"value": 1}, 400),
        ("/vhost-limits/%2F/max-queues", {"value": "1"}, 400),
        ("/vhost-limits/%2F/max-queues", {}, 400),
        ("/vhost-limits/%2F/max-queues", {"value": None}, 400),
        ("/vhost-limits/%2F", [1], 400),
        ("/vhost-limits/%2F", {"max-queues": 1, "more": 2}, 400),
        ("/vhost-limits/gone/max-queues", {"value": 1}, 404),
        ("/user-limits/gone/max-channels", {"value": 1}, 404),
        ("/user-limits/ann/max-queues", {"value": 1}, 400),
    ],
)
def test_what_is_refused_changes_nothing(path: str, body: Any, status: int) -> None:
    world = World()
    before = world.made.machine.snapshot(world.made.state)
    assert world.ask("PUT", path, body)[0] == status
    assert world.made.machine.snapshot(world.made.state) == before


def test_who_may_see_and_change_limits() -> None:
    world = World()
    for path in ("/vhost-limits/%2F/max-queues", "/user-limits/pol/max-channels"):
        assert world.ask("PUT", path, {"value": 3})[0] == 204
    world.made.do(commands.ChangeLimits("vhost", "a/b", {"max-queues": 9}))
    for user, seen in (("ann", 403), ("pol", 1), ("watch", 2), ("guest", 2)):
        world.user = user
        status, body = world.ask("GET", "/vhost-limits")
        assert (len(body) if status == 200 else status) == seen, user
        if user != "guest":
            assert world.ask("PUT", "/vhost-limits/%2F/max-queues", {"value": 4})[0] == 403
            assert world.ask("DELETE", "/user-limits/pol")[0] == 403
            assert world.ask("GET", "/user-limits")[0] == 403
    world.user = "pol"
    assert world.ask("GET", "/user-limits/pol")[1] == [
        {"user": "pol", "value": {"max-channels": 3}}
    ]
    assert world.ask("GET", "/user-limits/ann")[0] == 403
    assert world.ask("GET", "/vhost-limits/a%2Fb")[0] == 403
