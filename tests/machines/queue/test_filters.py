"""Filters of consumers in the queue's machine: what is given, what waits, what is forgotten."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.machines.queue.world import Queue
from warren_machines.queue import commands as c
from warren_machines.queue.effects import DeadLetter, FiltersBehind
from warren_machines.queue.filters import filters as filters_module
from warren_machines.queue.filters.filter_commands import Judge, Judged, NotYet
from warren_machines.queue.filters.filters import Filter, FilterSearch
from warren_machines.queue.ready import backlog, returned_runs
from warren_machines.queue.ready.backlog import Backlog
from warren_machines.queue.ready.returned_runs import ReturnedRuns
from warren_machines.queue.relays import relays
from warren_raft.index_set import PAGE_BITS
from warren_wire.queue_values.give_up_command import GiveUpClaim

EVEN = b"even"


def consume(queue: Queue, consumer: int, text: bytes = EVEN, **how: Any) -> Any:
    """A consumer with explicit credit, none of it yet."""
    return queue.do(c.Checkout(consumer, 1, "t", explicit_credit=True, filter=text, **how))


def judge(queue: Queue, text: bytes = EVEN, to: int | None = None) -> None:
    """What a leader does: messages with an even ordinal match."""
    (one,) = [one for one in queue.state.filters if one.text == text]
    upper = queue.state.filters.newest if to is None else to
    live = [i for i in queue.state.contents.indexes() if one.judged < i <= upper]
    parts = tuple((index, b"\x55\x55") for index in live)
    queue.do(Judge((Judged(one.id, one.judged, upper, (), parts),)), uplink=8)


def test_a_consumer_gets_what_matches_and_the_rest_stays_in_order_for_others() -> None:
    queue = Queue()
    first = queue.put(6)
    consume(queue, 1)
    queue.do(c.Credit(1, 0, 10))
    assert queue.names(1) == [] and queue.of(FiltersBehind)
    judge(queue)
    assert queue.names(1) == [(first, 0), (first, 2), (first, 4)]
    assert not queue.of(FiltersBehind)
    assert queue.state.find(1, 1).credit == 7  # type: ignore[union-attr]
    second = queue.put(2)
    assert queue.names(1) == []
    queue.do(c.Checkout(2, 1, "t", 10))
    assert queue.got(2) == [
        (number, *name, 0, 0)
        for number, name in enumerate(
            [(first, 1), (first, 3), (first, 5), (second, 0), (second, 1)]
        )
    ]


def test_a_message_that_comes_back_is_given_to_a_consumer_whose_filter_it_matches() -> None:
    queue = Queue(delayed_retry_type="failed", delayed_retry_min_ms=10)
    index = queue.put(3)
    queue.do(c.Checkout(2, 1, "t", 10))
    consume(queue, 1)
    queue.do(c.Credit(1, 0, 10))
    judge(queue)
    assert queue.names(1) == [] and queue.names(2) == [(index, 0), (index, 1), (index, 2)]
    queue.do(c.Cancel(2))
    queue.do(c.Return(2, ((0, 1),), False))
    assert queue.got(1) == [(0, index, 0, 0, 1)]
    queue.do(c.Return(2, ((2, 2),), True))
    queue.tick(10)
    assert queue.got(1) == [(1, index, 2, 1, 1)]
    assert queue.ready() == [(index, 1)]


def test_a_drain_waits_for_what_was_there_and_for_nothing_that_came_later() -> None:
    queue = Queue()
    first = queue.put(2)
    consume(queue, 1)
    assert queue.do(c.Credit(1, 0, 5, True)) == NotYet()
    queue.put(2)
    assert queue.do(c.Credit(1, 0, 5, True)) == NotYet()
    judge(queue, to=first)
    assert queue.names(1) == [(first, 0)]
    assert queue.do(c.Credit(1, 0, 5, True)) == c.Count(1)
    judge(queue)
    assert queue.names(1) == []


def test_a_priority_that_arrives_all_the_time_does_not_hold_up_the_lower_ones() -> None:
    """1. Messages of high priority arrive all the time; what a filter says of each comes one round
    later.  2. Were one of low priority to wait until all of them are judged, it would wait forever.
    """
    queue = Queue()
    consume(queue, 1)
    queue.do(c.Credit(1, 0, 10))
    low = queue.put(2, priorities=0)
    high = queue.put(2, priorities=9)
    judge(queue, to=low)
    assert queue.names(1) == [(low, 0)]
    judge(queue)
    assert queue.names(1) == [(high, 0)]


def test_of_a_backlog_the_higher_priority_comes_first() -> None:
    queue = Queue()
    low, high = queue.put(1, priorities=0), queue.put(1, priorities=9)
    consume(queue, 1)
    queue.do(c.Credit(1, 0, 10))
    judge(queue, to=low)
    assert queue.names(1) == []
    judge(queue)
    assert queue.names(1) == [(high, 0), (low, 0)]


def test_a_relay_has_no_filter_and_what_is_kept_for_one_is_judged() -> None:
    """What a relay gives up comes back to consumers with filters, judged while it was kept."""
    queue = Queue()
    index = queue.put(4)
    queue.do(c.Checkout(2, 2, "t", 9, relay="away", origin=7))
    assert consume(queue, 1, relay="away").reason == "invalid"
    queue.do(c.Checkout(2, 2, "t", 9, filter=EVEN))
    assert not queue.state.filters, "a change of a relay's consumer is refused, too"
    consume(queue, 1)
    queue.do(c.Credit(1, 0, 10))
    queue.do(c.SessionDown(2, False))
    judge(queue)
    assert queue.state.relays["away"].kept_count == 4 and queue.names(1) == []
    queue.tick(relays.KEPT_MS)
    assert queue.names(1) == [(index, 0), (index, 2)]
    assert queue.ready() == [(index, 1), (index, 3)]


def test_parts_of_a_claim_that_was_given_up_are_for_its_reader() -> None:
    """A filter neither takes what a divided claim holds, nor misses what comes back from it."""
    queue = Queue()
    index = queue.put(4)
    consume(queue, 1)
    queue.do(c.RegisterReader("r"))
    epoch = queue.state.readers["r"].epoch
    queue.do(c.OpenClaim("r", 1, epoch, 4, 10**6, 9000))
    queue.do(GiveUpClaim("r", 1, epoch, "divide", 3))
    queue.do(c.Credit(1, 0, 10))
    judge(queue)
    assert queue.names(1) == [] and queue.state.readers["r"].parts
    queue.do(c.SettleClaims("r", 1, epoch))
    queue.do(c.OpenClaim("r", 2, epoch, 1, 10**6, 9000))
    queue.do(GiveUpClaim("r", 2, epoch, "release", 3))
    assert queue.names(1) == [(index, 0)] and queue.ready() == [(index, 1)]
    queue.do(c.ReleaseClaim("r", 0, -1))
    assert queue.names(1) == [(index, 2)] and queue.ready() == [(index, 1), (index, 3)]


def test_one_filter_is_shared_and_ends_with_its_last_consumer() -> None:
    queue = Queue()
    indexes = [queue.put(1) for _ in range(3)]
    consume(queue, 1)
    judge(queue)
    consume(queue, 2)
    queue.do(c.Credit(2, 0, 1))
    assert queue.names(2) == [(indexes[0], 0)]
    queue.do(c.Cancel(1))
    assert len(queue.state.filters) == 1
    queue.do(c.SessionDown(1))
    assert not queue.state.filters and not queue.of(FiltersBehind)
    consume(queue, 3)
    (again,) = queue.state.filters
    assert (again.id, again.judged) == (2, 0)


def test_what_was_judged_for_an_older_filter_changes_nothing() -> None:
    queue = Queue()
    queue.put(2)
    consume(queue, 1)
    consume(queue, 2, b"other")
    queue.do(c.Credit(2, 0, 9))
    newest = queue.state.filters.newest
    queue.do(Judge((Judged(1, 0, newest, (newest,)),)), uplink=8)
    for after in (1, newest):
        queue.do(Judge((Judged(2, after, newest + 1, (newest,)),)), uplink=8)
    queue.do(Judge((Judged(77, 0, newest, (newest,)),)), uplink=8)
    assert queue.names(2) == []
    assert [one.judged for one in queue.state.filters] == [newest, 0]


def test_one_filter_too_many_is_refused_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filters_module, "FILTERS_MAX", 2)
    queue = Queue()
    assert consume(queue, 1, b"a") == consume(queue, 2, b"b") == consume(queue, 3, b"a") == c.Done()
    refused = consume(queue, 4, b"c")
    assert refused.reason == "filters_full" and "different filters" in refused.detail
    assert queue.state.consumer_count == 3 and queue.state.find(1, 4) is None


def test_with_a_single_active_consumer_its_filter_decides() -> None:
    queue = Queue(single_active_consumer=True)
    index = queue.put(3)
    consume(queue, 1)
    queue.do(c.Checkout(2, 2, "t", 10))
    queue.do(c.Credit(1, 0, 10))
    judge(queue)
    assert queue.names(1) == [(index, 0), (index, 2)] and queue.names(2) == []
    queue.do(c.Cancel(1))
    assert queue.names(2) == [(index, 1)]


def test_an_expired_match_is_dropped_and_not_given() -> None:
    queue = Queue(dead_letter_exchange="dlx")
    index = queue.put(4, ttls_ms=[None, None, 20, None])
    consume(queue, 1)
    judge(queue)
    queue.now += 30
    queue.do(c.Credit(1, 0, 10))
    assert queue.names(1) == [(index, 0)]
    assert [(effect.reason, effect.runs) for effect in queue.of(DeadLetter)] == [
        ("expired", ((index, 2, 2),))
    ]


def test_a_time_to_live_of_zero_ends_before_a_filter_is_asked() -> None:
    queue = Queue(dead_letter_exchange="dlx")
    consume(queue, 1)
    queue.do(c.Credit(1, 0, 10))
    queue.put(1, ttls_ms=[0])
    assert [effect.reason for effect in queue.of(DeadLetter)] == ["expired"]
    judge(queue)
    assert queue.names(1) == []


def test_equal_consumers_with_a_filter_take_turns() -> None:
    queue = Queue()
    for consumer in (1, 2):
        consume(queue, consumer)
        queue.do(c.Credit(consumer, 0, 100))
    given: list[int] = []
    for _ in range(6):
        index = queue.put(1)
        judge(queue)
        (to,) = [one for one in (1, 2) if queue.names(one) == [(index, 0)]]
        given.append(to)
    assert given in ([1, 2] * 3, [2, 1] * 3)


def test_blocks_that_have_left_are_forgotten() -> None:
    queue = Queue(stride=400)
    consume(queue, 1)
    for _ in range(3 * filters_module._SWEEP_MIN):
        queue.put(2)
        judge(queue)
        queue.do(c.Purge())
    (one,) = queue.state.filters
    assert one._size <= filters_module._SWEEP_MIN + 1
    assert not one.dump(queue.state.contents)


# ---------------------------------------------------------------- the middle of a list


def a_filter(bits: dict[int, int], number: int = 1) -> Filter:
    """A filter that has judged the blocks of these bits."""
    one = Filter(number, b"x", 1 << 40, 0)
    pages = sorted({index >> PAGE_BITS for index in bits})
    one.load(
        (
            page,
            b"",
            [(i, said.to_bytes(4, "little")) for i, said in bits.items() if i >> PAGE_BITS == page],
        )
        for page in pages
    )
    return one


@pytest.mark.parametrize("seed", range(40))
def test_a_backlog_gives_what_matches_from_its_middle(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(backlog, "CHUNK_RUNS_MAX", random.choice((4, 6, 50)))
    monkeypatch.setattr(backlog, "_OPEN_MAX", random.choice((1, 3)))
    indexes = sorted(random.sample(range(1, 9000), 60))
    bits = {index: random.choice((0, 0, 1, 0b1011, 0xFF)) for index in indexes}
    wanted, other = a_filter(bits), a_filter({i: b >> 1 for i, b in bits.items()}, 2)
    list_of, plain = Backlog(), []
    late = [indexes.pop(random.randrange(len(indexes))) for _ in range(8)]
    to_come = [*indexes, *late] if random.random() < 0.5 else indexes + sorted(late)
    for _ in range(400):
        deed = random.random()
        if deed < 0.25 and to_come:
            run = (to_come.pop(0), 0, random.choice((0, 7, 12)))
            list_of.append(run)
            plain += [(run[0], at) for at in range(run[2] + 1)]
        elif deed < 0.3 and plain:
            index, first, last = list_of.popleft()
            plain = plain[last - first + 1 :]
        elif deed < 0.32 and plain and list_of.tail()[0] > 8900:
            index, first, last = list_of.pop()
            plain = plain[: -(last - first + 1)]
        else:
            one = random.choice((wanted, other))
            found = list_of.find(one, FilterSearch(0, 1 << 30))
            matching = [name for name in plain if one.matching(*name, name[1])]
            if found is None:
                assert not matching
            else:
                assert not isinstance(found, int)
                place, (index, first, last) = found
                count = last - first + 1
                assert matching[:count] == [(index, at) for at in range(first, last + 1)]
                last = random.randint(first, last)
                list_of.cut(place, first, last)
                plain = [n for n in plain if not (n[0] == index and first <= n[1] <= last)]
        list_of.check()
        assert [(i, at) for i, low, high in list_of for at in range(low, high + 1)] == plain


@pytest.mark.parametrize("seed", range(20))
def test_what_came_back_gives_what_matches_from_its_middle(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(returned_runs, "LEAF_ROWS_MAX", random.choice((2, 3, 512)))
    bits = {index: random.choice((0, 1, 0b1011, 0xFF)) for index in range(1, 80)}
    wanted = a_filter(bits)
    runs, plain = ReturnedRuns(), []
    for index in random.sample(range(1, 80), 79):
        if random.random() < 0.5:
            run = (index, 0, random.choice((0, 7)), 0, index % 2)
            runs.append(run)
            plain += [(index, at) for at in range(run[2] + 1)]
        if random.random() < 0.3 and plain:
            index, first, last, *_ = runs.take(3)
            plain = plain[last - first + 1 :]
        found = runs.find(wanted, FilterSearch(0, 1 << 30))
        matching = [name for name in plain if wanted.matching(*name, name[1])]
        if found is None:
            assert not matching
        elif random.random() < 0.7:
            assert not isinstance(found, int)
            place, (index, first, last, *_) = found
            last = random.randint(first, last)
            assert (index, first) == matching[0]
            runs.cut(place, first, last)
            plain = [n for n in plain if not (n[0] == index and first <= n[1] <= last)]
        assert [(i, at) for i, low, high, *_ in runs for at in range(low, high + 1)] == plain
