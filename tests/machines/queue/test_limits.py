"""Length, bytes, age."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.world import Queue, block
from warren_machines.queue.commands import (
    Checkout,
    Configure,
    Done,
    Enqueue,
    Get,
    GetReply,
    OpenClaim,
    RegisterReader,
    Return,
    Settle,
    SinkPublish,
    SinkStage,
    Timer,
)
from warren_machines.queue.effects import DeadLetter, Expired, SetTimer
from warren_machines.queue.ready import limits
from warren_wire.block.block import encode


def dead(queue: Queue) -> list[tuple[str, tuple[tuple[int, int, int], ...]]]:
    return [(effect.reason, effect.runs) for effect in queue.of(DeadLetter)]


# ------------------------------------------------------------------ length


@pytest.mark.specification("quorum-queues: The drop-head and reject-publish overflow")
def test_over_the_length_the_head_is_dropped_and_dead_lettered_as_maxlen() -> None:
    queue = Queue(max_length=3, dead_letter_exchange="dlx")
    first = queue.put(2)
    second = queue.put(3)
    assert dead(queue) == [("maxlen", ((first, 0, 1),))]
    assert queue.ready() == [(second, 0), (second, 1), (second, 2)]


def test_a_block_longer_than_the_queue_leaves_its_end() -> None:
    queue = Queue(max_length=3)
    index = queue.put(10)
    assert queue.ready() == [(index, 7), (index, 8), (index, 9)]


def test_what_is_delivered_does_not_count() -> None:
    queue = Queue(max_length=1)
    queue.do(Checkout(1, 1, "t", 5))
    queue.put(6)
    assert len(queue.got()) == 5 and queue.stat().messages_ready == 1


def test_a_length_of_0_keeps_what_can_be_delivered_at_once() -> None:
    queue = Queue(max_length=0)
    queue.do(Checkout(1, 1, "t", 2))
    queue.put(5)
    assert len(queue.got()) == 2 and queue.stat().messages_ready == 0


def test_returned_messages_count_and_are_the_first_to_go() -> None:
    queue = Queue(max_length=1)
    first = queue.put(1)
    queue.do(Get(1, 1))
    second = queue.put(1)
    queue.do(Return(1, ((0, 0),), False))
    assert queue.ready() == [(second, 0)] and first == 1


def test_bytes_are_bodies_and_properties_of_ready_messages() -> None:
    queue = Queue(max_length_bytes=25)
    index = queue.put(2, size=10)
    queue.put(1, size=10)
    assert queue.ready() == [(index, 1), (queue.index, 0)]
    assert queue.stat().bytes_ready == 20


def test_of_messages_of_different_sizes_as_few_as_needed_are_dropped() -> None:
    queue = Queue(max_length_bytes=100)
    index = queue.put(4, size=[10, 60, 20, 50])
    assert queue.ready() == [(index, 2), (index, 3)]


def test_a_queue_filled_to_the_byte_is_not_over_its_limit() -> None:
    queue = Queue(max_length_bytes=20)
    index = queue.put(3, size=10)
    assert queue.ready() == [(index, 1), (index, 2)]


@pytest.mark.specification("quorum-queues: The current implementation of reject-publish")
def test_reject_publish_takes_what_fits_and_refuses_the_rest() -> None:
    queue = Queue(max_length=3, overflow="reject-publish", dead_letter_exchange="dlx")
    assert queue.do(Enqueue(), block(2)) == Done()
    reply = queue.do(Enqueue(), block(5))
    assert (reply.reason, reply.accepted) == ("queue_full", 1)
    reply = queue.do(Enqueue(), block(5))
    assert (reply.reason, reply.accepted) == ("queue_full", 0)
    assert queue.stat().messages_ready == 3
    assert dead(queue) == []


def test_reject_publish_serves_waiting_consumers_before_the_limit_counts() -> None:
    queue = Queue(max_length=1, overflow="reject-publish")
    queue.do(Checkout(1, 1, "t", 3))
    reply = queue.do(Enqueue(), block(6))
    assert reply.accepted == 4
    assert len(queue.got()) == 3 and queue.stat().messages_ready == 1


def test_reject_publish_in_bytes() -> None:
    queue = Queue(max_length_bytes=35, overflow="reject-publish")
    assert queue.do(Enqueue(), block(5, 10)).accepted == 3
    assert queue.stat().bytes_ready == 30


def test_reject_publish_with_priorities_takes_a_prefix_of_the_block() -> None:
    queue = Queue(max_length=3, overflow="reject-publish")
    reply = queue.do(Enqueue(), block(5, priorities=[9, 9, 4, 4, 0]))
    assert reply.accepted == 3
    assert queue.ready() == [(1, 0), (1, 1), (1, 2)]


def test_room_that_is_made_is_used_again() -> None:
    queue = Queue(max_length=1, overflow="reject-publish")
    queue.put(1)
    assert queue.do(Enqueue(), block(1)).reason == "queue_full"
    queue.do(Get(1, 1, True))
    assert queue.do(Enqueue(), block(1)) == Done()


def test_a_published_batch_counts_from_then_on() -> None:
    queue = Queue(max_length=2)
    queue.do(SinkStage("s", "r", 1, 0, 0, 0, 7), block(5))
    assert queue.stat().messages_staged == 5
    queue.do(SinkPublish("s", "r", 1, 0, ((0, 0, 1),)))
    assert queue.stat().messages_ready == 2


def test_a_full_reject_publish_queue_keeps_the_stages_for_another_try() -> None:
    queue = Queue(max_length=1, overflow="reject-publish")
    queue.put(1)
    queue.do(SinkStage("s", "r", 1, 0, 0, 0, 7), block(2))
    publish = SinkPublish("s", "r", 1, 0, ((0, 0, 1),))
    assert queue.do(publish).reason == "queue_full"
    queue.do(Get(1, 1, True))
    assert queue.do(publish).messages == 2


def test_new_settings_count_from_then_on() -> None:
    queue = Queue()
    index = queue.put(5)
    queue.do(Configure(queue.reconfigured(max_length=2)))
    assert queue.ready() == [(index, 3), (index, 4)]


# --------------------------------------------------------------------- age


@pytest.mark.specification("quorum-queues: Quorum queues support both Queue TTL")
def test_a_queue_s_ttl_expires_its_messages_and_dead_letters_them() -> None:
    queue = Queue(message_ttl_ms=100, dead_letter_exchange="dlx")
    index = queue.put(3)
    assert queue.of(SetTimer) == [SetTimer(queue.now + 100)]
    queue.tick(99)
    assert queue.stat().messages_ready == 3
    queue.tick(1)
    assert dead(queue) == [("expired", ((index, 0, 2),))]
    assert queue.state.contents.table == {}


@pytest.mark.parametrize("late", [0, 1, 2, 1000])
def test_a_timer_that_comes_late_finds_what_expired(late: int) -> None:
    queue = Queue(message_ttl_ms=100)
    queue.put(1)
    queue.tick(100 + late)
    assert queue.stat().messages_ready == 0


def test_many_expired_runs_are_buried_in_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRED_RUNS_MAX", 3)
    queue = Queue(message_ttl_ms=10)
    for _ in range(5):
        queue.put(1)
    queue.tick(10)
    assert queue.stat().messages_ready == 2
    assert queue.timers() == [queue.now]
    queue.tick(0)
    assert queue.stat().messages_ready == 0


@pytest.mark.specification("quorum-queues: Quorum queues support both Queue TTL")
def test_of_both_ttls_the_lower_one_counts() -> None:
    queue = Queue(message_ttl_ms=100)
    index = queue.put(3, ttls_ms=[50, None, 500])
    queue.tick(50)
    assert queue.ready() == [(index, 1), (index, 2)]
    queue.tick(50)
    assert queue.ready() == []


@pytest.mark.specification("quorum-queues: For each priority level, the scan")
def test_a_message_that_has_not_expired_stands_before_one_that_has() -> None:
    queue = Queue(dead_letter_exchange="dlx")
    index = queue.put(3, ttls_ms=[500, 50, None])
    queue.tick(50)
    assert queue.ready() == [(index, 0), (index, 1), (index, 2)]
    assert queue.do(Get(1, 1)).delivery.first == 0
    # Its turn has come: it is gone, not delivered.
    assert dead(queue) == [("expired", ((index, 1, 1),))]
    assert queue.do(Get(1, 1)).delivery.first == 2


@pytest.mark.specification("quorum-queues: Message expiration (TTL) scans now run")
def test_each_priority_is_looked_at_from_its_own_head() -> None:
    queue = Queue(dead_letter_exchange="dlx")
    low = queue.put(1, priorities=0, ttls_ms=[10])
    high = queue.put(1, priorities=9, ttls_ms=[500])
    queue.tick(10)
    assert dead(queue) == [("expired", ((low, 0, 0),))]
    assert queue.ready() == [(high, 0)]


def test_an_expired_message_is_never_delivered_even_in_the_middle_of_a_run() -> None:
    queue = Queue(dead_letter_exchange="dlx")
    index = queue.put(5, ttls_ms=[500, 50, 500, 50, None])
    queue.now += 60
    queue.do(Checkout(1, 1, "t", 10))
    assert queue.names() == [(index, 0), (index, 2), (index, 4)]
    assert dead(queue) == [("expired", ((index, 1, 1), (index, 3, 3)))]


def test_what_is_held_does_not_expire_until_it_comes_back() -> None:
    queue = Queue(message_ttl_ms=100, dead_letter_exchange="dlx")
    index = queue.put(1)
    queue.do(Get(1, 1))
    queue.tick(200)
    assert queue.stat().messages_unacknowledged == 1
    queue.do(Return(1, ((0, 0),), False))
    assert dead(queue) == [("expired", ((index, 0, 0),))]


def test_a_claim_does_not_take_expired_messages() -> None:
    queue = Queue()
    index = queue.put(3, ttls_ms=[10, None, 10])
    queue.do(RegisterReader("r"))
    queue.now += 20
    claim = queue.do(OpenClaim("r", 1, 1, 10, 1000))
    assert claim.runs == ((index, 1, 1, 0, 0),)


def test_a_ttl_of_0_is_delivered_to_who_waits_and_otherwise_gone() -> None:
    queue = Queue(message_ttl_ms=0, dead_letter_exchange="dlx")
    queue.do(Checkout(1, 1, "t", 2))
    index = queue.put(3)
    assert queue.names() == [(index, 0), (index, 1)]
    assert dead(queue) == [("expired", ((index, 2, 2),))]


def test_a_staged_message_s_life_begins_when_it_is_published() -> None:
    queue = Queue()
    queue.do(SinkStage("s", "r", 1, 0, 0, 0, 7), block(1, ttls_ms=[100]))
    queue.tick(1000)
    queue.do(SinkPublish("s", "r", 1, 0, ((0, 0, 1),)))
    queue.tick(99)
    assert queue.stat().messages_ready == 1
    queue.tick(1)
    assert queue.stat().messages_ready == 0


def test_one_timer_is_out_at_a_time() -> None:
    queue = Queue(message_ttl_ms=100)
    queue.put(1)
    due = queue.timers()
    queue.now += 10
    queue.put(1)
    assert queue.timers() == []
    queue.tick(90)
    assert queue.timers() == [due[0] + 10]


def test_something_due_earlier_brings_the_timer_forward() -> None:
    queue = Queue()
    queue.put(1, ttls_ms=[100])
    queue.put(1, priorities=9, ttls_ms=[40])
    assert queue.timers() == [queue.now + 40]
    queue.tick(40)
    assert queue.timers() == [queue.now + 60]


def test_a_timer_that_comes_early_does_nothing_and_is_asked_for_again() -> None:
    queue = Queue(message_ttl_ms=100)
    queue.put(1)
    queue.tick(10)
    assert queue.stat().messages_ready == 1
    assert queue.timers() == [queue.now + 90]


def test_a_queue_without_limits_has_no_timer() -> None:
    queue = Queue()
    queue.put(1)
    queue.do(Checkout(1, 1, "t"))
    queue.do(Settle(1, ((0, 0),)))
    queue.do(Timer())
    assert queue.state.timer_ms == 0


@pytest.mark.parametrize("ttls", [[5, 5, 5], [5, 6, 7]])
def test_bytes_and_counts_follow_what_expires(ttls: list[int]) -> None:
    queue = Queue()
    queue.put(3, size=7, ttls_ms=ttls)
    queue.tick(5)
    queue.tick(1)
    queue.tick(1)
    assert queue.stat().messages_ready == queue.stat().bytes_ready == 0


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"max_length": 0}, {}),
        ({"max_length_bytes": 5}, {"size": 10}),
        ({}, {"ttls_ms": [0]}),
    ],
)
def test_a_get_behind_a_publish_finds_what_the_limits_leave(
    settings: dict[str, Any], shape: dict[str, Any]
) -> None:
    """Both came in one submission; to their clients the publish was first, with all it entails."""
    queue = Queue(**settings)
    replies = queue.submit(Enqueue(), Get(1, 1), data=block(1, **shape)).replies
    assert replies[1] == GetReply(None, 0)


def test_a_limit_in_bytes_does_not_count_properties() -> None:
    heavy = encode([b"12345"] * 2, [b"\x20\0\0\0\0\0" * 50] * 2, (b"", b"q"), 4)
    queue = Queue(max_length_bytes=10)
    queue.do(Enqueue(), heavy)
    assert queue.stat().messages_ready == 2 and queue.stat().bytes_ready == 10


def test_a_time_to_expire_that_a_policy_changes_is_counted_from_the_change() -> None:
    queue = Queue()
    queue.put(1)
    queue.tick(100_000)
    queue.do(Configure(queue.reconfigured(expires_ms=500)))
    queue.tick(499)
    assert not queue.of(Expired)
    queue.do(Configure(queue.reconfigured(expires_ms=500, max_length=9)))
    queue.tick(1)
    assert queue.of(Expired) == [Expired("expires")], "another setting does not restart it"
