"""Lives of nodes: what one that is over still has on its way changes nothing, however late."""

from __future__ import annotations

from random import Random

import pytest

from tests.machines.queue.world import Queue, block
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import (
    AnyCommand,
    Checkout,
    Enqueue,
    NodeDown,
    Settle,
    Submission,
    SubmissionReply,
)
from warren_raft.versions import NEWEST

RESTARTS = 40
"""More than any window of lives that was ever kept."""


def first(
    uplink: int, number: int, *commands: AnyCommand, seq: int = 1, node: str = "far"
) -> bytes:
    """A submission of a life, with a block of two messages where it enqueues."""
    data = block(2) if any(isinstance(command, Enqueue) for command in commands) else None
    return encode_submission(
        Submission(uplink, node, seq, commands, NEWEST, incarnation=number), data
    )


def end(queue: Queue, uplink: int, number: int = 0, node: str = "far") -> None:
    """The leader says that a life is over."""
    command = NodeDown(uplink, node if number else "", number)
    queue.apply(encode_submission(Submission(0, "leader", 0, (command,), NEWEST)))


def test_a_first_submission_that_arrives_after_its_life_has_ended_is_refused() -> None:
    queue = Queue()
    data = first(5, 40, Enqueue())
    queue.apply(data)
    end(queue, 5, 40)
    assert queue.apply(data).reply == SubmissionReply(5, 1, (), retired=True)
    assert queue.stat().messages_ready == 2 and 5 not in queue.state.uplinks


def test_so_it_is_when_the_queue_had_heard_of_another_of_its_lives_only() -> None:
    queue = Queue()
    end(queue, 6, 50)
    assert queue.apply(first(5, 40, Enqueue())).reply.retired
    assert not queue.apply(first(7, 60, Enqueue())).reply.retired
    assert queue.stat().messages_ready == 2


@pytest.mark.parametrize("restarts", [1, 16, 17, RESTARTS])
def test_a_consumer_of_a_life_that_is_over_does_not_come_back(restarts: int) -> None:
    queue = Queue()
    queue.apply(first(1, 10, Checkout(1, 1, "t", 5)))
    for life in range(1, restarts + 1):
        end(queue, life, 10 * life)
    assert queue.apply(first(1, 10, Checkout(1, 1, "t", 5))).reply.retired
    queue.put(3)
    assert queue.stat().consumers == 0 and queue.stat().messages_ready == 3
    assert queue.state.over == {"far": 10 * restarts}


def test_an_incarnation_ends_only_older_ones_of_its_node() -> None:
    queue = Queue()
    for uplink, number, node in ((1, 10, "far"), (12, 11, "near"), (3, 12, "far"), (4, 13, "far")):
        queue.apply(first(uplink, number, Checkout(1, 1, "t", 1), node=node))
    index = queue.put(4)
    end(queue, 3, 12)
    assert queue.stat().messages_unacknowledged == 2
    assert queue.ready() == [(index, 0), (index, 2)]


def test_an_end_that_is_told_twice_or_late_changes_nothing() -> None:
    queue = Queue()
    queue.apply(first(5, 40, Checkout(1, 1, "t", 5)))
    end(queue, 5, 40)
    queue.apply(first(6, 50, Checkout(1, 1, "t", 5)))
    before = queue.digest()
    for life, number in ((5, 40), (4, 30)):
        end(queue, life, number)
        assert queue.stat().consumers == 1
    assert queue.digest() == before


def test_what_is_over_is_in_the_snapshot() -> None:
    queue = Queue()
    queue.apply(first(5, 40, Checkout(1, 1, "t", 5)))
    end(queue, 4, 30)
    restored = queue.machine.restore(queue.digest())
    assert restored.over == {"far": 30} and restored.uplinks[5].incarnation == 40
    assert queue.machine.snapshot(restored) == queue.digest()


@pytest.mark.parametrize("seed", range(60))
def test_every_message_is_enqueued_once_whatever_arrives_late_or_twice(seed: int) -> None:
    """Lives follow one another; each submits some blocks, of which copies stay on their way."""
    random = Random(seed)
    queue, sent, copies = Queue(), 0, []
    applied: dict[tuple[int, int], int] = {}
    for number in range(1, 30):
        for seq in range(1, random.randint(1, 4)):
            data = first(100 + number, number, Enqueue(), Settle(1, ((0, 0),)), seq=seq)
            copies += [(number, seq, data)] * random.randint(0, 2)
            if random.random() < 0.8:
                copies.append((number, seq, data))
        for _ in range(random.randint(0, 6)):
            if copies:
                life, seq, data = copies[random.randrange(len(copies))]
                reply = queue.apply(data).reply
                if reply.replies and reply.seq > applied.get((life, 0), 0):
                    applied[(life, 0)] = seq
                    sent += 2
        if random.random() < 0.7:
            end(queue, 100 + number, number)
        assert queue.stat().messages_ready == sent
    over = queue.state.over.get("far", 0)
    for life, _, data in copies:
        assert queue.apply(data).reply.retired == (life <= over)
