"""Data directories and nodes that must not come in: refused with the way out, nothing touched."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from live.conftest import eventually
from live.load import connect
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.local import LocalCluster, node_environment
from warren.local_node import LocalNode, new_nodes
from warren.ports import ReservedPorts
from warren_raft.storage.identity import Identity

pytestmark = [pytest.mark.live, pytest.mark.slow]
QUEUE = "kept"
MESSAGES = 50
PASSING = {"ready.json", "listening.json", "lock"}
"""What a start may write or remove before it looks at the rest."""


def fingerprint(directory: Path) -> dict[str, str]:
    """Every file with its content."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in PASSING
    }


def run(place: LocalNode, /, **changed: str) -> tuple[int, str]:
    """A node's whole life, which should be short: exit code, what it said."""
    text = place.config_file.read_text()
    for key, value in changed.items():
        lines = [
            f"{json.dumps(key)} = {json.dumps(value)}" if line.startswith(f'"{key}" =') else line
            for line in text.splitlines()
        ]
        assert "\n".join(lines) != text.rstrip("\n"), f"no {key} in {text}"
        text = "\n".join(lines)
    config = place.config_file.with_name("changed.toml")
    config.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "warren_broker", "--config", str(config)],
        env=node_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[LocalCluster]:
    """A single node that was stopped with messages in a queue."""
    with LocalCluster(nodes=1, directory=tmp_path / "cluster") as cluster:
        fill(cluster)
        cluster.stop_node(0)
        yield cluster


def fill(cluster: LocalCluster) -> None:
    """Messages that are confirmed."""
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        channel.confirm_delivery()
        for i in range(MESSAGES):
            channel.basic_publish("", QUEUE, b"%d" % i + b"." * 500)


def fill_more_than_a_log_file(cluster: LocalCluster) -> None:
    """Have the first file of the log retired: its entries to segments, its groups to snapshots."""
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.queue_declare("big", durable=True)
        channel.confirm_delivery()
        for _ in range(80):
            channel.basic_publish("", "big", b"." * (1 << 20))
    with cluster.connect() as connection:
        assert Admin(connection).queues.get("big").messages_ready == 80
    places = [cluster.node(1).data_dir / kind for kind in ("segments", "snapshots")]
    eventually(
        lambda: all(any(place.rglob("*.*")) for place in places), "a file of the log is retired"
    )


def holds_everything(cluster: LocalCluster) -> None:
    """The queue is as it was."""
    with cluster.connect() as connection:
        assert Admin(connection).queues.get(QUEUE).messages_ready == MESSAGES


def test_another_nodes_directory_is_refused(stopped: LocalCluster) -> None:
    node = stopped.node(0)
    before = fingerprint(node.data_dir)
    text = node.config_file.read_text().replace('"node-0" = "127', '"node-7" = "127')
    node.config_file.write_text(text)
    code, said = run(node, node="node-7")
    assert code == 1 and "belongs to node 'node-0', this node is 'node-7'" in said
    assert "give this node another directory" in said and "Traceback" not in said
    assert fingerprint(node.data_dir) == before
    node.config_file.write_text(text.replace('"node-7" = "127', '"node-0" = "127'))
    holds_everything(stopped.start())


def test_another_clusters_directory_is_refused(stopped: LocalCluster) -> None:
    node = stopped.node(0)
    before = fingerprint(node.data_dir)
    code, said = run(node, cluster="elsewhere")
    assert code == 1 and "belongs to cluster 'local', this node is of cluster 'elsewhere'" in said
    assert fingerprint(node.data_dir) == before
    holds_everything(stopped.start())


def test_a_directory_of_a_newer_version_is_refused(stopped: LocalCluster) -> None:
    node = stopped.node(0)
    identity = node.data_dir / "node.json"
    kept = identity.read_bytes()
    identity.write_text(json.dumps({**json.loads(kept), "format": 99}))
    before = fingerprint(node.data_dir)
    code, said = run(node)
    assert code == 1 and "format 99" in said and "start it with the version that wrote it" in said
    assert fingerprint(node.data_dir) == before
    identity.write_bytes(kept)
    holds_everything(stopped.start())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', bytes(range(256))])
