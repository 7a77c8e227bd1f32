"""Exchanges with their bindings, as RabbitMQ's documentation has them."""

from __future__ import annotations

from typing import Any

import pytest

from machines.metadata.world import World
from warren_machines.metadata import commands
from warren_machines.metadata.view import MetadataView
from warren_wire.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked


@pytest.fixture
def world() -> World:
    return World()


def names(world: World) -> set[str]:
    return set(world.state.scopes["/"].exchanges)


def test_every_vhost_has_the_standard_exchanges(world: World) -> None:
    assert {"", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"} <= names(world)


def test_declaring_twice_is_fine_when_equal(world: World) -> None:
    world.exchange("x", "topic")
    version = world.state.scopes["/"].version
    world.exchange("x", "topic")
    assert world.changes == [] and world.state.scopes["/"].version == version
    world.exchange("amq.direct")


@pytest.mark.parametrize(
    "kind, more, text",
    [
        (
            "fanout",
            {},
            "inequivalent arg 'type' for exchange 'x' in vhost '/': "
            "received 'fanout' but current is 'topic'",
        ),
        (
            "topic",
            {"durable": False},
            "inequivalent arg 'durable' for exchange 'x' in vhost '/': "
            "received 'false' but current is 'true'",
        ),
        ("topic", {"auto_delete": True}, "inequivalent arg 'auto_delete'"),
        ("topic", {"internal": True}, "inequivalent arg 'internal'"),
        (
            "topic",
            {"arguments": {"alternate-exchange": "y"}},
            "inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/': "
            "received the value 'y' of type 'longstr' but current is none",
        ),
    ],
)
def test_declaring_twice_must_be_equivalent(
    world: World, kind: str, more: dict[str, Any], text: str
) -> None:
    world.exchange("x", "topic")
    with pytest.raises(PreconditionFailed) as caught:
        world.exchange("x", kind, **more)
    assert caught.value.detail.startswith(text)


def test_bad_declarations(world: World) -> None:
    with pytest.raises(AccessRefused, match=r"reserved prefix 'amq\.\*'"):
        world.exchange("amq.mine")
    with pytest.raises(AccessRefused, match="default exchange"):
        world.exchange("")
    with pytest.raises(PreconditionFailed, match="unknown exchange type 'x-odd'"):
        world.exchange("x", "x-odd")
    with pytest.raises(PreconditionFailed, match="alternate-exchange"):
        world.exchange("x", arguments={"alternate-exchange": 5})
    with pytest.raises(NotFound, match="no vhost 'other'"):
        world.do(commands.DeclareExchange("other", "x", "direct"))
    with pytest.raises(PreconditionFailed, match="256 bytes"):
        world.exchange("x" * 256)


def test_deleting(world: World) -> None:
    world.exchange("x")
    world.declare("q")
    world.bind("x", "q", "k")
    with pytest.raises(PreconditionFailed, match="exchange 'x' in vhost '/' in use"):
        world.do(commands.DeleteExchange("/", "x", if_unused=True))
    world.do(commands.DeleteExchange("/", "x"))
    assert "x" not in names(world) and not world.state.scopes["/"].bindings
    world.do(commands.DeleteExchange("/", "x"))
    with pytest.raises(AccessRefused, match="deletion of system exchange 'amq.topic'"):
        world.do(commands.DeleteExchange("/", "amq.topic"))
    with pytest.raises(AccessRefused, match="default exchange"):
        world.do(commands.DeleteExchange("/", ""))


def test_binding_needs_both_ends(world: World) -> None:
    world.declare("q")
    with pytest.raises(NotFound, match="no exchange 'x' in vhost '/'"):
        world.bind("x", "q")
    with pytest.raises(NotFound, match="no queue 'r' in vhost '/'"):
        world.bind("amq.direct", "r")
    with pytest.raises(NotFound, match="no exchange 'y' in vhost '/'"):
        world.bind("amq.direct", "y", to_queue=False)
    for source, destination, to_queue in (("", "q", True), ("amq.direct", "", False)):
        with pytest.raises(AccessRefused, match="default exchange"):
            world.bind(source, destination, to_queue=to_queue)
        with pytest.raises(AccessRefused, match="default exchange"):
            world.unbind(source, destination, to_queue=to_queue)


def test_a_binding_is_its_key_and_arguments(world: World) -> None:
    world.declare("q")
    world.bind("amq.direct", "q", "k", arguments={"a": 1, "b": 2})
    world.bind("amq.direct", "q", "k", arguments={"b": 2, "a": 1})
    assert world.changes == []
    world.bind("amq.direct", "q", "k", arguments={"a": True, "b": 2})
    world.bind("amq.direct", "q", "l", arguments={"a": 1, "b": 2})
    assert len(world.state.scopes["/"].bindings["amq.direct"]) == 3
    world.unbind("amq.direct", "q", "k", arguments={"b": 2, "a": 1})
    world.unbind("amq.direct", "q", "k", arguments={"b": 2, "a": 1})
    assert len(world.state.scopes["/"].bindings["amq.direct"]) == 2


def test_headers_bindings_are_checked(world: World) -> None:
    world.declare("q")
    world.bind("amq.headers", "q", arguments={"x-match": "any-with-x", "a": 1})
    with pytest.raises(PreconditionFailed, match="Invalid x-match field value"):
        world.bind("amq.headers", "q", arguments={"x-match": "most"})
    with pytest.raises(PreconditionFailed, match="Invalid x-match field type"):
        world.bind("amq.headers", "q", arguments={"x-match": 1})
    world.bind("amq.direct", "q", arguments={"x-match": "most"})


def test_an_auto_delete_exchange_goes_with_its_last_binding(world: World) -> None:
    world.exchange("x", auto_delete=True)
    world.declare("q")
    assert "x" in names(world)
    world.bind("x", "q", "1")
    world.bind("x", "q", "2")
    world.unbind("x", "q", "1")
    assert "x" in names(world)
    world.unbind("x", "q", "2")
    assert "x" not in names(world)


def test_auto_delete_goes_through_exchanges(world: World) -> None:
    world.exchange("first", auto_delete=True)
    world.exchange("second", auto_delete=True)
    world.declare("q")
    world.bind("first", "second", to_queue=False)
    world.bind("second", "q")
    world.do(commands.DeleteQueue("/", "q"))
    assert not {"first", "second"} & names(world)


def test_a_cycle_of_exchanges_can_be_deleted(world: World) -> None:
    world.exchange("x", auto_delete=True)
    world.exchange("y", auto_delete=True)
    world.bind("x", "y", to_queue=False)
    world.bind("y", "x", to_queue=False)
    world.do(commands.DeleteExchange("/", "x"))
    assert not {"x", "y"} & names(world)


def test_somebody_elses_exclusive_queue_cannot_be_bound(world: World) -> None:
    world.declare("mine", exclusive=True, connection=1)
    world.bind("amq.direct", "mine", "k", connection=1)
    with pytest.raises(ResourceLocked):
        world.bind("amq.direct", "mine", "l", connection=2)
    with pytest.raises(ResourceLocked):
        world.unbind("amq.direct", "mine", "k", connection=2)
    world.unbind("amq.direct", "mine", "k", connection=0)


def test_listing_bindings_shows_the_implicit_ones(world: World) -> None:
    world.declare("q")
    world.bind("amq.direct", "q", "k")
    view = MetadataView(world.state)
    assert [(b.source, b.destination, b.routing_key) for b in view.bindings("/")] == [
        ("", "q", "q"),
        ("amq.direct", "q", "k"),
    ]
    assert len(view.bindings("/", source="amq.direct", destination="q", routing_key="k")) == 1
    assert not view.bindings("/", to_queue=False) and not view.bindings("nowhere")
