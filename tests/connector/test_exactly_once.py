"""Spark against a real broker: what must be in a queue or a table once, and what must be an error.

Each of these lost or doubled rows without a word before batches had runs and content, and before
the loss of a claim was told.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from spark_world.pipeline import BUSY, STARTS_MAX

from pyspark_warren.spark_line import TELLS_START
from warren import Admin, Producer
from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]

ROWS = 100


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


class Queues:
    """Two queues of one test, `source` and `out`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        mark = uuid.uuid4().hex[:8]
        self.source, self.out = f"source-{mark}", f"out-{mark}"
        with cluster.connect() as connection:
            for name in (self.source, self.out):
                Admin(connection).queues.declare(name)

    def publish(self, first: int = 0) -> None:
        """ROWS numbered messages for the source."""
        with self.cluster.connect() as connection, Producer(connection) as producer:
            for number in range(first, first + ROWS):
                producer.send(b"%d" % number, self.source)

    def ready(self, name: str) -> int:
        with self.cluster.connect() as connection:
            return Admin(connection).queues.get(name).messages_ready

    def claimed(self) -> int:
        with self.cluster.connect() as connection:
            return Admin(connection).queues.get(self.source).messages_claimed

    def heard_ms(self) -> int:
        """When the source's reader was last heard."""
        with self.cluster.connect() as connection:
            (reader,) = Admin(connection).queues.get(self.source).readers
            return reader.last_heard_ms

    def read_by(self) -> tuple[int, str, str, int] | None:
        """The claim, query, its name and batch that the source's reader read last."""
        with self.cluster.connect() as connection:
            (reader,) = Admin(connection).queues.get(self.source).readers
            of = reader.read_by
            return None if of is None else (of.number, of.query, of.name, of.batch)

    def options(self, **more: str) -> dict[str, str]:
        return {"hosts": self.cluster.hosts, **more}


@pytest.fixture
def queues(cluster: LocalCluster) -> Queues:
    return Queues(cluster)


