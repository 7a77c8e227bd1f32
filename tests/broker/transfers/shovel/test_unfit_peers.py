"""Peers of a shovel that hang, announce too much, send too much, or refuse its certificate."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pika.adapters.select_connection import IOLoop

from tests.broker.transfers.shovel.peer091 import Peer091
from tests.broker.transfers.shovel.test_endpoint import run_for
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from warren_broker.transfers.shovel.connection10 import Endpoint10
from warren_broker.transfers.shovel.end091 import Source091
from warren_broker.transfers.shovel.received import KEPT_BYTES, Received, Received091
from warren_broker.transfers.shovel.transfer import (
    LINK_PREFETCHES,
    LinkOptions,
    ShovelProgress,
    Transfer,
)
from warren_wire.links.definition import parse_shovel
from warren_wire.links.uris import parse_shovel_uri
from warren_wire.sessions import endpoint, pika_properties
from warren_wire.sessions.endpoint import Endpoint, in_words
from warren_wire.sessions.locate import OwnNode

OWN = OwnNode("amqp", "127.0.0.1", 1, 16 << 20)
PREFETCH = 2


def until(ioloop: IOLoop, holds: Callable[[], Any]) -> None:
    """Run the loop until that holds."""
    for _ in range(round(PATIENCE_S / 0.05)):
        if holds():
            return
        run_for(ioloop, 0.05)
    raise AssertionError("it never held")


def uri(peer: Peer091, scheme: str = "amqp", options: str = "") -> Any:
    """Return the URI of a peer."""
    host, port = peer.address
    return parse_shovel_uri("src-uri", f"{scheme}://{host}:{port}{options}")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are waited for a moment only."""
    monkeypatch.setattr(endpoint, "REPLY_S", 0.2)
    monkeypatch.setattr(endpoint, "REPLY_LOOK_S", 0.05)


@pytest.mark.parametrize(
    ("answers", "method"),
    [
        ((), "channel.open"),
        (("Channel.Open",), "queue.declare"),
        (("Channel.Open", "Channel.Close", "Queue.Declare"), "basic.qos"),
        (("Channel.Open", "Channel.Close", "Queue.Declare", "Basic.Qos"), "basic.consume"),
    ],
)
def test_a_broker_that_is_alive_and_does_not_answer_ends_the_run(
    impatient: None, answers: tuple[str, ...], method: str
) -> None:
    """Its heartbeats kept a shovel "starting" for ever, and it tried no other URI."""
    failures: list[str] = []
    ioloop = IOLoop()
    with Peer091(*answers) as peer:
        source = _source(peer, failures)
        source.open(ioloop, lambda: source.find(lambda count: _consume(source, [])))
        until(ioloop, lambda: failures)
        assert failures[0].endswith(f": it did not answer {method} in time")
        # The peer may not answer the close either: its channel's comes first.
        source.close()
        until(ioloop, peer.ended.is_set)


def _source(peer: Peer091, failures: list[str]) -> Source091:
    pika_properties.install()
    found = uri(peer)
    shovel = parse_shovel("/", "s", {"src-uri": "amqp://there", "src-queue": "q", **TO})
    return Source091(shovel, found, OWN, "shovel s", failures.append)


TO = {"dest-uri": "amqp://", "dest-queue": "d", "src-prefetch-count": PREFETCH}


def _consume(source: Source091, found: list[Received]) -> None:
    source.consume(PREFETCH, found.append, lambda: None, "")


EVERY = ("Channel.Open", "Channel.Close", "Queue.Declare", "Basic.Qos", "Basic.Consume")


def test_a_frame_without_end_is_not_kept() -> None:
    """pika kept what came of it: four gigabytes, copied with each read."""
    failures: list[str] = []
    ioloop = IOLoop()
    with Peer091(*EVERY, floods="frame") as peer:
        source = _source(peer, failures)
        source.open(ioloop, lambda: source.find(lambda count: _consume(source, [])))
        until(ioloop, lambda: failures)
        assert "it announces a frame of 4,294,967,295 bytes; 131,072 are the most" in failures[0]
        until(ioloop, peer.ended.is_set)


