"""What a sink's attempts leave behind: stages, of which the driver publishes winners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_world.fake import FakeBroker, FakeClient
from spark_world.offsets import standing, text

from pyspark_warren.claims.offset import ClaimInfo
from pyspark_warren.errors import SameQueueError
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.sink.checkpoint import refuse_checkpoint_queues
from pyspark_warren.sink.writer import Attempt, WrittenPart, write_direct, write_staged
from warren.errors import Unroutable
from warren.stages import SinkDriver

OPTIONS = parse_options({"routingKey": "out"}, "write")
DRIVER = SinkDriver("s", "r", 1)
BY_COLUMNS = parse_options({}, "write")


@pytest.fixture
def broker() -> FakeBroker:
    """Queues `out` and `more`; exchange "x" leads key k to both."""
    made = FakeBroker()
    made.declare("out")
    made.declare("more")
    made.bind("x", "k", "out")
    made.bind("x", "k", "more")
    return made


def batch(*bodies: bytes, **columns: Any) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "body": pa.array(bodies, pa.binary()),
            **{name: pa.array(values) for name, values in columns.items()},
        }
    )


def write(
    broker: FakeBroker, attempt: Attempt, *rows: pa.RecordBatch, options: Options = OPTIONS
) -> WrittenPart:
    return write_staged(FakeClient.local(broker), options, attempt, iter(rows))


def publish(broker: FakeBroker, *parts: WrittenPart) -> None:
    stages = [stage for part in parts for stage in part.stages]
    FakeClient.local(broker).publish_batch(parts[0].driver, parts[0].batch, stages, 1)


def test_two_attempts_at_once_only_the_winner_shows(broker: FakeBroker) -> None:
    first, second = Attempt.drawn(DRIVER, 1, 0), Attempt.drawn(DRIVER, 1, 0)
    assert first.number != second.number
    write(broker, first, batch(b"a", b"b"))
    winner = write(broker, second, batch(b"a", b"b"))
    assert broker.bodies("out") == []
    publish(broker, winner)
    assert broker.bodies("out") == [b"a", b"b"]
    assert broker.state("out")["staged"] == 0


def test_an_attempt_after_a_crash_does_not_meet_its_predecessor(broker: FakeBroker) -> None:
    write(broker, Attempt.drawn(DRIVER, 1, 0), batch(b"a", b"b"))  # and its driver died
    publish(broker, write(broker, Attempt.drawn(DRIVER, 1, 0), batch(b"b"), batch(b"a")))
    assert broker.bodies("out") == [b"b", b"a"]


def test_a_batch_that_was_published_is_not_published_again(broker: FakeBroker) -> None:
    publish(broker, write(broker, Attempt.drawn(DRIVER, 1, 0), batch(b"a")))
    publish(broker, write(broker, Attempt.drawn(DRIVER, 1, 0), batch(b"a")))
    assert broker.bodies("out") == [b"a"]


def test_partitions_in_their_order(broker: FakeBroker) -> None:
    parts = [write(broker, Attempt.drawn(DRIVER, 1, n), batch(b"%d" % n)) for n in (2, 0, 1)]
    publish(broker, *sorted(parts, key=lambda part: part.partition))
    assert broker.bodies("out") == [b"0", b"1", b"2"]


def test_an_empty_partition_stages_nothing(broker: FakeBroker) -> None:
    assert write(broker, Attempt.drawn(DRIVER, 1, 0), batch()).stages == ()


def test_rows_of_several_exchanges_keep_their_order_in_each(broker: FakeBroker) -> None:
    part = write(
        broker,
        Attempt.drawn(DRIVER, 1, 0),
        batch(
            b"1",
            b"2",
            b"3",
            b"4",
            exchange=["", "x", "x", None],
            routing_key=["out", "k", "k", "out"],
        ),
        options=BY_COLUMNS,
    )
    assert len(part.stages) == 2 and len({stage.attempt for stage in part.stages}) == 2
    publish(broker, part)
    assert sorted(broker.bodies("out")) == [b"1", b"2", b"3", b"4"]
    assert broker.bodies("more") == [b"2", b"3"]


def test_priorities_order_what_is_published(broker: FakeBroker) -> None:
    publish(
        broker,
        write(
            broker,
            Attempt.drawn(DRIVER, 1, 0),
            batch(b"low", b"high", b"none", priority=[1, 9, None]),
        ),
    )
    assert broker.bodies("out") == [b"high", b"none", b"low"]


def test_no_route_is_an_error_and_nothing_shows(broker: FakeBroker) -> None:
    with pytest.raises(Unroutable):
        write(
            broker,
            Attempt.drawn(DRIVER, 1, 0),
            batch(b"a", routing_key=["nowhere"]),
            options=BY_COLUMNS,
        )
    assert broker.bodies("out") == []


def test_straight_away_a_rerun_gives_the_same_ids(broker: FakeBroker) -> None:
    attempts = [Attempt.drawn(DRIVER, 1, 3), Attempt.drawn(DRIVER, 1, 3)]
    for attempt in attempts:
        write_direct(FakeClient.local(broker), OPTIONS, attempt, iter([batch(b"a"), batch(b"b")]))
    from pyspark_warren.rows.properties import decode_properties

    queue = broker.queues["out"]
    ids = [
        decode_properties(
            bytes(queue.blocks[m.index].properties(m.ordinal)), frozenset({"message_id"})
        )["message_id"]
        for m in queue.ready
    ]
    assert ids == ["s-r-1-3-0", "s-r-1-3-1"] * 2


# ------------------------------------------------------------------ a query that reads its own rows


def test_rows_from_a_queue_are_not_published_into_it_unless_asked(broker: FakeBroker) -> None:
    broker.bind("y", "k", "out")
    rows = batch(b"a", queue=["out"])
    for more in ({"routingKey": "out"}, {"exchange": "y", "routingKey": "k"}):
        with pytest.raises(SameQueueError, match=r"reads queue 'out'.*allowLoop=true"):
            write(broker, Attempt.drawn(DRIVER, 1, 0), rows, options=parse_options(more, "write"))
        looped = parse_options({**more, "allowLoop": "true"}, "write")
        assert write(broker, Attempt.drawn(DRIVER, 1, 0), rows, options=looped).rows == 1
    assert write(broker, Attempt.drawn(DRIVER, 1, 0), batch(b"a", queue=["in"])).rows == 1


def checkpoint_of(directory: Path, queue: str, reader: str) -> str:
    (directory / "offsets").mkdir(exist_ok=True)
    offset = standing(reader, 1, (ClaimInfo(1, 5, 50),), queue)
    (directory / "offsets" / "7").write_text(
        f'v1\n{{"batchWatermarkMs":0}}\n{text(offset)}\n{{"logOffset":4}}\n-'
    )
    return str(directory)


def test_the_checkpoint_says_what_a_query_reads(broker: FakeBroker, tmp_path: Path) -> None:
    broker.register("out", "reader-1")
    look = FakeClient.local(broker).queue
    at = checkpoint_of(tmp_path, "out", "reader-1")
    for place in (at, f"file:{at}", f"file://{at}"):
        given = parse_options({"routingKey": "out", "checkpointLocation": place}, "write")
        with pytest.raises(SameQueueError):
            refuse_checkpoint_queues(given, 7, ["more", "out"], look)
        refuse_checkpoint_queues(given, 7, ["more"], look)
        refuse_checkpoint_queues(given, 8, ["out"], look)
    refuse_checkpoint_queues(
        parse_options({"allowLoop": "true", "checkpointLocation": at}, "write"), 7, ["out"], look
    )
    # A queue of the same name elsewhere: this one does not know the reader.
    checkpoint_of(tmp_path, "out", "reader-of-another-cluster")
    refuse_checkpoint_queues(parse_options({"checkpointLocation": at}, "write"), 7, ["out"], look)
    for place in ("s3a://bucket/c", "", "/nowhere", "file://host/c"):
        refuse_checkpoint_queues(
            parse_options({"checkpointLocation": place}, "write"), 7, ["out"], look
        )
