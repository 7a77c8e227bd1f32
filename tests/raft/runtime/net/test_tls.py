"""TLS streams: the same bytes, the same pressure, the same ends; and handshakes that fail."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority, run
from tests.patience import PATIENCE_S
from tests.raft.runtime.kit import until
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net import tls
from warren_raft.runtime.net.tls import HandshakeBudget, TlsRefused, TlsStream
from warren_wire.tls.certificates import WatchedFiles
from warren_wire.tls.contexts import (
    CertificatesUnusable,
    TlsFiles,
    calling_context,
    peer_context,
    server_context,
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    made = authority.issue("server")
    return TlsFiles(made.cert, made.key, authority.cert)


class World:
    """A loop with a server's stream; the other end is a plain socket for the test."""

    def __init__(self, files: TlsFiles, **settings: Any) -> None:
        self.loop = Loop()
        ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(10)
        self.heard = bytearray()
        self.ended: list[Exception | None] = []
        self.established: list[bool] = []
        self.stream = TlsStream(
            self.loop,
            ours,
            self.heard.extend,
            self.ended.append,
            context=server_context(files),
            hostname=None,
            budget=settings.pop("budget", HandshakeBudget()),
            on_established=lambda: self.established.append(True),
            **settings,
        )

    def turn(self, holds: Callable[[], Any]) -> None:
        until(self.loop, holds)

    def client(self, work: Callable[[ssl.SSLSocket], Any], context: ssl.SSLContext) -> list[Any]:
        """Run `work` with the client's side, on a thread; what it returns or raises."""
        found: list[Any] = []

        def run() -> None:
            try:
                with context.wrap_socket(
                    self.theirs,
                    server_hostname="localhost",
                    suppress_ragged_eofs=False,  # an end without close_notify is an error
                ) as wrapped:
                    found.append(work(wrapped))
            except OSError as error:
                found.append(error)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        return found


