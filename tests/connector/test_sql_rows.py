"""The options `filter` and `filterUnmatched`: rows by a SQL filter expression of AMQP 1.0."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from spark_world.fake import FakeBroker, FakeClient

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.reader import read_task, rows_in_mode
from pyspark_warren.errors import MalformedMessageError, OptionError
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.rows.blocks import blocks_of
from pyspark_warren.rows.decode import ARROW_TYPES, HEADERS_TEXT
from pyspark_warren.rows.encode import encode_rows
from pyspark_warren.rows.rows import ClaimedBlock, to_arrow
from pyspark_warren.rows.sql_rows import RowFilter
from pyspark_warren.spool.read import DeliveredRows
from pyspark_warren.surroundings import Surroundings
from pyspark_warren.table import WarrenBatchReader
from warren.claims import FetchedBlock
from warren_wire.amqp091 import fields
from warren_wire.amqp091.fields import Field
from warren_wire.block.block import Block, encode
from warren_wire.block.layout import AREA_BODIES, AREA_PROPERTIES

ALL: Final = pa.schema(list(ARROW_TYPES.items()))
NOON: Final = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
PROPERTIES: Final = {
    "message_id": "m-1",
    "user_id": "guest",
    "reply_to": "answers",
    "correlation_id": "c-1",
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "timestamp": NOON,
    "app_id": "shop",
    "priority": 7,
}
HEADERS: Final = {
    "region": Field("S", "emea"),
    "count": Field("l", 7),
    "share": Field("d", 0.25),
    "paid": Field("t", True),
    "raw": Field("x", b"\x00\xff"),
    "when": Field("T", 1_700_000_000),
    "price": Field("D", Decimal("9.95")),
    "none": Field("V", None),
    "list": Field("A", [1, 2]),
    "table": Field("F", {"a": 1}),
    "x-retry": Field("i", 3),
}


def schema_of(*names: str) -> pa.Schema:
    return pa.schema([ALL.field(name) for name in names])


def one_message() -> Block:
    """A message with all of PROPERTIES and HEADERS."""
    table = fields.table(dict(HEADERS))
    row = pa.RecordBatch.from_pylist([{**PROPERTIES, "body": b"x"}])
    (made,) = [
        Block.decode(data)
        for data in blocks_of(
            encode_rows(row, exchange=None, routing_key="q", persistent=True), 999
        )
    ]
    plain = bytes(made.properties(0))
    flags = int.from_bytes(plain[:2], "big") | 0x2000
    # content_type and content_encoding come before the headers, everything else behind them.
    before = 2 + 1 + len("text/plain") + 1 + len("gzip")
    listed = flags.to_bytes(2, "big") + plain[2:before] + table + plain[before:]
    return Block.decode(encode([b"x"], [listed], (b"", b"q"), 7))


def read(block: Block, schema: pa.Schema, corrupt: str | None = None) -> pa.RecordBatch:
    return to_arrow(ClaimedBlock(block, [(9, 0, block.count - 1, 0, 0)], "q"), schema, corrupt)


def kept(block: Block, text: str, *names: str) -> list[dict[str, Any]]:
    chosen = RowFilter(text, schema_of(*names), None)
    found: list[dict[str, Any]] = chosen.kept(read(block, chosen.schema)).to_pylist()
    return found


@pytest.mark.parametrize(
    "text",
    [
        "header.priority = 7",
        "p.message_id = 'm-1' AND p.user_id = 'guest' AND p.reply_to = 'answers'",
        "p.correlation_id = 'c-1' AND p.content_type LIKE 'text/%'",
        "p.content_encoding IN ('gzip', 'zstd') AND p.group_id = 'shop'",
        f"p.creation_time = {int(NOON.timestamp()) * 1000}",
        "region = 'emea' AND a.region LIKE '_mea' AND application_properties.region < 'f'",
        "count = 7 AND share = 0.25 AND count * share = 1.75",
        "paid AND paid = TRUE",
        "raw = 0x00FF",
        "[when] = 1700000000000",
        "price = 9.95",
        "none IS NULL AND absent IS NULL AND list IS NULL AND table IS NULL",
        "[x-retry] = 3",
    ],
)
def test_what_a_filter_sees_of_a_message(text: str) -> None:
    block = one_message()
    assert kept(block, text, "body") == [{"body": b"x"}]
    assert kept(block, f"NOT ({text})", "body") == []
    assert (
        kept(block, text, "headers", "app_id", "body")
        == read(block, schema_of("headers", "app_id", "body")).to_pylist()
    )


def test_headers_as_text_are_filtered_by_their_types() -> None:
    wanted = pa.schema([("headers", HEADERS_TEXT)])
    chosen = RowFilter("count > 6 AND paid", wanted, None)
    (found,) = chosen.kept(read(one_message(), chosen.schema)).to_pylist()
    assert ("count", "7") in found["headers"] and ("paid", "true") in found["headers"]
    assert read(one_message(), wanted).to_pylist() == [found]


def test_without_a_filter_rows_are_what_they_are() -> None:
    chosen = RowFilter("", schema_of("body"), None)
    rows = read(one_message(), chosen.schema)
    assert chosen.schema == schema_of("body") and chosen.kept(rows) is rows


ROWS: Final = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(max_size=3),
            "priority": st.integers(0, 9),
            "app_id": st.none() | st.sampled_from(["", "a", "ab"]),
            "headers": st.dictionaries(
                st.sampled_from(["x", "y", "in"]),
                st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.just("a"),
            ).map(lambda entries: list(entries.items())),
        }
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 3), st.sampled_from(["x", "y"]))
def test_the_rows_kept_are_those_that_a_loop_finds(
    rows: list[dict[str, Any]], least: int, name: str
) -> None:
    lists = []
    for row in rows:
        head = b"\x20\x00" if row["app_id"] is None else b"\x20\x08"
        tail = b"" if row["app_id"] is None else fields.short_string(row["app_id"])
        codes = {type(None): "V", bool: "t", int: "l", float: "d", str: "S"}
        table = {key: Field(codes[type(value)], value) for key, value in row["headers"]}
        lists.append(head + fields.table(table) + tail)
    block = Block.decode(
        encode([row["body"] for row in rows], lists, (b"", b"q"), [row["priority"] for row in rows])
    )
    text = f"(h.priority >= {least} AND p.group_id LIKE 'a%') OR a.{name} > 0 OR [in] = TRUE"
    ordered = sorted(rows, key=lambda row: -row["priority"]) if block.priority_runs else rows

    def wanted(row: dict[str, Any]) -> bool:
        entries = dict(row["headers"])
        number = entries.get(name)
        positive = type(number) in (int, float) and float(number or 0) > 0
        named = row["priority"] >= least and (row["app_id"] or "").startswith("a")
        return named or positive or entries.get("in") is True

    found = kept(block, text, "priority", "app_id", "body")
    key = lambda row: (row["priority"], row["app_id"] or "", row["body"])  # noqa: E731
    assert sorted(found, key=key) == sorted(
        (
            {name: row[name] for name in ("priority", "app_id", "body")}
            for row in ordered
            if wanted(row)
        ),
        key=key,
    )


def test_what_cannot_be_decoded_is_never_left_out_unseen() -> None:
    good = b"\x20\x00" + fields.table({"n": Field("l", 7)})
    other = b"\x20\x00" + fields.table({"n": Field("l", 8)})
    stored = pa.record_batch(
        {
            "body": pa.array([b"a", b"b", b"c"], pa.binary()),
            "properties": pa.array([good, other, b"\x80"], pa.binary()),
        }
    )
    delivered = DeliveredRows(stored, range(5, 8), "s")
    filtering = {"queue": "s", "startingOffset": "first", "filter": "n = 7"}

    def rows(mode: str, schema: pa.Schema) -> list[dict[str, Any]]:
        options = parse_options({**filtering, "mode": mode}, "read", "stream")
        return [
            row
            for batch in rows_in_mode(options, schema, delivered.pieces)
            for row in batch.to_pylist()
        ]

    body = schema_of("body")
    with pytest.raises(MalformedMessageError, match="index 7, ordinal 0"):
        rows("FAILFAST", body)
    assert rows("DROPMALFORMED", body) == [{"body": b"a"}]
    assert rows("PERMISSIVE", body) == [{"body": b"a"}, {"body": b"c"}]
    shown = body.append(pa.field("_corrupt_record", pa.binary()))
    assert rows("PERMISSIVE", shown) == [
        {"body": b"a", "_corrupt_record": None},
        {"body": b"c", "_corrupt_record": b"\x80"},
    ]


# ------------------------------------------------------------------ reads


class Watched(FakeClient):
    """Notes what areas are fetched."""

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self.areas: set[int] = set()
        self.fetched: list[tuple[int, int, int]] = []

    def fetch(
        self,
        queue: str,
        reader: str,
        number: int,
        first: int,
        last: int,
        areas: int,
        read_by: Any = None,
    ) -> Iterator[FetchedBlock]:
        self.areas.add(areas)
        self.fetched.append((first, last, areas))
        yield from super().fetch(queue, reader, number, first, last, areas, read_by)


def filled() -> tuple[FakeBroker, Watched]:
    """2,000 messages: bodies 0 to 1999, header n the number modulo 5."""
    broker = FakeBroker()
    broker.declare("q")
    lists = [b"\x20\x00" + fields.table({"n": Field("l", n % 5)}) for n in range(2_000)]
    broker.queues["q"].enqueue(encode([b"%d" % n for n in range(2_000)], lists, (b"", b"q"), 4))
    return broker, Watched.local(broker)  # type: ignore[return-value]


def streaming(**more: str) -> Options:
    return parse_options(
        {"queue": "q", "filter": "n IN (1, 3)", "filterUnmatched": "settle", **more},
        "read",
        "stream",
    )


WANTED: Final = [b"%d" % n for n in range(2_000) if n % 5 in (1, 3)]


def test_a_batch_has_the_matching_rows_again_and_the_others_leave_with_it() -> None:
    broker, client = filled()
    driver = ClaimDriver(
        client, replace(streaming(), prefetch_claims=0), Surroundings.of_this_process()
    )
    start = driver.latest(driver.initial(), 1)
    end = driver.latest(start, None)

    def bodies(given: ClaimDriver) -> list[bytes]:
        return [
            body
            for part in given.plan(start, end)
            for rows in read_task(lambda _: client, streaming(), [part], schema_of("body"))
            for body in rows.column("body").to_pylist()
        ]

    assert bodies(driver) == WANTED
    assert client.areas == {AREA_BODIES | AREA_PROPERTIES}
    again = ClaimDriver(
        client, replace(streaming(), prefetch_claims=0), Surroundings.of_this_process()
    )
    assert bodies(again) == WANTED and broker.state("q")["acknowledged"] == 0
    again.settle(end)
    assert broker.state("q")["acknowledged"] == 2_000 and broker.bodies("q") == []


def test_bodies_that_are_not_wanted_are_not_fetched_for_a_filter() -> None:
    _, client = filled()
    driver = ClaimDriver(
        client, replace(streaming(), prefetch_claims=0), Surroundings.of_this_process()
    )
    start = driver.latest(driver.initial(), 1)
    parts = driver.plan(start, driver.latest(start, None))
    rows = [
        batch.num_rows
        for part in parts
        for batch in read_task(lambda _: client, streaming(), [part], schema_of("position"))
    ]
    assert sum(rows) == len(WANTED) and client.areas == {AREA_PROPERTIES}


def test_large_bodies_are_fetched_only_where_a_message_is_kept() -> None:
    broker = FakeBroker()
    broker.declare("q")
    wanted = (3, 4, 900, 1_999)
    lists = [b"\x20\x00" + fields.table({"n": Field("l", n)}) for n in range(2_000)]
    body = [b"%d" % n + b"." * 4_096 for n in range(2_000)]
    broker.queues["q"].enqueue(encode(body, lists, (b"", b"q"), 4))
    client = Watched.local(broker)
    assert isinstance(client, Watched)

    def read(schema: pa.Schema, **more: str) -> list[Any]:
        options = streaming(filter="n IN (3, 4, 900, 1999)", partitions="1", **more)
        driver = ClaimDriver(
            client, replace(options, prefetch_claims=0), Surroundings.of_this_process()
        )
        start = driver.latest(driver.initial(), 1)
        (part,) = driver.plan(start, driver.latest(start, None))
        client.fetched.clear()
        found = [
            row
            for rows in read_task(lambda _: client, options, [part], schema)
            for row in rows.column("body").to_pylist()
        ]
        driver._queues[options.queue]._reader.release()  # type: ignore[union-attr]
        return found

    assert read(schema_of("body")) == [body[n] for n in wanted]
    whole = (0, 2_000, AREA_PROPERTIES)
    bodies = [(n, n + 1, AREA_BODIES | AREA_PROPERTIES) for n in (3, 900, 1_999)]
    bodies[0] = (3, 5, AREA_BODIES | AREA_PROPERTIES)
    assert client.fetched == [whole, *bodies]
    # A body that is not UTF-8 is a row in this mode, whatever the filter says: all must be seen.
    text = pa.schema([("body", pa.string()), ("_corrupt_record", pa.binary())])
    assert len(read(text, mode="PERMISSIVE")) == 4
    assert client.fetched == [(0, 2_000, AREA_BODIES | AREA_PROPERTIES)]


@pytest.mark.parametrize("more", [{}, {"maxMessages": "1000"}, {"state": "all"}])
def test_a_table_has_the_matching_rows_and_the_queue_keeps_all(more: dict[str, str]) -> None:
    broker, client = filled()
    options = parse_options({"queue": "q", "filter": "n IN (1, 3)", **more}, "read", "batch")
    reader = WarrenBatchReader(options, from_arrow_schema(schema_of("body")), lambda _: client)
    found = [
        body
        for part in reader.partitions()
        for rows in reader.read(part)
        for body in rows.column("body").to_pylist()
    ]
    assert sorted(found) == sorted(WANTED[:400] if "maxMessages" in more else WANTED)
    assert len(broker.bodies("q")) == 2_000


# ------------------------------------------------------------------ options

STREAM: Final = {"startingOffset": "first"}


@pytest.mark.parametrize(
    ("how", "more", "says"),
    [
        ("stream", {"filter": "n = 1"}, "leave the queue with their batch, unseen; say so with"),
        (
            "stream",
            {"filter": "n = 1", "broker": "amqp", "spoolLocation": "/s"},
            "say so with filterUnmatched=settle",
        ),
        (
            "stream",
            {"filter": "n = 1", "filterUnmatched": "keep"},
            "would be at the queue's head again, before each batch; bind a queue",
        ),
        (
            "stream",
            {"filter": "n = 1", "filterUnmatched": "settle", **STREAM},
            "nothing that is read here leaves: leave it out",
        ),
        ("batch", {"filter": "n = 1", "filterUnmatched": "settle"}, "leave it out"),
        ("stream", {"filterUnmatched": "settle"}, "filterUnmatched=settle needs the option filter"),
        ("batch", {"filter": "n = 1", "filterUnmatched": "drop"}, "give keep or settle"),
        ("batch", {"filter": ""}, "at its end: a name"),
        ("batch", {"filter": "n == 1"}, "option filter='n == 1': character 4: before ="),
        ("batch", {"filter": "p.creation_time > UTC() - 5"}, "UTC() changes with the time"),
        ("batch", {"filter": "p.subject = 'x'"}, "has no properties.subject: no message could"),
        ("batch", {"filter": "x" * 4097}, "has 4097 characters, 4096 is the limit"),
    ],
)
def test_refusals(how: str, more: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=re.escape(says)):
        parse_options({"queue": "q", **more}, "read", how)


@pytest.mark.parametrize(
    ("how", "more"),
    [
        ("stream", {"filterUnmatched": "settle"}),
        ("stream", {"filterUnmatched": "SETTLE", "broker": "amqp", "spoolLocation": "/s"}),
        ("stream", {"filterUnmatched": "keep", **STREAM}),
        ("stream", STREAM),
        ("batch", {"filterUnmatched": "keep"}),
        ("batch", {}),
        ("both", {}),
    ],
)
def test_accepted(how: str, more: dict[str, str]) -> None:
    assert parse_options({"queue": "q", "filter": "n = 1", **more}, "read", how).row_filter


def test_a_filter_is_for_reading() -> None:
    with pytest.raises(OptionError, match="option filter is for reading"):
        parse_options({"filter": "n = 1"}, "write", "batch")
