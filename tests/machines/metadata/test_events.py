"""Events of the definitions: each change once, a repeat or a refusal none."""

from __future__ import annotations

import pytest

from machines.metadata.world import World
from warren_broker.cluster.client.event_facts import facts_of
from warren_machines.metadata import commands
from warren_machines.metadata.records import Grant, Parameter, Policy, User, Vhost
from warren_wire.errors import AccessRefused, NotFound, Refusal


def told(world: World) -> list[str]:
    """The events of the last command, with the names in them."""
    found = []
    for event in world.events:
        facts = facts_of(event)
        name = facts.get("name") or facts.get("user") or facts["destination_name"]
        found.append(f"{event.key} {name}")
    return found


def test_a_repeat_tells_nothing() -> None:
    world = World()
    again = [
        commands.DeclareExchange("/", "x", "topic", auto_delete=True),
        commands.Bind("/", "x", "q", True, "k"),
        commands.SetPolicy(Policy("/", "p", ".*", {"max-length": 1})),
        commands.ChangeLimits("vhost", "/", {"max-queues": 5}),
    ]
    world.declare("q")
    assert told(world) == ["queue.created q"]
    world.declare("q")
    assert not world.events
    for command, wanted in zip(
        again,
        ("exchange.created x", "binding.created q", "policy.set p", "vhost.limits.set limits"),
        strict=True,
    ):
        world.do(command)
        assert told(world) == [wanted]
        world.do(command)
        assert not world.events
    world.do(commands.ChangeLimits("vhost", "/", replace=True))
    assert told(world) == ["vhost.limits.cleared limits"]
    world.do(commands.DeleteQueue("/", "q"))
    assert told(world) == ["binding.deleted q", "exchange.deleted x", "queue.deleted q"]


def test_a_vhost_tells_what_goes_with_it() -> None:
    world = World()
    world.do(commands.PutVhost(Vhost("v", "about", ("t",))))
    assert told(world) == ["vhost.created v"]
    world.do(commands.DeclareExchange("v", "x", "fanout"))
    world.do(commands.Bind("v", "x", "amq.topic", False))
    world.do(commands.PutGrant(Grant("v", "guest", "a", "b", "c")))
    world.do(commands.PutGrant(Grant("v", "guest", "", "b", "c", exchange="x")))
    assert told(world) == ["topic.permission.created guest"]
    world.do(commands.DeleteVhost("v"))
    assert told(world) == [
        "binding.deleted amq.topic",
        "exchange.deleted x",
        "permission.deleted guest",
        "topic.permission.deleted guest",
        "vhost.deleted v",
    ]
    world.do(commands.DeleteVhost("v"))
    assert not world.events


def test_a_user_tells_password_and_tags() -> None:
    world = World()
    world.do(commands.PutUser(User("u", "one", ("monitoring",))))
    assert told(world) == ["user.created u", "user.tags.set u"]
    world.do(commands.PutUser(User("u", "one", ("monitoring",))))
    assert not world.events
    world.do(commands.PutUser(User("u", "two", ())))
    assert told(world) == ["user.password.changed u", "user.tags.set u"]
    world.do(commands.PutUser(User("u", "", ())))
    assert told(world) == ["user.password.cleared u"]
    assert "two" not in str([dict(facts_of(one)) for one in world.events])
    world.do(commands.ChangeLimits("user", "u", {"max-channels": 3}))
    assert dict(facts_of(world.events[0])) == {"name": "u", "max-channels": 3}
    world.do(commands.DeleteUser("u"))
    assert told(world) == ["user.deleted u"]


def test_a_parameter_tells_no_value() -> None:
    world = World()
    secret = {"src-uri": "amqp://u:secret@h"}
    world.do(commands.PutParameter(Parameter("/", "shovel", "s", secret)))
    assert told(world) == ["parameter.set s"] and "secret" not in str(facts_of(world.events[0]))
    world.do(commands.DeleteParameter("/", "shovel", "s"))
    assert told(world) == ["parameter.cleared s"]


def test_a_refused_import_tells_nothing() -> None:
    world = World()
    some = (
        commands.DeclareExchange("/", "x", "topic"),
        commands.Bind("/", "x", "missing", True),
    )
    with pytest.raises(Refusal):
        world.do(commands.ImportDefinitions(some))
    assert not world.events
    world.do(commands.ImportDefinitions(some[:1]))
    assert told(world) == ["exchange.created x"]


def test_only_the_broker_declares_its_own_exchange() -> None:
    world = World()
    name = "amq.rabbitmq.event"
    with pytest.raises(AccessRefused, match="reserved prefix"):
        world.exchange(name, "topic", internal=True)
    world.exchange(name, "topic", internal=True, own=True)
    assert world.state.scopes["/"].exchanges[name].internal
    world.exchange(name, "topic", internal=True, own=True)
    assert not world.events
    with pytest.raises(AccessRefused, match="deletion of system exchange"):
        world.do(commands.DeleteExchange("/", name))
    with pytest.raises(NotFound):
        world.do(commands.DeclareExchange("gone", name, "topic", internal=True, own=True))
