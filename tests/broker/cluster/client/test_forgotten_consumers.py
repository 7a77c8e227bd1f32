"""A node and its queues forget consumers that have ended and hold nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.membership.clusters import begun
from broker.cluster.membership.test_incarnations import Nobody
from broker.cluster.universe import Universe
from warren_broker.access import requests
from warren_machines.queue.commands import Checkout, Get

SESSION = 900


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = begun()
    yield made
    made.close()


def remembered(universe: Universe, node: str) -> tuple[int, int, int, int]:
    """Consumers of the session, at the node's three places and in the queue q."""
    broker = universe.running[node].broker
    consuming = broker.consuming
    queue = broker.definitions.state.queue("/", "q")
    leader = next(
        one.broker
        for one in universe.running.values()
        if one.broker.cluster.host.is_leader(queue.group)
    )
    client = broker.cluster.client(queue.group)
    known = leader.cluster.host.state(queue.group).all_consumers()
    return (
        len(consuming._groups),
        len(consuming._sessions.get(SESSION, ())),
        0 if client is None else len(client.consumers),
        sum(consumer.session == SESSION for consumer in known),
    )


def consumed(universe: Universe, node: str, relay: str = "") -> int:
    numbers: list[int] = []

    def call(broker: Any, done: Any) -> None:
        numbers.append(broker.ids.consumer())
        command = Checkout(numbers[0], SESSION, "t", 10, relay=relay)
        broker.consuming.checkout(broker.definitions.state.queue("/", "q"), command, Nobody(), done)

    assert isinstance(universe.call(node, call), requests.RequestDone)
    return numbers[0]


def cancelled(universe: Universe, node: str, number: int) -> None:
    universe.call(node, lambda broker, done: broker.consuming.cancel(number, done))
    universe.running[node].broker.consuming.forget(number, SESSION, False)


@pytest.mark.parametrize("node", ["a", "b", "c"])
def test_consuming_and_cancelling_in_a_loop_leaves_nothing(universe: Universe, node: str) -> None:
    """Before: some hundred bytes of each consumer until the end of its channel."""
    for _ in range(20):
        number = consumed(universe, node)
        assert remembered(universe, node)[:3] == (1, 1, 1)
        cancelled(universe, node, number)
    assert remembered(universe, node) == (0, 0, 0, 0)


def test_the_end_of_a_session_is_told_to_the_queues_of_what_is_left(universe: Universe) -> None:
    kept = consumed(universe, "a")
    cancelled(universe, "a", consumed(universe, "a"))
    assert kept and remembered(universe, "a") == (1, 1, 1, 1)
    universe.running["a"].broker.consuming.session_down(SESSION, False)
    universe.until(lambda: remembered(universe, "a") == (0, 0, 0, 0), "all is forgotten")


def test_a_relay_is_remembered_until_its_session_ends(universe: Universe) -> None:
    """Its queue has to hear that the session is over."""
    cancelled(universe, "a", consumed(universe, "a", "relay"))
    assert remembered(universe, "a")[:2] == (1, 1)


def test_gets_leave_nothing_when_they_are_forgotten(universe: Universe) -> None:
    numbers: list[int] = []

    def call(broker: Any, done: Any) -> None:
        numbers.append(broker.ids.consumer())
        queue = broker.definitions.state.queue("/", "q")
        broker.consuming._take_one(queue, Get(numbers[-1], SESSION), done)

    for _ in range(10):
        universe.call("a", call)
    assert remembered(universe, "a") == (10, 10, 0, 10)
    for number in numbers:
        universe.running["a"].broker.consuming.forget(number, SESSION, True)
    universe.until(lambda: remembered(universe, "a") == (0, 0, 0, 0), "all is forgotten")
