"""Several queues of a RabbitMQ as one stream: drivers and receivers die, queues join and leave."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.amqp.query import SCHEMA, Query, Queue, run_until_it_dies
from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import eventually
from pyspark_warren.errors import BrokerRefusedError, CheckpointError, OptionError
from pyspark_warren.figures import progress
from pyspark_warren.options.options import parse_options
from pyspark_warren.spool.offset import SpoolOffset, SpoolPosition
from pyspark_warren.spool.read import read_spooled


class QueuesQuery(Query):
    """A query that reads several queues; its sink has (queue, body, index) by batch number."""

    driver: Any

    def __init__(self, queues: Sequence[Queue], directory: Path, **more: str) -> None:
        super().__init__(queues[0], directory, **more)
        del self.given["queue"]
        self.queues: list[Queue] = []
        self.read_also(*queues)

    def read_also(self, *queues: Queue) -> None:
        """Name these queues, too, from the next driver on."""
        self.queues += queues
        self.given["queues"] = ",".join(queue.name for queue in self.queues)

    def pid_of(self, queue: Queue) -> int:
        """The process of the receiver of one queue."""
        return int(self.driver.queues[queue.name].lane.pid)

    def _batch(self, number: int) -> None:
        rows: list[Any] = []
        for part in self.driver.plan(*self.offsets[number]):
            for batch in read_spooled(self.given["spoolLocation"], part, SCHEMA, None):
                rows += [
                    (part.queue, row["body"], row["position"]["index"]) for row in batch.to_pylist()
                ]
        self._pass("in_write")
        assert self.sink.setdefault(number, rows) == rows, "a batch has other rows now"
        self._pass("written")
        self.commits = number + 1
        self._pass("commit_log")

    def rows_of(self, number: int) -> Counter[str]:
        """Rows of a batch by queue."""
        return Counter(row[0] for row in self.sink[number])

    def check(self, lost: int = 0) -> None:
        """Every message of every queue in one committed row, each queue's rows in order."""
        out = [row for number in range(self.commits) for row in self.sink[number]]
        for queue in self.queues:
            bodies = [body for name, body, _ in out if name == queue.name]
            assert sorted(bodies) == queue.bodies, (queue.name, len(bodies), len(queue.bodies))
            places = [place for name, _, place in out if name == queue.name]
            assert places == list(range(len(places))), "rows out of order or skipped"
        assert len(out) == sum(len(queue.bodies) for queue in self.queues)


@pytest.mark.live
@pytest.mark.long
@pytest.mark.parametrize("mode", ["commit", "spool"])
def test_drivers_that_die_at_any_step(rabbitmq: OneRabbitMQ, tmp_path: Path, mode: str) -> None:
    """Eight drivers over three queues, one of which joins late; receivers may outlive them."""
    rng = random.Random(f"several-{mode}")
    queues = [Queue(rabbitmq) for _ in range(3)]
    with QueuesQuery(queues[:2], tmp_path, ackMode=mode, pollInterval="200ms") as query:
        for life in range(8):
            if life == 3:
                query.read_also(queues[2])
            for queue in query.queues:
                queue.publish(rng.randint(0, 40))
            trigger = "once" if rng.random() < 0.3 else "available"
            run_until_it_dies(query, rng, rng.choice([7, 40, 1000]), trigger)
        query.end_abandoned()
        for _ in range(3):  # joins, reads, settles
            query.run(1000)
        query.stop()
        query.check()
        for queue in queues:
            queue.check_empty()


