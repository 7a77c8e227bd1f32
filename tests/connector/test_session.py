"""What a user meets in a session: browsing, writing, refusals; one session, the fake broker."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader
from spark_world.fake import FakeServer

from pyspark_warren import batch_log, observed, progress
from tests.patience import PATIENCE_S
from warren import errors
from warren_wire.amqp091 import fields
from warren_wire.amqp091.fields import Field
from warren_wire.block.block import encode

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """Queues `in`, `out` and `other`, empty."""
    with FakeServer() as made:
        for name in ("in", "out", "other"):
            made.broker.declare(name)
        yield made


def options(server: FakeServer, **more: str) -> dict[str, str]:
    return {"hosts": f"127.0.0.1:{server.port}", **more}


def browse(spark: Any, server: FakeServer, queue: str, **more: str) -> Any:
    return spark.read.format("warren_dying").options(**options(server, queue=queue, **more))


def test_browsing_touches_nothing(spark: Any, server: FakeServer) -> None:
    bodies = [b"%d" % i for i in range(2000)]
    server.broker.publish("in", bodies, [i % 3 for i in range(2000)])
    rows = browse(spark, server, "in").load()
    assert rows.count() == 2000
    got = rows.select("body", "priority", "queue", "routing_key", "position").collect()
    assert [row.body for row in got] == server.broker.bodies("in")
    assert {row.queue for row in got} == {"in"} and {row.routing_key for row in got} == {"in"}
    assert len({tuple(row.position) for row in got}) == 2000
    assert browse(spark, server, "in", maxMessages="7").load().count() == 7
    assert browse(spark, server, "other").load().count() == 0
    assert server.broker.state("in")["ready"] == 2000


def test_a_table_of_states_and_its_view(spark: Any, server: FakeServer) -> None:
    for part in range(5):
        server.broker.publish("in", [b"%d" % part] * 3)
    table = browse(spark, server, "in", state="all").load()
    assert table.columns[-7:] == [
        "state",
        "holder",
        "claim",
        "since",
        "next_try",
        "reason",
        "entered",
    ]
    assert table.rdd.getNumPartitions() == 3
    found = table.select("body", "state", "holder", "position").collect()
    assert {(row.state, row.holder) for row in found} == {("ready", None)}
    assert len({tuple(row.position) for row in found}) == 15
    given = ", ".join(f"{name} '{text}'" for name, text in options(server, queue="in").items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW inventory USING warren_dying OPTIONS ({given})")
    assert spark.sql("SELECT count(*) AS n FROM inventory").collect()[0].n == 15
    server.broker.publish("in", [b"later"] * 3)
    assert spark.sql("SELECT count(*) AS n FROM inventory").collect()[0].n == 18
    assert table.count() == 18
    for wrong, says in (
        ({"state": "waiting"}, "'waiting' is no state of a message; give some of ready, held"),
        ({"firstIndex": "7", "lastIndex": "6"}, "lastIndex=6 is below firstIndex=7"),
    ):
        with pytest.raises(Exception, match=f"WARREN_OPTION.*{says}"):
            browse(spark, server, "in", **wrong).load().collect()
    stream = spark.readStream.format("warren_dying").options(**options(server, queue="in"))
    with pytest.raises(Exception, match="WARREN_SCHEMA.*unknown column 'holder'"):
        stream.schema("body binary, holder string").load().writeStream.format(
            "noop"
        ).start().awaitTermination(60)


def test_predicates_are_applied_by_the_source_as_by_spark(spark: Any, server: FakeServer) -> None:
    lists = [
        b"\x10\x40\x02\x00\x00\x00\x00\x65\x92\x00\x80",
        b"\x10\x20\x02\x01b",
        b"\x10\x20\x02\x02ab",
    ]
    for part in range(6):
        block = encode([b"x"] * 3, lists, (b"", b"in"), [part % 3] * 3)
        server.broker.queues["in"].enqueue(block)
    name = "spark.sql.python.filterPushdown.enabled"
    pushing = browse(spark, server, "in", pushFilters="once", state="all")
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        pushing.load().collect()
    plain = browse(spark, server, "in", state="all").load()
    spark.conf.set(name, "true")
    try:
        for text, left in (
            ("priority >= 1 and type = 'b'", ""),
            ("not (type = 'b')", ""),
            ("type in ('ab', null) or type is null", "Filter"),
            ("type not in ('b', 'c') and type like 'a%'", ""),
            ("type <=> null and position.index > 2", ""),
            ("timestamp < current_timestamp() - interval 1 hour", ""),
            ("timestamp > timestamp'2024-01-01 00:00:00Z'", ""),
            ("state = 'ready' and priority in (0, 2)", ""),
            ("state = 'dead'", ""),
            ("body = cast('x' as binary) and priority = 2", "Filter"),
        ):
            frame = pushing.load().where(text)
            plan = frame._jdf.queryExecution().optimizedPlan().toString()
            assert ("Filter" in plan.replace("PushedFilters", "")) == bool(left), (text, plan)
            # By Spark alone: what is cached has no source to push to.
            wanted = spark.createDataFrame(plain.collect(), plain.schema).where(text).collect()
            assert sorted(frame.collect(), key=repr) == sorted(wanted, key=repr), text
        twice = pushing.load()
        some, whole = twice.where("priority = 0").count(), twice.count()
        # What connector-columns.md says; where it is not so, pushFilters=true is accepted.
        assert (some, whole) == (6, 18 if hasattr(DataSourceReader, "pushLimit") else 6)
    finally:
        spark.conf.unset(name)


def test_fewer_columns_by_schema(spark: Any, server: FakeServer) -> None:
    server.broker.publish("in", [b"text"])
    rows = browse(spark, server, "in").schema("priority int, body string").load().collect()
    assert [tuple(row) for row in rows] == [(4, "text")]


def test_writing_with_every_property(spark: Any, server: FakeServer) -> None:
    frame = spark.createDataFrame(
        [("a", 3, "id1", {"h": "1"}), ("b", 9, None, None)],
        "body string, priority int, message_id string, headers map<string,string>",
    )
    frame.coalesce(1).write.format("warren_dying").mode("append").options(
        **options(server, routingKey="out")
    ).save()
    rows = browse(spark, server, "out").load().collect()
    assert [(row.body, row.priority, row.message_id, row.delivery_mode) for row in rows] == [
        (b"b", 9, None, 2),
        (b"a", 3, "id1", 2),
    ]
    assert rows[1].headers["h"].string == "1" and rows[0].headers is None


def test_what_was_read_can_be_written_as_it_is(spark: Any, server: FakeServer) -> None:
    server.broker.publish("in", [b"x", b"y"])
    rows = browse(spark, server, "in").load().drop("routing_key")
    rows.write.format("warren_dying").mode("append").options(
        **options(server, routingKey="out")
    ).save()
    assert server.broker.bodies("out") == [b"x", b"y"]


def test_all_columns_of_one_queue_were_published_back_into_it(
    spark: Any, server: FakeServer, tmp_path: Path
) -> None:
    server.broker.publish("in", [b"x", b"y"])
    rows = spark.readStream.format("warren_dying").options(**options(server, queue="in")).load()
    (
        rows.drop("queue")
        .writeStream.format("warren_dying")
        .options(**options(server, routingKey="out"))
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path))
        .start()
        .awaitTermination(60)
    )
    assert server.broker.bodies("out") == [b"x", b"y"]
    assert server.broker.state("in")["ready"] == 0


@pytest.mark.parametrize("dropped", ["", "queue"])
def test_a_query_into_its_own_queue_is_refused(
    spark: Any, server: FakeServer, tmp_path: Path, dropped: str
) -> None:
    server.broker.publish("in", [b"x", b"y"])
    rows = spark.readStream.format("warren_dying").options(**options(server, queue="in")).load()
    query = (
        rows.drop(dropped)
        .writeStream.format("warren_dying")
        .options(**options(server, routingKey="in"))
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(Exception, match=r"WARREN_SAME_QUEUE.*reads queue 'in'.*allowLoop=true"):
        query.awaitTermination(60)
    assert (server.broker.bodies("in"), server.broker.state("in")["staged"]) == ([], 0)
    assert sum(len(claim) for claim in server.broker.state("in")["claims"].values()) == 1


def test_undecodable_properties_are_an_error_or_a_column(spark: Any, server: FakeServer) -> None:
    lists = [b"\x10\x00\x02", b"\x80"]
    server.broker.queues["in"].enqueue(encode([b"a", b"b"], lists, (b"", b"in")))
    with pytest.raises(Exception, match=r"WARREN_MALFORMED.*queue 'in', position .*ordinal 1"):
        browse(spark, server, "in").load().collect()
    for named, more in (("_corrupt_record", {}), ("bad", {"columnNameOfCorruptRecord": "bad"})):
        rows = browse(spark, server, "in", mode="PERMISSIVE", **more).load().collect()
        assert [(row.body, row.delivery_mode, row[named]) for row in rows] == [
            (b"a", 2, None),
            (b"b", None, b"\x80"),
        ]


def test_what_cannot_be_decoded_is_left_out_and_stays(spark: Any, server: FakeServer) -> None:
    lists = [b"\x10\x00\x02", b"\x80", b"\x00\x00"]
    server.broker.queues["in"].enqueue(encode([b"a", b"b", b"\xff"], lists, (b"", b"in")))
    more: dict[str, str]
    for more in ({}, {"maxMessages": "9"}, {"state": "ready"}):
        reading = browse(spark, server, "in", mode="DROPMALFORMED", **more)
        assert [row.body for row in reading.load().collect()] == [b"a", b"\xff"]
        rows = reading.schema("queue string, body string").load().collect()
        assert [tuple(row) for row in rows] == [("in", "a")]
    assert server.broker.state("in")["ready"] == 3
    with pytest.raises(Exception, match=r"WARREN_MALFORMED.*body is not UTF-8"):
        browse(spark, server, "in", firstIndex="0").schema("body string").load().collect()


def test_dropping_is_refused_where_it_would_lose_messages(spark: Any, server: FakeServer) -> None:
    server.broker.queues["in"].enqueue(encode([b"a"], [b"\x80"], (b"", b"in")))
    given = options(server, queue="in", mode="DROPMALFORMED")
    rows = spark.readStream.format("warren_dying").options(**given).load()
    query = rows.writeStream.format("noop").start()
    with pytest.raises(Exception, match=r"WARREN_OPTION.*DROPMALFORMED.*would lose messages"):
        query.awaitTermination(60)
    assert server.broker.state("in")["ready"] == 1


def test_headers_as_text(spark: Any, server: FakeServer) -> None:
    headers = {"n": Field("l", 7), "t": Field("S", "x"), "v": Field("V", None)}
    lists = [b"\x20\x00" + fields.table(headers)]
    server.broker.queues["in"].enqueue(encode([b"a"], lists, (b"", b"in")))
    expected = {"n": "7", "t": "x", "v": None}
    (row,) = browse(spark, server, "in", headerValues="string").load().collect()
    assert row.headers == expected
    (row,) = browse(spark, server, "in").schema("headers map<string, string>").load().collect()
    assert row.headers == expected


def test_a_numbered_batch_is_published_once(spark: Any, server: FakeServer) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "body string")
    for batch in ("4", "4", "5"):
        frame.write.format("warren_dying").mode("append").options(
            **options(server, routingKey="out", sinkId="mine", batchId=batch)
        ).save()
    assert sorted(server.broker.bodies("out")) == [b"a", b"a", b"b", b"b"]


def test_not_atomic_publishes_at_once_with_ids(spark: Any, server: FakeServer) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "body string").coalesce(1)
    frame.write.format("warren_dying").mode("append").options(
        **options(server, routingKey="out", sinkId="mine", batchId="4", atomicBatch="false")
    ).save()
    rows = browse(spark, server, "out").load().collect()
    assert [row.message_id for row in rows] == ["mine-default-4-0-0", "mine-default-4-0-1"]
    assert server.broker.calls_of("publish") == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"queue": "nowhere"}, "no queue 'nowhere'"),
        ({"queue": "in", "maxMessage": "7"}, "did you mean maxMessages?"),
        ({}, "option queue is missing"),
        ({"queue": "in", "password": "geheim", "claimTtl": "soon"}, "with its unit"),
    ],
)
def test_reading_refusals(spark: Any, server: FakeServer, more: dict[str, str], says: str) -> None:
    with pytest.raises(Exception) as told:
        spark.read.format("warren_dying").options(**options(server, **more)).load().count()
    assert says in str(told.value) and "geheim" not in str(told.value)


@pytest.mark.parametrize(
    ("ddl", "more", "says"),
    [
        ("value string", {}, "no column body"),
        ("body string", {}, "routing key"),
        ("body string", {"routingKey": "nowhere"}, "no queue for routing key 'nowhere'"),
        ("body int", {"routingKey": "out"}, "cast it to binary or string"),
    ],
)
def test_writing_refusals(
    spark: Any, server: FakeServer, ddl: str, more: dict[str, str], says: str
) -> None:
    value: Any = 1 if "int" in ddl else "x"
    frame = spark.createDataFrame([(value,)], ddl)
    with pytest.raises(Exception) as told:
        frame.write.format("warren_dying").mode("append").options(**options(server, **more)).save()
    assert says in str(told.value)
    assert server.broker.state("out")["ready"] == 0


STARTS_MAX = 5


def told(run: Any) -> list[str]:
    """The lines of the error that a run ends with.

    Spark gives a Python process 10 s to start, on a busy machine too: then the run is repeated.
    """
    for _ in range(STARTS_MAX):
        with pytest.raises(Exception) as caught:
            run()
        text = str(caught.value)
        if "Python worker failed to connect back" not in text:
            break
    for buried in ("Traceback", "UnboundLocalError", "direct cause", "During handling"):
        assert buried not in text, text
    return text.strip().splitlines()


@pytest.mark.parametrize(
    ("schema", "more", "condition"),
    [
        (None, {"queue": "in", "maxMessage": "7"}, "WARREN_OPTION] unknown option 'maxmessage'"),
        (None, {}, "WARREN_OPTION] option queue is missing"),
        ("bodi binary", {"queue": "in"}, "WARREN_SCHEMA] unknown column 'bodi'"),
        (None, {"queue": "nowhere"}, "WARREN_REFUSED] reading queue 'nowhere'"),
        (
            None,
            {"queue": "in", "readerId": "r"},
            "WARREN_OPTION] option readerId is for spark.readS",
        ),
    ],
)
def test_the_cause_of_a_refused_read_stood_on_line_10(
    spark: Any, server: FakeServer, schema: str | None, more: dict[str, str], condition: str
) -> None:
    reader = spark.read.format("warren_dying").options(**options(server, **more))
    first, *rest = told(lambda: (reader.schema(schema) if schema else reader).load().count())
    assert condition in first and len(rest) <= 1 and "".join(rest).strip()[:8] in ("", "SQLSTATE")


@pytest.mark.parametrize(
    ("more", "condition"),
    [
        (
            {"routingKy": "out"},
            "WARREN_OPTION] unknown option 'routingky'; did you mean routingKey?",
        ),
        ({}, "WARREN_SCHEMA] rows have no routing key"),
        ({"exchange": "x", "routingKey": "k"}, "no queue for routing key 'k'"),
    ],
)
def test_the_cause_of_a_refused_write_stood_on_line_10(
    spark: Any, server: FakeServer, more: dict[str, str], condition: str
) -> None:
    frame = spark.createDataFrame([("a",)], "body string").coalesce(1)
    lines = told(
        lambda: (
            frame.write.format("warren_dying")
            .mode("append")
            .options(**options(server, **more))
            .save()
        )
    )
    if lines[0].endswith("thrown from the Python worker:"):
        del lines[0]  # a task's
        assert "publishing to exchange 'x'" in lines[0] and "partition 0" in lines[0]
    assert condition in lines[0] and len(lines) <= 2


@pytest.mark.parametrize(
    ("schema", "source", "sink", "condition"),
    [
        ("body binary, bodi binary", {"queue": "in"}, {}, "WARREN_SCHEMA] unknown column 'bodi'"),
        ("body binary", {}, {}, "WARREN_OPTION] option queue is missing"),
        ("body binary", {"queue": "nowhere"}, {}, "WARREN_REFUSED] reading queue 'nowhere'"),
        ("body binary", {"queue": "in"}, {"routingKy": "x"}, "WARREN_OPTION] unknown option"),
        ("body binary", {"queue": "in"}, {"routingKey": "x"}, "no queue for routing key 'x'"),
        (
            "body binary",
            {"queue": "in"},
            {"routingKey": "out", "sinkId": "mine", "batchId": "4"},
            "WARREN_OPTION] option batchId is for df.write and means nothing with df.writeStream",
        ),
        (
            "body binary",
            {"queue": "in", "maxMessages": "7"},
            {"routingKey": "out"},
            "WARREN_OPTION] option maxMessages is for spark.read and means nothing",
        ),
    ],
)
def test_the_cause_of_a_failed_query_stood_on_line_64(
    spark: Any,
    server: FakeServer,
    tmp_path: Path,
    schema: str,
    source: dict[str, str],
    sink: dict[str, str],
    condition: str,
) -> None:
    server.broker.publish("in", [b"a"])
    rows = (
        spark.readStream.format("warren_dying")
        .schema(schema)
        .options(**options(server, **source))
        .load()
    )

    def run() -> None:
        query = (
            rows.writeStream.format("warren_dying")
            .trigger(availableNow=True)
            .options(**options(server, **sink))
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        query.awaitTermination(60)

    lines = told(run)
    assert condition in lines[0], lines
    assert lines[2] == "=== Streaming Query ===", lines  # from here on Spark's own


def test_stages_that_cannot_be_dropped_hid_why_the_batch_had_failed(
    spark: Any, server: FakeServer, tmp_path: Path
) -> None:
    """Spark showed "Writing job failed": the abort had failed, too, for the same reason."""

    def refused(*_: object) -> Any:
        raise errors.AccessRefused("login refused: the password was changed")

    server.broker.publish("in", [b"a"])
    frame = spark.createDataFrame([("a",)], "body string").coalesce(1)
    rows = spark.readStream.format("warren_dying").options(**options(server, queue="in")).load()
    sink = options(server, routingKey="out")

    def run() -> None:
        writer = rows.writeStream.format("warren_dying").options(**sink)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        writer.start().awaitTermination(60)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("publish_batch", "drop_batch"):
            patch.setattr(server.broker, name, refused)
        writer = frame.write.format("warren_dying").mode("append").options(**sink)
        for lines in (told(run), told(writer.save)):
            assert "WARREN_REFUSED] publishing to queue 'out'" in lines[0], lines
    run()
    assert server.broker.bodies("out") == [b"a"]


def test_a_table_of_the_catalog_says_why_not_and_a_view_does_it(
    spark: Any, server: FakeServer
) -> None:
    server.broker.publish("in", [b"a", b"b"])
    read = f"USING warren_dying OPTIONS (hosts '127.0.0.1:{server.port}', queue 'in')"
    (first, *_) = told(lambda: spark.sql(f"CREATE TABLE t {read}"))
    assert "WARREN_UNSUPPORTED] CREATE TABLE" in first and "CREATE TEMPORARY VIEW" in first
    spark.sql(f"CREATE TABLE IF NOT EXISTS t (body BINARY) {read}")
    try:
        (first, *_) = told(lambda: spark.table("t").count())
        assert "option queue is missing" in first and "CREATE TEMPORARY VIEW" in first
    finally:
        spark.sql("DROP TABLE t")
    spark.sql(f"CREATE TEMPORARY VIEW v {read}")
    assert sorted(row.body for row in spark.sql("SELECT body FROM v").collect()) == [b"a", b"b"]
    spark.sql(
        "CREATE TEMPORARY VIEW w (body STRING) USING warren_dying OPTIONS ("
        f"hosts '127.0.0.1:{server.port}', routingKey 'out')"
    )
    spark.sql("INSERT INTO w VALUES ('c')")
    assert server.broker.bodies("out") == [b"c"]


def test_the_password_is_in_no_plan(spark: Any, server: FakeServer, capsys: Any) -> None:
    rows = browse(spark, server, "in", user="u", password="geheim").load()
    rows.explain(True)
    assert "geheim" not in capsys.readouterr().out


def stream(spark: Any, server: FakeServer, checkpoint: Path, queue: str, **more: str) -> Any:
    rows = (
        spark.readStream.format("warren_dying")
        .options(**options(server, queue=queue, **more))
        .load()
    )
    return (
        rows.select("body")
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def test_a_query_with_a_filter_has_the_matching_rows_and_empties_its_queue(
    spark: Any, server: FakeServer, tmp_path: Path
) -> None:
    server.broker.publish("in", [b"%d" % n for n in range(1_000)], [n % 10 for n in range(1_000)])
    with pytest.raises(Exception, match=r"WARREN_OPTION.*say so with filterUnmatched=settle"):
        stream(spark, server, tmp_path / "a", "in", filter="h.priority > 6").awaitTermination(60)
    assert server.broker.state("in")["ready"] == 1_000
    given = {"filter": "h.priority > 6", "filterUnmatched": "settle"}
    query = stream(spark, server, tmp_path / "b", "in", **given)
    assert query.awaitTermination(60)
    assert sum(progress.numInputRows for progress in query.recentProgress) == 300
    assert server.broker.state("in")["acknowledged"] == 1_000
    server.broker.publish("in", [b"a", b"b", b"c"], [7, 1, 9])
    rows = browse(spark, server, "in", filter="h.priority > 6").load()
    assert {row.body for row in rows.select("body").collect()} == {b"a", b"c"}
    assert server.broker.state("in")["ready"] == 3


def test_the_checkpoint_of_another_queue_is_refused(
    spark: Any, server: FakeServer, tmp_path: Path
) -> None:
    server.broker.publish("in", [b"x"])
    stream(spark, server, tmp_path, "in").awaitTermination(60)
    with pytest.raises(Exception, match=r"WARREN_CHECKPOINT.*the query reads queue 'other'"):
        stream(spark, server, tmp_path, "other").awaitTermination(60)


def test_a_released_claim_fails_the_query_or_is_read_again(
    spark: Any, server: FakeServer, tmp_path: Path
) -> None:
    server.broker.publish("in", [b"%d" % i for i in range(30)])
    query = stream(spark, server, tmp_path, "in", maxMessagesPerTrigger="10")
    query.awaitTermination(60)
    (name,) = server.broker.state("in")["readers"]
    # A claim that is open, and then given back by an operator.
    server.broker.publish("in", [b"%d" % i for i in range(30, 50)])
    epoch = server.broker.register("in", name).epoch
    server.broker.open("in", name, epoch, 4, 10, 1 << 30)
    server.broker.release_claims("in")
    with pytest.raises(Exception, match="WARREN_CLAIM_LOST"):
        stream(spark, server, tmp_path, "in").awaitTermination(60)
    stream(spark, server, tmp_path, "in", onClaimLost="continue").awaitTermination(60)
    assert server.broker.state("in")["acknowledged"] == 50


def test_progress_with_observed_rows_and_a_line_per_batch(
    spark: Any, server: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.broker.publish("in", [b"%02d" % i for i in range(30)])
    source = spark.readStream.format("warren_dying").options(**options(server, queue="in"))
    rows = observed(source.option("maxMessagesPerTrigger", "20").load())
    listener = batch_log()
    spark.streams.addListener(listener)
    try:
        with caplog.at_level(logging.INFO, "pyspark_warren"):
            query = (
                rows.select("body")
                .writeStream.format("warren_dying")
                .options(**options(server, routingKey="out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .queryName("observed")
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)
            lines: list[str] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(lines) < 2 and time.monotonic() < deadline:  # events come after the batch
                lines = [each for each in caplog.messages if each.startswith("warren batch {")]
                time.sleep(0.02)
    finally:
        spark.streams.removeListener(listener)
    batches = [progress(each) for each in query.recentProgress]
    assert [json.loads(line.removeprefix("warren batch ")) for line in lines] == batches
    assert progress(query) == batches[-1]
    first, second = ((each["sources"][0], each["sink"]) for each in batches if each)
    # The first claim is opened after its offset, which does not have its size.
    assert (first[0]["batch_messages"], first[0]["batch_bytes"]) == (20, 40)
    assert (second[0]["batch_messages"], second[0]["batch_bytes"]) == (10, 50)
    assert [each["redelivered"] for each, _ in (first, second)] == [0, 0]
    assert [each["messages_confirmed"] for _, each in (first, second)] == [20, 10]
    assert batches[1]["name"] == "observed" and second[0]["claims"] == {"in": 2}
