"""Dead letters that stay in the queue until they have been forwarded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.world import Queue, config
from warren_machines.queue import commands as c
from warren_machines.queue.effects import DeadLetter, LettersDue, LettersGone

KEEPING: dict[str, Any] = {
    "dead_letter_exchange": "dlx",
    "dead_letter_strategy": "at-least-once",
    "overflow": "reject-publish",
}


def keeping(**settings: Any) -> Queue:
    return Queue(config(**{**KEEPING, **settings}))


def with_letters(count: int, **settings: Any) -> Queue:
    """A queue with that many messages, each of which a consumer has rejected."""
    queue = keeping(**settings)
    queue.put(count)
    queue.do(c.Checkout(1, 1, "t", 100))
    queue.do(c.Discard(1, ((0, count - 1),)))
    queue.do(c.Cancel(1))
    return queue


def letters(queue: Queue) -> list[tuple[int, int, str]]:
    return [(one.entry, one.ordinal, one.reason) for one in queue.state.letters.after((0, 0), 999)]


@pytest.mark.specification(
    "quorum-queues: This means that the source quorum queue will retain",
    "at-least-once-dead-lettering: The message is neither",
)
def test_a_rejected_message_stays_as_a_letter() -> None:
    """messages 1, ready 0, unacknowledged 0, dead-lettering 1, as measured on RabbitMQ 4.3.6."""
    queue = with_letters(1)
    stat = queue.stat()
    assert (stat.messages_ready, stat.messages_unacknowledged) == (0, 0)
    assert (stat.messages_dlx, stat.message_bytes_dlx) == (1, 10)
    assert letters(queue) == [(1, 0, "rejected")]
    assert list(queue.machine.live_indexes(queue.state)) == [1], "its bytes stay in the log"


def test_the_leader_is_told_of_new_letters_and_publishes_none_itself() -> None:
    queue = keeping()
    queue.put(3)
    queue.do(c.Checkout(1, 1, "t", 100))
    queue.do(c.Discard(1, ((0, 1),)))
    assert queue.of(LettersDue) == [LettersDue((("rejected", 2),))] and not queue.of(DeadLetter)
    queue.do(c.Discard(1, ((2, 2),)))
    assert queue.of(LettersDue) == [LettersDue((("rejected", 1),))]


@pytest.mark.specification(
    "at-least-once-dead-lettering: So when the message expires after 1 second"
)
def test_expired_messages_and_those_beyond_the_delivery_limit() -> None:
    queue = keeping(delivery_limit=0, message_ttl_ms=50)
    queue.put(2)
    queue.do(c.Get(1, 1))
    queue.do(c.Return(1, ((0, 0),), True))
    assert letters(queue) == [(1, 0, "delivery_limit")]
    died = queue.now
    queue.tick(50)
    assert letters(queue) == [(1, 0, "delivery_limit"), (1, 1, "expired")]
    times = [one.died_ms for one in queue.state.letters.after((0, 0), 9)]
    assert times == [died, died + 50], "of their deaths, whenever they are forwarded"


@pytest.mark.specification(
    "at-least-once-dead-lettering: The dead letter consumer sends a consumer acknowledgement"
)
def test_a_settled_letter_is_gone_and_a_repeat_removes_nothing() -> None:
    queue = with_letters(3)
    settle = c.SettleLetters(((1, 1, 1),))
    assert queue.do(settle) == c.Count(1)
    assert queue.of(LettersGone) == [LettersGone(1, 10)]
    assert letters(queue) == [(1, 0, "rejected"), (1, 2, "rejected")]
    assert queue.do(settle) == c.Count(0)
    assert queue.of(LettersGone) == [LettersGone(0, 0)]
    assert queue.do(c.SettleLetters(((1, 0, 9), (7, 0, 9)))) == c.Count(2)
    assert not queue.state.contents.count and queue.stat().message_bytes_dlx == 0


def test_a_late_settle_takes_no_younger_letter() -> None:
    """1. Letter 1 is settled; the leader dies.  2. The next one forwards it again, settles it, and
    the queue is empty.  3. A message dies.  4. The first settle was committed after all."""
    queue = with_letters(1)
    queue.do(c.SettleLetters(((1, 0, 0),)))
    queue.state = queue.machine.restore(queue.digest())
    queue.put(1)
    queue.do(c.Get(1, 1))
    queue.do(c.Discard(1, ((0, 0),)))
    assert queue.stat().messages_dlx == 1
    assert queue.do(c.SettleLetters(((1, 0, 0),))) == c.Count(0)
    assert queue.stat().messages_dlx == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"dead_letter_exchange": None},
        {"overflow": "drop-head"},
        {"dead_letter_strategy": "at-most-once"},
        {"kind": "classic"},
    ],
)
@pytest.mark.specification(
    "at-least-once-dead-lettering: Setting overflow to drop-head will make dead letter"
)
def test_where_it_cannot_be_at_least_once_it_is_at_most_once(settings: dict[str, Any]) -> None:
    queue = with_letters(1, **settings)
    assert queue.stat().messages_dlx == 0 and not queue.state.contents.count
    published = [effect for effect in queue.effects if isinstance(effect, DeadLetter)]
    assert not published, "by the entry before"


# ------------------------------------------------------------------ limits


@pytest.mark.specification("quorum-queues: As dead-lettered messages are now retained")
def test_letters_count_towards_the_length_limit() -> None:
    """As dead-lettered messages are now retained … they have to contribute to the limits."""
    queue = with_letters(3, max_length=4)
    full = queue.do(c.Enqueue(), _block(2))
    assert isinstance(full, c.Refused) and (full.reason, full.accepted) == ("queue_full", 1)
    assert "3 of them dead letters that wait for their targets" in full.detail
    queue.do(c.SettleLetters(((1, 0, 0),)))
    assert queue.do(c.Enqueue(), _block(1)) == c.Done()
    assert queue.do(c.Enqueue(), _block(1)).reason == "queue_full"


@pytest.mark.specification("quorum-queues: As dead-lettered messages are now retained")
def test_letters_count_towards_the_limit_in_bytes() -> None:
    queue = with_letters(3, max_length_bytes=40)
    assert queue.do(c.Enqueue(), _block(2)).accepted == 1
    assert queue.do(c.Enqueue(), _block(1)).accepted == 0


@pytest.mark.specification(
    "at-least-once-dead-lettering: In the worst case, the source quorum queue will contain"
)
def test_letters_alone_may_exceed_a_limit() -> None:
    """Theoretically it is then possible for a queue to only contain dead-lettered messages."""
    queue = with_letters(5)
    queue.do(c.Configure(queue.reconfigured(max_length=2)))
    assert queue.stat().messages_dlx == 5, "a letter is never dropped for a limit"
    assert queue.do(c.Enqueue(), _block(1)).accepted == 0


def _block(count: int) -> bytes:
    from tests.machines.queue.world import block

    return block(count)


# ------------------------------------------------------------------ purge, delete, settings


def test_a_purge_takes_the_letters_and_counts_them() -> None:
    """As measured on RabbitMQ 4.3.6."""
    queue = with_letters(2)
    queue.put(4)
    assert queue.do(c.Purge()) == c.Count(6)
    assert queue.of(LettersGone) == [LettersGone(2, 20, dropped=True)]
    assert queue.stat().messages_dlx == 0 and not list(queue.state.letters)
    assert not list(queue.machine.live_indexes(queue.state))
    assert queue.do(c.SettleLetters(((1, 0, 9),))) == c.Count(0), "of a forwarder that came late"


def test_letters_keep_their_counts_in_a_snapshot() -> None:
    queue = keeping()
    queue.put(3)
    queue.do(c.Checkout(1, 1, "t", 100))
    queue.do(c.Return(1, ((2, 2),), True))
    queue.do(c.Discard(1, ((0, 0), (3, 3)), True))
    queue.do(c.Discard(1, ((1, 1),), False))
    restored = queue.machine.restore(queue.digest())
    for state in (queue.state, restored):
        found = state.letters.after((0, 0), 9)
        assert [(one.ordinal, one.delivery_count) for one in found] == [(0, 1), (2, 2), (1, 0)]
        assert {one.reason for one in found} == {"rejected"}


def test_a_queue_with_letters_is_not_empty() -> None:
    queue = with_letters(2)
    refused = queue.do(c.Delete(if_empty=True))
    assert refused.reason == "not_empty" and "2 dead letters on their way" in refused.detail
    assert queue.do(c.Delete()) == c.Count(0)
    assert queue.stat().messages_dlx == 0 and not queue.of(LettersDue)
    assert queue.do(c.SettleLetters(((1, 0, 9),))) == c.Count(0), "a late one"


@pytest.mark.parametrize(
    "change",
    [
        {"dead_letter_strategy": "at-most-once"},
        {"overflow": "drop-head"},
        {"dead_letter_exchange": None},
    ],
)
@pytest.mark.specification(
    "quorum-queues: If the dead-letter strategy is changed",
    "at-least-once-dead-lettering: any dead-lettered messages that have not yet been confirmed",
)
def test_switching_off_drops_what_waits(change: dict[str, Any]) -> None:
    """Caveat 4: any letters … not yet confirmed … will be permanently deleted."""
    queue = with_letters(3)
    queue.put(1)
    queue.do(c.Configure(queue.reconfigured(**change)))
    assert queue.of(LettersGone) == [LettersGone(3, 30, dropped=True)]
    assert not queue.of(DeadLetter), "dropped, not published"
    stat = queue.stat()
    assert (stat.messages_dlx, stat.message_bytes_dlx, stat.messages_ready) == (0, 0, 1)


@pytest.mark.specification("quorum-queues: For a source quorum queue, it is possible to switch")
def test_switching_on_keeps_what_dies_later() -> None:
    queue = Queue(config(**{**KEEPING, "dead_letter_strategy": "at-most-once"}))
    queue.put(2)
    queue.do(c.Checkout(1, 1, "t", 100))
    queue.do(c.Discard(1, ((0, 0),)))
    assert queue.of(DeadLetter)
    queue.do(c.Configure(config(**KEEPING)))
    queue.do(c.Discard(1, ((1, 1),)))
    assert letters(queue) == [(1, 1, "rejected")] and not queue.of(DeadLetter)


def test_another_exchange_keeps_the_letters_and_has_them_tried_again() -> None:
    queue = with_letters(1)
    queue.do(c.Configure(queue.reconfigured(dead_letter_exchange="other")))
    assert queue.of(LettersDue) == [LettersDue((), changed=True)]
    assert queue.stat().messages_dlx == 1


# ------------------------------------------------------------------ failover


def test_a_new_leader_forwards_what_waits() -> None:
    queue = with_letters(2)
    assert LettersDue() in queue.machine.leader_effects(queue.state)
    queue.do(c.SettleLetters(((1, 0, 1),)))
    assert LettersDue() not in queue.machine.leader_effects(queue.state)


def test_letters_are_in_the_snapshot() -> None:
    queue = with_letters(3)
    queue.do(c.SettleLetters(((1, 1, 1),)))
    again = queue.machine.restore(queue.digest())
    again.check()
    assert list(again.letters) == list(queue.state.letters)
    assert again.letters.next_number == 2
    assert queue.machine.snapshot(again) == queue.digest()
