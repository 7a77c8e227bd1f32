"""A peer is accepted if it is a member of the cluster, uses its own name and knows the secret."""

from __future__ import annotations

import hashlib
import hmac
import logging
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.raft.runtime.kit import Cluster, Recorder, until
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net import codec
from warren_raft.runtime.net.handshake import Hello, Proof, peer_key, prove
from warren_raft.versions import OWN, Versions

SECRET = b"a secret of the tests"
KEY = peer_key(SECRET, "test")


def made(loop: Loop, root: Path, node: str, **settings: Any) -> Host:
    values: dict[str, Any] = {
        "node": node,
        "cluster": "test",
        "secret": SECRET,
        "listen": ("127.0.0.1", 0),
        "peers": {},
        "data_dir": root / node,
        "handshake_ms_max": 500,
    }
    host = Host(HostConfig(**{**values, **settings}), loop, Recorder())
    host.start()
    return host


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ({"secret": b"another secret"}, {}, "does not have the secret"),
        ({"cluster": "other"}, {}, "is of cluster 'other', node 'b' of 'test'"),
        ({"node": "b"}, {}, "two nodes have the name 'b'"),
    ],
)
def test_a_stranger_is_refused_and_both_sides_say_why(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    a: dict[str, Any],
    b: dict[str, Any],
    reason: str,
) -> None:
    caplog.set_level(logging.INFO, "warren.raft")
    loop = Loop()
    one = made(loop, tmp_path / "1", **{"node": "a", **a})
    two = made(loop, tmp_path / "2", node="b", **b)
    two.add_peer("a", ("127.0.0.1", one.port))
    name = "c" if one.node_id == "b" else "b"  # it must call: of two names the first one does
    one.add_peer(name, ("127.0.0.1", two.port))
    until(loop, lambda: sum(reason in record.message for record in caplog.records) >= 2)
    assert not one.connected(name) and not two.connected("a")
    secrets = [r for r in caplog.records if "secret of the tests" in r.getMessage()]
    assert secrets == []
    one.stop()
    two.stop()
    loop.close()


def test_a_peer_at_the_wrong_address_is_not_taken_for_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop()
    one = made(loop, tmp_path, "a")
    two = made(loop, tmp_path, "b")
    two.add_peer("a", ("127.0.0.1", one.port))
    one.add_peer("c", ("127.0.0.1", two.port))
    until(loop, lambda: "'b' answers at the address given for 'c'" in caplog.text)
    assert not one.connected("c")
    one.stop()
    two.stop()
    loop.close()


def called_by_a(loop: Loop, root: Path) -> Host:
    """Start host b, which expects a and cannot reach it: only a's own calls connect them."""
    host = made(loop, root, "b")
    host.add_peer("a", ("127.0.0.1", 1))
    return host


class Raw:
    """A client that says what it likes."""

    def __init__(self, loop: Loop, host: Host) -> None:
        self.loop = loop
        self.sock = socket.create_connection(("127.0.0.1", host.port))
        self.sock.setblocking(False)
        self.received = b""

    def send(self, data: bytes) -> None:
        self.sock.send(data)

    def read(self, done: Any) -> None:
        def ready() -> bool:
            try:
                data = self.sock.recv(65536)
            except BlockingIOError:
                data = None
            except ConnectionResetError:
                data = b""
            if data:
                self.received += data
            self.ended = data == b""
            return bool(done(self))

        until(self.loop, ready)

    def frames(self) -> list[tuple[int, bytes]]:
        got: list[tuple[int, bytes]] = []
        codec.Assembler(1 << 20).feed(
            self.received, lambda kind, body: got.append((kind, bytes(body)))
        )
        return got


def hello(node: str = "a", **changes: Any) -> Hello:
    values = {
        "versions": OWN,
        "cluster": "test",
        "node": node,
        "boot_id": 7,
        "nonce": b"n" * 32,
    }
    return Hello(**{**values, **changes})


def greeting(value: Hello) -> bytes:
    return codec.frame(codec.HELLO, msgspec.msgpack.encode(value))


