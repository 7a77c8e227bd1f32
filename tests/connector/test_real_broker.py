"""The connector on a real cluster: what pika published, and faults."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pika
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from spark_world.offsets import only

from live.conftest import eventually
from pyspark_warren import errors
from pyspark_warren.claims.client import WarrenBroker, connect
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.plan import Slice
from pyspark_warren.claims.reader import read_browsed, read_task
from pyspark_warren.errors import named_conditions
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.rows.columns import STATE_COLUMNS
from pyspark_warren.rows.decode import ARROW_TYPES, PLAIN_TYPES
from pyspark_warren.sink.writer import Attempt, write_direct, write_staged
from pyspark_warren.surroundings import Surroundings
from pyspark_warren.table import WarrenBatchReader
from tests.patience import PATIENCE_S, PROMPTLY_S
from warren.admin import Admin
from warren.claims import FetchedBlock
from warren.local import LocalCluster
from warren.stages import SinkDriver

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCHEMA = pa.schema([pa.field(name, kind) for name, kind in ARROW_TYPES.items()])
WHEN = datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.UTC)


@pytest.fixture
def queue(cluster: LocalCluster) -> str:
    """A new queue's name."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    with cluster.connect() as connection:
        Admin(connection).queues.declare(name, arguments={"x-queue-type": "quorum"})
    return name


def attempt(queue: str) -> Attempt:
    """Of partition 0 of batch 0 of a sink named like the queue."""
    return Attempt.drawn(SinkDriver(queue, "run", 1), 0, 0)


def options(cluster: LocalCluster, where: str = "read", **more: str) -> Options:
    return parse_options({"hosts": cluster.hosts, **more}, where)


def driver_of(given: Options) -> ClaimDriver:
    return ClaimDriver(
        connect(given),
        replace(given, prefetch_claims=0),
        Surroundings.of_this_process(),
    )


def read_all(given: Options) -> list[dict[str, Any]]:
    """One batch of everything, settled."""
    driver = driver_of(given)
    start = driver.latest(driver.initial(), 1)
    end = driver.latest(start, None)
    rows = [
        row
        for part in driver.plan(start, end)
        for batch in read_task(connect, given, [part], SCHEMA)
        for row in batch.to_pylist()
    ]
    driver.settle(end)
    return rows


def channel_of(cluster: LocalCluster) -> Any:
    parameters = pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].amqp_port)
    channel = pika.BlockingConnection(parameters).channel()
    channel.confirm_delivery()
    return channel


def test_an_idle_query_adds_no_entry_to_its_queues_log(cluster: LocalCluster, queue: str) -> None:
    """At each poll it would add one. New messages, and the end of the reader, are seen."""
    given = options(cluster, queue=queue, pollInterval="10ms")
    driver = driver_of(given)
    start = driver.latest(driver.initial(), 10)
    assert driver.latest(start, 10) is start
    with cluster.connect() as connection:
        admin = Admin(connection)
        before = admin.members.get(queue).last_index
        for _ in range(8):
            assert driver.latest(start, 10) is start
        added = admin.members.get(queue).last_index - before
        # A change of the leader adds one; a machine that stands still for long, a renewal.
        assert added <= 2, added
        channel_of(cluster).basic_publish("", queue, b"x")
        deadline = time.monotonic() + PATIENCE_S
        while (end := driver.latest(start, 10)) is start:
            assert time.monotonic() < deadline
        assert only(end).claims[0].messages == 1
        end = driver.latest(end, 10)
        assert driver.latest(end, 10) is end
        admin.claims.release(queue, only(start).reader)
        with pytest.raises(errors.ClaimLostError):
            driver.latest(end, 10)


def test_the_backlog_says_when_the_next_message_came(cluster: LocalCluster, queue: str) -> None:
    driver = driver_of(options(cluster, queue=queue))
    assert driver.backlog()["head_entered_ms"] is None
    before = int(time.time() * 1000)
    channel = channel_of(cluster)
    for _ in range(3):
        channel.basic_publish("", queue, b"x")
    channel.connection.close()
    after = int(time.time() * 1000)
    driver = driver_of(options(cluster, queue=queue))
    assert before <= driver.backlog()["head_entered_ms"] <= after


