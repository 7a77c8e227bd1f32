"""Real nodes, one of them on a file system that is frozen under it: nothing written returns."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from tests.live.conftest import eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster

STRICT = "WARREN_STRICT"
DISK_BYTES = 512 << 20
SUSPECT_S = 2.0
HANG_S = 16.0
PAUSE_S = 0.02
"""Of a publisher after each message: many of them would take all of the machine."""
SETTINGS = {"raft": {"suspect_after_ms": int(SUSPECT_S * 1000)}}


class Disk:
    """An ext4 file system in a file, mounted on a loop device."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image, self.place = image, place
        self.frozen = False

    def mount(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(DISK_BYTES)
        run("mkfs.ext4", "-q", "-F", str(self.image))
        run("mount", "-o", "loop", str(self.image), str(self.place))

    def freeze(self) -> None:
        run("fsfreeze", "--freeze", str(self.place))
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            run("fsfreeze", "--unfreeze", str(self.place))
            self.frozen = False

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *error: object) -> None:
        self.thaw()  # before a node is stopped: a process does not end while it waits for a disk

    def unmount(self) -> None:
        self.thaw()
        subprocess.run(["umount", str(self.place)], capture_output=True, check=False)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[Path], Disk]]:
    """Put an ext4 of its own under a directory; it thaws and ends with the test."""
    made: list[Disk] = []

    def make(place: Path) -> Disk:
        found = Disk(tmp_path / "disk.img", place)
        try:
            found.mount()
            made.append(found)
            found.freeze()
            found.thaw()
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", "") or str(error)
            if os.environ.get(STRICT):
                pytest.fail(f"{STRICT} is set, and no disk can be frozen: {reason}")
            pytest.skip(f"no file system can be mounted and frozen here: {reason.strip()}")
        return found

    yield make
    for each in made:
        each.unmount()


class Publishers:
    """Threads that publish one message after the other, with confirms."""

    def __init__(self, uris: list[str], size: int) -> None:
        self.confirmed = 0
        self.errors: list[Exception] = []
        self.size = size
        self.ending = threading.Event()
        self.threads = [
            threading.Thread(target=self.work, args=(uri,), daemon=True) for uri in uris
        ]
        for thread in self.threads:
            thread.start()

    def work(self, uri: str) -> None:
        try:
            with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while not self.ending.wait(PAUSE_S):
                    channel.basic_publish("", "q", bytes(self.size))
                    self.confirmed += 1
        except Exception as error:  # the rim of a test's thread: it is asserted below
            self.errors.append(error)

    def stop(self) -> None:
        self.ending.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a publisher is stuck"


def all_alive(cluster: LocalCluster) -> bool:
    """Whether node 1 suspects no node."""
    with Connection(cluster.node_address(1)) as connection:
        return all(one["alive"] for one in Admin(connection).overview()["nodes"])


@pytest.mark.parametrize(
    ("via", "size", "count"),
    [
        (
            0,
            100,
            1,
        ),  # a client of the node itself; each write small enough for the loop's own thread
        (1, 60_000, 20),  # more than may wait for a disk (`wal_backlog_bytes_max`) within HANG_S
    ],
)
@pytest.mark.specification("mirrored-queues: Mirrors that fail to issue credit can cause")
def test_confirms_go_on_while_the_leader_s_disk_hangs(
    tmp_path: Path, disk: Callable[[Path], Disk], via: int, size: int, count: int
) -> None:
    cluster = LocalCluster(3, tmp_path / "cluster", settings=SETTINGS)
    frozen = disk(cluster.nodes[0].data_dir)
    with cluster, frozen:
        uris = [f"amqp://guest:guest@{address}/%2F?heartbeat=0" for address in cluster.addresses]
        with pika.BlockingConnection(pika.URLParameters(uris[0])) as connection:
            connection.channel().queue_declare(
                "q",
                durable=True,
                arguments={"x-queue-type": "quorum", "x-max-length": 1000},
            )
        eventually(lambda: cluster.leader_of("q") == 0, "the declaring node leads")
        publishers = Publishers([uris[via]] * count, size)
        eventually(lambda: publishers.confirmed > 50, "publishing continues")
        frozen.freeze()
        began, before = time.monotonic(), publishers.confirmed
        eventually(lambda: cluster.leader_of("q") != 0, "another member leads")
        said = "does not answer: a write of the log has been under way"
        eventually(lambda: said in cluster.log(0), "it is logged")
        eventually(lambda: time.monotonic() - began > HANG_S, "the disk hangs for long")
        eventually(lambda: publishers.confirmed > before + 50, "publishing continues meanwhile")
        assert cluster.leader_of("q") != 0
        # The hanging disk does not hold up its node: the others hear it.
        eventually(lambda: all_alive(cluster), "no node is suspected")
        assert frozen.frozen
        frozen.thaw()
        eventually(lambda: "answers again, after" in cluster.log(0), "the node says so")
        publishers.stop()
        assert not publishers.errors, publishers.errors
