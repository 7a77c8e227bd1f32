"""Bits flipped in every kind of file of one of three real nodes: all of it is healed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from tests.live.conftest import DEADLINE_S, eventually
from tests.live.test_full_disk import consume, declare, uri_of
from tests.wal_records import synced_end
from warren.admin import Admin
from warren.errors import WarrenError
from warren.local import LocalCluster

SETTINGS = {"raft": {"wal_max_size_bytes": 1 << 20, "scrub_bytes_per_second": 0}}
BODY = 4_000
COUNT = 1_500
"""So many messages are several files of the log, segments and a snapshot."""


def publish(uri: str, queue: str, first: int, count: int) -> None:
    """Messages first … first + count - 1, confirmed one by one: each is an entry of the log."""
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(first, first + count):
            channel.basic_publish("", queue, b"%d " % number + b"x" * BODY)


def take(uri: str, queue: str, count: int, keep: int) -> list[int]:
    """Of the count messages there are acknowledge all but those with multiples of keep.

    Returns the others, which stay. A node with a slow disk may deliver nothing for seconds: when
    this ended then, most messages stayed, no file was rewritten, and no segment was ever there.
    """
    stay = []
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=count)
        delivered = channel.consume(queue, inactivity_timeout=DEADLINE_S)
        for number_taken, (method, _, body) in enumerate(delivered, 1):
            assert method is not None, f"{number_taken - 1} of {count} messages came"
            number = int(body.split(b" ", 1)[0])
            if number % keep:
                channel.basic_ack(method.delivery_tag)
            else:
                stay.append(number)
            if number_taken == count:
                break
    return stay


def flip(
    path: Path, rng: random.Random, low: float = 0.2, high: float = 0.8, bits: int = 1
) -> None:
    """Bits somewhere in the middle; of a file of the log, in what the node knows to be synced.

    What follows that in a node that was killed is a torn end if it is damaged.
    """
    data = bytearray(path.read_bytes())
    size = synced_end(path) if path.suffix == ".wal" else len(data)
    for _ in range(bits):
        at = rng.randrange(int(size * low), int(size * high))
        data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def newest(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[-1]


KINDS: dict[str, Callable[[Path], Path]] = {
    "wal": lambda data: newest(data, "wal/*.wal"),
    "segment": lambda data: max(data.glob("segments/*.seg"), key=lambda p: p.stat().st_size),
    "index": lambda data: newest(data, "segments/*.idx"),
    "manifest": lambda data: data / "groups.manifest",
    "snapshot": lambda data: max(data.glob("snapshots/*.snap"), key=lambda p: p.stat().st_size),
}


def is_segment(data: Path, path: Path) -> bool:
    """Whether that file of the log is complete, and has an index: a start does not read it."""
    return any(data.glob(f"segments/*-{path.stem}.*.idx"))


Filled = tuple[LocalCluster, list[int]]


@pytest.fixture(scope="module")
def kept(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LocalCluster, Path, list[int]]]:
    """A stopped cluster, its directories as they were after `fill`, and what `fill` left.

    Filling takes longer than what a test does with it: more than two thousand entries, each synced
    on three nodes.
    """
    place = tmp_path_factory.mktemp("damage")
    cluster = LocalCluster(3, place / "cluster", settings=SETTINGS)
    try:
        with cluster:
            left = fill(cluster)
            for number in range(3):
                eventually(lambda number=number: settled(cluster, number), "files of every kind")
        for node in cluster.nodes:
            shutil.copytree(node.data_dir, place / node.name)
        yield cluster, place, left
    finally:
        cluster.stop()


@pytest.fixture
def filled(kept: tuple[LocalCluster, Path, list[int]]) -> Iterator[Filled]:
    """That cluster, running, and the numbers of the messages in its queue."""
    cluster, place, left = kept
    for node in cluster.nodes:
        shutil.rmtree(node.data_dir)
        shutil.copytree(place / node.name, node.data_dir)
        node.log_file.unlink()
    with cluster:
        yield cluster, list(left)


def settled(cluster: LocalCluster, node: int) -> bool:
    """There is a file of every kind on that node."""
    data = cluster.nodes[node].data_dir
    try:
        return all(path(data).exists() for path in KINDS.values())
    except (IndexError, ValueError, FileNotFoundError):  # one may be removed while it is looked at
        return False


def fill(cluster: LocalCluster) -> list[int]:
    """A queue with some messages left of many; their numbers."""
    declare(uri_of(cluster, 0), "q")
    publish(uri_of(cluster, 0), "q", 0, COUNT)
    left = take(uri_of(cluster, 0), "q", COUNT, 7)
    publish(uri_of(cluster, 0), "q", COUNT, COUNT // 2)
    left += range(COUNT, COUNT + COUNT // 2)
    return left


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damage_found_at_a_start(filled: Filled, kind: str) -> None:
    cluster, left = filled
    victim = (cluster.leader_of("q") + 1) % 3
    eventually(lambda: settled(cluster, victim), "files of every kind")
    data = cluster.nodes[victim].data_dir
    cluster.stop_node(victim)
    while kind == "wal" and is_segment(data, KINDS[kind](data)):
        # It was full just then: that is healed in place, while the node runs.
        cluster.start(victim)
        left.append(left[-1] + 1)
        publish(uri_of(cluster, victim), "q", left[-1], 1)
        voter_again(cluster, victim)
        cluster.stop_node(victim)
    path = KINDS[kind](data)
    flip(path, random.Random(kind), 0.01 if kind == "wal" else 0.2, 0.3)
    cluster.start(victim)
    if kind != "segment":  # that one is found when it is read
        eventually(lambda: str(path) in cluster.log(victim), "the log names the file")
        eventually(lambda: list(data.glob(f"damaged/*/**/{path.name}")), "it is set aside")
    # What the leader knows of the member is of its old disk, until something is to be answered.
    publish(uri_of(cluster, victim), "q", 9_999, 1)
    voter_again(cluster, victim)
    # The others go: the healed one must have everything, and count.
    other = next(i for i in range(3) if i not in (victim, cluster.leader_of("q")))
    cluster.kill(other)
    publish(uri_of(cluster, victim), "q", 10_000, 50)
    cluster.start(other)
    moved = lead(cluster, victim)
    assert moved == victim
    assert consume(uri_of(cluster, victim), "q") == left + list(range(9_999, 10_050))
    cluster.restart(victim)
    if kind not in ("segment",):
        said = "damaged files that were set aside"
        eventually(lambda: said in cluster.log(victim), "each start names it")


def test_damage_under_a_running_node(filled: Filled) -> None:
    cluster, left = filled
    leader = cluster.leader_of("q")
    eventually(lambda: settled(cluster, leader), "files of every kind")
    # A restart empties its memory of the messages; then it leads again.
    cluster.restart(leader)
    lead(cluster, leader)
    data = cluster.nodes[leader].data_dir
    rng = random.Random(5)
    pid = cluster.pid(leader)
    log = [path for path in sorted(data.glob("wal/*.wal"))[:-1] if synced_end(path)]
    for path in sorted(data.glob("segments/*.seg")) + log:
        flip(path, rng, bits=3)
    assert consume(uri_of(cluster, leader), "q") == left
    assert cluster.is_running(leader) and cluster.pid(leader) == pid
    said = "requesting it from the other members"
    eventually(lambda: said in cluster.log(leader), "it is logged")


@pytest.mark.long
def test_files_that_are_removed_under_a_running_node(filled: Filled) -> None:
    """The node ended when it was to rewrite such a file."""
    cluster, left = filled
    node = cluster.leader_of("q")
    eventually(lambda: settled(cluster, node), "files of every kind")
    data, pid = cluster.nodes[node].data_dir, cluster.pid(node)
    gone = sorted(data.glob("segments/*.seg")) + sorted(data.glob("wal/*.wal"))[:-1]
    assert gone
    for path in gone:
        path.unlink()
    stay = take(uri_of(cluster, node), "q", len(left), 70)  # so that most of it is to be rewritten
    publish(uri_of(cluster, node), "q", 70_001, COUNT)
    eventually(lambda: "; rewriting " in cluster.log(node), "its entries come from the others", 60)
    assert consume(uri_of(cluster, node), "q") == stay + list(range(70_001, 70_001 + COUNT))
    assert set(stay) < set(left)
    publish(uri_of(cluster, node), "q", 90_000, 50)
    assert cluster.is_running(node) and cluster.pid(node) == pid
    cluster.restart(node)
    voter_again(cluster, node)


def lead(cluster: LocalCluster, wanted: int) -> int:
    """Have that node lead the queue."""

    def moved() -> bool:
        try:
            with cluster.connect() as connection:
                Admin(connection).members.transfer("q", cluster.nodes[wanted].name)
        except WarrenError:
            pass
        return cluster.leader_of("q") == wanted

    eventually(moved, "it leads")
    return cluster.leader_of("q")


def voter_again(cluster: LocalCluster, node: int) -> None:
    """The member of that node is a voter, and has everything."""
    name = cluster.nodes[node].name

    def there() -> bool:
        with cluster.connect() as connection:
            members = Admin(connection).members.get("q").members
        return any(m.node == name and m.voter and not m.lag for m in members)

    eventually(there, "a voter again", 60)


def rot_everywhere(cluster: LocalCluster, number: int) -> None:
    """One bit of that message, in each file of each node that has it."""
    for node in cluster.nodes:
        hit = 0
        for path in [*node.data_dir.glob("segments/*.seg"), *node.data_dir.glob("wal/*.wal")]:
            data = bytearray(path.read_bytes())
            at = data.find(b"%d " % number + b"x" * 100)
            if at >= 0:
                data[at + 50] ^= 1
                path.write_bytes(data)
                hit += 1
        assert hit, (node.name, number)


def test_a_message_that_nobody_has_holds_up_its_consumer_only(filled: Filled) -> None:
    cluster, left = filled
    for node in range(3):
        eventually(lambda node=node: settled(cluster, node), "files of every kind")
        cluster.restart(node)  # empties its memory of the messages
    leader = cluster.leader_of("q")
    lost = 1400
    assert lost in left
    rot_everywhere(cluster, lost)
    pids = [cluster.pid(node) for node in range(3)]
    first: list[int] = []
    second: list[int] = []
    uri = uri_of(cluster, leader)
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        for got, prefetch in ((first, 210), (second, COUNT)):
            channel = connection.channel()
            channel.basic_qos(prefetch_count=prefetch)
            channel.basic_consume(
                "q", lambda c, m, p, body, got=got: got.append(int(body.split(b" ", 1)[0]))
            )

        def all_got() -> bool:
            connection.process_data_events(0.1)
            return len(first) >= left.index(lost) and len(second) >= len(left) - 210

        eventually(all_got, "what is before it, and what another consumer may have")
        connection.process_data_events(0.5)
        assert first == left[: left.index(lost)]
        assert second == left[210:]
        publish(uri, "q", 50_000, 20)
        eventually(
            lambda: connection.process_data_events(0.1) or len(second) >= len(left) - 210 + 20,
            "the next ones",
        )
        assert second == left[210:] + list(range(50_000, 50_020))
        eventually(lambda: "is lost" in cluster.log(leader), "it is said")
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        connection.channel().queue_purge("q")
    publish(uri, "q", 60_000, 20)
    assert consume(uri, "q") == list(range(60_000, 60_020))
    assert [cluster.pid(node) for node in range(3)] == pids
