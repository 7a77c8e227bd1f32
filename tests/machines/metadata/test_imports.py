"""Imports of definitions: all commands are carried out, or none."""

from __future__ import annotations

from typing import Any

import pytest

from machines.metadata.world import World, with_nodes
from machines.routing.router import router
from warren_machines.metadata import commands, runtime_parameters
from warren_machines.metadata.commands import AnyImported, ImportDefinitions
from warren_machines.metadata.records import Grant, Parameter, Policy, User, Vhost
from warren_wire.arguments import QueueDefaults, queue_declaration
from warren_wire.errors import NotFound, PreconditionFailed

BOSS = User("boss", "hash", ("administrator",))


def queue(name: str, vhost: str = "v", **arguments: Any) -> commands.DeclareQueue:
    """A declaration of a quorum queue on node a."""
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    made = queue_declaration(
        vhost,
        name,
        durable=True,
        exclusive=False,
        auto_delete=False,
        arguments=given,
        defaults=QueueDefaults(),
    )
    return commands.DeclareQueue(made.config, made.arguments, ("a",), "a")


def everything() -> list[AnyImported]:
    """One command of every kind, and some more."""
    return [
        commands.PutVhost(Vhost("v", "new")),
        commands.PutVhost(Vhost("/", "changed")),
        commands.PutUser(BOSS),
        commands.PutUser(User("guest", "other")),
        commands.PutGrant(Grant("v", "boss", ".*", ".*", ".*")),
        commands.SetPolicy(Policy("/", "p", ".*", {"max-length": 3})),
        commands.SetPolicy(Policy("v", "p", ".*", {"max-length": 3}, operator=True)),
        commands.PutParameter(Parameter("v", "shovel", "s", {"src-uri": "a"})),
        commands.PutParameter(Parameter("", "", "g", [1, {"deep": None}])),
        commands.DeclareExchange("v", "x", "topic"),
        commands.DeclareExchange("/", "x", "fanout"),
        queue("q"),
        queue("old", "/"),
        commands.Bind("v", "x", "q", True, "k"),
        commands.Bind("/", "amq.direct", "old", True, "k", {"a": 1}),
        commands.Bind("/", "x", "amq.fanout", False),
    ]


def before() -> World:
    """Definitions that an import changes in part."""
    world = with_nodes("ab")
    world.declare("old")
    world.bind("amq.direct", "old", "before")
    world.do(commands.SetPolicy(Policy("/", "p", "^q", {"max-length": 9})))
    return world


def without_replies(world: World) -> bytes:
    """A snapshot without the replies that are remembered for repeats."""
    copy = world.machine.restore(world.machine.snapshot(world.state))
    for uplink in copy.uplinks.values():
        uplink.answers.clear()
        uplink.last_seq = 0
    return world.machine.snapshot(copy)


REFUSED: list[AnyImported] = [
    commands.DeclareExchange("/", "amq.direct", "topic"),
    queue("old", "/", x_max_length=5),
    commands.Bind("/", "amq.direct", "missing", True),
    commands.PutGrant(Grant("/", "nobody", "", "", "")),
]


@pytest.mark.parametrize("refused", REFUSED)
def test_an_import_refused_at_any_place_leaves_nothing(refused: AnyImported) -> None:
    world = before()
    snapshot = without_replies(world)
    versions = {name: scope.version for name, scope in world.state.scopes.items()}
    topology = router(world)

    def route(*where: str) -> list[str]:
        return list(topology.route(*where))

    assert route("/", "amq.direct", "before") == ["old"]
    for at in range(len(everything()) + 1):
        some = everything()
        some.insert(at, refused)
        with pytest.raises((PreconditionFailed, NotFound)):
            world.do(ImportDefinitions(tuple(some)))
        assert world.changes == [], "no node is told"
        assert {name: one.version for name, one in world.state.scopes.items()} == versions
        assert route("/", "amq.direct", "before") == ["old"]
        assert route("/", "amq.direct", "k") == []
        assert without_replies(world) == snapshot
    world.do(ImportDefinitions(tuple(everything())))
    assert route("/", "amq.direct", "k") == ["old"] and route("v", "x", "k") == ["q"]


def test_a_repeated_import_changes_nothing() -> None:
    world = before()
    world.do(ImportDefinitions(tuple(everything())))
    assert world.changes
    once = without_replies(world)
    world.do(ImportDefinitions(tuple(everything())))
    assert world.changes == [] and without_replies(world) == once


