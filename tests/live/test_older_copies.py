"""The newest file of the log, or a whole directory, is gone or an older copy: nothing is lost.

Two of three nodes have confirmed messages; what one of them holds is not what it was; the other one
is down. The third, which has none of them, must not lead with the vote of the second.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.conftest import Mount, eventually
from tests.live.test_damage import BODY, publish, voter_again
from tests.live.test_full_disk import SETTINGS, consume, declare, fill, uri_of
from tests.wal_records import records_end, records_held
from warren.local import LocalCluster
from warren_raft.storage import synced_mark
from warren_raft.storage.files import Files

EARLIER, LATER = 40, 50


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path) as made:
        yield made


def newest(data: Path) -> Path:
    return sorted((data / "wal").glob("*.wal"))[-1]


def rests(data: Path) -> bool:
    """What names the newest file says where it ends."""
    known = synced_mark.read(Files(), data / "wal")
    path = newest(data)
    return (known.file, known.end) == (int(path.stem), records_end(path))


def removed(path: Path, copy: bytes) -> None:
    path.unlink()


def emptied(path: Path, copy: bytes) -> None:
    path.write_bytes(b"")


def older(path: Path, copy: bytes) -> None:
    assert copy and copy != path.read_bytes()
    path.write_bytes(copy)


@pytest.mark.parametrize("damage", [removed, emptied, older])
def test_the_newest_file_of_the_log(
    cluster: LocalCluster, damage: Callable[[Path, bytes], None]
) -> None:
    declare(uri_of(cluster, 0), "q")
    leader = cluster.leader_of("q")
    victim, third = (leader + 1) % 3, (leader + 2) % 3
    publish(uri_of(cluster, leader), "q", 0, EARLIER)
    data = cluster.nodes[victim].data_dir
    eventually(lambda: rests(data), "the log rests")
    path = newest(data)
    copy = path.read_bytes()
    cluster.kill(third)
    publish(uri_of(cluster, leader), "q", EARLIER, LATER)
    eventually(lambda: rests(data), "the log rests")
    assert newest(data) == path
    cluster.kill(victim)
    cluster.kill(leader)
    damage(path, copy)
    cluster.start(third)
    cluster.start(victim)
    eventually(lambda: "all of it is set aside" in cluster.log(victim), "it is noticed")
    eventually(lambda: str(path) in cluster.log(victim), "the log names the file")
    cluster.start(leader)
    publish(uri_of(cluster, leader), "q", EARLIER + LATER, 1)
    voter_again(cluster, victim)
    assert consume(uri_of(cluster, victim), "q") == list(range(EARLIER + LATER + 1))


def known_of(cluster: LocalCluster, node: int, by: int) -> int:
    """Up to which write of its log one node knows another, by what it keeps on its disk."""
    identity = json.loads((cluster.nodes[by].data_dir / "node.json").read_bytes())
    return int(identity["vouched"].get(cluster.nodes[node].name, ("", 0, 0))[1])


def copied(cluster: LocalCluster, victim: int, by: int, copy: Path) -> int:
    """Copy a node's directory while the node is down; up to which write the other knows it."""
    data = cluster.nodes[victim].data_dir
    eventually(lambda: rests(data), "the log rests")
    cluster.kill(victim)
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns("lock"))
    return eventually(lambda: known_of(cluster, victim, by), "its end is kept")


def written_more(cluster: LocalCluster, victim: int, by: int, known: int) -> None:
    """The node takes part in confirms after its copy, and is killed; the other node knows of it.

    The two others are a majority without it: it may have taken nothing yet when they have answered.
    """
    data = cluster.nodes[victim].data_dir
    before = records_held(data / "wal", "*.wal")
    publish(uri_of(cluster, by), "q", EARLIER, LATER)

    def has_them() -> bool:
        now = records_held(data / "wal", "*.wal")
        return now >= before + LATER * BODY and rests(data)

    eventually(has_them, "they are on its disk")
    cluster.kill(victim)
    eventually(lambda: known_of(cluster, victim, by) > known, "its new end is kept")


