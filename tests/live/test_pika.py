"""What programs do with pika, done to a real cluster."""

from __future__ import annotations

import uuid

import pika
import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)

from live.conftest import eventually
from tests.message_properties import EVERY
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live


def drain(channel, queue, count, auto_ack=True):
    got = []
    eventually(
        lambda: (
            got if _get_into(channel, queue, got, auto_ack) is None and len(got) >= count else None
        ),
        f"{count} messages from {queue}",
    )
    return got


def _get_into(channel, queue, got, auto_ack):
    method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
    if method is not None:
        got.append((method, properties, body))


def bodies(got):
    return [body for _, _, body in got]


def closes(code):
    return pytest.raises(ChannelClosedByBroker, match=rf"\({code}, ")


def not_found(connection, name):
    """Whether a passive declare of the queue is answered with 404."""
    try:
        connection.channel().queue_declare(name, passive=True)
    except ChannelClosedByBroker as error:
        return error.reply_code == 404
    return False


def test_every_property_and_header_type_comes_back(channel, queue_name):
    channel.queue_declare(queue_name, durable=True)
    properties = pika.BasicProperties(
        **EVERY,
        timestamp=1_700_000_000,
        type="t",
        cluster_id="",
        headers={
            "s": "text",
            "i": 5,
            "l": 1 << 40,
            "neg": -3,
            "b": True,
            "n": None,
            "list": [1, "two", {"three": 3}],
            "table": {"x": "y"},
            "raw": b"\x00\xff",
        },
    )
    channel.confirm_delivery()
    channel.basic_publish("", queue_name, b"\x00body\xff", properties)
    ((method, back, body),) = drain(channel, queue_name, 1)
    assert body == b"\x00body\xff" and not method.redelivered
    assert method.routing_key == queue_name and method.exchange == ""
    names = "content_type content_encoding delivery_mode priority correlation_id reply_to"
    names += " expiration message_id timestamp type user_id app_id"
    for name in names.split():
        assert getattr(back, name) == getattr(properties, name), name
    assert back.headers == properties.headers


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_072, 1_000_003])
def test_bodies_of_every_size_around_the_frame(channel, queue_name, size):
    channel.queue_declare(queue_name, durable=True)
    channel.confirm_delivery()
    body = bytes(i * 7 & 255 for i in range(size))
    channel.basic_publish("", queue_name, body)
    assert bodies(drain(channel, queue_name, 1)) == [body]


def test_messages_keep_their_order(channel, queue_name):
    channel.queue_declare(queue_name, durable=True)
    expected = [b"%d" % i for i in range(500)]
    for body in expected:
        channel.basic_publish("", queue_name, body)
    channel.basic_qos(prefetch_count=50)
    seen = []
    for method, _, body in channel.consume(queue_name, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"nothing more after {len(seen)}"
        seen.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(seen) == len(expected):
            break
    channel.cancel()
    assert seen == expected


def test_prefetch_bounds_what_is_unacknowledged(connection, queue_name):
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True)
    for i in range(10):
        channel.basic_publish("", queue_name, b"%d" % i)
    channel.basic_qos(prefetch_count=3)
    tags = []
    channel.basic_consume(
        queue_name, lambda ch, method, props, body: tags.append(method.delivery_tag)
    )
    eventually(lambda: connection.process_data_events(0.05) or len(tags) >= 3, "three deliveries")
    connection.process_data_events(0.3)
    assert tags == [1, 2, 3]
    channel.basic_ack(2, multiple=True)
    eventually(lambda: connection.process_data_events(0.05) or len(tags) >= 5, "two more")
    connection.process_data_events(0.3)
    assert tags == [1, 2, 3, 4, 5]


@pytest.mark.specification(
    "reliability-guide: If a consumer determines that it cannot handle a message"
)
def test_nack_and_reject_bring_back_or_drop(channel, queue_name):
    channel.queue_declare(queue_name, durable=True)
    for name in (b"a", b"b", b"c"):
        channel.basic_publish("", queue_name, name)
    first = drain(channel, queue_name, 1, auto_ack=False)[0]
    channel.basic_nack(first[0].delivery_tag, requeue=True)
    again = drain(channel, queue_name, 1, auto_ack=False)[0]
    assert again[2] == b"a" and again[0].redelivered
    channel.basic_reject(again[0].delivery_tag, requeue=False)
    assert bodies(drain(channel, queue_name, 2)) == [b"b", b"c"]


