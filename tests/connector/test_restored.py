"""Checkpoints beside a cluster that was restored from a backup: nothing is skipped in silence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_warren import errors
from pyspark_warren.claims.client import WarrenBroker
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.surroundings import Surroundings
from tests.live.test_restore import restore
from warren import Producer
from warren.admin import Admin
from warren.backups import Backup
from warren.local import LocalCluster
from warren_wire.backups.store import DirectoryStore

pytestmark = [pytest.mark.live, pytest.mark.slow]
QUEUES = ("exact", "ahead", "far", "planned", "behind", "unknown", "other", "running")
EACH = 10
"""Messages of a batch."""


class Query:
    """A query's driver, and its checkpoint: the offsets of its batches so far."""

    def __init__(self, cluster: LocalCluster, queue: str, at: list[Offset] | None = None) -> None:
        self.cluster = cluster
        self.options: Options = dataclasses.replace(
            parse_options({"hosts": cluster.hosts, "queue": queue, "pollInterval": "10ms"}, "read"),
            prefetch_claims=0,
        )
        self._connection = cluster.connect()
        self.driver = ClaimDriver(
            WarrenBroker(self._connection), self.options, Surroundings.of_this_process()
        )
        self.offsets = list(at or [self.driver.initial()])

    def batch(self, limit: int = EACH) -> int:
        """Run a batch; return the messages of its plan."""
        end = self.driver.latest(self.offsets[-1], limit)
        slices = self.driver.plan(self.offsets[-1], end)
        self.offsets.append(end)
        return sum(part.last - part.first for part in slices)


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[tuple[LocalCluster, dict[str, Query]]]:
    """A restored cluster; queries with one batch committed at the backup, and one after it."""
    store = DirectoryStore(tmp_path / "backups")
    queries: dict[str, Query] = {}
    with LocalCluster(1, tmp_path / "origin") as origin:
        with origin.connect() as connection, Producer(connection) as producer:
            for name in QUEUES:
                Admin(connection).queues.declare(name, arguments={"x-queue-type": "quorum"})
                for number in range(10 * EACH):
                    producer.send(b"%d" % number * (1 + number // EACH), name)
        for name in QUEUES:
            queries[name] = Query(origin, name)
            if name != "unknown":
                queries[name].batch()  # names the reader
                assert queries[name].batch() == EACH
        with origin.connect() as connection:
            Backup(connection, store).run()
        for name, batches in (("ahead", 1), ("far", 4), ("planned", 1), ("unknown", 2)):
            for _ in range(batches):
                queries[name].batch()
        queries["other"].batch()
        queries["running"] = Query(origin, "running", queries["running"].offsets)
        assert queries["running"].batch() == EACH
    cluster = LocalCluster(1, tmp_path / "restored")
    said = restore(cluster.nodes[0], "--from", str(store))
    assert said.returncode == 0, said.stderr
    with cluster:
        yield cluster, queries


def left(cluster: LocalCluster, queue: str) -> int:
    """Messages that are not settled."""
    with cluster.connect() as connection:
        return Admin(connection).queues.get(queue).messages


def test_checkpoints_of_before_and_after_the_backup(
    restored: tuple[LocalCluster, dict[str, Query]],
) -> None:
    cluster, queries = restored
    again = {name: Query(cluster, name, query.offsets) for name, query in queries.items()}

    # As of the backup: the query continues, each message is in one batch.
    assert [again["exact"].batch() for _ in range(9)] == [EACH] * 9

    # Of after it: a batch that the queue does not know was committed, or begun.
    for name in ("ahead", "far", "unknown"):
        with pytest.raises(errors.ClaimLostError, match=r"onClaimLost=continue.*new checkpoint"):
            again[name].batch()
        assert left(cluster, name) == 10 * EACH, "nothing was settled"
    planned = queries["planned"].offsets
    with pytest.raises(errors.ClaimLostError, match="the unfinished batch"):
        again["planned"].driver.plan(*planned[-2:])

    # Of before it: the queue has settled what the checkpoint has not read.
    assert again["behind"].batch() == EACH
    assert again["behind"].batch() == EACH
    with pytest.raises(errors.CheckpointBehindError, match="older copy"):
        Query(cluster, "behind", queries["behind"].offsets[:2]).batch()

    # Another copy of the checkpoint has opened a claim of that number, of other messages.
    older = Query(cluster, "other", queries["other"].offsets[:3])
    assert older.batch(EACH // 2) == EACH // 2
    with pytest.raises(errors.ClaimLostError, match="by the checkpoint 10 of"):
        again["other"].batch()
    assert left(cluster, "other") == 9 * EACH, "the older copy has settled its first batch alone"


def test_a_driver_of_after_the_backup_is_fenced(
    restored: tuple[LocalCluster, dict[str, Query]],
) -> None:
    """Its epoch is given to no driver of the restored cluster."""
    cluster, queries = restored
    before = queries["running"].driver._queues["running"]
    new = Query(cluster, "running", queries["running"].offsets[:3])
    assert new.batch() == EACH
    given = new.driver._queues["running"]
    assert given._epoch > before._epoch
    old = given._broker.reader("running", before._reader_name)
    old.epoch = before._epoch
    with pytest.raises(Exception, match="a newer driver registered"):
        old.settle(given._opened[1])
