"""The event exchange on model nodes: events never hold up a node, and drops are counted."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from broker.cluster.client.test_history import bodies
from broker.cluster.membership.clusters import begun, declare
from broker.cluster.universe import Universe
from warren_broker.cluster.client import node_messages
from warren_broker.cluster.client.node_messages import (
    EVENT_EXCHANGE,
    REPORT_MS,
    SMALL_BOUNDS,
    WAITING_BYTES_MAX,
    BestEffort,
    EventExchange,
)
from warren_broker.cluster.resource_alarms import ResourceAlarms
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import Vhost

ON = {"event_exchange": {"enabled": True}}


@pytest.fixture
def universe() -> Iterator[Universe]:
    """Queue q on all nodes gets the events of key `test.event`."""
    made = begun(settings=ON)
    made.until(lambda: there(made), "the exchange is declared")
    assert bind(made, "q", "test.event")
    yield made
    made.close()


def there(universe: Universe, vhost: str = "/") -> bool:
    """Every node knows the exchange."""
    return all(
        one.broker.definitions.exchange(vhost, EVENT_EXCHANGE) is not None
        for one in universe.running.values()
    )


def bind(universe: Universe, queue: str, key: str) -> bool:
    """Bind a queue to the exchange."""
    command = metadata.Bind("/", EVENT_EXCHANGE, queue, True, key)
    answer = universe.call("a", lambda broker, done: broker.bind(command, done))
    return isinstance(answer, metadata.MetadataDone)


def events(universe: Universe, node: str = "a") -> EventExchange:
    """That node's exchange."""
    return universe.running[node].broker.events


def source_of(universe: Universe, node: str = "a") -> BestEffort:
    """What publishes that node's events."""
    return events(universe, node).publisher


def tell(universe: Universe, count: int, facts: Any = None, node: str = "a") -> None:
    """Tell events in one turn."""
    one = universe.running[node]

    def call() -> None:
        for number in range(count):
            one.broker.events.tell("test.event", facts or {"number": number})

    one.loop.call_soon(call)
    universe.step()


def test_definitions_are_told_by_the_leader_alone() -> None:
    universe = begun(settings=ON)
    universe.until(lambda: there(universe), "the exchange is declared")
    assert bind(universe, "q", "queue.created")
    for name in ("r", "s"):
        declare(universe, name)
        leader = universe.logs[0].leader
        assert leader is not None
        universe.kill(leader)
        universe.start(leader)
        universe.until(universe.ready, "the node is back")
    universe.until(lambda: len(bodies(universe)) >= 2, "both events")
    for _ in range(20):
        universe.step()
    assert len(bodies(universe)) == 2, "a restarted node tells nothing again"
    universe.close()


def test_nothing_is_done_while_it_is_off() -> None:
    universe = begun()
    tell(universe, 3)
    assert not there(universe) and not events(universe).on
    assert events(universe).exchange is None
    universe.close()


def test_a_queue_without_a_leader_holds_up_nothing(
    universe: Universe, caplog: pytest.LogCaptureFixture
) -> None:
    for node in "bc":
        universe.kill(node)
    source = source_of(universe)
    most = SMALL_BOUNDS.queue_bytes_max
    text = "x" * 10_000
    for _ in range(6):
        tell(universe, 100, {"text": text})
    assert most <= source.unconfirmed_bytes <= most + 20_000
    sent = 600 - source.dropped
    assert 190 < sent < 215
    assert len([one for one in caplog.records if "events are dropped" in one.message]) == 1
    exchange = events(universe).exchange
    assert exchange is not None and not exchange.waiting
    for node in "bc":
        universe.start(node)
    universe.until(lambda: not source.unconfirmed_bytes, "what was sent is stored")
    assert not source._unconfirmed and len(bodies(universe)) == sent
    tell(universe, 1)
    universe.until(lambda: len(bodies(universe)) == sent + 1, "events flow again")
    universe.now += REPORT_MS
    universe.step()
    last = [one.message for one in caplog.records if "events are dropped" in one.message][-1]
    assert last == f"events are dropped: {600 - sent} since this node started"


def test_events_of_one_turn_are_bounded(universe: Universe) -> None:
    source = source_of(universe)
    tell(universe, node_messages.WAITING_MAX + 5)
    assert source.dropped == 5
    tell(universe, 1 + WAITING_BYTES_MAX // 1_000_000, {"text": "x" * 1_000_000})
    assert source.unconfirmed_bytes < SMALL_BOUNDS.all_bytes_max


def test_any_fact_can_be_told(universe: Universe) -> None:
    odd = {
        "large": 1 << 200,
        "deep": [{"k" * 300: [None, True, -1, 1.5, Decimal("1.25"), b"\xff"]}],
        "name": "caf\udcc3",
        "": (),
    }
    tell(universe, 1, odd)
    universe.until(lambda: len(bodies(universe)) == 1, "the event")


def test_a_deleted_queue_leaves_nothing_behind(universe: Universe) -> None:
    tell(universe, 50)
    universe.call("a", lambda b, done: b.delete_queue("/", "q", False, False, 0, done))
    universe.until(lambda: not source_of(universe).unconfirmed_bytes, "every event is answered")
    tell(universe, 5)
    assert not source_of(universe)._unconfirmed and not source_of(universe).dropped


def test_the_exchange_is_declared_when_its_vhost_exists() -> None:
    universe = begun(settings={"event_exchange": {"enabled": True, "vhost": "audit"}})
    for _ in range(20):
        universe.step()
    assert not there(universe, "audit")
    command = metadata.PutVhost(Vhost("audit"))
    universe.call("b", lambda broker, done: broker.definitions.submit(command, done))
    universe.now += node_messages.DECLARE_AGAIN_MS
    universe.until(lambda: there(universe, "audit"), "the exchange is declared")
    assert not any(source_of(universe, node).dropped for node in "abc")
    universe.close()


def test_an_alarm_is_told_by_its_node_alone(universe: Universe) -> None:
    assert bind(universe, "q", "alarm.*")
    alarms = {name: ResourceAlarms(one.cluster) for name, one in universe.running.items()}
    told: list[tuple[str, str, bool]] = []
    for name, one in universe.running.items():
        alarms[name].start()
        alarms[name].on_own.append(one.broker.events.alarm)
        alarms[name].on_own.append(lambda source, is_set, n=name: told.append((n, source, is_set)))
        for other in one.cluster.peers():
            alarms[name]._peer_up(other)
    alarms["b"].is_short(("disk", "memory"))
    universe.until(lambda: alarms["a"].reasons and alarms["c"].reasons, "all nodes know it")
    alarms["b"].is_short(("memory",))
    alarms["b"].is_short(("memory",))
    universe.until(lambda: len(bodies(universe)) == 3, "the events are stored")
    assert told == [("b", "disk", True), ("b", "memory", True), ("b", "disk", False)]
