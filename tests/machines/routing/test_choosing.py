"""The exchange types that choose one destination: shares, what moves, the same on every node."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from machines.metadata.world import World
from machines.routing.router import router
from warren_machines.metadata import commands
from warren_machines.routing.hashing import (
    WeightedChoice,
    cost,
    hash_of,
    hash_of_all,
    mixed,
    seed_of,
)
from warren_machines.routing.matcher import ON_CHANCE, ON_CONTENT
from warren_machines.routing.surroundings import AbsentNodes
from warren_machines.routing.topology import Topology
from warren_machines.steps import STEPS_UNBOUNDED, Steps, whole
from warren_wire.amqp091.properties import Properties

KEYS = [f"key.{number}" for number in range(8_000)]
HASHES = ("x-consistent-hash", "x-modulus-hash")


def world_of(kind: str, weights: dict[str, int], **more: object) -> World:
    """A world with queues bound to exchange x of that type."""
    world = World()
    world.exchange("x", kind, **more)
    for name, weight in weights.items():
        world.declare(name)
        world.bind("x", name, str(weight))
    return world


def chosen(routes: Topology, keys: list[str] = KEYS) -> dict[str, str]:
    """The queue of each routing key: exactly one."""
    found = {}
    for key in keys:
        (found[key],) = routes.route("/", "x", key)
    return found


# ------------------------------------------------------------------ hashing


def test_hashes_are_frozen() -> None:
    """Nodes of different versions must agree; a change here is a change of the protocol."""
    assert hash_of("key") == hash_of(b"key") == 0x4757B7F63F5BAEB4
    assert hash_of(None) == 0xB4981E97A533BA5D
    assert hash_of({"b": [1, True, 1.5], "a": None}) == hash_of({"a": None, "b": [1, True, 1.5]})
    assert mixed(1) == 0xB456BCFC34C2CB2C and cost(3) == 0x3E6A3FE5C606
    destinations = tuple((True, name) for name in "pqr")
    choice = WeightedChoice(destinations, (1, 2, 3), tuple(map(seed_of, destinations)))
    steps = Steps(STEPS_UNBOUNDED)
    owners = "".join(whole(choice.of(hash_of(f"{number}"), steps))[1] for number in range(40))
    assert owners == "qrrprrqqrrqppqqqprrrpqrrprprrrqrqrprrrqr"


def test_unequal_values_have_unequal_hashes() -> None:
    values = [1, True, 1.0, "1", "i1;", [1], ["1"], [[1]], {"1": 1}, None, False, 0, "", [], {}]
    values += [["a", "b"], ["ab"], "s1:1", -1, 1 << 70]
    assert len({hash_of(value) for value in values}) == len(values)
    assert hash_of_all(["k"]) == hash_of("k") != hash_of_all(["k", "l"]) != hash_of_all(["l", "k"])
    assert hash_of("\udcff") != hash_of("?")


def test_the_cost_is_the_logarithm() -> None:
    chance = Random(1)
    drawn = [1, 2, 3, (1 << 64) - 1, 1 << 63, *(chance.getrandbits(64) or 1 for _ in range(2000))]
    for one in drawn:
        assert abs(cost(one) / 2**40 - (64 - math.log2(one))) < 3e-6, one
    ordered = sorted(drawn)
    costs = [cost(one) for one in ordered]
    assert costs == sorted(costs, reverse=True) and costs[-1] >= 1


# ------------------------------------------------------------------ shares


@pytest.mark.parametrize("kind", HASHES)
@pytest.mark.parametrize("count", [2, 5, 16])
def test_queues_of_equal_weight_get_equal_shares(kind: str, count: int) -> None:
    weights = {f"q{number}": 1 for number in range(count)}
    shares = Counter(chosen(router(world_of(kind, weights))).values())
    expected = len(KEYS) / count
    assert set(shares) == set(weights)
    for share in shares.values():
        assert abs(share - expected) < 5 * math.sqrt(expected), shares


@pytest.mark.parametrize(
    "weights", [{"p": 1, "q": 2, "r": 5}, {"p": 10_000, "q": 5_000}, {"p": 1, "q": 50}]
)
def test_shares_follow_the_weights(weights: dict[str, int]) -> None:
    shares = Counter(chosen(router(world_of("x-consistent-hash", weights))).values())
    for name, weight in weights.items():
        expected = len(KEYS) * weight / sum(weights.values())
        assert abs(shares[name] - expected) < 5 * math.sqrt(expected), (name, shares)


def test_a_queue_bound_twice_to_a_modulus_hash_counts_twice() -> None:
    world = world_of("x-modulus-hash", {"p": 1, "q": 1})
    world.bind("x", "q", "another")
    shares = Counter(chosen(router(world)).values())
    assert 1.8 < shares["q"] / shares["p"] < 2.2
    world.unbind("x", "q", "another")
    shares = Counter(chosen(router(world)).values())
    assert 0.9 < shares["q"] / shares["p"] < 1.1


def test_a_queue_bound_twice_to_a_consistent_hash_has_its_smallest_weight() -> None:
    world = world_of("x-consistent-hash", {"p": 2, "q": 2})
    routes = router(world)
    before = chosen(routes)
    world.bind("x", "q", "9")
    assert chosen(routes) == before
    world.bind("x", "q", "1")
    assert chosen(routes) == chosen(router(world_of("x-consistent-hash", {"p": 2, "q": 1})))
    world.unbind("x", "q", "1")
    assert chosen(routes) == before
    world.unbind("x", "q", "2")
    assert chosen(routes) == chosen(router(world_of("x-consistent-hash", {"p": 2, "q": 9})))


# ------------------------------------------------------------------ what moves


@settings(max_examples=20, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 40), min_size=2),
    st.randoms(use_true_random=False),
)
def test_only_the_keys_of_a_queue_that_leaves_move(weights: dict[str, int], chance: Random) -> None:
    world = world_of("x-consistent-hash", weights)
    routes, keys = router(world), KEYS[:1000]
    before = chosen(routes, keys)
    leaves = chance.choice(sorted(weights))
    world.unbind("x", leaves, str(weights[leaves]))
    after = chosen(routes, keys)
    assert all(after[key] == queue for key, queue in before.items() if queue != leaves)
    assert leaves not in after.values()
    world.bind("x", leaves, str(weights[leaves]))
    assert chosen(routes, keys) == before, "joining is leaving, backwards"


def test_the_keys_of_a_queue_that_leaves_are_shared_by_weight() -> None:
    world = world_of("x-consistent-hash", {"p": 1, "q": 3, "leaves": 4})
    routes = router(world)
    before = chosen(routes)
    world.do(commands.DeleteQueue("/", "leaves"))
    after = chosen(routes)
    moved = Counter(after[key] for key in KEYS if before[key] == "leaves")
    assert 2.7 < moved["q"] / moved["p"] < 3.3, moved


def test_a_heavier_weight_only_takes_keys() -> None:
    world = world_of("x-consistent-hash", {"p": 1, "q": 1, "r": 1})
    routes = router(world)
    before = chosen(routes)
    world.unbind("x", "q", "1")
    world.bind("x", "q", "2")
    after = chosen(routes)
    assert all(after[key] in (before[key], "q") for key in KEYS)
    assert all(after[key] == "q" for key in KEYS if before[key] == "q")


# ------------------------------------------------------------------ every node the same


@pytest.mark.parametrize("kind", HASHES)
def test_the_order_of_bindings_and_a_snapshot_make_no_difference(kind: str) -> None:
    weights = {f"q{number}": 1 + number % 3 for number in range(9)}
    world = world_of(kind, weights)
    expected = chosen(router(world), KEYS[:500])
    backwards = world_of(kind, dict(reversed(weights.items())))
    assert chosen(router(backwards, node="b", seed=9), KEYS[:500]) == expected
    restored = World()
    restored.state = world.machine.restore(world.machine.snapshot(world.state))
    assert chosen(router(restored, node="c"), KEYS[:500]) == expected
    assert router(world).dependence("/", "x") == 0


# ------------------------------------------------------------------ what is hashed


def test_by_header() -> None:
    world = world_of("x-consistent-hash", dict.fromkeys("pqrs", 1), arguments={"hash-header": "h"})
    routes = router(world)
    assert routes.dependence("/", "x") == ON_CONTENT

    def of(value: object, key: str = "") -> str:
        (name,) = routes.route("/", "x", key, {"h": value})
        return name

    shares = Counter(of(number, f"{number}") for number in range(4000))
    assert all(850 < share < 1150 for share in shares.values()) and len(shares) == 4
    for value in ("text", 5, True, 1.5, ["a", 1], {"t": {"u": 1}}, b"\xff"):
        assert len({of(value, key) for key in KEYS[:50]}) == 1, "the routing key means nothing"
    assert of("text") == of(b"text")
    without = [routes.route("/", "x", key, headers) for key in KEYS[:50] for headers in ({}, None)]
    assert len(set(without)) == 1, "messages without the header go to one queue"


@pytest.mark.parametrize("name", ["correlation_id", "message_id", "timestamp"])
def test_by_property(name: str) -> None:
    world = world_of(
        "x-consistent-hash", dict.fromkeys("pqrs", 1), arguments={"hash-property": name}
    )
    routes = router(world)
    assert routes.dependence("/", "x") == ON_CONTENT

    def of(value: int, key: str = "") -> tuple[str, ...]:
        given = value if name == "timestamp" else f"{value}"
        return routes.route("/", "x", key, {}, (), Properties(**{name: given}))

    shares = Counter(of(number) for number in range(4000))
    assert all(850 < share < 1150 for share in shares.values()) and len(shares) == 4
    assert len({of(7, key) for key in KEYS[:50]}) == 1
    absent = {routes.route("/", "x", key, {}, (), Properties()) for key in KEYS[:50]}
    assert len(absent) == 1


def test_an_exchange_made_again_with_other_arguments_hashes_by_them() -> None:
    world = world_of("x-consistent-hash", dict.fromkeys("pqrs", 1), arguments={"hash-header": "h"})
    routes = router(world)
    assert len({routes.route("/", "x", key, {"h": 1}) for key in KEYS[:100]}) == 1
    world.do(commands.DeleteExchange("/", "x"))
    world.exchange("x", "x-consistent-hash")
    for name in "pqrs":
        world.bind("x", name, "1")
    assert len({routes.route("/", "x", key, {"h": 1}) for key in KEYS[:100]}) == 4
    assert routes.dependence("/", "x") == 0


def test_further_routing_keys_choose_no_further_queue() -> None:
    """RabbitMQ hashes the first key (consistent), all keys together (modulus)."""
    for kind in (*HASHES, "x-random"):
        routes = router(world_of(kind, dict.fromkeys("pqrs", 1)))
        for key in KEYS[:100]:
            found = routes.route("/", "x", key, {}, ("k", "l"))
            assert len(found) == 1
            if kind == "x-consistent-hash":
                assert found == routes.route("/", "x", key)
    modulus = router(world_of("x-modulus-hash", dict.fromkeys("pqrs", 1)))
    assert len({modulus.route("/", "x", "k", {}, (key,)) for key in KEYS[:100]}) == 4


# ------------------------------------------------------------------ chance


def test_random_shares() -> None:
    world = world_of("x-random", dict.fromkeys("pqr", 1))
    world.bind("x", "r", "once more")
    routes = router(world)
    assert routes.dependence("/", "x") == ON_CHANCE
    shares = Counter(routes.route("/", "x", "k")[0] for _ in range(8000))
    for name, expected in (("p", 2000), ("q", 2000), ("r", 4000)):
        assert abs(shares[name] - expected) < 5 * math.sqrt(expected), shares


def test_chance_comes_from_the_node() -> None:
    world = world_of("x-random", dict.fromkeys("pqrs", 1))

    def draws(seed: int) -> list[tuple[str, ...]]:
        routes = router(world, seed=seed)
        return [routes.route("/", "x", "k") for _ in range(50)]

    assert draws(1) == draws(1) != draws(2)


def test_local_random_takes_the_queues_of_the_node() -> None:
    world = World()
    world.exchange("x", "x-local-random", arguments={"alternate-exchange": "amq.fanout"})
    for node in "ab":
        for number in range(2):
            name = f"{node}{number}"
            world.declare(name, arguments={"x-queue-type": "classic"}, nodes=(node,))
            world.bind("x", name)
    for node in "ab":
        routes = router(world, node=node)
        assert routes.dependence("/", "x") == ON_CHANCE
        shares = Counter(routes.route("/", "x", key)[0] for key in KEYS[:1000])
        assert set(shares) == {f"{node}0", f"{node}1"} and min(shares.values()) > 400
    elsewhere = router(world, node="c")
    assert elsewhere.route("/", "x", "k") == ()
    world.declare("spare")
    world.bind("amq.fanout", "spare")
    assert elsewhere.route("/", "x", "k") == ("spare",), "unroutable here: the alternate has it"


# ------------------------------------------------------------------ beside other exchanges


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_without_bindings_nothing_is_routed(kind: str) -> None:
    world = world_of(kind, {"q": 1})
    routes = router(world)
    assert routes.route("/", "x", "k") == ("q",)
    world.do(commands.DeleteQueue("/", "q"))
    assert routes.route("/", "x", "k") == ()


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_a_queue_of_an_absent_node_is_not_chosen(kind: str) -> None:
    """It would be dropped: routing skips queues that end when their node stays away."""
    world = World()
    world.exchange("x", kind)
    for name, node in (("near", "a"), ("far", "b"), ("quorum", "b")):
        world.declare(name, exclusive=name != "quorum", nodes=(node,))
        world.bind("x", name, "1", connection=1)
    absent = AbsentNodes()
    routes = router(world, absent)
    everything = set(chosen(routes, KEYS[:300]).values())
    absent.add("b")
    without = chosen(routes, KEYS[:300])
    absent.remove("b")
    again = set(chosen(routes, KEYS[:300]).values())
    assert everything == again == {"near", "far", "quorum"}
    assert set(without.values()) == {"near", "quorum"}


def test_what_can_be_reached_decides_what_routing_depends_on() -> None:
    world = world_of("x-consistent-hash", dict.fromkeys("pq", 1))
    routes = router(world)
    assert routes.dependence("/", "x") == 0
    world.exchange("r", "x-random")
    world.bind("x", "r", "5", to_queue=False)
    assert routes.dependence("/", "x") == ON_CHANCE
    world.exchange("h", "headers")
    world.bind("r", "h", to_queue=False)
    assert routes.dependence("/", "x") == ON_CHANCE | ON_CONTENT
    world.declare("s")
    world.bind("r", "s")
    found = [routes.route("/", "x", key, {}) for key in KEYS[:600]]
    assert set(found) == {("p",), ("q",), ("s",), ()}


def test_sharded_twice() -> None:
    """Two levels of hashing: the second one is not decided by the first."""
    world = World()
    world.exchange("x", "x-consistent-hash")
    for shard in "ab":
        world.exchange(shard, "x-consistent-hash")
        world.bind("x", shard, "1", to_queue=False)
        for number in range(2):
            world.declare(f"{shard}{number}")
            world.bind(shard, f"{shard}{number}", "1")
    shares = Counter(chosen(router(world), KEYS[:4000]).values())
    assert len(shares) == 4 and min(shares.values()) > 850