def nested_greeting() -> bytes:
    """A Hello with one more field, as a later version may have, of 60,000 arrays in each other.

    Python 3.13 would skip 5,000; a frame of a handshake has no room for more than 65,000.
    """
    head, *fields = msgspec.msgpack.encode(hello())
    assert head & 0xF0 == 0x90, head
    return codec.frame(codec.HELLO, bytes((head + 1, *fields)) + b"\x91" * 60_000 + b"\xc0")


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        (greeting(hello(versions=Versions(98, 99))), "has versions 98 to 99"),
        (greeting(hello(nonce=b"short")), "nonce of 5 bytes"),
        (codec.HEARTBEAT_FRAME, None),
        (codec.frame(codec.WELCOME, b""), None),
        (codec.frame(codec.PROOF, msgspec.msgpack.encode(Proof(b"x" * 32))), None),
        (codec.frame(codec.HELLO, b"\xff\xff"), None),
        (greeting(hello()).replace(b"\xa4test", b"\xa4te\xff\xff"), None),
        (nested_greeting(), None),
        (b"GET / HTTP/1.1\r\n\r\n", None),
        (b"\xff" * 100, None),
        (b"", None),  # it says nothing: closed after handshake_ms_max
    ],
)
def test_who_says_something_else_is_closed_and_the_node_stays_up(
    tmp_path: Path, first: bytes, answer: str | None
) -> None:
    loop = Loop()
    host = called_by_a(loop, tmp_path)
    raw = Raw(loop, host)
    raw.send(first)
    raw.read(lambda r: r.ended)
    if answer is not None:
        ((kind, body),) = raw.frames()
        assert kind == codec.REFUSED and answer in msgspec.msgpack.decode(body)[0]
    good = Raw(loop, host)
    good.send(greeting(hello()))
    good.read(lambda r: len(r.frames()) == 1)
    host.stop()
    loop.close()


def test_a_proof_of_another_connection_or_of_the_other_side_does_not_serve(
    tmp_path: Path,
) -> None:
    loop = Loop()
    host = called_by_a(loop, tmp_path)
    mine = hello()
    for forge in ("replayed", "reflected", "the bare secret", "right"):
        raw = Raw(loop, host)
        raw.send(greeting(mine))
        raw.read(lambda r: len(r.frames()) == 1)
        ((_, theirs),) = raw.frames()
        other = msgspec.msgpack.decode(theirs, type=Hello)
        if forge == "replayed":
            answer = prove(KEY, "initiator", mine, hello("b", nonce=b"m" * 32))
        elif forge == "reflected":
            answer = prove(KEY, "acceptor", mine, other)
        elif forge == "the bare secret":
            answer = prove(SECRET, "initiator", mine, other)
        else:
            answer = prove(KEY, "initiator", mine, other)
        raw.send(codec.frame(codec.PROOF, msgspec.msgpack.encode(answer)))
        raw.read(lambda r: len(r.frames()) > 1)
        kind, body = raw.frames()[1]
        assert kind == (codec.PROOF if forge == "right" else codec.REFUSED), forge
        assert not host.connected("a"), "it has not said that it is satisfied"
    assert msgspec.msgpack.decode(body, type=Proof) == prove(KEY, "acceptor", mine, other)
    raw.send(codec.frame(codec.WELCOME, b""))
    until(loop, lambda: host.connected("a"))
    # Established now: a frame of nonsense ends it, and only it.
    raw.send(codec.frame(codec.RAFT, b"\xff" * 9))
    until(loop, lambda: not host.connected("a"))
    host.stop()
    loop.close()


def test_a_later_version_may_append_to_its_greeting(tmp_path: Path) -> None:
    """Its proof covers the field that this version does not know."""
    loop = Loop()
    host = called_by_a(loop, tmp_path)
    raw = Raw(loop, host)
    head, *fields = msgspec.msgpack.encode(hello(versions=Versions(1, 2)))
    longer = bytes((head + 1, *fields)) + b"\xa3new"
    raw.send(codec.frame(codec.HELLO, longer))
    raw.read(lambda r: len(r.frames()) == 1)
    other = msgspec.Raw(raw.frames()[0][1])
    proof = prove(KEY, "initiator", msgspec.Raw(longer), other)
    raw.send(codec.frame(codec.PROOF, msgspec.msgpack.encode(proof)))
    raw.read(lambda r: len(r.frames()) > 1)
    assert raw.frames()[1][0] == codec.PROOF
    host.stop()
    loop.close()


def test_the_proof_is_an_hmac_of_both_greetings() -> None:
    one, two = hello(), hello("b")
    said = msgspec.msgpack.encode(("warren peer", "acceptor", one, two))
    assert prove(KEY, "acceptor", one, two).mac == hmac.new(KEY, said, hashlib.sha256).digest()


