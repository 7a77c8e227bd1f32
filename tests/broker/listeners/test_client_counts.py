"""What a connection counts is bounded, whatever its client consumes, gets and deletes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.access.requests import GotMessage, GotNothing
from warren_broker.clients import client_counts
from warren_broker.clients.client_counts import ChannelCounts, ClientCounts
from warren_broker.counting.counters import Counters
from warren_broker.counting.message_stats import ACK, DELIVER, GET, GET_EMPTY, MessageCounts
from warren_machines.queue.commands import Delivery
from warren_wire.kernel import MessageTable, Route, Selection

SESSION = 7


class World:
    """A connection's counts; consumer n reads queue n."""

    def __init__(self, pairs: bool = False) -> None:
        self.nodes = MessageCounts(pairs)
        self.broker: Any = SimpleNamespace(
            cluster=SimpleNamespace(counters=Counters(), queue_counts=self.nodes),
            consuming=SimpleNamespace(queue_of=self.queue_of, resume=None),
        )
        self.counts = ClientCounts(self.broker, "amqp091")
        self.counts.channel_opened(SESSION, 1, 1)

    @staticmethod
    def queue_of(consumer: int) -> Any:
        return SimpleNamespace(
            group=consumer, name=f"q{consumer}", config=SimpleNamespace(kind="quorum")
        )

    @property
    def channel(self) -> ChannelCounts:
        found = self.counts.of_channel(SESSION)
        assert found is not None
        return found


@pytest.fixture
def world() -> World:
    return World()


def run(count: int = 1) -> Delivery:
    return Delivery(0, 1, 0, count - 1)


def test_a_consumer_that_has_ended_and_holds_nothing_is_forgotten(world: World) -> None:
    for consumer in range(1, 500):
        world.counts.delivered(consumer, SESSION, False, run())
        world.counts.acknowledged(consumer, [(0, 0)])
        world.counts.consumer_ended(consumer, SESSION)
    assert not world.counts._rows and not world.channel.consumers


def test_of_many_queues_the_last_ones_are_counted_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_counts, "COUNTED_QUEUES_MAX", 3)
    for consumer in range(1, 10):
        world.counts.delivered(consumer, SESSION, False, run(2))
    rows = world.channel.rows
    assert len(rows) == 4 and sum(row[DELIVER] for row in rows.values()) == 18
    assert rows[client_counts.OTHERS][DELIVER] == 12
    assert world.nodes.rows[9][DELIVER] == 2


def test_a_get_under_another_number_counts_for_its_queue(world: World) -> None:
    asked: Any = SimpleNamespace(consumer=1, session=SESSION, no_ack=False)
    world.counts.got(asked, GotMessage(run(), None, 0), world.queue_of(1))
    world.counts.got(asked, GotMessage(run(), None, 0, getter=2), world.queue_of(2))
    world.counts.acknowledged(2, [(0, 0)])
    assert [world.nodes.rows[group][GET] for group in (1, 2)] == [1, 1]
    assert [world.nodes.rows[group][ACK] for group in (1, 2)] == [0, 1]


def test_a_get_that_finds_nothing_counts_also_before_the_first_message(world: World) -> None:
    """Where a read has found the queue empty, no consumer has that number. Before: not counted."""
    world.broker.consuming.queue_of = lambda consumer: None
    asked: Any = SimpleNamespace(consumer=1, session=SESSION, no_ack=False)
    for _ in range(3):
        world.counts.got(asked, GotNothing(), world.queue_of(5))
    assert world.nodes.rows[5][GET_EMPTY] == world.channel.rows[5, "q5"][GET_EMPTY] == 3
    name = "global_messages_get_empty"
    assert (
        sum(count for key, count in world.broker.cluster.counters.read().items() if key[0] == name)
        == 3
    )
    assert not world.counts._rows


def test_a_channels_messages_are_counted_by_exchange() -> None:
    table = MessageTable()
    for exchange, mandatory in ((b"x", False), (b"x", True), (b"y", False), (b"", False)):
        table.append(Route(exchange, b"k", mandatory), b"\0\0", b"body")
    world = World(pairs=True)
    request: Any = SimpleNamespace(table=table, first=0, last=4, confirm=True, session=SESSION)
    world.counts.opened("/")
    shares = world.counts.routed(request, [Selection(table, 3, 4)], 0, 1)
    pairs = world.nodes.pairs
    assert pairs is not None
    found = {name: row for (_, (_, name)), row in pairs.publishes.rows.items()}
    assert found == {"x": [2, 0, 1, 1], "y": [1, 0, 0, 1], "": [1, 0, 0, 0]}
    assert [share.open for share in shares] == [2, 1, 1]
    world.counts.delivered(9, SESSION, False, run(3))
    ((_, row),) = pairs.deliveries.rows.items()
    assert row is world.channel.rows[9, "q9"] and row[DELIVER] == 3
    world.counts.channel_closed(SESSION)
    assert not pairs.publishes.rows and not pairs.deliveries.rows and not pairs.channels


def test_without_detailed_rates_no_pair_is_counted(world: World) -> None:
    table = MessageTable()
    table.append(Route(b"x", b"k", False), b"\0\0", b"body")
    request: Any = SimpleNamespace(table=table, first=0, last=1, confirm=True, session=SESSION)
    assert world.counts.routed(request, [], 0, 0) == [] and world.nodes.pairs is None