@pytest.mark.specification(
    "quorum-queues: Consumers should use manual acknowledgements",
    "reliability-guide: Any channels opened on the previous connection",
    "reliability-guide: If a message is delivered to a consumer and then requeued",
)
def test_what_a_closed_channel_held_comes_back_in_order(connection, queue_name):
    one, two = connection.channel(), connection.channel()
    one.queue_declare(queue_name, durable=True)
    for i in range(5):
        one.basic_publish("", queue_name, b"%d" % i)
    got = drain(one, queue_name, 3, auto_ack=False)
    assert bodies(got) == [b"0", b"1", b"2"]
    one.close()
    back = drain(two, queue_name, 5)
    assert bodies(back) == [b"0", b"1", b"2", b"3", b"4"]
    assert [method.redelivered for method, _, _ in back] == [True] * 3 + [False] * 2


def test_recover_brings_everything_back(channel, queue_name):
    channel.queue_declare(queue_name, durable=True)
    for i in range(3):
        channel.basic_publish("", queue_name, b"%d" % i)
    drain(channel, queue_name, 3, auto_ack=False)
    channel.basic_recover(requeue=True)
    assert bodies(drain(channel, queue_name, 3)) == [b"0", b"1", b"2"]


def test_declare_counts_and_purge(channel, queue_name):
    declared = channel.queue_declare(queue_name, durable=True).method
    assert (declared.message_count, declared.consumer_count) == (0, 0)
    channel.confirm_delivery()
    for _ in range(4):
        channel.basic_publish("", queue_name, b"x")
    assert channel.queue_declare(queue_name, passive=True).method.message_count == 4
    assert channel.queue_purge(queue_name).method.message_count == 4
    assert channel.queue_declare(queue_name, passive=True).method.message_count == 0


def test_a_declaration_that_differs_is_refused(broker, queue_name):
    with broker.connect() as connection:
        connection.channel().queue_declare(queue_name, durable=True)
        with closes(406) as refused:
            connection.channel().queue_declare(queue_name, durable=False)
        assert "inequivalent arg 'durable'" in refused.value.reply_text
        with closes(404):
            connection.channel().queue_declare("no such queue " + queue_name, passive=True)
        with closes(403):
            connection.channel().queue_declare("amq.mine")


def test_delete_if_unused_and_if_empty(connection, queue_name):
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue_name, b"x")
    with closes(406):
        channel.queue_delete(queue_name, if_empty=True)
    channel = connection.channel()
    channel.basic_consume(queue_name, lambda *args: None)
    with closes(406):
        connection.channel().queue_delete(queue_name, if_unused=True)
    assert connection.channel().queue_delete(queue_name).method.message_count in (0, 1)
    with closes(404):
        connection.channel().queue_declare(queue_name, passive=True)


def test_exchanges_route(channel, queue_name):
    keys = ("direct", "fanout", "topic", "headers")
    names = {kind: f"{queue_name}.{kind}" for kind in keys}
    for kind, name in names.items():
        channel.exchange_declare(name, kind, auto_delete=False)
    channel.queue_declare(queue_name, durable=True)
    channel.queue_bind(queue_name, names["direct"], "red")
    channel.queue_bind(queue_name, names["fanout"])
    channel.queue_bind(queue_name, names["topic"], "*.stock.#")
    channel.queue_bind(
        queue_name, names["headers"], arguments={"x-match": "all", "colour": "red", "size": 3}
    )
    channel.confirm_delivery()

    def publish(kind, key, headers=None):
        try:
            channel.basic_publish(
                names[kind],
                key,
                b"%s:%s" % (kind.encode(), key.encode()),
                pika.BasicProperties(headers=headers),
                mandatory=True,
            )
        except UnroutableError:
            return False
        return True

    assert publish("direct", "red") and not publish("direct", "blue")
    assert publish("fanout", "anything")
    assert publish("topic", "usd.stock") and publish("topic", "usd.stock.db.x")
    assert not publish("topic", "usd.bond")
    assert publish("headers", "", {"colour": "red", "size": 3, "more": 1})
    assert not publish("headers", "", {"colour": "red"})
    assert len(drain(channel, queue_name, 5)) == 5
    for name in names.values():
        channel.exchange_delete(name)


