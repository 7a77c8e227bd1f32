"""What the checkpoint says of the batch that a streaming sink published last."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from pyspark_warren.errors import SinkChangedError
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.sink.identity import (
    IDENTITY_FILE,
    last_batch,
    note_identity,
    refuse_other_sinks,
)
from warren.stages import SinkDriver

QUERY = "0c9f3a0e-5bd5-4b44-9d4f-5a3c3b8e7f10"


def sink(checkpoint: Path | str, **more: str) -> Options:
    given = {"broker": "warren", "routingKey": "out", "checkpointLocation": str(checkpoint)}
    return parse_options({**given, **more}, "write", "stream")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One that has begun batches 0 to 10."""
    begin(tmp_path, QUERY, 11)
    return tmp_path


def begin(checkpoint: Path, query: str, batches: int, log: str = "") -> None:
    """Write what Spark has of a query that has begun so many batches; log: is in each."""
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    (checkpoint / "offsets").mkdir(exist_ok=True)
    for each in (checkpoint / "offsets").iterdir():
        each.unlink()
    for number in range(batches):
        (checkpoint / "offsets" / str(number)).write_text(f"{log}{number}")
        (checkpoint / "offsets" / f".{number}.crc").touch()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("exchange", {"exchange": "e"}),
        ("routingKey", {"routingKey": "b"}),
        ("sinkId", {"sinkId": "s"}),
        ("runId", {"sinkId": "s", "runId": "r"}),
        ("atomicBatch", {"atomicBatch": "false"}),
        ("vhost", {"vhost": "v"}),
        ("broker", {"broker": "amqp"}),
    ],
)
def test_a_batch_under_other_options_is_refused_and_the_next_one_is_not(
    checkpoint: Path, name: str, more: dict[str, str]
) -> None:
    note_identity(sink(checkpoint), 7)
    note_identity(sink(checkpoint, hosts="b1,b2", confirmTimeout="5s"), 7)
    with pytest.raises(SinkChangedError, match=rf"batch 7 of .*{name}="):
        note_identity(sink(checkpoint, **more), 7)
    note_identity(sink(checkpoint, **more), 8)
    with pytest.raises(SinkChangedError, match="batch 8 of"):
        note_identity(sink(checkpoint), 8)
    with pytest.raises(SinkChangedError, match="batch 7 of"):  # an older copy of Spark's logs
        note_identity(sink(checkpoint), 7)
    note_identity(sink(checkpoint, onSinkChange="continue"), 8)
    note_identity(sink(checkpoint), 8)


def test_a_driver_that_stood_still_does_not_set_the_number_back(checkpoint: Path) -> None:
    """1. It stands still before it publishes batch 7.  2. Another one ends in batch 9, published.
    3. The first one continues.  4. Batch 9 is to be published elsewhere."""
    note_identity(sink(checkpoint), 9)
    note_identity(sink(checkpoint), 7)
    with pytest.raises(SinkChangedError, match="batch 9 of"):
        note_identity(sink(checkpoint, routingKey="b"), 9)


def test_a_file_that_cannot_be_read_is_written_again(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for damaged in (b"", b"[]", b'{"batch": 7}', b"\xff", b'{"batch": "x", "identity": {}}'):
        (checkpoint / IDENTITY_FILE).write_bytes(damaged)
        with caplog.at_level(logging.WARNING):
            note_identity(sink(checkpoint), 7)
        assert "cannot be read" in caplog.text
        with pytest.raises(SinkChangedError):
            note_identity(sink(checkpoint, routingKey="b"), 7)
        caplog.clear()
    assert names_in(checkpoint) == {"metadata", "offsets", IDENTITY_FILE}


def names_in(checkpoint: Path) -> set[str]:
    return {each.name for each in checkpoint.iterdir()}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"exchange": ""}),
        ({}, {"ROUTINGKEY": "out", "SinkID": "", "vhost": "/", "atomicBatch": "true"}),
        ({"sinkId": QUERY}, {}),
        ({"sinkId": "s"}, {"sinkId": "s", "runId": QUERY}),
        ({"hosts": "b1,b2", "user": "a"}, {"uri": "amqps://b:c@b2,b1,b3/%2F"}),
    ],
)
def test_a_default_that_is_given_is_no_change(
    checkpoint: Path, one: dict[str, str], other: dict[str, str]
) -> None:
    note_identity(sink(checkpoint, **one), 7)
    note_identity(sink(checkpoint, **other), 7)
    note_identity(sink(checkpoint, **one), 7)


