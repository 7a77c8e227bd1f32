"""Option settleWithBatch: which claims a batch settles, what is refused, what a re-run reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_world.fake import FakeBroker, FakeClient
from spark_world.offsets import only, standing, text

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.errors import CheckpointBehindError, OptionError, UnsupportedError
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.sink.checkpoint import claims_of_batch
from pyspark_warren.sink.sink import WarrenStreamWriter, Written
from pyspark_warren.sink.writer import Attempt, write_staged
from pyspark_warren.surroundings import Surroundings
from warren.stages import SinkDriver

BATCH = 7
SCHEMA = StructType([StructField("body", BinaryType())])


class Line:
    """A source with a batch of ten messages that was planned, and the query's checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self.broker = FakeBroker()
        self.broker.declare("in")
        self.broker.declare("out")
        self.broker.publish("in", [b"%d" % i for i in range(15)])
        self.checkpoint = checkpoint
        self.client = FakeClient.local(self.broker)
        driver = self.source()
        self.start = driver.latest(driver.initial(), 10)
        self.end = driver.latest(self.start, 10)
        self.record(text(self.end))

    def record(self, *offsets: str) -> None:
        (self.checkpoint / "offsets").mkdir(exist_ok=True)
        lines = ("v1", '{"batchWatermarkMs":0}', *offsets)
        (self.checkpoint / "offsets" / str(BATCH)).write_text("\n".join(lines))

    def source(self, settles: str = "true") -> ClaimDriver:
        given = parse_options(
            {"queue": "in", "settleWithBatch": settles, "prefetchClaims": "0"}, "read"
        )
        return ClaimDriver(
            self.client, given, Surroundings(lambda: 0, lambda _: None, lambda: "r1")
        )

    def sink(self, **more: str) -> Options:
        given = {"checkpointLocation": str(self.checkpoint), "settleWithBatch": "true"}
        return parse_options({"routingKey": "out", **given, **more}, "write")

    def commit(self, options: Options) -> None:
        writer = WarrenStreamWriter(options, SCHEMA, lambda _: self.client)
        attempt = Attempt.drawn(SinkDriver("s", "r", 1), BATCH, 0)
        rows = pa.record_batch({"body": pa.array([b"%d" % i for i in range(10)], pa.binary())})
        part = write_staged(self.client, options, attempt, iter([rows]))
        writer.commit([Written(part)], BATCH)

    def holds(self) -> tuple[int, dict[str, int], int]:
        """(acknowledged, settled) of the source, ready in the target."""
        state = self.broker.state("in")
        return state["acknowledged"], state["settled"], len(self.broker.bodies("out"))


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def test_publishing_settles_and_the_batch_run_again_reads_nothing(line: Line) -> None:
    line.commit(line.sink())
    assert line.holds() == (10, {"r1": 1}, 10)
    again = line.source()
    assert again.plan(line.start, line.end) == ()
    WarrenStreamWriter(line.sink(), SCHEMA, lambda _: line.client).commit([None], BATCH)
    onward = again.latest(line.end, 10)
    assert (only(onward).reader, only(onward).number, only(onward).claims[0].messages) == (
        "r1",
        2,
        5,
    )
    assert line.holds() == (10, {"r1": 1}, 10)


def test_a_batch_that_was_not_published_is_read_again(line: Line) -> None:
    assert sum(piece.last - piece.first for piece in line.source().plan(line.start, line.end)) == 10
    line.commit(line.sink())  # by the epoch of the driver that has taken over
    assert line.holds() == (10, {"r1": 1}, 10)


def test_a_published_batch_whose_claim_is_open_is_not_published_again(line: Line) -> None:
    """The option is switched on between a batch's publication and the query's next start."""
    line.commit(line.sink(settleWithBatch="false"))
    assert line.holds() == (0, {"r1": 0}, 10)
    assert line.source().plan(line.start, line.end)
    line.commit(line.sink())
    assert line.holds() == (10, {"r1": 1}, 10)


def test_switched_off_at_the_source_too_early_is_an_error_and_loses_nothing(line: Line) -> None:
    line.commit(line.sink())
    with pytest.raises(CheckpointBehindError):
        line.source("false").plan(line.start, line.end)
    assert line.source().plan(line.start, line.end) == ()


def test_a_copy_of_the_checkpoint_that_is_further_behind_is_refused(line: Line) -> None:
    line.commit(line.sink())
    ahead = line.source()
    ahead.settle(ahead.latest(line.end, 10))
    with pytest.raises(CheckpointBehindError):
        line.source().plan(line.start, line.end)


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        ((), "has 0 sources for batch 7"),
        (('{"logOffset":4}',), "has 1 sources for batch 7, 0 of them queues"),
        (("OFFSET", '{"logOffset":4}'), "has 2 sources for batch 7, 1 of them queues"),
        (("OFFSET", "OFFSET"), "has 2 sources for batch 7, 2 of them queues"),
        (("OFFSET", "-"), "has 2 sources"),
    ],
)
def test_a_query_with_other_sources_publishes_nothing(
    line: Line, offsets: tuple[str, ...], says: str
) -> None:
    line.record(*(text(line.end) if each == "OFFSET" else each for each in offsets))
    with pytest.raises(UnsupportedError, match=says):
        line.commit(line.sink())
    assert line.holds() == (0, {"r1": 0}, 0)


def test_a_query_with_a_state_publishes_nothing(line: Line) -> None:
    (line.checkpoint / "state").mkdir()
    with pytest.raises(UnsupportedError, match="has a state"):
        line.commit(line.sink())
    assert line.holds() == (0, {"r1": 0}, 0)


def test_a_source_elsewhere_is_refused(line: Line) -> None:
    end = line.end
    line.record(text(standing("elsewhere", 1, only(end).claims, "in")))
    with pytest.raises(UnsupportedError, match="does not know reader 'elsewhere'"):
        claims_of_batch(line.sink(), BATCH, line.client.queue)
    line.record(text(standing(only(end).reader, 1, only(end).claims, "in", "other")))
    with pytest.raises(UnsupportedError, match="reads vhost 'other' and publishes to vhost '/'"):
        claims_of_batch(line.sink(), BATCH, line.client.queue)


@pytest.mark.parametrize("place", ["", "s3a://bucket/c", "file://host/c"])
def test_a_checkpoint_that_the_driver_cannot_read_is_refused_at_once(
    line: Line, place: str
) -> None:
    with pytest.raises(UnsupportedError, match="needs the option checkpointLocation"):
        WarrenStreamWriter(line.sink(checkpointLocation=place), SCHEMA, lambda _: line.client)


def test_options_that_contradict_it() -> None:
    with pytest.raises(OptionError, match="needs atomicBatch=true"):
        parse_options({"settleWithBatch": "true", "atomicBatch": "false"}, "write")
    with pytest.raises(OptionError, match="needs the option queue"):
        parse_options({"settleWithBatch": "true", "queues": "a,b"}, "read")
