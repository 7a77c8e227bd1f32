"""Channels: opening, closing, order, and the definitions asked for on them."""

from __future__ import annotations

import pamqp.body
import pamqp.commands as spec
import pamqp.frame
import pamqp.header
import pamqp.heartbeat
import pytest

from tests.broker.clients091.peer import Peer
from warren_broker.access import requests
from warren_wire import errors


@pytest.fixture
def peer() -> Peer:
    return Peer().connect().open()


# ------------------------------------------------------------------ opening and closing


def test_close_waits_until_all_is_given_back(peer: Peer) -> None:
    peer.consume("q", "c")
    peer.send(spec.Channel.Close(200, "done", 0, 0))
    down = peer.the(requests.SessionDownRequest)
    assert down.consumers == (1001,)
    peer.nothing()
    peer.conn.answer(down.token, requests.RequestDone())
    peer.one(spec.Channel.CloseOk)
    assert not peer.conn.state.channels
    peer.open()
    assert peer.conn.state.channels[1].session != down.session


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
    peer.answer(requests.AuthenticateRequest)
    peer.send(spec.Connection.TuneOk(8, 4096, 0), 0)
    peer.send(spec.Connection.Open("/"), 0)
    peer.answer(requests.OpenVhostRequest)
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
    published = peer.the(requests.PublishRequest)
    assert published.table.body(published.first) == b"whole"


def test_flow(peer: Peer) -> None:
    peer.send(spec.Channel.Flow(True))
    assert peer.one(spec.Channel.FlowOk).active
    peer.send(spec.Channel.Flow(False))
    peer.connection_closed(540, "NOT_IMPLEMENTED - active=false")


def test_access_request(peer: Peer) -> None:
    from warren_wire.amqp091 import codec, methods

    peer.conn.receive(codec.method_frame(1, methods.AccessRequest()))
    (out,) = peer.conn.take_output()
    assert codec.decode_method(bytes(out)[7:-1]) == methods.AccessRequestOk(ticket=1)


# ------------------------------------------------------------------ misuse


def test_unknown_method(peer: Peer) -> None:
    from warren_wire.amqp091 import codec

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
    first = peer.the(requests.QueueDeclareRequest)
    assert first.name == "a"
    peer.nothing()
    peer.conn.answer(first.token, requests.QueueDeclared("a", 5, 2))
    ok = peer.one(spec.Queue.DeclareOk)
    assert (ok.queue, ok.message_count, ok.consumer_count) == ("a", 5, 2)
    second = peer.the(requests.QueueDeclareRequest)
    assert second.name == "b"
    peer.conn.answer(second.token, requests.QueueDeclared("b", 0, 0))
    assert isinstance(peer.the(requests.PublishRequest), requests.PublishRequest)


def test_other_channels_go_on(peer: Peer) -> None:
    peer.open(2)
    peer.send(spec.Queue.Declare(queue="a"), 1)
    waiting = peer.the(requests.QueueDeclareRequest)
    peer.send(spec.Queue.Purge(queue="b"), 2)
    peer.answer(requests.QueuePurgeRequest, requests.MessageCount(3))
    assert peer.one(spec.Queue.PurgeOk, 2).message_count == 3
    peer.conn.answer(waiting.token, requests.QueueDeclared("a", 0, 0))
    peer.one(spec.Queue.DeclareOk, 1)


def test_publishes_go_out_before_what_follows_them(peer: Peer) -> None:
    peer.publish()
    peer.send(spec.Basic.Get(queue="q"))
    first, second = peer.asked()
    assert isinstance(first, requests.PublishRequest)
    assert isinstance(second, requests.GetRequest)


def test_a_refusal_drops_what_waited(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="a", passive=True))
    peer.send(spec.Queue.Declare(queue="b"))
    peer.publish()
    peer.answer(requests.QueueDeclareRequest, errors.no_queue("a", "/"))
    peer.channel_closed(404, "NOT_FOUND - no queue 'a' in vhost '/'", at=(50, 10))


def test_too_much_that_waits_stops_reading() -> None:
    peer = Peer(waiting_bytes_max=1000).connect().open()
    peer.send(spec.Queue.Declare(queue="a"))
    assert peer.conn.wants_input
    peer.publish(b"x" * 1000)
    assert not peer.conn.wants_input
    peer.answer(requests.QueueDeclareRequest, requests.QueueDeclared("a", 0, 0))
    assert peer.conn.wants_input


def test_a_late_answer_to_a_closed_channel_is_dropped(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="a"))
    request = peer.the(requests.QueueDeclareRequest)
    peer.conn.disconnected()
    peer.conn.answer(request.token, requests.QueueDeclared("a", 0, 0))
    peer.nothing()


def test_a_limited_users_channel_opens_when_the_nodes_have_been_asked() -> None:
    peer = Peer()
    peer.view.channels_limit = 2
    peer.connect()
    peer.send(spec.Channel.Open())
    peer.send(spec.Queue.Purge(queue="b"))
    peer.nothing()
    assert peer.conn.state.channels_open() == 1
    peer.answer(requests.CheckChannelsRequest)
    peer.one(spec.Channel.OpenOk)
    up, purge = peer.asked()
    assert isinstance(up, requests.SessionUpRequest), up
    assert isinstance(purge, requests.QueuePurgeRequest), purge
    peer.send(spec.Channel.Open(), 2)
    peer.answer(requests.CheckChannelsRequest, errors.channels_reached("guest", 2))
    peer.connection_closed(530, "maximum allowed user limit of 2")