def until(wanted: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 240
    while not wanted():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def rows_of(spark: Any, count: int = ROWS, more: str = "") -> Any:
    return spark.range(count).selectExpr(f"concat(cast(id as string), '{more}') as body")


def write(frame: Any, queues: Queues, **more: str) -> None:
    frame.write.format("warren").mode("append").options(
        **queues.options(routingKey=queues.out, **more)
    ).save()


@pytest.fixture
def put(spark: Any, queues: Queues) -> Callable[..., None]:
    """Write the rows under the sink id `mine`, with more options; `more` is in every body."""

    def rows(more: str = "", **options: str) -> None:
        write(rows_of(spark, more=more), queues, sinkId="mine", **options)

    return rows


# ------------------------------------------------------------ df.write


def test_two_writes_with_a_sink_id_and_no_batch_id_are_two_batches(
    put: Callable[..., None], queues: Queues
) -> None:
    for _ in range(2):
        put()
    assert queues.ready(queues.out) == 2 * ROWS


def test_a_numbered_batch_run_again_is_there_once_in_whatever_order(
    spark: Any, put: Callable[..., None], queues: Queues
) -> None:
    put(batchId="7")
    write(rows_of(spark).repartition(3), queues, sinkId="mine", batchId="7")
    assert queues.ready(queues.out) == ROWS


def test_the_queue_knows_when_it_may_forget_the_run(
    put: Callable[..., None], queues: Queues
) -> None:
    put(batchId="7", sinkExpires="1h")
    with queues.cluster.connect() as connection:
        (run,) = Admin(connection).sinks.list(queues.out, "mine").runs
    assert abs(run.expires_at / 1000 - 3600 - time.time()) < 300
    assert run.expires_in_ms is not None and 0 < run.expires_in_ms <= 3_600_000
    put(batchId="8")
    with queues.cluster.connect() as connection:
        (run,) = Admin(connection).sinks.list(queues.out, "mine").runs
    assert (run.last_batch, run.expires_at) == (8, 0)


def test_other_rows_under_a_batch_id_are_an_error_or_dropped_when_asked(
    put: Callable[..., None], queues: Queues
) -> None:
    put(batchId="7")
    with pytest.raises(Exception, match=r"WARREN_BATCH_CONFLICT.*batch 7 was published with 100"):
        put("!", batchId="7")
    put("!", batchId="7", onBatchConflict="keep")
    assert queues.ready(queues.out) == ROWS


def test_a_smaller_batch_id_is_an_error_and_belongs_to_another_run(
    put: Callable[..., None], queues: Queues
) -> None:
    put(batchId="7")
    with pytest.raises(Exception, match=r"WARREN_BATCH_PAST.*batch 3 is not after.*runId"):
        put(batchId="3")
    put(batchId="3", runId="another")
    assert queues.ready(queues.out) == 2 * ROWS


def test_a_run_id_without_a_number_is_an_error(put: Callable[..., None]) -> None:
    with pytest.raises(Exception, match=r"WARREN_OPTION.*runId='r' without batchId"):
        put(runId="r")


# ------------------------------------------------------------ streams


def stream_of(spark: Any, queues: Queues, **more: str) -> Any:
    """The bodies in `source` as a streaming DataFrame."""
    given = queues.options(queue=queues.source, **more)
    return spark.readStream.format("warren").schema("body binary").options(**given).load()


def run_to_the_end(writer: Any, checkpoint: Path | None = None) -> None:
    """Run a query until everything that is there is read and settled: Spark 4.0 and 4.1 settle the
    batch of a run in the next one. Run it again where Spark was too slow.

    checkpoint  None: the session says it
    """
    query = writer.trigger(availableNow=True)
    if checkpoint is not None:
        query = query.option("checkpointLocation", str(checkpoint))
    for start in range(STARTS_MAX):
        try:
            for _ in range(1 if TELLS_START else 2):
                assert query.start().awaitTermination(300), "the query does not end"
            return
        except StreamingQueryException as failure:
            if BUSY not in str(failure) or start == STARTS_MAX - 1:
                raise


def first_batch(start: Callable[[], Any], starts: int = STARTS_MAX) -> Any:
    """Start a query, wait for its first batch; start it again where Spark was too slow."""
    query = start()
    until(lambda: query.exception() or any(map(is_whole, query.recentProgress)), "no batch")
    failure = query.exception()
    if failure is None:
        return query
    assert BUSY in str(failure) and starts > 1, failure
    return first_batch(start, starts - 1)


def is_whole(progress: Any) -> bool:
    """Return whether a batch has read all rows."""
    return bool(progress["numInputRows"] == ROWS)


def drain(spark: Any, queues: Queues, checkpoint: Path, **more: str) -> None:
    """Publish everything in `source` to `out`."""
    rows = stream_of(spark, queues)
    sink = rows.writeStream.format("warren").options(
        **queues.options(routingKey=queues.out, **more)
    )
    run_to_the_end(sink, checkpoint)


def test_the_broker_names_the_query_and_the_batch_that_read_a_claim(
    spark: Any, queues: Queues, tmp_path: Path
) -> None:
    rows = stream_of(spark, queues, readerId="r")
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    name = "all <br/> orders (ж)"
    for turn in range(2):
        queues.publish(turn * ROWS)
        query = first_batch(
            lambda: writer.queryName(name).trigger(processingTime="0 seconds").start()
        )
        (progress,) = [each for each in query.recentProgress if is_whole(each)]
        until(lambda: queues.claimed() == 0, "not settled")
        query.stop()
        found = queues.read_by()
        assert found is not None
        assert found[1:] == (query.id, name, progress["batchId"])
    with queues.cluster.connect() as connection:
        (reader,) = Admin(connection).queues.get(queues.source).readers
    assert found[0] == reader.settled


@pytest.mark.parametrize("more", [{}, {"sinkId": "mine"}])
def test_a_new_checkpoint_with_a_fixed_sink_id_publishes_its_rows(
    spark: Any, queues: Queues, tmp_path: Path, more: dict[str, str]
) -> None:
    for turn in range(2):
        queues.publish(turn * ROWS)
        drain(spark, queues, tmp_path / "checkpoint", **more)
        shutil.rmtree(tmp_path / "checkpoint")  # as users do
        assert (queues.ready(queues.source), queues.ready(queues.out)) == (0, (turn + 1) * ROWS)


class Foreach:
    """A query with a foreachBatch that publishes, and may then fail."""

    def __init__(self, spark: Any, queues: Queues, checkpoint: Path) -> None:
        self.spark, self.queues, self.checkpoint = spark, queues, checkpoint
        self.batches: list[int] = []

    def run(self, fail_after_publish: bool = False, **more: str) -> None:
        def one_batch(frame: Any, batch: int) -> None:
            if frame.isEmpty():
                return
            self.batches.append(batch)
            numbered = {**more, "batchId": str(batch)} if "batchId" in more else more
            # A shuffle: the same rows, in an order of their own every time.
            write(frame.repartition(2), self.queues, sinkId="mine", **numbered)
            if fail_after_publish:
                raise RuntimeError("after the publish, before the commit log")

        rows = stream_of(self.spark, self.queues)
        run_to_the_end(rows.writeStream.foreachBatch(one_batch), self.checkpoint)


@pytest.mark.parametrize(
    "more", [{}, pytest.param({"batchId": "the micro-batch's"}, marks=pytest.mark.long)]
)
def test_foreach_batch_publishes_a_batch_once_and_again_under_a_new_checkpoint(
    spark: Any, queues: Queues, tmp_path: Path, more: dict[str, str]
) -> None:
    for turn in range(2):
        queues.publish(turn * ROWS)
        query = Foreach(spark, queues, tmp_path / "checkpoint")
        with pytest.raises(Exception, match="before the commit log"):
            query.run(fail_after_publish=True, **more)
        query.run(**more)
        assert query.batches[0] == query.batches[1], "the batch was run twice"
        shutil.rmtree(tmp_path / "checkpoint")
        assert (queues.ready(queues.source), queues.ready(queues.out)) == (0, (turn + 1) * ROWS)


# ------------------------------------------------------------ claimTtl


class ToParquet:
    """A processing-time query with claimTtl into a table.

    The first batch of a run reads, the second one comes in years: triggers are at multiples of
    their interval since 1970, so a short one could follow the first batch at once. The checkpoint
    has its first batch, without rows, before there are messages.
    """

    def __init__(self, spark: Any, queues: Queues, directory: Path) -> None:
        self.spark, self.queues, self.directory = spark, queues, directory
        run_to_the_end(self._writer(), directory / "checkpoint")

    def _writer(self, **more: str) -> Any:
        given = {"readerId": "r", "claimTtl": "10s", **more}
        rows = stream_of(self.spark, self.queues, **given)
        return rows.writeStream.format("parquet").option("path", str(self.directory / "rows"))

    def start(self, every: str = "36500 days", **more: str) -> Any:
        return (
            self._writer(**more)
            .trigger(processingTime=every)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .start()
        )

    def rows(self) -> int:
        return self.spark.read.parquet(str(self.directory / "rows")).count()


def test_a_claim_that_expired_after_its_batch_was_committed_is_told_and_not_read_silently(
    spark: Any, queues: Queues, tmp_path: Path
) -> None:
    # 200 rows for 100 messages, without an error: the settle of the expired claim was accepted.
    table = ToParquet(spark, queues, tmp_path)
    queues.publish()
    query = first_batch(table.start)
    query.stop()  # its batch is committed, and not yet settled
    assert table.rows() == ROWS
    until(lambda: queues.ready(queues.source) == ROWS, "the claim does not expire")
    query = table.start()
    with pytest.raises(Exception, match=r"WARREN_CLAIM_LOST.*is committed: .* a second time"):
        query.awaitTermination(60)
    assert (table.rows(), queues.ready(queues.source)) == (ROWS, ROWS)
    query = table.start("0 seconds", onClaimLost="continue")  # a query that says so gets them again
    until(lambda: query.exception() is not None or table.rows() == 2 * ROWS, "nothing is read")
    until(lambda: query.exception() is not None or queues.ready(queues.source) == 0, "not settled")
    query.stop()


def test_a_claim_whose_driver_lives_does_not_expire(
    spark: Any, queues: Queues, tmp_path: Path
) -> None:
    table = ToParquet(spark, queues, tmp_path)
    queues.publish()
    query = first_batch(lambda: table.start(claimTtl="20s"))  # a machine may stand for half of it
    heard = {queues.heard_ms()}  # renewals, over more than the time to live

    def lived() -> bool:
        heard.add(queues.heard_ms())
        return max(heard) - min(heard) > 25_000

    until(lived, "the claim is not renewed")
    query.stop()
    assert queues.claimed() == ROWS and len(heard) >= 4


def test_a_query_that_ends_between_decision_and_commit_log_goes_on(
    spark: Any, queues: Queues, tmp_path: Path
) -> None:
    """A task of the first run puts an unreadable entry where Spark wants to write the batch's."""
    checkpoint = tmp_path / "checkpoint"
    entry = checkpoint / "commits" / "0"
    both = {"settleWithBatch": "true"}

    def blocking(batches: Any) -> Any:
        entry.touch()
        yield from batches

    def drain_all(blocks: bool) -> None:
        rows = stream_of(spark, queues, **both)
        rows = rows.mapInArrow(blocking, "body binary") if blocks else rows
        given = queues.options(routingKey=queues.out, **both)
        run_to_the_end(rows.writeStream.format("warren").options(**given), checkpoint)

    queues.publish()
    with pytest.raises(StreamingQueryException):
        drain_all(True)
    assert entry.stat().st_size == 0
    assert (queues.claimed(), queues.ready(queues.source), queues.ready(queues.out)) == (0, 0, ROWS)
    entry.unlink()
    queues.publish(ROWS)
    drain_all(False)
    assert queues.ready(queues.out) == 2 * ROWS
    assert (queues.claimed(), queues.ready(queues.source)) == (0, 0)


# ------------------------------------------------------------ other options at a restart


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"sinkId": "another"}, r"sinkId=mine \(now another\)"),
        pytest.param(
            {"runId": "another"}, r"runId=[-0-9a-f]{36} \(now another\)", marks=pytest.mark.long
        ),
        ({"routingKey": "{more}"}, r"routingKey=out-\w+ \(now more-\w+\)"),
        pytest.param(
            {"exchange": "amq.direct"}, r"exchange=\"\" \(now amq.direct\)", marks=pytest.mark.long
        ),
        pytest.param(
            {"atomicBatch": "false"}, r"atomicBatch=True \(now False\)", marks=pytest.mark.long
        ),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_published_batch_was_published_again_under_other_options(
    spark: Any, queues: Queues, tmp_path: Path, changed: dict[str, str], text: str
) -> None:
    """A query that ends between its publication and the commit log, as above."""
    more = queues.out.replace("out", "more")
    with queues.cluster.connect() as connection:
        Admin(connection).queues.declare(more)
        for key in (queues.out, more):
            Admin(connection).bindings.put("amq.direct", destination_queue=key, routing_key=key)
    changed = {name: value.format(more=more) for name, value in changed.items()}
    entry = tmp_path / "commits" / "0"

    def blocking(batches: Any) -> Any:
        entry.touch()
        yield from batches

    def drain_all(blocks: bool = False, **given: str) -> None:
        rows = stream_of(spark, queues)
        rows = rows.mapInArrow(blocking, "body binary") if blocks else rows
        given = queues.options(**{"routingKey": queues.out, "sinkId": "mine", **given})
        run_to_the_end(rows.writeStream.format("warren").options(**given), tmp_path)

    queues.publish()
    with pytest.raises(StreamingQueryException):
        drain_all(blocks=True)
    entry.unlink()
    assert queues.ready(queues.out) == ROWS
    with pytest.raises(StreamingQueryException, match=f"WARREN_SINK_CHANGED.*{text}"):
        drain_all(**changed)
    drain_all()  # the former options: what was published is not published again
    assert (queues.ready(queues.out), queues.ready(more), queues.claimed()) == (ROWS, 0, 0)
    queues.publish(ROWS)
    drain_all(**changed)  # at the end of a run they may change
    assert queues.ready(queues.out) + queues.ready(more) == 2 * ROWS


def test_a_published_batch_was_published_again_under_another_sink_id_the_checkpoint_elsewhere(
    spark: Any, queues: Queues, tmp_path: Path
) -> None:
    """The sink is not told where the checkpoint is, so the queue says what the query published."""
    entry = tmp_path / "q" / "commits" / "0"

    def blocking(batches: Any) -> Any:
        entry.touch()
        yield from batches

    def drain_all(sink: str, blocks: bool = False, **more: str) -> None:
        rows = stream_of(spark, queues)
        rows = rows.mapInArrow(blocking, "body binary") if blocks else rows
        given = queues.options(routingKey=queues.out, sinkId=sink, **more)
        writer = rows.writeStream.format("warren").options(**given).queryName("q")
        run_to_the_end(writer)

    queues.publish()
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        with pytest.raises(StreamingQueryException):
            drain_all("mine", blocks=True)
        entry.unlink()
        with pytest.raises(StreamingQueryException, match=r"WARREN_SINK_CHANGED.*sinkId=mine"):
            drain_all("another")
        drain_all("mine")
        assert (queues.ready(queues.out), queues.claimed()) == (ROWS, 0)
        queues.publish(ROWS)
        drain_all("another")
        assert queues.ready(queues.out) == 2 * ROWS
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
