"""The SQL table function `warren_queue`, and tables of the catalog: the same as `spark.read`."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import pika
import pyarrow as pa
import pytest
from pyspark.sql.functions import udtf
from pyspark.sql.types import StringType
from pyspark.sql.udtf import AnalyzeArgument
from spark_world.fake import FakeServer
from spark_world.sources import DyingSource

import pyspark_warren
from pyspark_warren.errors import OptionError, SchemaError
from pyspark_warren.rows.columns import COLUMNS, STATE_COLUMNS
from pyspark_warren.table_function import QueueTable, WarrenQueue, analysed, struct_of, values_of
from warren.admin import Admin
from warren.local import LocalCluster
from warren_wire.amqp091 import fields
from warren_wire.amqp091.fields import Field
from warren_wire.block.block import encode


class FakeQueue(WarrenQueue):
    """The function over the fake broker."""

    source = DyingSource

    @staticmethod
    def analyze(*unnamed: AnalyzeArgument, **named: AnalyzeArgument) -> QueueTable:
        """As the function's."""
        return analysed(DyingSource, unnamed, named)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A queue `in` with messages of several shapes, and `out`, empty."""
    with FakeServer() as made:
        made.broker.declare("in")
        made.broker.declare("out")
        headers = {
            "n": Field("l", 7),
            "t": Field("S", "x"),
            "T": Field("T", 5),
            "b": Field("x", b"y"),
        }
        full = b"\xb0\x20\x04text" + fields.table(headers) + b"\x02\x01c"
        lists = [full, b"\x10\x40\x02\x00\x00\x00\x00\x65\x92\x00\x80", b"\x00\x00"]
        made.broker.queues["in"].enqueue(
            encode([b"a", b"\xff", b""], lists, (b"", b"in"), [1, 9, 4])
        )
        yield made


def argument(value: Any, constant: bool = True) -> AnalyzeArgument:
    return AnalyzeArgument(StringType(), value, isTable=False, isConstantExpression=constant)


def test_columns_of_a_ddl_text_without_a_jvm() -> None:
    found = struct_of(DyingSource({"queue": "in", "state": "all"}).schema())
    assert found.names == [*COLUMNS, *STATE_COLUMNS]
    chosen = struct_of("priority, `body` STRING,headers MAP<string, string> , position")
    written = "position struct<index bigint, ordinal: bigint>"  # both ways are Spark's
    assert struct_of(written) == struct_of("position")
    assert [(each.name, each.dataType.simpleString()) for each in chosen] == [
        ("priority", "int"),
        ("body", "string"),
        ("headers", "map<string,string>"),
        ("position", "struct<index:bigint,ordinal:bigint>"),
    ]
    for ddl, says in (
        ("priority decimal(3, 1)", "column priority: the schema says decimal"),
        ("body binary,", "a column without a name"),
        ("body, priority, body string", "names column body twice"),
    ):
        with pytest.raises(SchemaError, match=says):
            struct_of(ddl)


@pytest.mark.parametrize(
    ("unnamed", "named", "says"),
    [
        (["in"], {}, "argument 1 of the table function has no name"),
        (
            [],
            {"queue": "in", "QUEUE": "other"},
            "argument queue of the table function is given twi",
        ),
        ([], {"queue": None}, "argument queue of the table function is null"),
        ([], {"queue": "in", "maxMessage": 1}, "did you mean maxMessages?"),
        ([], {"queue": "in", "readerId": "r"}, "readerId is for spark.readStream"),
        ([], {}, "option queue is missing"),
        ([], {"queue": "in", "pushFilters": "once"}, "pushFilters=once means nothing with the tab"),
    ],
)
def test_calls_that_are_refused(unnamed: list[Any], named: dict[str, Any], says: str) -> None:
    given = {name: argument(value) for name, value in named.items()}
    with pytest.raises(OptionError, match=says):
        analysed(DyingSource, tuple(map(argument, unnamed)), given)
    with pytest.raises(OptionError, match="argument queue of the table function is no constant"):
        analysed(DyingSource, (), {"queue": argument(None, constant=False)})


def call(server: FakeServer, **options: str) -> str:
    named = {"hosts": f"'127.0.0.1:{server.port}'", "queue": "'in'", **options}
    return f"fake_queue({', '.join(f'{name} => {text}' for name, text in named.items())})"


def plain(frame: Any) -> list[Any]:
    """The columns with their types, and the rows; maps have no order."""
    return [frame.schema.simpleString(), *sorted(frame.collect(), key=lambda row: row.position)]


@pytest.mark.spark
@pytest.mark.slow
def test_the_same_columns_and_rows_as_spark_read(spark: Any, server: FakeServer) -> None:
    spark.udtf.register("fake_queue", udtf(FakeQueue, useArrow=False))
    for options in (
        {},
        {"state": "all", "partitions": "2"},
        {"headerValues": "string"},
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"},
        {"filter": "h.priority > 2"},
        {"maxMessages": "2"},
    ):
        reader = spark.read.format("warren_dying").options(
            hosts=f"127.0.0.1:{server.port}", queue="in", **options
        )
        quoted = {name: text if text.isdigit() else f"'{text}'" for name, text in options.items()}
        table = spark.sql(f"SELECT * FROM {call(server, **quoted)}")
        assert plain(table) == plain(reader.load()), options
        assert len(table.collect()) == (2 if {"filter", "maxMessages"} & set(options) else 3)
    few = spark.sql(f"SELECT * FROM {call(server, schema=repr('priority, body'))}")
    assert sorted(map(tuple, few.collect())) == [(1, b"a"), (4, b""), (9, b"\xff")]
    joined = f"SELECT count(*) AS n FROM {call(server)} a JOIN {call(server)} b USING (position)"
    assert spark.sql(joined).collect()[0].n == 3
    named = call(server, queue=":name")
    assert spark.sql(f"SELECT * FROM {named}", args={"name": "in"}).count() == 3
    assert server.broker.state("in")["ready"] == 3


def test_values_are_those_of_the_columns_also_null_empty_and_of_a_part() -> None:
    item = pa.struct([("type", pa.string()), ("long", pa.int64())])
    rows = [
        {"p": (7, 1), "h": {"a": ("l", 5), "b": None}},
        {"p": None, "h": None},
        {"p": (None, 2), "h": {}},
        {"p": (8, 3), "h": {"c": ("S", None)}},
    ]
    position = pa.array(
        [each["p"] and dict(zip(("i", "o"), each["p"], strict=True)) for each in rows],
        pa.struct([("i", pa.int64()), ("o", pa.int64())]),
    )
    headers = pa.array(
        [
            each["h"]
            and [
                (name, value and dict(zip(("type", "long"), value, strict=True)))
                for name, value in each["h"].items()
            ]
            if each["h"] is not None
            else None
            for each in rows
        ],
        pa.map_(pa.string(), item),
    )
    for first in range(5):
        for count in range(5 - first):
            part = slice(first, first + count)
            assert values_of(position.slice(first, count)) == [each["p"] for each in rows[part]]
            assert values_of(headers.slice(first, count)) == [each["h"] for each in rows[part]]
    twice = pa.array([[("a", None), ("a", None)]], pa.map_(pa.string(), item))
    with pytest.raises(KeyError):
        values_of(twice)


@pytest.mark.spark
@pytest.mark.slow
def test_errors_keep_their_conditions(spark: Any, server: FakeServer) -> None:
    spark.udtf.register("fake_queue", udtf(FakeQueue, useArrow=False))
    for options, says in (
        ({"maxMessage": "7"}, r"\[WARREN_OPTION\] unknown option 'maxMessage'; did you mean"),
        (
            {"schema": "'bodi binary'"},
            r"\[WARREN_SCHEMA\] unknown column 'bodi'; did you mean body",
        ),
        ({"schema": "'body int'"}, r"\[WARREN_SCHEMA\] column body: the schema says int32"),
        ({"queue": "'nowhere'"}, r"\[WARREN_REFUSED\] reading queue 'nowhere'"),
        ({"schema": "'body string'"}, r"\[WARREN_MALFORMED\] queue 'in', position"),
    ):
        with pytest.raises(Exception) as refused:
            spark.sql(f"SELECT * FROM {call(server, **options)}").collect()
        assert refused.match(says)
        assert "Traceback" not in str(refused.value), refused.value


@pytest.mark.spark
@pytest.mark.slow
def test_a_password_in_the_text_of_a_statement_is_in_its_plan(
    spark: Any, server: FakeServer
) -> None:
    """docs/how-to/secrets.md says so, and that passwordFile and passwordEnv are not."""
    spark.udtf.register("fake_queue", udtf(FakeQueue, useArrow=False))

    def explained(text: str, **parameters: str) -> str:
        shown = io.StringIO()
        with redirect_stdout(shown):
            spark.sql(text, args=parameters).explain(True)
        return shown.getvalue()

    secret = call(server, password="'geheim'")
    assert "geheim" in explained(f"SELECT * FROM {secret}")
    assert "geheim" in explained(f"SELECT * FROM {call(server, password=':p')}", p="geheim")
    spark.sql("CREATE TABLE IF NOT EXISTS secret (body BINARY) USING warren_dying")
    options = f"hosts = '127.0.0.1:{server.port}', queue = 'in', password = 'geheim'"
    try:
        shown = explained(f"SELECT * FROM secret WITH ({options})")
    finally:
        spark.sql("DROP TABLE secret")
    assert "geheim" not in shown
    both = call(server, password="'geheim'", passwordEnv="'RABBITMQ_PASSWORD'")
    with pytest.raises(Exception, match="WARREN_OPTION.*both say the password") as refused:
        spark.sql(f"SELECT * FROM {both}")
    assert "geheim" not in str(refused.value)


@pytest.mark.spark
@pytest.mark.slow
def test_a_table_of_the_catalog_takes_its_options_from_each_statement(
    spark: Any, server: FakeServer
) -> None:
    given = f"hosts = '127.0.0.1:{server.port}'"
    spark.sql("CREATE TABLE q (body BINARY, priority INT) USING warren_dying")
    try:
        rows = spark.sql(f"SELECT * FROM q WITH ({given}, queue = 'in') WHERE priority > 1")
        assert sorted(map(tuple, rows.collect())) == [(b"", 4), (b"\xff", 9)]
        by_name = {"hosts": f"127.0.0.1:{server.port}", "queue": "in"}
        assert spark.read.options(**by_name).table("q").count() == 3
        spark.sql(f"INSERT INTO q WITH ({given}, `routingKey` = 'out') VALUES (X'41', 3)")
        assert server.broker.bodies("out") == [b"A"]
        with pytest.raises(Exception, match=r"WARREN_OPTION.*option queue is missing.*FROM t WITH"):
            spark.sql("SELECT * FROM q").collect()
    finally:
        spark.sql("DROP TABLE q")


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


@pytest.mark.live
@pytest.mark.spark
@pytest.mark.slow
def test_the_registered_function_on_a_real_cluster(spark: Any, cluster: LocalCluster) -> None:
    pyspark_warren.register(spark)
    queue = f"q-{uuid.uuid4().hex[:8]}"
    with cluster.connect() as connection:
        Admin(connection).queues.declare(queue, arguments={"x-queue-type": "quorum"})
    port = cluster.nodes[0].amqp_port
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in (b"one", b"two"):
            channel.basic_publish("", queue, body)
        assert channel.basic_get(queue)[2] == b"one"
        asked = f"""
            SELECT body, state FROM warren_queue(
                hosts => '{cluster.hosts}', queue => '{queue}', state => 'all',
                `passwordEnv` => 'RABBITMQ_PASSWORD')"""
        rows = sorted(map(tuple, spark.sql(asked).collect()))
    assert rows == [(b"one", "held"), (b"two", "ready")]