def trusting(files: TlsFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files.cacertfile))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("piece", [1, 700, 5_000, 700_000])
def test_all_bytes_arrive_in_their_order_both_ways(
    files: TlsFiles, piece: int, version: ssl.TLSVersion
) -> None:
    world = World(files)
    context = trusting(files)
    context.minimum_version = context.maximum_version = version
    count = max(3, 3_000_000 // max(piece, 3000))
    total = b"".join(bytes([i % 256]) * piece for i in range(count))
    for i in range(0, count, 7):  # before the handshake
        world.stream.write([bytes([k % 256]) * piece for k in range(i, min(i + 7, count))])

    def work(wrapped: ssl.SSLSocket) -> bytes:
        got = bytearray()
        while len(got) < len(total):
            got += wrapped.recv(1 << 16)
        wrapped.sendall(got)
        assert wrapped.recv(1) == b""
        return bytes(got)

    found = world.client(work, context)
    world.turn(lambda: len(world.heard) == len(total))
    assert bytes(world.heard) == total and world.established == [True]
    assert world.stream.out_bytes == 0 and world.stream.bytes_out == len(total)
    assert world.stream.description.startswith(version.name.replace("_", "."))
    world.stream.end()
    world.turn(lambda: found and world.ended)
    assert found == [total] and world.ended == [None]
    world.loop.close()


def test_a_reader_that_stops_is_felt_and_then_forgotten(files: TlsFiles) -> None:
    felt: list[str] = []
    world = World(files, high=100_000, low=10_000, on_drained=lambda: felt.append("drained"))
    go = threading.Event()

    def work(wrapped: ssl.SSLSocket) -> int:
        go.wait(PATIENCE_S)
        size = 0
        while size < 10_000_000:
            size += len(wrapped.recv(1 << 20))
        return size

    found = world.client(work, trusting(files))
    world.turn(lambda: world.established)
    for _ in range(100):
        world.stream.send(bytes(100_000))
    for _ in range(20):
        world.loop.run_turn(5)
    assert felt == [] and world.stream.congested
    assert 10_000_000 - world.stream.out_bytes < 2_000_000, "only what the socket accepts is sealed"
    go.set()
    world.turn(lambda: found)
    assert found == [10_000_000] and felt == ["drained"]
    assert world.stream.out_bytes <= 10_000
    world.stream.abort()
    world.loop.close()


def test_a_paused_stream_gets_what_was_sent_meanwhile(files: TlsFiles) -> None:
    """Nothing that was decrypted may wait inside OpenSSL while the socket is silent."""
    world = World(files)
    world.client(
        lambda wrapped: (wrapped.sendall(bytes(300_000)), wrapped.recv(1)), trusting(files)
    )
    world.turn(lambda: len(world.heard) > 0)
    world.stream.pause_reading()
    seen = len(world.heard)
    for _ in range(5):
        world.loop.run_turn(5)
    assert len(world.heard) == seen
    world.stream.resume_reading()
    world.turn(lambda: len(world.heard) == 300_000)
    world.stream.abort()
    world.loop.close()


def test_close_sends_what_is_unsent_first_and_says_that_nothing_follows(files: TlsFiles) -> None:
    world = World(files)

    def work(wrapped: ssl.SSLSocket) -> bytes:
        got = b""
        while piece := wrapped.recv(100):
            got += piece
        return got

    found = world.client(work, trusting(files))
    world.turn(lambda: world.established)
    world.stream.send(b"last words")
    world.stream.close()
    world.stream.send(b"too late")
    world.turn(lambda: found and world.ended)
    assert found == [b"last words"] and world.ended == [None]
    world.loop.close()


def refused(world: World) -> str:
    world.turn(lambda: world.ended)
    assert isinstance(world.ended[0], TlsRefused) and not world.heard
    world.loop.close()
    return str(world.ended[0])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("ends", [False, True], ids=["waits for the hang-up", "ends"])
def test_a_client_that_waits_for_the_answer_to_its_farewell_gets_it(
    files: TlsFiles, version: ssl.TLSVersion, ends: bool
) -> None:
    # asyncio's keeps the socket for up to 30 s until its close_notify is answered.
    world = World(files)
    context = trusting(files)
    context.minimum_version = context.maximum_version = version

    def work(wrapped: ssl.SSLSocket) -> bytes:
        got = wrapped.recv(10)
        wrapped.sendall(b"on its way, and dropped")
        wrapped.unwrap().close()
        return got

    found = world.client(work, context)
    world.turn(lambda: world.established)
    world.stream.write([b"close-ok"])
    if ends:
        world.stream.end()
    else:
        world.stream.await_hang_up(60_000)
    world.turn(lambda: found and world.ended)
    assert found == [b"close-ok"] and world.ended == [None] and not world.heard


def test_bytes_that_are_not_tls_are_named(files: TlsFiles) -> None:
    world = World(files)
    world.theirs.sendall(b"AMQP\0\0\x09\x01")
    world.turn(lambda: world.stream._refusal is not None)
    assert world.theirs.recv(10) == b"", "it is told to go, without an answer"
    world.theirs.close()
    assert "does not speak TLS; its first bytes are 'AMQP" in refused(world)


def test_garbage_in_a_record_ends_the_connection(files: TlsFiles) -> None:
    world = World(files)
    world.theirs.sendall(b"\x16\x03\x01\x00\x20" + bytes(range(32)))
    world.turn(lambda: world.stream._refusal is not None)
    world.theirs.close()
    assert "TLS failed" in refused(world)


def test_a_client_that_hangs_up_in_the_handshake(files: TlsFiles) -> None:
    world = World(files)
    world.theirs.sendall(b"\x16\x03\x01")
    world.theirs.close()
    assert "hung up during the TLS handshake" in refused(world)


def test_a_client_that_says_nothing_and_leaves_is_no_news(files: TlsFiles) -> None:
    world = World(files)
    world.theirs.close()
    world.turn(lambda: world.ended)
    assert world.ended == [None]
    world.loop.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_versions_below_1_2_are_refused(files: TlsFiles) -> None:
    world = World(files)
    context = trusting(files)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    found = world.client(lambda wrapped: None, context)
    assert "below 1.2" in refused(world)
    world.thread.join(PATIENCE_S)
    assert isinstance(found[0], ssl.SSLError)


def test_a_client_without_the_certificate_that_is_required(
    files: TlsFiles, authority: Authority
) -> None:
    required = TlsFiles(files.certfile, files.keyfile, authority.cert, None, ssl.CERT_REQUIRED)
    world = World(required)
    found = world.client(lambda wrapped: wrapped.recv(1), trusting(files))
    assert "has given no certificate" in refused(world)
    world.thread.join(PATIENCE_S)
    assert "CERTIFICATE_REQUIRED" in str(found[0]), "the alert arrives"


@pytest.mark.parametrize("verify", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
@pytest.mark.parametrize(
    "case, text",
    [("other authority", "unable to get local issuer"), ("expired", "certificate has expired")],
)
def test_a_certificate_that_is_not_accepted(
    files: TlsFiles,
    authority: Authority,
    tmp_path: Path,
    verify: ssl.VerifyMode,
    case: str,
    text: str,
) -> None:
    issuer = authority if case == "expired" else Authority(tmp_path / "other")
    given = issuer.issue("client", days=-1 if case == "expired" else 5)
    world = World(TlsFiles(files.certfile, files.keyfile, authority.cert, None, verify))
    context = trusting(files)
    context.load_cert_chain(given.cert, given.key)
    world.client(lambda wrapped: wrapped.recv(1), context)
    said = refused(world)
    assert "certificate is refused" in said and text in said


def test_a_client_that_does_not_trust_the_server_says_so(files: TlsFiles, tmp_path: Path) -> None:
    world = World(files)
    other = Authority(tmp_path / "other")
    world.client(lambda wrapped: None, ssl.create_default_context(cafile=str(other.cert)))
    assert "unknown ca (it does not trust this node's certificate)" in refused(world)


@pytest.mark.parametrize("plain", [False, True])
def test_a_caller_accepts_the_same_certificates_on_every_python(
    tmp_path: Path, plain: bool
) -> None:
    """On Python 3.13 shovels refused a certificate that they accepted on 3.11."""
    authority = Authority(tmp_path, plain=plain)
    made = authority.issue("server")
    world = World(TlsFiles(made.cert, made.key))
    found = world.client(
        lambda wrapped: wrapped.version(), calling_context(TlsFiles(cacertfile=authority.cert))
    )
    world.turn(lambda: found)
    assert found == ["TLSv1.3"]
    world.loop.close()


def test_a_caller_checks_authority_and_name(files: TlsFiles, tmp_path: Path) -> None:
    other, authority = Authority(tmp_path / "other"), Authority(tmp_path / "own")
    named = authority.issue("another", san="DNS:another.example")
    for server, trusted, text in [
        (files, other.cert, "self-signed certificate in certificate chain|local issuer"),
        (files, None, "self-signed certificate in certificate chain|local issuer"),
        (TlsFiles(named.cert, named.key), authority.cert, "not valid for 'localhost'"),
    ]:
        world = World(server)
        found = world.client(lambda wrapped: None, calling_context(TlsFiles(cacertfile=trusted)))
        world.turn(lambda found=found: found)
        assert isinstance(found[0], ssl.SSLCertVerificationError), found
        assert re.search(text, str(found[0])), found
        world.stream.abort()
        world.loop.close()


def test_handshakes_of_one_turn_have_a_bound(files: TlsFiles) -> None:
    """A thousand clients at once must not hold up the heartbeats between nodes."""
    budget = HandshakeBudget(0.0)
    world = World(files, budget=budget)
    world.client(lambda wrapped: wrapped.sendall(b"in"), trusting(files))
    for _ in range(20):
        world.loop.run_turn(5)
    assert not world.established and not world.ended and world.stream.bytes_in == 0
    budget._turn_s = tls.HANDSHAKE_S_PER_TURN
    world.turn(lambda: world.heard == b"in")
    budget.spend(1.0)
    assert not budget.left(budget._turn) and budget.left(budget._turn + 1)
    world.stream.abort()
    world.loop.close()


def test_two_streams_speak_with_each_other(files: TlsFiles, authority: Authority) -> None:
    """As two nodes do: each asks for the other's certificate."""
    both = TlsFiles(files.certfile, files.keyfile, authority.cert, None, ssl.CERT_REQUIRED)
    loop = Loop()
    one, two = socket.socketpair()
    heard: list[bytes] = []
    ended: list[Any] = []
    budget = HandshakeBudget()
    server = TlsStream(
        loop,
        one,
        lambda data: server.send(data),
        ended.append,
        context=server_context(both),
        hostname=None,
        budget=budget,
    )
    client = TlsStream(
        loop,
        two,
        heard.append,
        ended.append,
        context=peer_context(both),
        hostname="",
        budget=budget,
    )
    client.send(b"first words")
    until(loop, lambda: b"".join(heard) == b"first words")
    assert client.peer_certificate["subject"] == ((("commonName", "server"),),)
    assert server.peer_certificate["subject"] == ((("commonName", "server"),),)
    client.end()
    until(loop, lambda: len(ended) == 2)
    assert ended == [None, None]
    loop.close()


# ---------------------------------------------------------------- files


def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: Authority) -> None:
    good, other = authority.issue("good"), authority.issue("other")
    text = tmp_path / "text"
    text.write_text("no certificate")
    for files, said in (
        (TlsFiles(tmp_path / "none.pem"), "none.pem': No such file"),
        (TlsFiles(good.cert, other.key), "the key is not the certificate's"),
        (TlsFiles(text, good.key), "not a certificate and its private key in PEM format"),
        (TlsFiles(good.cert), "not a certificate and its private key in PEM format"),
        (TlsFiles(good.cert, good.key, text), f"cacertfile='{text}' holds no certificate"),
    ):
        with pytest.raises(CertificatesUnusable) as raised:
            server_context(files)
        assert said in str(raised.value)


def test_an_encrypted_key_needs_its_password_and_nobody_is_asked(
    tmp_path: Path, authority: Authority
) -> None:
    made = authority.issue("locked")
    locked = tmp_path / "locked.key"
    run("pkey", "-in", made.key, "-aes256", "-passout", "pass:word", "-out", locked)
    server_context(TlsFiles(made.cert, locked, password="word"))
    for wrong in (None, "drow"):
        with pytest.raises(CertificatesUnusable, match="cannot be decrypted"):
            server_context(TlsFiles(made.cert, locked, password=wrong))


def test_changed_files_are_used_once_they_belong_together(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "warren.raft")
    made = authority.issue("first", file="reloaded")
    watched = WatchedFiles(TlsFiles(made.cert, made.key, authority.cert), server_context, "x")
    first = watched.current
    watched.look()
    watched.look()
    assert watched.current is first and not caplog.text
    key = made.key.read_bytes()
    authority.issue("second", file="reloaded")
    new_key = made.key.read_bytes()
    made.key.write_bytes(key)  # the new certificate is there, its key is not yet
    watched.look()
    assert watched.current is first and not caplog.text, "it waits for what may still come"
    watched.look()
    assert watched.current is first and "the key is not the certificate's" in caplog.text
    assert "new connections still get the earlier ones" in caplog.text
    caplog.clear()
    watched.look()
    assert not caplog.text, "one line for one change"
    made.key.write_bytes(new_key)
    watched.look()
    watched.look()
    assert watched.current is not first and "new certificates were read" in caplog.text
    second = watched.current
    made.cert.unlink()
    watched.look()
    watched.look()
    assert watched.current is second and f"cannot read certfile='{made.cert}'" in caplog.text
