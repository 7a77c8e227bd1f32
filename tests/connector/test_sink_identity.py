"""What the checkpoint says of the batch that a streaming sink published last."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from pyspark_warren.errors import SinkChangedError
from pyspark_warren.options import Options, parse_options
from pyspark_warren.sink_identity import IDENTITY_FILE, last_batch, note_identity


def sink(checkpoint: Path | str, **more: str) -> Options:
    given = {"broker": "warren", "routingKey": "out", "checkpointLocation": str(checkpoint)}
    return parse_options({**given, **more}, "write", "stream")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One that has begun batches 0 to 10."""
    (tmp_path / "offsets").mkdir()
    for number in range(11):
        (tmp_path / "offsets" / str(number)).touch()
        (tmp_path / "offsets" / f".{number}.crc").touch()
    return tmp_path


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
    assert {each.name for each in checkpoint.iterdir()} == {"offsets", IDENTITY_FILE}


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
