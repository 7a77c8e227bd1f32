"""Ordinary AMQP 1.0 clients on a real cluster: Proton's blocking client."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pika
import pytest
from proton import UNDESCRIBED, Array, Data, Delivery, Link, Message, Terminus, Timeout, symbol
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException

from live.conftest import Broker, eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster
from warren_wire.amqp10.engine import Engine

pytestmark = [pytest.mark.live]
WAIT_S = PATIENCE_S
NESTED: dict[Any, Any] = {  # annotations that are no headers
    symbol("x-opt-list"): ["one", 2, [True, None]],
    symbol("x-opt-map"): {"k1": "v1", "k2": {"inner": 1.5}},
    symbol("x-opt-array"): Array(UNDESCRIBED, Data.STRING, "foo", "bar", "baz"),
}


class AttachProperties(LinkOption):
    """Properties of an attach."""

    def __init__(self, **said: Any) -> None:
        self.said = {symbol(f"rabbitmq:{key}"): value for key, value in said.items()}

    def apply(self, link: Link) -> None:
        link.properties = self.said


def open_connection(address: str) -> BlockingConnection:
    """A connection of Proton's blocking client."""
    return BlockingConnection(
        address, user="guest", password="guest", allowed_mechs="PLAIN", timeout=WAIT_S
    )


@contextmanager
def connected(address: str) -> Iterator[BlockingConnection]:
    """The same, closed in the end."""
    connection = open_connection(address)
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def addresses(broker: Broker) -> list[str]:
    """Of the nodes; skipped at another broker."""
    if broker.cluster is None:
        pytest.skip("a cluster of ours is needed")
    return list(broker.cluster.addresses)


def declare(channel: Any, queue: str, **arguments: Any) -> None:
    """A quorum queue."""
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", **named})


def publish(connection: BlockingConnection, queue: str, *bodies: str) -> None:
    sender = connection.create_sender(f"/queues/{queue}")
    for body in bodies:
        assert sender.send(Message(body=body)).remote_state == Delivery.ACCEPTED
    sender.close()