def copied_then_written(cluster: LocalCluster, victim: int, by: int, copy: Path) -> None:
    """Copy a node's directory, let the node take part in more confirms, and kill it."""
    known = copied(cluster, victim, by, copy)
    cluster.start(victim)
    voter_again(cluster, victim)
    written_more(cluster, victim, by, known)


def test_a_whole_directory(cluster: LocalCluster, tmp_path: Path) -> None:
    declare(uri_of(cluster, 0), "q")
    leader = cluster.leader_of("q")
    victim, third = (leader + 1) % 3, (leader + 2) % 3
    publish(uri_of(cluster, leader), "q", 0, EARLIER)
    data = cluster.nodes[victim].data_dir
    copied_then_written(cluster, victim, third, tmp_path / "copy")
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "copy", data)
    # It comes back while no node leads: with its vote the third could.
    cluster.kill(leader)
    cluster.start(victim)
    pid = cluster.pid(victim)
    eventually(lambda: "it is an older copy: node" in cluster.log(victim), "it is noticed")
    eventually(lambda: "all of it is set aside" in cluster.log(victim), "it begins again")
    cluster.start(leader)
    publish(uri_of(cluster, third), "q", EARLIER + LATER, 1)
    voter_again(cluster, victim)
    assert cluster.is_running(victim) and cluster.pid(victim) == pid
    assert consume(uri_of(cluster, victim), "q") == list(range(EARLIER + LATER + 1))


def test_a_whole_directory_whose_disk_is_full(tmp_path: Path, mount: Mount) -> None:
    """The node must not forget what it was told: the next peer may know nothing of it."""
    cluster = LocalCluster(3, tmp_path, settings=SETTINGS)
    for node in cluster.nodes:
        mount(node.data_dir)
    with cluster:
        declare(uri_of(cluster, 0), "q")
        leader = cluster.leader_of("q")
        victim = (leader + 1) % 3
        publish(uri_of(cluster, leader), "q", 0, EARLIER)
        data = cluster.nodes[victim].data_dir
        copied_then_written(cluster, victim, leader, tmp_path / "copy")
        for path in data.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(tmp_path / "copy", data, dirs_exist_ok=True)
        ballast = fill(data)
        cluster.spawn(victim)
        eventually(lambda: "to say that it is an older copy" in cluster.log(victim), "it waits")
        assert not (data / "listening.json").exists() and not (data / "ready.json").exists()
        publish(uri_of(cluster, leader), "q", EARLIER + LATER, 1)
        assert cluster.log(victim).count("it is an older copy: node") == 1, "no other process"
        pid = cluster.pid(victim)
        ballast.unlink()
        eventually(lambda: "all of it is set aside" in cluster.log(victim), "it begins again")
        voter_again(cluster, victim)
        assert cluster.is_running(victim) and cluster.pid(victim) == pid
        assert consume(uri_of(cluster, victim), "q") == list(range(EARLIER + LATER + 1))


def test_a_founders_directory_from_before_its_disk_was_replaced_takes_part_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    declare(uri_of(cluster, 0), "q")
    leader = cluster.leader_of("q")
    victim = (leader + 1) % 3
    data = cluster.nodes[victim].data_dir
    publish(uri_of(cluster, leader), "q", 0, EARLIER)
    cluster.kill(victim)
    shutil.move(data, tmp_path / "before")
    cluster.start(victim)
    voter_again(cluster, victim)
    publish(uri_of(cluster, leader), "q", EARLIER, LATER)
    cluster.kill(victim)
    shutil.rmtree(data)
    shutil.move(tmp_path / "before", data)
    cluster.start(victim)  # it is ready to serve: it knows the definitions of today
    publish(uri_of(cluster, victim), "q", EARLIER + LATER, 1)
    voter_again(cluster, victim)
    cluster.kill((leader + 2) % 3)  # what is confirmed now needs it
    publish(uri_of(cluster, leader), "q", EARLIER + LATER + 1, 1)
    assert consume(uri_of(cluster, victim), "q") == list(range(EARLIER + LATER + 2))
