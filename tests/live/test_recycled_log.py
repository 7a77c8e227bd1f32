"""Files of the log are written over by a running node; a kill -9 finds their right end."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from tests.live.conftest import eventually
from tests.live.test_full_disk import consume, declare, uri_of
from tests.wal_records import records_end
from warren.local import LocalCluster

MIB = 1 << 20
BODY = b"x" * 2_000
SETTINGS = {"raft": {"wal_max_size_bytes": MIB}}


class Passage(threading.Thread):
    """Publishes numbers with confirms and takes them from the queue again, until it is stopped."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.uri = uri
        self.confirmed = 0
        self.taken: list[int] = []
        self.ending = threading.Event()
        self.start()

    def run(self) -> None:
        with suppress(AMQPError), pika.BlockingConnection(pika.URLParameters(self.uri)) as opened:
            channel = opened.channel()
            channel.confirm_delivery()
            while not self.ending.is_set():
                channel.basic_publish("", "q", b"%d " % self.confirmed + BODY)
                self.confirmed += 1
                method, _, body = channel.basic_get("q")
                if method is not None and self.confirmed % 100:  # every hundredth stays
                    self.taken.append(int(body.split(b" ", 1)[0]))
                    channel.basic_ack(method.delivery_tag)


def names_of_files(data: Path, seen: dict[int, set[str]]) -> int:
    """Add the names that each file of the log has had; return how many had more than one."""
    for path in (data / "wal").glob("*.wal"):
        with suppress(FileNotFoundError):
            seen[path.stat().st_ino].add(path.name)
    return sum(len(names) > 1 for names in seen.values())


def bytes_behind(data: Path) -> bool:
    """Return whether the newest file of the log has bytes of an earlier use behind its end.

    There may be no file: one that is complete becomes a segment before the next one is begun.
    """
    newest = sorted((data / "wal").glob("*.wal"))[-1:]
    with suppress(FileNotFoundError):  # it just became a segment
        return any(BODY[:500] in path.read_bytes()[records_end(path) :] for path in newest)
    return False


@pytest.mark.live
@pytest.mark.long
def test_a_kill_finds_the_end_of_a_file_that_was_written_over(tmp_path: Path) -> None:
    seen: dict[int, dict[int, set[str]]] = {i: defaultdict(set) for i in range(3)}
    with LocalCluster(3, tmp_path, settings=SETTINGS) as cluster:
        directories = [node.data_dir for node in cluster.nodes]
        declare(uri_of(cluster, 0), "q")
        passage = Passage(uri_of(cluster, 1))

        def recycled() -> bool:
            assert passage.is_alive()
            counts = [names_of_files(data, seen[i]) for i, data in enumerate(directories)]
            return min(counts) > 1

        eventually(recycled, "each node writes over files of its log")
        # A node that is killed when its newest file has just become a segment shows nothing.
        eventually(lambda: all(map(bytes_behind, directories)), "the newest files are such ones")
        for i in range(3):
            cluster.kill(i)
        passage.ending.set()
        passage.join()
        assert any(map(bytes_behind, directories)), "no file has bytes of an earlier use"
        cluster.start()
        found: list[int] = []

        def nothing_missing() -> bool:
            # What the client held returns when the cluster has seen that its node had ended.
            found.extend(consume(uri_of(cluster, 2), "q"))
            return set(found) | set(passage.taken) >= set(range(passage.confirmed))

        eventually(nothing_missing, "everything that was confirmed is there")
        assert len(set(found)) == len(found)
        # The last get and its acknowledgement may have been under way.
        back = set(found) & set(passage.taken)
        assert back <= set(passage.taken[-2:]), sorted(back)
        assert all("set aside" not in cluster.log(i) for i in range(3))


@pytest.mark.live
def test_it_can_be_switched_off(tmp_path: Path) -> None:
    seen: dict[int, set[str]] = defaultdict(set)
    settings = {"raft": {**SETTINGS["raft"], "wal_recycle": False}}
    with LocalCluster(1, tmp_path, settings=settings) as cluster:
        declare(uri_of(cluster, 0), "q")
        passage = Passage(uri_of(cluster, 0))
        data = cluster.nodes[0].data_dir

        def gone() -> bool:
            assert passage.is_alive()
            names_of_files(data, seen)
            names = sorted(set().union(*seen.values()))
            return len(names) > 2 and not (data / "wal" / names[0]).exists()

        eventually(gone, "a file of the log is not needed any more")
        assert not list((data / "wal").glob("*.wal.new"))
        passage.ending.set()
        passage.join()
        newest = max((data / "wal").glob("*.wal"))
        assert newest.stat().st_size == records_end(newest), "it grows with its records"