def test_the_key_of_the_proofs_is_slow_to_derive_and_of_one_cluster() -> None:
    salt = b"warren peer\0test"
    assert hashlib.scrypt(SECRET, salt=salt, n=32768, r=8, p=1, maxmem=1 << 26, dklen=32) == KEY
    assert peer_key(SECRET, "other") != KEY != peer_key(SECRET + b"x", "test")
    derived = peer_key.cache_info().misses
    assert peer_key(SECRET, "test") == KEY and peer_key.cache_info().misses == derived


def test_a_stranger_who_connects_gets_nothing_to_try_guesses_of_the_secret_on(
    tmp_path: Path,
) -> None:
    loop = Loop()
    host = called_by_a(loop, tmp_path)
    for then in (
        None,
        codec.frame(codec.PROOF, msgspec.msgpack.encode(Proof(b"x" * 32))),
        codec.frame(codec.WELCOME, b""),
        greeting(hello()),
    ):
        raw = Raw(loop, host)
        raw.send(greeting(hello()))
        raw.read(lambda r: len(r.frames()) == 1)
        if then is not None:
            raw.send(then)
        raw.read(lambda r: r.ended)  # at once, or after handshake_ms_max
        kinds = [kind for kind, _ in raw.frames()]
        assert kinds[0] == codec.HELLO and codec.PROOF not in kinds, (then, kinds)
        assert not host.connected("a")
    host.stop()
    loop.close()


def test_two_proofs_in_one_handshake_end_it(tmp_path: Path) -> None:
    loop = Loop()
    host = called_by_a(loop, tmp_path)
    raw, mine = Raw(loop, host), hello()
    raw.send(greeting(mine))
    raw.read(lambda r: len(r.frames()) == 1)
    other = msgspec.msgpack.decode(raw.frames()[0][1], type=Hello)
    right = msgspec.msgpack.encode(prove(KEY, "initiator", mine, other))
    raw.send(codec.frame(codec.PROOF, right) * 2)
    raw.read(lambda r: r.ended)
    assert [kind for kind, _ in raw.frames()] in ([codec.HELLO], [codec.HELLO, codec.PROOF])
    assert not host.connected("a")
    host.stop()
    loop.close()


def test_messages_arrive_in_order_whole_and_with_their_sender(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, nodes=("a", "b"))
    a, b = cluster.hosts["a"], cluster.hosts["b"]
    assert not a.send("b", [b"lost: not connected yet"])
    cluster.until(lambda: a.connected("b") and b.connected("a"))
    big = bytes(range(256)) * 20_000
    assert a.send("b", [b"one", b"", b" two"])
    assert a.send("b", [big])
    assert b.send("a", [b"back"])
    assert a.send("b", [])
    cluster.until(lambda: len(cluster.messages["b"]) == 3 and len(cluster.messages["a"]) == 1)
    assert cluster.messages["b"] == [("a", b"one two"), ("a", big), ("a", b"")]
    assert cluster.messages["a"] == [("b", b"back")]
    assert a._peers.boot_id("b") == b.boot_id and b._peers.boot_id("a") == a.boot_id
    cluster.close()


def test_a_peer_that_does_not_read_is_cut_off_at_the_bound(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, nodes=("a", "b"), peer_backlog_bytes=1 << 20)
    a = cluster.hosts["a"]
    cluster.until(lambda: a.connected("b"))
    sent = 0
    while a.send("b", [bytes(100_000)]):
        sent += 1
        assert a.peer_backlog_bytes("b") <= 1 << 20
        assert sent < 100
    assert "down" in cluster.observers["a"].kinds()
    cluster.until(lambda: a.connected("b"))  # and called again
    cluster.close()


def test_a_peer_that_is_only_starting_is_no_warning_unless_it_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "warren.raft")
    loop = Loop()
    one = made(loop, tmp_path, "a", reconnect_ms_min=1, reconnect_ms_max=5)
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        one.add_peer("b", taken.getsockname())

        def levels() -> list[int]:
            return [r.levelno for r in caplog.records if "cannot connect" in r.getMessage()]

        until(loop, lambda: levels() == [logging.INFO])
        one._transport._starts_until_ms = 0
        until(loop, lambda: len(levels()) > 1)
        assert levels() == [logging.INFO, logging.WARNING]
    one.stop()