@pytest.mark.live
def test_a_receiver_is_killed_beside_others(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """kill -9 of one queue's receiver; the other queue's stays, and nothing is doubled."""
    queues = [Queue(rabbitmq) for _ in range(2)]
    with QueuesQuery(queues, tmp_path, pollInterval="3s") as query:
        for queue in queues:
            queue.publish(30)
        query.run(1000, "waits")
        pids = [query.pid_of(queue) for queue in queues]
        driver, at = query.driver, query.offsets[-1][1]
        os.kill(pids[0], signal.SIGKILL)
        for queue in queues:
            queue.publish(20)
        for _ in range(50):
            end = driver.latest(at, 1000)
            if end != at:
                query.offsets.append((at, end))
                query._batch(len(query.offsets) - 1)
            at = end
            if sum(len(rows) for rows in query.sink.values()) == 100:
                break
        query.check()
        none_ready = {queue.name: 0 for queue in queues}
        eventually(lambda: driver.backlog()["queues"] == none_ready, "the counts of both queues")
        assert query.pid_of(queues[0]) != pids[0] and query.pid_of(queues[1]) == pids[1]


@pytest.mark.live
@pytest.mark.parametrize(("sharing", "parts"), [("fair", (10, 40)), ("backlog", (3, 47))])
def test_the_limit_is_divided(
    rabbitmq: OneRabbitMQ, tmp_path: Path, sharing: str, parts: tuple[int, int]
) -> None:
    """A queue with little is not starved by one with much: 10 and 300 messages, 50 a batch."""
    queues = [Queue(rabbitmq) for _ in range(2)]
    for queue, count in zip(queues, (10, 300), strict=True):
        queue.publish(count)
    with QueuesQuery(queues, tmp_path, queueSharing=sharing) as query:
        # The receivers have everything in their spools before the first batch is cut.
        query.run(None, "once")
        assert query.rows_of(0) == {queues[0].name: 10, queues[1].name: 300}
        query.stop()
        cut = {queue.name: SpoolPosition(queue.name, "r") for queue in queues}
        driver = query._made()
        for queue, ends in zip(queues, (10, 300), strict=True):
            driver.queues[queue.name].lane = _Received(ends)
        found = driver._cut(cut, 50)
        assert tuple(found[queue.name].row for queue in queues) == parts


class _Received:
    """A lane with so many durable rows of 100 bytes, each in a file of its own."""

    def __init__(self, end: int) -> None:
        self.base, self.end = 0, end
        self.reports = [(at + 1, 100) for at in range(end)]


@pytest.mark.live
def test_a_queue_leaves_only_when_it_is_gone(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """Named no more: refused with the queue's name; deleted: the others continue."""
    queues = [Queue(rabbitmq) for _ in range(2)]
    for queue in queues:
        queue.publish(5)
    with QueuesQuery(queues, tmp_path) as query:
        query.run(1000)
        query.given["queues"] = queues[0].name
        with pytest.raises(CheckpointError, match=f"reads queue '{queues[1].name}'.*name the"):
            query.run(1000)
        query.stop()
        queues[1].delete()
        queues[0].publish(5)
        query.run(1000)
        query.stop()
        query.check()
        query.given["queues"] += f",{queues[1].name}"
        with pytest.raises(BrokerRefusedError, match=queues[1].name):
            query.run(1000)


@pytest.mark.live
def test_a_checkpoint_of_one_queue_continues_with_several(
    rabbitmq: OneRabbitMQ, tmp_path: Path
) -> None:
    """`queue`, then `queues`: no row twice; back to `queue` is refused while the other is there."""
    queues = [Queue(rabbitmq) for _ in range(2)]
    queues[0].publish(12)
    with Query(queues[0], tmp_path) as one:
        one.run(5)
    last = one.offsets[-1][1]
    with QueuesQuery(queues, tmp_path) as query:
        start = SpoolOffset.from_dict(last.to_dict())
        query.offsets, query.commits = [(start, start)], 1
        query.sink[0] = [
            (queues[0].name, body, at) for rows in one.sink.values() for body, at in rows
        ]
        for queue in queues:
            queue.publish(9)
        query.run(1000)
        query.check()
        end = query.offsets[-1][1]
    with Query(queues[0], tmp_path) as one:
        one.offsets, one.commits = [(end, end)], 1
        with pytest.raises(CheckpointError, match=f"reads queue '{queues[1].name}'.*option queues"):
            one.run(5)


@pytest.mark.live
@pytest.mark.spark
def test_spark_reads_two_queues(rabbitmq: OneRabbitMQ, spark: Any, tmp_path: Path) -> None:
    """The column queue names the queue, and the progress has the sums."""
    queues = [Queue(rabbitmq) for _ in range(2)]
    for queue, count in zip(queues, (20, 30), strict=True):
        queue.publish(count)
    source = spark.readStream.format("warren").options(
        hosts=rabbitmq.hosts,
        queues=",".join(queue.name for queue in queues),
        spoolLocation=str(tmp_path / "spool"),
    )
    query = (
        source.load()
        .select("queue", "body")
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    found = sorted((row.queue, bytes(row.body)) for row in rows)
    assert found == sorted((queue.name, body) for queue in queues for body in queue.bodies)
    read = [each for each in map(progress, query.recentProgress) if each["rows"]]
    assert read and all(each["sources"][0]["kind"] == "spool" for each in read)


def test_what_is_refused_before_a_query_begins() -> None:
    """Patterns, streams and too many queues, each with the remedy."""
    given = {"broker": "amqp", "hosts": "a", "spoolLocation": "/spool"}

    def refused(**more: str) -> str:
        with pytest.raises(OptionError) as wrong:
            parse_options({**given, **more}, "read", "stream")
        return str(wrong.value)

    assert "queuePattern is for broker=warren" in refused(queuePattern="a.*")
    many = ",".join(f"q{i}" for i in range(65))
    assert "65 names, 64 is the limit" in refused(queues=many)
    del given["spoolLocation"]
    assert "a query reads one stream" in refused(queues="a,b", startingOffset="first")
    assert len(parse_options({**given, "queues": many[:-4]}, "read", "stream").queues) == 64


NAMES = st.text(min_size=1, max_size=20)


@given(st.dictionaries(NAMES, st.integers(0, 1 << 60), max_size=5), NAMES, st.booleans())
def test_an_offset_is_read_as_it_was_written(
    rows: dict[str, int], reader: str, registered: bool
) -> None:
    """Any queues and rows; what is damaged is refused by name."""
    new = SpoolOffset("/", reader, {}, registered)
    queues = {name: new.of(name, True).at(row) for name, row in rows.items()}
    offset = SpoolOffset("/", reader, queues, registered)
    assert SpoolOffset.from_dict(offset.to_dict()) == offset
    readers = {each.reader for each in offset.queues.values()}
    assert len(readers) == len(rows)
