"""Messages published with a delay: kept, ready when due, ended one by one."""

from __future__ import annotations

import pytest

from tests.machines.queue.world import Queue, block, config
from warren_machines.queue.commands import Checkout, Count, Done, Purge, Refused, Settle
from warren_machines.queue.delayed.delay_commands import EndDelay, EnqueueDelayed
from warren_machines.queue.delayed.delayed_retry import DELAY_MS_MAX
from warren_machines.queue.effects import SetTimer
from warren_machines.queue.ready.leaves import LEAF_ROWS_MAX

LONGEST = (1 << 32) - 1


def delayed(queue: Queue) -> list[tuple[int, int, int]]:
    """(milliseconds from now, index, ordinal) of the delayed messages, in order."""
    return [
        (ready_ms - queue.now, index, ordinal)
        for ready_ms, index, first, last, _, _ in queue.state.delayed
        for ordinal in range(first, last + 1)
    ]


def test_each_is_ready_after_its_own_delay() -> None:
    queue = Queue(config())
    queue.do(Checkout(1, 1, "t", 100))
    assert queue.do(EnqueueDelayed(((2, 50), (1, LONGEST), (1, 1))), block(4)) == Done()
    assert delayed(queue) == [(1, 2, 3), (50, 2, 0), (50, 2, 1), (LONGEST, 2, 2)]
    assert SetTimer(queue.now + 1) in queue.of(SetTimer)
    stat = queue.stat()
    assert (stat.messages_ready, stat.messages_delayed) == (0, 4)
    queue.tick(1)
    assert queue.names() == [(2, 3)]
    queue.tick(48)
    assert queue.names() == []
    queue.tick(1)
    assert queue.names() == [(2, 0), (2, 1)]
    queue.tick(LONGEST - 51)
    assert queue.names() == []
    queue.tick(1)
    assert queue.names() == [(2, 2)]
    queue.do(Settle(1, ((0, 3),)))
    assert queue.stat().messages_delayed == 0


def test_they_are_first_deliveries() -> None:
    queue = Queue(config())
    queue.do(Checkout(1, 1, "t", 100))
    queue.do(EnqueueDelayed(((1, 5),)), block(1))
    queue.tick(5)
    assert [row[-2:] for row in queue.got()] == [(0, 0)]


@pytest.mark.parametrize(
    "delays, text",
    [
        (((1, 0),), "1 to 315360000000 ms each"),
        (((1, -5),), "1 to 315360000000 ms each"),
        (((1, DELAY_MS_MAX + 1),), "1 to 315360000000 ms each"),
        (((0, 5), (1, 5)), "1 to 315360000000 ms each"),
        (((2, 5),), "delays of 2 messages for a block of 1"),
        ((), "delays of 0 messages for a block of 1"),
    ],
)
def test_delays_that_are_not_those_of_the_block(
    delays: tuple[tuple[int, int], ...], text: str
) -> None:
    queue = Queue(config())
    reply = queue.do(EnqueueDelayed(delays), block(1))
    assert isinstance(reply, Refused) and text in reply.detail
    assert queue.stat().messages_delayed == 0
    assert isinstance(queue.do(EnqueueDelayed(((1, 5),))), Refused), "without a block"


def test_one_is_dropped_and_one_is_ready_now() -> None:
    queue = Queue(config())
    queue.do(EnqueueDelayed(((5, 100),)), block(5))
    at = queue.now + 100
    assert queue.do(EndDelay(at, 1, 2, drop=True)) == Count(1)
    assert queue.do(EndDelay(at, 1, 2)) == Count(0), "a repeat"
    assert queue.do(EndDelay(at - 1, 1, 3)) == Count(0), "another time"
    assert queue.do(EndDelay(at, 1, 5)) == Count(0), "no such message"
    assert queue.do(EndDelay(at, 1, 3)) == Count(1)
    assert delayed(queue) == [(100, 1, 0), (100, 1, 1), (100, 1, 4)]
    assert queue.ready() == [(1, 3)]
    for ordinal in (0, 1, 4):
        assert queue.do(EndDelay(at, 1, ordinal, drop=True)) == Count(1)
    assert queue.do(Purge()) == Count(1)
    assert queue.state.delayed.size_bytes == 0 and not list(queue.machine.live_indexes(queue.state))


def test_any_of_many_can_be_ended() -> None:
    queue = Queue(config())
    count = 3 * LEAF_ROWS_MAX
    delays = tuple((1, 1 + at * 7919 % count) for at in range(count))
    queue.do(EnqueueDelayed(delays), block(count))
    queue.state.delayed.check()
    for ordinal in range(0, count, 5):
        gone = EndDelay(queue.now + delays[ordinal][1], 1, ordinal, drop=True)
        assert queue.do(gone) == Count(1)
    queue.state.delayed.check()
    left = {ordinal for _, _, ordinal in delayed(queue)}
    assert left == {ordinal for ordinal in range(count) if ordinal % 5}


def test_they_survive_a_snapshot() -> None:
    queue = Queue(config())
    queue.do(EnqueueDelayed(((3, 100), (2, 50))), block(5))
    state = queue.machine.restore(queue.digest())
    assert queue.machine.leader_effects(state) == (SetTimer(queue.now + 50),)
    queue.state = state
    queue.do(EndDelay(queue.now + 100, 1, 1, drop=True))
    queue.tick(50)
    assert queue.ready() == [(1, 3), (1, 4)]
    queue.tick(50)
    assert queue.ready() == [(1, 3), (1, 4), (1, 0), (1, 2)]


def test_a_classic_queue_delays_nothing() -> None:
    queue = Queue(config(kind="classic"))
    reply = queue.do(EnqueueDelayed(((1, 5),)), block(1))
    assert isinstance(reply, Refused) and "is classic" in reply.detail
