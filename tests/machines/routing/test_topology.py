"""From exchange and routing key to queues."""

from __future__ import annotations

import random

import pytest

from machines.metadata.world import World
from machines.routing.router import router
from warren_machines.metadata import commands
from warren_machines.metadata.exchange_types import CONSISTENT_HASH, MODULUS_HASH
from warren_machines.routing import topology
from warren_machines.routing.headers import comparable
from warren_machines.routing.surroundings import AbsentNodes
from warren_machines.routing.topology import Topology
from warren_wire.amqp091.fields import Timestamp
from warren_wire.errors import NotFound, PreconditionFailed
from warren_wire.sender_selected import further_keys


@pytest.fixture
def world() -> World:
    world = World()
    for name in ("p", "q", "r"):
        world.declare(name)
    return world


@pytest.fixture
def routes(world: World) -> Topology:
    return router(world)


def test_the_default_exchange_knows_queues_by_name(world: World, routes: Topology) -> None:
    assert routes.route("/", "", "q") == ("q",)
    assert routes.route("/", "", "none") == ()
    world.do(commands.DeleteQueue("/", "q"))
    assert routes.route("/", "", "q") == ()


def test_unknown_exchange_or_vhost(routes: Topology) -> None:
    for vhost, exchange in (("/", "none"), ("none", "amq.direct")):
        with pytest.raises(NotFound, match=f"no exchange '{exchange}' in vhost '{vhost}'"):
            routes.route(vhost, exchange, "k")


def test_direct(world: World, routes: Topology) -> None:
    world.bind("amq.direct", "q", "k")
    world.bind("amq.direct", "q", "k", arguments={"another": 1})
    world.bind("amq.direct", "p", "k")
    world.bind("amq.direct", "r", "other")
    assert routes.route("/", "amq.direct", "k") == ("p", "q")
    world.unbind("amq.direct", "q", "k")
    assert routes.route("/", "amq.direct", "k") == ("p", "q")
    world.unbind("amq.direct", "q", "k", arguments={"another": 1})
    assert routes.route("/", "amq.direct", "k") == ("p",)
    assert routes.route("/", "amq.direct", "nothing") == ()


def test_fanout(world: World, routes: Topology) -> None:
    world.bind("amq.fanout", "r", "x")
    world.bind("amq.fanout", "q", "y")
    assert routes.route("/", "amq.fanout", "whatever") == ("q", "r")