def test_exchange_to_exchange_and_alternate(channel, queue_name):
    source, target, other = (f"{queue_name}.{x}" for x in ("source", "target", "other"))
    channel.exchange_declare(other, "fanout")
    channel.exchange_declare(source, "direct", arguments={"alternate-exchange": other})
    channel.exchange_declare(target, "topic")
    channel.exchange_bind(target, source, "a.b")
    channel.queue_declare(queue_name, durable=True)
    channel.queue_bind(queue_name, target, "a.*")
    channel.confirm_delivery()
    channel.basic_publish(source, "a.b", b"through", mandatory=True)
    assert bodies(drain(channel, queue_name, 1)) == [b"through"]
    with pytest.raises(UnroutableError):
        channel.basic_publish(source, "nowhere", b"lost", mandatory=True)
    channel.queue_bind(queue_name, other)
    channel.basic_publish(source, "nowhere", b"caught", mandatory=True)
    assert bodies(drain(channel, queue_name, 1)) == [b"caught"]
    channel.exchange_unbind(target, source, "a.b")
    channel.basic_publish(source, "a.b", b"again", mandatory=True)
    ((method, _, body),) = drain(channel, queue_name, 1)
    assert body == b"again" and method.exchange == source and method.routing_key == "a.b"
    for name in (source, target, other):
        channel.exchange_delete(name)


def test_unknown_exchange_closes_the_channel_only(connection):
    channel = connection.channel()
    channel.confirm_delivery()
    with closes(404):
        channel.basic_publish("no.such.exchange", "k", b"x")
    assert connection.channel().is_open


@pytest.mark.specification("mirrored-queues: Exclusive queues will be deleted when the connection")
def test_server_named_exclusive_queue_lives_with_its_connection(broker):
    connection = broker.connect()
    channel = connection.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    channel.basic_publish("", name, b"x")
    assert bodies(drain(channel, name, 1)) == [b"x"]
    with broker.connect(1) as other, closes(405):
        other.channel().queue_declare(name, passive=True)
    connection.close()

    def gone():
        with broker.connect(1) as other:
            return not_found(other, name)

    eventually(gone, "the exclusive queue is deleted")


def test_auto_delete_goes_with_the_last_consumer(connection):
    channel = connection.channel()
    name = f"auto.{uuid.uuid4()}"
    channel.queue_declare(name, auto_delete=True)
    tag = channel.basic_consume(name, lambda *args: None)
    channel.basic_cancel(tag)
    eventually(lambda: not_found(connection, name), "the auto-delete queue is deleted")


def test_exclusive_consumer(connection, queue_name):
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True, arguments={"x-queue-type": "classic"})
    channel.basic_consume(queue_name, lambda *args: None, exclusive=True)
    with closes(403):
        connection.channel().basic_consume(queue_name, lambda *args: None)


def test_wrong_credentials_and_vhost(broker):
    parameters = broker.parameters()
    parameters.credentials = pika.PlainCredentials("guest", "wrong")
    with pytest.raises((ProbableAuthenticationError, ConnectionClosedByBroker)):
        pika.BlockingConnection(parameters)
    parameters = broker.parameters()
    parameters.virtual_host = "no such vhost"
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker)):
        pika.BlockingConnection(parameters)


def test_unknown_delivery_tag(connection, queue_name):
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True)
    channel.basic_ack(99)
    with closes(406) as refused:
        channel.queue_declare(queue_name, passive=True)
    assert "unknown delivery tag 99" in refused.value.reply_text


def test_a_message_above_the_limit_is_refused(connection, queue_name, broker):
    if broker.cluster is None:
        pytest.skip("another broker has another limit")
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True)
    channel.confirm_delivery()
    with closes(406) as refused:
        channel.basic_publish("", queue_name, bytes((16 << 20) + 1))
    assert "larger than" in refused.value.reply_text
    again = connection.channel()
    assert again.queue_declare(queue_name, passive=True).method.message_count == 0