def test_the_default_exchange_of_all_rows_is_not_that_of_rows_without_one(checkpoint: Path) -> None:
    by_columns = {"broker": "warren", "checkpointLocation": str(checkpoint)}
    note_identity(parse_options(by_columns, "write", "stream"), 7)
    with pytest.raises(SinkChangedError, match=r'exchange=none \(now ""\)'):
        note_identity(parse_options({**by_columns, "exchange": ""}, "write", "stream"), 7)


def test_a_batch_of_a_query_that_lost_its_id_is_refused(checkpoint: Path) -> None:
    """Its run was the id: under a new one the queues do not recognise the batch."""
    note_identity(sink(checkpoint), 10)
    begin(checkpoint, "another", 11)
    with pytest.raises(SinkChangedError, match=f"runId={QUERY} .now another"):
        note_identity(sink(checkpoint), 10)
    begin(checkpoint, "another", 12)
    note_identity(sink(checkpoint), 11)


def test_what_an_earlier_query_has_left_in_the_directory_refuses_nothing(checkpoint: Path) -> None:
    """Spark's logs were removed, and this file was not."""
    for batch in (0, 2, 10):  # the other one has not come so far, or just so far, or further
        begin(checkpoint, QUERY, 11)
        (checkpoint / IDENTITY_FILE).unlink(missing_ok=True)
        note_identity(sink(checkpoint), batch)
        begin(checkpoint, "another", 3, "later")
        note_identity(sink(checkpoint), 2)
        with pytest.raises(SinkChangedError, match="batch 2 of"):
            note_identity(sink(checkpoint, routingKey="b"), 2)


def test_a_directory_in_the_place_of_the_file_stops_no_query(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (checkpoint / IDENTITY_FILE).mkdir()
    note_identity(sink(checkpoint), 7)
    assert "so changed sink options are not detected" in caplog.text
    assert names_in(checkpoint) == {"metadata", "offsets", IDENTITY_FILE}


def test_a_queue_is_asked_again_when_the_process_has_another_sink(tmp_path: Path) -> None:
    """1. Sink a ends in batch 7, published.  2. Sink b is let through, to batch 9, likewise.
    3. Sink a is started again, in the same process."""
    last = {"a": 7}

    def publish(name: str, batch: int, **more: str) -> None:
        options, driver = sink("hdfs:///c", sinkId=name, **more), SinkDriver(name, QUERY, 1)
        refuse_other_sinks(options, driver, batch, ["q"], lambda queue, run: last)
        last[name] = batch

    publish("a", 7)
    with pytest.raises(SinkChangedError, match="sinkId=a .now b"):
        publish("b", 7)
    publish("b", 7, onSinkChange="continue")
    publish("b", 9)
    with pytest.raises(SinkChangedError, match="sinkId=b .now a"):
        publish("a", 9)


def test_what_another_release_notes_besides_is_no_change(checkpoint: Path) -> None:
    note_identity(sink(checkpoint), 7)
    noted = json.loads((checkpoint / IDENTITY_FILE).read_text())
    del noted["identity"]["vhost"]
    noted["identity"]["of another release"] = 1
    (checkpoint / IDENTITY_FILE).write_text(json.dumps(noted))
    note_identity(sink(checkpoint), 7)
    with pytest.raises(SinkChangedError, match="routingKey=out"):
        note_identity(sink(checkpoint, routingKey="b"), 7)


def test_only_a_directory_of_spark_is_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    assert last_batch(sink(checkpoint)) == last_batch(sink(checkpoint.as_uri())) == 10
    empty = tmp_path / "elsewhere"
    for where in ("", "hdfs:///c", "s3a://bucket/c", str(empty)):
        given = sink(where)
        assert last_batch(given) is None
        note_identity(given, 7)
        note_identity(sink(where, routingKey="b"), 7)
    assert not empty.exists()
