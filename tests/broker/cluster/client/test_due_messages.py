"""Delayed messages on a cluster of three model nodes: kept, routed when due, by whichever leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.client.test_history import bodies, exchange
from broker.cluster.membership.clusters import begun, declare
from broker.cluster.membership.test_absences import Published
from broker.cluster.universe import Universe
from warren_broker.cluster.client.forwarding import delays_of, due
from warren_machines.metadata import commands as metadata
from warren_machines.queue.commands import Stat
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field
from warren_wire.amqp091.properties import Properties
from warren_wire.kernel import MessageTable, Route

STORE = "amq.delayed.d"
LONGEST = (1 << 32) - 1


@pytest.fixture
def universe() -> Iterator[Universe]:
    """An exchange that delays and routes as a direct one; q is bound with key."""
    made = begun()
    exchange(made, "d", "x-delayed-message", {"x-delayed-type": "direct"})
    bind(made, "q")
    yield made
    made.close()


def bind(universe: Universe, queue: str, source: str = "d", key: str = "key") -> None:
    """Bind a queue."""
    command = metadata.Bind("/", source, queue, True, key)
    answer = universe.call("b", lambda broker, done: broker.bind(command, done))
    assert isinstance(answer, metadata.MetadataDone), answer


def written(**headers: Any) -> bytes:
    """Properties with these headers."""
    return properties.encode(Properties(headers=headers))


def publish(universe: Universe, *messages: tuple[str, Any], node: str = "a") -> Published:
    """Publish (body, delay) to d; not confirmed yet. A delay of None: no header."""
    published = Published(universe)
    table = MessageTable()
    for body, delay in messages:
        raw = b"\0\0" if delay is None else written(**{"x-delay": delay})
        table.append(Route(b"d", b"key", False), raw, body.encode(), flags=2)
    one = universe.running[node]
    one.loop.call_soon(
        lambda: one.broker.publishing.publish("/", table, 0, table.count, published, 2)
    )
    return published


def delayed(universe: Universe) -> int:
    """Messages that the store delays, by its leader."""
    answer = universe.call(
        "a",
        lambda broker, done: broker.queues.ask(
            broker.definitions.state.queue("/", STORE), Stat(), done
        ),
    )
    return int(answer.messages_delayed)


def leader(universe: Universe) -> str:
    """The node that leads the store."""
    store = next(iter(universe.running.values())).broker.definitions.state.queue("/", STORE)
    assert store is not None
    found = universe.logs[store.group].leader
    assert found is not None
    return found


def arrived(universe: Universe, *expected: str, queue: str = "q") -> None:
    """Wait for just these bodies, in this order."""
    universe.until(lambda: len(bodies(universe, queue)) >= len(expected), f"{expected} in {queue}")
    assert bodies(universe, queue) == list(expected)


def test_it_waits_and_is_routed_by_the_bindings_of_then(universe: Universe) -> None:
    declare(universe, "late")
    began = universe.now
    assert publish(universe, ("now", None), ("second", 3_000), ("first", 1_000)).all_confirmed()
    assert bodies(universe) == ["now"] and delayed(universe) == 2
    bind(universe, "late")
    arrived(universe, "first", "second", queue="late")
    assert universe.now - began >= 3_000
    assert bodies(universe) == ["now", "first", "second"]
    universe.until(lambda: not delayed(universe) and bodies(universe, STORE) == [], "all settled")


def test_it_is_kept_when_nothing_is_bound(universe: Universe) -> None:
    command = metadata.Unbind("/", "d", "q", True, "key")
    universe.call("b", lambda broker, done: broker.definitions.submit(command, done))
    published = publish(universe, ("m", 2_000))
    assert published.all_confirmed() and published.parts == 1
    bind(universe, "q")
    arrived(universe, "m")


def test_the_leader_dies_while_it_waits(universe: Universe) -> None:
    assert publish(universe, ("one", 2_000), ("two", 4_000)).all_confirmed()
    gone = leader(universe)
    universe.kill(gone)
    arrived(universe, "one", "two")
    universe.start(gone)
    universe.until(universe.ready, "it is back")
    assert bodies(universe) == ["one", "two"]


@pytest.mark.parametrize("steps", range(0, 10, 3))
def test_the_leadership_moves_while_it_waits_and_while_it_routes(
    universe: Universe, steps: int
) -> None:
    assert publish(universe, ("one", 300), ("two", 600)).all_confirmed()
    for count in (1, 2):
        began = leader(universe)
        to = next(name for name in "abc" if name != began)
        store = universe.running[to].broker.definitions.state.queue("/", STORE)
        assert store is not None
        if count == 2:
            universe.until(lambda: len(bodies(universe)), "the first one")
            for _ in range(steps):
                universe.step()
        universe.running[began].host.transfer(store.group, to)
        universe.until(lambda was=began: leader(universe) != was, "another leader")
    universe.until(lambda: set(bodies(universe)) == {"one", "two"}, "both")
    universe.until(lambda: not delayed(universe) and not bodies(universe, STORE), "all settled")
    assert list(dict.fromkeys(bodies(universe))) == ["one", "two"]


def test_all_nodes_are_restarted_while_it_waits(universe: Universe) -> None:
    assert publish(universe, ("m", 2_000)).all_confirmed()
    universe.restart("abc")
    arrived(universe, "m")


@pytest.mark.parametrize("steps", range(0, 12, 2))
def test_a_leader_that_dies_while_it_routes_loses_nothing(universe: Universe, steps: int) -> None:
    """What it has routed and not settled is routed again."""
    sent = [str(number) for number in range(5)]
    assert publish(universe, *((body, 500) for body in sent)).all_confirmed()
    store = leader(universe)
    state = universe.running[store].broker
    record = state.definitions.state.queue("/", STORE)
    assert record is not None
    universe.until(
        lambda: state.cluster.host.state(record.group).delayed.count == 0, "they are due"
    )
    for _ in range(steps):
        universe.step()
    universe.kill(store)
    universe.start(store)
    universe.until(universe.ready, "it is back")
    universe.until(lambda: set(bodies(universe)) == set(sent), "all are in the queue")


def test_a_queue_that_refuses_gets_it_later_and_no_other_gets_it_twice(universe: Universe) -> None:
    declare(universe, "full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    bind(universe, "full")
    assert publish(universe, ("a", 10), ("b", 20)).all_confirmed()
    universe.until(lambda: len(bodies(universe)) == 2, "both in the queue with room")
    assert bodies(universe, "full") == ["a"]
    universe.until(lambda: delayed(universe) == 1, "the refused one waits")
    answer = universe.call("a", lambda broker, done: broker.purge_queue("/", "full", 0, done))
    assert answer.messages == 1
    universe.until(lambda: bodies(universe, "full") == ["b"], "it is tried again")
    universe.until(lambda: not delayed(universe), "settled")
    assert bodies(universe) == ["a", "b"]


def test_its_exchange_is_deleted_while_it_waits(universe: Universe) -> None:
    assert publish(universe, ("m", 2_000)).all_confirmed()
    gone = metadata.DeleteExchange("/", "d")
    universe.call("c", lambda broker, done: broker.definitions.submit(gone, done))
    began = universe.now
    universe.until(lambda: universe.now > began + 5_000, "time passes")
    assert bodies(universe) == []
    exchange(universe, "d", "x-delayed-message", {"x-delayed-type": "direct"})
    bind(universe, "q")
    assert delayed(universe) == 0
    assert publish(universe, ("again", 100)).all_confirmed()
    arrived(universe, "again")


@pytest.mark.parametrize(
    "given, delay, after",
    [
        (Field("I", 5), 5, Field("I", -5)),
        (Field("b", 5), 5, Field("b", -5)),
        (Field("l", LONGEST), LONGEST, Field("l", -LONGEST)),
        (Field("i", LONGEST), LONGEST, Field("l", -LONGEST)),
        (Field("B", 200), 200, Field("I", -200)),
        (Field("S", "5000"), 5000, Field("I", -5000)),
        (Field("d", 7.9), 7, Field("I", -7)),
        (Field("S", "soon"), 0, Field("S", "soon")),
        (Field("t", True), 0, Field("t", True)),
    ],
)
def test_the_header_is_negated_in_its_type(given: Field, delay: int, after: Field) -> None:
    raw = properties.encode(Properties(headers={"x-delay": given, "other": Field("I", 1)}))
    table = MessageTable()
    table.append(Route(b"d", b"key", False), raw, b"body")
    assert delays_of(table) == ((1, delay),)
    assert properties.headers(due(raw)) == {"x-delay": after, "other": Field("I", 1)}
