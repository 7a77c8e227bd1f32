"""What clients see of consumers for which their node reads ahead: nothing but the speed.

Each client settles a sixth of its prefetch at once, as fast as it can, so that its node reads
ahead. What it must never see is more than its prefetch, another order, or a redelivery of what it
was not sent.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pamqp.commands as spec
import pytest

from live.conftest import Broker, eventually
from live.raw_client import RawClient, method
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = pytest.mark.live
QUEUE = "read-ahead"
PREFETCH = 60
MESSAGES = 6_000


@pytest.fixture
def queue(broker: Broker, admin: Admin) -> Iterator[str]:
    admin.queues.declare(QUEUE)
    fill(broker, 0, MESSAGES)
    eventually(lambda: admin.queues.get(QUEUE).messages_ready == MESSAGES or None, "all are there")
    yield QUEUE
    admin.queues.delete(QUEUE)


def fill(broker: Broker, first: int, end: int) -> None:
    with broker.connect() as connection:
        channel = connection.channel()
        for number in range(first, end):
            channel.basic_publish("", QUEUE, b"%d" % number)


class Client:
    """A consumer; `seen` has (number, redelivered), `held` the tags that it has not settled."""

    def __init__(self, broker: Broker, node: int, prefetch: int = PREFETCH) -> None:
        parameters = broker.parameters(node)
        self.raw = RawClient((parameters.host, parameters.port))
        self.prefetch = prefetch
        self.seen: list[tuple[int, bool]] = []
        self.held: list[int] = []
        self.answers: list[tuple[int, int]] = []
        self.data = bytearray()
        self.message = 0, False
        self.call(spec.Basic.Qos(0, prefetch, False), spec.Basic.QosOk)
        self.call(spec.Basic.Consume(0, QUEUE, "tag"), spec.Basic.ConsumeOk)

    def call(self, what: Any, answer: Any) -> None:
        self.raw.send(method(what, 0 if answer is spec.Connection.CloseOk else 1))
        expected = divmod(answer.index, 1 << 16)
        self.until(lambda: expected in self.answers, settles=False)

    def read(self) -> None:
        self.raw.socket.settimeout(0.01)
        with suppress(TimeoutError, ConnectionResetError):
            self.data += self.raw.socket.recv(1 << 20)
        at = 0
        while len(self.data) - at >= 8:
            kind, _, size = struct.unpack_from(">BHI", self.data, at)
            if len(self.data) - at < size + 8:
                break
            payload = self.data[at + 7 : at + 7 + size]
            at += size + 8
            if kind == 3:
                self.seen.append((int(payload), self.message[1]))
                self.held.append(self.message[0])
                assert len(self.held) <= self.prefetch, "more than its prefetch"
            elif kind == 1:
                self.answers.append(struct.unpack_from(">HH", payload))
                if self.answers[-1] == (60, 60):
                    self.answers.pop()
                    tag, redelivered = struct.unpack_from(">QB", payload, 5 + payload[4])
                    self.message = tag, bool(redelivered)
        del self.data[:at]

    def settle(self) -> None:
        if self.held:
            self.raw.send(method(spec.Basic.Ack(self.held[-1], True)))
            self.held.clear()

    def until(self, done: Callable[[], Any], settles: bool = True) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, (len(self.seen), len(self.held), self.answers)
            self.read()
            if settles and len(self.held) >= self.prefetch // 6:
                self.settle()

    def full(self) -> None:
        """Take messages without settling any, until the window is full."""
        self.until(lambda: len(self.held) == self.prefetch, settles=False)

    def rest(self, count: int) -> None:
        """Take messages until so many are there; settle every one."""

        def there() -> bool:
            if len(self.seen) >= count - self.prefetch:
                self.settle()
            return len(self.seen) >= count

        self.until(there)

    def numbers(self) -> list[int]:
        return [number for number, _ in self.seen]

    def close(self) -> None:
        self.call(spec.Connection.Close(200, "", 0, 0), spec.Connection.CloseOk)
        self.raw.socket.close()


def settled(admin: Admin, unacknowledged: int, ready: int) -> None:
    def right() -> Any:
        counts = admin.queues.get(QUEUE)
        found = (counts.messages_unacknowledged, counts.messages_ready)
        return found == (unacknowledged, ready) or None

    eventually(right, f"{unacknowledged} unacknowledged, {ready} ready")


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_client_that_stops_holds_its_prefetch_and_no_more(
    broker: Broker, admin: Admin, queue: str, node: int
) -> None:
    client = Client(broker, node)
    highest, looks = 0, [1]

    def enough() -> bool:
        nonlocal highest
        if len(client.seen) > 300 * looks[0]:
            looks[0] += 1
            highest = max(highest, admin.queues.get(QUEUE).messages_unacknowledged)
        return len(client.seen) >= MESSAGES // 2

    client.until(enough)
    assert highest > PREFETCH, "it was not read ahead for"
    client.full()
    settled(admin, PREFETCH, MESSAGES - len(client.seen))
    client.rest(MESSAGES)
    assert client.seen == [(number, False) for number in range(MESSAGES)]
    settled(admin, 0, 0)
    client.close()


@pytest.mark.parametrize("how", ["cut", "close", "channel"])
def test_what_was_not_sent_is_not_redelivered(
    broker: Broker, admin: Admin, queue: str, how: str
) -> None:
    client = Client(broker, 1)
    client.until(lambda: len(client.seen) >= MESSAGES // 3)
    client.full()
    taken, held = len(client.seen), len(client.held)
    if how == "cut":
        client.raw.socket.close()
    elif how == "close":
        client.close()
    else:
        client.call(spec.Channel.Close(200, "", 0, 0), spec.Channel.CloseOk)
    settled(admin, 0, MESSAGES - taken + held)
    after = Client(broker, 2)
    after.rest(MESSAGES - taken + held)
    expected = [(number, number < taken) for number in range(taken - held, MESSAGES)]
    assert after.seen == expected
    after.close()


def test_a_cancelled_consumer_keeps_what_it_was_sent(
    broker: Broker, admin: Admin, queue: str
) -> None:
    client = Client(broker, 0)
    client.until(lambda: len(client.seen) >= MESSAGES // 3)
    client.call(spec.Basic.Cancel("tag"), spec.Basic.CancelOk)
    taken, held = len(client.seen), len(client.held)
    settled(admin, held, MESSAGES - taken)
    after = Client(broker, 1)
    after.rest(MESSAGES - taken)
    assert after.seen == [(number, False) for number in range(taken, MESSAGES)]
    client.close()
    after.rest(MESSAGES - taken + held)
    assert after.seen[MESSAGES - taken :] == [(n, True) for n in range(taken - held, taken)]
    after.close()


def test_what_is_returned_comes_before_what_waits(broker: Broker, queue: str) -> None:
    client = Client(broker, 0)
    client.until(lambda: len(client.seen) >= MESSAGES // 3)
    client.full()
    taken = len(client.seen)
    client.raw.send(method(spec.Basic.Recover(True)))
    client.held.clear()
    client.rest(MESSAGES + PREFETCH)
    again = client.seen[taken : taken + PREFETCH]
    assert again == [(number, True) for number in range(taken - PREFETCH, taken)]
    assert client.numbers()[taken + PREFETCH :] == list(range(taken, MESSAGES))
    client.close()


def test_each_consumer_is_sent_its_own_window(broker: Broker, admin: Admin, queue: str) -> None:
    slow = [Client(broker, node, prefetch) for node, prefetch in ((0, 1), (1, 50))]
    for one in slow:
        one.full()
    fast = Client(broker, 2)
    fast.until(lambda: len(fast.seen) >= MESSAGES // 3)
    for one in slow:
        one.settle()
        one.full()
    for one in slow:
        assert one.numbers() == sorted(one.numbers()) and not any(again for _, again in one.seen)
    rest = MESSAGES - sum(len(one.seen) for one in slow)
    fast.rest(rest)
    fresh = [number for number, again in fast.seen if not again]
    assert fresh == sorted(fresh) and set(fast.numbers()).isdisjoint(slow[1].numbers())
    settled(admin, 51, 0)
    for one in (*slow, fast):
        one.close()


def test_after_its_nodes_death_all_that_was_sent_is_redelivered() -> None:
    with LocalCluster(nodes=3) as cluster:
        uris = tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses)
        broker = Broker(uris, cluster)
        with broker.connect() as connection:
            connection.channel().queue_declare(
                QUEUE, durable=True, arguments={"x-queue-type": "quorum"}
            )
        fill(broker, 0, MESSAGES)
        leader = cluster.leader_of(QUEUE)
        far, other = (leader + 1) % 3, (leader + 2) % 3
        client = Client(broker, far)
        client.until(lambda: len(client.seen) >= MESSAGES // 3)
        client.full()
        sent = set(client.numbers()[-PREFETCH:])
        cluster.kill(far)
        client.raw.socket.close()
        after = Client(broker, other)
        after.until(lambda: MESSAGES - 1 in after.numbers())
        again = {number for number, redelivered in after.seen if redelivered}
        assert sent <= again
        fresh = [number for number, redelivered in after.seen if not redelivered]
        assert fresh == sorted(fresh)
        assert set(after.numbers()) >= set(range(len(client.seen) - PREFETCH, MESSAGES))
        after.close()
