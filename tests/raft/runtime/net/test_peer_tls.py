"""Nodes that speak TLS with each other: replication, strangers, settings that differ."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.raft.runtime.kit import NODES, Cluster, Recorder, until
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.tls import TlsStream, begins_tls
from warren_wire.tls.contexts import CertificatesUnusable, TlsFiles


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def files(authority: Authority, name: str, **settings: Any) -> TlsFiles:
    made = authority.issue(name, **settings)
    return TlsFiles(made.cert, made.key, authority.cert)


def test_three_replicate_large_entries_and_survive_a_restart(
    tmp_path: Path, authority: Authority
) -> None:
    cluster = Cluster(tmp_path, tls=files(authority, "node"))
    cluster.until(
        lambda: all(
            host.connected(other)
            for node, host in cluster.hosts.items()
            for other in NODES
            if other != node
        )
    )
    cluster.start_group(1)
    leader = cluster.await_leader(1)
    for peer in leader._transport._peers.values():
        assert peer.connection is not None and isinstance(peer.connection.stream, TlsStream)
        assert peer.connection.stream.description.startswith("TLSv1.3")
    entries = [bytes([i]) * size for i, size in enumerate((1, 70_000, 5 << 20, 3, 1 << 20))]
    for entry in entries:
        leader.propose(1, entry)
    cluster.until(lambda: all(host.state(1) == entries for host in cluster.hosts.values()))
    away = next(node for node in NODES if node != leader.node_id)
    cluster.kill(away)
    leader.propose(1, b"meanwhile")
    cluster.until(lambda: leader.state(1) == [*entries, b"meanwhile"])
    back = cluster.start(away)
    for other in cluster.hosts:
        if other != away:
            cluster.hosts[other].add_peer(away, ("127.0.0.1", back.port))
    cluster.until(lambda: back.connected(leader.node_id))
    cluster.close()


def config_of(
    node: str, root: Path, tls: TlsFiles | None, secret: bytes = b"a secret of the tests"
) -> HostConfig:
    return HostConfig(
        node=node,
        cluster="test",
        secret=secret,
        listen=("127.0.0.1", 0),
        peers={},
        data_dir=root / node,
        handshake_ms_max=1000,
        tls=tls,
    )


class Two:
    """Nodes a and b, which call each other; what they say is in caplog."""

    def __init__(
        self, root: Path, caplog: pytest.LogCaptureFixture, a: TlsFiles | None, b: TlsFiles | None
    ) -> None:
        caplog.set_level(logging.INFO, "warren.raft")
        self._caplog = caplog
        self.loop = Loop()
        self.a, self.b = self.host(root, "a", a), self.host(root, "b", b)
        self.a.add_peer("b", ("127.0.0.1", self.b.port))
        self.b.add_peer("a", ("127.0.0.1", self.a.port))

    def host(self, root: Path, node: str, tls: TlsFiles | None) -> Host:
        host = Host(config_of(node, root, tls), self.loop, Recorder())
        host.start()
        return host

    def refused(self, *said: str) -> None:
        """Expect each text in a line of its own, and no connection; end."""
        until(self.loop, lambda: all(text in self._caplog.text for text in said))
        assert not self.a.connected("b") and not self.b.connected("a")
        self.close()

    def close(self) -> None:
        self.a.stop()
        self.b.stop()
        self.loop.close()


def test_the_secret_is_still_asked_for(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate of the authority alone makes no node a member."""
    tls = files(authority, "node")
    two = Two(tmp_path, caplog, tls, tls)
    until(two.loop, lambda: two.a.connected("b") and two.b.connected("a"))
    config = config_of("0", tmp_path, tls, secret=b"another secret")
    stranger = Host(config, two.loop, Recorder())
    stranger.start()
    stranger.add_peer("a", ("127.0.0.1", two.a.port))
    until(two.loop, lambda: "node '0' does not have the secret" in caplog.text)
    stranger.stop()
    two.close()


def test_a_certificate_of_another_authority(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path / "other", "stranger")
    given = other.issue("b")
    two = Two(
        tmp_path,
        caplog,
        files(authority, "a"),
        TlsFiles(given.cert, given.key, authority.cert),
    )
    two.refused(
        "peer b at 127.0.0.1:",
        "its certificate is refused: unable to get local issuer certificate",
    )


def test_a_certificate_that_has_expired(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    two = Two(tmp_path, caplog, files(authority, "late", days=-1), files(authority, "b"))
    two.refused("its certificate is refused: certificate has expired")


@pytest.mark.parametrize("calling", [True, False])
def test_a_node_with_tls_and_one_without(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, calling: bool
) -> None:
    tls = files(authority, "one")
    two = Two(tmp_path, caplog, tls if calling else None, None if calling else tls)
    if calling:
        two.refused(
            "127.0.0.1 calls with TLS, and this node has none for peers",
            "the other side does not speak TLS; give both the same settings",
        )
    else:
        two.refused("a connection from 127.0.0.1 was closed: it does not speak TLS")


def test_files_that_cannot_be_used_end_the_start(tmp_path: Path, authority: Authority) -> None:
    wrong = TlsFiles(tmp_path / "none.pem", None, authority.cert)
    loop = Loop()
    host = Host(config_of("a", tmp_path, wrong), loop, Recorder())
    with pytest.raises(CertificatesUnusable, match="cannot read .*none.pem"):
        host.start()
    loop.close()


def test_no_frame_between_nodes_begins_like_tls() -> None:
    assert begins_tls(b"\x16\x03\x01\x02") and begins_tls(b"\x16\x03\x03\x00")
    assert not begins_tls(b"\x16\x03") and not begins_tls(b"\x16\x03\x00\x00\x01")
