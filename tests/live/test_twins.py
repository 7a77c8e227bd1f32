"""A node's directory is copied, and both copies are started under the node's name.

Two processes with one memory could both vote in a term, and both acknowledge: the peers let only
one of them in, and the cluster of the others continues.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from live.conftest import eventually
from live.load import Load
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.local import LocalCluster, spawn_node
from warren.local_node import LocalNode, new_nodes, write_config
from warren.ports import ReservedPorts

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]
QUEUE = "kept"
REFUSED = "a copy of its data directory"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes with a queue."""
    with LocalCluster(nodes=3, directory=tmp_path / "cluster") as made:
        with made.connect() as connection:
            Admin(connection).queues.declare(QUEUE, arguments={"x-queue-type": "quorum"})
        yield made


@contextmanager
def twin_of(
    cluster: LocalCluster, index: int, place: Path
) -> Iterator[tuple[LocalNode, subprocess.Popen[bytes]]]:
    """A second process of that node with a copy of its directory, on ports of its own."""
    original = cluster.node(index)
    place.mkdir()
    (ports,) = new_nodes((9,), place, ReservedPorts())
    twin = dataclasses.replace(ports, name=original.name)
    cluster.stop_node(index)
    shutil.copytree(original.data_dir, twin.data_dir)
    write_config(twin, [*(n for n in cluster.nodes if n is not original), twin], {})
    cluster.start(index)
    eventually(lambda: (original.data_dir / "ready.json").exists(), "the original serves")
    process = spawn_node(twin)
    try:
        yield twin, process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("after", [1, 2])
def test_a_twin_is_not_let_in_and_publishing_goes_on_when_the_leader_dies(
    cluster: LocalCluster, after: int, tmp_path: Path
) -> None:
    leader = cluster.leader_of(QUEUE)
    index = (leader + after) % 3
    others = [n for n in range(3) if n != index]
    with (
        Load(cluster, QUEUE) as load,
        twin_of(cluster, index, tmp_path / "twin") as (twin, process),
    ):
        load.goes_on()
        assert process.wait(PATIENCE_S), "it ends with an error"
        assert "another process that has a copy of it" in twin.log_file.read_text()
        assert not (twin.data_dir / "ready.json").exists(), "it has served no client"
        cluster.kill(leader)
        load.goes_on()
        cluster.start(leader)
        load.goes_on()
        load.finish()
        eventually(lambda: any(REFUSED in cluster.log(other) for other in others), "it is logged")
        with cluster.connect() as connection:
            members = Admin(connection).members.get(QUEUE).members
        assert all(member.voter for member in members), members
    # The original was connected all the time but for the leader's restart.
    assert REFUSED not in cluster.log(index)
