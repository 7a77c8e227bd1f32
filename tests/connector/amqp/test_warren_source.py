"""The source of broker=amqp on a Warren cluster, where it is asked for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest

from connector.amqp.query import Query, Queue, run_until_it_dies
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


@dataclass(frozen=True)
class OneWarren:
    """What `Queue` and `Query` need of a broker."""

    hosts: str

    def connect(self, **more: object) -> pika.BlockingConnection:
        """Open a connection as guest."""
        host, _, port = self.hosts.partition(":")
        return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), **more))


@pytest.mark.parametrize("mode", [pytest.param("commit", marks=pytest.mark.long), "spool"])
def test_drivers_that_die_anywhere(cluster: LocalCluster, tmp_path: Path, mode: str) -> None:
    rng = random.Random(mode)
    queue = Queue(OneWarren(cluster.hosts), ids=mode == "commit")
    with Query(queue, tmp_path, ackMode=mode) as query:
        for _ in range(3):
            queue.publish(rng.randint(1, 150))
            run_until_it_dies(query, rng, 60, "available")
        query.finish(60)


def test_drivers_with_one_batch_die_anywhere(cluster: LocalCluster, tmp_path: Path) -> None:
    """Spark 4.0 and 4.1 tell no trigger: the first call of a run is answered as if it were all."""
    rng = random.Random(4)
    queue = Queue(OneWarren(cluster.hosts), ids=True)
    with Query(queue, tmp_path, ackMode="commit", maxBytesPerTrigger="1m") as query:
        queue.publish(100)
        query.dies("offset_log", 0, 60, "untold")
        query.run(60, "untold")
        assert len(query.sink[0]) == 60
        for _ in range(3):
            queue.publish(rng.randint(1, 150))
            run_until_it_dies(query, rng, 60, "untold")
        query.finish(60)