def rows_of(
    given: Options, part: Slice, schema: pa.Schema, sent: list[int] | None = None
) -> list[dict[str, Any]]:
    """The rows of a slice; adds the sizes of what the broker sent for them."""

    class Weighing(WarrenBroker):
        def fetch_slices(self, *what: Any) -> Iterator[tuple[int, FetchedBlock]]:
            for at, piece in super().fetch_slices(*what):
                if sent is not None:
                    sent.append(len(piece.data))
                yield at, piece

    def weighed(given: Options) -> WarrenBroker:
        return Weighing(connect(given)._connection)

    return [row for batch in read_task(weighed, given, [part], schema) for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_only_what_the_schema_needs_is_sent(cluster: LocalCluster, queue: str, kind: str) -> None:
    """Every node reads a quorum queue's messages itself, a classic one's only its leader."""
    name = f"{queue}-{kind}"
    with cluster.connect() as connection:
        Admin(connection).queues.declare(name, arguments={"x-queue-type": kind})
    channel = channel_of(cluster)
    for i in range(60):
        named = pika.BasicProperties(message_id=f"{i:0100}", priority=i % 3)
        channel.basic_publish("", name, bytes([i]) * 1000, named)
    driver = driver_of(options(cluster, queue=name))
    start = driver.latest(driver.initial(), 100)
    end = driver.latest(start, 100)
    (part,) = driver.plan(start, end)
    whole = rows_of(options(cluster, queue=name), part, SCHEMA)
    assert {len(row["body"]) for row in whole} == {1000}
    for node in cluster.nodes:
        here = {"hosts": f"127.0.0.1:{node.amqp_port}", "queue": name}
        given = parse_options(here, "read")
        for columns, low, high in (
            (["body", "priority"], 60_000, 66_000),
            (["message_id", "routing_key"], 6_000, 12_000),
            (["position", "priority", "queue"], 0, 3_000),
        ):
            schema = pa.schema([SCHEMA.field(column) for column in columns])
            sent: list[int] = []
            rows = rows_of(given, part, schema, sent)
            assert rows == [{column: row[column] for column in columns} for row in whole]
            assert low < sum(sent) < high, (columns, sent)
            claimed = parse_options({**here, "state": "claimed"}, "read")
            viewed = table_of(claimed, from_arrow_schema(schema))
            assert sorted(map(str, viewed)) == sorted(map(str, rows))


def test_a_copied_checkpoint_beside_the_query_and_behind_it(
    cluster: LocalCluster, queue: str
) -> None:
    channel = channel_of(cluster)
    for number in range(6):
        channel.basic_publish("", queue, b"%d" % number)
    channel.connection.close()
    given = options(cluster, queue=queue)
    first = driver_of(given)
    ends = [first.latest(first.initial(), 1)]
    for _ in range(3):
        ends.append(first.latest(ends[-1], 1))
    for copied in (
        lambda: driver_of(given).latest(ends[1], 1),
        lambda: driver_of(given).plan(ends[0], ends[1]),
    ):
        with pytest.raises(errors.CheckpointBehindError, match="it is an older copy"):
            copied()
    assert first.plan(ends[2], ends[3])  # and was not fenced
    ends.append(first.latest(ends[3], 1))
    # A copy of the newest checkpoint takes over, with the claim that is open.
    second = driver_of(given)
    assert second.plan(ends[3], ends[4]) == first.plan(ends[3], ends[4])
    assert only(second.latest(ends[4], 1)).number == only(ends[4]).number + 1
    with named_conditions("test"), pytest.raises(errors.FencedError, match="is in use twice"):
        first.latest(ends[4], 1)
    onward = driver_of(options(cluster, queue=queue, onClaimLost="continue"))
    other = onward.latest(ends[1], 1)
    assert only(other).reader != only(ends[1]).reader
    with cluster.connect() as connection:
        readers = {each.name: each for each in Admin(connection).claims.readers(queue)}
    assert readers[only(ends[1]).reader].open_claims == 1  # those of the others stay with them


PROPERTIES: Final[dict[str, Any]] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "600000",
    "message_id": "m",
    "type": "t",
    "user_id": "guest",
    "app_id": "app",
}
"""Properties that pika and the source name and value alike."""


