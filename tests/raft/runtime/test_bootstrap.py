"""How nodes form a cluster, whatever happens to them meanwhile."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from tests.raft.runtime.forming import ABC, Nodes
from warren_raft.runtime.bootstrap import BootstrapPlan
from warren_raft.storage.identity import Identity


def test_three_new_nodes_form_a_cluster(nodes: Nodes) -> None:
    nodes.form()
    assert set(nodes.found.values()) == {BootstrapPlan(False, ABC)}
    identities = [host._logs.directory.identity for host in nodes.hosts.values()]
    assert len({identity.cluster_id for identity in identities}) == 1 and identities[0].cluster_id
    nodes.stop(*ABC)
    for name in ABC:
        nodes.start(name)
    assert all(nodes.found[name] == BootstrapPlan(False, ABC, True) for name in ABC)
    nodes.serves(*ABC)


def test_a_node_alone_forms_its_cluster_at_once(nodes: Nodes) -> None:
    nodes.start("a", ())
    assert nodes.found["a"] == BootstrapPlan(False, ("a",))
    nodes.serves("a")
    nodes.stop("a")
    nodes.start("a", ())
    assert nodes.found["a"].stored and nodes.hosts["a"].cluster_id


def test_nobody_begins_before_all_are_there(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "warren.raft")
    nodes.start("a")
    nodes.start("b")
    nodes.until(lambda: nodes.hosts["a"].connected("b") and nodes.hosts["b"].connected("a"))
    nodes.until(lambda: "a: waiting for node c to form the cluster of a, b, c" in caplog.text)
    assert nodes.found == {}
    nodes.start("c")
    nodes.serves(*ABC)
    assert set(nodes.found.values()) == {BootstrapPlan(False, ABC)}


def two_wait_for_the_third(nodes: Nodes) -> None:
    """Start a and b, which meet and wait for c."""
    nodes.start("a")
    nodes.start("b")
    nodes.until(lambda: nodes.hosts["a"].connected("b"))


def test_a_restart_while_others_wait_is_no_obstacle(nodes: Nodes) -> None:
    two_wait_for_the_third(nodes)
    nodes.stop("a")
    nodes.start("c")
    nodes.until(lambda: nodes.hosts["c"].connected("b"))
    nodes.until(lambda: "b" in nodes.found)  # it has met both
    assert nodes.found["b"] == BootstrapPlan(False, ABC)
    nodes.stop("b")
    nodes.start("b", ("a", "b"))  # a founder keeps the members that it was founded with
    assert nodes.found["b"] == BootstrapPlan(False, ABC, True)
    assert not nodes.hosts["b"].cluster_id
    nodes.start("a")
    nodes.serves(*ABC)
    assert nodes.found["a"] == BootstrapPlan(False, ABC), "the same disk is the founder it was"


def test_a_disk_lost_before_forming_founds_no_second_cluster(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """See runtime.formation: a was counted, no node knows yet that the cluster is formed."""
    for name in ABC:
        nodes.start(name)
    nodes.until(lambda: len(nodes.found) == 3)
    nodes.stop(*[name for name in ABC if name in nodes.hosts])
    for name in ("b", "c"):  # as if they did not know of the commit
        forget_formed(nodes.root / name)
    nodes.wipe("a")
    nodes.start("a")
    nodes.start("b")
    nodes.until(lambda: "a" in nodes.found)
    assert nodes.found["a"].joining, "one that remembers the disk is enough"
    assert "has founded the cluster with another disk of this node" in caplog.text
    nodes.start("c")
    nodes.serves(*ABC)
    assert [node for node, _ in nodes.hosts["b"].members(0).ids] == ["a"]


def forget_formed(directory: Path) -> None:
    path = directory / "node.json"
    said = msgspec.json.decode(path.read_bytes(), type=Identity)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(said, formed=False).sealed()))


def test_a_disk_lost_before_anybody_founded_is_no_loss(nodes: Nodes) -> None:
    two_wait_for_the_third(nodes)
    nodes.wipe("a")
    nodes.start("a")
    nodes.start("c")
    nodes.serves(*ABC)
    assert set(nodes.found.values()) == {BootstrapPlan(False, ABC)}


def test_a_disk_lost_later_joins_and_does_not_vote_meanwhile(nodes: Nodes) -> None:
    nodes.form()
    nodes.wipe("c")
    nodes.serves("a", "b")
    nodes.stop("a")  # b alone has no majority: c must not make one
    host = nodes.start("c")
    nodes.until(lambda: "c" in nodes.found)
    assert nodes.found["c"].joining
    term = nodes.hosts["b"].term(0)
    deadline = nodes.loop.clock.monotonic_ms() + 2_000
    nodes.until(lambda: nodes.loop.clock.monotonic_ms() > deadline)
    assert nodes.leader() is None and not host._groups[0].node.is_voter
    assert host.term(0) <= max(term, nodes.hosts["b"].term(0))
    nodes.start("a")
    nodes.serves(*ABC)
    member = host._groups[0].node.member_id
    assert member and dict(host.members(0).ids) == {"c": member}
    nodes.stop("a")  # now it counts
    nodes.serves("b", "c")


def test_a_node_that_comes_late_joins_one_that_is_formed(nodes: Nodes) -> None:
    """c waits for a, which died after it had formed the cluster with b."""
    nodes.form()
    nodes.wipe("c")
    nodes.stop("a")
    nodes.start("c")
    nodes.until(lambda: "c" in nodes.found)
    assert nodes.found["c"].joining


def test_a_node_that_waits_for_a_dead_one_hears_of_the_leader(nodes: Nodes) -> None:
    two_wait_for_the_third(nodes)
    waiting = nodes.hosts["a"]
    hellos = waiting._peers.hellos
    met = hellos.pop("b")
    nodes.start("c")
    nodes.until(lambda: "b" in nodes.found and "c" in nodes.found)
    hellos.pop("b", None)  # as if b had died before a met it again
    del met
    nodes.until(lambda: "a" in nodes.found)
    nodes.serves(*ABC)


def test_peers_that_differ_are_refused_until_they_are_corrected(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes.start("a", ("a", "b"))
    nodes.start("b", ABC)
    text = "node 'b' is to form the cluster of nodes a, b, c, node 'a' that of a, b"
    other = "node 'a' is to form the cluster of nodes a, b, node 'b' that of a, b, c"
    nodes.until(lambda: text in caplog.text or other in caplog.text)
    nodes.until(lambda: "refused by the peer" in caplog.text)
    assert nodes.found == {} and not nodes.hosts["a"].connected("b")
    nodes.stop("a")
    nodes.start("a", ABC)
    nodes.start("c", ABC)
    nodes.serves(*ABC)


def test_a_formed_cluster_does_not_care_how_a_newcomer_names_it(nodes: Nodes) -> None:
    nodes.form()
    nodes.start("d", ("b",))
    nodes.until(lambda: "d" in nodes.found)
    assert nodes.found["d"].joining and "b" in nodes.found["d"].voters


def test_a_formed_directory_without_definitions_joins(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes.form()
    nodes.stop("b")
    for path in (nodes.root / "b" / "wal").iterdir():
        path.unlink()
    nodes.start("b")
    assert nodes.found["b"].joining, "at once: it need not ask"
    assert "are not on it: this node joins the others again" in caplog.text
    nodes.serves(*ABC)
    assert [node for node, _ in nodes.hosts["a"].members(0).ids] == ["b"]


def test_two_clusters_of_one_name_do_not_mix(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes.start("a", ())
    nodes.serves("a")
    nodes.start("b", ())
    nodes.until(lambda: nodes.hosts["b"].cluster_id)
    nodes.stop("b")
    nodes.start("b", ("a", "b"))  # the operator thinks that this is how b joins
    nodes.until(lambda: "are of two clusters that are both named 'test'" in caplog.text)
    nodes.until(lambda: "refused by the peer" in caplog.text)
    assert not nodes.hosts["a"].connected("b") and not nodes.hosts["b"].connected("a")


def test_founders_restart_with_no_peers_in_their_configuration(nodes: Nodes) -> None:
    """Addresses that were learned are remembered."""
    nodes.form()
    nodes.stop(*ABC)
    for name in ABC:
        nodes.start(name, ())
    nodes.serves(*ABC)