@pytest.mark.specification(
    "reliability-guide: Under some circumstances the server needs to be able"
)
def test_consumer_cancelled_when_its_queue_goes(broker, queue_name):
    with broker.connect() as connection, broker.connect(1) as other:
        channel = connection.channel()
        channel.queue_declare(queue_name, durable=True)
        cancelled = []
        channel.add_on_cancel_callback(cancelled.append)
        channel.basic_consume(queue_name, lambda *args: None)
        other.channel().queue_delete(queue_name)
        eventually(
            lambda: connection.process_data_events(0.05) or cancelled,
            "basic.cancel from the broker",
        )


@pytest.mark.specification("quorum-queues: Unlike the previous")
def test_priorities_are_strict(connection, queue_name, broker):
    if broker.cluster is None:
        pytest.skip("strict priorities came with RabbitMQ 4.3")
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    for i, priority in enumerate([0, 31, 4, None, 200, 5, 31]):
        channel.basic_publish("", queue_name, b"%d" % i, pika.BasicProperties(priority=priority))
    assert bodies(drain(channel, queue_name, 7)) == [b"1", b"4", b"6", b"5", b"2", b"3", b"0"]


def with_delivery_limit(connection, name, broker, limit):
    """Declare a quorum queue with that limit; skip the test where redeliveries are not counted."""
    if broker.cluster is None:
        pytest.skip("counters of RabbitMQ 4.3")
    channel = connection.channel()
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": limit}
    channel.queue_declare(name, durable=True, arguments=arguments)
    return channel


def taken(channel, queue):
    """Take one message without acknowledging it; return its method and headers."""
    method, properties, _ = drain(channel, queue, 1, auto_ack=False)[0]
    return method, properties.headers or {}


@pytest.mark.specification(
    "quorum-queues: Poison message handling",
    "quorum-queues: Quorum queues keep track of the number of unsuccessful",
)
def test_delivery_count_and_limit(connection, queue_name, broker):
    channel = with_delivery_limit(connection, queue_name, broker, 2)
    channel.basic_publish("", queue_name, b"poison")
    seen = []
    for _ in range(3):
        method, headers = taken(channel, queue_name)
        seen.append((headers.get("x-delivery-count"), headers.get("x-acquired-count")))
        channel.basic_reject(method.delivery_tag, requeue=True)
    assert [count or 0 for count, _ in seen] == [0, 1, 2]
    assert [count or 0 for _, count in seen] == [0, 1, 2]
    eventually(
        lambda: channel.queue_declare(queue_name, passive=True).method.message_count == 0,
        "the message is dropped after its limit",
    )


@pytest.mark.specification("quorum-queues: AMQP 0.9.1 basic.nack")
def test_nack_does_not_count_as_failed(connection, queue_name, broker):
    channel = with_delivery_limit(connection, queue_name, broker, 1)
    channel.basic_publish("", queue_name, b"x")
    for turn in range(5):
        method, headers = taken(channel, queue_name)
        assert not headers.get("x-delivery-count")
        assert headers.get("x-acquired-count", 0) == turn
        channel.basic_nack(method.delivery_tag, requeue=True)


@pytest.mark.specification("quorum-queues: For AMQP 0.9.1 clients: The consumer is cancelled")
def test_consumer_timeout_cancels_and_returns(connection, queue_name, broker):
    if broker.cluster is None:
        pytest.skip("consumer timeouts of RabbitMQ 4.3")
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True)
    channel.basic_publish("", queue_name, b"x")
    cancelled, got = [], []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(
        queue_name,
        lambda ch, method, props, body: got.append(body),
        arguments={"x-consumer-timeout": 300},
    )
    eventually(
        lambda: connection.process_data_events(0.05) or cancelled, "the consumer is cancelled"
    )
    assert got == [b"x"]
    ((method, properties, _),) = drain(connection.channel(), queue_name, 1)
    assert method.redelivered and not (properties.headers or {}).get("x-delivery-count")


def test_single_active_consumer_hands_over(broker, queue_name):
    with broker.connect() as first, broker.connect(1) as second:
        one, two = first.channel(), second.channel()
        one.queue_declare(queue_name, durable=True, arguments={"x-single-active-consumer": True})
        got_one, got_two = [], []
        one.basic_consume(queue_name, lambda ch, m, p, body: got_one.append(body), auto_ack=True)
        two.basic_consume(queue_name, lambda ch, m, p, body: got_two.append(body), auto_ack=True)
        for i in range(4):
            one.basic_publish("", queue_name, b"%d" % i)
        eventually(lambda: first.process_data_events(0.05) or len(got_one) == 4, "all to the first")
        second.process_data_events(0.2)
        assert not got_two
        first.close()
        two.basic_publish("", queue_name, b"last")
        eventually(lambda: second.process_data_events(0.05) or got_two, "the second takes over")


