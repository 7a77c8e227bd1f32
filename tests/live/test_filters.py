"""Filters of AMQP 1.0 consumers on queues of a real cluster, with Proton's blocking client."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pika
import pytest
from proton import Delivery, Described, Link, Message, Timeout, symbol, ulong
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection, LinkDetached

from live.conftest import Broker, eventually
from live.load import connect
from live.test_amqp10 import WAIT_S, connected, counts, declare
from tests.patience import PATIENCE_S
from warren.local import LocalCluster

pytestmark = [pytest.mark.live]


class Filtered(LinkOption):
    """A filter-set of an attach."""

    def __init__(self, **filters: tuple[Any, Any]) -> None:
        self.set = {
            symbol(name): Described(descriptor, value)
            for name, (descriptor, value) in filters.items()
        }

    def apply(self, link: Link) -> None:
        link.source.filter.put_dict(self.set)


def sql(text: str) -> Filtered:
    """A filter of one SQL filter expression."""
    return Filtered(sql=(symbol("amqp:sql-filter"), text))


def receive(connection: BlockingConnection, queue: str, filtered: Filtered, credit: int) -> Any:
    """A receiver with that credit."""
    return connection.create_receiver(
        f"/queues/{queue}", credit=credit, name=str(uuid.uuid4()), options=[filtered]
    )


def echoed(receiver: Any) -> dict[str, Any]:
    """The filters of the attach's answer."""
    data = receiver.link.remote_source.filter
    data.rewind()
    found = data.get_dict() if data.next() is not None else {}
    return {str(name): one.value for name, one in found.items()}


def bodies(receiver: Any, count: int) -> list[Any]:
    """The bodies of that many messages, which are accepted."""
    found = []
    for _ in range(count):
        found.append(receiver.receive(timeout=WAIT_S).body)
        receiver.accept()
    return found


def nothing_comes(receiver: Any, seconds: float = 0.5) -> bool:
    try:
        receiver.receive(timeout=seconds)
    except Timeout:
        return True
    return False


@pytest.fixture
def addresses(broker: Broker) -> list[str]:
    """Of the nodes; skipped at another broker."""
    if broker.cluster is None:
        pytest.skip("a cluster of ours is needed")
    return list(broker.cluster.addresses)


def publish(connection: BlockingConnection, queue: str, *messages: Message) -> None:
    sender = connection.create_sender(f"/queues/{queue}")
    for message in messages:
        assert sender.send(message).remote_state == Delivery.ACCEPTED
    sender.close()


FILTERS = [
    (sql("n % 2 = 0 AND region LIKE 'em%' AND p.message_id <> '&2'"), [0, 4]),
    (sql("p.subject IS NULL AND NOT urgent"), [1, 5]),
    (sql("h.priority > 4"), [2]),
    (Filtered(one=(symbol("amqp:application-properties-filter"), {"region": "&p:em"})), [0, 2, 4]),
    (Filtered(one=(symbol("amqp:application-properties-filter"), {"n": 3.0})), [3]),
    (Filtered(one=(ulong(0x174), {"urgent": None})), [0, 1, 2, 3, 4, 5]),
    (Filtered(one=(symbol("amqp:properties-filter"), {symbol("subject"): "&s:new"})), [3, 4]),
    (
        Filtered(
            one=(ulong(0x173), {symbol("message-id"): "&&4"}),
            two=(symbol("amqp:sql-filter"), "n > 1"),
        ),
        [4],
    ),
    (
        Filtered(jms=(symbol("apache.org:selector-filter:string"), "JMSType like 'o%' and n <> 3")),
        [4],
    ),
]


def test_a_consumer_gets_what_its_filter_matches_and_nothing_else(addresses, channel, queue_name):
    declare(channel, queue_name)
    subjects = [None, None, "x", "order.new", "order.new", None]
    messages = [
        Message(
            id=f"&{n}",
            body=n,
            subject=subjects[n],
            priority=9 if n == 2 else 4,
            properties={"n": n, "region": "emea" if n % 2 == 0 else "apj", "urgent": n % 2 == 0},
        )
        for n in range(6)
    ]
    with connected(addresses[0]) as first, connected(addresses[1]) as second:
        publish(first, queue_name, *messages)
        for filtered, expected in FILTERS:
            receiver = receive(second, queue_name, filtered, 10)
            assert set(echoed(receiver)) == {str(name) for name in filtered.set}
            got = []
            for _ in expected:
                got.append(receiver.receive(timeout=WAIT_S).body)
            assert sorted(got) == expected, filtered.set
            assert nothing_comes(receiver, 0.1)
            receiver.release(delivered=False)
            receiver.close()
            eventually(lambda: counts(channel, queue_name) == 6, "released")
        plain = second.create_receiver(f"/queues/{queue_name}", credit=10)
        assert sorted(bodies(plain, 6)) == [0, 1, 2, 3, 4, 5]


def test_what_arrives_later_and_what_comes_back_is_judged_too(addresses, channel, queue_name):
    declare(channel, queue_name, delivery_limit=5)
    with connected(addresses[0]) as first, connected(addresses[1]) as second:
        receiver = receive(second, queue_name, sql("kind = 'a'"), 5)
        for number in range(3):
            publish(first, queue_name, Message(body=number, properties={"kind": "b"}))
            publish(first, queue_name, Message(body=10 + number, properties={"kind": "a"}))
        channel.basic_publish("", queue_name, b"other", pika.BasicProperties(headers={"kind": "a"}))
        assert bodies(receiver, 3) == [10, 11, 12]
        other = receiver.receive(timeout=WAIT_S)
        receiver.release(delivered=True)
        again = receiver.receive(timeout=WAIT_S)
        assert bytes(again.body) == bytes(other.body) == b"other" and not again.first_acquirer
        receiver.accept()
        assert nothing_comes(receiver)
    method, properties, _ = channel.basic_get(queue_name)
    assert not method.redelivered and "x-delivery-count" not in (properties.headers or {})
    assert counts(channel, queue_name) == 2


