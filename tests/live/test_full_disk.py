"""Real nodes on file systems of fixed size, filled up and freed again while clients publish."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from tests.live.conftest import DEADLINE_S, Mount, eventually
from tests.patience import PATIENCE_S
from warren.errors import WarrenError
from warren.local import LocalCluster
from warren_wire.sessions.pika_connections import blocking_connection

BODY_BYTES = 8_000


def fill(place: Path) -> Path:
    """A file that takes all the space there is."""
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return ballast


class Publisher(threading.Thread):
    """Publishes numbers with confirms, one after the other, until it is told to stop."""

    def __init__(self, uri: str, queue: str) -> None:
        super().__init__(daemon=True)
        self.parameters = pika.URLParameters(uri)
        self.parameters.heartbeat = 0
        self.queue = queue
        self.confirmed: list[int] = []
        self.blocked: list[str] = []
        self.unblocked = 0
        self.errors: list[Exception] = []
        self.ending = threading.Event()
        self.start()

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            try:
                with blocking_connection(self.parameters) as connection:
                    # Of the inner connection: the blocking one tells of it only between calls.
                    connection._impl.add_on_connection_blocked_callback(self._blocked)
                    connection._impl.add_on_connection_unblocked_callback(self._unblocked)
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while not self.ending.is_set():
                        body = b"%d " % number + b"x" * BODY_BYTES
                        channel.basic_publish("", self.queue, body)
                        self.confirmed.append(number)
                        number += 1
            except AMQPError as error:
                self.errors.append(error)
                number += 1  # it may have been taken: another number, so that a copy would show

    def _blocked(self, connection: Any, method: Any) -> None:
        self.blocked.append(method.method.reason)

    def _unblocked(self, connection: Any, method: Any) -> None:
        self.unblocked += 1

    def stop(self) -> None:
        self.ending.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), "the publisher is stuck"


def consume(uri: str, queue: str) -> list[int]:
    """Everything that is ready, in order, acknowledged."""
    found = []
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        while True:
            method, _, body = channel.basic_get(queue)
            if method is None:
                return found
            found.append(int(body.split(b" ", 1)[0]))
            channel.basic_ack(method.delivery_tag)


def declare(uri: str, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        connection.channel().queue_declare(
            queue, durable=True, arguments={"x-queue-type": "quorum"}
        )


def uri_of(cluster: LocalCluster, i: int) -> str:
    return f"amqp://guest:guest@{cluster.addresses[i]}/%2F"


SETTINGS = {"alarms": {"disk_free_limit_bytes": 0, "interval_ms": 100}}
"""Without a limit that warns in time: the write itself must find the disk full."""


def test_a_leader_with_a_full_disk(tmp_path: Path, mount: Mount) -> None:
    cluster = LocalCluster(3, tmp_path, settings=SETTINGS)
    place = mount(cluster.nodes[0].data_dir)
    with cluster:
        declare(uri_of(cluster, 0), "q")
        eventually(lambda: cluster.leader_of("q") == 0, "the declaring node leads")
        pid = cluster.pid(0)
        publisher = Publisher(uri_of(cluster, 1), "q")
        eventually(lambda: len(publisher.confirmed) > 50, "publishing continues")
        ballast = fill(place)
        # Publishers of every node hear of it; the queue is led where there is space.
        eventually(lambda: publisher.blocked, "connection.blocked at another node")
        assert publisher.blocked == ["low on disk"]
        eventually(lambda: cluster.leader_of("q") != 0, "another member leads")
        # What is there can be consumed: two of three disks take what that needs.
        early = consume(uri_of(cluster, 2), "q")
        assert early == list(range(len(early))) and early
        assert cluster.is_running(0)
        ballast.unlink()
        eventually(lambda: publisher.unblocked, "connection.unblocked")
        count = len(publisher.confirmed)
        eventually(lambda: len(publisher.confirmed) > count + 50, "publishing continues")
        publisher.stop()
        assert not publisher.errors
        assert early + consume(uri_of(cluster, 0), "q") == publisher.confirmed
        assert cluster.pid(0) == pid and cluster.is_running(0)
        eventually(lambda: "there is space again" in cluster.log(0), "it is logged")


@contextmanager
def single_node(
    directory: Path, mount: Mount
) -> Iterator[tuple[LocalCluster, Path, str, Publisher]]:
    """Yield a node on a small file system, that file system, the node's URI, and a publisher."""
    cluster = LocalCluster(1, directory, settings=SETTINGS)
    place = mount(cluster.nodes[0].data_dir)
    with cluster:
        uri = uri_of(cluster, 0)
        declare(uri, "q")
        yield cluster, place, uri, Publisher(uri, "q")


def test_a_node_alone_waits_for_space(tmp_path: Path, mount: Mount) -> None:
    with single_node(tmp_path, mount) as (cluster, place, uri, publisher):
        eventually(lambda: len(publisher.confirmed) > 50, "publishing continues")
        ballast = fill(place)
        eventually(lambda: publisher.blocked, "connection.blocked")
        count = len(publisher.confirmed)
        pika.BlockingConnection(pika.URLParameters(uri)).close()  # what needs no disk is answered
        assert cluster.is_running(0)
        assert len(publisher.confirmed) == count, "confirmed without having been written"
        ballast.unlink()
        eventually(lambda: len(publisher.confirmed) > count + 50, "publishing continues")
        publisher.stop()
        cluster.restart(0, kill=True)
        assert consume(uri, "q") == publisher.confirmed
        assert not publisher.errors


def test_a_start_on_a_full_disk(tmp_path: Path, mount: Mount) -> None:
    with single_node(tmp_path, mount) as (cluster, place, uri, publisher):
        eventually(lambda: len(publisher.confirmed) > 20, "publishing continues")
        cluster.kill(0)
        publisher.stop()
        ballast = fill(place)
        starting = threading.Thread(target=cluster.start, args=(0,), daemon=True)
        starting.start()
        eventually(lambda: "no space for the log" in cluster.log(0), "it says what it waits for")
        assert cluster.is_running(0)
        ballast.unlink()
        starting.join(DEADLINE_S)
        found = consume(uri, "q")
        assert found[: len(publisher.confirmed)] == publisher.confirmed


def test_a_first_start_on_a_full_disk_is_refused(tmp_path: Path, mount: Mount) -> None:
    cluster = LocalCluster(1, tmp_path, settings=SETTINGS)
    fill(mount(cluster.nodes[0].data_dir))
    with pytest.raises(WarrenError):
        cluster.start(timeout_s=PATIENCE_S)
    assert os.strerror(errno.ENOSPC) in cluster.log(0)
    assert not cluster.is_running(0)
