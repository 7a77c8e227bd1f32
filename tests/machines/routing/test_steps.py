"""How much routing does in one turn, whatever bindings and messages are: counted, not timed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from machines.metadata.world import World
from machines.routing.router import router
from warren_machines.metadata import commands
from warren_machines.routing.matcher import RoutedMessage
from warren_machines.routing.topology import Topology
from warren_machines.steps import PIECE, Steps

SHARE = 4_000
SLACK = 2 * PIECE + 130
"""What may be taken beyond a share: one piece, and one binding or exchange."""


def bound(world: World, *bindings: commands.Bind) -> None:
    for at in range(0, len(bindings), 500):
        world.submit(*bindings[at : at + 500])


def in_shares(
    routes: Topology, exchange: str, message: RoutedMessage, between: Callable[[], None] = list
) -> tuple[tuple[str, ...], list[int]]:
    """Search in shares; what was found, and the steps of each share."""
    steps, taken = Steps(SHARE), []
    work = routes.search("/", exchange, message, steps)
    while True:
        before = steps.taken
        try:
            next(work)
        except StopIteration as end:
            taken.append(steps.taken - before)
            return end.value, taken
        taken.append(steps.taken - before)
        steps.limit = steps.taken + SHARE
        between()


def topics(world: World) -> RoutedMessage:
    """Bindings of 80 words with as many wildcards as they may have, 50 keys of 127 words."""
    world.exchange("x", "topic")
    chance = Random(1)
    words = [chance.choices(("*", "a"), (6, 4), k=80) for _ in range(300)]
    for each in words:
        each[chance.randrange(3)] = each[chance.randrange(3, 80)] = "#"
    patterns = {".".join(each) for each in words}
    bound(world, *(commands.Bind("/", "x", "q", True, pattern) for pattern in sorted(patterns)))
    keys = [".".join(["a"] * 126 + [last]) for last in "ab"]
    return RoutedMessage(tuple(keys * 25))


def header_rules(world: World) -> RoutedMessage:
    world.exchange("x", "headers")
    pairs = {f"h{number}": "v" * 2_000 for number in range(20)}
    bound(
        world,
        *(
            commands.Bind("/", "x", "q", True, f"{number}", {"x-match": "any", **pairs})
            for number in range(1_000)
        ),
    )
    return RoutedMessage(("k",), {**pairs, **dict.fromkeys(pairs, "v" * 1_999 + "w")})


def consistent_hash(world: World) -> RoutedMessage:
    world.exchange("x", "x-consistent-hash")
    several(world, 3_000)
    bound(world, *(commands.Bind("/", "x", f"e{at}", False, "1") for at in range(3_000)))
    return RoutedMessage(("k",))


def one_of_many(world: World) -> RoutedMessage:
    world.exchange("x", "x-random")
    several(world, 3_000)
    bound(world, *(commands.Bind("/", "x", f"e{at}", False) for at in range(3_000)))
    return RoutedMessage(("k",))


def several(world: World, count: int) -> None:
    for at in range(0, count, 500):
        world.submit(*(commands.DeclareExchange("/", f"e{at + i}", "fanout") for i in range(500)))


def a_graph(world: World) -> RoutedMessage:
    """1,500 exchanges, each bound to the next ten and back."""
    world.exchange("x", "fanout")
    several(world, 1_000)
    ends = [
        (f"e{at}", f"e{(at + by) % 1_000}") for at in range(1_000) for by in (*range(1, 11), -1)
    ]
    bound(world, *(commands.Bind("/", source, to, False) for source, to in [("x", "e0"), *ends]))
    return RoutedMessage(("k", "l"))


def alternates(world: World) -> RoutedMessage:
    for at in range(3_000):
        world.exchange(f"a{at}", "direct", arguments={"alternate-exchange": f"a{at + 1}"})
    world.exchange("x", "direct", arguments={"alternate-exchange": "a0"})
    return RoutedMessage(("k",))


def many_keys(world: World) -> RoutedMessage:
    world.exchange("x", "direct")
    bound(world, *(commands.Bind("/", "x", "q", True, f"k{at}") for at in range(9_000)))
    return RoutedMessage(tuple(f"k{at}" for at in range(9_000)))


@pytest.mark.parametrize(
    "prepare",
    [topics, header_rules, consistent_hash, one_of_many, a_graph, alternates, many_keys],
)
def test_a_search_takes_its_share_of_a_turn(prepare: Callable[[World], RoutedMessage]) -> None:
    world = World()
    world.declare("q")
    message = prepare(world)
    routes = router(world)
    found, taken = in_shares(routes, "x", message)
    assert len(taken) > 1, "it is the worst that is tried here"
    assert max(taken) <= SHARE + SLACK, max(taken)
    if prepare is not one_of_many:
        key, *further = message.routing_keys
        assert found == router(world).route("/", "x", key, message.headers, further)


def test_equal_keys_are_matched_once() -> None:
    world = World()
    world.declare("q")
    message = topics(world)
    once = message._replace(routing_keys=message.distinct_keys)
    routes = router(world)
    in_shares(routes, "x", once)
    assert len(message.routing_keys) == 50 and len(once.routing_keys) == 2
    assert sum(in_shares(routes, "x", message)[1]) == sum(in_shares(routes, "x", once)[1])


def test_bindings_change_while_a_search_waits() -> None:
    """What is bound all the time is found; what was searched before a change is not kept."""
    world = World()
    for name in ("q", "stays", "comes", "goes", "deleted"):
        world.declare(name)
    topics(world)
    key = ".".join(["a"] * 127)
    for name in ("stays", "goes", "deleted"):
        world.bind("x", name, "#.a")
    routes = router(world)
    turns: list[None] = []

    def between() -> None:
        turns.append(None)
        if len(turns) == 3:
            world.unbind("x", "goes", "#.a")
            world.do(commands.DeleteQueue("/", "deleted"))
        (world.bind if len(turns) % 2 else world.unbind)("x", "comes", "*.#")
        routes.route("/", "x", "another.client")

    found, taken = in_shares(routes, "x", RoutedMessage((key,)), between)
    assert len(taken) > 10 and "stays" in found
    assert routes.known("/", "x", key) is None, "it is of no version of the bindings"
    world.bind("x", "comes", "#.a")
    assert routes.route("/", "x", key) == router(world).route("/", "x", key)
    assert routes.known("/", "x", key) == ("comes", "q", "stays")
