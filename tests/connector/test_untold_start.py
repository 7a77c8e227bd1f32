"""The calls of Spark 4.0 and 4.1, which do not say where a query stands: in their order, as seen.

`python3 build.py crashes --spark 4.0.5` makes the same orders with kills on the real thing.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.types import StructType
from spark_world.fake import FakeBroker, FakeClient

from pyspark_warren.errors import OptionError, UnsupportedError
from pyspark_warren.options.options import parse_options
from pyspark_warren.source import RefusedStreamReader, WarrenStreamReader

SCHEMA = StructType().add("body", "string").add("queue", "string")
MOST = 4


class Query:
    """A query on one queue or several, run by run, with the logs that Spark has of it.

    ends    the offset log
    rows    what the committed batches have read
    """

    def __init__(self, **given: str) -> None:
        self.broker = FakeBroker()
        self.given = {"maxMessagesPerTrigger": str(MOST), "prefetchClaims": "0", **given}
        for name in ("a", "b"):
            self.broker.declare(name)
        self.ends: list[dict[str, Any]] = []
        self.rows: list[str] = []
        self.run = self.started()

    def started(self) -> WarrenStreamReader:
        """Begin a run; one that continues a checkpoint first tells where that ends."""
        client: Any = FakeClient.local(self.broker)
        reader = WarrenStreamReader(
            parse_options(self.given, "read", "stream"), SCHEMA, lambda _: client
        )
        if self.ends:
            assert reader.partitions(self.ends[-1], self.ends[-1]) == []
        self.run = reader
        return reader

    def logged(self) -> None:
        """Ask for the next end, write the offset log; the batch before is committed then."""
        before = self.ends[-1] if self.ends else None
        end = json.loads(json.dumps(self.run.latestOffset()))
        assert end != before, "nothing was ready"
        self.ends.append(end)
        if before is not None:
            self.run.commit(before)

    def read(self) -> list[str]:
        """Plan the batch of the newest end, and read it."""
        start = self.ends[-2] if len(self.ends) > 1 else self.run.initialOffset()
        tasks = self.run.partitions(start, self.ends[-1])
        return [
            row["body"]
            for task in tasks
            for rows in self.run.read(pickle.loads(pickle.dumps(task)))
            for row in rows.to_pylist()
        ]

    def batch(self) -> list[str]:
        """Plan and read the next batch, and commit it."""
        self.logged()
        found = self.read()
        self.rows += found
        return found

    def settled(self, queue: str = "a") -> int:
        """Return how many messages are settled."""
        return int(self.broker.state(queue)["acknowledged"])

    def publish(self, *bodies: str, queue: str = "a") -> None:
        """Publish messages."""
        self.broker.publish(queue, [body.encode() for body in bodies])


def queue_with(*bodies: str) -> Query:
    query = Query(queue="a")
    query.publish(*bodies)
    return query


def test_the_first_batch_has_rows_within_the_limit() -> None:
    query = queue_with(*"123456")
    first = query.batch()
    assert query.run.initialOffset()["reader"] == query.ends[0]["reader"]
    assert len(first) == MOST, "the run may have no other batch, and a limit of its own"
    assert query.settled() == 0


def test_a_run_says_what_one_batch_leaves(caplog: pytest.LogCaptureFixture) -> None:
    query = queue_with(*"123456789")
    query.batch()
    assert "5 messages are ready beyond the first micro-batch" in caplog.text
    query.started()
    query.batch()
    assert "1 messages are ready beyond the first micro-batch" in caplog.text
    caplog.clear()
    query.batch()
    query.started()
    query.run.latestOffset()
    assert caplog.text == ""


def test_a_batch_is_settled_at_the_next_call() -> None:
    query = queue_with(*"123456")
    query.batch()
    assert query.settled() == 0
    query.batch()
    assert (query.settled(), sorted(query.rows)) == (MOST, list("123456"))
    assert query.run.latestOffset() == query.ends[-1]
    assert query.settled() == 6


def test_an_unfinished_batch_is_read_before_it_is_settled() -> None:
    query = queue_with(*"123456")
    query.batch()
    query.logged()
    unfinished = query.read()
    query.started()
    assert query.settled() == MOST
    assert query.read() == unfinished
    assert query.settled() == MOST
    query.publish("7")
    assert query.batch() == ["7"]
    assert query.settled() == 6


def test_a_first_batch_is_read_again_from_another_offset() -> None:
    query = queue_with(*"123456")
    query.logged()
    unfinished = query.read()
    query.started()
    assert query.run.initialOffset() != query.ends[0]
    assert query.read() == unfinished
    query.batch()
    assert query.settled() == MOST


def test_a_first_batch_planned_by_another_run_is_limited() -> None:
    query = queue_with(*"123456")
    query.logged()
    query.started()
    assert len(query.read()) == MOST


def test_a_committed_batch_is_settled_by_the_next_run() -> None:
    query = queue_with(*"1234567")
    query.batch()
    query.batch()
    query.started()
    assert query.settled() == MOST
    query.publish("8")
    assert query.batch() == ["8"]
    assert query.settled() == 7


def test_a_claim_that_no_log_has_is_the_next_runs() -> None:
    query = queue_with(*"12345678")
    query.batch()
    lost = query.run.latestOffset()
    query.started()
    query.publish("9")
    query.logged()
    assert query.ends[-1] == lost
    assert sorted(query.rows + query.read()) == list("12345678")


def test_an_idle_source_of_a_union_is_not_planned() -> None:
    query = queue_with(*"12")
    query.batch()
    for _ in range(3):  # the other source has rows: an offset log each time, and a commit
        assert query.run.latestOffset() == query.ends[-1]
        query.run.commit(query.ends[-1])
    query.started()
    assert query.run.latestOffset() == query.ends[-1]
    query.publish("3")
    assert query.batch() == ["3"]


def test_what_was_asked_twice_before_it_was_planned() -> None:
    """Spark's wrapper of the trigger availableNow asks twice."""
    query = queue_with(*"123456")
    query.batch()
    end = query.run.latestOffset()
    assert query.run.latestOffset() == end
    query.ends.append(end)
    assert (query.settled(), sorted(query.rows + query.read())) == (MOST, list("123456"))


