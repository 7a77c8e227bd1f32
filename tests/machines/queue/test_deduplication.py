"""Publisher de-duplication: what is a duplicate, what is remembered, for how long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines.queue.world import Name, Queue, check, named_block
from warren_machines.queue import commands as c
from warren_machines.queue.commands import Configure, Done, Enqueue, Refused
from warren_machines.queue.deduplication import NumberSet
from warren_wire.block.block import compress


class Deduplicating(Queue):
    """A queue that drops duplicates; `taken` names what it took."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(deduplication=True, **settings)

    def publish(self, *names: Name, **shape: Any) -> Any:
        """Publish a block; the reply."""
        return self.do(Enqueue(), named_block(names, **shape), uplink=9)

    def takes(self, *names: Name, **shape: Any) -> list[int]:
        """Publish a block; the ordinals that became ready."""
        before = {place for place in self.ready() if place[0] <= self.index}
        assert type(self.publish(*names, **shape)) is Done
        return sorted(at for index, at in set(self.ready()) - before)


def test_a_duplicate_is_confirmed_dropped_and_counted() -> None:
    queue = Deduplicating()
    assert queue.takes("a", "b") == [0, 1]
    assert queue.takes("b", None, "c", None, "a") == [1, 2, 3]
    stat = queue.stat()
    assert (stat.messages_ready, stat.duplicates_dropped, stat.deduplication_ids) == (5, 2, 3)
    assert queue.takes("c", "c", "a") == [], "a block of duplicates leaves nothing"
    assert queue.stat().duplicates_dropped == 5


def test_sequence_numbers_of_a_producer() -> None:
    queue = Deduplicating()
    assert queue.takes(("p", 1), ("p", 2), ("p", 3), ("q", 2), "1") == [0, 1, 2, 3, 4]
    assert queue.takes(("p", 3), ("p", 4), ("q", 1), ("q", 2), ("r", 0)) == [1, 2, 4]
    assert queue.takes(("p", 9), ("p", 7), ("p", 9), ("p", 5)) == [0, 1, 3], "gaps are no order"
    assert queue.takes(("p", 6), ("p", 7), ("p", 8)) == [0, 2]


def test_ids_within_one_block_and_over_priorities() -> None:
    queue = Deduplicating()
    assert queue.takes("a", "b", "a", None, "b", priorities=[9, 9, 4, 4, 1]) == [0, 1, 3]
    assert queue.takes(("p", 5), ("p", 4), ("p", 5)) == [0, 1]


def test_a_queue_that_does_not_ask_takes_everything() -> None:
    queue = Queue()
    for _ in range(2):
        queue.do(Enqueue(), named_block(["a", "a", ("p", 1)]), uplink=9)
    stat = queue.stat()
    assert (stat.messages_ready, stat.duplicates_dropped, stat.deduplication_ids) == (6, 0, 0)


@pytest.mark.parametrize("form", ["id", "sequence"])
def test_the_window_ends_exactly(form: str) -> None:
    def name(at: int) -> Name:
        return str(at) if form == "id" else ("p", at)

    queue = Deduplicating(deduplication_window=3)
    for at in range(3):
        queue.publish(name(at))
    assert queue.takes(name(0)) == [], "the third before the next one"
    assert queue.takes(name(3)) == [0]
    assert queue.takes(name(1)) == []
    assert queue.takes(name(0)) == [0], "three others came since"
    assert queue.takes(name(1)) == [0] and queue.takes(name(3)) == []


def test_a_block_counts_as_its_messages_one_by_one() -> None:
    queue = Deduplicating(deduplication_window=2)
    queue.publish("a", "b")
    assert queue.takes("c", "a", "b", "b", "a") == [0, 1, 2]
    assert queue.takes("c", "a") == [0, 1] and queue.stat().deduplication_ids == 2


def test_an_id_is_remembered_for_its_time() -> None:
    queue = Deduplicating(deduplication_ttl_ms=1000)
    queue.publish("a", ("p", 1))
    queue.now += 999
    assert queue.takes("a", ("p", 1)) == []
    queue.now += 1
    assert queue.takes("a", ("p", 1)) == [0, 1], "a duplicate does not renew it"


def test_times_near_each_other_are_one_and_the_last_of_them_counts() -> None:
    queue = Deduplicating(deduplication_ttl_ms=10_240_000)
    for at in range(100):
        queue.publish(str(at))
        queue.now += 100
    assert len(queue.state.seen.times) == 1
    queue.now += 10_240_000 - 100 * 100
    assert queue.takes("0") == [], "at most a thousandth longer"
    queue.now += 9_900
    assert queue.takes("0") == [0]


def test_what_becomes_of_a_message_does_not_matter() -> None:
    queue = Deduplicating(max_length=2, message_ttl_ms=1000)
    queue.publish("a", "b", "c")
    assert queue.stat().messages_ready == 2, "drop-head"
    assert queue.takes("a") == []
    queue.do(c.Purge())
    assert queue.takes("b", "c") == []
    queue.publish("d")
    queue.now += 1000
    queue.tick(0)
    assert queue.stat().messages_ready == 0 and queue.takes("d") == []


