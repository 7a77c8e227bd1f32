"""Relays: what they carry from one queue to another is in the world once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.machines.queue import relay_world, world
from tests.machines.queue.world import Queue, block, named_block
from warren_machines.queue import commands as c
from warren_machines.queue import disconnects
from warren_machines.queue.effects import CancelConsumer, Deliver
from warren_machines.queue.relays import relay_state, relays
from warren_machines.queue.relays.relay_commands import EnqueueRelayed
from warren_machines.queue.relays.relay_state import ORIGINS_MAX, REMEMBERED_MS, Origin, Origins
from warren_machines.queue.relays.relays import KEPT_MS

SEEDS = 60


def relay(consumer: int, session: int, prefetch: int = 10, **how: Any) -> c.Checkout:
    """A relay's consumer; its session draws the origin 100 + session."""
    return c.Checkout(consumer, session, "t", prefetch, relay="r", origin=100 + session, **how)


def named(queue: Queue, consumer: int, uplink: int = 1) -> list[tuple[int, int, int]]:
    """(origin, number, ordinal) of the messages that the last entry delivered to a consumer."""
    found = []
    for effect in queue.of(Deliver):
        if (effect.uplink, effect.consumer) == (uplink, consumer):
            for one in effect.deliveries:
                found += [
                    (one.origin, one.number + k, one.first + k)
                    for k in range(one.last - one.first + 1)
                ]
    return found


def bring(queue: Queue, numbers: list[int], floor: int, origin: int = 7, **shape: Any) -> Any:
    """Messages that a relay brings."""
    command = EnqueueRelayed(origin, floor, tuple((1, number) for number in numbers))
    return queue.do(command, block(len(numbers), **shape))


# ------------------------------------------------------------------ the whole


def test_whatever_fails_each_message_is_in_the_world_once() -> None:
    dropped = kept = 0
    for seed in range(SEEDS):
        pair = relay_world.run(seed)
        dropped += pair.target.state.origins.dropped
        kept += sum(one.cancelled for one in pair.processes)
    assert dropped > 500 and kept > 10, (dropped, kept)


def _lets_go(context: Any, consumer: Any, failed: bool) -> None:
    """What the relay held is ready again at once."""


def _without_floor(self: Origin, number: int) -> bool:
    return number in self.numbers


def _fresh_first(context: Any, consumer: Any, limit: int) -> int:
    return limit


def _not_taken_over(context: Any, consumer: Any) -> None:
    relays.keep_all(context, consumer, False)


PLANTS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "nothing-is-kept": (relays, "keep_all", _lets_go),
    "repeats-are-taken": (Origins, "repeats", lambda self, origin, numbers: []),
    "the-floor-is-forgotten": (Origin, "has", _without_floor),
    "new-messages-come-first": (relays, "hand_out_kept", _fresh_first),
    "a-suspected-relay-goes-on": (disconnects.attach, "take_over", _not_taken_over),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTS[plant])
    monkeypatch.setattr(world, "check", lambda state: None)  # what clients see must tell
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            relay_world.run(seed)


# ------------------------------------------------------------------ the queue that it takes from


def test_what_a_relay_has_taken_stays_its_own_under_the_same_names() -> None:
    queue = Queue()
    queue.put(4)
    queue.do(relay(1, 1))
    assert named(queue, 1) == [(101, 1, 0), (101, 2, 1), (101, 3, 2), (101, 4, 3)]
    queue.do(c.Settle(1, ((1, 1),)))
    queue.do(c.SessionDown(1, True))
    queue.do(c.Checkout(5, 5, "client", 10))
    assert queue.got(5) == [] and queue.stat().messages_unacknowledged == 3
    queue.put(1)
    assert len(queue.got(5)) == 1, "a new message is any consumer's"
    queue.do(relay(2, 2, 2))
    assert named(queue, 2) == [(101, 1, 0), (101, 3, 2)], "as many as it takes, the oldest first"
    queue.put(1)
    queue.do(c.SessionDown(5, False))
    assert named(queue, 2) == [], "nothing before what is kept"
    queue.do(c.Settle(2, ((0, 0),)))
    assert named(queue, 2) == [(101, 4, 3)]
    queue.do(c.Settle(2, ((1, 2),)))
    assert [name[:2] for name in named(queue, 2)] == [(102, 5), (102, 6)]


