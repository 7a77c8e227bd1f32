"""Counts of pairs: bounded, found from both ends, and forgotten with either."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from warren_broker.cluster.client.publisher import count_routes
from warren_broker.cluster.pair_sampler import PAIRS_SAMPLED_MAX, PAIRS_SHOWN_MAX, PairSampler
from warren_broker.counting.message_stats import COUNTED, DELIVER, MessageCounts
from warren_broker.counting.pair_counts import (
    CONFIRMED,
    ChannelKey,
    ExchangeShare,
    PairCounts,
    Pairs,
    confirm,
)
from warren_wire.admin.statistics import GetPairsRequest
from warren_wire.kernel import MessageTable, Route, Selection

CHANNEL = ChannelKey(1, 2, 3)


def test_pairs_beyond_the_bound_are_not_counted() -> None:
    pairs: Pairs[int, int] = Pairs(("publish",), 3)
    rows = [pairs.row(1, right) for right in range(5)]
    assert [row is None for row in rows] == [False] * 3 + [True] * 2
    assert pairs.row(1, 2) is rows[2], "one that is there stays"
    pairs.forget_right(0)
    assert pairs.row(1, 4) is not None and pairs.row(1, 3) is None
    pairs.check()


def test_pairs_are_found_and_forgotten_from_both_ends() -> None:
    chosen = random.Random(5)
    pairs: Pairs[int, int] = Pairs(("publish",), 40)
    for _ in range(3_000):
        left, right = chosen.randrange(12), chosen.randrange(12)
        act = chosen.choice((pairs.row, pairs.row, pairs.row, None))
        if act is not None:
            act(left, right)
        elif chosen.random() < 0.5:
            pairs.forget_left(left)
        else:
            pairs.forget_right(right)
        pairs.check()
    assert {left for left, right in pairs.rows if right == 3} == {*pairs.of_right(3)}


def test_confirms_are_counted_once_each_in_order() -> None:
    first, second = [0] * 4, [0] * 4
    shares = [ExchangeShare(first, 2), ExchangeShare(second, 3)]
    for count, known in ((1, (1, 0)), (3, (2, 2)), (1, (2, 3)), (5, (2, 3))):
        confirm(shares, count)
        assert (first[CONFIRMED], second[CONFIRMED]) == known


def test_a_run_is_counted_by_exchange_and_queue() -> None:
    table = MessageTable()
    for exchange in (b"x", b"y", b"x"):
        table.append(Route(exchange, b"k", False), b"\0\0", b"body")
    pairs = PairCounts(COUNTED)
    count_routes(pairs, "/", 7, Selection(table, 0, 3), CHANNEL)
    count_routes(pairs, "/", 8, Selection(table, 1, 2), None)
    found = {key: row[0] for key, row in pairs.routes.rows.items()}
    assert found == {(("/", "x"), 7): 2, (("/", "y"), 7): 1, (("/", "y"), 8): 1}
    assert pairs.publishers.rows == {(CHANNEL, 7): [3]}
    pairs.forget_queue(7)
    pairs.forget_exchange(("/", "y"))
    assert not pairs.routes.rows and not pairs.publishers.rows


class World:
    """A node with one queue, and one connection of many channels; time is its loop's."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.ms = 0
        counts = MessageCounts(True)
        assert counts.pairs is not None
        self.pairs = counts.pairs
        clock = SimpleNamespace(monotonic_ms=lambda: self.ms, epoch_ms=lambda: self.ms)
        loop = SimpleNamespace(clock=clock, call_later=lambda ms, call: self.calls.append(call))
        queue = SimpleNamespace(name="q", group=5)
        state = SimpleNamespace(groups={5: queue}, queue=lambda vhost, name: queue)
        info = SimpleNamespace(
            name="C", node="n1", user="guest", peer_host="127.0.0.1", peer_port=1
        )
        clients: Any = {2: SimpleNamespace(described=lambda channels: info)}
        cluster: Any = SimpleNamespace(loop=loop, queue_counts=counts)
        definitions: Any = SimpleNamespace(state=state)
        self.sampler = PairSampler(cluster, definitions, clients, 0)

    def opened(self, channels: int) -> list[ChannelKey]:
        keys = [ChannelKey(number, 2, number) for number in range(1, channels + 1)]
        for key in keys:
            self.pairs.opened(key)
            self.pairs.deliveries.row(key, 5)
        return keys

    def look(self) -> int:
        """Have it look at all pairs; return in how many turns."""
        ended: list[int] = []
        self.ms += 1_000
        self.sampler.look(lambda: ended.append(1))
        turns = 1
        while not ended:
            self.calls.pop(0)()
            turns += 1
        return turns

    def asked(self, **given: Any) -> Any:
        found: list[Any] = []
        self.sampler.found(GetPairsRequest(**given), found.append)
        return found[0]


def test_a_look_takes_few_pairs_of_a_turn() -> None:
    world = World()
    world.opened(1_000)
    assert world.look() == 5
    (history,) = [one for one in world.sampler.histories if len(list(one)) == 1_000]
    world.pairs.forget_queue(5)
    world.look()
    assert not list(history), "what has ended is forgotten"


def test_an_answer_about_pairs_is_bounded() -> None:
    world = World()
    for key in world.opened(PAIRS_SHOWN_MAX + 7):
        row = world.pairs.deliveries.row(key, 5)
        assert row is not None
        row[DELIVER] += 10
    world.look()
    found = world.asked(queue="q", samples=True)
    assert len(found) == PAIRS_SHOWN_MAX
    assert len([one for one in found if one.counted.samples]) == PAIRS_SAMPLED_MAX
    (one,) = world.asked(connection="C", channel=3)
    assert (one.kind, one.queue, one.channel.number) == ("deliveries", "q", 3)
    assert one.counted.counts[DELIVER] == 10 and one.counted.rates[DELIVER] == 10
    assert not world.asked(connection="other")


def test_pairs_of_what_has_ended_are_not_shown() -> None:
    world = World()
    (key,) = world.opened(1)
    world.pairs.forget_channel(key)
    assert not world.asked(queue="q") and not world.pairs.channels