def counts(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_messages_go_both_ways_between_the_protocols(addresses, channel, queue_name):
    declare(channel, queue_name)
    with connected(addresses[0]) as connection:
        publish(connection, queue_name, "one", "two")
        _, _, body = channel.basic_get(queue_name, auto_ack=True)
        assert b"one" in body
        channel.basic_publish("", queue_name, b"three")
        receiver = connection.create_receiver(f"/queues/{queue_name}", credit=10)
        first = receiver.receive()
        assert (first.body, first.first_acquirer, first.delivery_count) == ("two", True, 0)
        receiver.accept()
        second = receiver.receive()
        assert bytes(second.body) == b"three"
        assert second.annotations[symbol("x-routing-key")] == queue_name
        receiver.accept()
        receiver.close()
    assert counts(channel, queue_name) == 0


def test_what_a_publisher_is_told(addresses, channel, queue_name):
    declare(channel, queue_name, max_length=1, overflow="reject-publish")
    with connected(addresses[1]) as connection:
        sender = connection.create_sender(f"/queues/{queue_name}")
        assert sender.send(Message(body="first")).remote_state == Delivery.ACCEPTED
        eventually(lambda: counts(channel, queue_name) == 1, "the queue is full")
        with pytest.raises(SendException) as refused:
            sender.send(Message(body="second"))
        assert refused.value.state == Delivery.REJECTED
        nowhere = connection.create_sender("/exchanges/amq.direct/nowhere")
        with pytest.raises(SendException) as released:
            nowhere.send(Message(body="x"))
        assert released.value.state == Delivery.RELEASED
        for missing in ("/queues/no.such", "/exchanges/no.such/key"):
            with pytest.raises(LinkDetached, match="amqp:not-found"):
                connection.create_sender(missing)
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            connection.create_receiver("/queues/no.such")


@pytest.mark.specification("quorum-queues: AMQP 1.0 released disposition")
def test_outcomes_are_what_the_queue_does(addresses, channel, queue_name):
    letters = f"{queue_name}.letters"
    declare(channel, letters)
    declare(channel, queue_name, dead_letter_exchange="", dead_letter_routing_key=letters)
    with connected(addresses[2]) as connection:
        publish(connection, queue_name, "m")
        receiver = connection.create_receiver(f"/queues/{queue_name}", credit=1)
        seen = []
        for outcome in ("release", "modify", "fail", "reject"):
            message = receiver.receive()
            seen.append((message.first_acquirer, message.delivery_count))
            if outcome == "reject":
                receiver.reject()
            elif outcome == "fail":
                delivery = receiver.fetcher.unsettled[0]
                delivery.local.failed = True
                receiver.settle(Delivery.MODIFIED)
            else:
                receiver.release(delivered=outcome == "modify")
        assert seen == [(True, 0), (False, 0), (False, 0), (False, 1)]
        receiver.close()
        eventually(lambda: counts(channel, letters) == 1, "it was dead-lettered")
        _, properties, _ = channel.basic_get(letters, auto_ack=True)
        assert properties.headers["x-death"][0]["reason"] == "rejected"
    channel.queue_delete(letters)


@pytest.mark.specification("quorum-queues: The x-opt-delivery-time annotation")
def test_a_message_waits_for_the_time_that_its_consumer_says(
    broker, addresses, channel, queue_name
):
    """Through a change of the leader, in a queue without delayed retry."""
    declare(channel, queue_name)
    with connected(addresses[0]) as connection:
        for wait_s in (4, 16, 64):  # on a busy machine the leader takes longer to change
            if waits(broker, channel, connection, queue_name, wait_s):
                return
    pytest.fail("the time was over each time before the queue was looked at")


def waits(broker, channel, connection, queue: str, wait_s: int) -> bool:
    """Whether a message was seen to wait, and to come after its time; False: not looked in time."""
    publish(connection, queue, "late", "soon")
    receiver = connection.create_receiver(f"/queues/{queue}", credit=1)
    assert receiver.receive().body == "late"
    ready_ms = int((time.time() + wait_s) * 1000)
    delivery = receiver.fetcher.unsettled[0]
    delivery.local.annotations = {
        symbol("x-opt-delivery-time"): ready_ms,
        symbol("x-opt-reason"): "busy",
        **NESTED,
    }
    receiver.settle(Delivery.MODIFIED)
    assert receiver.receive().body == "soon"
    receiver.accept()
    old = broker.cluster.leader_of(queue)
    other = broker.cluster.nodes[(old + 1) % 3].name
    with Connection(broker.uri) as operator:
        assert Admin(operator).members.transfer(queue, other).leader == other
    ready = counts(channel, queue)
    in_time = time.time() * 1000 < ready_ms
    assert ready == 0 or not in_time, "delayed, not ready"
    message = receiver.receive(timeout=WAIT_S + wait_s)
    assert time.time() * 1000 >= ready_ms
    assert (message.body, message.first_acquirer) == ("late", False)
    assert message.annotations[symbol("x-opt-reason")] == "busy"
    assert NESTED.items() <= message.annotations.items()
    receiver.accept()
    receiver.close()
    return in_time


def test_dead_letters_have_what_consumers_have_annotated(addresses, channel, queue_name):
    """As in RabbitMQ: headers over 0.9.1, annotations over 1.0."""
    for strategy in ("at-most-once", "at-least-once"):
        annotated_letters(addresses[0], channel, f"{queue_name}.{strategy}", strategy)


def annotated_letters(address: str, channel: Any, queue: str, strategy: str) -> None:
    letters = f"{queue}.letters"
    declare(channel, letters)
    named = {"dead_letter_exchange": "", "dead_letter_routing_key": letters}
    declare(channel, queue, overflow="reject-publish", dead_letter_strategy=strategy, **named)
    with connected(address) as connection:
        publish(connection, queue, "one", "two")
        receiver = connection.create_receiver(f"/queues/{queue}", credit=1)
        for _ in "ab":
            receiver.receive()
            delivery = receiver.fetcher.unsettled[0]
            delivery.local.undeliverable = True
            said = {symbol("x-opt-why"): "busy", symbol("x-opt-n"): 7, **NESTED}
            delivery.local.annotations = said
            receiver.settle(Delivery.MODIFIED)
        receiver.close()
        eventually(lambda: counts(channel, letters) == 2, "they are dead-lettered", WAIT_S)
        headers = channel.basic_get(letters, auto_ack=True)[1].headers
        assert (headers["x-opt-why"], headers["x-opt-n"]) == ("busy", 7)
        assert headers["x-first-death-reason"] == "rejected" and not NESTED.keys() & headers.keys()
        again = connection.create_receiver(f"/queues/{letters}", credit=1)
        message = again.receive(timeout=WAIT_S)
        assert message.body == "two"
        assert said.items() <= message.annotations.items()
        again.accept()
        again.close()
    for each in (queue, letters):
        channel.queue_delete(each)


LOSING = """
import os, sys
from proton.utils import BlockingConnection
connection = BlockingConnection(
    sys.argv[1], user="guest", password="guest", allowed_mechs="PLAIN", timeout=60
)
receiver = connection.create_receiver(sys.argv[2], credit=10)
receiver.receive(), receiver.receive()
receiver.accept()
connection.create_sender(sys.argv[2])  # its answer comes after the acceptance was read
os._exit(1)
"""


def test_what_a_lost_connection_held_comes_back_as_a_failure(addresses, channel, queue_name):
    declare(channel, queue_name)
    with connected(addresses[1]) as connection:
        publish(connection, queue_name, "a", "b")
        address = f"/queues/{queue_name}"
        run = [sys.executable, "-c", LOSING, addresses[0], address]
        assert subprocess.run(run, check=False, timeout=WAIT_S).returncode == 1
        again = connection.create_receiver(address, credit=10)
        message = again.receive(timeout=WAIT_S)
        assert (message.body, message.delivery_count) == ("b", 1)
        again.accept()
        again.close()


def test_a_deleted_queue_detaches_its_consumers(addresses, channel, queue_name):
    declare(channel, queue_name)
    with connected(addresses[0]) as connection:
        receiver = connection.create_receiver(f"/queues/{queue_name}", credit=1)
        channel.queue_delete(queue_name)
        with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
            receiver.receive(timeout=WAIT_S)


def test_the_higher_priority_and_the_single_active_consumer_get_the_messages(
    addresses, channel, queue_name
):
    declare(channel, queue_name, single_active_consumer=True)
    address = f"/queues/{queue_name}"
    with connected(addresses[0]) as one, connected(addresses[1]) as two:
        low = one.create_receiver(address, credit=5, options=AttachProperties(priority=-1))
        high = two.create_receiver(address, credit=5, options=AttachProperties(priority=4))
        publish(one, queue_name, "a", "b")
        assert [high.receive().body for _ in "ab"] == ["a", "b"]
        high.accept()
        high.accept()
        high.close()
        publish(two, queue_name, "c")
        assert low.receive(timeout=WAIT_S).body == "c"
        low.accept()
        low.close()


@pytest.mark.slow
def test_a_consumer_on_a_killed_node_loses_nothing_and_accepted_messages_stay_away(tmp_path):
    with LocalCluster(nodes=3, directory=tmp_path) as cluster:
        parameters = [
            pika.URLParameters(f"amqp://guest:guest@{one}/%2F") for one in cluster.addresses
        ]
        with pika.BlockingConnection(parameters[0]) as connection:
            declare(connection.channel(), "q")
        leader = cluster.leader_of("q")
        other, third = (n for n in range(3) if n != leader)
        with connected(cluster.addresses[other]) as survivor:
            publish(survivor, "q", *map(str, range(40)))
            dying = open_connection(cluster.addresses[leader])
            receiver = dying.create_receiver("/queues/q", credit=20)
            got = [receiver.receive().body for _ in range(20)]
            for _ in range(8):
                receiver.accept()
            dying.create_sender("/queues/q")  # its answer comes after the acceptances
            with Connection(cluster.node_address(third)) as operator:
                admin = Admin(operator)
                eventually(lambda: admin.queues.get("q").messages == 32, "it has settled 8", WAIT_S)
            cluster.kill(leader)
            again = survivor.create_receiver("/queues/q", credit=10)
            rest = []
            while len(rest) < 32:
                rest.append(again.receive(timeout=WAIT_S).body)
                again.accept()
            again.close()
        assert not set(got[:8]) & set(rest), "accepted, and delivered again"
        assert sorted({*got[:8], *rest}, key=int) == list(map(str, range(40)))


def test_kept_sections_that_a_0_9_1_client_forges_harm_nobody(addresses, channel, queue_name):
    """The header in which sections are kept is an ordinary one for a client that writes it."""
    declare(channel, queue_name)
    data_lengths = b"\x00\x53\x75\xb0" + (8).to_bytes(4, "big") + b"\xff\xff\xff\xff" * 2
    forged = [
        b"",
        b"\x00",
        b"\x00\x53\x73",
        b"\x00\x53\x73\xd0\xff\xff\xff\xff\x00\x00\x00\x09",
        b"\x00\x53\x72\xc1\x7f\x7f",
        data_lengths,
        b"\x00\x53\x78\xc1\x03\x02\xa1\x05",
        b"\x00\x53\x74\xd1" + b"\xff" * 8,
        bytes(range(256)),
        "a text",
        7,
        {"nested": {"table": [1, 2]}},
    ]
    channel.confirm_delivery()
    for number, value in enumerate(forged):
        for body in (b"%d" % number, b""):
            properties = pika.BasicProperties(headers={"x-warren-sections": value, "x": number})
            channel.basic_publish("", queue_name, body, properties)
    with connected(addresses[0]) as connection:
        receiver = connection.create_receiver(f"/queues/{queue_name}", credit=100)
        got = []
        for _ in range(2 * len(forged)):
            message = receiver.receive(timeout=WAIT_S)
            got.append(bytes(message.body or b""))
            receiver.accept()
        wanted = [body for number in range(len(forged)) for body in (b"%d" % number, b"")]
        assert got == wanted
        receiver.close()
    eventually(lambda: counts(channel, queue_name) == 0, "all are settled")


def test_properties_above_a_frame_of_0_9_1_are_refused_at_the_door(addresses, channel, queue_name):
    """A consumer over 0.9.1 could never have them, and they would stay in the queue."""
    declare(channel, queue_name)
    with connected(addresses[0]) as connection:
        sender = connection.create_sender(f"/queues/{queue_name}")
        for size in (100_000, 131_000):
            kept = Message(body="m", properties={"large": "x" * size})
            assert sender.send(kept).remote_state == Delivery.ACCEPTED
        for size in (131_072, 1_000_000):
            with pytest.raises((SendException, LinkDetached), match="is the limit"):
                sender.send(Message(body="m", properties={"large": "x" * size}))
            sender = connection.create_sender(f"/queues/{queue_name}", name=f"after {size}")
    for size in (100_000, 131_000):
        _, properties, _ = channel.basic_get(queue_name, auto_ack=True)
        assert len(properties.headers["large"]) == size
    assert counts(channel, queue_name) == 0


class DynamicSource(LinkOption):
    """A source that the broker makes, with a capability."""

    def __init__(self, capability: str, *, settled: bool = True, expires: Any = None) -> None:
        self.capability, self.settled = capability, settled
        self.expires = Terminus.EXPIRE_WITH_LINK if expires is None else expires

    def apply(self, link: Link) -> None:
        link.source.expiry_policy = self.expires
        link.source.capabilities.put_object(
            Array(UNDESCRIBED, Data.SYMBOL, symbol(self.capability))
        )
        if self.settled:
            link.snd_settle_mode = Link.SND_SETTLED


def dynamic(connection: BlockingConnection, source: DynamicSource, credit: int = 10) -> Any:
    return connection.create_receiver(None, credit=credit, dynamic=True, options=source)


REPLIES = DynamicSource("rabbitmq:volatile-queue")
TEMPORARY = DynamicSource("temporary-queue", settled=False)


def test_replies_over_1_0_from_another_node(addresses, channel, queue_name):
    declare(channel, queue_name)
    with connected(addresses[0]) as asking, connected(addresses[1]) as answering:
        replies = dynamic(asking, REPLIES)
        address = replies.link.remote_source.address
        assert address.startswith("/queues/amq.rabbitmq.reply-to.")
        ask = asking.create_sender(f"/queues/{queue_name}")
        for number in range(3):
            ask.send(Message(body=f"question {number}", reply_to=address, correlation_id=number))
        questions = answering.create_receiver(f"/queues/{queue_name}", credit=10)
        for number in range(3):
            question = questions.receive()
            assert question.reply_to == address
            back = answering.create_sender(question.reply_to)
            back.send(Message(body=question.body + "!", correlation_id=question.correlation_id))
            back.close()
            questions.accept()
            reply = replies.receive()
            assert (reply.body, reply.correlation_id) == (f"question {number}!", number)
        anonymous = answering.create_sender(None)
        anonymous.send(Message(address=address, body="once more"))
        assert replies.receive().body == "once more"
        replies.close()
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            answering_on_its_node = asking.create_sender(address)
            answering_on_its_node.send(Message(body="too late"))


def test_replies_between_the_protocols(
    addresses: list[str], broker: Broker, channel: Any, queue_name: str
) -> None:
    declare(channel, queue_name)
    with connected(addresses[2]) as connection:
        # a client over 1.0 asks, one over 0.9.1 answers
        replies = dynamic(connection, REPLIES)
        ask = connection.create_sender(f"/queues/{queue_name}")
        ask.send(Message(body=b"question", reply_to=replies.link.remote_source.address))
        _, asked, _ = channel.basic_get(queue_name, auto_ack=True)
        channel.basic_publish("", asked.reply_to, b"answer")
        assert bytes(replies.receive().body) == b"answer"
        # the other way round
        got: list[bytes] = []
        channel.basic_consume(
            "amq.rabbitmq.reply-to", lambda c, m, p, body: got.append(body), auto_ack=True
        )
        properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
        channel.basic_publish("", queue_name, b"question", properties)
        questions = connection.create_receiver(f"/queues/{queue_name}", credit=1)
        question = questions.receive()
        connection.create_sender(question.reply_to).send(Message(body=b"answer", inferred=True))
        questions.accept()

        def answered() -> bool:
            channel.connection.process_data_events(0.1)
            return got == [b"answer"]

        eventually(answered, "the answer")


def test_a_reply_without_credit_is_dropped_and_the_next_one_comes(addresses: list[str]) -> None:
    with connected(addresses[0]) as asking, connected(addresses[0]) as answering:
        replies = dynamic(asking, REPLIES, credit=0)
        back = answering.create_sender(replies.link.remote_source.address)
        assert back.send(Message(body="dropped")).remote_state == Delivery.ACCEPTED
        replies.flow(1)
        asking.wait(lambda: replies.link.credit == 1)
        with connected(addresses[0]) as other:  # its answer comes after the credit
            other.create_sender("/exchanges/amq.fanout")
        got: list[str] = []

        def arrived() -> bool:
            back.send(Message(body="sent"))
            try:
                got.append(replies.receive(timeout=0.5).body)
            except Timeout:
                pass
            return bool(got)

        eventually(arrived, "a reply for which there is credit")
        assert got == ["sent"]


def test_a_temporary_queue_is_its_connections_and_ends_with_its_link(addresses, broker, channel):
    with connected(addresses[0]) as connection, connected(addresses[1]) as other:
        receiver = dynamic(connection, TEMPORARY)
        address = receiver.link.remote_source.address
        name = unquote(address.removeprefix("/queues/"))
        assert name.startswith("amq.dyn-")
        sender = other.create_sender(address)
        sender.send(Message(body="kept"))
        assert receiver.receive().body == "kept"
        receiver.accept()
        with pytest.raises(LinkDetached, match="amqp:resource-locked"):
            other.create_receiver(address)
        receiver.close()
        with broker.cluster.connect() as admin:
            names = lambda: {queue.name for queue in Admin(admin).queues.list()}  # noqa: E731
            eventually(lambda: name not in names(), "it is deleted")


def test_a_temporary_queue_of_a_publisher(addresses, broker):
    class DynamicTarget(LinkOption):
        def apply(self, link: Link) -> None:
            link.target.dynamic = True
            link.target.capabilities.put_object(
                Array(UNDESCRIBED, Data.SYMBOL, symbol("temporary-queue"))
            )

    connection = open_connection(addresses[0])
    sender = connection.create_sender(None, options=DynamicTarget())
    address = sender.link.remote_target.address
    sender.send(Message(body="mine"))
    receiver = connection.create_receiver(address, credit=1)
    assert receiver.receive().body == "mine"
    receiver.accept()
    connection.close()
    name = unquote(address.removeprefix("/queues/"))
    with broker.cluster.connect() as admin:
        names = lambda: {queue.name for queue in Admin(admin).queues.list()}  # noqa: E731
        eventually(lambda: name not in names(), "it went with its connection")


@pytest.mark.parametrize(
    "source",
    [
        DynamicSource("shared-queue"),
        DynamicSource("rabbitmq:volatile-queue", settled=False),
        DynamicSource("rabbitmq:volatile-queue", expires=Terminus.EXPIRE_NEVER),
    ],
)
def test_other_dynamic_sources_are_refused(addresses, source):
    with (
        connected(addresses[0]) as connection,
        pytest.raises(LinkDetached, match="amqp:not-implemented"),
    ):
        dynamic(connection, source)


@pytest.mark.specification("quorum-queues: For AMQP 1.0 clients: The broker sends")
def test_a_delivery_that_is_held_for_too_long_is_released_and_the_link_stays(
    addresses, channel, queue_name, broker
):
    """Another consumer takes it, the leader changes, and then the slow client continues."""
    declare(channel, queue_name)
    address = f"/queues/{queue_name}"
    limit = AttachProperties(**{"consumer-timeout": 1500})
    with connected(addresses[0]) as slow, connected(addresses[1]) as quick:
        receiver = slow.create_receiver(address, credit=2, options=limit)
        publish(quick, queue_name, "one", "two")
        assert [receiver.receive().body for _ in range(2)] == ["one", "two"]
        held = list(receiver.fetcher.unsettled)
        slow.wait(
            lambda: all(each.remote_state == Delivery.RELEASED for each in held), timeout=WAIT_S
        )
        assert not any(each.settled for each in held)
        other = quick.create_receiver(address, credit=10)
        for body in ("one", "two"):
            message = other.receive(timeout=WAIT_S)
            assert (message.body, message.delivery_count) == (body, 0), "that is no failure"
            other.accept()
        other.close()
        old = broker.cluster.leader_of(queue_name)
        with Connection(broker.uri) as operator:
            name = broker.cluster.nodes[(old + 1) % 3].name
            assert Admin(operator).members.transfer(queue_name, name).leader == name
        publish(quick, queue_name, "three")
        receiver.flow(5)
        with pytest.raises(Timeout):
            receiver.receive(timeout=1.0)  # it has not settled what was released
        assert counts(channel, queue_name) == 1
        for each in held:
            each.update(Delivery.ACCEPTED)  # too late: they were another client's
            each.settle()
        receiver.fetcher.unsettled.clear()
        assert receiver.receive(timeout=WAIT_S).body == "three"
        receiver.accept()
        receiver.close()
    eventually(lambda: counts(channel, queue_name) == 0, "nothing is left")
    logged = "".join(broker.cluster.log(node) for node in range(3))
    warning, *_ = [
        line for line in logged.splitlines() if "has timed out" in line and queue_name in line
    ]
    assert "WARNING" in warning and "1500 ms" in warning


def test_a_deleted_queue_detaches_its_publishers_on_every_node(addresses, channel, queue_name):
    for name in (queue_name, queue_name + ".other"):
        declare(channel, name)
    with connected(addresses[0]) as one, connected(addresses[1]) as two:
        links = [each.create_sender(f"/queues/{queue_name}") for each in (one, two)]
        other = one.create_sender(f"/queues/{queue_name}.other")
        for link in (*links, other):
            assert link.send(Message(body="a")).remote_state == Delivery.ACCEPTED
        channel.queue_delete(queue_name)
        for connection, link in zip((one, two), links, strict=True):
            with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
                connection.wait(lambda: False, timeout=WAIT_S)
            assert link.link.state & Link.REMOTE_CLOSED
        assert other.send(Message(body="b")).remote_state == Delivery.ACCEPTED
        declare(channel, queue_name)
        again = two.create_sender(f"/queues/{queue_name}", name="again")
        assert again.send(Message(body="c")).remote_state == Delivery.ACCEPTED
    channel.queue_delete(queue_name + ".other")


@pytest.mark.parametrize("product", ["", "Warren client"])
def test_the_python_client_connected_for_ever_to_a_vhost_that_is_not_there(
    addresses: list[str], product: str
) -> None:
    """It was sent Open and then Close; RabbitMQ sends neither. Our own clients are told why."""
    host, _, port = addresses[0].rpartition(":")
    engine = Engine(server=False, container="client")
    connection = engine.connection
    connection.hostname = "vhost:nowhere"
    connection.user = connection.password = "guest"
    connection.properties = {symbol("product"): product}
    engine.transport.sasl().allow_insecure_mechs = True
    engine.transport.sasl().allowed_mechs("PLAIN")
    engine.bind()
    connection.open()
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as sock:
        data = b"-"
        while data:
            for piece in engine.output(1 << 20):
                sock.sendall(piece)
            data = sock.recv(1 << 16)
            for _ in engine.receive(data) if data else ():
                list(engine.events())
    told = connection.remote_condition
    assert bool(connection.remote_container) == bool(product)
    assert (told.description if told else "") == ("vhost nowhere not found" if product else "")
