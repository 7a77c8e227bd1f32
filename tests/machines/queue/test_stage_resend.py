"""A stage's blocks that come twice, through two nodes, are there once."""

from __future__ import annotations

import itertools

import pytest

from tests.machines.queue.stages import Stages
from tests.machines.queue.world import Queue
from warren_machines.queue.commands import Count


@pytest.mark.parametrize("applied_by_first", [0, 1, 2, 3, 4])
def test_blocks_resent_through_another_node_are_there_once(
    applied_by_first: int,
) -> None:
    """The first node applied some of 1 … 4 before it died; the writer saw 1 answered at most."""
    queue, stages = Queue(), Stages()
    sizes = {1: 3, 2: 1, 3: 7, 4: 2}
    for seq in range(1, applied_by_first + 1):
        stages.put(queue, 1, 0, count=sizes[seq], seq=seq)
    for seq in range(2 if applied_by_first else 1, 5):
        stages.put(queue, 1, 0, count=sizes[seq], seq=seq, uplink=2)
    assert queue.do(stages.publish(1, (0, 0, 4))) == Count(13)


def test_two_nodes_that_send_the_same_blocks_at_once() -> None:
    """A slow first node is still handing on while the second does; each keeps its order."""
    stages = Stages()
    orders = [o for o in itertools.product((1, 2), repeat=6) if o.count(1) == 3]
    for order in orders:
        queue = Queue()
        due = {1: iter((1, 2, 3)), 2: iter((1, 2, 3))}
        for uplink in order:
            seq = next(due[uplink])
            stages.put(queue, 1, 0, count=seq, seq=seq, uplink=uplink)
        assert queue.do(stages.publish(1, (0, 0, 3))) == Count(6), order
        assert len(queue.ready()) == 6


def test_a_queue_that_sees_only_some_of_the_numbers_keeps_them() -> None:
    queue, stages = Queue(), Stages()
    for seq in (2, 5, 6, 5):
        stages.put(queue, 1, 0, count=1, seq=seq)
    assert queue.do(stages.publish(1, (0, 0, 3))) == Count(3)


def test_blocks_without_a_number_and_other_parts_are_not_compared() -> None:
    queue, stages = Queue(), Stages()
    for seq, partition in ((0, 0), (0, 0), (1, 1), (1, 2)):
        stages.put(queue, 1, partition, count=1, seq=seq)
    assert queue.do(stages.publish(1, (0, 0, 2), (1, 0, 1), (2, 0, 1))) == Count(4)


def test_the_last_number_is_part_of_the_snapshot() -> None:
    queue, stages = Queue(), Stages()
    stages.put(queue, 1, 0, count=1, seq=1)
    queue.state = queue.machine.restore(queue.machine.snapshot(queue.state))
    stages.put(queue, 1, 0, count=1, seq=1)
    assert queue.do(stages.publish(1, (0, 0, 1))) == Count(1)
