"""Export, import into an empty cluster, export: the same document."""

from __future__ import annotations

import json
import random

import pytest
from msgspec.structs import replace

from machines.definition_files.around import exported, load, sample
from machines.metadata import test_determinism as grown
from machines.metadata.world import World
from warren_machines.definition_files.import_plan import FileRefused
from warren_machines.metadata import commands
from warren_machines.metadata.records import User
from warren_machines.metadata.vhosts_and_users import protected

BOSS = User("guest", "", ("administrator",))


def round_trip(world: World) -> World:
    """The definitions in another cluster, with the same document."""
    for name in world.state.users:  # those of grown definitions are no hashes
        world.state.users[name] = replace(world.state.users[name], password_hash="")
    before = exported(world).document
    other = World(bootstrap=False)
    load(other, json.dumps(before).encode())
    assert exported(other).document == before
    again = load(other, json.dumps(before).encode())
    counts = again.counts.values()
    assert not any(count.created or count.changed for count in counts), "nothing left to do"
    return other


@pytest.mark.parametrize("seed", range(12))
def test_grown_definitions_survive_export_and_import(seed: int) -> None:
    world = grown.grow(seed, entries=200)
    world.do(commands.PutUser(BOSS), uplink=999, node="z")
    round_trip(world)


@pytest.mark.parametrize("version", ["3.10.8", "4.3.6"])
def test_what_was_imported_from_rabbitmq_survives_too(version: str) -> None:
    world = World()
    load(world, sample(version))
    other = round_trip(world)
    assert other.state.groups.keys() == world.state.groups.keys()


def test_the_protection_of_a_vhost_is_in_its_metadata_as_in_rabbitmq() -> None:
    world, key = World(), "protected_from_deletion"
    for name, on in (("yes", True), ("no", False), ("unset", None), ("odd", "true")):
        told = {} if on is None else {"metadata": {key: on}}
        report = load(world, {"vhosts": [{"name": name, **told}]})
        assert bool(report.not_honoured) is (name == "odd"), "RabbitMQ takes it, as false"
    states = {name: protected(world.state, name) for name in world.state.scopes}
    assert states == {"/": None, "yes": True, "no": False, "unset": None, "odd": None}
    document = exported(world).document
    assert document["parameters"] == []
    found = {one["name"]: one["metadata"].get(key) for one in document["vhosts"]}
    assert found == states
    load(world, {"vhosts": [{"name": "yes"}]})
    assert protected(world.state, "yes"), "what a file does not say stays"
    other = round_trip(world)
    assert protected(other.state, "yes")
    load(other, {"vhosts": [{"name": "yes", key: False}]})
    assert protected(other.state, "yes") is False


def test_arguments_and_implicit_types_are_as_declared() -> None:
    world = World()
    draw = random.Random(1)
    for number, arguments in enumerate(
        (
            {},
            {"x-queue-type": "quorum"},
            {"x-queue-type": "classic", "x-queue-mode": "lazy"},
            {"x-max-length": draw.randint(1, 9), "x-table": {"a": [1, None, {"b": True}]}},
            {"x-dead-letter-strategy": "at-least-once"},
            {"x-delivery-limit": 3},
        )
    ):
        world.declare(f"q{number}", arguments=arguments)
    shown = {one["name"]: one for one in exported(world).document["queues"]}
    assert [shown[f"q{number}"]["type"] for number in (0, 3, 4, 5)] == [
        *("classic", "classic", "quorum", "classic")
    ]
    assert shown["q5"]["arguments"]["x-queue-type"] == "quorum", "what RabbitMQ takes a limit with"
    world.declare("transient", durable=False)
    world.declare("passing", durable=False, auto_delete=True)
    world.declare("results", auto_delete=True)
    results = exported(world).document["queues"][-2]
    assert results["name"] == "results" and results["type"] == "classic"
    assert results["arguments"] == {"x-queue-type": "classic"}, "what RabbitMQ reads"
    other = round_trip(world)
    for name, queue in world.state.scopes["/"].queues.items():
        there = other.state.scopes["/"].queues[name]
        assert (there.config, there.arguments) == (queue.config, queue.arguments), name
        assert there.config.replicated == (name in ("q0", "q3", "q5", "results"))


def test_an_export_with_the_longest_numbers_was_refused_by_its_import() -> None:
    longest = {"x-ulong": (1 << 64) - 1, "x-long": -(1 << 63), "x-in": {"a": [1 << 63]}}
    world = World()
    world.declare("q", arguments=longest)
    world.exchange("x", "headers", arguments=longest)
    world.bind("x", "q", arguments={"x-match": "any", **longest})
    other = round_trip(world)
    assert other.state.scopes["/"].queues["q"].arguments.items() >= longest.items()
    for number in (1 << 64, -(1 << 63) - 1):
        given = {**exported(world).document["queues"][0], "arguments": {"x-more": number}}
        with pytest.raises(FileRefused, match=f"the number {number} does not fit into 64 bits"):
            load(World(), {"queues": [given]})


def test_infinite_numbers_became_null_without_a_word() -> None:
    world = World()
    world.declare("q", arguments={"x-in": [float("inf")], "x-nan": float("nan"), "x-number": 2.5})
    found = exported(world)
    shown = {"x-in": [None], "x-nan": None, "x-number": 2.5, "x-queue-type": "classic"}
    assert found.document["queues"][0]["arguments"] == shown
    assert [note.split("; ")[-1] for note in found.notes] == ["written as null"] * 2
    assert all(note.startswith("queue 'q'") for note in found.notes)


def test_what_an_export_cannot_hold_is_noted() -> None:
    world = World()
    world.declare("own", exclusive=True)
    world.declare("amq.gen-1", server_named=True)
    world.declare("raw", arguments={"x-raw": b"\xff\x00"})
    world.declare("lazy", arguments={"x-queue-mode": "lazy", "x-delivery-limit": 3})
    world.bind("amq.direct", "own", connection=1)
    found = exported(world)
    assert [queue["name"] for queue in found.document["queues"]] == ["lazy", "raw"]
    assert found.document["bindings"] == []
    assert len(found.notes) == 4
    assert any("x-queue-mode" in note for note in found.notes)
    assert any("b'\\xff\\x00' is not text" in note for note in found.notes)
