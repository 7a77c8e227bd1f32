"""Acknowledgements ride with what else is sent, or leave by themselves a little later."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from tests.instructions.turns import HandClock
from warren_broker.cluster.client.queue_client import ACK_WAIT_MS, GroupClient, LocalConsumer
from warren_broker.cluster.client.uplink import InFlight, Sent, Uplink
from warren_broker.cluster.cluster import Cluster
from warren_machines.queue.commands import Delivery, Return, SessionDown, Settle
from warren_machines.queue.ready.limits import WINDOW_BYTES
from warren_raft.runtime.loop import Loop
from warren_raft.versions import NEWEST
from warren_wire.block.block import Block, encode

CONSUMER = 7


class Node:
    """A carrier with a leader that answers when the test says so; timers fire when it says so."""

    def __init__(self, prefetch: int = 100, body_bytes: int = 10) -> None:
        self.leads = True
        self.touched: list[GroupClient] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.submissions: list[list[Any]] = []
        uplink = Uplink(self.encode, lambda parts, head: head, "ENQ", InFlight())
        self.client = GroupClient(self, 1, ("a",), uplink)
        self.local = LocalConsumer(CONSUMER, self, False, limit=prefetch)  # type: ignore[arg-type]
        self.client.consumers[CONSUMER] = self.local
        self.body_bytes = body_bytes
        self.next_id = 0
        self.now = 0

    def encode(self, seq: int, commands: Any, block: Any, answered: int) -> bytes:
        self.submissions.append(list(commands))
        return b"%d" % seq

    # the carrier

    def leader_of(self, group: int) -> str | None:
        return "a" if self.leads else None

    def submit(self, leader: str, group: int, sent: Sent) -> bool:
        return True

    def touch(self, client: GroupClient) -> None:
        self.touched.append(client)

    version = NEWEST

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.timers.append((self.now + delay_ms, call))

    def touch_later(self, client: GroupClient, delay_ms: int) -> None:
        self.timers.append((self.now + delay_ms, client.ack_wait_over))

    def now_ms(self) -> int:
        return self.now

    def seek(self, client: GroupClient) -> None:
        pass

    def answered(self, client: GroupClient) -> None:
        pass

    # the receiver

    def deliver(self, consumer: int, delivery: Delivery, block: Block) -> None:
        pass

    # what the test does

    def delivered(self, count: int) -> None:
        block = Block.decode(encode([b""] * count, [bytes(self.body_bytes)] * count, (b"", b"q")))
        if self.client.takes(CONSUMER):
            self.client.delivered(CONSUMER, Delivery(self.next_id, 1, 0, count - 1, 0, 0), block)
        self.next_id += count

    def ack(self, *ids: int) -> None:
        ranges = tuple((at, at) for at in ids)
        self.client.acknowledge(Settle(CONSUMER, ranges), late=True)

    def turn(self) -> list[list[Any]]:
        """End a turn; return the submissions that it sent."""
        before = len(self.submissions)
        touched, self.touched = self.touched, []
        for client in touched:
            client.pump()
        return self.submissions[before:]

    def wait(self) -> list[list[Any]]:
        """Let the timers fire that are set, and those that they set, and end the turn."""
        while self.timers:
            timers, self.timers = self.timers, []
            for at, call in timers:
                self.now = max(self.now, at)
                call()
        return self.turn()

    def answer(self, seq: int) -> list[list[Any]]:
        self.client.replied(seq, (None,), 5, 0)
        return self.turn()


def settled(*submissions: list[Any]) -> list[int]:
    """The settled numbers, in order."""
    return [
        ids[0]
        for each in submissions
        for command in each
        if isinstance(command, Settle)
        for ids in command.msg_ids
    ]


def test_acknowledgements_wait_together_and_leave_in_order() -> None:
    node = Node()
    node.delivered(5)
    for at in range(3):
        node.ack(at)
        assert node.turn() == []
    assert len(node.timers) == 1, "one timer, whatever waits"
    (sent,) = node.wait()
    assert settled(sent) == [0, 1, 2] and node.local.unsettled == 2
    assert node.wait() == [] and not node.timers
    node.ack(3)
    assert settled(*node.wait()) == [3]


def test_they_ride_with_the_next_publish() -> None:
    node = Node()
    node.delivered(5)
    node.ack(0)
    node.ack(1)
    node.client.publish(b"m", 1, None)
    (sent,) = node.turn()
    assert sent[0] == "ENQ" and settled(sent) == [0, 1]
    assert node.wait() == [], "the timer finds nothing"


def test_one_that_came_after_the_others_left_waits_as_long_as_any() -> None:
    node = Node()
    node.delivered(5)
    node.ack(0)
    node.now += ACK_WAIT_MS - 1
    node.client.publish(b"m", 1, None)
    assert settled(*node.turn()) == [0]
    node.ack(1)
    ((due, call),) = node.timers
    node.timers.clear()
    node.now = due
    call()
    assert node.turn() == [], "it has waited for 1 ms"
    assert node.timers == [(2 * ACK_WAIT_MS - 1, call)]
    assert settled(*node.wait()) == [1] and node.now == 2 * ACK_WAIT_MS - 1


def test_at_a_steady_pace_all_ride() -> None:
    node = Node()
    sent: list[list[Any]] = []
    for number in range(100):
        node.now = number
        due = [call for at, call in node.timers if at <= node.now]
        node.timers = [timer for timer in node.timers if timer[0] > node.now]
        for call in due:
            call()
        sent += node.turn()
        node.client.publish(b"m", 1, None)
        sent += node.turn()
        node.delivered(1)
        node.ack(number)
    assert len(sent) == 100 and settled(*sent) == list(range(99))


def test_the_answer_to_a_submission_does_not_send_them() -> None:
    node = Node()
    node.delivered(5)
    node.client.publish(b"m", 1, None)
    assert len(node.turn()) == 1
    node.ack(0)
    assert node.answer(1) == []
    assert settled(*node.wait()) == [0]


@pytest.mark.parametrize("last", [SessionDown(3, False), Return(CONSUMER, ((2, 2),), False)])
def test_what_follows_takes_them_along_and_comes_after_them(last: Any) -> None:
    node = Node()
    node.delivered(5)
    node.ack(0)
    node.ack(1)
    if isinstance(last, Return):
        node.client.acknowledge(last)
    else:
        node.client.command(last)
    (sent,) = node.turn()
    assert settled(sent) == [0, 1] and sent[-1] is last


@pytest.mark.parametrize(("prefetch", "held"), [(1, 1), (2, 1), (3, 2), (100, 50), (100, 100)])
def test_with_half_of_the_credit_used_they_leave_at_once(prefetch: int, held: int) -> None:
    node = Node(prefetch)
    node.delivered(held)
    node.ack(0)
    assert settled(*node.turn()) == [0] and not node.timers
    assert node.local.unsettled == held - 1


def test_with_credit_left_they_wait() -> None:
    node = Node(100)
    node.delivered(49)
    node.ack(0)
    assert node.turn() == [] and node.local.unsettled == 49, "the queue still counts it"
    node.delivered(1)
    node.ack(1)
    (sent,) = node.turn()
    assert settled(sent) == [0, 1] and node.local.unsettled == 48


def test_large_messages_use_the_window_in_bytes() -> None:
    node = Node(1000, body_bytes=WINDOW_BYTES // 8)
    node.delivered(3)
    node.ack(0)
    assert node.turn() == []
    node.delivered(1)
    node.ack(1)
    assert settled(*node.turn()) == [0, 1]


def test_of_a_get_they_wait_and_nothing_counts_them() -> None:
    node = Node()
    node.client.acknowledge(Settle(99, ((0, 0),)), late=True)
    assert node.turn() == [] and settled(*node.wait()) == [0]


def test_without_a_leader_they_are_kept() -> None:
    node = Node()
    node.delivered(5)
    node.leads = False
    node.ack(0)
    assert node.wait() == []
    node.leads = True
    node.client.publish(b"m", 1, None)
    assert settled(*node.turn()) == [0]


def test_a_queue_that_was_deleted_is_left_alone() -> None:
    node = Node()
    node.delivered(5)
    node.ack(0)
    node.client.uplink.abandon()
    assert node.wait() == [] and not node.touched


def test_what_the_bound_of_unanswered_submissions_held_back_follows_the_answer() -> None:
    node = Node()
    bound = node.client.uplink.unanswered_max
    for _ in range(bound + 2):
        node.client.with_block("STAGE", b"", None)
    node.turn()
    assert node.client.uplink.sent_seq == bound
    node.answer(1)
    assert node.client.uplink.sent_seq == bound + 1


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_is_sent_once_in_order_and_the_count_is_right(seed: int) -> None:
    rng = random.Random(seed)
    node = Node(rng.choice([1, 2, 10, 200]))
    waiting: list[int] = []
    acked: list[int] = []
    sent: list[list[Any]] = []
    for _ in range(300):
        match rng.randrange(6):
            case 0 if node.local.unsettled < node.local.limit:
                count = rng.randint(1, node.local.limit - node.local.unsettled)
                waiting += range(node.next_id, node.next_id + count)
                node.delivered(count)
            case 1 | 2 if waiting:
                one = waiting.pop(rng.randrange(len(waiting)))
                acked.append(one)
                node.ack(one)
            case 3:
                node.client.publish(b"m", 1, None)
            case 4:
                sent += node.wait()
            case 5:
                sent += node.turn()
        assert settled(*node.submissions) == acked[: len(settled(*node.submissions))]
        in_open = len(acked) - len(settled(*node.submissions))
        assert len(waiting) <= node.local.unsettled <= len(waiting) + in_open
    sent += node.turn()
    sent += node.wait()
    assert settled(*node.submissions) == acked and node.local.unsettled == len(waiting)


def test_what_waits_for_many_queues_leaves_in_one_turn() -> None:
    """A turn, a write and a message to each peer for each queue, where one is enough."""
    node = Node()
    node.delivered(2)
    node.ack(0)
    node.now += ACK_WAIT_MS // 2  # the timer of another queue
    node.timers.clear()
    node.client.ack_wait_over()
    assert settled(*node.turn()) == [0]
    node.ack(1)
    node.now += ACK_WAIT_MS // 2 - 1
    node.timers.clear()
    node.client.ack_wait_over()
    assert not node.turn(), "it may still leave with a message"
    assert settled(*node.wait()) == [1]


def test_acknowledgements_that_left_in_their_turn_have_no_timer() -> None:
    clock = HandClock()
    loop = Loop(clock)
    cluster = Cluster(loop, lambda observer, on_message: mock.Mock(boot_id=1), 1, 1, mock.Mock())
    node, other = Node(), Node()
    for each in (node, other):
        each.delivered(2)
        each.touch_later = cluster.touch_later  # type: ignore[method-assign]
        each.ack(0)
    node.client.publish(b"", 1, None)
    node.turn()
    loop.run_turn(0)
    other.now = clock.now = clock.now + ACK_WAIT_MS
    loop.run_turn(0)
    assert not node.turn()
    assert settled(*other.turn()) == [0]
    node.ack(1)
    loop.run_turn(0)
    node.now = clock.now = clock.now + ACK_WAIT_MS
    loop.run_turn(0)
    assert settled(*node.turn()) == [1], "the next one has"
    loop.close()
