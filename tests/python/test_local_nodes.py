"""The nodes of a local cluster on disk, without starting them."""

from __future__ import annotations

import importlib
import random
import socket
import tomllib
from pathlib import Path

import pytest

from warren.errors import NotFound, UsageError
from warren.local import LocalCluster
from warren.local_node import PEERS_PORT_OFFSET, PortTaken, new_nodes, write_config
from warren.ports import FREE_PORTS, ReservedPorts
from warren_broker.config import load

OFFSETS = (0, PEERS_PORT_OFFSET)
by_hand = importlib.import_module("warren.cli.local_cluster")


def free_port() -> int:
    """A port that is free as far as one can know, with its followers and their peers' ports.

    None of them is one that the system gives to outgoing connections.
    """
    firsts = range(FREE_PORTS.start, FREE_PORTS.stop - PEERS_PORT_OFFSET - 10)
    for first in random.sample(firsts, 200):
        reserved = ReservedPorts()
        row = [port + offset for port in range(first, first + 10) for offset in OFFSETS]
        if all(reserved.take(port) == port for port in row):
            return first
    raise AssertionError(f"no 10 free ports from {firsts.start} to {firsts.stop}")


def test_the_first_node_takes_the_port_it_is_told_to(tmp_path: Path) -> None:
    port = free_port()
    first, second = new_nodes((0, 1), tmp_path, ReservedPorts(), port)
    assert (first.amqp_port, first.peers_port) == (port, port + 20_000)
    assert second.amqp_port != first.amqp_port


def test_a_port_that_is_taken_is_refused_for_the_first_node_only(tmp_path: Path) -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        with pytest.raises(PortTaken, match=str(taken)):
            new_nodes((0, 1), tmp_path, ReservedPorts(), taken)
        _, second = new_nodes((0, 1), tmp_path, ReservedPorts(), taken - 1)
        assert second.amqp_port != taken
    for port in (0, -1, 60_000):
        with pytest.raises(UsageError, match="is possible"):
            new_nodes((0,), tmp_path, ReservedPorts(), port)


def test_any_port_is_none_that_the_system_gives_to_outgoing_connections(tmp_path: Path) -> None:
    nodes = new_nodes(range(20), tmp_path, ReservedPorts())
    ports = [port for node in nodes for port in (node.amqp_port, node.peers_port)]
    assert len(set(ports)) == 40 and set(ports) <= set(FREE_PORTS)


def test_a_configuration_is_what_the_broker_reads(tmp_path: Path) -> None:
    settings = {
        "limits": {"message_size_max": 1000},
        "peers": {"another": "127.0.0.1:1"},
        "default_user": 'wi"th\\',
        "loopback_users": ["guest", "wi'th\""],
    }
    nodes = new_nodes((0, 1), tmp_path, ReservedPorts())
    write_config(nodes[0], nodes, settings)
    read = load(nodes[0].config_file, {})
    assert (read.node, read.limits.message_size_max) == ("node-0", 1000)
    assert sorted(read.peers) == ["another", "node-0", "node-1"]
    assert read.default_user == 'wi"th\\'
    assert list(read.loopback_users) == ["guest", "wi'th\""]
    deep = {"queues": {"continuous_membership_reconciliation": {"enabled": True}}}
    write_config(nodes[0], nodes, deep)
    found = tomllib.loads(nodes[0].config_file.read_text())
    assert found["queues"] == {"continuous_membership_reconciliation": {"enabled": True}}
    with pytest.raises(UsageError, match="a text, number or flag"):
        write_config(nodes[0], nodes, {"x": [1]})


def test_each_cluster_has_a_secret_of_its_own_that_its_owner_reads(tmp_path: Path) -> None:
    """It was the same everywhere: any user of the machine could join, and read the definitions."""
    found = []
    for place in (tmp_path / "a", tmp_path / "b"):
        place.mkdir()
        nodes = new_nodes((0, 1), place, ReservedPorts())
        for node in nodes:
            node.config_file.write_text("secret = 'local'")
            node.config_file.chmod(0o644)
            write_config(node, nodes, {})
        first, second = (load(node.config_file, {}).secret for node in nodes)
        assert first == second and len(first) == 64
        files = [place / "secret", *(node.config_file for node in nodes)]
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
        found.append(first)
    assert len(set(found)) == 2


def test_nodes_come_and_go_and_no_name_is_used_twice(tmp_path: Path) -> None:
    cluster = LocalCluster(2, tmp_path, settings={"default_user": "boss"})
    assert [n.name for n in cluster.nodes] == ["node-0", "node-1"]
    added = cluster.add_node(start=False)
    assert cluster.node("node-2") is cluster.node(2) is added
    # it was never started: all three found it together
    for node in cluster.nodes:
        assert sorted(load(node.config_file, {}).peers) == ["node-0", "node-1", "node-2"]
    cluster.node(0).data_dir.mkdir()
    fourth = cluster.add_node(start=False)
    assert sorted(load(fourth.config_file, {}).peers) == [f"node-{i}" for i in range(4)]
    assert load(fourth.config_file, {}).default_user == "boss"
    assert "node-3" not in load(cluster.node(0).config_file, {}).peers, "founders are founders"
    cluster.remove_node("node-3")
    assert not Path(fourth.directory).exists()
    again = LocalCluster(directory=tmp_path)
    assert [n.name for n in again.nodes] == ["node-0", "node-1", "node-2"]
    assert again.add_node(start=False).name == "node-4"
    with pytest.raises(NotFound, match="no node 9 .* node-0, node-1, node-2, node-4"):
        again.kill(9)


def test_a_wiped_node_keeps_its_place(tmp_path: Path) -> None:
    cluster = LocalCluster(1, tmp_path)
    node = cluster.node(0)
    (node.data_dir / "wal").mkdir(parents=True)
    (node.data_dir / "wal" / "1").write_bytes(b"x")
    (node.data_dir / "node.json").write_text("{}")
    cluster.wipe_node("node-0")
    assert not list(node.data_dir.iterdir()) and node.config_file.exists()


def test_more_nodes_than_there_can_be_are_refused(tmp_path: Path) -> None:
    cluster = LocalCluster(9, tmp_path)
    with pytest.raises(UsageError, match="1 to 9"):
        cluster.add_node()
    single = LocalCluster(1, tmp_path / "single")
    with pytest.raises(UsageError, match="only node"):
        single.remove_node(0)


def test_a_cluster_by_hand_takes_rabbitmqs_port_where_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr(by_hand, "PORT_FIRST", port)
    made = by_hand._cluster(1, tmp_path / "free", None)
    assert made.nodes[0].amqp_port == port
    with socket.create_server(("127.0.0.1", port)):
        other = by_hand._cluster(1, tmp_path / "taken", None)
        assert other.nodes[0].amqp_port != port
        with pytest.raises(PortTaken, match="give another --port"):
            by_hand._cluster(1, tmp_path / "told", port)
        assert not (tmp_path / "told" / "cluster.json").exists()
    assert by_hand._cluster(1, tmp_path / "free", port).nodes == made.nodes
    with pytest.raises(UsageError, match="keeps its own"):
        by_hand._cluster(1, tmp_path / "free", port + 1)