@pytest.mark.parametrize(
    "arguments, headers, hit",
    [
        ({"x-match": "all", "a": 1, "b": "t"}, {"a": 1, "b": "t", "c": 3}, True),
        ({"a": 1, "b": "t"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": "t"}, {"b": "t"}, True),
        ({"x-match": "any", "a": 1, "b": "t"}, {"b": "u"}, False),
        ({"x-match": "any"}, {"b": "u"}, False),
        ({"x-match": "all"}, {}, True),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": None}, {}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"x-kind": 1, "a": 1}, {"a": 1}, True),
        ({"x-match": "all-with-x", "x-kind": 1, "a": 1}, {"a": 1}, False),
        ({"x-match": "all-with-x", "x-kind": 1, "a": 1}, {"a": 1, "x-kind": 1}, True),
        ({"x-match": "any", "x-kind": 1}, {"x-kind": 1}, False),
        ({"x-match": "any-with-x", "x-kind": 1}, {"x-kind": 1}, True),
        ({"a": [1, {"b": "c"}]}, {"a": [1, {"b": b"c"}]}, True),
    ],
)
def test_headers(world: World, routes: Topology, arguments: dict, headers: dict, hit: bool) -> None:
    world.bind("amq.headers", "q", arguments=arguments)
    assert routes.dependence("/", "amq.headers")
    assert routes.route("/", "amq.headers", "", headers) == (("q",) if hit else ())


def test_same_value() -> None:
    assert comparable(Timestamp(5)) == comparable(5) and comparable("é") == comparable("é".encode())
    different = [1, 1.0, True, "1", None, [1], [1, 2], [[1]], {"1": 1}, ["list", 1], [], {}, "", 0]
    assert all(
        (comparable(one) == comparable(other)) is (at == to)
        for at, one in enumerate(different)
        for to, other in enumerate(different)
    )


def test_exchange_to_exchange_with_a_cycle(world: World, routes: Topology) -> None:
    world.exchange("x", "topic")
    world.exchange("y", "fanout")
    world.bind("x", "y", "a.#", to_queue=False)
    world.bind("y", "x", to_queue=False)
    world.bind("y", "q")
    world.bind("x", "r", "#.z")
    assert routes.route("/", "x", "a.b") == ("q",)
    assert routes.route("/", "x", "a.z") == ("q", "r")
    assert routes.route("/", "x", "z") == ("r",)
    assert routes.route("/", "y", "z") == ("q", "r")


def test_the_alternate_exchange_gets_what_finds_nothing(world: World, routes: Topology) -> None:
    world.exchange("x", arguments={"alternate-exchange": "spare"})
    world.bind("x", "q", "k")
    assert routes.route("/", "x", "other") == ()  # not there: dropped
    world.exchange("spare", "fanout", arguments={"alternate-exchange": "x"})
    assert routes.route("/", "x", "other") == ()  # and round again, once
    world.bind("spare", "r")
    assert routes.route("/", "x", "other") == ("r",)
    assert routes.route("/", "x", "k") == ("q",)


def test_an_alternate_default_exchange(world: World, routes: Topology) -> None:
    world.exchange("x", arguments={"alternate-exchange": ""})
    assert routes.route("/", "x", "q") == ("q",)


def test_headers_are_needed_when_a_headers_exchange_can_be_reached(
    world: World, routes: Topology
) -> None:
    assert not routes.dependence("/", "amq.direct")
    world.exchange("x", arguments={"alternate-exchange": "h"})
    assert not routes.dependence("/", "x")
    world.exchange("h", "headers")
    assert routes.dependence("/", "x")
    world.bind("amq.direct", "x", "k", to_queue=False)
    assert routes.dependence("/", "amq.direct") and not routes.dependence("/", "amq.fanout")
    world.bind("h", "q", arguments={"a": 1})
    assert routes.route("/", "amq.direct", "k", {"a": 1}) == ("q",)
    assert routes.route("/", "amq.direct", "k", {"a": 2}) == ()


def test_further_keys(world: World, routes: Topology) -> None:
    headers = {"CC": ["q", 5, "none"], "BCC": ["r"]}
    assert further_keys(headers) == ("q", "none", "r")
    assert routes.route("/", "", "p", None, further_keys(headers)) == ("p", "q", "r")
    assert further_keys({}) == ()
    with pytest.raises(PreconditionFailed, match="CC"):
        further_keys({"CC": "q"})


def test_every_exchange_on_the_way_sees_all_keys(world: World, routes: Topology) -> None:
    """One key leads to the second exchange, another one from there to the queue."""
    world.do(commands.Bind("/", "amq.direct", "amq.topic", False, "first"))
    world.do(commands.Bind("/", "amq.topic", "q", True, "second"))
    assert routes.route("/", "amq.direct", "", None, ("first", "second")) == ("q",)
    assert routes.route("/", "amq.direct", "first", None, ()) == ()


def test_a_vhost_that_was_made_again_is_another(world: World, routes: Topology) -> None:
    world.bind("amq.fanout", "q")
    assert routes.route("/", "amq.fanout", "") == ("q",)
    vhost = world.state.scopes["/"].vhost
    world.do(commands.DeleteVhost("/"))
    world.do(commands.AddVhost(vhost))
    assert routes.route("/", "amq.fanout", "") == ()


def test_an_exchange_that_was_made_again_as_another_kind(world: World, routes: Topology) -> None:
    world.exchange("x", "direct")
    world.bind("x", "q", "#")
    assert routes.route("/", "x", "k") == ()
    world.do(commands.DeleteExchange("/", "x"))
    world.exchange("x", "topic")
    world.bind("x", "q", "#")
    assert routes.route("/", "x", "k") == ("q",)


def test_the_cache_is_bounded(
    world: World, routes: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "CACHED_BYTES_MAX", 50_000)
    world.bind("amq.topic", "q", "#")
    for number in range(2_000):
        assert routes.route("/", "amq.topic", f"key.{number}") == ("q",)
    there = routes.vhosts["/"]
    assert 0 < len(there.cache) < 300 and there.cached_bytes <= 50_000


@pytest.mark.parametrize("seed", range(5))
def test_following_changes_gives_what_starting_afresh_gives(seed: int) -> None:
    draw = random.Random(seed)
    world = World()
    routes = router(world)
    queues = [f"q{number}" for number in range(6)]
    for name in queues:
        world.declare(name)
    kinds = ("direct", "topic", "fanout", "headers", CONSISTENT_HASH, MODULUS_HASH)
    for step in range(150):
        name = draw.choice("xyz")
        try:
            if draw.random() < 0.1:
                world.exchange(name, draw.choice(kinds))
            elif draw.random() < 0.06:
                world.do(commands.DeleteExchange("/", name))
            else:
                to_queue = draw.random() < 0.8
                act = world.bind if draw.random() < 0.65 else world.unbind
                act(
                    name,
                    draw.choice(queues if to_queue else list("xyz")),
                    draw.choice(("a", "a.b", "#", "*.b", "1", "3")),
                    to_queue=to_queue,
                )
        except (NotFound, PreconditionFailed):
            continue
        fresh = router(world)
        for exchange in sorted(world.state.scopes["/"].exchanges):
            for key in ("a", "a.b", "c"):
                assert routes.route("/", exchange, key, {}) == fresh.route(
                    "/", exchange, key, {}
                ), (step, exchange, key)


def test_what_lives_with_a_node_that_is_not_heard_of_gets_nothing(world: World) -> None:
    """Not even from what was routed there a moment ago; its alternate exchange gets it instead."""
    world.declare("own", exclusive=True, nodes=("b",))
    world.declare("transient", durable=False, nodes=("b",))
    world.declare("deleting", durable=False, auto_delete=True, nodes=("b",))
    world.declare("lasting", arguments={"x-queue-type": "classic"}, nodes=("b",))
    classic = {"x-queue-type": "classic"}
    world.declare("ending", auto_delete=True, arguments=classic, nodes=("b",))
    world.declare("results", auto_delete=True, nodes=("b",))
    world.declare("near", exclusive=True, nodes=("a",))
    world.declare("quorum", nodes=("b",))
    world.exchange("x", "direct", arguments={"alternate-exchange": "amq.fanout"})
    world.bind("amq.fanout", "p")
    passing = ("own", "transient", "deleting")
    for name in (*passing, "ending", "lasting", "near", "quorum", "results"):
        world.bind("x", name, name, connection=1)
        world.bind("x", name, "all", connection=1)
    absent = AbsentNodes()
    routes = router(world, absent)
    others = ("ending", "lasting", "near", "quorum", "results")
    for _ in range(2):
        assert routes.route("/", "x", "all") == tuple(sorted((*passing, *others)))
        for name in passing:
            assert routes.route("/", "x", name) == routes.route("/", "", name) == (name,)
        absent.add("b")
        assert routes.route("/", "x", "all") == others
        for name in passing:
            assert routes.route("/", "x", name) == ("p",)
            assert routes.route("/", "", name) == ()
            assert routes.route("/", "", "none", None, (name, "near")) == ("near",)
        for name in ("ending", "lasting"):
            assert routes.route("/", "", name) == (name,)
        absent.remove("b")
