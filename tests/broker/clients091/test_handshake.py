"""From the protocol header to connection.open, and everything that can go wrong on the way."""

from __future__ import annotations

import pamqp.commands as spec
import pamqp.frame
import pamqp.heartbeat
import pytest
from pamqp.common import FieldTable

from tests.broker.clients091.peer import Peer
from warren_broker.access import requests
from warren_wire import errors

CAPABILITIES = """
    publisher_confirms exchange_exchange_bindings basic.nack
    consumer_cancel_notify connection.blocked consumer_priorities
    authentication_failure_close per_consumer_qos direct_reply_to warren_relays warren_relay_nacks
"""


@pytest.mark.specification("reliability-guide: the broker will attempt to negotiate heartbeats")
def test_negotiation() -> None:
    peer = Peer(cluster_name="w1")
    peer.conn.receive(b"AM")
    peer.nothing()
    peer.conn.receive(b"QP\x00\x00\x09\x01")
    start = peer.one(spec.Connection.Start, 0)
    told = start.server_properties
    assert (start.version_major, start.version_minor) == (0, 9)
    assert (told["product"], told["version"], told["cluster_name"]) == ("RabbitMQ", "4.3.0", "w1")
    assert "Warren" in told["information"]
    assert told["capabilities"] == dict.fromkeys(CAPABILITIES.split(), True)
    peer.send(spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
    peer.nothing()
    peer.answer(requests.AuthenticateRequest)
    tune = peer.one(spec.Connection.Tune, 0)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131_072, 60)
    peer.send(spec.Connection.TuneOk(10, 8192, 30), 0)
    peer.send(spec.Connection.Open("/"), 0)
    peer.nothing()
    peer.answer(requests.OpenVhostRequest)
    peer.one(spec.Connection.OpenOk, 0)
    assert peer.conn.state.phase == "running"
    assert (peer.conn.state.frame_max, peer.conn.heartbeat_ms) == (8192, 30_000)