def test_a_message_that_the_limit_refuses_leaves_no_id() -> None:
    queue = Deduplicating(max_length=2, overflow="reject-publish")
    queue.publish("a")
    reply = queue.publish("a", "b", "c", "b", ("p", 1))
    assert isinstance(reply, Refused) and (reply.reason, reply.accepted) == ("queue_full", 2)
    assert queue.stat().duplicates_dropped == 1, "those behind the refused one count as refused"
    assert type(queue.publish("a")) is Done, "a duplicate is confirmed by a full queue, too"
    reply = queue.publish("b", "c")
    assert isinstance(reply, Refused) and reply.accepted == 1
    queue.do(c.Purge())
    assert queue.takes("c", "b", ("p", 1)) == [0, 2]


def test_a_refusal_does_not_end_the_memory_of_older_ids() -> None:
    queue = Deduplicating(max_length=2, overflow="reject-publish", deduplication_window=2)
    queue.publish("a", "b")
    queue.publish("c", "d")
    assert type(queue.publish("a", "b")) is Done


def test_a_policy_may_end_it_begin_it_and_change_the_window() -> None:
    queue = Deduplicating()
    queue.publish("a", "b", ("p", 1), "c")
    queue.do(Configure(queue.reconfigured(deduplication_window=2)))
    assert queue.takes("c", ("p", 1), "a") == [2]
    queue.do(Configure(queue.reconfigured(deduplication=False)))
    assert queue.stat().deduplication_ids == 0
    queue.publish("c")
    queue.do(Configure(queue.reconfigured(deduplication=True)))
    assert queue.takes("c") == [0] and queue.takes("c") == []


def test_compressed_blocks_are_read() -> None:
    queue = Deduplicating()
    data = compress(named_block(["a" * 40, "b" * 40] * 20, size=200))
    assert data[7], "not compressed"
    queue.do(Enqueue(), data, uplink=9)
    assert (queue.stat().messages_ready, queue.stat().duplicates_dropped) == (2, 38)


def test_consumers_get_no_duplicate_and_the_block_leaves_the_log() -> None:
    queue = Deduplicating()
    queue.do(c.Checkout(1, 1, "t", 10, no_ack=True))
    queue.publish("a", "b", "a", "c")
    assert [at for _, at in queue.names()] == [0, 1, 3]
    queue.do(c.Credit(1, 3, 0))
    assert not len(list(queue.machine.live_indexes(queue.state)))
    queue.publish("a", "a")
    assert queue.names() == [] and not len(list(queue.machine.live_indexes(queue.state)))


class Model:
    """A list of ids that is searched from the front."""

    def __init__(self, window: int, ttl_ms: int) -> None:
        self.window, self.ttl_ms = window, ttl_ms
        self.known: list[tuple[Name, int]] = []
        self.dropped = 0

    def take(self, names: Sequence[Name], now: int) -> list[int]:
        taken = []
        self.known = [(name, at) for name, at in self.known if at + self.ttl_ms > now]
        for ordinal, name in enumerate(names):
            if name is not None and name in [known for known, _ in self.known]:
                self.dropped += 1
                continue
            taken.append(ordinal)
            if name is not None:
                self.known = [*self.known, (name, now)][-self.window :]
        return taken


@pytest.mark.parametrize("seed", range(60))
def test_the_machine_agrees_with_a_list_of_ids(seed: int) -> None:
    random = Random(seed)
    window, ttl_ms = random.choice((1, 2, 5, 30)), random.choice((40, 300))
    settings = {"deduplication_window": window, "deduplication_ttl_ms": ttl_ms}
    queue, model = Deduplicating(**settings), Model(window, ttl_ms)

    def a_name() -> Name:
        kind = random.random()
        if kind < 0.1:
            return None
        if kind < 0.5:
            return str(random.randint(0, 12))
        return random.choice("pq"), random.randint(0, 20)

    for _ in range(40):
        names = [a_name() for _ in range(random.randint(1, 6))]
        if random.random() < 0.4:
            first = random.randint(0, 20)
            names += [("p", at) for at in range(first, first + random.randint(1, 8))]
        queue.now += random.choice((0, 0, 3, 20, 100))
        expected = model.take(names, queue.now)
        assert queue.takes(*names) == expected, names
        assert queue.stat().duplicates_dropped == model.dropped
        if random.random() < 0.2:
            queue.state = queue.machine.restore(queue.digest())
            check(queue.state)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_set_of_numbers_is_a_set(data: st.DataObject) -> None:
    known, plain = NumberSet(), set[int]()
    number = st.integers(0, 400)
    for _ in range(data.draw(st.integers(1, 8))):
        free = [one for one in range(400) if one not in plain]
        some = data.draw(st.lists(st.sampled_from(free), unique=True, max_size=60)) if free else []
        known.add_all([(one, one) for one in some])
        plain.update(some)
        if plain:
            held = st.sampled_from(sorted(plain))
            gone = data.draw(st.lists(held, unique=True, max_size=60))
            known.remove_all([(one, one) for one in gone])
            plain.difference_update(gone)
        if data.draw(st.booleans()):
            floor = data.draw(number)
            known.remove_below(floor)
            plain = {one for one in plain if one >= floor}
        ranges = known.ranges()
        assert [one for first, last in ranges for one in range(first, last + 1)] == sorted(plain)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))
        assert [one in known for one in range(400)] == [one in plain for one in range(400)]