def test_a_newer_session_takes_over_what_an_older_one_holds() -> None:
    queue = Queue()
    queue.put(3)
    queue.do(relay(1, 1, exclusive=True), uplink=5)
    queue.do(c.Settle(1, ((0, 0),)), uplink=5)
    queue.do(relay(1, 2, exclusive=True), uplink=6)
    assert queue.of(CancelConsumer) == [CancelConsumer(5, 1, "disconnected")]
    assert named(queue, 1, 6) == [(101, 2, 1), (101, 3, 2)]
    queue.do(c.Settle(1, ((1, 2),)), uplink=5)
    queue.do(c.SessionDown(1, True), uplink=5)
    assert queue.stat().messages_unacknowledged == 2 and queue.stat().consumers == 1


def test_a_refused_consumer_takes_nothing_over() -> None:
    queue = Queue()
    queue.put(3)
    queue.do(relay(1, 1), uplink=5)
    queue.do(c.Checkout(2, 2, "client", 10), uplink=5)
    refused = queue.do(relay(1, 3, exclusive=True), uplink=6)
    assert refused.reason == "exclusive_use" and queue.of(CancelConsumer) == []
    assert queue.do(relay(2, 3, exclusive=True), uplink=6).reason == "exclusive_use"
    assert queue.stat().consumers == 2
    queue.do(c.Settle(1, ((0, 2),)), uplink=5)
    assert queue.stat().messages_unacknowledged == 0, "the relay's acknowledgements count"
    assert queue.do(c.Checkout(3, 3, "t", 1, relay="new", origin=9, exclusive=True), uplink=6)
    assert set(queue.state.relays) == {"r"}, "a refused one leaves no name behind"


def test_a_session_has_one_consumer_of_a_relay_and_another_after_it_is_cancelled() -> None:
    queue = Queue()
    queue.do(relay(1, 1))
    assert queue.do(relay(2, 1)).reason == "invalid"
    queue.put(2)
    queue.do(c.Cancel(1))
    queue.do(relay(2, 1))
    queue.put(1)
    assert named(queue, 2) == [(101, 3, 0)], "the first one holds its messages, and may settle them"
    queue.do(c.Settle(1, ((0, 1),)))
    assert queue.stat().messages_unacknowledged == 1


def test_a_relay_keeps_what_its_client_was_not_sent() -> None:
    queue = Queue()
    queue.put(3)
    queue.do(relay(1, 1))
    queue.do(c.Return(1, ((2, 2),), False))
    assert named(queue, 1)[0][:2] == (101, 4), (
        "any consumer's, so it has another name when it comes"
    )
    queue.do(c.Cancel(1))
    queue.do(c.Return(1, ((1, 99),), False, unseen=True))
    assert queue.ready() == [] and queue.state.relays["r"].kept_count == 2
    queue.do(relay(2, 1))
    assert [name[:2] for name in named(queue, 2)] == [(101, 2), (101, 4)]
    queue.do(c.Return(1, ((0, 0),), False, unseen=True))
    assert queue.names(2)[-1] == (1, 0), "not kept: a later consumer has got higher numbers"


def test_a_relay_that_does_not_come_back_loses_its_messages_after_a_day() -> None:
    queue = Queue()
    index = queue.put(2)
    queue.do(relay(1, 1))
    queue.do(c.SessionDown(1, False))
    queue.tick(KEPT_MS - 1)
    assert queue.ready() == []
    queue.tick(1)
    assert queue.ready() == [(index, 0), (index, 1)] and not queue.state.relays
    queue.do(relay(2, 2))
    assert named(queue, 2)[0] == (102, 1, 0)


def test_a_relay_that_holds_nothing_is_forgotten_with_its_session() -> None:
    queue = Queue()
    queue.do(relay(1, 1), uplink=5)
    queue.do(c.NodeDown(5))
    queue.do(relay(1, 2), uplink=6)
    queue.do(c.Cancel(1), uplink=6)
    queue.do(c.SessionDown(2), uplink=6)
    assert not queue.state.relays


