"""Blocks to Arrow and back: every column, every odd value, no copies of bodies."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_warren.claims.reader import rows_in_mode
from pyspark_warren.errors import BrokerRefusedError, MalformedMessageError, SchemaError
from pyspark_warren.options.options import parse_options
from pyspark_warren.rows import properties as wire
from pyspark_warren.rows.blocks import blocks_of
from pyspark_warren.rows.columns import COLUMNS
from pyspark_warren.rows.decode import HEADERS_TEXT
from pyspark_warren.rows.encode import encode_rows
from pyspark_warren.rows.rows import ARROW_TYPES, ClaimedBlock, _repeated, check_schema, to_arrow
from pyspark_warren.spool.read import DeliveredRows
from warren_wire.amqp091 import fields
from warren_wire.amqp091 import properties as broker_properties
from warren_wire.block.block import Block, encode
from warren_wire.errors import SyntaxRefused
from warren_wire.kernel.properties import examine

BEFORE_1970 = {
    "type": "timestamp",
    "timestamp": datetime.datetime(1969, 12, 31, 23, 59, 59, 500_000, datetime.UTC),
}
DECIMALS = pa.map_(pa.string(), pa.decimal128(38, 10))
ALL = pa.schema([pa.field(name, kind) for name, kind in ARROW_TYPES.items()])


def schema_of(*names: str) -> pa.Schema:
    return pa.schema([ALL.field(name) for name in names])


def block_of(rows: pa.RecordBatch, **options: Any) -> list[Block]:
    settings = {"exchange": None, "routing_key": "q", "persistent": True, **options}
    block_bytes = settings.pop("block_bytes", 4 << 20)
    return [Block.decode(data) for data in blocks_of(encode_rows(rows, **settings), block_bytes)]


def read_back(block: Block, *names: str) -> list[dict[str, Any]]:
    runs = [(9, 0, block.count - 1, 0, 0)] if block.count else []
    return to_arrow(ClaimedBlock(block, runs, "q"), schema_of(*names)).to_pylist()


def rows(**columns: Any) -> pa.RecordBatch:
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values)
        for name, values in columns.items()
    }
    return pa.record_batch(arrays)


# ------------------------------------------------------------------ round trips

short = st.text(max_size=40) | st.none()
message = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=50),
        "exchange": st.just("") | st.just("x"),
        "routing_key": st.text(max_size=20),
        "priority": st.integers(0, 31),
        "content_type": short,
        "content_encoding": short,
        "correlation_id": short,
        "reply_to": short,
        "message_id": short,
        "type": short,
        "user_id": short,
        "app_id": short,
        "delivery_mode": st.sampled_from([1, 2]),
        "expiration": st.none() | st.integers(0, 2**31).map(str),
        "timestamp": st.none()
        | st.integers(0, 2**33).map(lambda s: datetime.datetime.fromtimestamp(s, datetime.UTC)),
    }
)
GIVEN = (
    "body",
    "exchange",
    "routing_key",
    "priority",
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "delivery_mode",
    "expiration",
    "timestamp",
)


@settings(max_examples=60, deadline=None)
@given(st.lists(message, min_size=1, max_size=30), st.integers(64, 400))
def test_what_a_sink_writes_a_source_reads(
    messages: list[dict[str, Any]], block_bytes: int
) -> None:
    batch = pa.RecordBatch.from_pylist(messages, schema=schema_of(*GIVEN))
    blocks = block_of(batch, routing_key=None, block_bytes=block_bytes)
    read = [row for block in blocks for row in read_back(block, *GIVEN)]
    for priority in range(32):
        assert [row for row in read if row["priority"] == priority] == [
            row for row in messages if row["priority"] == priority
        ]
    assert len(read) == len(messages)


@settings(max_examples=60, deadline=None)
@given(message)
def test_the_broker_reads_the_same_properties(given_: dict[str, Any]) -> None:
    (block,) = block_of(
        pa.RecordBatch.from_pylist([given_], schema=schema_of(*GIVEN)), routing_key=None
    )
    told = broker_properties.decode(block.properties(0))
    for name in GIVEN[3:-1]:
        assert getattr(told, name) == given_[name], name
    when = given_["timestamp"]
    assert told.timestamp == (None if when is None else int(when.timestamp()))
    assert block.ttl_ms(0) == (None if given_["expiration"] is None else int(given_["expiration"]))


def test_headers_keep_their_types() -> None:
    values = {
        "text": "ü",
        "yes": True,
        "long": -5,
        "double": 1.5,
        "bytes": b"\x00\xff",
        "nothing": None,
        "when": {"type": "timestamp", "timestamp": 1700000000},
        "exact": {"type": "decimal", "string": "-12.05"},
        "table": {"type": "table", "json": '{"a": [1, "x", {"b": true}]}'},
        "array": {"type": "array", "json": "[1, 2]"},
    }
    raw = b"\x20\x00" + wire.encode_headers(values)
    block = Block.decode(encode([b""], [raw], (b"", b"q")))
    (row,) = read_back(block, "headers")
    found = {
        name: {k: v for k, v in value.items() if v is not None} for name, value in row["headers"]
    }
    assert found == {
        "text": {"type": "string", "string": "ü"},
        "yes": {"type": "boolean", "boolean": True},
        "long": {"type": "long", "long": -5},
        "double": {"type": "double", "double": 1.5},
        "bytes": {"type": "binary", "binary": b"\x00\xff"},
        "nothing": {"type": "void"},
        "when": {
            "type": "timestamp",
            "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC),
        },
        "exact": {"type": "decimal", "string": "-12.05"},
        "table": {"type": "table", "json": '{"a": [1, "x", {"b": true}]}'},
        "array": {"type": "array", "json": "[1, 2]"},
    }
    again = rows(body=[b""], headers=pa.array([row["headers"]], ARROW_TYPES["headers"]))
    (block,) = block_of(again)
    assert read_back(block, "headers") == [row]


def test_plain_maps_are_headers_too() -> None:
    batch = rows(
        body=[b"", b"", b""],
        headers=pa.array([[("n", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    )
    (block,) = block_of(batch)
    told = [broker_properties.decode(block.properties(i)).headers for i in range(3)]
    assert told == [{"n": 1}, None, {}]


def test_a_header_that_is_there_twice_is_there_once() -> None:
    raw = b"\x20\x00" + wire.encode_headers([("a", "1"), ("a", "2")])
    (row,) = read_back(Block.decode(encode([b""], [raw], (b"", b"q"))), "headers")
    assert [(name, value["string"]) for name, value in row["headers"]] == [("a", "2")]


# ------------------------------------------------------------------ reading


def test_the_body_is_a_view_of_the_block() -> None:
    data = encode([b"abc" * 1000, b"def"], [b"\x00\x00"] * 2, (b"", b"q"))
    block = Block.decode(data)
    column = to_arrow(ClaimedBlock(block, [(1, 0, 1, 0, 0)], "q"), schema_of("body")).column(0)
    start = pa.py_buffer(data).address
    assert start <= column.buffers()[2].address < start + len(data)
    assert start <= column.buffers()[1].address < start + len(data)


def test_counts_and_positions_come_from_the_runs() -> None:
    block = Block.decode(encode([b"a", b"b", b"c"], [b"\x00\x00"] * 3, (b"x", b"k"), 7))
    piece = ClaimedBlock(block, [(5, 2, 3, 0, 0), (9, 0, 0, 1, 4)], "queue")
    batch = to_arrow(piece, ALL)
    batch.validate(full=True)
    assert [
        (r["position"], r["delivery_count"], r["acquired_count"], r["redelivered"])
        for r in batch.to_pylist()
    ] == [
        ({"index": 5, "ordinal": 2}, 0, 0, False),
        ({"index": 5, "ordinal": 3}, 0, 0, False),
        ({"index": 9, "ordinal": 0}, 1, 4, True),
    ]
    last = batch.to_pylist()[-1]
    assert (last["queue"], last["exchange"], last["routing_key"], last["priority"]) == (
        "queue",
        "x",
        "k",
        7,
    )
    assert last["message_id"] is None and last["headers"] is None


def test_damaged_blocks_and_lying_runs_are_refused() -> None:
    data = bytearray(encode([b"abc"], [b"\x00\x00"], (b"", b"q")))
    with pytest.raises(BrokerRefusedError, match="runs for 2"):
        ClaimedBlock.decode(memoryview(data), [(1, 0, 1, 0, 0)], "q")
    data[-1] ^= 1
    with pytest.raises(BrokerRefusedError, match="damaged"):
        ClaimedBlock.decode(memoryview(data), [(1, 0, 0, 0, 0)], "q")


DAMAGED = [
    b"",
    b"\x80",
    b"\x80\x00\x09ab",
    b"\x20\x00\x00\x00\x00\x09a",
    b"\x00\x40",
    b"\x00\x00rest",
    b"\x20\x00\x00\x00\x00\x04\x01aS\x00",
    b"\x20\x00\x00\x00\x00\x03\x01a?",
    b"\x00\x03",
    b"\x20\x00" + b"\x00\x00\xff\xff" + b"\x01aF\x00\x00\xff\xff" * 400,
    b"\x00\x40" + b"\xff" * 8,  # a timestamp that Spark's type cannot hold
    b"\x20\x00\x00\x00\x00\x0b\x01aT" + b"\xff" * 8,
]


@pytest.mark.parametrize("raw", DAMAGED)
def test_properties_that_cannot_be_decoded_were_silently_null(raw: bytes) -> None:
    lists = [b"\x10\x00\x02", raw, raw]
    block = Block.decode(encode([b"good", b"body", b"bad"], lists, (b"", b"q")))
    names = ("body", "message_id", "timestamp", "headers", "delivery_mode")
    runs = [(7, 3, 3, 0, 0), (9, 4, 5, 0, 0)]
    with pytest.raises(MalformedMessageError, match=r"queue 'q', position \(index 9, ordinal 4\)"):
        to_arrow(ClaimedBlock(block, runs, "q"), schema_of(*names))
    wanted = schema_of(*names).append(pa.field("bad", pa.binary()))
    read = to_arrow(ClaimedBlock(block, runs, "q"), wanted, "bad").to_pylist()
    assert [(row["body"], row["bad"], row["delivery_mode"]) for row in read] == [
        (b"good", None, 2),
        (b"body", raw, None),
        (b"bad", raw, None),
    ]
    only = pa.schema([pa.field("bad", pa.binary())])
    assert [
        row["bad"] for row in to_arrow(ClaimedBlock(block, runs, "q"), only, "bad").to_pylist()
    ] == [
        None,
        raw,
        raw,
    ]


def nested(depth: int) -> bytes:
    """Make properties with headers that nest that many tables."""
    table = len(b"\x01nb\x07").to_bytes(4, "big") + b"\x01nb\x07"
    for _ in range(depth):
        inner = b"\x01aF" + table
        table = len(inner).to_bytes(4, "big") + inner
    return b"\x20\x00" + table


@pytest.mark.parametrize("depth", [1, 32, 33, 63, 64])
def test_what_the_broker_lets_in_the_connector_reads(depth: int) -> None:
    raw = nested(depth)
    assert examine(raw) >= 0
    (row,) = read_back(Block.decode(encode([b""], [raw], (b"", b"q"))), "headers")
    ((name, value),) = row["headers"]
    found: Any = json.loads(value["json"])
    for _ in range(depth - 1):
        found = found["a"]
    assert (name, value["type"], found) == ("a", "table", {"n": 7})
    (again,) = block_of(
        rows(body=[b""], headers=pa.array([row["headers"]], ARROW_TYPES["headers"]))
    )
    assert examine(again.properties(0)) >= 0
    assert read_back(again, "headers") == [row]


def test_what_is_nested_too_deep_is_refused_by_all_three() -> None:
    raw = nested(fields.DEPTH_MAX + 1)
    assert examine(raw) < 0
    with pytest.raises(SyntaxRefused):
        broker_properties.decode(raw)
    with pytest.raises(SyntaxRefused):
        wire.decode_properties(raw, frozenset({"headers"}))
    for levels in (fields.DEPTH_MAX + 1, 100_000):
        text = "[" * levels + "]" * levels
        deep = [("a", {"type": "array", "json": text})]
        with pytest.raises(SchemaError, match="nested deeper than 64"):
            block_of(rows(body=[b""], headers=pa.array([deep], ARROW_TYPES["headers"])))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_the_kernel_and_the_codec_agree_on_any_bytes(raw: bytes) -> None:
    try:
        broker_properties.select(raw, frozenset(broker_properties.NAMES))
        reads = True
    except SyntaxRefused:
        reads = False
    assert reads == (examine(raw) >= 0)


def test_a_column_for_corrupt_records_must_be_in_the_schema() -> None:
    check_schema(schema_of("body"), "bad")
    check_schema(schema_of("body", "headers").append(pa.field("bad", pa.binary())), "bad")
    with pytest.raises(SchemaError, match="add bad binary to the schema"):
        check_schema(schema_of("body", "headers"), "bad")
    with pytest.raises(SchemaError, match="it is binary"):
        check_schema(pa.schema([pa.field("bad", pa.string())]), "bad")


def test_a_body_as_text_needs_a_place_for_what_is_none() -> None:
    wanted = pa.schema([pa.field("body", pa.string())])
    check_schema(wanted)
    check_schema(wanted.append(pa.field("bad", pa.binary())), "bad")
    with pytest.raises(SchemaError, match="add bad binary to the schema"):
        check_schema(wanted, "bad")


def test_body_as_text() -> None:
    wanted = pa.schema([pa.field("body", pa.string())])
    lists = [b"\x10\x00\x02", b"\x10\x00\x02", b"\x80", b"\x80"]
    block = Block.decode(encode(["ü".encode(), b"\xff", b"b", b"\xfe"], lists, (b"", b"q")))
    piece = ClaimedBlock(block, [(1, 0, 0, 0, 0), (2, 4, 6, 0, 0)], "q")
    with pytest.raises(MalformedMessageError, match=r"index 2, ordinal 4\).*body is not UTF-8"):
        to_arrow(piece, wanted)
    bad = wanted.append(pa.field("bad", pa.binary())).append(ALL.field("delivery_mode"))
    assert [tuple(row.values()) for row in to_arrow(piece, bad, "bad").to_pylist()] == [
        ("ü", None, 2),
        (None, b"\xff", 2),
        ("b", b"\x80", None),
        (None, b"\x80\xfe", None),
    ]
    block = Block.decode(encode(["ü".encode()], [b"\x00\x00"], (b"", b"q")))
    assert to_arrow(ClaimedBlock(block, [(1, 0, 0, 0, 0)], "q"), wanted).to_pylist() == [
        {"body": "ü"}
    ]


def test_schemas_of_the_user() -> None:
    check_schema(schema_of("priority", "body"))
    check_schema(pa.schema([("headers", pa.map_(pa.string(), pa.string()))]))
    with pytest.raises(SchemaError, match="it is map<string, struct<"):
        check_schema(pa.schema([("headers", pa.map_(pa.string(), pa.int64()))]))
    for name in ("routingkey", "ROUTING_KEY"):
        with pytest.raises(SchemaError, match="did you mean routing_key"):
            check_schema(pa.schema([(name, pa.string())]))
    with pytest.raises(SchemaError, match="it is int"):
        check_schema(pa.schema([("priority", pa.string())]))


def test_spark_and_arrow_agree_on_every_type() -> None:
    from pyspark.sql.pandas.types import from_arrow_type

    for name, kind in ARROW_TYPES.items():
        spark = from_arrow_type(kind)
        text = spark.simpleString().replace(",", ", ").replace(":", ": ")
        assert text == COLUMNS[name], name


# ------------------------------------------------------------------ writing


def test_a_map_of_decimals_is_headers_too() -> None:
    entries = [("a", Decimal("1.5")), ("b", Decimal(100)), ("c", Decimal("-0.01")), ("d", None)]
    made = wire.encode_headers(pa.array([entries], DECIMALS).to_pylist()[0])
    typed = [("a", "1.5"), ("b", "100"), ("c", "-0.01")]
    plain: list[tuple[str, Any]] = [(n, {"type": "decimal", "string": t}) for n, t in typed]
    assert made == wire.encode_headers([*plain, ("d", None)])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"body": [b"", None]}, "1 of 2 rows are null"),
        ({"body": [b""], "priority": [-1]}, "-1 is not between 0 and 255"),
        ({"body": [b""], "priority": [256]}, "256 is not between 0 and 255"),
        ({"body": [b""], "expiration": ["soon"]}, "'soon' is not a number of milliseconds"),
        ({"body": [b""], "expiration": [-1]}, "-1 is below 0"),
        ({"body": [b""], "message_id": ["ü" * 128]}, "256 bytes; AMQP 0.9.1 carries 255"),
        (
            {"body": [b""], "routing_key": pa.array([None], pa.string())},
            "routing_key: 1 of 1 rows are",
        ),
        (
            {
                "body": [b""],
                "headers": pa.array([[("k" * 256, "")]], pa.map_(pa.string(), pa.string())),
            },
            "a header's name holds 255",
        ),
        (
            {
                "body": [b""],
                "headers": pa.array([[("k", [1, 2])]], pa.map_(pa.string(), pa.list_(pa.int64()))),
            },
            "column headers: a value of type list; strings, numbers",
        ),
        (
            {
                "body": [b""],
                "headers": pa.array([[("k", Decimal("2147483648"))]], DECIMALS),
            },
            "decimal '2147483648' does not fit",
        ),
        ({"body": [b""], "routing_key": ["k" * 256]}, "column routing_key: a value of 256 bytes"),
        ({"body": [b""], "timestamp": pa.array([-1], pa.int64())}, "before 1970"),
        (
            {"body": [b""], "timestamp": pa.array([-1], pa.timestamp("us", "UTC"))},
            "-1 seconds lies",
        ),
        (
            {"body": [b"", b""], "timestamp": pa.array([0, -1000], pa.timestamp("ns"))},
            "-1 seconds lies",
        ),
        (
            {"body": [b""], "headers": pa.array([[("k", BEFORE_1970)]], ARROW_TYPES["headers"])},
            "timestamp -1 is not between",
        ),
        ({"body": [b"x" * ((52 << 20) + 1)]}, "limit is 54525952"),
    ],
)
def test_rows_that_cannot_be_sent(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        block_of(rows(**columns), routing_key=None if "routing_key" in columns else "q")


@pytest.mark.parametrize(
    ("exchange", "key", "routes"),
    [
        (None, None, [("x", "a"), ("", "b")]),
        ("e", None, [("e", "a"), ("e", "b")]),
        (None, "k", [("", "k"), ("", "k")]),
        ("e", "k", [("e", "k"), ("e", "k")]),
    ],
)
def test_the_source_columns_beat_the_options(
    exchange: str | None, key: str | None, routes: list[tuple[str, str]]
) -> None:
    batch = rows(body=[b"1", b"2"], exchange=pa.array(["x", None]), routing_key=["a", "b"])
    (block,) = block_of(batch, exchange=exchange, routing_key=key)
    assert [tuple(part.decode() for part in block.route(i)) for i in (0, 1)] == routes


def test_priorities_are_clamped_as_the_queue_does() -> None:
    (block,) = block_of(rows(body=[b"a", b"b", b"c"], priority=[None, 200, 31]))
    assert [(bytes(block.body(i)), block.priority(i)) for i in range(3)] == [
        (b"b", 31),
        (b"c", 31),
        (b"a", 4),
    ]
    assert broker_properties.decode(block.properties(0)).priority == 200


def test_delivery_mode_is_persistent_unless_said() -> None:
    batch = rows(body=[b"a", b"b"], delivery_mode=pa.array([1, None]))
    (block,) = block_of(batch)
    assert [broker_properties.decode(block.properties(i)).delivery_mode for i in (0, 1)] == [1, 2]
    (block,) = block_of(rows(body=[b"a"]), persistent=False)
    assert broker_properties.decode(block.properties(0)).delivery_mode == 1


def test_slices_of_a_batch_are_written_from_where_they_begin() -> None:
    batch = rows(
        body=[b"%d" % i for i in range(10)],
        priority=list(range(10)),
        routing_key=[f"k{i % 2}" for i in range(10)],
        message_id=[str(i) for i in range(10)],
    )
    (block,) = block_of(batch.slice(3, 4), routing_key=None)
    assert read_back(block, "body", "routing_key", "message_id") == [
        {"body": b"%d" % i, "routing_key": f"k{i % 2}", "message_id": str(i)} for i in (6, 5, 4, 3)
    ]


def test_blocks_are_bounded_and_one_large_row_goes_alone() -> None:
    batch = rows(body=[b"x" * size for size in (10, 5000, 10, 10)])
    blocks = block_of(batch, block_bytes=4096)
    assert [block.count for block in blocks] in ([1, 1, 2], [1, 1, 1, 1])
    assert [len(row["body"]) for block in blocks for row in read_back(block, "body")] == [
        10,
        5000,
        10,
        10,
    ]


def test_message_ids_for_rows_without_one() -> None:
    batch = rows(body=[b"a", b"b"], message_id=pa.array(["own", None]))
    ids = pa.array(["m0", "m1"])
    (block,) = block_of(batch, message_ids=ids)
    assert [row["message_id"] for row in read_back(block, "message_id")] == ["own", "m1"]


# ------------------------------------------------------------------ rows of other brokers


def test_rows_of_other_brokers_have_the_same_modes(caplog: pytest.LogCaptureFixture) -> None:
    headers = b"\x20\x00" + fields.table({"n": fields.Field("l", 7)})
    stored = pa.record_batch(
        {
            "body": pa.array([b"a", b"\xff", b"c"], pa.binary()),
            "properties": pa.array([headers, headers, b"\x80"], pa.binary()),
        }
    )
    delivered = DeliveredRows(stored, range(5, 8), "s")
    wanted = pa.schema([("body", pa.string()), ("headers", HEADERS_TEXT)])
    with pytest.raises(MalformedMessageError, match=r"position \(index 7, ordinal 0\)"):
        delivered.to_arrow(wanted, None)
    with pytest.raises(MalformedMessageError, match=r"index 6, ordinal 0\).*body is not UTF-8"):
        delivered.to_arrow(wanted.remove(1), None)
    bad = wanted.append(pa.field("bad", pa.binary()))
    assert [tuple(row.values()) for row in delivered.to_arrow(bad, "bad").to_pylist()] == [
        ("a", [("n", "7")], None),
        (None, [("n", "7")], b"\xff"),
        ("c", None, b"\x80"),
    ]
    given = {"queue": "s", "startingOffset": "first", "mode": "DROPMALFORMED"}
    options = parse_options(given, "read", "stream")
    (kept,) = rows_in_mode(options, wanted, delivered.pieces)
    assert kept.to_pylist() == [{"body": "a", "headers": [("n", "7")]}]
    assert "2 messages that cannot be decoded are left out" in caplog.text
    assert "(index 6, ordinal 0), (index 7, ordinal 0) (mode" in caplog.text


def test_a_repeated_word_is_arrows_own() -> None:
    for word, count in (("", 3), ("", 0), ("köln", 5), ("q", 0)):
        made = _repeated(word, count)
        made.validate(full=True)
        assert made.equals(pa.repeat(pa.scalar(word), count)), (word, count)