def test_a_drain_gives_the_credit_back_when_no_match_is_left(addresses, channel, queue_name):
    declare(channel, queue_name)
    for number in range(2_500):
        headers = {"number": number}
        channel.basic_publish("", queue_name, b"", pika.BasicProperties(headers=headers))
    eventually(lambda: counts(channel, queue_name) == 2_500, "all are there")
    with connected(addresses[1]) as connection:
        receiver = receive(connection, queue_name, sql("number IN (7, 2400)"), 0)
        receiver.link.drain(10)
        connection.wait(lambda: not receiver.link.draining(), timeout=WAIT_S, msg="drained")
        assert len(receiver.fetcher.incoming) == 2
        assert receiver.link.credit == 0


BAD = [
    (sql("n = = 1"), "character 5"),
    (sql("n = 1 AND"), "at its end"),
    (sql("p.creation_time > UTC()"), "UTC() changes"),
    (Filtered(one=(symbol("amqp:sql-filter"), 7)), "give a string"),
    (Filtered(one=(symbol("amqp:properties-filter"), {symbol("color"): "x"})), "no field 'color'"),
    (Filtered(one=(ulong(0x174), {"n": "&x:1"})), "character 1 of '&x:1'"),
    (Filtered(jms=(ulong(0x468C00000004), "n BETWEEN 1 AND 2")), "character 3: BETWEEN"),
]


def test_a_filter_that_is_none_is_refused_with_its_position(addresses, channel, queue_name):
    declare(channel, queue_name)
    channel.basic_publish("", queue_name, b"stays")
    with connected(addresses[0]) as connection:
        for filtered, said in BAD:
            with pytest.raises(LinkDetached) as refused:
                receive(connection, queue_name, filtered, 10)
            assert refused.value.condition == "amqp:invalid-field"
            assert said in str(refused.value)
        # the connection and its other links continue, and a filter of another kind is not applied
        unknown = Filtered(other=(symbol("example:filter"), "x"))
        receiver = receive(connection, queue_name, unknown, 1)
        assert echoed(receiver) == {}
        assert bytes(receiver.receive(timeout=WAIT_S).body) == b"stays"


MESSAGES = 50_000
KINDS = {0: "a", 1: "b"}


class Collecting(MessagingHandler):
    """A consumer in a thread of its own: it accepts everything, and notes what it got."""

    def __init__(self, address: str, queue: str, filtered: Filtered) -> None:
        super().__init__(prefetch=100, auto_accept=True)
        self.address, self.queue, self.filtered = address, queue, filtered
        self.got: list[bytes] = []
        self.may_end = threading.Event()
        self.container = Container(self)
        self.thread = threading.Thread(target=self.container.run, daemon=True)
        self.thread.start()

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(
            self.address, user="guest", password="guest", allowed_mechs="PLAIN", reconnect=False
        )
        event.container.create_receiver(connection, f"/queues/{self.queue}", options=self.filtered)

    def on_message(self, event: Any) -> None:
        self.got.append(bytes(event.message.body))
        if len(self.got) == 200:  # however late the test looks, it is in the middle
            self.may_end.wait(PATIENCE_S)


@pytest.mark.slow
@pytest.mark.long
def test_with_a_backlog_and_a_leader_that_dies_each_message_goes_once_to_a_match(tmp_path):
    queue = "many"
    with LocalCluster(nodes=3, directory=tmp_path) as cluster:
        with connect(cluster, 0) as connection:
            channel = connection.channel()
            declare(channel, queue)
            for number in range(MESSAGES):
                headers = {"kind": KINDS.get(number % 20, "c")}
                body = b"%d" % number
                channel.basic_publish("", queue, body, pika.BasicProperties(headers=headers))
            eventually(lambda: counts(channel, queue) == MESSAGES, "the backlog is there", 120)
        leader = cluster.leader_of(queue)
        others = [i for i in range(3) if i != leader]
        filtered = [
            Collecting(cluster.addresses[others[0]], queue, sql("kind = 'a'")),
            Collecting(cluster.addresses[others[1]], queue, sql("kind = 'b' AND h.priority = 4")),
        ]
        deadline = time.monotonic() + PATIENCE_S
        while min(len(one.got) for one in filtered) < 200 and time.monotonic() < deadline:
            time.sleep(0.002)
        cluster.kill(leader)
        before = [len(one.got) for one in filtered]
        assert all(200 <= count < MESSAGES // 20 for count in before), before
        for one in filtered:
            one.may_end.set()
        plain = []
        with connect(cluster, others[0]) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1_000)
            for method, _, body in channel.consume(queue, inactivity_timeout=0.5):
                if method is not None:
                    plain.append(body)
                    if method.delivery_tag % 200 == 0:
                        channel.basic_ack(method.delivery_tag, multiple=True)
                if len(plain) + sum(len(one.got) for one in filtered) >= MESSAGES:
                    channel.basic_ack(0, multiple=True)
                    break
            channel.cancel()
            eventually(lambda: counts(channel, queue) == 0, "all are settled")
        for kind, one in enumerate(filtered):
            assert all(int(body) % 20 == kind for body in one.got)
            assert [int(body) for body in one.got] == sorted(map(int, one.got)), "in order"
        everything = plain + filtered[0].got + filtered[1].got
        assert len(everything) == MESSAGES == len(set(everything))
        counted = [len(one.got) for one in filtered]
        print(f"filtered: {before} before the kill, {counted} in all; others: {len(plain)}")
