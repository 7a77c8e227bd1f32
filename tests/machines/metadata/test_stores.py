"""Exchanges that keep messages: their stores come and go with them."""

from __future__ import annotations

from typing import Any

import pytest

from machines.metadata.world import World, start, with_nodes
from machines.routing.router import router
from warren_machines.metadata import commands
from warren_machines.metadata.changes import QueueChanged
from warren_machines.metadata.commands import BindingIs
from warren_machines.metadata.records import Policy
from warren_machines.metadata.view import MetadataView
from warren_wire.errors import AccessRefused, PreconditionFailed, Unavailable

STORE = "amq.history.h"


def keeping(world: World, name: str = "h", **more: Any) -> None:
    """Declare an exchange that keeps messages, on nodes a and b unless said otherwise."""
    world.exchange(
        name, "x-recent-history", **{"store_nodes": ("a", "b"), "store_leader": "a", **more}
    )


@pytest.fixture
def world() -> World:
    made = World()
    keeping(made)
    return made


def test_the_store_is_a_replicated_queue_of_that_length(world: World) -> None:
    store = world.state.queue("/", STORE)
    assert store is not None and store.store_of == "h" and store.nodes == ("a", "b")
    assert store.replicated and store.config.max_length == 20
    assert [type(change) for change in world.changes[:1]] == [QueueChanged]
    keeping(world)
    assert [queue.group for queue in world.state.queues()] == [store.group]
    keeping(world, "short", arguments={"x-recent-history-length": 3})
    short = world.state.queue("/", "amq.history.short")
    assert short is not None and short.config.max_length == 3
    again = world.machine.restore(world.machine.snapshot(world.state))
    assert again.groups == world.state.groups


@pytest.mark.parametrize("length", [0, -1, "20", True, 2.5, b"x"])
def test_a_length_that_is_no_positive_integer(world: World, length: Any) -> None:
    with pytest.raises(PreconditionFailed, match="'x-recent-history-length' must be a positive"):
        keeping(world, "other", arguments={"x-recent-history-length": length})
    assert world.state.exchange("/", "other") is None and len(world.state.groups) == 1


def test_a_name_too_long_for_a_store_and_a_declaration_without_nodes() -> None:
    world = World()
    with pytest.raises(PreconditionFailed, match="has at most 243 bytes"):
        keeping(world, "x" * 244)
    with pytest.raises(Unavailable, match="no node was given"):
        keeping(world, store_nodes=(), store_leader="")
    assert not world.state.groups and world.state.exchange("/", "h") is None
    keeping(world, "x" * 243)


def test_it_goes_with_its_exchange(world: World) -> None:
    world.do(commands.DeleteExchange("/", "h"))
    assert any(isinstance(change, QueueChanged) for change in world.changes)
    assert not world.state.groups
    keeping(world, auto_delete=True)
    world.declare("q")
    world.bind("h", "q")
    world.unbind("h", "q")
    assert world.state.exchange("/", "h") is None and world.state.queue("/", STORE) is None
    keeping(world, auto_delete=True)
    world.bind("h", "q")
    world.do(commands.DeleteQueue("/", "q"))
    assert world.state.exchange("/", "h") is None and not world.state.groups
    keeping(world)
    world.do(commands.DeleteVhost("/"))
    assert not world.state.groups


def test_clients_cannot_use_it(world: World) -> None:
    world.exchange("x", "fanout")
    refused = "queue 'amq.history.h' in vhost '/' is internal: exchange 'h' keeps messages in it"
    with pytest.raises(AccessRefused, match=refused):
        world.do(commands.DeleteQueue("/", STORE))
    with pytest.raises(AccessRefused, match=refused):
        world.bind("x", STORE)
    with pytest.raises(AccessRefused, match="reserved"):
        world.declare(STORE)
    assert router(world).route("/", "", STORE) == ()
    assert MetadataView(world.state).bindings("/") == []
    assert world.state.queue("/", STORE) is not None


def test_no_policy_applies_to_it(world: World) -> None:
    store = world.state.queue("/", STORE)
    assert store is not None
    world.do(commands.SetPolicy(Policy("/", "p", ".*", {"max-length": 1, "expires": 5})))
    assert world.state.scopes["/"].policies.config_of(store) == store.config


def test_a_store_lost_with_its_only_node_is_made_again_by_a_declaration() -> None:
    world = with_nodes("ab")
    keeping(world, store_nodes=("b",), store_leader="b")
    world.do(commands.ForgetNode("b"))
    assert not world.state.groups
    assert router(world).route("/", "h", "k", {}) == ()
    keeping(world, store_nodes=("a",), store_leader="a")
    store = world.state.queue("/", STORE)
    assert store is not None and store.nodes == ("a",)


def test_a_store_on_a_node_with_a_new_disk_is_made_again_empty() -> None:
    world = with_nodes("ab")
    keeping(world, store_nodes=("b",), store_leader="b")
    before = world.state.queue("/", STORE)
    start(world, "b", 82, 202)
    now = world.state.queue("/", STORE)
    assert before is not None and now is not None
    assert now.group > before.group and now.store_of == "h"


