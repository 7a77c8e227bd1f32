"""Staged publishing of one sink: what is published, when, and in which order."""

from __future__ import annotations

from tests.machines.queue.stages import Stages
from tests.machines.queue.world import Queue, block
from warren_machines.queue.commands import Checkout, Count, Done, Get, Purge


def test_a_stage_is_invisible_until_it_is_published() -> None:
    queue, stages = Queue(), Stages()
    queue.do(Checkout(1, 1, "t"))
    index = stages.put(queue, 0, 0)
    assert queue.got() == [] and queue.do(Get(2, 1)).delivery is None
    assert queue.stat().messages_staged == 2 and queue.stat().bytes_ready == 0
    assert queue.do(Purge()) == Count(0)
    assert queue.machine.live_indexes(queue.state) == (index,)
    assert queue.do(stages.publish(0, (0, 0, 1))) == Count(2)
    assert queue.names() == [(index, 0), (index, 1)]
    assert queue.stat().messages_staged == 0


def test_the_winning_attempts_are_published_in_the_order_given() -> None:
    queue, stages = Queue(), Stages()
    b, a, more = (stages.put(queue, 0, partition) for partition in (1, 0, 1))
    assert queue.do(stages.publish(0, (0, 0, 1), (1, 0, 2))) == Count(6)
    assert queue.ready() == [(i, n) for i in (a, b, more) for n in range(2)]


def test_priorities_apply_when_it_is_published() -> None:
    queue, stages = Queue(), Stages()
    staged = stages.put(queue, 0, 0, count=3, priorities=[9, 4, 0])
    ready = queue.put(1, priorities=4)
    queue.do(stages.publish(0, (0, 0, 1)))
    assert queue.ready() == [(staged, 0), (ready, 0), (staged, 1), (staged, 2)]


def test_a_stage_that_grows_lives_on() -> None:
    queue, stages = Queue(), Stages()
    stages.put(queue, 0, 0, ttl_ms=100)
    queue.now += 60
    stages.put(queue, 0, 0, ttl_ms=100)
    queue.tick(60)
    assert queue.stat().messages_staged == 4
    queue.tick(40)
    assert queue.stat().messages_staged == 0


def test_a_stage_expires_whatever_lives_on_beside_it() -> None:
    queue, stages = Queue(), Stages()
    for partition, ttl_ms in enumerate((0, 200, 100)):
        stages.put(queue, 0, partition, ttl_ms=ttl_ms)
    queue.tick(100)
    assert queue.stat().messages_staged == 4 and queue.timers() == [queue.now + 100]
    queue.tick(100)
    assert queue.stat().messages_staged == 2 and queue.timers() == []


def test_a_block_belongs_to_one_command_of_its_submission() -> None:
    queue, stages = Queue(), Stages()
    first, second = queue.submit(stages.stage(0, 0), stages.stage(0, 1), data=block(2)).replies
    assert first == Done() and second.reason == "invalid"
    assert queue.stat().messages_staged == 2