def test_a_message_without_end_is_one_that_cannot_be_passed_on() -> None:
    """It was kept as it came: 1.5 GB in twenty seconds."""
    failures: list[str] = []
    found: list[Received] = []
    ioloop = IOLoop()
    with Peer091(*EVERY, floods="message") as peer:
        source = _source(peer, failures)
        source.open(ioloop, lambda: source.find(lambda count: _consume(source, found)))
        until(ioloop, lambda: found)
        with pytest.raises(Exception, match=r"a message of 1,099,511,627,776 bytes; a shovel "):
            found[0].as_091()
        source.close()
        until(ioloop, peer.ended.is_set)
    assert not failures


@pytest.mark.parametrize("kind", [Endpoint, Endpoint10])
def test_what_a_peer_thinks_of_a_certificate_is_in_the_state(
    kind: type[Endpoint] | type[Endpoint10], tmp_path: Path
) -> None:
    """It comes after the handshake of TLS 1.3; the state said that the peer speaks no AMQP."""
    authority = Authority(tmp_path, plain=True)
    expired = authority.issue("client", days=-1)
    server = authority.issue("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server.cert, server.key)
    tls.load_verify_locations(authority.cert)
    tls.verify_mode = ssl.CERT_REQUIRED
    with Peer091(*EVERY, tls=tls) as peer:
        files = f"?cacertfile={authority.cert}"
        assert "certificate required" in _failure(kind, peer, "amqps", files)
        files += f"&certfile={expired.cert}&keyfile={expired.key}"
        assert "certificate expired" in _failure(kind, peer, "amqps", files)
        # Files that are replaced count for the next connection.
        renewed = authority.issue("renewed")
        expired.cert.write_bytes(renewed.cert.read_bytes())
        expired.key.write_bytes(renewed.key.read_bytes())
        told = _failure(kind, peer, "amqps", files)
        assert told == "opened" or "does not speak AMQP 1.0" in told
        ours = authority.cert.read_bytes()
        authority.cert.write_bytes(Authority(tmp_path / "other").cert.read_bytes())
        assert "certificate of the other side is refused" in _failure(kind, peer, "amqps", files)
        authority.cert.write_bytes(ours)
        assert _failure(kind, peer, "amqps", files) == told


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (
            530,
            "NOT_ALLOWED - connection limit (1) is reached",
            "530 NOT_ALLOWED - connection limit",
        ),
        (403, "ACCESS_REFUSED - Login was refused", "the vhost is missing or refused"),
    ],
)
def test_why_a_broker_does_not_open_the_vhost_is_in_the_state(
    code: int, text: str, words: str
) -> None:
    """A limit of connections was shown as a vhost that is missing or refused."""
    with Peer091(closes=(code, text)) as peer:
        assert words in _failure(Endpoint, peer, "amqp", "")


def test_a_connection_that_ends_within_tls_may_be_one_that_is_refused() -> None:
    """Where the alert is lost: this end wrote first, to a socket that was closed."""
    assert "may refuse this end's certificate" in in_words(ssl.SSLEOFError(8, "EOF occurred"))


def _failure(kind: Any, peer: Peer091, scheme: str, options: str) -> str:
    failures: list[str] = []
    ioloop = IOLoop()
    made = kind("src-uri", uri(peer, scheme, options), OWN, "s", failures.append)
    made.open(ioloop, lambda: failures.append("opened"))
    until(ioloop, lambda: failures)
    made.close()
    until(ioloop, peer.ended.is_set)
    peer.ended.clear()
    return failures[0]