def test_what_it_keeps_and_where_it_routes(world: World) -> None:
    for name in ("q", "r"):
        world.declare(name)
        world.bind("h", name, "any")
    routing = router(world)
    assert routing.route("/", "h", "other", {}) == (STORE, "q", "r")
    assert routing.route("/", "h", "k", {"x-recent-history-no-store": True}) == ("q", "r")
    assert routing.route("/", "h", "k", {"x-recent-history-no-store": "yes"}) == (STORE, "q", "r")
    world.exchange("x", "fanout")
    world.exchange("behind", "fanout")
    world.bind("x", "h", to_queue=False)
    world.bind("h", "behind", to_queue=False)
    world.declare("s")
    world.bind("behind", "s")
    assert routing.route("/", "x", "k", {}) == (STORE, "q", "r", "s")


def test_the_alternate_exchange_gets_what_is_only_kept() -> None:
    world = World()
    world.exchange("alternate", "fanout")
    world.declare("lost")
    world.bind("alternate", "lost")
    keeping(world, arguments={"alternate-exchange": "alternate"})
    assert router(world).route("/", "h", "k", {}) == (STORE, "lost")


def test_a_binding_is_reported_once_as_new(world: World) -> None:
    world.declare("q")
    bind = commands.Bind("/", "h", "q", True)
    assert [world.do(bind), world.do(bind)] == [BindingIs(True), BindingIs(False)]


# ------------------------------------------------------------------ delayed messages


def delaying(world: World, kind: Any = "topic", name: str = "d", **more: Any) -> None:
    """Declare an exchange that delays messages."""
    arguments = {"x-delayed-type": kind, **more}
    place = {"store_nodes": ("a", "b"), "store_leader": "a"}
    world.exchange(name, "x-delayed-message", arguments=arguments, **place)


@pytest.mark.parametrize(
    "kind, text",
    [
        (None, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        (5, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ("x-delayed-message", "Invalid argument, 'x-delayed-type' must be an existing"),
        ("x-recent-history", "Invalid argument, 'x-delayed-type' must be an existing"),
        ("nonsense", "unknown exchange type 'nonsense'"),
    ],
)
def test_a_delayed_type_that_is_none(kind: Any, text: str) -> None:
    world = World()
    with pytest.raises(PreconditionFailed) as refused:
        delaying(world, kind)
    assert refused.value.detail.startswith(text)
    assert world.state.exchange("/", "d") is None and not world.state.groups


def test_arguments_and_bindings_are_checked_as_those_of_its_type() -> None:
    world = World()
    world.declare("q")
    with pytest.raises(PreconditionFailed, match="Unsupported property: app_id"):
        delaying(world, "x-consistent-hash", **{"hash-property": "app_id"})
    delaying(world, "x-consistent-hash")
    with pytest.raises(PreconditionFailed, match="The binding key must be an integer"):
        world.bind("d", "q", "heavy")
    delaying(world, "headers", "h")
    with pytest.raises(PreconditionFailed, match="x-match"):
        world.bind("h", "q", arguments={"x-match": "some"})


def test_the_store_of_delayed_messages() -> None:
    world = World()
    delaying(world)
    store = world.state.queue("/", "amq.delayed.d")
    assert store is not None and store.store_of == "d"
    config = store.config
    assert config.single_active_consumer and config.delivery_limit == -1
    assert config.max_length is None and config.delayed_retry_type == "failed"


@pytest.mark.parametrize(
    "delay, kept",
    [
        (1, True),
        ((1 << 32) - 1, True),
        ("250", True),
        (1.5, True),
        (0, False),
        (-1, False),
        (1 << 32, False),
        (0.5, False),
        (float("inf"), False),
        ("soon", False),
        ("9" * 5000, False),
        (True, False),
        (None, False),
    ],
)
def test_which_messages_are_delayed(delay: Any, kept: bool) -> None:
    world = World()
    world.exchange("alternate", "fanout")
    delaying(world, **{"alternate-exchange": "alternate"})
    world.declare("q")
    world.declare("lost")
    world.bind("d", "q", "a.*")
    world.bind("alternate", "lost")
    routing = router(world)
    headers = {"x-delay": delay}
    assert routing.route("/", "d", "a.b", headers) == (("amq.delayed.d",) if kept else ("q",))
    elsewhere = ("amq.delayed.d",) if kept else ("lost",)
    assert routing.route("/", "d", "none", headers) == elsewhere


@pytest.mark.parametrize(
    "kind, key, found",
    [("direct", "k", 1), ("direct", "l", 0), ("fanout", "l", 1), ("x-consistent-hash", "l", 1)],
)
def test_every_type_routes_what_is_due(kind: str, key: str, found: int) -> None:
    world = World()
    delaying(world, kind)
    world.declare("q")
    world.bind("d", "q", "1" if kind == "x-consistent-hash" else "k")
    assert router(world).route("/", "d", key, {"x-delay": -5}) == ("q",) * found
