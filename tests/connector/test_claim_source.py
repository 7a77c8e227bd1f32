"""Spark's calls of the stream reader, with offsets as JSON, for one queue and for several."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType
from spark_world.fake import FakeBroker, FakeClient

from pyspark_warren.options.options import parse_options
from pyspark_warren.source import WarrenStreamReader
from warren import errors

SCHEMA = StructType().add("body", "string").add("queue", "string")
SELECTIONS = ({"queue": "a"}, {"queues": "a,b"}, {"queuePattern": "^[ab]$"})


def reader_of(broker: FakeBroker, **given: str) -> WarrenStreamReader:
    options = parse_options(given, "read", "stream")
    client: Any = FakeClient.local(broker)
    return WarrenStreamReader(options, SCHEMA, lambda _: client)


def stored(offset: dict[str, Any]) -> dict[str, Any]:
    """The offset as it comes back from Spark's log."""
    return json.loads(json.dumps(offset))


def rows(reader: WarrenStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """The rows of a batch, read by tasks."""
    tasks = [pickle.loads(pickle.dumps(task)) for task in reader.partitions(start, end)]
    return [
        f"{row['queue']} {row['body']}"
        for task in tasks
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("given", SELECTIONS, ids=["queue", "queues", "queuePattern"])
@pytest.mark.parametrize("limit", [ReadMaxRows(10), ReadAllAvailable()], ids=["max", "once"])
def test_a_stream_from_its_first_call_to_the_last_settled_message(
    given: dict[str, str], limit: Any
) -> None:
    broker = FakeBroker()
    queues = ["a"] if "queue" in given else ["a", "b"]
    for name in ("a", "b", "c"):
        broker.declare(name)
    for name in queues:
        broker.publish(name, [b"1", b"2"])
    first = reader_of(broker, **given)
    start = stored(first.initialOffset())
    assert first.initialOffset() == start
    got: list[str] = []
    for _ in range(3):
        end = first.latestOffset(start, limit)
        if end is start:
            break
        end = stored(end)
        planned = rows(first, start, end)
        assert rows(reader_of(broker, **given), start, end) == planned  # a restart in the batch
        got += planned
        first = reader_of(broker, **given)
        first.commit(start)
        start = end
    assert sorted(got) == [f"{name} {body}" for name in queues for body in (1, 2)]
    assert first.latestOffset(start, limit) is start
    assert [broker.state(name)["acknowledged"] for name in queues] == [2] * len(queues)
    assert first.reportLatestOffset()["messages_ready"] == 0


def test_a_first_batch_reads_within_limits() -> None:
    broker = FakeBroker()
    broker.declare("a")
    given = {"queue": "a", "maxMessagesPerTrigger": "3", "prefetchClaims": "0"}
    broker.publish("a", [b"1", b"2", b"3", b"4"])
    lost = reader_of(broker, **given)
    lost.latestOffset(stored(lost.initialOffset()), ReadMaxRows(3))  # before the offset log
    assert broker.state("a")["claims"] == {}
    run = reader_of(broker, **given)
    run.prepareForTriggerAvailableNow()
    broker.publish("a", [b"late"])
    start, end = run.initialOffset(), stored(run.latestOffset(run.initialOffset(), ReadMaxRows(3)))
    first = rows(run, start, end)
    assert (first, rows(reader_of(broker, **given), start, end)) == (["a 1", "a 2", "a 3"], first)
    again = reader_of(broker, **given)  # another run with the trigger has the late message, too
    again.prepareForTriggerAvailableNow()
    assert rows(again, end, again.latestOffset(end, ReadMaxRows(3))) == ["a 4", "a late"]


def test_available_now_counts_a_first_batch() -> None:
    broker = FakeBroker()
    broker.declare("a")
    broker.publish("a", [b"1", b"2", b"3", b"4"])
    run = reader_of(broker, queue="a", maxMessagesPerTrigger="3", prefetchClaims="0")
    run.prepareForTriggerAvailableNow()
    broker.publish("a", [b"late"])
    start, read = stored(run.initialOffset()), []
    while (end := stored(run.latestOffset(start, ReadMaxRows(3)))) != start:
        read.append(rows(run, start, end))
        start = end
    assert read == [["a 1", "a 2", "a 3"], ["a 4"]]


@pytest.mark.parametrize(
    "given",
    [{"queues": "a,b"}, {"queue": "a", "minMessagesPerTrigger": "2"}],
    ids=["several", "minimum"],
)
def test_other_first_batches_are_empty(given: dict[str, str]) -> None:
    broker = FakeBroker()
    for name in ("a", "b"):
        broker.declare(name)
    broker.publish("a", [b"1", b"2"])
    run = reader_of(broker, **given)
    start = stored(run.initialOffset())
    end = stored(run.latestOffset(start, ReadMaxRows(9)))
    assert (rows(run, start, end), broker.state("a")["claims"]) == ([], {})
    assert rows(run, end, run.latestOffset(end, ReadMaxRows(9))) == ["a 1", "a 2"]


@pytest.mark.parametrize(
    "wrong",
    [errors.Unavailable("no node"), errors.AccessRefused("no read access"), errors.NotFound("x")],
    ids=lambda wrong: type(wrong).__name__,
)
@pytest.mark.parametrize("given", SELECTIONS, ids=["queue", "queues", "queuePattern"])
def test_a_backlog_that_is_refused_failed_the_query_after_its_last_batch(
    given: dict[str, str], wrong: errors.WarrenError, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeBroker()

    def refused(*_: object) -> Any:
        raise wrong

    reader = reader_of(broker, **given)
    for name in ("queue", "names"):
        monkeypatch.setattr(broker, name, refused)
    assert reader.reportLatestOffset() is None