class _End:
    """Both ends of a transfer, which note what they are asked."""

    knows_relays = refuses = blocked = False
    uri = parse_shovel_uri("src-uri", "amqp://there")

    def __init__(self) -> None:
        self.found = False
        self.wanted: list[bool] = []
        self.failures: list[str] = []
        self.delivered: Callable[[Received], None] = lambda received: None

    def open(self, ioloop: Any, opened: Callable[[], None]) -> None:
        opened()

    def find(self, found: Callable[..., None]) -> None:
        counts, self.found = self.found, True
        found(*([0] if counts else []))

    def consume(self, limit: int, delivered: Callable[[Received], None], *rest: Any) -> None:
        self.delivered = delivered

    def want(self, wanted: bool) -> None:
        self.wanted.append(wanted)

    def fail(self, words: str) -> None:
        self.failures.append(words)

    def prepare(self, received: Received) -> Received:
        return received

    def publish(self, number: int, prepared: Any, name: Any) -> None:
        """Never confirm by itself."""

    def acknowledge(self, tag: int, multiple: bool) -> None:
        """Take it."""


def _transfer(monkeypatch: pytest.MonkeyPatch, link: LinkOptions | None) -> tuple[Transfer, _End]:
    end = _End()
    monkeypatch.setattr(Transfer, "_make_source", lambda *given: end)
    monkeypatch.setattr(Transfer, "_make_target", lambda *given: end)
    shovel = parse_shovel("/", "s", {"src-uri": "amqp://there", "src-queue": "q", **TO})
    observer: Any = SimpleNamespace(running=lambda: None, failed=lambda *told: None)
    given = (shovel, shovel.source.uris[0], shovel.destination.uris[0], OWN, None)
    made = Transfer(*given, ShovelProgress(), observer, "c", link, link is None)
    end.found = link is not None  # a shovel finds its destination first
    made.begin()
    return made, end


def _delivery(tag: int, body: bytes = b"") -> Received091:
    return Received091(tag, "", "q", False, pika_properties.MessageProperties(), body)


LINK = LinkOptions(False, "tag")


def test_a_stop_before_the_target_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(end: _End) -> bool:
        raise AttributeError("it is not connected, and has no capabilities")

    made, _ = _transfer(monkeypatch, None)
    monkeypatch.setattr(_End, "refusals_are_sure", property(unknown), raising=False)
    monkeypatch.setattr(_End, "stop", lambda end, stopped: None, raising=False)
    monkeypatch.setattr(made, "_relay", "a relay")
    made.stop(lambda: None)


def test_demand_that_comes_and_goes_brings_no_more_than_is_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of a link's consumers has a prefetch of its own: under an alarm it held the queue."""
    transfer, end = _transfer(monkeypatch, LINK)
    transfer.fetch(True)
    for tag in range(1, PREFETCH + 1):
        end.delivered(_delivery(tag))
    transfer.fetch(False)
    end.wanted.clear()
    transfer.fetch(True)
    assert end.wanted == [False]
    transfer._confirmed([(1, False)])
    assert end.wanted == [False, True]


@pytest.mark.parametrize("link", [None, LINK])
def test_a_source_that_exceeds_the_prefetch_ends_the_run_in_the_end(
    monkeypatch: pytest.MonkeyPatch, link: LinkOptions | None
) -> None:
    """What it sent was held, however much."""
    monkeypatch.setattr(
        "warren_broker.transfers.shovel.received.OVERRUN_BYTES", 2 * (KEPT_BYTES + 1)
    )
    transfer, end = _transfer(monkeypatch, link)
    transfer.fetch(True)
    allowed = PREFETCH * (1 if link is None else LINK_PREFETCHES)
    for tag in range(1, allowed + 3):
        end.delivered(_delivery(tag, b"x"))
    assert not end.failures and transfer.pending == allowed + 2
    end.delivered(_delivery(allowed + 3, b"x"))
    assert end.failures == ["it sent 1,539 bytes more than the prefetch allows"]
    assert transfer.pending == allowed + 2