def test_failed_deliveries_of_a_relay_count_towards_the_limit() -> None:
    queue = Queue(delivery_limit=1)
    queue.put(1)
    for session in (1, 2):
        queue.do(relay(session, session))
        queue.do(c.SessionDown(session, True))
    assert not queue.state.relays and queue.stat().messages_unacknowledged == 0


def test_a_purge_a_deletion_and_a_count_know_what_is_kept() -> None:
    queue = Queue()
    queue.put(2)
    queue.do(relay(1, 1, 1))
    queue.do(c.SessionDown(1, False))
    assert queue.do(c.Purge()) == c.Count(1)
    assert queue.stat().messages_unacknowledged == 1
    queue.do(c.Delete())
    assert not queue.state.relays and not list(queue.state.runs_in_use())


def test_an_inactive_relay_gets_what_is_kept_for_it() -> None:
    queue = Queue(single_active_consumer=True)
    queue.put(2)
    queue.do(relay(1, 1))
    queue.do(c.Checkout(5, 5, "client", 10))
    queue.do(c.SessionDown(1, False))
    queue.do(relay(2, 2))
    assert [name[:2] for name in named(queue, 2)] == [(101, 1), (101, 2)]
    queue.put(1)
    assert named(queue, 2) == [] and len(queue.got(5)) == 1


def test_a_consumer_without_acknowledgements_is_no_relay() -> None:
    queue = Queue()
    queue.do(relay(1, 1, no_ack=True))
    queue.put(1)
    assert named(queue, 1) == [(0, 0, 0)] and not queue.state.relays


# ------------------------------------------------------------------ the queue that it brings to


def test_what_was_brought_before_is_dropped_and_confirmed() -> None:
    queue = Queue()
    assert bring(queue, [1, 2, 3], 1) == c.Done()
    assert bring(queue, [2, 3, 4], 1) == c.Done()
    assert len(queue.ready()) == 4 and queue.state.origins.dropped == 2
    bring(queue, [1], 1, origin=8)
    assert len(queue.ready()) == 5, "the same number of another origin is another message"
    bring(queue, [5, 5], 5)
    assert len(queue.ready()) == 6
    bring(queue, [4], 1)
    assert len(queue.ready()) == 6, "below the floor"


def test_consumed_purged_and_older_ones_are_known_and_memory_is_bounded_by_the_floor() -> None:
    queue = Queue()
    for number in range(1, 2000, 2):
        bring(queue, [number], max(1, number - 100))
    queue.do(c.Purge())
    ((_, floor, _, ranges),) = queue.state.origins.dump()
    assert floor == 1899 and len(ranges) == 51
    before = queue.digest()
    bring(queue, [1, 777, 1999], 1)
    assert queue.ready() == []
    assert len(queue.digest()) <= len(before) + 8


def test_messages_beyond_the_length_limit_are_not_remembered() -> None:
    queue = Queue(max_length=2, overflow="reject-publish")
    reply = bring(queue, [1, 2, 3, 4], 1)
    assert (reply.reason, reply.accepted) == ("queue_full", 2)
    queue.do(c.Purge())
    bring(queue, [2, 3, 4], 1)
    assert len(queue.ready()) == 2


def test_the_order_of_priorities_is_that_of_the_block() -> None:
    queue = Queue()
    command = EnqueueRelayed(7, 1, ((1, 3), (2, 1)))
    queue.do(command, block(3, priorities=[9, 4, 4]))
    bring(queue, [3], 1)
    assert len(queue.ready()) == 3


def test_a_publishers_ids_and_a_relays_names_do_not_disturb_each_other() -> None:
    queue = Queue(deduplication=True, deduplication_window=2)
    command = EnqueueRelayed(7, 1, ((3, 1),))
    queue.do(command, named_block(["a", "a", "b"]))
    assert len(queue.ready()) == 2 and queue.stat().duplicates_dropped == 1
    queue.do(c.Enqueue(), named_block(["c", "d"]))  # "a" and "b" are outside of the window now
    queue.do(command, named_block(["a", "a", "b"]))
    assert len(queue.ready()) == 4, "the names are known"
    queue.do(c.Enqueue(), named_block(["c", "d"]))
    assert len(queue.ready()) == 4, "and the repeats have not taken the place of ids"
    assert (queue.stat().duplicates_dropped, queue.state.origins.dropped) == (3, 3)


