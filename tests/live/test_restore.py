"""A cluster is backed up under load and destroyed; another one, of any size, has what it had."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from live.conftest import eventually
from live.load import Publisher, connect, drain
from warren import Admin, Connection
from warren.backups import Backup
from warren.claims import ClaimReader
from warren.errors import ClaimLost
from warren.local import LocalCluster
from warren.local_node import SECRET_FILE, LocalNode
from warren_wire.backups.manifest import BackupManifest
from warren_wire.backups.store import DirectoryStore
from warren_wire.block.block import Block

pytestmark = pytest.mark.live
MESSAGES, CONSUMED, CLAIMED, PUBLISHERS, HOUR_MS = 2_000, 300, 400, 2, 3_600_000
QUORUM, CLASSIC = {"x-queue-type": "quorum"}, {"x-queue-type": "classic"}
TO_DEAD = {"x-dead-letter-routing-key": "dead"}
BODY = "{:06d}" + "x" * 500
KEPT = pika.BasicProperties(delivery_mode=2)


def restore(node: LocalNode, *more: str) -> subprocess.CompletedProcess[str]:
    """Run `warren-broker restore` for a node."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "warren_broker", "restore"),
            *("--config", str(node.config_file), *more),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def reader_of(connection: Connection, epoch: int | None = None) -> ClaimReader:
    return ClaimReader(connection, "claimed", "spark", epoch)


def numbers(reader: ClaimReader, number: int, count: int) -> list[int]:
    """The messages of a claim."""
    blocks = [Block.decode(fetched.data) for fetched in reader.fetch(number, 0, count)]
    return [int(bytes(block.body(i))[:6]) for block in blocks for i in range(len(block))]


def fill(cluster: LocalCluster) -> None:
    """Declare queues of all kinds, and publish to them; some messages are consumed."""
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name, arguments in (
            *((name, QUORUM) for name in ("load", "plain", "claimed", "late", "dead")),
            ("single", CLASSIC),
            ("ranked", {**QUORUM, "x-dead-letter-exchange": "", **TO_DEAD}),
        ):
            channel.queue_declare(name, durable=True, arguments=arguments)
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        channel.queue_bind("late", "later", "k")
        for number in range(MESSAGES):
            channel.basic_publish("", "plain", BODY.format(number).encode(), KEPT)
        for number in range(100):
            body = BODY.format(number).encode()
            channel.basic_publish("", "claimed", body, KEPT)
            channel.basic_publish("", "single", body, KEPT)
            priority = pika.BasicProperties(delivery_mode=2, priority=number % 2 * 9)
            channel.basic_publish("", "ranked", body, priority)
        delayed = pika.BasicProperties(delivery_mode=2, headers={"x-delay": HOUR_MS})
        channel.basic_publish("later", "k", b"late", delayed)
        method, _, _ = channel.basic_get("ranked")
        channel.basic_reject(method.delivery_tag, requeue=False)
        for _ in range(CONSUMED):
            channel.basic_get("plain", auto_ack=True)


@contextmanager
def under_load(cluster: LocalCluster) -> Iterator[list[Publisher]]:
    stop = threading.Event()
    publishers = [Publisher(cluster, "load", number, stop) for number in range(PUBLISHERS)]
    for publisher in publishers:
        publisher.start()
    try:
        eventually(lambda: all(len(p.confirmed) > 50 for p in publishers), "publishing")
        yield publishers
    finally:
        stop.set()
        for publisher in publishers:
            publisher.join()


def check(cluster: LocalCluster, confirmed: dict[int, int], claim: int, epoch: int) -> None:
    """Everything is there once, and in order."""
    last = len(cluster.nodes) - 1
    bodies = [BODY.format(number).encode() for number in range(MESSAGES)]
    got = drain(cluster, "plain", last)
    assert len(got) == MESSAGES - CONSUMED and got == bodies[CONSUMED:]
    load = [body.split(b":") for body in drain(cluster, "load", 0)]
    for publisher, count in confirmed.items():
        found = [int(at) for number, at in load if int(number) == publisher]
        assert found == list(range(1, len(found) + 1)), "once each, in order"
        assert len(found) >= count, "all that was confirmed before the backup began"
    assert [int(body[:6]) for body in drain(cluster, "single", last)] == list(range(100))
    ranked = [int(body[:6]) for body in drain(cluster, "ranked", 0)]
    assert ranked == [*range(3, 100, 2), *range(0, 100, 2)], "by priority, then in order"
    assert [int(body[:6]) for body in drain(cluster, "dead", last)] == [1]
    with cluster.connect() as connection:
        admin = Admin(connection)
        reader = reader_of(connection, epoch)
        assert numbers(reader, claim, 50) == list(range(50))
        assert reader.settle(claim) == 50
        assert [int(body[:6]) for body in drain(cluster, "claimed", 0)] == list(range(50, 100))
        with pytest.raises(ClaimLost):  # of after the backup
            reader.settle(claim + 1)
        (late,) = admin.delayed.list("amq.delayed.later")
        assert admin.delayed.end("amq.delayed.later", late.id, False) == 1
        eventually(lambda: admin.queues.get("late").messages == 1, "the delayed message")
        sizes = {one.name: len(admin.members.get(one.name).members) for one in admin.queues.list()}
        size = min(3, len(cluster.nodes))
        assert sizes == {**dict.fromkeys(sizes, size), "single": 1}, sizes
        admin.queues.declare("new")  # definitions can be changed
    assert drain(cluster, "late", last) == [b"late"]


