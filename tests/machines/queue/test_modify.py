"""The modified outcome: annotations that stay with a message, and a time that it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.world import Queue, config
from warren_machines.queue import commands as c
from warren_machines.queue.annotations import ANNOTATIONS_BYTES_MAX
from warren_machines.queue.commands import Modify, Pairs
from warren_machines.queue.effects import DeadLetter, Deliver, SetTimer

HELD = ((0, 0),)


def holding(count: int = 1, **settings: Any) -> Queue:
    """Consumer 1 holds every message of block 1."""
    queue = Queue(config(**settings))
    queue.put(count)
    queue.do(c.Checkout(1, 1, "t", 100))
    queue.got()
    return queue


def annotated(queue: Queue) -> list[tuple[int, Pairs]]:
    """What the deliveries of the last entry are annotated with, by msg_id."""
    return [
        note
        for effect in queue.effects
        if isinstance(effect, Deliver)
        for delivery in effect.deliveries
        for note in delivery.annotations
    ]


@pytest.mark.parametrize("failed", [True, False])
def test_a_modified_message_comes_back_with_its_annotations_and_counts(failed: bool) -> None:
    queue = holding(3)
    queue.do(Modify(1, ((1, 1),), failed, annotations=(("x-opt-a", b"\x54\x01"),)))
    assert queue.got() == [(3, 1, 1, int(failed), 1)]
    assert annotated(queue) == [(3, (("x-opt-a", b"\x54\x01"),))]


def test_annotations_are_merged_and_stay_whatever_returns_the_message() -> None:
    queue = holding()
    queue.do(Modify(1, HELD, annotations=(("x-a", b"1"), ("x-b", b"1"))))
    queue.do(Modify(1, ((1, 1),), annotations=(("x-b", b"2"), ("x-c", b"2"))))
    merged = (("x-a", b"1"), ("x-b", b"2"), ("x-c", b"2"))
    assert annotated(queue) == [(2, merged)]
    queue.do(c.Return(1, ((2, 2),), False))
    assert annotated(queue) == [(3, merged)]
    queue.do(c.Resume(1, 3))
    assert annotated(queue) == [(3, merged)]
    queue.do(c.SessionDown(1))
    reply = queue.do(c.Get(2, 2))
    assert reply.delivery.annotations == ((0, merged),)
    queue.state = queue.machine.restore(queue.digest())
    queue.do(c.SessionDown(2))
    queue.do(c.Checkout(3, 3, "t", 1))
    assert annotated(queue) == [(0, merged)]


@pytest.mark.parametrize(
    "leave",
    [
        c.Settle(1, ((1, 1),)),
        c.Discard(1, ((1, 1),)),
        Modify(1, ((1, 1),), discard=True),
        c.Delete(),
    ],
)
def test_a_message_that_leaves_leaves_no_annotations(leave: c.AnyCommand) -> None:
    queue = holding(2)
    queue.do(Modify(1, HELD, annotations=(("x-a", b"1"),)))
    queue.do(c.Settle(1, ((2, 2),)))
    queue.do(leave)
    queue.do(c.Settle(1, ((2, 2),)))
    assert not queue.state.annotations


def test_a_purge_and_a_claim_leave_no_annotations() -> None:
    queue = holding(2)
    queue.do(c.Cancel(1))
    queue.do(Modify(1, ((0, 0), (1, 1)), annotations=(("x-a", b"1"),)))
    queue.do(c.RegisterReader("r"))
    queue.do(c.OpenClaim("r", 1, 1, 1, 10**6))
    assert len(queue.state.annotations.blocks[1]) == 2
    queue.do(c.Purge())
    assert list(queue.state.annotations.blocks[1]) == [0]
    queue.do(c.SettleClaims("r", 1, 1))
    assert not queue.state.annotations


@pytest.mark.specification("quorum-queues: The x-opt-delivery-time annotation")
def test_the_time_overrides_the_delay_of_delayed_retry_whether_longer_or_shorter() -> None:
    for wait_ms in (5, 100_000):
        queue = holding(
            delayed_retry_type="all", delayed_retry_min_ms=1000, delayed_retry_max_ms=9000
        )
        queue.do(Modify(1, HELD, True, ready_ms=queue.now + wait_ms))
        assert queue.state.delayed.next_ms == queue.now + wait_ms
        assert SetTimer(queue.now + wait_ms) in queue.effects
        queue.tick(wait_ms - 1)
        assert queue.got() == []
        queue.tick(1)
        assert queue.got() == [(1, 1, 0, 1, 1)]


@pytest.mark.parametrize("ago_ms", [0, 1, 10**6])
def test_a_time_that_is_over_leaves_it_to_delayed_retry(ago_ms: int) -> None:
    queue = holding()
    queue.do(Modify(1, HELD, ready_ms=queue.now - ago_ms))
    assert queue.got() == [(1, 1, 0, 0, 1)]
    queue = holding(delayed_retry_type="all", delayed_retry_min_ms=1000)
    queue.do(Modify(1, HELD, ready_ms=queue.now - ago_ms))
    assert queue.state.delayed.next_ms == queue.now + 1000


def test_the_time_is_in_the_snapshot_and_needs_no_delayed_retry() -> None:
    queue = holding()
    queue.do(Modify(1, HELD, ready_ms=queue.now + 700, annotations=(("x-a", b"1"),)))
    queue.state = queue.machine.restore(queue.digest())
    assert queue.stat().messages_delayed == 1
    queue.tick(700)
    assert annotated(queue) == [(1, (("x-a", b"1"),))]


def test_the_delivery_limit_comes_before_the_time() -> None:
    queue = holding(delivery_limit=0, dead_letter_exchange="dlx")
    queue.do(Modify(1, HELD, True, ready_ms=queue.now + 700))
    assert queue.of(DeadLetter) == [DeadLetter("delivery_limit", ((1, 0, 0),), 1)]
    assert not queue.state.delayed.count


@pytest.mark.parametrize("failed", [True, False])
def test_what_is_undeliverable_here_is_dead_lettered(failed: bool) -> None:
    queue = holding(dead_letter_exchange="dlx")
    queue.do(Modify(1, HELD, failed, True, ready_ms=queue.now + 700))
    assert queue.of(DeadLetter) == [DeadLetter("rejected", ((1, 0, 0),), int(failed))]


def test_a_dead_letter_has_the_annotations_of_its_message() -> None:
    """Before: the letter was published as its message had been."""
    queue = holding(3, dead_letter_exchange="dlx")
    note = (("x-opt-a", b"\x54\x01"),)
    queue.do(Modify(1, ((1, 1),), annotations=note))
    queue.do(Modify(1, ((3, 3),), discard=True, annotations=(("x-b", b"1"),)))
    both = (("x-b", b"1"), *note)
    assert queue.of(DeadLetter) == [
        DeadLetter("rejected", ((1, 1, 1),), 0, ((1, 1, both),)),
    ]
    queue.do(c.Discard(1, ((0, 0), (2, 2)), True))
    assert queue.of(DeadLetter) == [DeadLetter("rejected", ((1, 0, 0), (1, 2, 2)), 1)]
    assert not queue.state.annotations


def test_letters_that_stay_keep_their_annotations() -> None:
    settings = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    queue = holding(dead_letter_exchange="dlx", **settings)
    note = (("x-opt-a", b"\x54\x01"),)
    queue.do(Modify(1, HELD, discard=True, annotations=note))
    assert queue.state.letters.count == 1
    queue.state = queue.machine.restore(queue.digest())
    assert queue.state.annotations.blocks == {1: {0: note}}
    queue.do(c.SettleLetters(((1, 0, 0),)))
    assert not queue.state.annotations


def test_a_classic_queue_takes_neither_annotations_nor_time() -> None:
    queue = holding(kind="classic", delivery_limit=-1)
    queue.do(Modify(1, HELD, True, annotations=(("x-a", b"1"),), ready_ms=queue.now + 700))
    assert queue.got() == [(1, 1, 0, 1, 1)] and not queue.state.annotations


def test_annotations_that_would_become_too_many_bytes_stay_as_they_were() -> None:
    queue = holding()
    queue.do(Modify(1, HELD, annotations=(("x-a", bytes(ANNOTATIONS_BYTES_MAX - 3)),)))
    queue.do(Modify(1, ((1, 1),), annotations=(("x-b", b"1"),)))
    assert annotated(queue) == [(2, (("x-a", bytes(ANNOTATIONS_BYTES_MAX - 3)),))]


def test_unknown_consumers_and_ids_are_ignored() -> None:
    queue = holding()
    before = queue.digest()
    queue.do(Modify(7, HELD, annotations=(("x-a", b"1"),)))
    queue.do(Modify(1, ((1, 5),), annotations=(("x-a", b"1"),)))
    queue.state.uplinks[1].last_seq -= 2
    assert queue.digest() == before
