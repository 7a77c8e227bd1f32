"""Messages given ahead of a consumer's window, and their return when no client was sent them."""

from __future__ import annotations

import pytest

from tests.machines.queue.world import Queue, block
from warren_machines.queue import commands as c
from warren_machines.queue.ready.ranges import COUNT_MASK
from warren_raft.versions import READ_AHEAD

MAX = (1 << 63) - 1


def consumed(prefetch: int = 2, ahead: int = 3, **settings: object) -> Queue:
    """A queue with a consumer that is given messages ahead."""
    queue = Queue(**settings)  # type: ignore[arg-type]
    queue.do(c.Checkout(1, 1, "one", prefetch))
    assert queue.do(c.Credit(1, 0, ahead)) == c.Count(0)
    queue.now += 1
    return queue


def unsent(queue: Queue, first: int) -> None:
    """Return what the consumer's client was not sent, from that delivery on."""
    queue.do(c.Return(1, ((first, MAX),), failed=False, unseen=True))


def recall(queue: Queue, first: int) -> None:
    """The same, and give it nothing ahead any more."""
    queue.submit(c.Credit(1, 0, 0), c.Return(1, ((first, MAX),), failed=False, unseen=True))


def test_it_is_given_so_many_more_than_its_prefetch() -> None:
    queue = consumed()
    queue.put(10)
    assert len(queue.got()) == 5 and queue.stat().messages_unacknowledged == 5
    queue.do(c.Settle(1, ((0, 3),)))
    assert len(queue.got()) == 4
    assert queue.do(c.Credit(1, 0, 0)) == c.Count(9)
    queue.put(10)
    queue.do(c.Settle(1, ((4, 6),)))
    assert queue.got() == []
    queue.do(c.Settle(1, ((7, 7),)))
    assert len(queue.got()) == 1


def test_others_with_room_are_served_first_whatever_their_priority() -> None:
    queue = Queue()
    queue.do(c.Checkout(1, 1, "ahead", 2, priority=5))
    queue.do(c.Credit(1, 0, 10))
    queue.do(c.Checkout(2, 1, "strict", 3))
    queue.put(4)
    assert len(queue.got(1)) == 2 and len(queue.got(2)) == 2
    queue.put(2)
    assert len(queue.got(2)) == 1 and len(queue.got(1)) == 1
    queue.do(c.Settle(2, ((0, 0),)))
    queue.put()
    assert queue.got(1) == [] and len(queue.got(2)) == 1


def test_it_is_shared_out_by_priority_and_in_turn() -> None:
    queue = Queue()
    for number, priority in ((1, 0), (2, 1), (3, 1)):
        queue.do(c.Checkout(number, 1, str(number), 1, priority=priority))
        queue.do(c.Credit(number, 0, 4))
    queue.put(3 + 6)
    assert [len(queue.got(number)) for number in (1, 2, 3)] == [1, 4, 4]
    queue.put(6)
    assert [len(queue.got(number)) for number in (1, 2, 3)] == [4, 1, 1]


@pytest.mark.parametrize(
    "command",
    [
        c.Checkout(1, 1, "no prefetch"),
        c.Checkout(1, 1, "no ack", no_ack=True),
        c.Checkout(1, 1, "relay", 5, relay="r", origin=1),
    ],
)
def test_others_are_given_nothing_ahead(command: c.Checkout) -> None:
    queue = Queue()
    queue.do(command)
    queue.do(c.Credit(1, 0, 5))
    assert queue.state.find(1, 1).ahead == 0  # type: ignore[union-attr]


def test_nothing_is_given_ahead_before_the_version() -> None:
    queue = Queue()
    queue.version = READ_AHEAD - 1
    queue.do(c.Checkout(1, 1, "one", 1))
    assert queue.do(c.Credit(1, 0, 5)) == c.Done()
    queue.put(3)
    assert len(queue.got()) == 1
    unsent(queue, 0)
    assert [row[4] for row in queue.got()] == [1], "it counts, as it did"


def test_what_was_not_sent_goes_back_to_its_place_uncounted() -> None:
    queue = consumed(delivery_limit=0)
    first = queue.put(5)
    second = queue.put(2)
    queue.got()
    queue.submit(
        c.Return(1, ((2, MAX),), failed=False, unseen=True), c.SessionDown(1, failed=False)
    )
    assert queue.ready() == [(first, at) for at in range(5)] + [(second, 0), (second, 1)]
    queue.do(c.Checkout(2, 2, "two", 10))
    counts = [(ordinal, failed, acquired) for _, _, ordinal, failed, acquired in queue.got(2)]
    assert counts[:5] == [(0, 0, 1), (1, 0, 1), (2, 0, 0), (3, 0, 0), (4, 0, 0)]


def test_it_goes_back_to_its_priority() -> None:
    queue = consumed()
    low = queue.put(4, priorities=1)
    high = queue.put(2, priorities=3)
    assert queue.names() == [(low, at) for at in range(4)] + [(high, 0)]
    unsent(queue, 2)
    queue.do(c.Credit(1, 0, 0))
    assert queue.names() == [(high, 0), (high, 1), (low, 2)], "it was given ahead once more"
    unsent(queue, 5)
    assert queue.ready() == [(high, 0), (high, 1), (low, 2), (low, 3)]


def test_returned_messages_go_back_ahead_of_later_ones() -> None:
    queue = consumed(prefetch=1, ahead=3)
    at = queue.put(5)
    assert len(queue.got()) == 4
    queue.submit(c.Credit(1, 0, 0), c.Return(1, ((0, 3),), failed=True), c.Credit(1, 0, 1))
    queue.now += 1
    assert queue.names() == [(at, 0), (at, 1)]
    recall(queue, 5)
    assert queue.ready() == [(at, 1), (at, 2), (at, 3), (at, 4)]
    assert next(iter(queue.state.order))[3] == 1


def test_it_counts_when_another_consumer_was_served_since() -> None:
    queue = consumed(prefetch=1, ahead=2)
    ahead = queue.put(3)
    queue.do(c.Checkout(2, 2, "two", 1))
    later = queue.put()
    assert len(queue.got(1)) == 3 and queue.names(2) == [(later, 0)]
    recall(queue, 1)
    assert queue.ready() == [(ahead, 1), (ahead, 2)]
    queue.do(c.Settle(2, ((0, 0),)))
    assert queue.got(2) == [(1, ahead, 1, 0, 1)], "to the second one it comes after a later one"


def test_so_it_does_after_a_claim_or_a_get() -> None:
    for taken in (c.Get(3, 1), c.OpenClaim("r", 1, 1, 1, 1_000)):
        queue = consumed(prefetch=1, ahead=2)
        queue.do(c.RegisterReader("r"))
        queue.put(3)
        queue.do(c.Enqueue(), block(1), 9)
        queue.got()
        queue.now += 1
        queue.do(taken)
        recall(queue, 1)
        assert {run[4] & COUNT_MASK for run in queue.state.order} == {1}, taken


def test_a_snapshot_has_it_all() -> None:
    queue = consumed()
    queue.put(9)
    recall(queue, 3)
    queue.do(c.Credit(1, 0, 1))
    restored = queue.machine.restore(queue.digest())
    assert queue.machine.snapshot(restored) == queue.digest()
    assert restored.taker == queue.state.taker == (1, 1, -1)
    queue.state = restored
    queue.got()
    queue.do(c.Settle(1, ((0, 2),)))
    assert [row[2:] for row in queue.got()] == [(3, 0, 0), (4, 0, 0), (5, 0, 0)]
