"""What a leader judges by filters of consumers: in pieces, each once, past what it cannot read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.machines.queue.world import Queue
from warren_broker.cluster.leader import filter_scans
from warren_broker.cluster.leader.filter_scans import FilterScans
from warren_machines.message_filter.definition import MessageFilter, encode_filter
from warren_machines.message_filter.evaluator import Evaluator
from warren_machines.queue import commands as c
from warren_machines.queue.effects import FiltersBehind
from warren_machines.queue.filters import filters
from warren_machines.queue.filters.filter_commands import Judge
from warren_machines.queue.ready import backlog
from warren_raft.storage.errors import EntryDamaged
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block, BlockError, encode

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
        self.set_aside: list[str] = []
        self.now_ms = 0
        cluster = SimpleNamespace(
            loop=SimpleNamespace(
                call_soon=self.calls.append,
                clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms),
            ),
            set_aside=SimpleNamespace(attempt=self.attempt),
            host=SimpleNamespace(
                state=lambda group: self.queue.state,
                repair=SimpleNamespace(when=lambda group, index, call: self.healing.append(call)),
            ),
            stored=SimpleNamespace(read=self.read),
        )
        told: Any = cluster
        self.scans = FilterScans(told, lambda _, one: self.proposed.append(one), {GROUP})

    def attempt(self, group: int, where: str, call: Any, *args: Any) -> bool:
        try:
            call(*args)
        except Exception:
            self.set_aside.append(where)
            return False
        return True

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

    def consume(self, text: bytes = EVEN, consumer: int = 1) -> None:
        self.queue.do(c.Checkout(consumer, consumer, "t", 100, filter=text))
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
    assert scanned.queue.names() == []
    for _ in range(3):
        scanned.scans.due(GROUP, FiltersBehind())
        assert scanned.turn() == []
    assert len(scanned.healing) == 1, "it is waited for once, however often the queue asks"
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


@pytest.fixture
def slow(scanned, monkeypatch) -> Scanned:
    """Each question takes as many milliseconds as its message's number says."""
    matches = Evaluator.matches

    def asked(self: Evaluator, block: Block, at: int) -> bool:
        headers = properties.decode(block.properties(at)).headers
        assert headers is not None
        scanned.now_ms += headers["n"]
        return matches(self, block, at)

    monkeypatch.setattr(Evaluator, "matches", asked)
    return scanned


def test_questions_that_take_long_hold_up_the_loop_for_one_turn_only(slow):
    first = slow.put(*[1_000] * 5)
    second = slow.put(*[2] * 50)
    slow.consume()
    turns, longest = 0, 0
    while slow.queue.state.filters.behind():
        began = slow.now_ms
        slow.apply(*slow.turn())
        turns, longest = turns + 1, max(longest, slow.now_ms - began)
        assert turns < 100
    assert longest <= 1_000 + filter_scans.TURN_MS, "one message is not interrupted"
    assert slow.queue.names() == [
        *((first, at) for at in range(5)),
        *((second, at) for at in range(50)),
    ]


def test_a_filter_that_takes_long_does_not_keep_another_from_its_turn(scanned, monkeypatch):
    """1. A filter takes a second for each message.  2. Another one comes to the queue after it."""
    matches = Evaluator.matches
    heavy = encode_filter(MessageFilter(("n % 2 = 1",)))

    def asked(self: Evaluator, block: Block, at: int) -> bool:
        if self is filter_scans._evaluator(heavy):
            scanned.now_ms += 1_000
        return matches(self, block, at)

    monkeypatch.setattr(Evaluator, "matches", asked)
    index = scanned.put(*range(200))
    scanned.consume(heavy)
    scanned.consume(consumer=2)
    for _ in range(4):
        scanned.apply(*scanned.turn())
    assert scanned.queue.names(2) == [(index, at) for at in range(0, 200, 2)]


def test_queues_take_turns(scanned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [8, 9, 10]
    begun: list[int] = []

    def piece(self: FilterScans, group: int, until: int) -> None:
        begun.append(group)
        scanned.now_ms = until

    monkeypatch.setattr(FilterScans, "_piece", piece)
    for group in (GROUP, *others):
        scanned.scans.due(group, FiltersBehind())
    for count in range(1, 5):
        scanned.turn()
        assert len(begun) == count
    assert begun == [GROUP, *others] and not scanned.calls


def test_a_message_that_cannot_be_asked_about_matches_nothing(scanned, monkeypatch):
    matches = Evaluator.matches

    def asked(self: Evaluator, block: Block, at: int) -> bool:
        if at == 1:
            raise AssertionError("a bug")
        return matches(self, block, at)

    monkeypatch.setattr(Evaluator, "matches", asked)
    index = scanned.put(2, 4, 6)
    scanned.consume()
    scanned.apply(*scanned.turn())
    assert scanned.queue.names() == [(index, 0), (index, 2)]
    assert len(scanned.set_aside) == 1 and not scanned.queue.state.filters.behind()


def test_a_search_is_continued_by_another_entry(scanned, monkeypatch):
    monkeypatch.setattr(filters, "SEARCH_STEPS", 1)
    monkeypatch.setattr(backlog, "CHUNK_RUNS_MAX", 2)
    for number in (1, 3, 5, 7, 9, 11, 12):
        scanned.put(number)
    scanned.queue.do(c.Checkout(1, 1, "t", explicit_credit=True, filter=EVEN))
    scanned.tell()
    scanned.apply(*scanned.turn())
    scanned.queue.do(c.Credit(1, 0, 1))
    scanned.tell()
    entries = 0
    while proposed := scanned.turn():
        assert proposed == [Judge(())]
        scanned.apply(*proposed)
        entries += 1
    assert entries == 3 and scanned.queue.names() == [(7, 0)]
