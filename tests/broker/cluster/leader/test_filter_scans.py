"""What a leader judges by filters of consumers: in pieces, each once, past what it cannot read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.queue.world import Queue
from warren_broker.amqp091.wire import properties
from warren_broker.block.block import Block, BlockError, encode
from warren_broker.cluster.leader import filter_scans
from warren_broker.cluster.leader.filter_scans import FilterScans
from warren_broker.message_filter.definition import MessageFilter, encode_filter
from warren_broker.queue import commands as c
from warren_broker.queue.effects import FiltersBehind
from warren_broker.queue.filter_commands import Judge
from warren_raft.storage.errors import EntryDamaged

GROUP = 7
EVEN = encode_filter(MessageFilter(("n % 2 = 0",)))


class Scanned:
    """A queue and its leader's scans; calls and proposals wait until they are asked for."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.calls: list[Any] = []
        self.proposed: list[Judge] = []
        self.blocks: dict[int, Block | Exception] = {}
        self.healing: list[Any] = []
        cluster = SimpleNamespace(
            loop=SimpleNamespace(call_soon=self.calls.append),
            host=SimpleNamespace(
                state=lambda group: self.queue.state,
                repair=SimpleNamespace(when=lambda group, index, call: self.healing.append(call)),
            ),
            stored=SimpleNamespace(read=self.read),
        )
        told: Any = cluster
        self.scans = FilterScans(told, lambda _, one: self.proposed.append(one), {GROUP})

    def read(self, group: int, index: int) -> Block:
        found = self.blocks[index]
        if isinstance(found, Exception):
            raise found
        return found

    def put(self, *numbers: int) -> int:
        heads = [
            properties.encode(properties.Properties(headers={"n": number})) for number in numbers
        ]
        data = encode([b"x"] * len(numbers), heads, (b"", b"q"), 4)
        self.queue.do(c.Enqueue(), data, uplink=9)
        self.blocks[self.queue.index] = Block.decode(data)
        self.tell()
        return self.queue.index

    def tell(self) -> None:
        for effect in self.queue.of(FiltersBehind):
            self.scans.due(GROUP, effect)

    def turn(self) -> list[Judge]:
        """One turn of the loop; what was proposed in it."""
        calls, self.proposed[:] = self.calls[:], []
        self.calls.clear()
        for call in calls:
            call()
        return list(self.proposed)

    def apply(self, *judged: Judge) -> None:
        for one in judged:
            self.queue.do(one, uplink=8)
            self.tell()

    def consume(self, text: bytes = EVEN) -> None:
        self.queue.do(c.Checkout(1, 1, "t", 100, filter=text))
        self.tell()


@pytest.fixture
def scanned() -> Scanned:
    return Scanned()


def test_a_backlog_is_judged_in_pieces_and_one_is_under_way(scanned, monkeypatch):
    monkeypatch.setattr(filter_scans, "PIECE_MESSAGES", 4)
    indexes = [scanned.put(number, number + 1) for number in range(0, 10, 2)]
    scanned.consume()
    (first,) = scanned.turn()
    assert (first.judged[0].after, first.judged[0].to) == (0, indexes[1])
    scanned.scans.due(GROUP, FiltersBehind())
    assert scanned.turn() == [], "the piece is under way"
    scanned.apply(first)
    assert scanned.queue.names() == [(indexes[0], 0), (indexes[1], 0)]
    (second,) = scanned.turn()
    scanned.apply(second, first, second)
    (third,) = scanned.turn()
    scanned.apply(third)
    assert scanned.queue.names() == [(index, 0) for index in indexes[2:]]
    assert scanned.turn() == [] and not scanned.queue.state.filters.behind()


def test_a_new_leader_begins_where_the_machine_is(scanned):
    index = scanned.put(2)
    scanned.consume()
    lost = scanned.turn()
    assert lost
    assert scanned.queue.machine.leader_effects(scanned.queue.state) == (FiltersBehind(),)
    scanned.scans.forget(GROUP)
    scanned.scans.due(GROUP, FiltersBehind())
    scanned.apply(*scanned.turn(), *lost)
    assert scanned.queue.names() == [(index, 0)]


def test_a_damaged_entry_is_waited_for_and_one_that_cannot_be_read_matches_nothing(scanned):
    first, second, third = scanned.put(2), scanned.put(4), scanned.put(6)
    whole = scanned.blocks[second]
    scanned.blocks[first] = BlockError("cut off")
    scanned.blocks[second] = EntryDamaged("wal", 0, "a test", GROUP, second, 0, 1)
    scanned.consume()
    scanned.apply(*scanned.turn())
    assert scanned.queue.names() == [] and len(scanned.healing) == 1
    assert scanned.turn() == [] or scanned.healing
    scanned.blocks[second] = whole
    scanned.healing.pop(0)()
    scanned.apply(*scanned.turn())
    assert scanned.queue.names() == [(second, 0), (third, 0)]
    assert scanned.queue.ready() == [(first, 0)]


def test_a_filter_of_a_later_version_matches_nothing_here(scanned):
    scanned.put(2)
    scanned.consume(b"\xc1")
    scanned.apply(*scanned.turn())
    assert scanned.queue.names() == [] and not scanned.queue.state.filters.behind()