@pytest.mark.long
def test_a_destroyed_cluster_is_restored_into_others(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "backups")
    origin = LocalCluster(3, tmp_path / "origin")
    with origin:
        fill(origin)
        with origin.connect() as connection, under_load(origin) as publishers:
            reader = reader_of(connection)
            claim = reader.register().settled + 1
            assert reader.open(claim, max_messages=50, max_bytes=1 << 30).messages == 50
            Backup(connection, store).run()
            confirmed = {p.number: len(p.confirmed) for p in publishers}
            second = Backup(connection, store)
            manifest = second.run()
            reader.settle(claim)
            assert reader.open(claim + 1, max_messages=9, max_bytes=1 << 30).messages == 9
        epoch = reader.registered_epoch()
    print(f"second backup: {second.done.bytes:,} of {manifest_bytes(manifest):,} bytes copied")
    assert second.done.bytes * 4 < manifest_bytes(manifest)
    shutil.rmtree(origin.directory)
    for count in (1, 5):
        cluster = LocalCluster(count, tmp_path / f"of-{count}")
        said = [restore(node, "--from", str(store)) for node in cluster.nodes]
        assert not any(one.returncode for one in said), said
        again = restore(cluster.nodes[0], "--from", str(store))
        assert again.returncode == 1 and "is not empty" in again.stderr
        with cluster:
            check(cluster, confirmed, claim, epoch)


def manifest_bytes(manifest: BackupManifest) -> int:
    return sum(file.bytes for file in manifest.files.values())


def test_a_damaged_backup_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "backups")
    with LocalCluster(1, tmp_path / "origin") as origin:
        with connect(origin, 0) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=QUORUM)
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"x", KEPT)
        with origin.connect() as connection:
            manifest = Backup(connection, store).run()
    name = manifest.groups[1].entries[0].name
    data = store.read(name)
    store.write(name, data[:-1] + bytes([data[-1] ^ 1]))
    other = LocalCluster(1, tmp_path / "other")
    refused = restore(other.nodes[0], "--from", str(store))
    assert refused.returncode == 1 and name in refused.stderr, refused
    assert not other.nodes[0].data_dir.exists()


def test_a_copy_of_stopped_nodes_is_another_cluster(tmp_path: Path) -> None:
    """Both run then, with one secret, and a node refuses one of the other cluster."""
    with LocalCluster(3, tmp_path / "origin") as origin:
        with connect(origin, 0) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=QUORUM)
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"x", KEPT)
        origin.stop()
        place = tmp_path / "copy"
        place.mkdir()
        shutil.copy(origin.directory / SECRET_FILE, place / SECRET_FILE)
        copy = LocalCluster(3, place)
        for node, source in zip(copy.nodes, origin.nodes, strict=True):
            shutil.copytree(source.data_dir, node.data_dir)
        first, *others = copy.nodes
        said = restore(first, "--from-copy")
        assert said.returncode == 0, said
        given = said.stdout.split()[-1]
        for node in others:
            assert restore(node, "--from-copy", "--cluster-id", given).returncode == 0
        origin.start()
        with copy:
            assert drain(copy, "q", 0) == [b"x"]
            assert drain(origin, "q", 0) == [b"x"], "the copy's acknowledgement is its own"
        origin.stop_node(2)
        assert restore(origin.nodes[2], "--from-copy", "--cluster-id", given).returncode == 0
        origin.spawn(2)
        refusal = (
            f"are of two clusters that are both named 'local' (each was formed by itself: {given}"
        )
        eventually(lambda: refusal in origin.log(0), "the original refuses it")
