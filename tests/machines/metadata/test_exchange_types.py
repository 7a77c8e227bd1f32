"""What the exchange types that choose one destination allow, with RabbitMQ's texts."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from machines.metadata.world import World
from warren_machines.metadata import commands
from warren_machines.metadata.exchange_types import CHOOSING_KINDS, KINDS, weight
from warren_machines.routing.topology import MATCHERS
from warren_wire.errors import PreconditionFailed


@pytest.fixture
def world() -> World:
    made = World()
    made.declare("q")
    made.declare("classic", arguments={"x-queue-type": "classic"})
    made.declare("quorum", arguments={"x-queue-type": "quorum"})
    made.declare("own", exclusive=True)
    return made


def test_every_type_is_routed() -> None:
    assert set(MATCHERS) == set(KINDS)
    assert not set(KINDS) & set(CHOOSING_KINDS)


@pytest.mark.parametrize("kind", CHOOSING_KINDS)
def test_they_can_be_declared_and_declared_again(world: World, kind: str) -> None:
    world.exchange("x", kind)
    world.exchange("x", kind)
    assert world.state.scopes["/"].exchanges["x"].kind == kind
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'type'"):
        world.exchange("x", "direct")
    again = world.machine.restore(world.machine.snapshot(world.state))
    assert again.scopes["/"].exchanges == world.state.scopes["/"].exchanges


@pytest.mark.parametrize(
    "arguments, text",
    [
        (
            {"hash-header": "h", "hash-property": "message_id"},
            "hash-header and hash-property are mutually exclusive",
        ),
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        ({"hash-property": 5}, "invalid type for arg 'hash-property': 5"),
        ({"hash-header": ["h"]}, "invalid type for arg 'hash-header': ['h']"),
        ({"hash-header": b"\xff"}, "invalid type for arg 'hash-header'"),
    ],
)
def test_bad_arguments_of_a_consistent_hash(
    world: World, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        world.exchange("x", "x-consistent-hash", arguments=arguments)
    assert refused.value.detail.startswith(text)
    assert "x" not in world.state.scopes["/"].exchanges
    world.exchange("x", "x-modulus-hash", arguments=arguments)  # they mean nothing there


@pytest.mark.parametrize("name", ["correlation_id", "message_id", "timestamp"])
def test_good_arguments_of_a_consistent_hash(world: World, name: str) -> None:
    world.exchange("x", "x-consistent-hash", arguments={"hash-property": name})
    world.exchange("y", "x-consistent-hash", arguments={"hash-header": name})
    # As in RabbitMQ, only alternate-exchange is compared.
    world.exchange("y", "x-consistent-hash")


@pytest.mark.parametrize("key, hashes", [("#.#.#", 3), (".".join(["#", "a"] * 20), 20)])
def test_a_topic_binding_key_has_at_most_two_hashes(world: World, key: str, hashes: int) -> None:
    world.exchange(
        "due",
        "x-delayed-message",
        arguments={"x-delayed-type": "topic"},
        store_nodes=("a",),
        store_leader="a",
    )
    said = f"Topic binding key '{key}' uses {hashes} '#' wildcards, at most 2 are allowed"
    for source, more in product(
        ("amq.topic", "due"),
        ({"destination": "q"}, {"destination": "amq.fanout", "to_queue": False}),
    ):
        with pytest.raises(PreconditionFailed) as refused:
            world.bind(source, routing_key=key, **more)
        assert refused.value.detail == said
    imported = commands.ImportDefinitions((commands.Bind("/", "amq.topic", "q", True, key),))
    with pytest.raises(PreconditionFailed, match="at most 2"):
        world.do(imported)
    assert not world.state.scopes["/"].bindings
    for good in ("#.a.#", "#.#", "#a.##.a#.*#", ""):
        world.bind("amq.topic", "q", good)
    world.bind("amq.direct", "q", key)


@pytest.mark.parametrize(
    "key, text",
    [
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
        ("10001", "The binding key must not exceed 10000"),
        ("9" * 255, "The binding key must not exceed 10000"),
        ("one", 'The binding key must be an integer: <<"one">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        ("1_0", "The binding key must be an integer"),
        (" 1", "The binding key must be an integer"),
        ("1\n", "The binding key must be an integer"),
        ("\u0661", "The binding key must be an integer"),
    ],
)
def test_bad_weights(world: World, key: str, text: str) -> None:
    world.exchange("x", "x-consistent-hash")
    with pytest.raises(PreconditionFailed) as refused:
        world.bind("x", "q", key)
    assert refused.value.detail.startswith(text)
    with pytest.raises(PreconditionFailed):
        world.bind("x", "amq.fanout", key, to_queue=False)
    assert not world.state.scopes["/"].bindings
    world.exchange("y", "x-modulus-hash")
    world.bind("y", "q", key)


def test_good_weights(world: World) -> None:
    assert [weight(key) for key in ("1", "10000", "007", "+5")] == [1, 10_000, 7, 5]
    world.exchange("x", "x-consistent-hash")
    world.bind("x", "q", "10000")
    world.bind("x", "amq.fanout", "1", to_queue=False)
    assert len(world.state.scopes["/"].bindings["x"]) == 2


def test_what_can_be_bound_to_a_local_random_exchange(world: World) -> None:
    world.exchange("x", "x-local-random")
    refused = (
        ("quorum", "", True, "Queue type rabbit_quorum_queue not valid for this exchange type"),
        ("classic", "k", True, "Non empty binding 'k' key not permitted"),
        ("amq.fanout", "", False, "Destination not found"),
    )
    for destination, key, to_queue, text in refused:
        with pytest.raises(PreconditionFailed) as caught:
            world.bind("x", destination, key, to_queue=to_queue)
        assert caught.value.detail == text
    assert not world.state.scopes["/"].bindings
    world.bind("x", "classic")
    world.bind("x", "q")
    world.bind("x", "own", connection=1)
    # The type of the source alone decides: such an exchange can be a destination.
    world.bind("amq.direct", "x", "k", to_queue=False)


def test_random_exchanges_take_any_binding(world: World) -> None:
    for kind in ("x-random", "x-modulus-hash"):
        world.exchange(kind, kind)
        world.bind(kind, "q", "any key")
        world.bind(kind, "amq.fanout", to_queue=False)
    world.do(commands.DeleteQueue("/", "q"))
    assert all(binding.destination != "q" for binding in bindings(world))


def bindings(world: World) -> list[Any]:
    every = world.state.scopes["/"].bindings.values()
    return [binding for some in every for binding in some.values()]
