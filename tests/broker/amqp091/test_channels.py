"""Channels: opening, closing, order, and the definitions asked for on them."""

from __future__ import annotations

from typing import Any

import pamqp.body
import pamqp.commands as spec
import pamqp.frame
import pamqp.header
import pamqp.heartbeat
import pytest

from tests.broker.amqp091.peer import Peer
from warren_broker import errors
from warren_broker.amqp091 import requests
from warren_broker.permissions import Permissions


@pytest.fixture
def peer() -> Peer:
    return Peer().connect().open()


# ------------------------------------------------------------------ opening and closing


def test_close_waits_until_all_is_given_back(peer: Peer) -> None:
    peer.consume("q", "c")
    peer.send(spec.Channel.Close(200, "done", 0, 0))
    down = peer.the(requests.SessionDown)
    assert down.consumers == ((1001, "q"),)
    peer.nothing()
    peer.conn.answer(down.token, requests.Done())
    peer.one(spec.Channel.CloseOk)
    assert not peer.conn.channels
    peer.open()
    assert peer.conn.channels[1].session != down.session


def test_second_open(peer: Peer) -> None:
    peer.send(spec.Channel.Open())
    peer.connection_closed(504, "CHANNEL_ERROR - second 'channel.open' seen")


def test_method_on_a_channel_that_is_not_open() -> None:
    peer = Peer().connect()
    peer.send(spec.Queue.Declare(queue="q"), 5)
    peer.connection_closed(504, "CHANNEL_ERROR - expected 'channel.open'")


def test_publish_on_a_channel_that_is_not_open() -> None:
    peer = Peer().connect()
    peer.publish(channel=5)
    peer.connection_closed(504, "CHANNEL_ERROR - expected 'channel.open'")


def test_more_channels_than_agreed_on() -> None:
    """It is their count that is limited; RabbitMQ's clients may use any number."""
    peer = Peer(channel_max=8)
    peer.conn.receive(b"AMQP\x00\x00\x09\x01")
    peer.got()
    peer.send(spec.Connection.StartOk({}, "PLAIN", "\0g\0g", "en_US"), 0)
    peer.answer(requests.Authenticate)
    peer.send(spec.Connection.TuneOk(8, 4096, 0), 0)
    peer.send(spec.Connection.Open("/"), 0)
    peer.answer(requests.OpenVhost)
    peer.got()
    for number in range(65_528, 65_536):
        peer.send(spec.Channel.Open(), number)
        peer.one(spec.Channel.OpenOk, number)
    peer.send(spec.Channel.Open(), 9)
    peer.connection_closed(
        530,
        "NOT_ALLOWED - number of channels opened (8) has reached the negotiated channel_max (8)",
    )


def test_after_our_close_everything_is_dropped_until_close_ok(peer: Peer) -> None:
    peer.publish(exchange="nowhere")
    close = peer.one(spec.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 40)
    assert close.reply_text == "NOT_FOUND - no exchange 'nowhere' in vhost '/'"
    peer.asked()
    peer.publish()
    peer.send(spec.Queue.Declare(queue="q"))
    peer.send(spec.Basic.Ack(99))
    peer.nothing()
    assert not peer.asked()
    peer.send(spec.Channel.CloseOk())
    peer.open()


def test_close_of_both_sides_at_once(peer: Peer) -> None:
    peer.publish(exchange="nowhere")
    peer.got()
    peer.asked()
    peer.send(spec.Channel.Close(200, "", 0, 0))
    peer.one(spec.Channel.CloseOk)
    peer.send(spec.Channel.CloseOk())
    peer.open()


def test_half_a_message_before_our_close_is_forgotten(peer: Peer) -> None:
    peer.send(spec.Basic.Ack(7))
    peer.conn.receive(pamqp.frame.marshal(spec.Basic.Publish(exchange="", routing_key="q"), 1))
    peer.conn.receive(
        pamqp.frame.marshal(pamqp.header.ContentHeader(0, 10, spec.Basic.Properties()), 1)
    )
    peer.channel_closed(406, "unknown delivery tag 7")
    peer.publish(b"whole")
    published = peer.the(requests.Publish)
    assert published.table.body(published.first) == b"whole"


