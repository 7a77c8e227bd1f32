"""A sink's columns to property lists: the same as row by row, on both kernels, with one error."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_warren.errors import SchemaError
from pyspark_warren.rows import encode
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.rows.encode import EncodedRows, encode_rows
from pyspark_warren.rows.properties import encode_headers
from tests.patience import PATIENCE_S
from tests.wire.kernel.conftest import loaded
from warren_wire.amqp091 import properties
from warren_wire.amqp091.properties import Properties
from warren_wire.arguments import DURATION_MS_MAX
from warren_wire.block.layout import TTL_NONE

HEADERS = ARROW_TYPES["headers"]
CODEC = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=["compiled", "interpreted"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with the one kernel, then with the other."""
    chosen = loaded(request.param).property_lists
    for name in ("Values", "Members", "property_lists", "header_tables", "expirations"):
        monkeypatch.setattr(encode.kernel, name, getattr(chosen, name))


def encoded(columns: dict[str, pa.Array], first: int = 0, **options: Any) -> EncodedRows:
    """Encode the rows from `first` on, with bodies, for one queue."""
    count = len(next(iter(columns.values())))
    batch = pa.record_batch({"body": pa.array([b""] * count), **columns})
    return encode_rows(batch.slice(first), None, "q", True, **options)


def one_by_one(columns: dict[str, pa.Array]) -> list[bytes]:
    """The property lists by the broker's codec."""
    rows = pa.record_batch(columns).to_pylist()
    made = []
    for row in rows:
        entries = row.pop("headers", None)
        row["delivery_mode"] = 2 if row.get("delivery_mode") is None else row["delivery_mode"]
        if row.get("timestamp") is not None:
            row["timestamp"] = int(row["timestamp"].timestamp())
        raw = properties.encode(Properties(**row))
        if entries is not None:
            raw = with_headers(raw, encode_headers(entries))
        made.append(raw)
    return made


def with_headers(raw: bytes, table: bytes) -> bytes:
    at = 2
    for bit in (0x80, 0x40):
        if raw[0] & bit:
            at += 1 + raw[at]
    return bytes((raw[0] | 0x20, raw[1])) + raw[2:at] + table + raw[at:]


short = st.none() | st.text(max_size=12) | st.just("ü" * 127)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
moment = st.none() | st.integers(0, 2**52).map(
    lambda micros: EPOCH + datetime.timedelta(microseconds=micros)
)
typed = st.fixed_dictionaries(
    {
        "string": st.none() | st.text(max_size=5),
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "double": st.none() | st.floats(),
        "boolean": st.none() | st.booleans(),
        "binary": st.none() | st.binary(max_size=5),
        "timestamp": moment,
        "json": st.none() | st.just('{"a": [1]}'),
        "type": st.sampled_from(
            ["string", "long", "double", "boolean", "binary", "timestamp", "void"] * 3
            + ["table", "json", "decimal", "strange", None]
        ),
    }
)
ITEMS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=6),
    pa.large_string(): st.text(max_size=6),
    pa.binary(): st.binary(max_size=6),
    pa.large_binary(): st.binary(max_size=6),
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.null(): st.none(),
    pa.decimal128(38, 10): st.integers(-(2**31), 2**31 - 1).map(lambda n: Decimal(n) / 100),
    pa.timestamp("us", "UTC"): moment,
    pa.date32(): st.dates(),
    HEADERS.item_type: typed,
}


def maps(item: pa.DataType) -> st.SearchStrategy[pa.MapArray]:
    """Columns of maps, with nulls, empty ones, long names, and a name twice."""
    name = st.text(max_size=4) | st.sampled_from(["same", "x" * 255, "x" * 256])
    entries = st.lists(st.tuples(name, st.none() | ITEMS[item]), max_size=5)
    rows = st.lists(st.none() | entries, min_size=1, max_size=8)
    return rows.map(lambda values: pa.array(values, pa.map_(pa.string(), item)))