def test_an_identity_that_cannot_be_read_is_refused(stopped: LocalCluster, content: bytes) -> None:
    node = stopped.node(0)
    identity = node.data_dir / "node.json"
    kept = identity.read_bytes()
    identity.write_bytes(content)
    before = fingerprint(node.data_dir)
    code, said = run(node)
    assert code == 1 and "node.json" in said and "restore" in said and "Traceback" not in said
    assert fingerprint(node.data_dir) == before
    identity.write_bytes(kept)
    holds_everything(stopped.start())


def test_a_log_without_its_identity_is_refused(stopped: LocalCluster) -> None:
    node = stopped.node(0)
    identity = node.data_dir / "node.json"
    kept = identity.read_bytes()
    identity.unlink()
    before = fingerprint(node.data_dir)
    code, said = run(node)
    assert code == 1 and "so its node is not known" in said
    assert fingerprint(node.data_dir) == before
    identity.write_bytes(kept)
    holds_everything(stopped.start())


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, directory=tmp_path / "cluster") as cluster:
        fill(cluster)
        code, said = run(cluster.node(0))
        assert code == 1 and ("another process uses it" in said or "in use" in said), said
        holds_everything(cluster)


def damage(path: Path, at: int) -> None:
    """One bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(bytes(content))


def test_a_damaged_log_of_a_node_without_peers_is_refused(stopped: LocalCluster) -> None:
    node = stopped.node(0)
    (log,) = sorted((node.data_dir / "wal").glob("*.wal"))
    kept = log.read_bytes()
    damage(log, len(kept) // 3)
    before = fingerprint(node.data_dir)
    code, said = run(node)
    assert code == 1 and log.name in said and "Traceback" not in said, said
    assert fingerprint(node.data_dir) == before
    log.write_bytes(kept)
    holds_everything(stopped.start())


@pytest.mark.parametrize("kind", ["wal", "snapshots", "segments"])
def test_a_damaged_file_is_named_and_healed_from_the_others(tmp_path: Path, kind: str) -> None:
    with LocalCluster(nodes=3, directory=tmp_path / "cluster") as cluster:
        fill(cluster)
        if kind != "wal":
            fill_more_than_a_log_file(cluster)
        cluster.stop_node(1)
        files = [
            path
            for path in sorted((cluster.node(1).data_dir / kind).rglob("*"))
            if path.is_file() and path.stat().st_size > 200
        ]
        assert files, f"no {kind} was written"
        damage(files[0], files[0].stat().st_size // 2)
        cluster.start(1)
        eventually(lambda: files[0].name in cluster.log(1), "the file is named in the log")
        with cluster.connect() as connection:
            admin = Admin(connection)
            eventually(
                lambda: (
                    (seen := admin.members.get(QUEUE)).settled
                    and all(each.voter and each.state == "running" for each in seen.members)
                ),
                "it is healed",
                60,
            )
            admin.members.transfer(QUEUE, "node-1")
            assert admin.queues.get(QUEUE).messages_ready == MESSAGES
        for i in (0, 2):  # the healed one carries its part of a majority
            cluster.kill(i)
            holds_everything(cluster)
            cluster.start(i)


def test_a_node_with_the_wrong_secret_does_not_come_in(tmp_path: Path) -> None:
    with LocalCluster(nodes=3, directory=tmp_path / "cluster") as cluster:
        fill(cluster)
        stranger = cluster.add_node(start=False)
        text = stranger.config_file.read_text()
        guessed, replaced = re.subn('"secret" = "[0-9a-f]+"', '"secret" = "guessed"', text)
        assert replaced == 1
        stranger.config_file.write_text(guessed)
        cluster.spawn(stranger.name)
        eventually(lambda: "secret" in cluster.log(stranger.name), "it is told why")
        eventually(lambda: any("secret" in cluster.log(i) for i in range(3)), "they log it")
        assert "guessed" not in cluster.log(stranger.name)
        holds_everything(cluster)
        with cluster.connect() as connection:
            assert [node.name for node in Admin(connection).nodes.list()] == [
                "node-0",
                "node-1",
                "node-2",
            ]
        # With the right one it joins: nothing was spoilt by the attempt.
        cluster.kill(stranger.name)
        stranger.config_file.write_text(text)
        cluster.start(stranger.name)
        with cluster.connect() as connection:
            eventually(lambda: len(Admin(connection).nodes.list()) == 4, "it has joined")


def test_a_node_of_another_cluster_does_not_come_in(tmp_path: Path) -> None:
    with (
        LocalCluster(nodes=1, directory=tmp_path / "one") as one,
        LocalCluster(nodes=1, directory=tmp_path / "two") as two,
    ):
        fill(one)
        fill(two)
        # Node-0 of the second cluster, called node-1, is told that the first one's node is a peer.
        both = {node.name: node for node in (one.node(0),)}
        two.stop_node(0)
        text = two.node(0).config_file.read_text()
        added = text + f'"node-9" = "{both["node-0"].peers_address}"\n'
        two.node(0).config_file.write_text(added)
        two.spawn(0)
        eventually(
            lambda: "refused" in two.log(0) + one.log(0), "one of them says that they do not fit"
        )
        for cluster in (one, two):
            eventually(lambda c=cluster: serves(c), "both clusters serve as before")


def serves(cluster: LocalCluster) -> bool:
    """Check that the queue is available with all its messages."""
    with cluster.connect() as connection:
        return Admin(connection).queues.get(QUEUE).messages_ready == MESSAGES


def test_a_copied_directory_is_refused_while_the_original_runs(tmp_path: Path) -> None:
    """A clone of a virtual machine: two nodes with one memory would vote twice."""
    with LocalCluster(nodes=3, directory=tmp_path / "cluster") as cluster:
        fill(cluster)
        cluster.stop_node(2)
        clone = cluster.add_node(start=False)
        shutil.copytree(cluster.node(2).data_dir, clone.data_dir, dirs_exist_ok=True)
        path = clone.data_dir / "node.json"
        said = msgspec.json.decode(path.read_bytes(), type=Identity)
        renamed = msgspec.structs.replace(said, node=clone.name).sealed()
        path.write_bytes(msgspec.json.encode(renamed))
        cluster.start(2)
        cluster.spawn(clone.name)
        eventually(
            lambda: (
                "node-2" in cluster.log(clone.name) and "data directory" in cluster.log(clone.name)
            ),
            "it is told whose directory it has",
        )
        with cluster.connect() as connection:
            names = [node.name for node in Admin(connection).nodes.list()]
        assert names == ["node-0", "node-1", "node-2"]
        holds_everything(cluster)


def test_founders_that_list_different_nodes_are_refused_with_both_lists(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=2, directory=tmp_path / "cluster")
    odd = cluster.node(1)
    text = odd.config_file.read_text()
    odd.config_file.write_text(text + '"node-9" = "127.0.0.1:1"\n')
    try:
        cluster.spawn(0)
        cluster.spawn(1)
        eventually(
            lambda: all(
                "node-0, node-1, node-9" in cluster.log(i) and "refused" in cluster.log(i).lower()
                for i in (0, 1)
            ),
            "both say which lists there are",
        )
        assert not any("forms the cluster" in cluster.log(i) for i in (0, 1))
        cluster.stop_node(1)
        odd.config_file.write_text(text)
        with cluster.start():
            fill(cluster)
            holds_everything(cluster)
    finally:
        cluster.stop()


def test_a_node_that_waits_for_its_founders_says_for_whom(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=3, directory=tmp_path / "cluster")
    try:
        cluster.spawn(0)
        eventually(lambda: "waiting for nodes node-1, node-2" in cluster.log(0), "it says so")
        cluster.spawn(1)
        eventually(lambda: "waiting for node node-2" in cluster.log(0), "it says so again")
        with cluster.start():
            fill(cluster)
            holds_everything(cluster)
    finally:
        cluster.stop()


def test_a_node_moves_to_another_address(tmp_path: Path) -> None:
    with LocalCluster(nodes=3, directory=tmp_path / "cluster") as cluster:
        fill(cluster)
        cluster.stop_node(2)
        node = cluster.node(2)
        (place,) = new_nodes((99,), tmp_path, ReservedPorts())
        text = node.config_file.read_text()
        assert node.peers_address in text
        node.config_file.write_text(text.replace(node.peers_address, place.peers_address))
        cluster.start(2)
        with cluster.connect() as connection:
            admin = Admin(connection)
            eventually(
                lambda: (
                    {n.name: n.address for n in admin.nodes.list() if n.running}.get("node-2")
                    == place.peers_address
                ),
                "the others know where it is",
            )
            eventually(
                lambda: all(m.state == "running" for m in admin.members.get(QUEUE).members),
                "it takes part",
            )
        # Another one that restarts finds it there, though its own configuration is of before.
        cluster.restart(1)
        cluster.kill(0)
        eventually(lambda: serves(cluster), "the two of them are a majority")
