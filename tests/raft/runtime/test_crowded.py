"""Many groups with much for one node: its connection is not handed more than it can take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.raft.runtime.kit import Cluster
from warren_wire.tls.contexts import TlsFiles

GROUPS = tuple(range(1, 25))
ENTRY = bytes(2 << 20)
BOUND = 24 << 20
"""Half of what is proposed at once: with all of it waiting the connection would be reset."""
SETTINGS: dict[str, Any] = {"peer_backlog_bytes": BOUND, "suspect_after_ms": 60_000}
"""A slow machine is no reason for another connection."""


def led_by_one(root: Path, tls: TlsFiles | None = None) -> Cluster:
    """Nodes a and b; a leads all groups."""
    cluster = Cluster(root, nodes=("a", "b"), tls=tls, **SETTINGS)
    cluster.until(lambda: cluster.hosts["a"].connected("b"))
    for group in GROUPS:
        cluster.start_group(group, preferred="a")
    cluster.until(lambda: all(cluster.hosts["a"].is_leader(group) for group in GROUPS))
    return cluster


def propose(cluster: Cluster) -> None:
    for group in GROUPS:
        cluster.hosts["a"].propose(group, ENTRY)


def arrived(cluster: Cluster, entries: int) -> bool:
    return all(
        len(host.state(group)) == entries for host in cluster.hosts.values() for group in GROUPS
    )


@pytest.mark.parametrize("with_tls", [False, True])
def test_entries_of_many_groups_at_once_reset_the_connection(
    tmp_path: Path, with_tls: bool
) -> None:
    tls = None
    if with_tls:
        authority = Authority(tmp_path / "ca")
        made = authority.issue("node")
        tls = TlsFiles(made.cert, made.key, authority.cert)
    cluster = led_by_one(tmp_path, tls)
    propose(cluster)
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, cluster.hosts["a"].peer_backlog_bytes("b"))
        return arrived(cluster, 1)

    cluster.until(done)
    assert "down" not in cluster.observers["a"].kinds()
    assert "down" not in cluster.observers["b"].kinds()
    assert 8 << 20 < most < BOUND, most
    assert cluster.hosts["a"]._ready_loop._crowded == {}
    propose(cluster)
    cluster.until(lambda: arrived(cluster, 2))
    cluster.close()


def test_the_groups_held_back_are_sent_for_when_the_connection_ends(tmp_path: Path) -> None:
    cluster = led_by_one(tmp_path)
    propose(cluster)
    cluster.until(lambda: cluster.hosts["a"]._ready_loop._crowded)
    connection = cluster.hosts["a"]._transport._peers["b"].connection
    assert connection is not None
    connection.stream.abort()
    cluster.until(lambda: arrived(cluster, 1))
    assert "down" in cluster.observers["a"].kinds()
    cluster.close()


def test_a_node_that_comes_back_to_many_groups_is_caught_up(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, **SETTINGS)
    cluster.until(lambda: all(cluster.hosts["a"].connected(other) for other in "bc"))
    for group in GROUPS:
        cluster.start_group(group, preferred="a")
    cluster.until(lambda: all(cluster.leader(group) for group in GROUPS))
    for group in GROUPS:  # on a busy machine another one may have been elected first
        found = cluster.leader(group)
        if found is not None and found.node_id != "a":
            found.transfer(group, "a")
    cluster.until(lambda: all(cluster.hosts["a"].is_leader(group) for group in GROUPS))
    cluster.stop("c")
    propose(cluster)
    cluster.until(lambda: arrived(cluster, 1))
    already = len(cluster.observers["a"].events)
    back = cluster.start("c")
    for other in "ab":
        cluster.hosts[other].add_peer("c", ("127.0.0.1", back.port))
    for group in GROUPS:
        cluster.start_group(group, preferred="a")
    cluster.until(lambda: arrived(cluster, 1))
    assert ("down", "c") not in cluster.observers["a"].events[already:]
    cluster.close()
