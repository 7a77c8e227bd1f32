"""Limits of vhosts and users as definitions: set, cleared, kept, and the one on queues."""

from __future__ import annotations

from typing import Any

import pytest

from machines.metadata.world import World
from warren_machines.metadata.commands import (
    AddVhost,
    ChangeLimits,
    DeleteQueue,
    DeleteUser,
    DeleteVhost,
    PutUser,
    PutVhost,
)
from warren_machines.metadata.limits import check_limits, limit
from warren_machines.metadata.records import User, Vhost
from warren_wire.errors import InvalidArgument, NotFound, PreconditionFailed


def queues_max(world: World, most: int) -> None:
    world.do(ChangeLimits("vhost", "/", {"max-queues": most}))


def vhost_limits(world: World) -> dict[str, int]:
    return world.state.scopes["/"].vhost.limits


def test_limits_are_set_added_replaced_and_cleared() -> None:
    world = World()
    world.do(ChangeLimits("vhost", "/", {"max-queues": 3}))
    world.do(ChangeLimits("vhost", "/", {"max-connections": 5}))
    assert vhost_limits(world) == {"max-connections": 5, "max-queues": 3}
    world.do(ChangeLimits("vhost", "/", cleared=("max-queues", "unknown")))
    assert vhost_limits(world) == {"max-connections": 5}
    world.do(ChangeLimits("vhost", "/", {"max-queues": -1}, replace=True))
    assert vhost_limits(world) == {"max-queues": -1} and limit({"max-queues": -1}, "x") is None
    world.do(ChangeLimits("user", "guest", {"max-channels": 0}))
    assert world.state.users["guest"].limits == {"max-channels": 0}
    assert limit(world.state.users["guest"].limits, "max-channels") == 0
    world.do(ChangeLimits("user", "guest", replace=True))
    assert world.state.users["guest"].limits == {}


def test_limits_of_what_does_not_exist_are_refused() -> None:
    world = World()
    for change in (ChangeLimits("vhost", "v", {}), ChangeLimits("user", "u", {})):
        with pytest.raises(NotFound):
            world.do(change)


def test_other_changes_of_a_vhost_or_user_keep_its_limits() -> None:
    world = World()
    queues_max(world, 3)
    world.do(ChangeLimits("user", "guest", {"max-connections": 7}))
    world.do(PutVhost(Vhost("/", "described")))
    world.do(PutUser(User("guest", "other hash", ("administrator",))))
    assert vhost_limits(world) == {"max-queues": 3}
    assert world.state.users["guest"].limits == {"max-connections": 7}
    assert world.state.users["guest"].password_hash == "other hash"


def test_a_vhost_or_user_of_the_same_name_begins_without_limits() -> None:
    world = World()
    queues_max(world, 3)
    world.do(PutUser(User("u", "h")))
    world.do(ChangeLimits("user", "u", {"max-channels": 1}))
    world.do(DeleteVhost("/"))
    world.do(DeleteUser("u"))
    world.do(AddVhost(Vhost("/")))
    world.do(PutUser(User("u", "h")))
    assert not vhost_limits(world) and not world.state.users["u"].limits


def test_the_limit_of_queues_is_met_exactly_and_never_passed() -> None:
    world = World()
    queues_max(world, 2)
    world.declare("one")
    world.declare("two", durable=False, exclusive=True)
    text = r"cannot declare queue 'three': queue limit in vhost '/' \(2\) is reached"
    with pytest.raises(PreconditionFailed, match=text):
        world.declare("three")
    assert "three" not in world.state.scopes["/"].queues
    world.declare("one")  # exists: nothing new is declared
    world.do(DeleteQueue("/", "one"))
    world.declare("three")
    queues_max(world, 1)
    assert len(world.state.scopes["/"].queues) == 2, "a lower limit deletes nothing"
    queues_max(world, 0)
    with pytest.raises(PreconditionFailed, match=r"\(0\) is reached"):
        world.declare("four")
    queues_max(world, -1)
    world.declare("four")


def test_the_store_of_an_exchange_is_no_queue_of_the_vhost() -> None:
    world = World()
    queues_max(world, 1)
    world.exchange("x", "x-recent-history", store_nodes=("a",), store_leader="a")
    assert len(world.state.scopes["/"].queues) == 1
    world.declare("one")
    with pytest.raises(PreconditionFailed):
        world.declare("two")


def test_a_snapshot_keeps_limits() -> None:
    world = World()
    queues_max(world, 1)
    world.do(ChangeLimits("user", "guest", {"max-channels": 3, "max-connections": 2}))
    restored = world.machine.restore(world.machine.snapshot(world.state))
    assert restored.scopes["/"].vhost == world.state.scopes["/"].vhost
    assert restored.users == world.state.users


@pytest.mark.parametrize(
    ("of", "given", "text"),
    [
        ("vhost", {"max-queues": "3"}, 'max-queues should be a number, actually was <<"3">>'),
        ("vhost", {"max-queues": True}, "max-queues should be a number, actually was true"),
        ("user", {"max-channels": 1.5}, "max-channels should be a number, actually was 1.5"),
        ("user", {"max-channels": 1 << 63}, "max-channels should be a number"),
        ("vhost", {"max-channels": 1}, r'Unrecognised terms [{<<"max-channels">>,1}] in limits'),
        ("user", {"max-queues": 1}, r'Unrecognised terms [{<<"max-queues">>,1}] in user-limits'),
    ],
)
def test_what_is_no_limit_is_refused(of: Any, given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_limits(of, given)
    assert text in refused.value.detail


def test_a_limit_may_be_negative() -> None:
    assert check_limits("vhost", {"max-connections": -1}) == {"max-connections": -1}
