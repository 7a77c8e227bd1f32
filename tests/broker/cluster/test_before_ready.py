"""A node that leads queues before it knows the definitions, and its own number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.cluster.holding import hold_back
from broker.cluster.membership.clusters import QUORUM, begun, declare, settled
from broker.cluster.universe import STEP_MS, Universe
from sim.told import Told
from tests.wire.kernel import frames as f
from warren_broker.broker.broker import Broker
from warren_machines.metadata.commands import NodeStarted
from warren_wire.kernel import PRIORITY_DEFAULT, TTL_NONE, MessageTable, Route

TTL_MS = 1_000
EXPIRES_MS = 5_000


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = begun("abcd", ("a", "b", "c"))
    yield made
    made.close()


def only_on(universe: Universe, name: str, node: str, arguments: dict[str, Any]) -> int:
    """A queue with its only member there; its group."""
    declare(universe, name, 1, {**QUORUM, **arguments})
    broker = universe.running["a"].broker
    queue = broker.definitions.state.queue("/", name)
    assert queue is not None
    if queue.nodes != (node,):
        (first,) = queue.nodes
        universe.call("a", lambda b, done: b.membership.add_member("/", name, node, done))
        universe.until(lambda: settled(universe, (first, node), name), "it has two members")
        universe.call("a", lambda b, done: b.membership.delete_member("/", name, first, done))
        universe.until(lambda: settled(universe, (node,), name), "it lies there alone")
    return queue.group


def publish(universe: Universe, node: str, name: str) -> list[bool]:
    """A message for a queue, through that node; what is confirmed."""
    confirmed: list[bool] = []

    def call(broker: Broker, done: Callable[[Any], None]) -> None:
        table = MessageTable()
        route = Route(b"", name.encode(), False)
        table.append(route, f.PLAIN, b"body", PRIORITY_DEFAULT, TTL_NONE, 0)
        broker.publishing.publish(
            "/", table, 0, 1, Told(lambda part, ok, refused: confirmed.append(ok))
        )
        done(True)

    universe.call(node, call)
    return confirmed


def ready_messages(universe: Universe, name: str) -> int:
    """In the queue, as its leader knows it."""
    found = universe.running["a"].broker.definitions.state.queue("/", name)
    assert found is not None
    leader = universe.logs[found.group].leader
    assert leader is not None
    return int(universe.disks[leader][found.group].state.order.count)


def start_unknown(universe: Universe, name: str) -> Callable[[], None]:
    """Start the node, and hold back the news of that; returns what lets it through."""
    held = hold_back(universe, NodeStarted)
    universe.start(name)
    universe.until(lambda: held, "it says that it has started")
    return lambda: held[0]()


def test_a_letter_without_a_number_ends_no_incarnation(
    universe: Universe,
) -> None:
    """The leader that it is published to knows the life before, which has a number."""
    arguments = {
        "x-message-ttl": TTL_MS,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "q",
    }
    group = only_on(universe, "short", "d", arguments)
    confirmed = publish(universe, "a", "short")
    universe.until(lambda: confirmed, "it is in the queue")
    universe.kill("d")
    for _ in range(2 * TTL_MS // STEP_MS):
        universe.step()
    known = start_unknown(universe, "d")
    there = universe.running["d"].host
    universe.until(lambda: there.is_leader(group), "it leads the queue")
    for _ in range(200):
        universe.step()
    assert not universe.running["d"].broker.definitions.ready
    known()
    universe.until(universe.ready, "its start is known")
    universe.until(lambda: ready_messages(universe, "q") == 1, "the dead letter has come")
    confirmed = publish(universe, "d", "q")
    universe.until(lambda: confirmed, "it publishes to that queue")
    assert ready_messages(universe, "q") == 2
    client = universe.running["d"].cluster.client(1)
    assert client is not None and not client.uplink.unanswered


@pytest.mark.parametrize("used", [False, True])
def test_a_queue_that_expires_before_its_leader_has_a_number_goes_when_it_has_one(
    universe: Universe, used: bool
) -> None:
    """Unless it was used meanwhile: then it expires later."""
    group = only_on(universe, "brief", "d", {"x-expires": EXPIRES_MS})
    universe.kill("d")
    known = start_unknown(universe, "d")
    there = universe.running["d"].host
    universe.until(lambda: there.is_leader(group), "it leads the queue")
    for _ in range(2 * EXPIRES_MS // STEP_MS):
        universe.step()
    assert not universe.running["d"].broker.definitions.ready
    assert not there.state(group).uplinks
    if used:
        there.state(group).unused_ms = universe.now
    known()
    universe.until(universe.ready, "its start is known")
    for _ in range(100):
        universe.step()
    left = universe.running["a"].broker.definitions.state.queue("/", "brief")
    assert (left is not None) == used