def test_a_batch_that_is_committed_without_a_plan() -> None:
    """A join with an empty table: the plan has no scan left."""
    query = queue_with(*"123456")
    query.logged()
    assert query.run.latestOffset() == query.ends[-1]
    query.started()
    query.logged()
    assert query.run.latestOffset() == query.ends[-1]
    assert query.run.latestOffset() != query.ends[-1]


def test_a_run_asked_before_it_is_told_is_refused() -> None:
    query = queue_with(*"123456")
    query.batch()
    client: Any = FakeClient.local(query.broker)
    wrapped = WarrenStreamReader(
        parse_options(query.given, "read", "stream"), SCHEMA, lambda _: client
    )
    wrapped.latestOffset()
    with pytest.raises(UnsupportedError, match="triggerAvailableNowWrapper"):
        wrapped.partitions(query.ends[-1], query.ends[-1])
    query.started()
    query.batch()
    assert sorted(query.rows) == list("123456")


@pytest.mark.parametrize("given", [{"queues": "a,b"}, {"queuePattern": "^[ab]$"}])
def test_several_queues_share_the_first_batch(given: dict[str, str]) -> None:
    query = Query(**given)
    query.publish(*"123456")
    query.publish("x", queue="b")
    assert len(query.batch()) == MOST // 2 + 1
    query.started()
    query.read()
    while len(query.rows) < 7:
        query.batch()
    assert sorted(query.rows) == ["1", "2", "3", "4", "5", "6", "x"]
    query.run.latestOffset()
    assert (query.settled("a"), query.settled("b")) == (6, 1)


def test_a_first_batch_of_an_empty_queue() -> None:
    query = queue_with()
    assert query.batch() == []
    query.publish("1")
    assert query.batch() == ["1"]


def test_a_refused_reader_says_why_at_its_first_call() -> None:
    refused = RefusedStreamReader(OptionError("unknown option"))
    for call in (refused.latestOffset, refused.initialOffset):
        with pytest.raises(OptionError, match="unknown option"):
            call()
    last = {"a": 1}
    assert refused.partitions(last, last) == []
    with pytest.raises(OptionError, match="unknown option"):
        refused.latestOffset()