def test_what_pika_published(cluster: LocalCluster, queue: str) -> None:
    channel = channel_of(cluster)
    channel.exchange_declare("connector-topic", "topic")
    channel.queue_bind(queue, "connector-topic", "a.*")
    channel.basic_publish(
        "connector-topic",
        "a.b",
        "käse".encode(),
        pika.BasicProperties(
            **PROPERTIES,
            timestamp=int(WHEN.timestamp()),
            headers={"n": 5, "s": "text", "b": True, "when": WHEN, "list": [1, "x"], "none": None},
        ),
    )
    channel.basic_publish("", queue, b"")
    channel.connection.close()
    first, second = read_all(options(cluster, queue=queue))
    headers = {
        name: {k: v for k, v in value.items() if v is not None}
        for name, value in first.pop("headers")
    }
    position = first.pop("position")
    assert first == {
        "body": "käse".encode(),
        "exchange": "connector-topic",
        "routing_key": "a.b",
        **PROPERTIES,
        "timestamp": WHEN,
        "delivery_count": 0,
        "acquired_count": 0,
        "redelivered": False,
        "queue": queue,
    }
    assert headers == {
        "n": {"type": "long", "long": 5},
        "s": {"type": "string", "string": "text"},
        "b": {"type": "boolean", "boolean": True},
        "when": {"type": "timestamp", "timestamp": WHEN},
        "none": {"type": "void"},
        "list": {"type": "array", "json": '[1, "x"]'},
    }
    assert position["index"] > 0 and position != second["position"]
    assert (second["body"], second["priority"], second["routing_key"]) == (b"", 4, queue)
    assert second["message_id"] is None and second["headers"] is None


def test_a_filter_of_what_pika_published(cluster: LocalCluster, queue: str) -> None:
    channel = channel_of(cluster)
    for number in range(40):
        known = pika.BasicProperties(
            priority=number % 8,
            app_id="shop" if number % 2 else None,
            timestamp=int(WHEN.timestamp()) + number,
            headers={"n": number, "region": "emea" if number < 20 else b"\xff", "x-late": True},
        )
        channel.basic_publish("", queue, b"%d" % number, known)
    channel.connection.close()
    text = (
        "region LIKE 'em%' AND p.group_id IS NOT NULL AND n % 4 = 1 AND h.priority < 5 AND "
        f"[x-late] AND p.creation_time > {int(WHEN.timestamp() + 4) * 1000}"
    )
    wanted = [
        b"%d" % number
        for number in range(5, 20)
        if number % 2 and number % 4 == 1 and number % 8 < 5
    ]
    given = options(cluster, queue=queue, filter=text, filterUnmatched="settle")
    assert wanted and sorted(row["body"] for row in table_of(given, TABLE)) == sorted(wanted)
    assert sorted(row["body"] for row in read_all(given)) == sorted(wanted)
    with cluster.connect() as connection:
        found = Admin(connection).queues.get(queue)
    assert (found.messages_ready, found.messages_claimed) == (0, 0)


def test_counts_of_messages_that_came_back(cluster: LocalCluster, queue: str) -> None:
    channel = channel_of(cluster)
    for body in (b"rejected", b"nacked", b"untouched"):
        channel.basic_publish("", queue, body)
    for refuse in (channel.basic_reject, channel.basic_nack):
        method, _, _ = channel.basic_get(queue)
        while method.redelivered:
            method, _, _ = channel.basic_get(queue)
        refuse(method.delivery_tag, requeue=True)
    channel.connection.close()
    rows = {row["body"]: row for row in read_all(options(cluster, queue=queue))}
    assert {
        body: (row["redelivered"], row["acquired_count"] > 0) for body, row in rows.items()
    } == {b"rejected": (True, True), b"nacked": (True, True), b"untouched": (False, False)}
    assert rows[b"rejected"]["delivery_count"] >= 1 and rows[b"untouched"]["delivery_count"] == 0


