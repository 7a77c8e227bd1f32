"""The leader raises the cluster's version when every node has it, or an operator does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.broker.cluster.universe import Universe
from warren_raft.versions import Versions
from warren_wire.errors import PreconditionFailed

OLD, NEW = Versions(1, 1), Versions(1, 2)
BY_OPERATOR = {"finish_upgrade": "by-operator"}


def versions(world: Universe) -> set[int]:
    return {one.broker.definitions.state.version for one in world.running.values()}


def upgrade(world: Universe, *names: str) -> None:
    for name in names:
        world.kill(name)
        world.programs[name] = NEW
        world.start(name)
        world.until(world.ready, f"{name} is back")


@pytest.fixture
def worlds() -> Iterator[Callable[..., Universe]]:
    made: list[Universe] = []

    def make(**settings: str) -> Universe:
        world = Universe(settings=settings, versions=OLD)
        made.append(world)
        world.until(world.ready, "they serve")
        return world

    yield make
    for world in made:
        world.close()


def test_the_last_upgraded_node_raises_it(worlds: Callable[..., Universe]) -> None:
    world = worlds()
    upgrade(world, "a", "b")
    assert versions(world) == {1}
    upgrade(world, "c")
    world.until(lambda: versions(world) == {2}, "raised")
    assert {one.host.version for one in world.running.values()} == {2}


def test_it_waits_for_the_operator(worlds: Callable[..., Universe]) -> None:
    world = worlds(**BY_OPERATOR)
    upgrade(world, "a", "b")
    finish = "a", lambda broker, done: broker.membership.nodes.versions.finish(done)
    refused = world.call(*finish)
    assert isinstance(refused, PreconditionFailed)
    assert refused.detail == (
        "the cluster stays at version 1: node 'c' has no later one; upgrade what is named first"
    )
    upgrade(world, "c")
    for _ in range(50):
        world.step()
    assert versions(world) == {1}
    assert world.call(*finish) == 2
    world.until(lambda: versions(world) == {2}, "raised")


def test_an_old_node_that_returns_is_not_registered(worlds: Callable[..., Universe]) -> None:
    world = worlds()
    upgrade(world, "a", "b", "c")
    world.until(lambda: versions(world) == {2}, "raised")
    world.kill("c")
    world.programs["c"] = OLD
    state = world.running["a"].broker.definitions.state
    before = state.nodes["c"]
    world.start("c")
    for _ in range(50):
        world.step()
    assert state.nodes["c"] == before and not world.running["c"].broker.definitions.ready
