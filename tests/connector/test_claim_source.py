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