def test_what_the_sink_published_pika_reads(cluster: LocalCluster, queue: str) -> None:
    given = options(cluster, "write", routingKey=queue)
    rows = pa.record_batch(
        {
            "body": pa.array([b"low", b"high"]),
            "priority": pa.array([1, 9]),
            "message_id": pa.array(["m1", None]),
            "expiration": pa.array([None, 60000]),
            "headers": pa.array([[("h", "v")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    part = write_staged(connect(given), given, attempt(queue), iter([rows]))
    channel = channel_of(cluster)
    assert channel.basic_get(queue) == (None, None, None)
    assert connect(given).publish_batch(part.driver, 0, part.stages, 30) == 2
    got = [channel.basic_get(queue, auto_ack=True) for _ in range(2)]
    channel.connection.close()
    assert [
        (
            body,
            props.priority,
            props.message_id,
            props.expiration,
            props.headers,
            props.delivery_mode,
        )
        for _, props, body in got
    ] == [(b"high", 9, None, "60000", None, 2), (b"low", 1, "m1", None, {"h": "v"}, 2)]


def test_an_exchange_to_two_queues_is_published_in_both(cluster: LocalCluster, queue: str) -> None:
    channel = channel_of(cluster)
    channel.exchange_declare(f"x-{queue}", "fanout")
    for name in (f"{queue}-1", f"{queue}-2"):
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(name, f"x-{queue}")
    channel.connection.close()
    given = options(cluster, "write", exchange=f"x-{queue}", routingKey="")
    rows = pa.record_batch({"body": pa.array([b"%d" % i for i in range(100)])})
    broker = connect(given)
    part = write_staged(broker, given, attempt(queue), iter([rows]))
    for _ in range(2):
        broker.publish_batch(part.driver, 0, part.stages, 30)
    assert [broker.queue(f"{queue}-{n}").messages_ready for n in (1, 2)] == [100, 100]


def test_browsing_leaves_everything(cluster: LocalCluster, queue: str) -> None:
    given = options(cluster, "write", routingKey=queue)
    write_direct(
        connect(given),
        given,
        attempt(queue),
        iter([pa.record_batch({"body": pa.array([b"%d" % i for i in range(500)])})]),
    )
    browsing = options(cluster, queue=queue)
    for most in (7, 500):
        seen = sum(batch.num_rows for batch in read_browsed(connect, browsing, most, SCHEMA))
        assert seen == most
    assert connect(browsing).queue(queue).messages_ready == 500


def table_of(given: Options, schema: StructType) -> list[dict[str, Any]]:
    """Every row that `spark.read` would have, piece by piece."""
    reader = WarrenBatchReader(given, schema, connect)
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


TABLE: Final = from_arrow_schema(
    pa.schema([*SCHEMA, *(pa.field(name, PLAIN_TYPES[ddl]) for name, ddl in STATE_COLUMNS.items())])
)
BARE: Final = StructType([TABLE["state"], TABLE["position"]])


def test_a_queue_as_a_table(cluster: LocalCluster, queue: str) -> None:
    """Messages in every state that a queue knows, read at a node whatever its role."""
    arguments = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "nowhere-to-go",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": 600_000,
    }
    name = f"{queue}-table"
    with cluster.connect() as connection:
        Admin(connection).queues.declare(name, arguments=arguments)
    channel = channel_of(cluster)
    began = datetime.datetime.now(datetime.UTC)
    for i in range(60):
        channel.basic_publish("", name, b"%d" % i)
    taken = [channel.basic_get(name)[0].delivery_tag for _ in range(5)]
    channel.basic_reject(taken[0], requeue=False)
    channel.basic_nack(taken[1], requeue=True)
    channel.queue_declare(name, passive=True)
    reader = connect(options(cluster, queue=name)).reader(name, "spark")
    number = reader.register().settled + 1
    reader.open(number, max_messages=10, max_bytes=1 << 20)
    with cluster.connect() as connection:
        jobs = Admin(connection).jobs
        job = jobs.begin(name, action="delete", contains="59").job
        eventually(lambda: jobs.get(name, job).state == "done", "it is deleted")
    given = options(cluster, queue=name, state="all", partitions="4")
    rows = {int(row["body"]): row for row in table_of(given, TABLE)}
    assert sorted(rows) == list(range(60))
    states = {i: row["state"] for i, row in rows.items()}
    assert states[0] == "dead" and rows[0]["reason"] == "rejected"
    assert states[1] == "delayed" and rows[1]["acquired_count"] == 1
    assert rows[1]["next_try"] > began + datetime.timedelta(seconds=300)
    assert [states[i] for i in range(2, 5)] == ["held"] * 3 and rows[2]["since"] is not None
    assert [states[i] for i in range(5, 15)] == ["claimed"] * 10
    assert (rows[5]["holder"], rows[5]["claim"]) == ("spark", number)
    assert {states[i] for i in range(15, 59)} == {"ready"}
    assert (states[59], rows[59]["holder"]) == ("kept", f"job {job}")
    assert all(row["entered"] > began - datetime.timedelta(seconds=60) for row in rows.values())
    ninth = rows[9]["position"]["index"]
    below = sum(row["position"]["index"] <= ninth for row in rows.values())
    for more, count in (
        ({"state": "held,dead"}, 4),
        ({"state": "ready", "maxMessages": "7"}, 7),
        ({"state": "all", "lastIndex": str(ninth)}, below),
        ({"state": "all", "firstIndex": str(ninth + 1)}, 60 - below),
        ({"state": "kept"}, 1),
        ({"state": "ready"}, 44),
        ({}, 44),
    ):
        assert len(table_of(options(cluster, queue=name, **more), TABLE)) == count, more
    bare = table_of(given, BARE)
    assert sorted(row["state"] for row in bare) == sorted(states.values())
    assert connect(given).queue(name).messages_ready == 44
    channel.connection.close()


def test_a_read_after_the_plan_has_what_the_queue_has(cluster: LocalCluster, queue: str) -> None:
    write = options(cluster, "write", routingKey=queue)
    for part in range(4):
        rows = pa.record_batch({"body": pa.array([b"%d" % part] * 50)})
        write_direct(connect(write), write, attempt(queue), iter([rows]))
    reader = WarrenBatchReader(options(cluster, queue=queue, partitions="4"), TABLE, connect)
    parts = reader.partitions()
    assert len(parts) == 4
    assert sum(batch.num_rows for batch in reader.read(parts[0])) == 50
    with cluster.connect() as connection:
        Admin(connection).queues.purge(queue)
    late = pa.record_batch({"body": pa.array([b"late"])})
    write_direct(connect(write), write, attempt(queue), iter([late]))
    assert [
        body
        for part in parts[1:]
        for batch in reader.read(part)
        for body in batch.column("body").to_pylist()
    ] == [b"late"]


# ------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("more", "condition", "says"),
    [
        ({"queue": "no-such-queue"}, errors.BrokerRefusedError, "no-such-queue"),
        ({"queue": "q", "password": "geheim"}, errors.BrokerRefusedError, "as guest: "),
        ({"queue": "q", "vhost": "nowhere"}, errors.BrokerRefusedError, "nowhere"),
    ],
)
def test_refusals_name_what_and_not_the_password(
    cluster: LocalCluster, more: dict[str, str], condition: type[Exception], says: str
) -> None:
    given = options(cluster, **more)
    doing = f"reading queue {given.queue!r} at {given.addresses()}"
    with pytest.raises(condition) as told, named_conditions(doing):
        driver = driver_of(given)
        driver.latest(driver.initial(), 10)
    assert says in str(told.value) and "geheim" not in str(told.value)


def test_the_file_s_password_logs_in_and_a_wrong_one_is_not_shown(
    cluster: LocalCluster, queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    given = options(cluster, queue=queue, passwordFile=str(file))
    file.write_text("guest\n")
    assert connect(given).queue(queue).messages_ready == 0
    file.write_text("geheim\n")  # for connections from now on
    with pytest.raises(errors.BrokerRefusedError) as told, named_conditions("reading"):
        connect(given).queue(queue)
    assert "refused the login" in str(told.value)
    assert "geheim" not in str(told.value)


def test_no_route_fails_and_leaves_nothing(cluster: LocalCluster, queue: str) -> None:
    given = options(cluster, "write")
    rows = pa.record_batch(
        {"body": pa.array([b"a", b"b"]), "routing_key": pa.array([queue, "no-such-queue"])}
    )
    named = "exchange '' has no queue for routing key 'no-such-queue'"
    with pytest.raises(errors.NotRoutableError, match=named), named_conditions("publishing"):
        write_staged(connect(given), given, attempt(queue), iter([rows]))
    found = connect(given).queue(queue)
    assert (found.messages_ready, found.messages_staged) == (0, 0)


def test_a_batch_for_a_full_queue_is_refused_and_published_when_there_is_room(
    cluster: LocalCluster, queue: str
) -> None:
    given = options(cluster, "write", routingKey=f"{queue}-full")
    full = {"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-max-length": 2}
    with cluster.connect() as connection:
        Admin(connection).queues.declare(f"{queue}-full", arguments=full)
    rows = pa.RecordBatch.from_pydict({"body": [b"1", b"2", b"3"]})
    writer, broker = attempt(queue), connect(given)
    write_direct(broker, given, writer, iter([rows.slice(0, 2)]))
    part = write_staged(broker, given, writer, iter([rows]))
    with (
        pytest.raises(errors.PublishError, match="holds 2 of at most 2"),
        named_conditions("publishing", publishing=True),
    ):
        broker.publish_batch(writer.driver, 0, part.stages, 10)
    with cluster.connect() as connection:
        Admin(connection).queues.purge(f"{queue}-full")
    assert broker.publish_batch(writer.driver, 0, part.stages, 10) == 3


def test_a_batch_for_two_queues_is_completed_when_one_of_them_was_full(
    cluster: LocalCluster, queue: str
) -> None:
    given = options(cluster, "write")
    full = f"{queue}-full"
    limits = {"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-max-length": 2}
    with cluster.connect() as connection:
        Admin(connection).queues.declare(full, arguments=limits)
    writer, broker = attempt(queue), connect(given)
    before = pa.record_batch({"body": [b"1", b"2"], "routing_key": [full] * 2})
    write_direct(broker, given, writer, iter([before]))
    rows = pa.record_batch({"body": [b"3", b"4"], "routing_key": [queue, full]})
    part = write_staged(broker, given, writer, iter([rows]))
    with (
        pytest.raises(errors.PublishError, match="holds 2 of at most 2"),
        named_conditions("publishing", publishing=True),
    ):
        broker.publish_batch(writer.driver, 0, part.stages, 10)
    assert [broker.queue(name).messages_ready for name in (queue, full)] == [1, 2]
    with cluster.connect() as connection:
        Admin(connection).queues.purge(full)
    assert broker.publish_batch(writer.driver, 0, part.stages, 10) == 2
    assert [broker.queue(name).messages_ready for name in (queue, full)] == [1, 1]


def test_without_a_majority_it_says_so_in_time(cluster: LocalCluster, queue: str) -> None:
    given = options(cluster, queue=queue, requestTimeout="3s")
    driver = driver_of(given)
    start = driver.latest(driver.initial(), 10)
    for node in (0, 1):
        cluster.kill(node)
    try:
        began = time.monotonic()
        with (
            pytest.raises(errors.BrokerUnavailableError, match="majority"),
            named_conditions("reading"),
        ):
            driver.latest(start, 10)
        assert time.monotonic() - began < PROMPTLY_S
    finally:
        for node in (0, 1):
            cluster.start(node)
    write = options(cluster, "write", routingKey=queue)
    write_direct(
        connect(write),
        write,
        attempt(queue),
        iter([pa.record_batch({"body": pa.array([b"back"])})]),
    )
    patient = driver_of(options(cluster, queue=queue))
    assert only(patient.latest(start, 10)).claims[0].messages == 1