def outcome(work: Any) -> Any:
    """What it returns, or its error's text."""
    try:
        return work()
    except SchemaError as wrong:
        return str(wrong)


@pytest.mark.parametrize("item", ITEMS, ids=str)
@CODEC
@given(st.data(), st.integers(0, 3))
def test_headers_are_encoded_as_one_by_one(
    mode: None, item: pa.DataType, data: st.DataObject, first: int
) -> None:
    column = data.draw(maps(item)).slice(first)

    def all_at_once() -> list[bytes | None]:
        return encode._headers(column).to_pylist()

    def slowly() -> list[bytes | None]:
        return encode._tables(encode._listed(column)).to_pylist()

    assert outcome(all_at_once) == outcome(slowly)


def test_headers_that_the_kernel_takes(mode: None) -> None:
    """The property above would also hold if everything were encoded one by one."""
    plain: dict[pa.DataType, Any] = {
        pa.string(): "a",
        pa.binary(): b"a",
        pa.int16(): 3,
        pa.float32(): 0.5,
        pa.bool_(): True,
        pa.null(): None,
        HEADERS.item_type: {"type": "long", "long": 3},
    }
    for item, value in plain.items():
        column = pa.array([[("k", value), ("n", None)], None], pa.map_(pa.string(), item))
        made = encode.header_tables(column)
        assert made is not None, item
        assert made.to_pylist() == [encode_headers({"k": value, "n": None}), None]
    for item in (pa.decimal128(9, 2), pa.list_(pa.int64()), pa.date32(), pa.uint64()):
        column = pa.array([[("k", None)]], pa.map_(pa.string(), item))
        assert encode.header_tables(column) is None, item


@CODEC
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "content_type": short,
                "content_encoding": short,
                "headers": st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
                "delivery_mode": st.none() | st.integers(0, 255),
                "priority": st.none() | st.integers(0, 255),
                "correlation_id": short,
                "reply_to": short,
                "expiration": st.none() | st.integers(0, 2**32 - 1).map(str),
                "message_id": short,
                "timestamp": moment,
                "type": short,
                "user_id": short,
                "app_id": short,
            }
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64()]),
    st.integers(0, 4),
    st.data(),
)
def test_property_lists_are_those_of_the_codec(
    mode: None,
    rows: list[dict[str, Any]],
    text: pa.DataType,
    whole: pa.DataType,
    first: int,
    data: st.DataObject,
) -> None:
    kinds: dict[str, pa.DataType] = dict.fromkeys(rows[0], text)
    kinds["headers"] = pa.map_(pa.string(), pa.string())
    kinds["timestamp"] = pa.timestamp("us", "UTC")
    for name in ("priority", "delivery_mode"):
        kinds[name] = whole if whole != pa.int8() else pa.int16()
    there = sorted(data.draw(st.sets(st.sampled_from(sorted(kinds)), min_size=1)))
    columns = {
        name: pa.array(
            [list(row[name].items()) if isinstance(row[name], dict) else row[name] for row in rows],
            kinds[name],
        )
        for name in there
    }
    first = min(first, len(rows))
    made = encoded(columns, first)
    made.properties.validate(full=True)
    assert made.properties.to_pylist() == one_by_one(columns)[first:]
    if "expiration" in columns:
        ttls = [row["expiration"] for row in rows[first:]]
        said = [TTL_NONE] * len(made) if made.ttls_ms is None else made.ttls_ms.to_pylist()
        assert said == [TTL_NONE if t is None else min(int(t), TTL_NONE - 1) for t in ttls]


def test_an_empty_batch_has_no_lists(mode: None) -> None:
    columns = {
        "message_id": pa.array([], pa.string()),
        "headers": pa.array([], pa.map_(pa.string(), pa.string())),
        "expiration": pa.array([], pa.string()),
    }
    assert len(encoded(columns).properties) == 0


