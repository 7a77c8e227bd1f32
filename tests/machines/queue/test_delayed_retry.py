"""Delayed retry: what comes back waits; the sentences are those of quorum-queues.txt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.world import Queue, block, config
from warren_machines.queue import commands as c
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import (
    Checkout,
    Configure,
    Delete,
    Discard,
    Enqueue,
    Get,
    NodeDown,
    NodeSuspected,
    OpenClaim,
    Purge,
    RegisterReader,
    ReleaseClaim,
    RetryDelayed,
    Return,
    SessionDown,
    Submission,
)
from warren_machines.queue.delayed import delayed_retry
from warren_machines.queue.delayed.delayed_retry import delay_ms
from warren_machines.queue.effects import DeadLetter, SetTimer
from warren_raft.versions import NEWEST


def retrying(**settings: Any) -> Queue:
    """A queue that delays whatever comes back by 100 ms a failure, 1 s at most."""
    settings = {
        "delayed_retry_type": "all",
        "delayed_retry_min_ms": 100,
        "delayed_retry_max_ms": 1000,
        **settings,
    }
    return Queue(config(**settings))


def holding(count: int, queue: Queue | None = None, prefetch: int = 100) -> Queue:
    """The same, with messages of block 1 that consumer 1 of uplink 1 holds."""
    queue = queue or retrying()
    queue.put(count)
    queue.do(Checkout(1, 1, "t", prefetch))
    queue.got()
    return queue


def waiting(queue: Queue) -> list[tuple[int, int, int]]:
    """(milliseconds from now, index, ordinal) of the delayed messages, in order."""
    return [
        (ready_ms - queue.now, index, ordinal)
        for ready_ms, index, first, last, _, _ in queue.state.delayed
        for ordinal in range(first, last + 1)
    ]


# ------------------------------------------------------------------ which, and how long


@pytest.mark.parametrize("failures, delay", [(1, 1000), (2, 2000), (3, 3000), (31, 30_000)])
@pytest.mark.specification(
    "quorum-queues: The delay is calculated based on", "quorum-queues: First return: 1000ms delay"
)
def test_first_return_1000_ms_delay(failures: int, delay: int) -> None:
    """delay = min(min_delay * delivery_count, max_delay)."""
    settings = config(
        delayed_retry_type="all", delayed_retry_min_ms=1000, delayed_retry_max_ms=30_000
    )
    assert delay_ms(settings, failures, True) == delay


@pytest.mark.specification("quorum-queues: x-delayed-retry-max - Maximum delay")
def test_without_a_maximum_the_delay_is_the_minimum() -> None:
    settings = config(delayed_retry_type="all", delayed_retry_min_ms=1000)
    assert [delay_ms(settings, failures, True) for failures in (1, 2, 20)] == [1000] * 3


def test_a_maximum_below_the_minimum_is_the_delay() -> None:
    settings = config(delayed_retry_type="all", delayed_retry_min_ms=10, delayed_retry_max_ms=4)
    assert delay_ms(settings, 1, True) == 4


def test_no_delay_is_longer_than_ten_years() -> None:
    settings = config(
        delayed_retry_type="all", delayed_retry_min_ms=2**62, delayed_retry_max_ms=2**63 - 1
    )
    assert delay_ms(settings, 2**31, True) == 315_360_000_000
    queue = holding(1, retrying(delayed_retry_min_ms=2**62, delayed_retry_max_ms=2**63 - 1))
    queue.do(Return(1, ((0, 0),), True))
    assert queue.machine.snapshot(queue.machine.restore(queue.digest())) == queue.digest()


@pytest.mark.parametrize(
    "kind, returned, failed",
    [("disabled", 0, 0), ("all", 100, 100), ("failed", 0, 100), ("returned", 100, 0)],
)
@pytest.mark.specification("quorum-queues: all - All returned messages are delayed")
def test_only_messages_with_or_without_incremented_delivery_count_are_delayed(
    kind: str, returned: int, failed: int
) -> None:
    for outcome, expected in ((False, returned), (True, failed)):
        queue = holding(1, retrying(delayed_retry_type=kind))
        queue.do(Return(1, ((0, 0),), outcome))
        assert queue.stat().messages_delayed == (1 if expected else 0)
        assert waiting(queue) == ([(expected, 1, 0)] if expected else [])


@pytest.mark.specification(
    "quorum-queues: a message's delivery-count is only incremented for failures"
)
def test_a_returned_message_that_had_failed_before_waits_as_long_as_then() -> None:
    queue = holding(1)
    for failed, delay in ((False, 100), (True, 100), (True, 200), (False, 200), (True, 300)):
        queue.do(Return(1, ((queue.state.find(1, 1).next_msg_id - 1,) * 2,), failed))
        assert waiting(queue) == [(delay, 1, 0)], failed
        queue.tick(delay)
        assert len(queue.got()) == 1


@pytest.mark.parametrize(
    "end, failed",
    [
        (SessionDown(1, True), True),
        (SessionDown(1, False), False),
        (NodeDown(1), True),
        (NodeSuspected("n1", True, True), False),
    ],
)
@pytest.mark.specification("quorum-queues: failed - Only messages with incremented")
def test_channel_termination_with_pending_messages(end: c.AnyCommand, failed: bool) -> None:
    for kind in ("failed", "returned"):
        queue = holding(2, retrying(delayed_retry_type=kind))
        queue.do(end, uplink=2) if not isinstance(end, SessionDown) else queue.do(end)
        delayed = 2 if failed == (kind == "failed") else 0
        assert queue.stat().messages_delayed == delayed, (end, kind)
        assert queue.stat().messages_ready == 2 - delayed


def test_a_consumer_timeout_counts_as_returned() -> None:
    queue = holding(1, retrying(consumer_timeout_ms=30, delayed_retry_type="returned"))
    queue.tick(30)
    assert waiting(queue) == [(100, 1, 0)]


def test_a_released_claim_counts_as_returned_and_a_failed_one_as_failed() -> None:
    for failed in (False, True):
        queue = retrying(delayed_retry_type="failed")
        queue.put(3)
        queue.do(RegisterReader("r"))
        queue.do(OpenClaim("r", 1, 1, 10, 10**6))
        assert queue.do(ReleaseClaim("r", 1, -1, failed)).messages == 3
        assert queue.stat().messages_delayed == (3 if failed else 0)


def test_the_delivery_limit_dead_letters_at_once() -> None:
    queue = holding(1, retrying(delivery_limit=0, dead_letter_exchange="dlx"))
    queue.do(Return(1, ((0, 0),), True))
    assert queue.of(DeadLetter) == [DeadLetter("delivery_limit", ((1, 0, 0),), 1)]
    assert queue.stat().messages_delayed == 0 and not queue.state.contents.count


def test_a_rejected_message_is_not_delayed() -> None:
    queue = holding(1)
    queue.do(Discard(1, ((0, 0),)))
    assert queue.stat().messages_delayed == 0 and not queue.state.contents.count


# ------------------------------------------------------------------ when they are ready


@pytest.mark.specification("quorum-queues: When a message is returned and delayed retry is enabled")
def test_a_delayed_message_is_not_delivered_before_its_time() -> None:
    queue = holding(1)
    queue.do(Return(1, ((0, 0),), True))
    assert queue.timers() == [queue.now + 100] and not queue.got()
    stat = queue.stat()
    assert (stat.messages_ready, stat.messages_delayed, stat.bytes_ready) == (0, 1, 0)
    assert stat.next_delayed_ms == stat.last_delayed_ms == queue.now + 100
    assert queue.do(Get(9, 1)).delivery is None
    queue.tick(99)
    assert not queue.got()
    queue.tick(1)
    assert queue.got() == [(1, 1, 0, 1, 1)]
    assert queue.stat().next_delayed_ms == 0


def test_every_entry_returns_what_is_ready_not_the_timer_only() -> None:
    queue = holding(1)
    queue.do(Return(1, ((0, 0),), True))
    queue.now += 100
    queue.do(Enqueue(), block(1), uplink=9)
    assert queue.names() == [(1, 0), (3 + 1, 0)]


def test_they_are_ready_in_the_order_of_their_times_then_of_their_arrival() -> None:
    queue = holding(4)
    queue.do(Return(1, ((3, 3),), False))
    queue.do(Return(1, ((1, 1),), False))
    queue.now += 1
    queue.do(Return(1, ((0, 0),), False))
    queue.do(Return(1, ((2, 2),), False))
    queue.do(c.Cancel(1))
    assert [ordinal for _, _, ordinal in waiting(queue)] == [1, 3, 0, 2]
    queue.tick(100)
    assert queue.ready() == [(1, 1), (1, 3), (1, 0), (1, 2)]


def test_they_follow_what_returned_before_ahead_of_all_priorities() -> None:
    queue = retrying(delayed_retry_type="failed")
    queue.put(3, priorities=0)
    queue.do(Checkout(1, 1, "t", 3))
    queue.do(Return(1, ((0, 0),), True))
    queue.do(c.Cancel(1))
    queue.do(Return(1, ((2, 2),), False))
    queue.put(1, priorities=31)
    queue.do(Return(1, ((1, 1),), False))
    queue.tick(100)
    assert queue.ready() == [(1, 2), (1, 1), (1, 0), (6, 0)]


def test_a_longer_delay_does_not_hold_up_a_shorter_one() -> None:
    queue = holding(2)
    for number in (0, 2, 3):
        queue.do(Return(1, ((number, number),), True))
        queue.tick(number * 100 + 100)
    queue.got()
    queue.do(Return(1, ((4, 4),), True))  # its fourth failure
    queue.do(Return(1, ((1, 1),), True))
    assert waiting(queue) == [(100, 1, 1), (400, 1, 0)]


def test_the_timer_continues_where_an_entry_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_retry, "READY_RUNS_MAX", 3)
    queue = retrying()
    for _ in range(7):
        queue.put(1)
    queue.do(Checkout(1, 1, "t", 100))
    queue.do(Return(1, ((0, 6),), False))
    queue.do(c.Cancel(1))
    queue.tick(100)
    assert queue.stat().messages_ready == 3 and queue.timers() == [queue.now]
    queue.tick(0)
    assert queue.stat().messages_ready == 6 and queue.timers() == [queue.now]
    queue.tick(0)
    assert queue.stat().messages_ready == 7 and queue.timers() == []


def test_a_new_leader_asks_for_the_timer() -> None:
    queue = holding(1)
    queue.do(Return(1, ((0, 0),), True))
    state = queue.machine.restore(queue.digest())
    assert queue.machine.leader_effects(state) == (SetTimer(queue.now + 100),)


def test_other_settings_leave_the_times_of_what_is_delayed() -> None:
    queue = holding(2)
    queue.do(Return(1, ((0, 0),), True))
    queue.do(Configure(queue.reconfigured(delayed_retry_type="disabled")))
    assert waiting(queue) == [(100, 1, 0)]
    queue.do(Return(1, ((1, 1),), True))
    assert queue.stat().messages_delayed == 1


# ------------------------------------------------------------------ retry all now


def test_all_are_ready_now_in_their_order() -> None:
    queue = holding(3)
    queue.do(Return(1, ((2, 2),), True))
    queue.now += 1
    queue.do(Return(1, ((0, 1),), True))
    queue.do(c.Cancel(1))
    assert queue.do(RetryDelayed()) == c.Count(3)
    assert queue.ready() == [(1, 2), (1, 0), (1, 1)]
    assert queue.do(RetryDelayed()) == c.Count(0)


def test_all_are_ready_over_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_retry, "READY_RUNS_MAX", 2)
    queue = retrying(delayed_retry_min_ms=10_000, delayed_retry_max_ms=10_000)
    for _ in range(6):
        queue.put(1)
    queue.do(Checkout(1, 1, "t", 100))
    queue.do(Return(1, ((0, 4),), False))
    queue.do(c.Cancel(1))
    assert queue.do(RetryDelayed()) == c.Count(5)
    assert queue.stat().messages_ready == 2 and queue.timers() == [queue.now]
    queue.do(Return(1, ((5, 5),), False))  # it has its own delay
    assert (queue.stat().messages_ready, queue.stat().messages_delayed) == (4, 2)
    state = queue.machine.restore(queue.digest())
    assert queue.machine.snapshot(state) == queue.digest()
    queue.tick(0)
    assert (queue.stat().messages_ready, queue.stat().messages_delayed) == (5, 1)
    assert queue.do(RetryDelayed()) == c.Count(1)


def test_a_deleted_queue_has_nothing_to_retry() -> None:
    queue = holding(1)
    queue.do(Return(1, ((0, 0),), True))
    assert queue.do(Delete()) == c.Count(0)
    assert queue.state.delayed.count == 0
    assert queue.do(RetryDelayed()).reason == "deleted"


# ------------------------------------------------------------------ purge, limits, expiry


def test_a_purge_takes_and_counts_them() -> None:
    queue = holding(3)
    queue.do(Return(1, ((0, 1),), True))
    queue.do(c.Cancel(1))
    queue.put(2)
    assert queue.do(Purge()) == c.Count(4)
    stat = queue.stat()
    assert (stat.messages_ready, stat.messages_delayed, stat.messages_unacknowledged) == (0, 0, 1)
    queue.tick(100)
    assert queue.ready() == []


def test_a_queue_with_delayed_messages_is_not_empty() -> None:
    queue = holding(1)
    queue.do(Return(1, ((0, 0),), True))
    assert queue.do(Delete(if_empty=True)).reason == "not_empty"


def test_delayed_messages_count_towards_max_length() -> None:
    queue = holding(3, retrying(max_length=4, dead_letter_exchange="dlx"))
    queue.do(Return(1, ((0, 2),), True))
    queue.do(c.Cancel(1))
    queue.put(2)
    assert queue.of(DeadLetter) == [DeadLetter("maxlen", ((5, 0, 0),))]
    assert (queue.stat().messages_ready, queue.stat().messages_delayed) == (1, 3)


def test_what_comes_back_keeps_the_limit_too() -> None:
    # In RabbitMQ 4.3 nothing is ready here that drop-head could drop.
    queue = retrying(max_length=2, dead_letter_exchange="dlx")
    queue.do(Checkout(1, 1, "t", 100))
    queue.put(3)
    queue.put(2)
    queue.do(Return(1, ((0, 4),), True))
    assert queue.of(DeadLetter) == [DeadLetter("maxlen", ((2, 0, 2),), 1)]
    assert waiting(queue) == [(100, 3, 0), (100, 3, 1)]


def test_delayed_messages_count_towards_max_length_bytes() -> None:
    queue = holding(3, retrying(max_length_bytes=35))
    queue.do(Return(1, ((0, 2),), True))
    queue.do(c.Cancel(1))
    queue.put(1)
    assert (queue.stat().messages_ready, queue.stat().messages_delayed) == (0, 3)
    queue.do(Configure(queue.reconfigured(max_length_bytes=15)))
    assert queue.stat().messages_delayed == 1


def test_a_full_queue_refuses_also_what_a_consumer_waits_for() -> None:
    queue = holding(3, retrying(max_length=3, overflow="reject-publish"))
    queue.do(Enqueue(), block(1), uplink=9)
    queue.do(Return(1, ((0, 2),), True))
    assert queue.do(Enqueue(), block(1), uplink=9) == c.Done(), "served at once"
    queue.do(Return(1, ((3, 4),), True))
    refused = queue.do(Enqueue(), block(1), uplink=9)
    assert refused.reason == "queue_full" and refused.accepted == 0
    assert (
        "holds 5 of at most 3 messages" in refused.detail and "5 of them delayed" in refused.detail
    )


def test_a_delayed_message_expires_when_it_is_ready() -> None:
    queue = holding(1, retrying(message_ttl_ms=50, dead_letter_exchange="dlx"))
    queue.do(Return(1, ((0, 0),), True))
    queue.tick(60)
    assert queue.stat().messages_delayed == 1 and not queue.of(DeadLetter)
    queue.tick(40)
    assert queue.of(DeadLetter) == [DeadLetter("expired", ((1, 0, 0),), 1)]
    assert not queue.names() and not queue.state.contents.count


# ------------------------------------------------------------------ the log


def test_a_retry_that_is_applied_twice_counts_once() -> None:
    queue = holding(2)
    queue.do(Return(1, ((0, 1),), True))
    seq = queue.seqs[1] = queue.seqs[1] + 1
    again = encode_submission(Submission(1, "n1", seq, (RetryDelayed(),), NEWEST))
    first, second = queue.apply(again).reply, queue.apply(again).reply
    assert first == second and first.replies == (c.Count(2),)