def test_flow(peer: Peer) -> None:
    peer.send(spec.Channel.Flow(True))
    assert peer.one(spec.Channel.FlowOk).active
    peer.send(spec.Channel.Flow(False))
    peer.connection_closed(540, "NOT_IMPLEMENTED - active=false")


def test_access_request(peer: Peer) -> None:
    from warren_broker.amqp091.wire import codec, methods

    peer.conn.receive(codec.method_frame(1, methods.AccessRequest()))
    (out,) = peer.conn.take_output()
    assert codec.decode_method(bytes(out)[7:-1]) == methods.AccessRequestOk(ticket=1)


# ------------------------------------------------------------------ misuse


def test_unknown_method(peer: Peer) -> None:
    from warren_broker.amqp091.wire import codec

    peer.conn.receive(codec.frame(1, 1, b"\x00\x32\x00\x63"))
    peer.connection_closed(540, "unknown method 50.99")


def test_a_servers_method(peer: Peer) -> None:
    peer.send(spec.Queue.DeclareOk("q", 0, 0))
    peer.connection_closed(503, "COMMAND_INVALID - unimplemented method queue.declare_ok")


def test_connection_method_on_a_channel(peer: Peer) -> None:
    peer.send(spec.Connection.Close(200, "", 0, 0), 1)
    peer.connection_closed(503, "connection.close on channel 1; it belongs on 0")


def test_channel_method_on_channel_0(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="q"), 0)
    peer.connection_closed(503, "queue.declare on channel 0")


def test_arguments_that_cannot_be_read(peer: Peer) -> None:
    raw = bytearray(pamqp.frame.marshal(spec.Queue.Declare(queue="q", arguments={"a": 1}), 1))
    raw[raw.index(b"\x01a") + 2] = ord("?")
    peer.conn.receive(raw)
    peer.connection_closed(502, "SYNTAX_ERROR - unknown field type '?'")


def test_content_without_its_method(peer: Peer) -> None:
    peer.conn.receive(pamqp.frame.marshal(pamqp.body.ContentBody(b"x"), 1))
    peer.connection_closed(505, "UNEXPECTED_FRAME")


def test_no_frame(peer: Peer) -> None:
    peer.conn.receive(b"GET / HTTP/1.1\r\n")
    peer.connection_closed(501, "FRAME_ERROR")


def test_a_frame_above_the_limit() -> None:
    peer = Peer().connect(frame_max=4096)
    peer.conn.receive(b"\x01\x00\x01" + (70_000).to_bytes(4, "big"))
    peer.connection_closed(501, "FRAME_ERROR")


def test_heartbeat_on_a_channel(peer: Peer) -> None:
    peer.conn.receive(b"\x08\x00\x01\x00\x00\x00\x00\xce")
    peer.connection_closed(505, "UNEXPECTED_FRAME")


def test_heartbeats_are_swallowed(peer: Peer) -> None:
    peer.send(pamqp.heartbeat.Heartbeat(), 0)
    peer.nothing()


# ------------------------------------------------------------------ order


def test_a_channel_waits_for_its_answers_in_order(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="a"))
    peer.send(spec.Queue.Declare(queue="b"))
    peer.publish(key="a")
    first = peer.the(requests.DeclareQueue)
    assert first.name == "a"
    peer.nothing()
    peer.conn.answer(first.token, requests.QueueDeclared("a", 5, 2))
    ok = peer.one(spec.Queue.DeclareOk)
    assert (ok.queue, ok.message_count, ok.consumer_count) == ("a", 5, 2)
    second = peer.the(requests.DeclareQueue)
    assert second.name == "b"
    peer.conn.answer(second.token, requests.QueueDeclared("b", 0, 0))
    assert isinstance(peer.the(requests.Publish), requests.Publish)


