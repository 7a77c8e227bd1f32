"""Nodes that restart, however often, while a queue of theirs cannot hear of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.holding import hold_back
from broker.cluster.membership.clusters import begun
from broker.cluster.universe import Universe
from warren_broker.access import requests
from warren_machines.metadata.commands import Bootstrap
from warren_machines.queue.commands import Checkout


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = begun("abcde", ("a", "b", "c"))
    yield made
    made.close()


class Nobody:
    """A receiver that takes what comes."""

    def deliver(self, consumer: int, delivery: Any, block: Any) -> None:
        """A message."""

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """A consumer was taken off."""


def consume(universe: Universe, node: str, name: str = "q") -> None:
    """A consumer of that node's."""

    def call(broker: Any, done: Any) -> None:
        queue = broker.definitions.state.queue("/", name)
        number = broker.ids.consumer()
        broker.consuming.checkout(queue, Checkout(number, 1, "t", 10), Nobody(), done)

    assert universe.call(node, call) == requests.RequestDone()


def consumers(universe: Universe, name: str = "q") -> list[str]:
    """The nodes of the queue's consumers, as its leader knows them."""
    queue = universe.running["a"].broker.definitions.state.queue("/", name)
    assert queue is not None
    leader = universe.logs[queue.group].leader
    assert leader is not None
    state = universe.disks[leader][queue.group].state
    return sorted(state.uplinks[one.uplink].node for one in state.all_consumers())


@pytest.mark.parametrize("restarts", [1, 17, 40])
def test_no_consumer_is_left_of_lives_that_ended_while_the_queue_had_no_leader(
    universe: Universe, restarts: int
) -> None:
    consume(universe, "d")
    consume(universe, "e")
    assert consumers(universe) == ["d", "e"]
    universe.kill("b")
    universe.kill("c")  # a, d and e are a majority of the cluster, a alone is none of q
    for _ in range(restarts):
        universe.kill("d")
        universe.start("d")
        universe.until(universe.ready, "d has begun another life")
    universe.start("b")
    universe.until(lambda: consumers_or_none(universe) == ["e"], "only the living consume")
    consume(universe, "d")
    assert consumers(universe) == ["d", "e"]


def consumers_or_none(universe: Universe) -> list[str] | None:
    """The same; None while there is no leader."""
    try:
        return consumers(universe)
    except AssertionError:
        return None


def test_every_life_has_a_higher_number_than_those_before_it(universe: Universe) -> None:
    numbers = []
    for node in ("d", "e", "d", "d"):
        universe.kill(node)
        universe.start(node)
        universe.until(universe.ready, "it has begun another life")
        numbers.append(universe.running[node].broker.definitions.incarnation)
    assert numbers == sorted(set(numbers)) and numbers[0] > 0


def test_a_node_that_was_forgotten_and_comes_back_under_its_name_is_heard(
    universe: Universe,
) -> None:
    consume(universe, "d")
    before = universe.running["d"].broker.definitions.incarnation
    universe.kill("d")
    universe.until(
        lambda: (
            not isinstance(
                universe.call("a", lambda broker, done: broker.membership.nodes.forget("d", done)),
                Exception,
            )
        ),
        "d is forgotten",
    )
    universe.until(
        lambda: "d" not in universe.running["a"].broker.definitions.state.nodes, "d has left"
    )
    universe.until(lambda: consumers_or_none(universe) == [], "its consumer is gone")
    universe.wipe("d")
    universe.start("d")
    universe.until(universe.ready, "d has joined again")
    assert universe.running["d"].broker.definitions.incarnation > before
    consume(universe, "d")
    assert consumers(universe) == ["d"]


def test_a_login_before_the_first_user_waits() -> None:
    """A node that knows no user yet would tell its clients that their password is wrong.

    The leader's proposal of the first user is held back until every node's start is answered.
    """
    universe = Universe("abc")
    definitions = {name: one.broker.definitions for name, one in universe.running.items()}
    held = hold_back(universe, Bootstrap)
    answers: list[Any] = []
    universe.until(lambda: held, "the leader proposes the first user")
    universe.until(
        lambda: all(
            d.incarnation or d.ready or name in d.state.numbers for name, d in definitions.items()
        ),
        "every start is known",
    )
    for _ in range(20):
        universe.step()
    assert not any(each.ready for each in definitions.values())
    broker = universe.running["a"].broker
    broker.logins.authenticate("guest", "guest", "PLAIN", answers.append)
    for _ in range(20):
        universe.step()
    assert answers == []
    held[0]()
    universe.until(universe.ready, "the first user is known")
    assert len(answers) == 1
    universe.close()
