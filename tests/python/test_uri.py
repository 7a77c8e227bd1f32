"""Addresses of clusters: their text, and the files of TLS that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warren.client_tls import client_context
from warren.errors import ConnectionLost, Unavailable, UsageError
from warren.uri import ClientTls, parse_uri


def test_address_round_trip() -> None:
    address = parse_uri("amqp://us%40er:p%2Fw:d@h1:1,[::1]:2,h3/v%2Fh?heartbeat=3")
    assert address.hosts == (("h1", 1), ("::1", 2), ("h3", 5672))
    assert (address.user, address.password, address.vhost, address.heartbeat_s) == (
        "us@er",
        "p/w:d",
        "v/h",
        3,
    )
    assert parse_uri(address.uri()) == address
    assert "p/w" not in str(address) + repr(address)
    assert issubclass(ConnectionLost, Unavailable)


@pytest.mark.parametrize("password", ["geh/eim", "geh?eim", "geh/eim:x", "g?e/h"])
def test_a_password_that_is_not_encoded_is_not_shown(password: str) -> None:
    """Its beginning was shown as a port that is no number."""
    with pytest.raises(UsageError, match="write / as %2F and [?] as %3F") as told:
        parse_uri(f"amqp://user:{password}@host/vhost")
    assert "geh" not in str(told.value) and "'g" not in str(told.value)


def test_an_address_with_tls_says_so_and_names_its_files() -> None:
    address = parse_uri("amqps://h1,h2:7/v?caFile=/a%20b/ca.pem&certFile=c&keyFile=k&verify=false")
    assert (
        address.hosts == (("h1", 5671), ("h2", 7))
        and str(address) == "amqps://guest@h1:5671,h2:7/v"
    )
    assert address.tls == ClientTls("/a b/ca.pem", "c", "k", verify=False)
    assert parse_uri(address.uri()) == address
    assert parse_uri("amqps://h").tls == ClientTls() and parse_uri("amqp://h").tls is None
    assert parse_uri(parse_uri("amqps://h").uri()) == parse_uri("amqps://h")
    external = parse_uri("amqps://u:p@h?certFile=c&saslMechanism=EXTERNAL")
    assert "u:p@" not in external.uri() and parse_uri(external.uri()).tls == external.tls
    for text, said in (
        ("amqp://h?caFile=x", "need an address with amqps://"),
        ("amqp://h?verify=true", "need an address with amqps://"),
        ("amqps://h?verify=no", "verify='no' in the address is not true or false"),
        ("amqps://h?keyFile=x", "keyFile='x' needs certFile"),
        ("amqps://h?cafile=x", "unknown option 'cafile'"),
        ("tls://h", "or amqps:// for TLS"),
    ):
        with pytest.raises(UsageError) as caught:
            parse_uri(text)
        assert said in str(caught.value)


def test_files_that_cannot_be_used_are_named_before_anything_is_sent(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("nothing")
    for tls, said in (
        (
            ClientTls(ca_file="/nowhere/ca.pem"),
            "cannot read caFile='/nowhere/ca.pem': No such file",
        ),
        (ClientTls(ca_file=str(text)), "holds no certificate in PEM format"),
        (ClientTls(cert_file=str(text)), "not a certificate and its private key"),
    ):
        with pytest.raises(UsageError) as caught:
            client_context(tls)
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (
            "heartbeat=1e400",
            "heartbeat_s=inf must be from 0, which turns heartbeats off, to 65,535",
        ),
        ("heartbeat=nan", "heartbeat_s=nan must be"),
        ("heartbeat=65536", "heartbeat_s=65536.0 must be"),
        ("heartbeat=-1", "heartbeat_s=-1.0 must be"),
        ("connect_timeout=inf", "connect_timeout_s=inf must be above 0 seconds, and at most 31,5"),
        ("request_timeout=1e30", "request_timeout_s=1e+30 must be"),
    ],
)
def test_times_that_no_socket_waits_are_refused_where_they_are_given(
    option: str, says: str
) -> None:
    """They ended a query with an OverflowError, at its first connection."""
    with pytest.raises(UsageError, match=re.escape(says)):
        parse_uri(f"amqp://a?{option}")


def test_a_user_or_password_with_a_zero_byte_is_refused() -> None:
    """The broker would see another user, and another password."""
    for login in ("u%00x:p", "u:p%00x"):
        with pytest.raises(UsageError, match="zero byte"):
            parse_uri(f"amqp://{login}@a")