def test_an_import_that_leaves_no_administrator_is_refused() -> None:
    world = World()
    demoted = commands.PutUser(User("guest", "hash"))
    with pytest.raises(PreconditionFailed, match="no user would have the tag 'administrator'"):
        world.do(ImportDefinitions((demoted,)))
    assert world.state.users["guest"].tags == ("administrator",)
    world.do(ImportDefinitions((demoted, commands.PutUser(BOSS))))
    assert world.state.users["guest"].tags == (), "whatever the order"


def test_a_file_that_was_loaded_last_is_not_loaded_again() -> None:
    world = before()
    loaded = ImportDefinitions((queue("q", "/"),), source="one")
    world.do(loaded)
    world.do(commands.DeleteQueue("/", "q"))
    world.do(loaded)
    assert world.state.queue("/", "q") is None
    world.state = world.machine.restore(world.machine.snapshot(world.state))
    world.do(loaded)
    assert world.state.queue("/", "q") is None, "a snapshot keeps what was loaded"
    world.do(ImportDefinitions((queue("q", "/"),), source="another"))
    assert world.state.queue("/", "q") is not None


def test_a_refused_file_counts_as_not_loaded() -> None:
    world = before()
    with pytest.raises(NotFound):
        world.do(ImportDefinitions((queue("q", "/"), REFUSED[2]), source="one"))
    world.do(ImportDefinitions((queue("q", "/"),), source="one"))
    assert world.state.queue("/", "q") is not None


def test_the_first_import_of_a_cluster_replaces_its_first_user() -> None:
    world = World(bootstrap=False)
    assert not world.state.bootstrapped
    some = (commands.PutVhost(Vhost("/")), commands.PutUser(BOSS))
    with pytest.raises(PreconditionFailed):
        world.do(ImportDefinitions(some[:1], first=True))
    assert not world.state.bootstrapped and not world.state.scopes
    world.do(ImportDefinitions(some, first=True))
    assert world.state.bootstrapped
    world.do(commands.Bootstrap(Vhost("/"), User("guest", "hash")))
    assert list(world.state.users) == ["boss"], "a leader without the file comes too late"


# ------------------------------------------------------------------ parameters


def test_parameters_are_set_replaced_cleared_and_restored() -> None:
    world = before()
    world.do(commands.PutParameter(Parameter("/", "shovel", "s", 1)))
    world.do(commands.PutParameter(Parameter("/", "shovel", "s", {"a": [2.5, None]})))
    world.do(commands.PutParameter(Parameter("", "", "s", "global")))
    world.state = world.machine.restore(world.machine.snapshot(world.state))
    assert world.state.parameters("/")["shovel", "s"].value == {"a": [2.5, None]}
    assert world.state.global_parameters["s"].value == "global"
    world.do(commands.DeleteParameter("/", "shovel", "s"))
    world.do(commands.DeleteParameter("", "", "s"))
    for gone in (("/", "shovel", "s"), ("", "", "s")):
        with pytest.raises(NotFound, match="no (global )?parameter 's'"):
            world.do(commands.DeleteParameter(*gone))
    with pytest.raises(NotFound, match="no vhost 'w'"):
        world.do(commands.PutParameter(Parameter("w", "shovel", "s", 1)))


@pytest.mark.parametrize("vhost", ["/", ""])
def test_there_are_only_so_many_parameters(monkeypatch: Any, vhost: str) -> None:
    monkeypatch.setattr(runtime_parameters, "PARAMETERS_MAX", 2)
    world = World()
    for name in "abb":
        world.do(commands.PutParameter(Parameter(vhost, "shovel", name, 1)))
    with pytest.raises(PreconditionFailed, match="has 2 parameters, and 2 is the most"):
        world.do(commands.PutParameter(Parameter(vhost, "shovel", "c", 1)))
    world.do(commands.PutParameter(Parameter(vhost, "shovel", "a", 2)))


def test_a_vhost_takes_its_parameters_with_it() -> None:
    world = World()
    world.do(commands.AddVhost(Vhost("v")))
    world.do(commands.PutParameter(Parameter("v", "shovel", "s", 1)))
    world.do(commands.DeleteVhost("v"))
    world.do(commands.AddVhost(Vhost("v")))
    assert world.state.parameters("v") == {}
