"""Old places in lanes, and a ttl of 0."""

from __future__ import annotations

from tests.machines.queue.world import Queue, block
from warren_machines.queue import commands as c


def a_priority_queue() -> Queue:
    return Queue(kind="classic", delivery_limit=-1, priority_max=10)


def test_a_returned_message_goes_back_behind_higher_priorities() -> None:
    queue = a_priority_queue()
    low = queue.put(1, priorities=1)
    queue.do(c.Get(1, 1, False))
    high = queue.put(1, priorities=5)
    queue.do(c.Return(1, ((0, 0),), False))
    assert queue.ready() == [(high, 0), (low, 0)]


def test_a_returned_message_takes_its_old_place_within_its_priority() -> None:
    queue = a_priority_queue()
    indexes = [queue.put(1, priorities=5) for _ in range(4)]
    queue.do(c.Checkout(1, 1, "t", 3))
    queue.do(c.Cancel(1))
    for number in (2, 0, 1):
        queue.do(c.Return(1, ((number, number),), True))
    assert queue.ready() == [(index, 0) for index in indexes]
    queue.do(c.Checkout(2, 1, "t", 9))
    assert [row[3:] for row in queue.got(2)] == [(1, 1), (1, 1), (1, 1), (0, 0)]


def test_what_a_claim_releases_goes_back_to_its_lanes_and_the_counts_say_no_lane() -> None:
    queue = a_priority_queue()
    index = queue.put(3, priorities=[7, 5, 5])
    reader = queue.do(c.RegisterReader("r"))
    assert isinstance(reader, c.ReaderReply)
    claim = queue.do(c.OpenClaim("r", reader.settled + 1, reader.epoch, 9, 10**6))
    assert isinstance(claim, c.ClaimReply)
    assert claim.runs == ((index, 0, 0, 0, 0), (index, 1, 2, 0, 0))
    newer = queue.put(1, priorities=6)
    queue.do(c.ReleaseClaim("r", claim.number, reader.epoch))
    assert queue.ready() == [(index, 0), (newer, 0), (index, 1), (index, 2)]
    assert [run[4] for run in queue.state.order] == [1, 0, 1]


def test_a_snapshot_keeps_the_places() -> None:
    queue = a_priority_queue()
    queue.put(2, priorities=[9, 1])
    queue.do(c.Checkout(1, 1, "t", 9))
    queue.put(1, priorities=4)
    queue.do(c.Cancel(1))
    queue.do(c.Return(1, ((0, 1),), False))
    restored = queue.machine.restore(queue.digest())
    restored.check()
    assert list(restored.order) == list(queue.state.order)
    assert queue.machine.snapshot(restored) == queue.digest()


def test_messages_that_came_back_to_several_lanes_expire_where_they_are() -> None:
    queue = a_priority_queue()
    queue.put(2, priorities=[9, 1], ttls_ms=[1000, 10])
    queue.do(c.Checkout(1, 1, "t", 9))
    queue.do(c.Cancel(1))
    queue.do(c.Return(1, ((0, 1),), False))
    queue.tick(20)
    assert queue.stat().messages_ready == 1
    queue.tick(1000)
    assert queue.stat().messages_ready == 0


def test_a_ttl_of_0_is_not_counted_in_the_submission_that_brought_it() -> None:
    queue = Queue()
    data = block(1, ttls_ms=[0])
    reply = queue.submit(c.Enqueue(), c.Stat(), data=data)
    assert reply.replies[1].messages_ready == 0
    assert queue.stat().messages_ready == 0


def test_a_get_neither_finds_a_ttl_of_0_nor_counts_it() -> None:
    queue = Queue()
    data = block(2, ttls_ms=[None, 0])
    reply = queue.submit(c.Enqueue(), c.Get(1, 1, True), c.Get(1, 1, True), data=data)
    assert reply.replies[1].delivery is not None and reply.replies[1].messages_ready == 0
    assert reply.replies[2].delivery is None


def test_a_delete_if_empty_does_not_see_a_ttl_of_0() -> None:
    queue = Queue()
    reply = queue.submit(c.Enqueue(), c.Delete(if_empty=True), data=block(1, ttls_ms=[0]))
    assert reply.replies[1] == c.Count(0)


def test_a_purge_does_not_count_a_ttl_of_0() -> None:
    queue = Queue()
    reply = queue.submit(c.Enqueue(), c.Purge(), data=block(2, ttls_ms=[0, None]))
    assert reply.replies[1] == c.Count(1)


def test_a_ttl_of_0_is_delivered_once_to_a_consumer() -> None:
    queue = Queue()
    queue.do(c.Checkout(1, 1, "t", 1))
    queue.put(2, ttls_ms=[5000, 0])
    queue.do(c.Settle(1, ((0, 0),)))
    assert len(queue.got()) == 1, "the one behind it expired"
    queue.put(1, ttls_ms=[0])
    assert len(queue.got()) == 1
    queue.do(c.Return(1, ((1, 1),), True))
    assert queue.got() == [] and queue.stat().messages_ready == 0