def test_consumer_priority(broker, queue_name):
    with broker.connect() as connection:
        low, high = connection.channel(), connection.channel()
        low.queue_declare(queue_name, durable=True)
        got_low, got_high = [], []
        low.basic_consume(queue_name, lambda ch, m, p, body: got_low.append(body), auto_ack=True)
        high.basic_consume(
            queue_name,
            lambda ch, m, p, body: got_high.append(body),
            auto_ack=True,
            arguments={"x-priority": 10},
        )
        for i in range(20):
            low.basic_publish("", queue_name, b"%d" % i)
        eventually(
            lambda: connection.process_data_events(0.05) or len(got_high) == 20, "all to one"
        )
        assert not got_low


@pytest.mark.specification("quorum-queues: When a quorum queue reaches the max-length")
def test_reject_publish_when_full(connection, queue_name):
    channel = connection.channel()
    channel.queue_declare(
        queue_name, durable=True, arguments={"x-max-length": 3, "x-overflow": "reject-publish"}
    )
    channel.confirm_delivery()
    refused = 0
    for _ in range(10):
        try:
            channel.basic_publish("", queue_name, b"x")
        except NackError:
            refused += 1
    assert refused in (6, 7)


@pytest.mark.specification(
    "at-least-once-dead-lettering: It gets routed to the source quorum queue where it expires",
    "at-least-once-dead-lettering: The expiration causes the message to be dead lettered",
)
def test_message_ttl_and_dead_letters(connection, queue_name):
    channel = connection.channel()
    dead = queue_name + ".dead"
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(
        queue_name,
        durable=True,
        arguments={
            "x-message-ttl": 100,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        },
    )
    channel.basic_publish("", queue_name, b"x")
    ((_, properties, body),) = drain(channel, dead, 1)
    assert body == b"x"
    death = properties.headers["x-death"][0]
    assert death["reason"] == "expired" and death["queue"] == queue_name and death["count"] == 1
    channel.queue_delete(dead)


def test_a_dead_letter_that_is_published_again_has_no_history(connection, queue_name):
    channel, dead = connection.channel(), queue_name + ".dead"
    channel.queue_declare(dead, durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    properties = pika.BasicProperties(headers={"x-death": "none", "h": 1})
    for _ in range(3):
        sent = properties.headers
        channel.basic_publish("", queue_name, b"x", properties)
        eventually(lambda: channel.basic_get(queue_name)[0], "the message")
        channel.basic_nack(0, multiple=True, requeue=False)
        ((_, properties, _),) = drain(channel, dead, 1)
        (death,) = properties.headers["x-death"]
        assert death["queue"] == queue_name and death["count"] == 1, (death, sent)
        assert properties.headers["h"] == 1
    channel.queue_delete(dead)


def test_direct_reply_to(connection, queue_name):
    client, server = connection.channel(), connection.channel()
    server.queue_declare(queue_name, durable=True)
    answers = []
    client.basic_consume(
        "amq.rabbitmq.reply-to", lambda ch, m, p, body: answers.append(body), auto_ack=True
    )
    client.basic_publish(
        "", queue_name, b"ask", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    )
    ((_, properties, _),) = drain(server, queue_name, 1)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    server.basic_publish("", properties.reply_to, b"answer")
    eventually(lambda: connection.process_data_events(0.05) or answers, "the answer")
    assert answers == [b"answer"]


def test_transactions(connection, queue_name):
    channel = connection.channel()
    channel.queue_declare(queue_name, durable=True)
    channel.tx_select()
    channel.basic_publish("", queue_name, b"no")
    channel.tx_rollback()
    channel.basic_publish("", queue_name, b"yes")
    channel.tx_commit()
    other = connection.channel()
    assert bodies(drain(other, queue_name, 1)) == [b"yes"]
    assert other.basic_get(queue_name)[0] is None