def test_names_must_be_those_of_the_block() -> None:
    queue = Queue()
    assert queue.do(EnqueueRelayed(7, 1, ((2, 1),)), block(3)).reason == "invalid"
    assert queue.ready() == [] and not queue.state.origins


def test_origins_are_forgotten_when_they_are_silent_for_long_or_too_many() -> None:
    known = Origins()
    known.accept(1, 1, [1], 1000)
    known.accept(2, 1, [1], 2000)
    known.accept(1, 1, [2], 3000)
    known.accept(3, 1, [1], 2000 + REMEMBERED_MS)
    assert [row[0] for row in known.dump()] == [1, 3]
    for origin in range(10, 10 + ORIGINS_MAX):
        known.accept(origin, 1, [1], 4000)
    assert len(known) == ORIGINS_MAX and known.repeats(1, [1]) == []
    known.check()
    assert REMEMBERED_MS > KEPT_MS


def test_names_with_gaps_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A client announces the capability of relays, and is none.  2. It names its messages with
    every second number, and says no floor.  3. They are consumed: only their names stay."""
    monkeypatch.setattr(relay_state, "RANGES_MAX", 100)
    queue = Queue()
    bring(queue, [1], 1, origin=5)
    for number in range(2, 1_002, 2):
        bring(queue, [number], 0)
        queue.do(c.Purge())
        assert len(queue.state.origins.dump()[-1][3]) <= 100
    assert [row[0] for row in queue.state.origins.dump()] == [7], "the other was heard long ago"
    for number, taken in ((1_002, 1), (1_002, 0), (1_000, 0), (3, 0)):
        bring(queue, [number], 0)
        assert queue.do(c.Purge()).messages == taken, number
    restored = queue.machine.restore(queue.machine.snapshot(queue.state))
    restored.check()
    bring(queue, [5_000], 2_000)
    assert queue.state.origins.dump()[-1][3] == [(5_000, 5_000)]


def test_members_restored_from_a_snapshot_give_back_in_the_same_order() -> None:
    """Otherwise the members' ready messages differ, and an acknowledgement settles another one."""
    queue = Queue()
    queue.put(4)
    queue.do(c.Checkout(1, 1, "t", 2, relay="later", origin=101))
    queue.do(c.Checkout(2, 2, "t", 2, relay="earlier", origin=102))
    restored = queue.machine.restore(queue.machine.snapshot(queue.state))
    begun = len(queue.log)
    queue.do(c.SessionDown(1, True))
    queue.do(c.SessionDown(2, True))
    queue.tick(KEPT_MS)
    queue.do(c.Checkout(3, 3, "client", 10))
    for meta, data in queue.log[begun:]:
        applied = queue.machine.apply(meta, data, restored)
    assert applied.effects == queue.effects
    assert queue.machine.snapshot(restored) == queue.machine.snapshot(queue.state)


def test_members_restored_from_a_snapshot_serve_relays_in_the_same_order() -> None:
    queue = Queue()
    queue.put(4)
    for number, name in ((1, "later"), (2, "earlier")):
        queue.do(c.Checkout(number, number, "t", 2, relay=name, origin=100 + number), uplink=5)
    queue.submit(c.SessionDown(1, True), c.SessionDown(2, True), uplink=5)
    restored = queue.machine.restore(queue.machine.snapshot(queue.state))
    begun = len(queue.log)
    queue.submit(
        c.Checkout(4, 4, "t", 2, relay="earlier", origin=104),
        c.Checkout(5, 5, "t", 2, relay="later", origin=105),
        uplink=6,
    )
    (entry,) = queue.log[begun:]
    assert queue.machine.apply(*entry, restored).effects == queue.effects
