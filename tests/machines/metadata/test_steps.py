"""What one entry makes the definitions' machine do, in lines of Python: a sum, no product."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.line_steps import growth
from tests.machines.metadata.world import World
from warren_machines.metadata import commands as c
from warren_machines.metadata.records import Grant, Policy, User, Vhost
from warren_wire.arguments import QueueDefaults, queue_declaration

SUM = 2.5
"""More than a sum grows when all is doubled, less than a product."""
Prepared = Callable[[], object]


def filled(count: int) -> World:
    """So many queues and exchanges, each queue bound to all of a few exchanges."""
    world = World()
    for at in range(count):
        world.do(c.DeclareExchange("/", f"x{at}", "fanout", auto_delete=True))
        world.declare(f"q{at}")
    return world


def declared(name: str) -> c.DeclareQueue:
    flags = {"durable": True, "exclusive": False, "auto_delete": False, "arguments": {}}
    declaration = queue_declaration("/", name, **flags, defaults=QueueDefaults())
    return c.DeclareQueue(declaration.config, {}, ("a",), "a")


def queues_are_declared_under_a_limit(count: int) -> Prepared:
    """All queues of the vhost were counted for each."""
    world = filled(count)
    world.do(c.ChangeLimits("vhost", "/", {"max-queues": 10 * count}))
    return lambda: world.submit(*(declared(f"new{at}") for at in range(count)))


def queues_are_refused_at_a_limit(count: int) -> Prepared:
    world = filled(count)
    world.do(c.ChangeLimits("vhost", "/", {"max-queues": 1}))
    return lambda: world.submit(*(declared(f"new{at}") for at in range(count)))


def queues_of_many_bindings_are_deleted(count: int) -> Prepared:
    world = filled(count)
    world.submit(*(c.Bind("/", f"x{at}", f"q{at}", True, "") for at in range(count)))
    world.submit(*(c.Bind("/", "amq.topic", f"q{at}", True, f"{at}") for at in range(count)))
    return lambda: world.submit(*(c.DeleteQueue("/", f"q{at}") for at in range(count)))


def a_vhost_is_deleted(count: int) -> Prepared:
    world = filled(count)
    world.submit(*(c.Bind("/", "amq.topic", f"q{at}", True, f"{at}") for at in range(count)))
    world.submit(*(c.Bind("/", f"x{at}", f"q{at}", True, "") for at in range(count)))
    return lambda: world.do(c.DeleteVhost("/"))


def exchanges_of_a_chain_are_deleted(count: int) -> Prepared:
    world = filled(count)
    world.submit(
        *(c.Bind("/", f"x{at}", f"x{at + 1}", False, "") for at in range(count - 1)),
        *(c.Bind("/", "amq.topic", f"x{at}", False, "") for at in range(count)),
    )
    return lambda: world.do(c.DeleteExchange("/", f"x{count - 1}"))


def policies_are_set(count: int) -> Prepared:
    world = filled(count)
    policies = [Policy("/", f"{at}", "^q", {"max-length": 5}) for at in range(count)]
    return lambda: world.submit(*map(c.SetPolicy, policies))


def users_are_changed(count: int) -> Prepared:
    """All users, and all grants, were gone through for each."""
    world = World()
    users = [User(f"u{at}", "h") for at in range(count)]
    world.submit(*map(c.PutUser, users))
    world.submit(*(c.PutGrant(Grant("/", user.name, "", "", "")) for user in users))
    return lambda: world.submit(*map(c.PutUser, users), *(c.DeleteUser(u.name) for u in users))


def vhosts_are_deleted(count: int) -> Prepared:
    """All grants were gone through for each."""
    world = World()
    names = [f"v{at}" for at in range(count)]
    world.submit(*(c.AddVhost(Vhost(name)) for name in names))
    world.submit(*(c.PutGrant(Grant(name, "guest", "", "", "")) for name in names))
    world.do(c.AddVhost(Vhost("last")))
    return lambda: world.submit(*map(c.DeleteVhost, names))


def definitions_are_imported(count: int) -> Prepared:
    world = filled(count)
    world.do(c.ChangeLimits("vhost", "/", {"max-queues": 10 * count}))
    users = [User(f"u{at}", "h") for at in range(count)]
    imported = (
        *map(c.PutUser, users),
        *(c.PutGrant(Grant("/", user.name, "", "", "")) for user in users),
        *(c.SetPolicy(Policy("/", f"{at}", "^q", {"max-length": 5})) for at in range(count)),
        *(declared(f"new{at}") for at in range(count)),
        *(c.Bind("/", f"x{at}", f"q{at}", True, "") for at in range(count)),
    )
    return lambda: world.do(c.ImportDefinitions(imported))


@pytest.mark.parametrize(
    "prepared",
    [
        queues_are_declared_under_a_limit,
        queues_are_refused_at_a_limit,
        queues_of_many_bindings_are_deleted,
        a_vhost_is_deleted,
        exchanges_of_a_chain_are_deleted,
        policies_are_set,
        users_are_changed,
        vhosts_are_deleted,
        definitions_are_imported,
    ],
)
def test_one_entry_is_a_sum_of_steps(prepared: Callable[[int], Prepared]) -> None:
    assert growth(prepared, 100) < SUM
