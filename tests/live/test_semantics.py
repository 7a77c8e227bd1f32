"""What clients rely on beside the methods themselves: order, limits, permissions, notices.

Each was looked up in RabbitMQ's behaviour; all but those marked run against it, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pamqp.commands as spec
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from live.conftest import Broker, eventually
from live.raw_client import ContentHeader, RawClient, content, frame, method, short
from tests.patience import TooSlow, in_time, with_time_enough

pytestmark = pytest.mark.live
QUORUM = {"x-queue-type": "quorum"}


def address(broker: Broker, node: int = 0) -> tuple[str, int]:
    """Where a raw client connects."""
    parameters = broker.parameters(node)
    return parameters.host, parameters.port


def get(channel: Any, queue: str) -> tuple[Any, Any, bytes]:
    """A message that is bound to come."""

    def one() -> Any:
        got = channel.basic_get(queue, auto_ack=True)
        return got if got[0] is not None else None

    return eventually(one, f"a message in {queue}")


def depth(channel: Any, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).method.message_count


def closes(code: int) -> Any:
    return pytest.raises(ChannelClosedByBroker, match=rf"\({code}, ")


# ------------------------------------------------------------------ permissions


def test_exclusive_or_not_is_part_of_access(broker: Broker, queue_name: str) -> None:
    with broker.connect() as owner, broker.connect(1) as other:
        owner.channel().queue_declare(queue_name, exclusive=True)
        owner.channel().queue_declare(queue_name, exclusive=True)
        with closes(405):
            owner.channel().queue_declare(queue_name)
        for said in (
            lambda channel: channel.queue_declare(queue_name, exclusive=True),
            lambda channel: channel.queue_declare(queue_name, passive=True),
            lambda channel: channel.queue_bind(queue_name, "amq.direct"),
            lambda channel: channel.queue_purge(queue_name),
            lambda channel: channel.queue_delete(queue_name),
            lambda channel: channel.basic_get(queue_name),
            lambda channel: channel.basic_consume(queue_name, print),
        ):
            with closes(405):
                said(other.channel())


def test_a_new_secret_for_the_same_user(broker: Broker) -> None:
    with broker.connect() as connection:
        connection.update_secret("anything", "rotated")
        connection.channel()


def test_what_the_default_exchange_and_reserved_names_do_not_allow(broker: Broker) -> None:
    with broker.connect() as connection:
        for said in (
            lambda channel: channel.queue_bind("q", ""),
            lambda channel: channel.exchange_declare("", "direct"),
            lambda channel: channel.exchange_delete("amq.topic"),
            lambda channel: channel.exchange_declare("amq.mine", "direct"),
            lambda channel: channel.queue_declare("amq.mine"),
        ):
            with closes(403):
                said(connection.channel())


# ------------------------------------------------------------------ carbon copies, dead letters


def test_carbon_copies_are_shown_blind_ones_never(channel: Any, queue_name: str) -> None:
    names = [f"{queue_name}.{n}" for n in range(3)]
    for name in names:
        channel.queue_declare(name, exclusive=True)
    channel.confirm_delivery()
    copies = {"CC": [names[1]], "BCC": [names[2], "nobody"], "kept": 1}
    for body in (b"one", b"two"):
        channel.basic_publish("", names[0], body, pika.BasicProperties(headers=copies))
    for name in names:
        for body in (b"one", b"two"):
            _, properties, came = get(channel, name)
            assert came == body and properties.headers == {"CC": [names[1]], "kept": 1}


def dead_lettering(channel: Any, name: str, to: str, **arguments: Any) -> None:
    channel.queue_declare(
        name,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to, **arguments},
    )


def test_a_loop_of_timers_ends_where_it_closes(channel: Any, queue_name: str) -> None:
    dead_lettering(channel, queue_name, queue_name, **{"x-message-ttl": 20})
    channel.confirm_delivery()
    channel.basic_publish("", queue_name, b"x")
    eventually(lambda: depth(channel, queue_name) == 0, "dropped when it would come back")


def test_a_loop_with_a_reject_in_it_goes_on(channel: Any, queue_name: str) -> None:
    """The usual way to retry later: reject, wait in another queue, come back, counted."""
    waiting = queue_name + ".wait"
    dead_lettering(channel, queue_name, waiting)
    dead_lettering(channel, waiting, queue_name, **{"x-message-ttl": 20})
    channel.confirm_delivery()
    channel.basic_publish("", queue_name, b"again")
    for tries in range(3):

        def one() -> Any:
            got = channel.basic_get(queue_name)
            return got if got[0] is not None else None

        got, properties, _ = eventually(one, f"try {tries}")
        deaths = (properties.headers or {}).get("x-death", [])
        assert [death["count"] for death in deaths] == [tries] * (2 if tries else 0)
        if tries:
            assert [death["reason"] for death in deaths] == ["expired", "rejected"]
            assert deaths[1]["queue"] == queue_name and deaths[1]["routing-keys"] == [queue_name]
        channel.basic_reject(got.delivery_tag, requeue=False)
    channel.queue_delete(waiting)


def test_a_death_names_all_routing_keys(channel: Any, queue_name: str) -> None:
    dead = queue_name + ".dead"
    channel.queue_declare(dead, exclusive=True)
    dead_lettering(channel, queue_name, dead)
    channel.queue_bind(queue_name, "amq.fanout")
    channel.confirm_delivery()
    channel.basic_publish(
        "amq.fanout",
        "key",
        b"x",
        pika.BasicProperties(headers={"CC": ["copy"], "BCC": ["blind"]}, expiration="60000"),
    )
    channel.basic_reject(channel.basic_get(queue_name)[0].delivery_tag, requeue=False)
    _, properties, _ = get(channel, dead)
    death = properties.headers["x-death"][0]
    assert death["routing-keys"] == ["key", "copy"] and death["exchange"] == "amq.fanout"
    assert death["original-expiration"] == "60000" and properties.expiration is None
    assert "BCC" not in properties.headers
    assert properties.headers["CC"] == ["copy"], "only shown from now on: the letter went to one"
    assert properties.headers["x-first-death-reason"] == "rejected"


def test_a_limit_in_bytes_counts_bodies(channel: Any, queue_name: str) -> None:
    channel.confirm_delivery()
    channel.queue_declare(queue_name, durable=True, arguments={"x-max-length-bytes": 10})
    for i in range(6):
        channel.basic_publish(
            "", queue_name, b"%d" % i * 4, pika.BasicProperties(headers={"long": "h" * 1000})
        )
    assert [get(channel, queue_name)[2] for _ in range(2)] == [b"4444", b"5555"]


# ------------------------------------------------------------------ what comes before what


@pytest.mark.specification("reliability-guide: it can set the mandatory flag on a basic.publish")
def test_a_return_comes_before_its_confirm(broker: Broker) -> None:
    with RawClient(address(broker)) as client:
        client.send(method(spec.Confirm.Select()))
        client.expect(spec.Confirm.SelectOk)
        client.send(
            method(spec.Basic.Publish(routing_key="nobody.wants", mandatory=True))
            + content(4, body=b"back")
        )
        assert client.expect(spec.Basic.Return).reply_code == 312
        client.expect(ContentHeader)
        assert client.next()[1].value == b"back"
        assert client.expect(spec.Basic.Ack).delivery_tag == 1


def test_delete_ok_comes_before_the_consumers_cancel(broker: Broker, queue_name: str) -> None:
    with RawClient(address(broker), capabilities={"consumer_cancel_notify": True}) as client:
        client.send(
            method(spec.Queue.Declare(queue=queue_name, durable=True))
            + method(spec.Basic.Consume(queue=queue_name, consumer_tag="c"))
        )
        client.expect(spec.Queue.DeclareOk)
        client.expect(spec.Basic.ConsumeOk)
        client.send(method(spec.Queue.Delete(queue=queue_name)))
        client.expect(spec.Queue.DeleteOk)
        assert client.expect(spec.Basic.Cancel).consumer_tag == "c"


def test_close_ok_reaches_a_client_that_went_on_talking(broker: Broker) -> None:
    """Some clients have publishes on their way when they close."""
    late = method(spec.Basic.Publish(routing_key="x")) + content(50_000, body=bytes(50_000))
    for _ in range(5):
        with RawClient(address(broker)) as client:
            client.send(method(spec.Connection.Close(200, "bye", 0, 0), 0) + late * 40)
            client.expect(spec.Connection.CloseOk)


def test_the_socket_stays_open_after_close_ok_until_the_client_hangs_up(broker: Broker) -> None:
    with RawClient(address(broker)) as client:
        client.send(method(spec.Connection.Close(200, "bye", 0, 0), 0))
        client.expect(spec.Connection.CloseOk)
        client.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)


def test_a_client_that_does_not_hang_up_is_closed_after_its_heartbeat_interval(
    broker: Broker,
) -> None:
    with RawClient(address(broker), "started") as client:
        client.send(method(spec.Connection.TuneOk(2047, 131_072, 1), 0))
        client.send(method(spec.Connection.Open("/"), 0))
        client.expect(spec.Connection.OpenOk)
        began = time.monotonic()
        client.send(method(spec.Connection.Close(200, "bye", 0, 0), 0))
        client.find(spec.Connection.CloseOk)
        assert client.next() is None
        assert time.monotonic() - began > 0.5


def test_an_auto_delete_queue_is_gone_when_cancel_ok_arrives(broker: Broker) -> None:
    with broker.connect() as first, broker.connect(1) as second:
        mine, other = first.channel(), second.channel()
        for round_ in range(10):
            name = f"auto.{time.monotonic_ns()}"
            mine.queue_declare(name, auto_delete=True)
            tags = [mine.basic_consume(name, lambda *_: None) for _ in range(2)]
            mine.basic_cancel(tags[0])
            assert other.queue_declare(name, passive=True).method.consumer_count == 1
            mine.basic_cancel(tags[1])
            with closes(404):
                (other if round_ % 2 else mine).queue_declare(name, passive=True)
            mine, other = first.channel(), second.channel()


def test_an_expiration_of_0_is_never_seen(broker: Broker, channel: Any, queue_name: str) -> None:
    channel.queue_declare(queue_name, durable=True)
    at_once = pika.BasicProperties(expiration="0")
    for _ in range(20):
        channel.basic_publish("", queue_name, b"gone", at_once)
        assert depth(channel, queue_name) == 0
        channel.basic_publish("", queue_name, b"kept")
        channel.basic_publish("", queue_name, b"gone", at_once)
        method_, _, body = channel.basic_get(queue_name, auto_ack=True)
        assert body == b"kept" and method_.message_count == 0
        channel.basic_publish("", queue_name, b"gone", at_once)
        assert channel.basic_get(queue_name)[0] is None
        channel.basic_publish("", queue_name, b"gone", at_once)
        assert channel.queue_purge(queue_name).method.message_count == 0


def test_an_expiration_of_0_that_comes_back_is_not_delivered_again(
    broker: Broker, queue_name: str
) -> None:
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(queue_name, durable=True)
        for _ in range(10):
            seen: list[Any] = []

            def reject(ch: Any, delivery: Any, properties: Any, body: bytes) -> None:
                seen.append(delivery.redelivered)  # noqa: B023
                ch.basic_reject(delivery.delivery_tag, requeue=True)

            tag = channel.basic_consume(queue_name, reject)
            channel.basic_publish("", queue_name, b"", pika.BasicProperties(expiration="0"))
            while not seen:
                connection.process_data_events(0.05)
            connection.process_data_events(0.1)
            channel.basic_cancel(tag)
            assert seen == [False]


@pytest.mark.parametrize("no_ack", [False, True], ids=["acknowledging", "no_ack"])
def test_nothing_is_lost_between_a_consumer_and_its_cancel(
    broker: Broker, channel: Any, no_ack: bool
) -> None:
    """Deliveries wait for a client that does not read; its cancel must neither drop nor keep
    them."""
    queue_name = f"cancelled.{time.monotonic_ns()}"
    channel.confirm_delivery()
    channel.queue_declare(queue_name, durable=True)
    for _ in range(60):
        channel.basic_publish("", queue_name, bytes(200_000))
    with RawClient(address(broker)) as client:
        client.send(method(spec.Basic.Consume(queue=queue_name, consumer_tag="c", no_ack=no_ack)))
        eventually(lambda: depth(channel, queue_name) < 60, "it was sent something")
        client.send(method(spec.Basic.Cancel(consumer_tag="c")))
        delivered = 0
        while (got := client.next()) is not None and not isinstance(got[1], spec.Basic.CancelOk):
            delivered += isinstance(got[1], spec.Basic.Deliver)
        if not no_ack:
            client.send(method(spec.Basic.Ack(0, multiple=True)))
        client.send(method(spec.Basic.Get(queue=queue_name)))  # after the ack, and returned at once
        client.find((spec.Basic.GetOk, spec.Basic.GetEmpty))
    eventually(
        lambda: depth(channel, queue_name) + delivered == 60,
        f"{delivered} delivered, the rest in the queue",
    )
    channel.queue_delete(queue_name)


# ------------------------------------------------------------------ time


def test_a_slow_consumer_is_told_in_its_own_way(broker: Broker, queue_name: str) -> None:
    """basic.cancel for clients that support it, the end of the channel for the others."""
    if broker.cluster is None:
        pytest.skip("RabbitMQ looks at its consumers once a minute")
    for capable in (True, False):
        said = {"consumer_cancel_notify": True} if capable else {}
        with RawClient(address(broker), capabilities=said) as client:
            client.send(
                method(spec.Queue.Declare(queue=queue_name, durable=True))
                + method(spec.Basic.Publish(routing_key=queue_name))
                + content(0)
                + method(
                    spec.Basic.Consume(
                        queue=queue_name, consumer_tag="c", arguments={"x-consumer-timeout": 200}
                    )
                )
            )
            client.find(spec.Basic.Deliver)
            if capable:
                assert client.find(spec.Basic.Cancel).consumer_tag == "c"
            else:
                closed = client.find(spec.Channel.Close)
                assert closed.reply_code == 406, dict(closed)
                assert "timed out. Timeout value used: 200 ms" in closed.reply_text
        with broker.connect() as connection:
            channel = connection.channel()
            eventually(lambda c=channel: depth(c, queue_name) == 1, "it is back")
            channel.queue_purge(queue_name)


@pytest.mark.specification("reliability-guide: AMQP offers a heartbeat feature")
def test_a_client_without_a_sign_of_life_is_given_up(broker: Broker) -> None:
    with RawClient(address(broker), "started") as client:
        began = time.monotonic()
        client.send(
            method(spec.Connection.TuneOk(10, 131_072, 1), 0) + method(spec.Connection.Open("/"), 0)
        )
        client.expect(spec.Connection.OpenOk)
        assert client.next() is None  # heartbeats come, then it hangs up
        assert time.monotonic() - began > 1.5


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_unused_queue_expires_and_use_puts_it_off(
    channel: Any, queue_name: str, kind: str
) -> None:
    arguments: dict[str, Any] = {"x-queue-type": kind}

    def use(own: Any) -> None:
        """Redeclare a classic queue; get from a quorum queue: redeclaring is no use of that."""
        if kind == "classic":
            own.queue_declare(queue_name, durable=True, arguments=arguments)
        else:
            found, _, _ = own.basic_get(queue_name)
            own.basic_nack(found.delivery_tag)

    def kept(life_s: float) -> None:
        """Use it for longer than it lives unused; TooSlow: there was a pause as long as its life.

        The latest use was at `used` or later.
        """
        arguments["x-expires"] = round(life_s * 1_000)
        channel.queue_delete(queue_name)
        own = channel.connection.channel()
        start = used = time.monotonic()
        own.queue_declare(queue_name, durable=True, arguments=arguments)
        own.basic_publish("", queue_name, b"not in a queue that was declared again")
        while used < start + 1.4 * life_s:
            time.sleep(0.2 * life_s)
            begun = time.monotonic()
            with in_time(used + life_s):
                use(own)
            if time.monotonic() > used + life_s:
                raise TooSlow  # it may have been declared again
            used = begun
        with in_time(used + life_s):
            assert depth(own, queue_name) == 1

    with_time_enough(kept, 1.5)
    life_s = arguments["x-expires"] / 1_000
    for _ in range(10):
        time.sleep(
            1.2 * life_s
        )  # asking may be a use: it must be left alone for longer than it lives
        probe = channel.connection.channel()
        try:
            probe.queue_declare(queue_name, passive=True)
        except ChannelClosedByBroker as closed:
            assert closed.reply_code == 404
            return
    pytest.fail("it never expired")


# ------------------------------------------------------------------ sizes, names


def test_a_small_frame_max_is_kept_both_ways(broker: Broker, queue_name: str) -> None:
    body = bytes(range(256)) * 60
    with RawClient(address(broker), frame_max=4096) as client:
        client.send(method(spec.Queue.Declare(queue=queue_name, exclusive=True)))
        client.expect(spec.Queue.DeclareOk)
        pieces = [body[at : at + 4088] for at in range(0, len(body), 4088)]
        client.send(
            method(spec.Basic.Publish(routing_key=queue_name))
            + content(len(body))
            + b"".join(frame(3, 1, piece) for piece in pieces)
            + method(spec.Basic.Get(queue=queue_name))
        )
        client.find(spec.Basic.GetOk)
        client.expect(ContentHeader)
        came = b""
        while len(came) < len(body):
            piece = client.next()[1].value
            assert 0 < len(piece) <= 4088
            came += piece
        assert came == body


@pytest.mark.parametrize("name", ["ü€😀" * 20, "n" * 255, " ", "a/b%2F?#'\"\\", "*.#"])
@pytest.mark.specification("reliability-guide: Queues remain visible and reachable from all nodes")
def test_names_of_every_kind(broker: Broker, name: str) -> None:
    with broker.connect() as connection, broker.connect(1) as elsewhere:
        channel = connection.channel()
        channel.confirm_delivery()
        for type_ in ("direct", "topic"):
            channel.exchange_declare(name, type_, durable=True)
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, name, routing_key=name)
            channel.basic_publish(name, name, b"", mandatory=True)
            got, _, body = get(elsewhere.channel(), name)
            assert (got.exchange, got.routing_key, body) == (name, name, b"")
            channel.queue_delete(name)
            channel.exchange_delete(name)


def test_a_routing_key_of_other_bytes_is_refused_or_kept(broker: Broker) -> None:
    """Short strings are UTF-8; anything else ends the connection."""
    with RawClient(address(broker)) as client:
        client.send(
            frame(1, 1, b"\0\x3c\0\x28\0\0" + short(b"") + short(b"\xff\xfe") + b"\0")
            + content(0)
            + method(spec.Queue.Declare(queue="", exclusive=True))
        )
        got = client.next()
        assert got is not None
        assert isinstance(got[1], spec.Connection.Close | spec.Queue.DeclareOk)


# ------------------------------------------------------------------ more than one node


@pytest.mark.specification(
    "reliability-guide: all definitions (of exchanges, bindings, users",
    "mirrored-queues: If master node of a queue (the node running queue master) is available",
)
def test_what_was_declared_here_is_there_at_once_elsewhere(broker: Broker) -> None:
    """A client that receives declare-ok may tell another client, on another node."""
    with broker.connect(0) as here, broker.connect(1) as there, broker.connect(2) as third:
        nodes = [each.channel() for each in (here, there, third)]
        for i in range(12):
            one, other = nodes[i % 3], nodes[(i + 1) % 3]
            name = f"seen.{i}"
            one.queue_declare(name, durable=True)
            one.exchange_declare(name, "fanout")

            def seen(channel: Any = other, name: str = name) -> bool:
                channel.queue_declare(name, passive=True)
                channel.exchange_declare(name, passive=True)
                return True

            assert seen()
            other.exchange_delete(name)
            other.queue_delete(name)


def test_direct_replies_cross_nodes(broker: Broker, queue_name: str) -> None:
    with broker.connect(0) as asking, broker.connect(1) as answering:
        channel, server = asking.channel(), answering.channel()
        server.queue_declare(queue_name, durable=True)
        replies: list[bytes] = []
        channel.basic_consume(
            "amq.rabbitmq.reply-to", lambda c, m, p, body: replies.append(body), auto_ack=True
        )
        channel.basic_publish(
            "",
            queue_name,
            b"ping",
            pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1"),
        )
        _, properties, _ = get(server, queue_name)
        server.confirm_delivery()
        server.basic_publish("", properties.reply_to, b"pong")
        eventually(lambda: asking.process_data_events(0.05) or replies == [b"pong"], "the answer")


def test_global_prefetch_is_shared_by_a_channels_consumers(broker: Broker) -> None:
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=3, global_qos=True)
        got: list[int] = []
        for name in ("one", "two"):
            queue = channel.queue_declare("", exclusive=True).method.queue
            for _ in range(5):
                channel.basic_publish("", queue, name.encode())
            channel.basic_consume(queue, lambda c, m, p, b: got.append(m.delivery_tag))
        eventually(lambda: connection.process_data_events(0.02) or len(got) >= 3, "three")
        for wanted in (4, 5, 6):
            channel.basic_ack(got[wanted - 4])
            eventually(
                lambda n=wanted: connection.process_data_events(0.02) or len(got) >= n,
                "one more for each that is acknowledged",
            )
            connection.process_data_events(0.05)
            assert len(got) == wanted


# ------------------------------------------------------------------ alarms


@pytest.fixture
def starved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node that believes it has used up its memory."""
    from warren.local import LocalCluster

    settings = {"alarms": {"memory_high_watermark_bytes": 1 << 20, "interval_ms": 20}}
    directory = tmp_path_factory.mktemp("starved")
    with LocalCluster(nodes=1, directory=directory, settings=settings) as cluster:
        yield Broker(tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses), cluster)


def test_publishers_are_blocked_and_consumers_are_not(starved: Broker) -> None:
    able = {"connection.blocked": True}
    with RawClient(address(starved), capabilities=able) as publisher:
        publisher.send(method(spec.Confirm.Select()))
        publisher.expect(spec.Confirm.SelectOk)
        publisher.send(method(spec.Basic.Publish()) + content(0))
        assert "memory" in publisher.find(spec.Connection.Blocked).reason
        with RawClient(address(starved), capabilities=able) as other:
            other.send(method(spec.Queue.Declare(queue="", exclusive=True)))
            queue = other.expect(spec.Queue.DeclareOk).queue
            other.send(method(spec.Basic.Get(queue=queue)))
            other.expect(spec.Basic.GetEmpty)


def test_an_unknown_exchange_type(broker: Broker) -> None:
    with broker.connect() as connection:
        with pytest.raises((ChannelClosedByBroker, ConnectionClosedByBroker), match="unknown"):
            connection.channel().exchange_declare("odd", "no-such-type")