def test_byte_by_byte() -> None:
    peer = Peer()
    for byte in b"AMQP\x00\x00\x09\x01":
        peer.conn.receive(bytes((byte,)))
    peer.one(spec.Connection.Start, 0)
    raw = pamqp.frame.marshal(spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
    for byte in raw:
        assert not peer.asked()
        peer.conn.receive(bytes((byte,)))
    peer.answer(requests.AuthenticateRequest)
    peer.one(spec.Connection.Tune, 0)


@pytest.mark.parametrize(
    "head",
    [
        b"AMQP\x00\x00\x09\x00",
        b"AMQP\x01\x01\x00\x0a",
        b"GET / HTTP/1.1\r\n",
        b"HELO",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_wrong_protocol_header(head: bytes) -> None:
    peer = Peer()
    peer.conn.receive(head)
    assert peer.got() == [(0, b"AMQP\x00\x00\x09\x01")]
    assert peer.conn.closed


def test_amqplain() -> None:
    from warren_wire.amqp091 import codec, fields, methods

    peer = Peer()
    peer.conn.receive(b"AMQP\x00\x00\x09\x01")
    peer.got()
    table = fields.table({"LOGIN": "u", "PASSWORD": "p"})[4:]
    peer.conn.receive(
        codec.method_frame(0, methods.ConnectionStartOk(mechanism="AMQPLAIN", response=table))
    )
    login = peer.answer(requests.AuthenticateRequest)
    assert (login.mechanism, login.user, login.password) == ("AMQPLAIN", "u", "p")
    assert "p" not in repr(login).replace("password", "").replace("AMQPLAIN", "").split("user")[1]


def test_anonymous_clients_log_in_as_the_user_of_the_configuration() -> None:
    peer = Peer(anonymous=("nobody", "in particular"))
    peer.conn.receive(b"AMQP\x00\x00\x09\x01")
    assert peer.one(spec.Connection.Start, 0).mechanisms == "PLAIN AMQPLAIN ANONYMOUS"
    peer.send(spec.Connection.StartOk({}, "ANONYMOUS", "whoever@example", "en_US"), 0)
    login = peer.answer(requests.AuthenticateRequest)
    assert (login.mechanism, login.user, login.password) == (
        "ANONYMOUS",
        "nobody",
        "in particular",
    )
    assert "in particular" not in repr(login) + repr(peer.conn.state.config)
    peer.one(spec.Connection.Tune, 0)
    assert peer.conn.state.user == "nobody"


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("ANONYMOUS", ""),
        ("EXTERNAL", ""),
        ("PLAIN", "guest"),
        ("AMQPLAIN", "\0\0"),
        ("AMQPLAIN", ""),
    ],
)
def test_a_stranger_without_credentials_is_not_answered(mechanism: str, response: str) -> None:
    peer = Peer()
    peer.conn.receive(b"AMQP\x00\x00\x09\x01")
    peer.got()
    peer.send(spec.Connection.StartOk({}, mechanism, response, "en_US"), 0)
    peer.nothing()
    assert peer.conn.closed
    assert mechanism in peer.conn.state.close_reason


def refused_login(capabilities: FieldTable) -> Peer:
    peer = Peer()
    peer.conn.receive(b"AMQP\x00\x00\x09\x01")
    peer.got()
    peer.send(
        spec.Connection.StartOk({"capabilities": capabilities}, "PLAIN", "\0guest\0no", "en_US"), 0
    )
    peer.answer(requests.AuthenticateRequest, errors.login_refused("PLAIN"))
    return peer


def test_login_refused_is_told_to_who_wants_to_know() -> None:
    refused_login({"authentication_failure_close": True}).connection_closed(
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile.",
    )


def test_login_refused_is_a_closed_socket_for_others() -> None:
    peer = refused_login({})
    peer.nothing()
    assert peer.conn.closed


def tuned(**tune: int) -> Peer:
    peer = Peer()
    peer.conn.receive(b"AMQP\x00\x00\x09\x01")
    peer.got()
    peer.send(spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
    peer.answer(requests.AuthenticateRequest)
    peer.got()
    peer.send(
        spec.Connection.TuneOk(
            **{"channel_max": 2047, "frame_max": 131_072, "heartbeat": 0, **tune}
        ),
        0,
    )
    return peer


@pytest.mark.parametrize(
    ("tune", "text"),
    [
        (
            {"frame_max": 4095},
            "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)",
        ),
        (
            {"frame_max": 131_073},
            "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)",
        ),
        ({"frame_max": 0}, "negotiated frame_max = 0 (no limit) is higher"),
        (
            {"channel_max": 2048},
            "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
        ),
    ],
)
def test_limits_that_cannot_be_had(tune: dict[str, int], text: str) -> None:
    tuned(**tune).connection_closed(530, "NOT_ALLOWED - " + text)


def test_a_server_without_a_limit_takes_the_clients() -> None:
    peer = Peer(frame_max=0, channel_max=0)
    peer.conn.receive(b"AMQP\x00\x00\x09\x01")
    peer.got()
    peer.send(spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
    peer.answer(requests.AuthenticateRequest)
    peer.got()
    peer.send(spec.Connection.TuneOk(0, 0, 0), 0)
    assert (peer.conn.state.frame_max, peer.conn.state.channel_max) == (0, 65535)
    assert peer.conn.state.phase == "opening"


@pytest.mark.parametrize(
    "refusal", [errors.unknown_vhost("nope"), errors.vhost_refused("nope", "guest")]
)
def test_vhost_refused(refusal: errors.Refusal) -> None:
    peer = tuned()
    peer.send(spec.Connection.Open("nope"), 0)
    peer.answer(requests.OpenVhostRequest, refusal)
    peer.connection_closed(530, f"NOT_ALLOWED - {refusal.detail}")


def test_methods_out_of_their_state() -> None:
    peer = tuned()
    peer.send(spec.Connection.TuneOk(2047, 131_072, 0), 0)
    peer.connection_closed(504, "unexpected method connection.tune_ok in connection state opening")


def test_channels_before_open() -> None:
    peer = tuned()
    peer.send(spec.Channel.Open(), 1)
    peer.connection_closed(505, "channel.open on channel 1 before connection.open")


def test_handshake_takes_too_long() -> None:
    peer = Peer(handshake_ms=10_000)
    peer.conn.tick(1_000)
    peer.conn.receive(b"AMQP\x00\x00\x09\x01")
    peer.conn.tick(10_999)
    assert not peer.conn.closed
    peer.conn.tick(11_000)
    assert peer.conn.closed
    assert "starting" in peer.conn.state.close_reason


def test_update_secret() -> None:
    from warren_wire.amqp091 import codec, methods

    peer = Peer().connect()
    frame = codec.method_frame(0, methods.ConnectionUpdateSecret(new_secret=b"new", reason="r"))
    peer.conn.receive(frame)
    asked = peer.answer(requests.UpdateSecretRequest)
    assert (asked.user, asked.password) == ("guest", "new")
    peer.one(spec.Connection.UpdateSecretOk, 0)
    peer.conn.receive(frame)
    peer.answer(requests.UpdateSecretRequest, errors.AccessRefused("no"))
    peer.connection_closed(530, "New secret was refused")


def test_a_new_secret_of_a_user_that_lost_the_vhost_ends_the_connection() -> None:
    from warren_wire.amqp091 import codec, methods

    peer = Peer().connect()
    method = methods.ConnectionUpdateSecret(new_secret=b"new", reason="r")
    peer.conn.receive(codec.method_frame(0, method))
    peer.answer(requests.UpdateSecretRequest, errors.vhost_refused("/", "guest"))
    peer.connection_closed(530, "access to vhost '/' refused for user 'guest'")


@pytest.mark.specification("reliability-guide: the broker will attempt to negotiate heartbeats")
def test_heartbeats() -> None:
    peer = Peer().connect(heartbeat=10)
    peer.conn.tick(1_000)
    peer.conn.tick(5_999)
    peer.nothing()
    peer.conn.tick(6_000)
    assert isinstance(peer.one(pamqp.heartbeat.Heartbeat, 0), pamqp.heartbeat.Heartbeat)
    peer.conn.tick(6_500)
    peer.nothing()
    peer.send(pamqp.heartbeat.Heartbeat(), 0)
    peer.conn.tick(20_000)
    assert not peer.conn.closed
    peer.conn.tick(39_999)
    assert not peer.conn.closed
    peer.conn.tick(40_000)
    assert peer.conn.closed
    assert peer.conn.state.close_reason == "missed heartbeats from client, timeout: 10s"
    assert isinstance(peer.asked()[-1], requests.CloseConnectionRequest)


@pytest.mark.specification("reliability-guide: the broker will attempt to negotiate heartbeats")
def test_no_heartbeats_when_none_were_agreed_on() -> None:
    peer = Peer().connect(heartbeat=0)
    for now in range(0, 10_000_000, 1_000_000):
        peer.conn.tick(now)
    peer.nothing()
    assert not peer.conn.closed


def test_client_closes() -> None:
    peer = Peer().connect().open()
    peer.send(spec.Connection.Close(200, "bye", 0, 0), 0)
    down, close = peer.asked()
    assert isinstance(down, requests.SessionDownRequest)
    assert isinstance(close, requests.CloseConnectionRequest)
    peer.nothing()
    peer.conn.answer(down.token, requests.RequestDone())
    peer.nothing()
    peer.conn.answer(close.token, requests.RequestDone())
    peer.one(spec.Connection.CloseOk, 0)
    assert peer.conn.closed


def test_operator_closes() -> None:
    peer = Peer().connect().open()
    peer.conn.close(errors.ConnectionForced("broker forced connection closure with reason 'x'"))
    peer.connection_closed(320, "CONNECTION_FORCED - broker forced connection closure")


def test_a_client_that_never_answers_a_close() -> None:
    peer = Peer(closing_ms=10_000).connect()
    peer.conn.close(errors.ConnectionForced("shutdown"))
    peer.conn.tick(1)
    peer.conn.tick(10_000)
    assert not peer.conn.closed
    peer.conn.tick(10_001)
    assert peer.conn.closed


def test_both_close_at_once() -> None:
    peer = Peer().connect()
    peer.conn.close(errors.ConnectionForced("shutdown"))
    peer.got()
    peer.send(spec.Connection.Close(200, "bye", 0, 0), 0)
    peer.one(spec.Connection.CloseOk, 0)
    assert peer.conn.closed


def test_the_socket_breaks() -> None:
    peer = Peer().connect().open()
    peer.conn.disconnected("reset by peer")
    down, close = peer.asked()
    assert isinstance(down, requests.SessionDownRequest)
    assert down.failed
    assert close.reason == "reset by peer"
    assert peer.conn.closed
    peer.conn.answer(down.token, requests.RequestDone())
    peer.nothing()


def test_blocked_is_told_to_publishers_that_can_hear_it() -> None:
    peer = Peer().connect().open()
    peer.conn.blocked("low on memory")
    peer.nothing()
    peer.publish()
    assert peer.one(spec.Connection.Blocked, 0).reason == "low on memory"
    peer.publish()
    peer.nothing()
    peer.conn.unblocked()
    peer.one(spec.Connection.Unblocked, 0)
    peer.conn.unblocked()
    peer.nothing()
    peer.conn.blocked("low on disk")
    assert peer.one(spec.Connection.Blocked, 0).reason == "low on disk"


def test_blocked_is_not_told_to_others() -> None:
    peer = Peer().connect({}).open()
    peer.publish()
    peer.conn.blocked("low on memory")
    peer.nothing()
