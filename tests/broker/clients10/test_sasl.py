"""The SASL server of 1.0 connections: the mechanisms and what their responses say."""

from __future__ import annotations

from broker.clients10.test_connection import init_frame
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.sasl10 import SASL_HEADER, SaslFailed, SaslServer, SaslState


def sasl_server(external: str | None, mechanism: str, response: bytes = b"") -> SaslServer:
    """A server that was sent that login."""
    server = SaslServer(ConnectionConfig(external=external))
    try:
        server.receive(SASL_HEADER + init_frame(mechanism, response))
    except SaslFailed:
        assert server.state is SaslState.FAILED
    return server


def test_external_takes_the_certificates_user_whatever_the_client_says() -> None:
    server = sasl_server("ann", "EXTERNAL", b"guest")
    assert (server.state, server.user, server.mechanism) == (SaslState.DECIDING, "ann", "EXTERNAL")
    assert b"PLAIN\0\0\0\x08EXTERNAL" in bytes(server.output)
    plain = sasl_server("ann", "PLAIN", b"\0guest\0secret")
    assert (plain.user, plain.password, plain.mechanism) == ("guest", "secret", "PLAIN")


def test_external_is_neither_offered_nor_taken_without_a_certificate() -> None:
    server = sasl_server(None, "EXTERNAL")
    assert server.state is SaslState.FAILED and not server.user
    assert b"EXTERNAL" not in bytes(server.output)


def test_anonymous_is_the_configured_user() -> None:
    server = SaslServer(ConnectionConfig(anonymous=("nobody", "secret")))
    server.receive(SASL_HEADER + init_frame("ANONYMOUS", b"somebody@example.org"))
    assert b"\x09ANONYMOUS" in bytes(server.output)
    assert (server.state, server.user, server.password) == (
        SaslState.DECIDING,
        "nobody",
        "secret",
    )
    assert "secret" not in repr(server.config)


def test_a_login_is_as_large_as_the_options_say() -> None:
    """Cut in pieces, as a socket has them; one byte more ends the connection at its first bytes."""
    response = b"\0\0" + b"t" * 70_000
    data = SASL_HEADER + init_frame("PLAIN", response)
    for allowed, state in ((len(data) - 8, SaslState.DECIDING), (len(data) - 9, SaslState.FAILED)):
        server = SaslServer(ConnectionConfig(login_frame_max=allowed))
        try:
            for at in range(0, len(data), 10_000):
                server.receive(data[at : at + 10_000])
        except SaslFailed as failed:
            assert f"at most {allowed}" in str(failed)
        assert server.state is state
    assert not server.password


def test_amqplain_is_a_table_of_0_9_1() -> None:
    table = b"\x05LOGINS\x00\x00\x00\x03ann" + b"\x08PASSWORDS\x00\x00\x00\x02pw"
    server = sasl_server(None, "AMQPLAIN", table)
    assert (server.state, server.user, server.password) == (SaslState.DECIDING, "ann", "pw")
    for cut in range(len(table)):
        assert sasl_server(None, "AMQPLAIN", table[:cut]).state is SaslState.FAILED


def test_a_user_acts_as_itself_and_as_no_other() -> None:
    """The first part of PLAIN's response, another user to act as, was ignored."""
    for instead, state in ((b"", SaslState.DECIDING), (b"ann", SaslState.DECIDING)):
        assert sasl_server(None, "PLAIN", instead + b"\0ann\0pw").state is state
    for response in (b"root\0ann\0pw", b"ann", b"\0ann", b"\0ann\0pw\0"):
        server = sasl_server(None, "PLAIN", response)
        assert server.state is SaslState.FAILED and not server.user