def test_other_channels_go_on(peer: Peer) -> None:
    peer.open(2)
    peer.send(spec.Queue.Declare(queue="a"), 1)
    waiting = peer.the(requests.DeclareQueue)
    peer.send(spec.Queue.Purge(queue="b"), 2)
    peer.answer(requests.PurgeQueue, requests.Counted(3))
    assert peer.one(spec.Queue.PurgeOk, 2).message_count == 3
    peer.conn.answer(waiting.token, requests.QueueDeclared("a", 0, 0))
    peer.one(spec.Queue.DeclareOk, 1)


def test_publishes_go_out_before_what_follows_them(peer: Peer) -> None:
    peer.publish()
    peer.send(spec.Basic.Get(queue="q"))
    first, second = peer.asked()
    assert isinstance(first, requests.Publish)
    assert isinstance(second, requests.Get)


def test_a_refusal_drops_what_waited(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="a", passive=True))
    peer.send(spec.Queue.Declare(queue="b"))
    peer.publish()
    peer.answer(requests.DeclareQueue, errors.no_queue("a", "/"))
    peer.channel_closed(404, "NOT_FOUND - no queue 'a' in vhost '/'", at=(50, 10))


def test_too_much_that_waits_stops_reading() -> None:
    peer = Peer(waiting_bytes_max=1000).connect().open()
    peer.send(spec.Queue.Declare(queue="a"))
    assert peer.conn.wants_input
    peer.publish(b"x" * 1000)
    assert not peer.conn.wants_input
    peer.answer(requests.DeclareQueue, requests.QueueDeclared("a", 0, 0))
    assert peer.conn.wants_input


def test_a_late_answer_to_a_closed_channel_is_dropped(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="a"))
    request = peer.the(requests.DeclareQueue)
    peer.conn.disconnected()
    peer.conn.answer(request.token, requests.QueueDeclared("a", 0, 0))
    peer.nothing()


# ------------------------------------------------------------------ exchanges


def test_exchange_methods(peer: Peer) -> None:
    peer.send(
        spec.Exchange.Declare(
            exchange="x",
            exchange_type="topic",
            durable=True,
            auto_delete=True,
            internal=True,
            arguments={"a": "b"},
        )
    )
    made = peer.answer(requests.DeclareExchange)
    assert made == requests.DeclareExchange(
        token=made.token,
        session=made.session,
        name="x",
        kind="topic",
        passive=False,
        durable=True,
        auto_delete=True,
        internal=True,
        arguments={"a": "b"},
    )
    peer.one(spec.Exchange.DeclareOk)
    peer.send(spec.Exchange.Bind(destination="d", source="s", routing_key="k"))
    made = peer.answer(requests.Bind)
    assert (made.source, made.destination, made.to_queue, made.routing_key) == (
        "s",
        "d",
        False,
        "k",
    )
    peer.one(spec.Exchange.BindOk)
    peer.send(spec.Exchange.Unbind(destination="d", source="s", routing_key="k"))
    peer.answer(requests.Unbind)
    peer.one(spec.Exchange.UnbindOk)
    peer.send(spec.Exchange.Delete(exchange="x", if_unused=True))
    assert peer.answer(requests.DeleteExchange).if_unused
    peer.one(spec.Exchange.DeleteOk)


@pytest.mark.parametrize(
    ("frame", "request_kind", "result"),
    [
        (spec.Exchange.Declare(exchange="x", nowait=True), requests.DeclareExchange, None),
        (spec.Exchange.Delete(exchange="x", nowait=True), requests.DeleteExchange, None),
        (spec.Exchange.Bind(destination="d", source="s", nowait=True), requests.Bind, None),
        (spec.Exchange.Unbind(destination="d", source="s", nowait=True), requests.Unbind, None),
        (
            spec.Queue.Declare(queue="q", nowait=True),
            requests.DeclareQueue,
            requests.QueueDeclared("q", 0, 0),
        ),
        (spec.Queue.Delete(queue="q", nowait=True), requests.DeleteQueue, requests.Counted(0)),
        (spec.Queue.Purge(queue="q", nowait=True), requests.PurgeQueue, requests.Counted(0)),
        (spec.Queue.Bind(queue="q", exchange="x", nowait=True), requests.Bind, None),
        (spec.Basic.Consume(queue="q", consumer_tag="c", nowait=True), requests.Checkout, None),
    ],
)
def test_no_wait_has_no_answer_but_an_order(
    peer: Peer, frame: Any, request_kind: Any, result: Any
) -> None:
    peer.send(frame)
    peer.send(spec.Channel.Flow(True))
    peer.nothing()
    peer.answer(request_kind, result)
    peer.one(spec.Channel.FlowOk)


