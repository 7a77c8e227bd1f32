"""Property lists to columns: the same as decoding each message by itself, on both kernels."""

from __future__ import annotations

import base64
from array import array
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_warren.rows import decode
from pyspark_warren.rows.columns import PROPERTY_COLUMNS
from pyspark_warren.rows.decode import decode_columns
from pyspark_warren.rows.properties import NAMES, decode_properties
from tests.wire.kernel.conftest import loaded
from warren_wire.amqp091 import fields, properties
from warren_wire.amqp091.fields import Field
from warren_wire.amqp091.properties import Properties
from warren_wire.errors import SyntaxRefused
from warren_wire.kernel import with_sections

MICROS = 1_000_000
SECONDS_MAX = (2**63 - 1) // MICROS
VALUE = decode.ARROW_TYPES["headers"].item_type


@pytest.fixture(params=["compiled", "interpreted"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with the one kernel, then with the other."""
    chosen = loaded(request.param).property_columns
    monkeypatch.setattr(decode.kernel, "split_properties", chosen.split_properties)
    monkeypatch.setattr(decode.kernel, "header_entries", chosen.header_entries)


def columns_of(lists: list[bytes], wanted: frozenset[str]) -> decode.DecodedProperties:
    """Decode the lists as a block holds them."""
    offsets = array("I", [0])
    for each in lists:
        offsets.append(offsets[-1] + len(each))
    return decode_columns(memoryview(offsets), memoryview(b"".join(lists)), len(lists), wanted)


def alone(raw: bytes) -> dict[str, Any] | None:
    """Decode one list by the broker's codec, as column values; None: it is malformed."""
    try:
        found = decode_properties(raw, frozenset(NAMES))
    except SyntaxRefused:
        return None
    times = [found.get("timestamp", 0)]
    times += [typed.get("timestamp", 0) for _, typed in found.get("headers", ())]
    if max(times) > SECONDS_MAX:
        return None
    if "timestamp" in found:
        found["timestamp"] *= MICROS
    if "headers" in found:
        headers = {}
        for name, typed in found["headers"]:
            if "timestamp" in typed:
                typed = typed | {"timestamp": typed["timestamp"] * MICROS}
            headers[name] = sorted(typed.items())
        found["headers"] = list(headers.items())
    return found


def shown(name: str, values: Any) -> list[str]:
    """The column's values as text, so that NaN equals NaN; times as numbers."""
    if name == "timestamp":
        values = values.cast("int64")
    if name == "headers":
        members = [
            pa.field(each.name, pa.int64()) if each.name == "timestamp" else each
            for each in values.type.item_type
        ]
        values = values.cast(pa.map_(pa.string(), pa.struct(members)))
    made = []
    for value in values.to_pylist():
        if name == "headers" and value is not None:
            value = [
                (key, sorted(each for each in typed.items() if each[1] is not None))
                for key, typed in value
            ]
        made.append(repr(value))
    return made


number = st.integers(-(2**31), 2**31 - 1)
value = st.one_of(
    st.text(max_size=8).map(lambda text: Field("S", text)),
    st.binary(max_size=6).map(lambda raw: Field("S", raw)),
    st.binary(max_size=6).map(lambda raw: Field("x", raw)),
    st.booleans().map(lambda flag: Field("t", flag)),
    st.integers(-128, 127).map(lambda n: Field("b", n)),
    st.integers(0, 255).map(lambda n: Field("B", n)),
    st.integers(-(2**15), 2**15 - 1).map(lambda n: Field("s", n)),
    st.integers(0, 2**16 - 1).map(lambda n: Field("u", n)),
    number.map(lambda n: Field("I", n)),
    st.integers(0, 2**32 - 1).map(lambda n: Field("i", n)),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: Field("l", n)),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: Field("L", n)),
    st.floats(width=32).map(lambda x: Field("f", x)),
    st.floats().map(lambda x: Field("d", x)),
    st.just(Field("V", None)),
)
rare = st.one_of(
    number.map(lambda n: Field("D", Decimal(n).scaleb(-2))),
    st.lists(st.text(max_size=3), max_size=2).map(lambda items: Field("A", items)),
    st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2).map(lambda t: Field("F", t)),
)
times = st.one_of(st.integers(0, 2**33), st.sampled_from([SECONDS_MAX, SECONDS_MAX + 1, 2**64 - 1]))
names = st.sampled_from(["a", "b", "", "ä", "long name", "x-death"]) | st.text(max_size=5)


