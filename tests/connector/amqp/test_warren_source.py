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
