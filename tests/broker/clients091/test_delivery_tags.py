"""The delivery ledger of ranges against a model of single messages."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warren_broker.clients091.delivery_tags import DeliveryLedger, HeldRun, by_consumer
from warren_wire.errors import PreconditionFailed

DELIVERIES = st.tuples(st.just("deliver"), st.integers(1, 3), st.integers(1, 6), st.booleans())
SINGLES = st.tuples(st.just("take"), st.integers(0, 40), st.integers(0, 5), st.just(False))
MULTIPLES = st.tuples(st.just("up_to"), st.integers(0, 40), st.just(0), st.just(False))
BACK = st.tuples(st.just("back"), st.just(0), st.just(0), st.just(False))


def singles(held: Any) -> list[tuple[int, int, int]]:
    """(consumer, msg_id) of every message, with its tag."""
    return [
        (tag, run.consumer, tag + run.offset)
        for run in held
        for tag in range(run.first, run.last + 1)
    ]


@given(st.lists(st.one_of(DELIVERIES, SINGLES, MULTIPLES, BACK), max_size=40))
def test_deliveries(steps: list[tuple[str, int, int, bool]]) -> None:
    ledger = DeliveryLedger()
    dumb: dict[int, tuple[int, int]] = {}
    taken: list[HeldRun] = []
    next_tag, next_msg_id = 1, {1: 0, 2: 0, 3: 0}
    for what, one, two, flag in steps:
        if what == "deliver":
            assert (
                ledger.delivered(one, next_msg_id[one], two, keep=not flag, counted=one != 3)
                == next_tag
            )
            for tag in range(next_tag, next_tag + two):
                if not flag:
                    dumb[tag] = (one, next_msg_id[one] + tag - next_tag)
            next_tag += two
            next_msg_id[one] += two
        elif what == "take":
            held, refusal = ledger.take(one, one + two)
            expected = []
            for tag in range(one, one + two + 1):
                if tag not in dumb:
                    assert refusal is not None
                    assert refusal.detail == f"unknown delivery tag {tag}"
                    break
                expected.append((tag, *dumb.pop(tag)))
            else:
                assert refusal is None
            assert singles(held) == expected
            taken.extend(held)
        elif what == "up_to":
            if one and one not in dumb:
                try:
                    ledger.take_up_to(one)
                except PreconditionFailed:
                    continue
                raise AssertionError("an unknown tag was taken")
            held = ledger.take_up_to(one)
            gone = sorted(tag for tag in dumb if not one or tag <= one)
            assert singles(held) == [(tag, *dumb.pop(tag)) for tag in gone]
            taken.extend(held)
        else:
            dumb.update((tag, (consumer, msg_id)) for tag, consumer, msg_id in singles(taken))
            ledger.put_back(taken)
            taken = []
        if taken and flag:
            for consumer, msg_ids in by_consumer(tuple(sorted(taken, key=lambda run: run.first))):
                ledger.settled(consumer, msg_ids)
            taken = []
        assert set(ledger.holding) == {run.consumer for run in (*ledger.runs, *taken)}
        ledger.check()
        assert singles(ledger.runs) == [(tag, *dumb[tag]) for tag in sorted(dumb)]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), max_size=20), st.integers(0, 100))
def test_grouping_by_consumer(steps: list[tuple[int, int]], up_to: int) -> None:
    ledger = DeliveryLedger()
    next_msg_id = {1: 0, 2: 0, 3: 0}
    for consumer, count in steps:
        ledger.delivered(consumer, next_msg_id[consumer], count, keep=True)
        next_msg_id[consumer] += count
    held = ledger.take_up_to(min(up_to, ledger.next_tag - 1))
    grouped = by_consumer(held)
    assert len({consumer for consumer, _ in grouped}) == len(grouped)
    flat = {
        (consumer, msg_id)
        for consumer, ranges in grouped
        for first, last in ranges
        for msg_id in range(first, last + 1)
    }
    assert flat == {(consumer, msg_id) for _, consumer, msg_id in singles(held)}
    for _, ranges in grouped:
        for (_, before), (after, _) in pairwise(ranges):
            assert before + 1 < after


def test_one_consumer_is_one_run_however_long() -> None:
    ledger = DeliveryLedger()
    for start in range(0, 100_000, 1000):
        ledger.delivered(1, start, 1000, keep=True)
    assert len(ledger.runs) == 1
    for tag in range(100, 100_001, 100):
        (run,) = ledger.take_up_to(tag)
        assert (run.first, run.last) == (tag - 99, tag)
    assert not ledger.runs
