"""Backups of a running cluster: what is copied, what is not copied again, what a cut leaves."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from warren import Admin, Connection
from warren.backups import Backup, Copied, unreferenced
from warren.errors import Unavailable, UsageError
from warren.local import LocalCluster
from warren.uri import Address
from warren_wire.backups import manifest as m
from warren_wire.backups.check import damages
from warren_wire.backups.store import DirectoryStore

pytestmark = pytest.mark.live
LARGE = 3_000_000
"""Bytes of a message: larger than a piece."""


class Cut(Exception):
    """The client ends."""


@pytest.fixture
def cluster():
    """A cluster of the test's own, with definitions of its own."""
    limits = {"limits": {"operation_timeout_ms": 5_000}}
    with LocalCluster(nodes=3, settings=limits) as made:
        yield made


def publish(cluster: LocalCluster, queue: str, bodies: list[bytes], kind: str = "quorum") -> None:
    with pika.BlockingConnection(
        pika.URLParameters(f"amqp://guest:guest@{cluster.addresses[0]}/%2F")
    ) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def back_up(
    cluster: LocalCluster, store: DirectoryStore, node: int = 0
) -> tuple[m.BackupManifest, Copied]:
    with Connection(cluster.node_address(node)) as connection:
        made = Backup(connection, store)
        return made.run(), made.done


@pytest.mark.long
def test_a_second_backup_copies_only_what_is_new(cluster: LocalCluster, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    publish(cluster, "many", [b"%d" % i for i in range(3_000)])
    publish(cluster, "large", [bytes(LARGE)] * 3)
    publish(cluster, "single", [b"x" * 1_000] * 20, "classic")
    first, all_ = back_up(cluster, store)
    assert [copy.name for copy in first.groups] == ["", "many", "large", "single"]
    assert all_.bytes > 3 * LARGE
    publish(cluster, "many", [b"new"] * 10)
    second, new = back_up(cluster, store, 2)
    assert new.bytes < 100_000, "no message of the first is read again"
    assert list(damages(store, [first, second])) == []
    held = {copy.name: copy for copy in second.groups}
    assert sum(file.count for file in held["many"].entries) == 3_010
    with cluster.connect() as connection:
        Admin(connection).queues.purge("large")
    third, _ = back_up(cluster, store, 1)
    assert {copy.name: len(copy.entries) for copy in third.groups}["large"] == 0
    store.remove(first.file())
    store.remove(second.file())
    freed = unreferenced(store)
    for name in freed:
        store.remove(name)
    assert freed and not list(damages(store, [third]))


def test_a_backup_that_was_cut_continues(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.backups.NOTED_EVERY_S", 0.0)
    monkeypatch.setattr("warren.backups.DATA_FILE_BYTES", 1_000_000)
    store = DirectoryStore(tmp_path)
    publish(cluster, "one", [bytes(LARGE // 2)] * 4)
    publish(cluster, "two", [bytes(LARGE)] * 4)
    written = 0
    write = store.write

    def cut(name: str, data: bytes) -> None:
        nonlocal written
        written += name.startswith("data/") and len(data) >= LARGE
        if written == 3:
            raise Cut
        write(name, data)

    with monkeypatch.context() as patch:
        patch.setattr(store, "write", cut)
        with pytest.raises(Cut):
            back_up(cluster, store)
    assert m.manifests(store) == []
    (partial,) = m.manifests(store, m.PARTIAL)
    begun = m.load(store, partial)
    manifest, done = back_up(cluster, store, 1)
    assert manifest.id == begun.id
    assert LARGE * 2 <= done.bytes < LARGE * 2 + 100_000, "half of the second queue was missing"
    assert list(damages(store, [manifest])) == []
    assert m.manifests(store, m.PARTIAL) == []


def test_what_is_made_and_deleted_meanwhile(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    for name in ("first", "gone", "later"):
        publish(cluster, name, [b"x"])
    with Connection(cluster.address) as connection:
        made = Backup(connection, store)
        shown: list[str] = []

        def show(text: str) -> None:
            if not shown:
                publish(cluster, "new", [b"y"])
                Admin(other).queues.delete("gone")
                Admin(other).queues.delete("first")
                publish(cluster, "first", [b"z"])
            shown.append(text)

        made._show = show
        with cluster.connect() as other:
            manifest = made.run()
    assert sorted(copy.name for copy in manifest.groups) == ["", "first", "later", "new"]
    assert list(damages(store, [manifest])) == []


def test_a_queue_out_of_reach_is_named(cluster: LocalCluster, tmp_path: Path) -> None:
    publish(cluster, "kept", [b"x"])
    publish(cluster, "single", [b"x"], "classic")
    alone = cluster.leader_of("single")
    cluster.kill(alone)
    hosts = tuple(
        ("127.0.0.1", node.amqp_port) for at, node in enumerate(cluster.nodes) if at != alone
    )
    store = DirectoryStore(tmp_path)
    with Connection(Address(hosts, request_timeout_s=5.0)) as connection:
        with pytest.raises(Unavailable, match=r"queue 'single' of vhost '/': .*--skip-unreachable"):
            Backup(connection, store).run()
        manifest = Backup(connection, store, skip_unreachable=True).run()
    assert manifest.missing == (("/", "single"),)
    assert [copy.name for copy in manifest.groups] == ["", "kept"]


def test_another_cluster_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "backups")
    back_up(cluster, store)
    with LocalCluster(nodes=1) as other, pytest.raises(UsageError, match="of another cluster"):
        back_up(other, store)
