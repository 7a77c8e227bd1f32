"""Which nodes are taken for peers, of those that know the secret."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from warren_broker.cluster.membership.joining import Joining
from warren_machines.metadata.records import ClusterNode
from warren_raft.runtime.net.handshake import Hello, NodeRemoved
from warren_raft.versions import OWN


@dataclass
class Host:
    """A host that has met node b with disk 2."""

    node_id: str = "a"
    up: bool = True
    silent: bool = False

    def connected(self, node):
        return self.up

    def suspected(self, node):
        return self.silent

    def peer_hello(self, node):
        return hello("b", 2)


@dataclass
class State:
    nodes: dict[str, ClusterNode] = field(default_factory=dict)
    removed: dict[int, str] = field(default_factory=dict)


@dataclass
class Definitions:
    state: State = field(default_factory=State)
    on_nodes: list[object] = field(default_factory=list)


class Cluster:
    def __init__(self):
        self.host = Host()
        self.handlers = {}


def hello(node, disk):
    return Hello(OWN, "warren", node, 1, b"", disk=disk)


@pytest.fixture
def joining():
    definitions = Definitions()
    definitions.state.nodes["b"] = ClusterNode("b", "h:1", 2)
    definitions.state.nodes["c"] = ClusterNode("c", "h:2", 3)
    return Joining(Cluster(), definitions, {})


def test_a_node_that_runs_is_not_replaced_by_one_of_its_name(joining):
    assert "another data directory is running at h:1" in joining.judge(hello("b", 9))
    assert joining.judge(hello("b", 2)) is None


def test_a_node_that_is_gone_may_come_back_with_another_disk(joining):
    joining._cluster.host.up = False
    assert joining.judge(hello("b", 9)) is None


def test_a_node_whose_machine_died_without_a_word_may_come_back_with_another_disk(joining):
    joining._cluster.host.silent = True  # its connection still stands
    assert joining.judge(hello("b", 9)) is None


def test_a_copied_or_removed_directory_is_refused(joining):
    assert "has the data directory of node 'c'" in joining.judge(hello("b", 3))
    joining._definitions.state.removed[7] = "d"
    with pytest.raises(NodeRemoved, match="was removed from the cluster"):
        joining.judge(hello("d", 7))
