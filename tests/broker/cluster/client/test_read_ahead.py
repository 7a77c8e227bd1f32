"""What a consumer is given beyond its prefetch waits at its node until its client has settled."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tests.machines.queue.world import Queue, check
from warren_broker.cluster.client import read_ahead
from warren_broker.cluster.client.queue_client import GroupClient, LocalConsumer
from warren_broker.cluster.client.read_ahead import AHEAD_BYTES_MAX, AHEAD_LOOK_MS, ReadAhead
from warren_broker.cluster.client.uplink import InFlight, Sent, Uplink
from warren_machines.queue import commands as c
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.effects import Deliver
from warren_raft.versions import READ_AHEAD
from warren_wire.block.block import Block, encode

BODY = bytes(10)


class Place:
    """A queue, and the node of some of its consumers, with messages under way in between.

    way      what is under way to the leader; back: deliveries to the node; replies: the answers
    sent     (message, acquired count) that each client was sent
    holds    delivery numbers that each client has not settled
    next     messages that the only client is to be sent next: it returned them when its window was
             full, so that without read-ahead nothing would be under way
    """

    def __init__(self, prefetch: int = 4, version: int = READ_AHEAD) -> None:
        self.queue, self.version, self.now = Queue(), version, 0
        self.queue.now = 1
        self.way: deque[bytes] = deque()
        self.back: deque[Callable[[], Any]] = deque()
        self.replies: deque[Callable[[], Any]] = deque()
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.touched = False
        uplink = Uplink(self.encode, lambda parts, head: head, "none", InFlight())
        self.client = GroupClient(self, 1, ("a",), uplink)
        self.sent: dict[int, list[tuple[int, int]]] = {}
        self.holds: dict[int, list[int]] = {}
        self.next: list[int] = []
        self.prefetch = prefetch
        self.published = 0

    def encode(self, seq: int, commands: Any, block: Any, answered: int) -> bytes:
        sub = c.Submission(1, "n", seq, tuple(commands), self.version, answered)
        return encode_submission(sub)

    # the carrier

    def leader_of(self, group: int) -> str | None:
        return "a"

    def submit(self, leader: str, group: int, sent: Sent) -> bool:
        self.way.append(sent.data)
        return True

    def touch(self, client: GroupClient) -> None:
        self.touched = True

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.timers.append((self.now + delay_ms, call))

    def touch_later(self, client: GroupClient, delay_ms: int) -> None:
        self.call_later(delay_ms, client.ack_wait_over)

    def now_ms(self) -> int:
        return self.now

    def seek(self, client: GroupClient) -> None:
        raise AssertionError

    def answered(self, client: GroupClient) -> None:
        pass

    # the receiver

    def deliver(self, consumer: int, delivery: c.Delivery, block: Block) -> None:
        for at in range(delivery.last - delivery.first + 1):
            number = int(bytes(block.body(delivery.first + at)))
            self.sent[consumer].append((number, delivery.acquired_count))
            self.holds[consumer].append(delivery.first_msg_id + at)
            if self.next:
                assert number == self.next.pop(0), "another one than it has returned"
        assert len(self.holds[consumer]) <= self.prefetch, "more than its prefetch"

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        raise AssertionError(reason)

    # what happens

    def consume(self, consumer: int) -> None:
        self.next.clear()
        self.sent[consumer], self.holds[consumer] = [], []
        local = LocalConsumer(consumer, self, False, limit=self.prefetch)
        local.ahead = ReadAhead(self.prefetch)
        self.client.consumers[consumer] = local
        self.client.command(c.Checkout(consumer, consumer, "", self.prefetch))

    def publish(self, count: int = 1) -> None:
        bodies = [b"%d" % (self.published + at) for at in range(1, count + 1)]
        self.published += count
        data = encode(bodies, [b""] * count, (b"", b"q"))
        self.queue.now += 1
        self.queue.do(c.Enqueue(), data, uplink=9)
        self.blocks[self.queue.index] = Block.decode(data)
        self.take_effects()

    blocks: dict[int, Block]

    def take_effects(self) -> None:
        for effect in self.queue.effects:
            if isinstance(effect, Deliver):
                for one in effect.deliveries:
                    self.back.append(lambda one=one, to=effect.consumer: self.arrived(to, one))

    def arrived(self, consumer: int, delivery: c.Delivery) -> None:
        if self.client.takes(consumer):
            self.client.delivered(consumer, delivery, self.blocks[delivery.index])

    def pump(self) -> None:
        if self.touched:
            self.touched = False
            self.client.pump()

    def commit(self) -> None:
        """The leader applies the oldest submission that is under way."""
        if self.way:
            self.queue.now += 1
            reply = self.queue.apply(self.way.popleft()).reply
            said = (reply.seq, reply.replies, self.queue.index, reply.expected_seq)
            self.replies.append(lambda: self.client.replied(*said))
            self.take_effects()

    def hear(self, first: bool = False) -> None:
        """What is under way to the node arrives: deliveries or answers, the oldest first."""
        one = self.replies if self.replies and (first or not self.back) else self.back
        if one:
            one.popleft()()

    def settle(self, consumer: int, count: int, how: type = c.Settle) -> None:
        alone, full = len(self.holds) == 1, len(self.holds[consumer]) == self.prefetch
        if how is c.Return and alone and full and not self.next:
            held = self.sent[consumer][-self.prefetch :]
            self.next = [number for number, _ in held[:count]]
        ids, self.holds[consumer] = self.holds[consumer][:count], self.holds[consumer][count:]
        if ids:
            given = {} if how is c.Settle else {"failed": False}
            command = how(consumer, tuple((one, one) for one in ids), **given)
            self.client.acknowledge(command, how is c.Settle)

    def end(self, consumer: int) -> None:
        """As `Consumers.session_down` does it."""
        if self.client.give_back_unsent(consumer):
            self.client.command(c.Cancel(consumer))
        self.client.consumers.pop(consumer)
        self.client.command(c.SessionDown(consumer, True))

    def pass_ms(self, passed: int) -> None:
        self.now += passed
        self.queue.now += passed
        due = [call for at, call in self.timers if at <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for call in due:
            call()

    def rest(self) -> None:
        """All that is under way arrives."""
        while self.way or self.back or self.replies or self.touched:
            self.pump()
            self.commit()
            self.hear()


def made(prefetch: int = 4, version: int = READ_AHEAD) -> Place:
    place = Place(prefetch, version)
    place.blocks = {}
    place.consume(1)
    place.rest()
    return place


def drained(place: Place) -> ReadAhead:
    """The client settles its whole prefetch while one settle is under way."""
    for _ in range(place.prefetch):
        place.settle(1, 1)
        place.pump()
    place.rest()
    ahead = place.client.consumers[1].ahead
    assert ahead is not None
    return ahead


def test_a_fast_client_is_read_ahead_for() -> None:
    place = made()
    place.publish(100)
    place.rest()
    drained(place)
    ahead = drained(place)
    assert ahead.granted == ahead.waiting == 2 * place.prefetch - place.prefetch
    assert len(place.holds[1]) == place.prefetch
    before = len(place.sent[1])
    place.settle(1, 2)
    assert len(place.sent[1]) == before + 2, "in the turn in which the settle is read"


def test_one_that_settles_less_than_half_is_not() -> None:
    place = made()
    place.publish(100)
    place.rest()
    for _ in range(10):
        place.settle(1, 1)
        place.pump()
        place.rest()
    ahead = place.client.consumers[1].ahead
    assert ahead is not None and not ahead.used and ahead.waiting == 0


def test_nothing_is_read_ahead_before_the_version() -> None:
    place = made(version=READ_AHEAD - 1)
    place.publish(100)
    place.rest()
    assert not drained(place).used


def test_what_waits_goes_back_when_its_client_stops() -> None:
    place = made()
    place.publish(30)
    place.rest()
    drained(place)
    ahead = drained(place)
    assert ahead.waiting == 4 and place.queue.stat().messages_unacknowledged == 4 + 4
    for _ in range(2):  # what was settled since the last look would drain it
        place.pass_ms(AHEAD_LOOK_MS)
    place.rest()
    assert ahead.waiting == ahead.granted == 0
    assert place.queue.stat().messages_unacknowledged == place.prefetch
    place.settle(1, 4)
    place.rest()
    assert not ahead.waiting
    assert place.sent[1] == [(number, 0) for number in range(1, 16)]


def test_later_messages_are_not_sent_before_those_that_go_back() -> None:
    place = made()
    place.publish(20)
    place.rest()
    drained(place)
    ahead = drained(place)
    place.settle(1, 1)
    place.pump()
    place.commit()  # more is given, and under way
    place.settle(1, 1, c.Return)
    assert ahead.recalled
    place.settle(1, 2)
    place.rest()
    while place.holds[1]:
        place.settle(1, 1)
        place.rest()
    fresh = [number for number, acquired in place.sent[1] if not acquired]
    assert fresh == sorted(fresh) and len(fresh) == 20


def test_what_is_returned_comes_before_what_is_under_way() -> None:
    """1. What waited was sent, and the queue has given more.  2. The client returns its window."""
    place = made()
    place.publish(40)
    place.rest()
    drained(place)
    ahead = drained(place)
    place.settle(1, 4)
    place.pump()
    place.commit()
    assert place.back and not ahead.waiting
    sent = len(place.sent[1])
    returned = [number for number, _ in place.sent[1][-4:]]
    place.settle(1, 4, c.Return)
    place.rest()
    assert place.sent[1][sent:] == [(number, 1) for number in returned]


def test_its_bytes_are_bounded() -> None:
    ahead = ReadAhead(50)
    ahead.message_bytes = AHEAD_BYTES_MAX // 10
    assert ahead.wanted(10_000) == 10


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_doubled_or_out_of_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several clients settle, return and end as they like; looks come at any time."""
    rng = random.Random(seed)
    monkeypatch.setattr(read_ahead, "COVERED", rng.choice((2, 30)))
    place = made(rng.choice((2, 4, 9)))
    running, next_one = [1], 2
    most = rng.choice((1, 3))
    everything: list[tuple[int, int]] = []
    for _ in range(600):
        what = rng.random()
        one = rng.choice(running) if running else 0
        if what < 0.12:
            place.publish(rng.randrange(1, 12))
        elif what < 0.5 and one:
            place.settle(one, rng.randrange(1, place.prefetch + 1))
        elif what < 0.53 and one:
            place.settle(one, rng.randrange(1, 3), c.Return)
        elif what < 0.54 and one and most > 1:
            running.remove(one)
            place.holds[one].clear()
            place.end(one)
        elif what < 0.56 and len(running) < most:
            running.append(next_one)
            place.consume(next_one)
            next_one += 1
        elif what < 0.6:
            place.pass_ms(rng.choice((1, AHEAD_LOOK_MS)))
        elif what < 0.75:
            place.pump()
        elif what < 0.9:
            place.commit()
        else:
            place.hear(rng.random() < 0.5)
    place.rest()
    running.append(next_one)
    place.consume(next_one)
    place.rest()
    while any(place.holds[one] for one in running):
        for one in running:
            place.settle(one, place.prefetch)
            place.pass_ms(AHEAD_LOOK_MS)
            place.rest()
    check(place.queue.state)
    assert not place.queue.state.contents.indexes(), "all was sent, and settled"
    first: set[int] = set()
    for sent in place.sent.values():
        fresh = [number for number, acquired in sent if not acquired]
        assert fresh == sorted(fresh), "what comes as if for the first time comes in order"
        assert not first & set(fresh), "sent twice as if for the first time"
        first |= set(fresh)
        everything += sent
    assert {number for number, _ in everything} == set(range(1, place.published + 1))
