"""A stage's blocks that come twice, through two nodes, are there once."""

from __future__ import annotations

import itertools

import pytest

from tests.broker.queue.world import Queue, block
from warren_broker.queue.commands import Count, Done, PublishBatch, Stage


def staged(seq: int, partition: int = 0) -> Stage:
    return Stage("s", 1, partition, 0, seq=seq)


@pytest.mark.parametrize("applied_by_first", [0, 1, 2, 3, 4])
def test_blocks_resent_through_another_node_are_there_once(applied_by_first: int) -> None:
    """The first node applied some of 1 … 4 before it died; the writer saw 1 answered at most."""
    queue = Queue()
    sizes = {1: 3, 2: 1, 3: 7, 4: 2}
    for seq in range(1, applied_by_first + 1):
        assert queue.do(staged(seq), block(sizes[seq]), uplink=1) == Done()
    for seq in range(2 if applied_by_first else 1, 5):
        assert queue.do(staged(seq), block(sizes[seq]), uplink=2) == Done()
    assert queue.do(PublishBatch("s", 1, ((0, 0),))) == Count(13)


def test_two_nodes_that_send_the_same_blocks_at_once() -> None:
    """A slow first node is still handing on while the second does; each keeps its order."""
    orders = [o for o in itertools.product((1, 2), repeat=6) if o.count(1) == 3]
    for order in orders:
        queue = Queue()
        due = {1: iter((1, 2, 3)), 2: iter((1, 2, 3))}
        for uplink in order:
            seq = next(due[uplink])
            assert queue.do(staged(seq), block(seq), uplink=uplink) == Done()
        assert queue.do(PublishBatch("s", 1, ((0, 0),))) == Count(6), order
        assert len(queue.ready()) == 6


def test_a_queue_that_sees_only_some_of_the_numbers_keeps_them() -> None:
    queue = Queue()
    for seq in (2, 5, 6, 5):
        queue.do(staged(seq), block(1))
    assert queue.do(PublishBatch("s", 1, ((0, 0),))) == Count(3)


def test_blocks_without_a_number_and_other_parts_are_not_compared() -> None:
    queue = Queue()
    for seq, partition in ((0, 0), (0, 0), (1, 1), (1, 2)):
        queue.do(staged(seq, partition), block(1))
    assert queue.do(PublishBatch("s", 1, ((0, 0), (1, 0), (2, 0)))) == Count(4)


def test_the_last_number_is_part_of_the_snapshot() -> None:
    queue = Queue()
    queue.do(staged(1), block(1))
    queue.state = queue.machine.restore(queue.machine.snapshot(queue.state))
    queue.do(staged(1), block(1))
    assert queue.do(PublishBatch("s", 1, ((0, 0),))) == Count(1)