def strings(values: Sequence[bytes | None]) -> pa.StringArray:
    """A column of strings that were not validated."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)


def test_strings_that_are_not_utf_8(mode: None) -> None:
    """Short strings are passed on, as any publisher could send them; headers are refused."""
    made = encoded({"type": strings([b"\xff", None])})
    assert made.properties.to_pylist() == [b"\x10\x20\x02\x01\xff", b"\x10\x00\x02"]
    key = pa.MapArray.from_arrays([0, 1], strings([b"\xff"]), pa.array(["x"]))
    value = pa.MapArray.from_arrays([0, 1], pa.array(["x"]), strings([b"\xff"]))
    for column in (key, value):
        with pytest.raises(SchemaError, match="column headers: 'utf-8' codec can't decode"):
            encoded({"headers": column})


def test_a_routing_key_that_is_not_utf_8_was_an_error_of_python(mode: None) -> None:
    batch = pa.record_batch({"body": pa.array([b""]), "routing_key": strings([b"\xff"])})
    with pytest.raises(SchemaError, match=r"\(b'', b'.xff'\) is not UTF-8"):
        encode_rows(batch, None, None, True)


def test_the_longest_short_string(mode: None) -> None:
    made = encoded({"type": pa.array(["x" * 255])})
    assert made.properties.to_pylist() == [b"\x10\x20\x02\xff" + b"x" * 255]
    for kind in (pa.string(), pa.large_string()):
        with pytest.raises(SchemaError, match="column type: a value of 256 bytes; AMQP 0.9.1 carr"):
            encoded({"type": pa.array([None, "x" * 256], kind)})


def test_an_expiration_that_no_broker_takes_was_sent(mode: None) -> None:
    """The connector took 18 digits, and 18 at most; the broker refused the block later."""
    for text in ("4294967295", "+5", "0" * 30 + "5"):
        assert encoded({"expiration": pa.array([text])}).ttls_ms is not None
    for column in (
        pa.array([None, "4294967296"]),
        pa.array([0, 4294967296]),
        pa.array(["1", "99999999999999999"]),
        pa.array(["-1"]),
        pa.array([""]),
        pa.array(["\u0667"]),
    ):
        bad = str(column[-1])
        with pytest.raises(SchemaError) as refused:
            encoded({"expiration": column})
        assert str(refused.value).endswith(
            f"column expiration: {bad!r} is not a number of milliseconds from 0 to 4294967295"
        )


def test_rabbitmq_takes_an_expiration_of_ten_years(mode: None) -> None:
    years = {"expiration": pa.array([DURATION_MS_MAX])}
    made = encoded(years, expiration_ms_max=DURATION_MS_MAX)
    assert made.properties.to_pylist() == [b"\x11\x00\x02\x0c315360000000"]
    with pytest.raises(SchemaError, match="'315360000001' is not a number of milliseconds"):
        encoded({"expiration": pa.array([DURATION_MS_MAX + 1])}, expiration_ms_max=DURATION_MS_MAX)


def test_a_delivery_mode_beyond_32_bits_was_an_error_of_arrow(mode: None) -> None:
    with pytest.raises(SchemaError, match=r"delivery_mode: 1099511627776 is not between 0 and 255"):
        encoded({"delivery_mode": pa.array([2**40])})


FAULTS = """
import resource, sys
import pyarrow as pa
from pyspark_warren.rows.blocks import blocks_of
from pyspark_warren.rows.encode import encode_rows
from pyspark_warren.sink.writer import keep_freed_memory
if {keeps}:
    keep_freed_memory()
rows = pa.record_batch({{"body": pa.array([b"x" * 1024] * 4000)}})
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for block in blocks_of(encode_rows(rows, None, "q", True), 4 << 20):
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep it, or do not")
def test_each_block_was_new_memory() -> None:
    """A block of 2 MiB has 512 pages."""
    faults = {}
    for keeps in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS.format(keeps=keeps)],
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE_S,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        faults[keeps] = int(done.stdout)
    assert faults[True] < 64, faults