@pytest.mark.parametrize(
    "frame",
    [
        spec.Exchange.Declare(exchange="", exchange_type="direct"),
        spec.Exchange.Delete(exchange=""),
        spec.Exchange.Bind(destination="", source="s"),
        spec.Exchange.Bind(destination="d", source=""),
        spec.Queue.Bind(queue="q", exchange="", routing_key="k"),
        spec.Queue.Unbind(queue="q", exchange="", routing_key="k"),
    ],
)
def test_the_default_exchange_is_not_to_be_touched(peer: Peer, frame: Any) -> None:
    peer.send(frame)
    peer.channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange")


def test_system_exchanges_stay(peer: Peer) -> None:
    peer.send(spec.Exchange.Delete(exchange="amq.topic"))
    peer.channel_closed(
        403, "deletion of system exchange 'amq.topic' in vhost '/' not allowed", at=(40, 20)
    )


def test_a_refusal_that_ends_the_connection(peer: Peer) -> None:
    peer.send(spec.Exchange.Declare(exchange="x", exchange_type="what"))
    peer.answer(requests.DeclareExchange, errors.CommandInvalid("unknown exchange type 'what'"))
    frames = peer.got()
    close = frames[-1][1]
    assert (close.reply_code, close.class_id, close.method_id) == (503, 40, 10)


# ------------------------------------------------------------------ queues


def test_queue_methods(peer: Peer) -> None:
    peer.send(
        spec.Queue.Declare(queue="q", durable=True, auto_delete=True, arguments={"x-max-length": 5})
    )
    made = peer.answer(requests.DeclareQueue, requests.QueueDeclared("q", 1, 2))
    assert made == requests.DeclareQueue(
        token=made.token,
        session=made.session,
        name="q",
        passive=False,
        durable=True,
        exclusive=False,
        auto_delete=True,
        arguments={"x-max-length": 5},
        server_named=False,
    )
    peer.one(spec.Queue.DeclareOk)
    peer.send(spec.Queue.Bind(queue="q", exchange="x", routing_key="k", arguments={"a": 1}))
    made = peer.answer(requests.Bind)
    assert (made.source, made.destination, made.to_queue, made.routing_key, made.arguments) == (
        "x",
        "q",
        True,
        "k",
        {"a": 1},
    )
    peer.one(spec.Queue.BindOk)
    peer.send(spec.Queue.Unbind(queue="q", exchange="x", routing_key="k"))
    peer.answer(requests.Unbind)
    peer.one(spec.Queue.UnbindOk)
    peer.send(spec.Queue.Purge(queue="q"))
    peer.answer(requests.PurgeQueue, requests.Counted(7))
    assert peer.one(spec.Queue.PurgeOk).message_count == 7
    peer.send(spec.Queue.Delete(queue="q", if_unused=True, if_empty=True))
    made = peer.answer(requests.DeleteQueue, requests.Counted(8))
    assert (made.if_unused, made.if_empty) == (True, True)
    assert peer.one(spec.Queue.DeleteOk).message_count == 8


def test_exclusive_queues_are_not_durable(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="q", durable=True, exclusive=True))
    made = peer.the(requests.DeclareQueue)
    assert (made.durable, made.exclusive) == (False, True)


