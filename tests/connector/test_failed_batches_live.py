"""Spark with a function that raises for one message, restarted until it ends, on a real broker."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from warren import Admin, Producer
from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow, pytest.mark.long]

ROWS = 30
BAD = "17"


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


def test_the_message_at_fault_is_dead_lettered_and_the_others_are_published_once(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex[:8]
    source, out, dead = (f"{kind}-{mark}" for kind in ("source", "out", "dead"))
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    with cluster.connect() as connection, Producer(connection) as producer:
        admin = Admin(connection)
        admin.queues.declare(source, arguments={"x-delivery-limit": 2, **letters})
        for name in (out, dead):
            admin.queues.declare(name)
        for number in range(ROWS):
            producer.send(b"%d" % number, source)
    rows = (
        spark.readStream.format("warren")
        .schema("body string")
        .options(
            hosts=cluster.hosts,
            queue=source,
            maxMessagesPerTrigger="32",
            onBatchFailure="release",
            batchTriesMax="1",
        )
    )
    checked = (
        rows.load()
        .selectExpr(f"if(body = '{BAD}', raise_error('poison'), body) as body")
        .selectExpr("cast(body as string) as body")
    )
    failures = 0
    while True:
        query = (
            checked.writeStream.format("warren")
            .options(hosts=cluster.hosts, routingKey=out)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300), "the query does not end"
        except StreamingQueryException as failure:
            assert "poison" in str(failure), failure
            failures += 1
            assert failures <= 3
            continue
        with cluster.connect() as connection:
            found = Admin(connection).queues.get(source)
        if not (found.messages_ready or found.messages_claimed):
            break

    def bodies(queue: str) -> list[str]:
        options = {"hosts": cluster.hosts, "queue": queue}
        read = spark.read.format("warren").schema("body string").options(**options).load()
        return sorted(row.body for row in read.collect())

    assert failures == 3  # 30 messages, then 2, then alone: beyond the limit of two failures
    assert bodies(dead) == [BAD]
    assert bodies(out) == sorted(str(i) for i in range(ROWS) if str(i) != BAD)