@st.composite
def header_table(draw: st.DrawFn) -> bytes:
    """A table's bytes without its length; sometimes with a name twice, or with rare types."""
    if draw(st.integers(0, 9)):
        kinds = value
    else:
        kinds = value | rare | times.map(lambda n: Field("T", n))
    entries = draw(st.lists(st.tuples(names, kinds), max_size=4))
    return b"".join(fields.short_string(name) + fields.field(each) for name, each in entries)


@st.composite
def property_list(draw: st.DrawFn) -> bytes:
    """A property list; one in eight is damaged."""
    flags, parts = 0, []
    for at, name in enumerate(NAMES):
        if draw(st.integers(0, 3)):
            continue
        flags |= 1 << (15 - at)
        if name == "headers":
            parts.append(fields.long_string(draw(header_table())))
        elif name in ("delivery_mode", "priority"):
            parts.append(bytes((draw(st.integers(0, 255)),)))
        elif name == "timestamp":
            parts.append(draw(times).to_bytes(8, "big"))
        else:
            raw = draw(st.text(max_size=6).map(str.encode) | st.binary(max_size=4))
            parts.append(bytes((len(raw),)) + raw)
    made = flags.to_bytes(2, "big") + b"".join(parts)
    if draw(st.integers(0, 7)) == 0:
        cut = draw(st.integers(0, len(made)))
        made = made[:cut] + draw(st.binary(max_size=2)) + made[cut + draw(st.integers(0, 2)) :]
    return made


@settings(max_examples=250, deadline=None)
@given(st.lists(property_list(), max_size=12), st.sets(st.sampled_from(sorted(PROPERTY_COLUMNS))))
def test_columns_are_what_each_list_says(lists: list[bytes], chosen: set[str]) -> None:
    for each in ("compiled", "interpreted"):
        made = loaded(each).property_columns
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decode.kernel, "split_properties", made.split_properties)
            patch.setattr(decode.kernel, "header_entries", made.header_entries)
            check(lists, frozenset(chosen))


def check(lists: list[bytes], chosen: frozenset[str]) -> None:
    """Compare columns with lists; what cannot be read in a column that is not chosen may pass."""
    expected = [alone(raw) for raw in lists]
    found = columns_of(lists, chosen)
    assert set(found.columns) == chosen
    if chosen >= {"headers", "timestamp"}:
        assert found.malformed == [i for i, each in enumerate(expected) if each is None]
    for row in found.malformed:
        assert expected[row] is None
        assert found.why(row)
    for name, values in found.columns.items():
        values.validate(full=True)
        got = shown(name, values)
        for row, each in enumerate(expected):
            if each is not None:
                assert got[row] == repr(each.get(name)), (name, row)
            elif row in found.malformed:
                assert got[row] == "None"


@settings(max_examples=60, deadline=None)
@given(st.lists(property_list(), max_size=20), st.integers(0, 3))
def test_headers_as_text_say_the_same_as_typed_ones(lists: list[bytes], skipped: int) -> None:
    typed = columns_of(lists, frozenset({"headers"})).columns["headers"].slice(skipped)
    texts = decode.headers_as(typed, decode.HEADERS_TEXT)
    texts.validate(full=True)
    assert decode.headers_as(typed, typed.type) is typed
    # A time that Python cannot hold is within the column's range.
    members = [each.with_type(pa.int64()) if each.name == "timestamp" else each for each in VALUE]
    expected = typed.cast(pa.map_(pa.string(), pa.struct(members))).to_pylist()
    assert texts.to_pylist() == [
        None if row is None else [(name, as_text(each)) for name, each in row] for row in expected
    ]