def test_server_named_queue_and_the_last_declared_one(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="", exclusive=True))
    made = peer.the(requests.DeclareQueue)
    assert made.server_named
    assert made.name == "amq.gen-" + "1".zfill(22)
    peer.conn.answer(made.token, requests.QueueDeclared(made.name, 0, 0))
    assert peer.one(spec.Queue.DeclareOk).queue == made.name
    peer.send(spec.Queue.Bind(queue="", exchange="x", routing_key=""))
    bound = peer.answer(requests.Bind)
    assert (bound.destination, bound.routing_key) == (made.name, made.name)
    peer.send(spec.Queue.Bind(queue="", exchange="x", routing_key="k"))
    assert peer.answer(requests.Bind).routing_key == "k"
    peer.send(spec.Basic.Get(queue=""))
    assert peer.answer(requests.Get, requests.GotNothing()).queue == made.name
    peer.send(spec.Basic.Consume(queue="", consumer_tag="c"))
    assert peer.answer(requests.Checkout).queue == made.name
    peer.send(spec.Queue.Purge(queue=""))
    assert peer.answer(requests.PurgeQueue, requests.Counted(0)).name == made.name
    peer.send(spec.Queue.Delete(queue=""))
    assert peer.answer(requests.DeleteQueue, requests.Counted(0)).name == made.name


@pytest.mark.parametrize(
    "frame",
    [
        spec.Queue.Bind(queue="", exchange="x", routing_key="k"),
        spec.Queue.Purge(queue=""),
        spec.Queue.Delete(queue=""),
        spec.Basic.Get(queue=""),
        spec.Basic.Consume(queue="", consumer_tag="c"),
        spec.Queue.Unbind(queue="", exchange="x", routing_key="k"),
    ],
)
def test_no_queue_declared_yet(peer: Peer, frame: Any) -> None:
    peer.send(frame)
    peer.channel_closed(404, "NOT_FOUND - no previously declared queue")


def test_name_prefix(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="", arguments={"x-name-prefix": "mine-"}))
    made = peer.answer(requests.DeclareQueue, requests.QueueDeclared("mine-1", 0, 0))
    assert made.name.startswith("mine-")
    assert "x-name-prefix" not in made.arguments
    peer.got()
    peer.send(spec.Queue.Declare(queue="", arguments={"x-name-prefix": "m" * 65}))
    peer.channel_closed(406, "exceeds the 64-byte limit")


def test_server_named_quorum_queues_are_refused(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="", arguments={"x-queue-type": "quorum"}))
    peer.channel_closed(406, "Cannot declare a server-named queue for type quorum")


def test_reserved_names(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="amq.mine"))
    peer.channel_closed(403, "queue name 'amq.mine' contains reserved prefix 'amq.*'")
    peer.send(spec.Queue.Declare(queue="amq.mine", passive=True))
    assert peer.the(requests.DeclareQueue).passive


REFUSALS = [
    (
        errors.inequivalent(
            "durable", "queue", "q", "/", errors.render_field(False), errors.render_field(True)
        ),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': "
        "received 'false' but current is 'true'",
    ),
    (
        errors.inequivalent(
            "x-max-length",
            "queue",
            "q",
            "/",
            errors.render_argument(None),
            errors.render_argument(5),
        ),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': "
        "received none but current is the value '5' of type 'signedint'",
    ),
    (
        errors.locked_queue("q", "/"),
        405,
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It "
        "could be originally declared on another connection or the exclusive property value does "
        "not match that of the original declaration.",
    ),
    (errors.no_queue("q", "/"), 404, "NOT_FOUND - no queue 'q' in vhost '/'"),
    (errors.in_use("queue", "q", "/"), 406, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"),
    (errors.not_empty("q", "/"), 406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"),
    (
        errors.exclusive_use("q", "/"),
        403,
        "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use",
    ),
]


@pytest.mark.parametrize(("refusal", "code", "text"), REFUSALS)
def test_texts_of_refusals(peer: Peer, refusal: errors.Refusal, code: int, text: str) -> None:
    peer.send(spec.Queue.Declare(queue="q"))
    peer.answer(requests.DeclareQueue, refusal)
    close = peer.one(spec.Channel.Close)
    assert close.reply_code == code
    assert close.reply_text == text


def test_a_text_is_cut_at_255_bytes(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="q"))
    peer.answer(requests.DeclareQueue, errors.no_queue("ü" * 200, "/"))
    text = peer.one(spec.Channel.Close).reply_text
    assert 253 <= len(text.encode()) <= 255


# ------------------------------------------------------------------ permissions


@pytest.mark.parametrize(
    ("frame", "held", "text"),
    [
        (
            spec.Queue.Declare(queue="q"),
            {"write": ".*", "read": ".*"},
            "configure access to queue 'q' in vhost '/' refused for user 'guest'",
        ),
        (
            spec.Queue.Declare(queue="q", passive=True),
            {},
            "read access to queue 'q' in vhost '/' refused",
        ),
        (
            spec.Queue.Declare(queue="q", arguments={"x-dead-letter-exchange": "dlx"}),
            {"configure": ".*", "read": ".*"},
            "write access to exchange 'dlx'",
        ),
        (
            spec.Queue.Delete(queue="q"),
            {"write": ".*", "read": ".*"},
            "configure access to queue 'q'",
        ),
        (spec.Queue.Purge(queue="q"), {"write": ".*"}, "read access to queue 'q'"),
        (
            spec.Queue.Bind(queue="q", exchange="x", routing_key=""),
            {"read": ".*"},
            "write access to queue 'q'",
        ),
        (
            spec.Queue.Bind(queue="q", exchange="x", routing_key=""),
            {"write": ".*"},
            "read access to exchange 'x'",
        ),
        (spec.Exchange.Declare(exchange="x"), {}, "configure access to exchange 'x'"),
        (
            spec.Exchange.Declare(exchange="x", arguments={"alternate-exchange": "ae"}),
            {"configure": ".*", "read": ".*"},
            "write access to exchange 'ae'",
        ),
        (spec.Exchange.Delete(exchange="x"), {}, "configure access to exchange 'x'"),
        (
            spec.Exchange.Bind(destination="d", source="s"),
            {"read": ".*"},
            "write access to exchange 'd'",
        ),
        (spec.Basic.Get(queue="q"), {"write": ".*"}, "read access to queue 'q'"),
        (spec.Basic.Consume(queue="q"), {"write": ".*"}, "read access to queue 'q'"),
        (spec.Basic.Consume(queue="q"), {"read": "^other$"}, "read access to queue 'q'"),
    ],
)
def test_permissions(peer: Peer, frame: Any, held: dict[str, str], text: str) -> None:
    peer.view.held = Permissions(**held)
    peer.send(frame)
    peer.channel_closed(403, text)


def test_publish_permission(peer: Peer) -> None:
    peer.view.held = Permissions(write="^amq\\.direct$")
    peer.publish(exchange="amq.direct")
    peer.the(requests.Publish)
    peer.publish(exchange="")
    peer.channel_closed(
        403, "write access to exchange 'amq.default' in vhost '/' refused", at=(60, 40)
    )


def test_passive_declares_want_any_permission(peer: Peer) -> None:
    for held in ({"configure": "q"}, {"write": "q"}, {"read": "q"}):
        peer.view.held = Permissions(**held)
        peer.send(spec.Queue.Declare(queue="q", passive=True))
        peer.answer(requests.DeclareQueue, requests.QueueDeclared("q", 0, 0))
        peer.one(spec.Queue.DeclareOk)


def test_topic_permissions(peer: Peer) -> None:
    peer.view.topics = Permissions(write="^{username}\\.", read="^a")
    peer.publish(exchange="amq.topic", key="guest.a")
    peer.the(requests.Publish)
    peer.publish(exchange="amq.topic", key="other.a")
    peer.channel_closed(
        403,
        "write access to topic 'other.a' in exchange 'amq.topic' "
        "in vhost '/' refused for user 'guest'",
    )
    peer.send(spec.Queue.Bind(queue="q", exchange="amq.topic", routing_key="b"))
    peer.channel_closed(403, "read access to topic 'b'")


def test_a_broken_pattern_allows_nothing() -> None:
    assert not Permissions(read="(").allows("read", "q")
    assert not Permissions(read="").allows("read", "q")
    assert Permissions(read="^q").allows("read", "queue")