def as_text(typed: dict[str, Any]) -> str | None:
    """Return a typed value as text."""
    kind = typed["type"]
    if kind in ("table", "array"):
        return str(typed["json"])
    if kind in ("decimal", "string"):
        return str(typed["string"])
    if kind == "binary":
        return base64.b64encode(typed["binary"]).decode()
    if kind == "timestamp":
        return str(typed["timestamp"] // MICROS)
    if kind == "boolean":
        return "true" if typed["boolean"] else "false"
    if kind == "double":
        return str(pa.scalar(typed["double"]).cast(pa.string()))
    return None if kind == "void" else str(typed[kind])


def test_headers_as_text_by_example(mode: None) -> None:
    values = {
        "text": Field("S", "ü"),
        "raw": Field("S", b"\xff\xfe"),
        "long": Field("l", -(2**63)),
        "double": Field("d", 1.5),
        "flag": Field("t", False),
        "none": Field("V", None),
        "time": Field("T", 1_700_000_000),
        "digits": Field("D", Decimal("1.20")),
        "table": Field("F", {"a": Field("l", 1)}),
    }
    lists = [b"\x20\x00" + fields.table(values), b"\x00\x00"]
    typed = columns_of(lists, frozenset({"headers"})).columns["headers"]
    found = decode.headers_as(typed, decode.HEADERS_TEXT).to_pylist()
    assert found == [
        [
            ("text", "ü"),
            ("raw", "//4="),
            ("long", "-9223372036854775808"),
            ("double", "1.5"),
            ("flag", "false"),
            ("none", None),
            ("time", "1700000000"),
            ("digits", "1.20"),
            ("table", '{"a": 1}'),
        ],
        None,
    ]


def test_a_malformed_list_has_no_property_and_is_named(mode: None) -> None:
    good = b"\x80\x00\x04text"
    found = columns_of([good, good + b"!", b"", good], frozenset({"content_type"}))
    assert found.malformed == [1, 2]
    assert found.columns["content_type"].to_pylist() == ["text", None, None, "text"]
    assert found.refused().to_pylist() == [None, good + b"!", b"", None]
    assert found.why(1) == "1 bytes after the last property"


def test_sections_of_amqp_10_are_no_header(mode: None) -> None:
    own = with_sections(properties.encode(Properties(headers={"a": 1, "b": "c"})), b"kept")
    alone = with_sections(properties.encode(Properties(priority=1)), b"kept")
    nested = with_sections(properties.encode(Properties(headers={"t": {"a": 1}})), b"kept")
    for lists in ([own, alone], [own, alone, nested]):
        found = columns_of(lists, frozenset({"headers"})).columns["headers"].to_pylist()
        names = [[name for name, _ in headers] for headers in found]
        assert names == [["a", "b"], [], ["t"]][: len(lists)]


def test_no_message_and_no_property(mode: None) -> None:
    assert columns_of([], frozenset(NAMES[:3])).columns["headers"].to_pylist() == []
    none = columns_of([b"\0\0"] * 9, frozenset({"message_id", "headers", "priority"}))
    assert all(column.null_count == 9 for column in none.columns.values())


def test_a_time_in_a_header_beyond_64_bits_of_microseconds_is_malformed(mode: None) -> None:
    late = fields.table({"when": Field("T", SECONDS_MAX + 1)})
    good = fields.table({"when": Field("T", SECONDS_MAX)})
    found = columns_of([b"\x20\0" + good, b"\x20\0" + late], frozenset({"headers"}))
    assert found.malformed == [1]
    assert str(SECONDS_MAX + 1) in found.why(1)
    assert found.columns["headers"].null_count == 1
