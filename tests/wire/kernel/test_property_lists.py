"""Columns to property lists: as the codec of single messages, and never outside the buffers."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.kernel.conftest import loaded
from warren_wire.amqp091 import fields, properties
from warren_wire.amqp091.fields import Field
from warren_wire.block.layout import TTL_NONE
from warren_wire.kernel import Kernel
from warren_wire.kernel.property_columns import HEADER_KINDS

MODES = ("compiled", "interpreted")
TIME_END = (1 << 32) * 1_000_000


def bitmap(values: Sequence[Any], first: int) -> bytes:
    """An Arrow validity bitmap, with bits before the first value that say something else."""
    bits = [True] * first + [value is not None for value in values]
    return bytes(
        sum(1 << k for k, bit in enumerate(bits[at : at + 8]) if bit)
        for at in range(0, len(bits), 8)
    )


def texts(kernel: Kernel, values: Sequence[bytes | None], first: int = 0, width: int = 4) -> Any:
    """Values of texts that begin at `first` of their buffers."""
    data = b"before" * first + b"".join(value or b"" for value in values)
    ends = [6 * i for i in range(first + 1)]
    for value in values:
        ends.append(ends[-1] + len(value or b""))
    words = array("i" if width == 4 else "q", ends)
    valid = bitmap(values, first) if None in values else None
    return kernel.property_lists.Values(len(values), first, valid, words, width, data)


def numbers(kernel: Kernel, values: Sequence[int | None], width: int, first: int = 0) -> Any:
    """Values of octets or of integers of 8 bytes."""
    words = array("B" if width == 1 else "q", [7] * first + [value or 0 for value in values])
    valid = bitmap(values, first) if None in values else None
    return kernel.property_lists.Values(len(values), first, valid, words, width)


def lists(made: tuple[bytearray, bytearray]) -> list[bytes]:
    """Cut what was made at its offsets."""
    ends, data = memoryview(made[0]).cast("I").tolist(), bytes(made[1])
    assert ends[0] == 0 and ends[-1] == len(data)
    return [data[a:b] for a, b in itertools.pairwise(ends)]


def column(kernel: Kernel, name: str, values: Sequence[Any], first: int, width: int) -> Any:
    """One property's Values, of the values that the codec takes."""
    if name in ("delivery_mode", "priority"):
        return numbers(kernel, values, 1, first)
    if name == "timestamp":
        return numbers(kernel, values, 8, first)
    if name == "headers":
        raw = [
            None if v is None else fields.table({k: Field("l", n) for k, n in v.items()})
            for v in values
        ]
        return texts(kernel, raw, first)
    return texts(kernel, [None if v is None else v.encode() for v in values], first, width)


short = st.none() | st.text(max_size=12) | st.just("x" * 255) | st.just("ü" * 127)
octet = st.none() | st.integers(0, 255)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "headers": st.none() | st.dictionaries(st.text(max_size=5), st.integers(-9, 9), max_size=3),
    "delivery_mode": octet,
    "priority": octet,
    "timestamp": st.none() | st.integers(0, 2**63 - 1),
}
message = st.fixed_dictionaries({name: KINDS.get(name, short) for name in properties.NAMES})


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=80, deadline=None)
@given(st.lists(message, max_size=12), st.integers(0, 9), st.sampled_from([4, 8]), st.data())
def test_the_lists_are_those_of_the_codec(
    mode: str, messages: list[dict[str, Any]], first: int, width: int, data: st.DataObject
) -> None:
    kernel = loaded(mode)
    there = data.draw(st.sets(st.sampled_from(properties.NAMES)))
    columns = [
        column(kernel, name, [each[name] for each in messages], first, width)
        if name in there
        else None
        for name in properties.NAMES
    ]
    made = lists(kernel.property_lists.property_lists(len(messages), columns))
    for raw, each in zip(made, messages, strict=True):
        kept = {name: value for name, value in each.items() if name in there}
        if kept.get("headers") is not None:
            kept["headers"] = {k: Field("l", n) for k, n in kept["headers"].items()}
        assert raw == properties.encode(properties.Properties(**kept))


def only(name: str, values: Any) -> list[Any]:
    """The columns of messages with one property."""
    return [values if each == name else None for each in properties.NAMES]


@pytest.mark.parametrize("mode", MODES)
def test_what_does_not_fit_is_refused(mode: str) -> None:
    kernel = loaded(mode)
    made = kernel.property_lists.property_lists
    assert lists(made(1, only("type", texts(kernel, [b"x" * 255])))) == [
        b"\x00\x20\xff" + b"x" * 255
    ]
    with pytest.raises(ValueError, match="a text of 256 bytes; a property holds 255"):
        made(1, only("type", texts(kernel, [b"x" * 256])))
    with pytest.raises(ValueError, match="property 12 has 2 values for 1 messages"):
        made(1, only("app_id", texts(kernel, [b"", b""])))
    with pytest.raises(ValueError, match="3 columns; there are 14"):
        made(1, [None] * 3)
    ten = only("type", texts(kernel, [b"x" * 7]))  # flags, length, text
    assert len(made(1, ten, 10)[1]) == 10
    with pytest.raises(OverflowError, match="10 bytes in 1 of 1; the limit is 9"):
        made(1, ten, 9)
    octets, seconds = numbers(kernel, [1], 1), numbers(kernel, [1], 8)
    counts = kernel.property_lists.Values(1, 0, None, array("i", [0, 1]), 4, None, 1)
    wrong = [("priority", seconds), ("timestamp", octets), ("type", octets), ("priority", counts)]
    wrong += [("timestamp", texts(kernel, [b"12345678"], 0, 8)), ("type", counts)]
    wrong += [("headers", counts), ("headers", octets)]
    for name, values in wrong:
        with pytest.raises(ValueError, match="a column of"):
            made(1, only(name, values))


@pytest.mark.parametrize("mode", MODES)
def test_buffers_that_lie_are_refused(mode: str) -> None:
    """Each buffer ends where the array's length says; a sanitizer would see one byte more."""
    kernel = loaded(mode)
    values, made = kernel.property_lists.Values, kernel.property_lists.property_lists
    for ends in ([0, 4], [-1, 3], [2, 1], [0, 2**31 - 1], [-(2**31), 2]):
        lying = values(1, 0, None, array("i", ends), 4, b"abc")
        with pytest.raises(ValueError, match="offsets"):
            made(1, only("type", lying))
    for ends in ([0, 2**62], [-1, 3], [-(2**63), 1]):
        with pytest.raises(ValueError, match="offsets"):
            made(1, only("type", values(1, 0, None, array("q", ends), 8, b"abc")))
    for count, first, valid, words, width, data in (
        (2, 0, None, array("i", [0, 1]), 4, b"a"),
        (1, 1, None, array("i", [0, 1]), 4, b"a"),
        (1, 0, None, array("i", [0, 1]), 8, b"a"),
        (9, 0, b"\xff", array("i", [0] * 10), 4, b""),
        (1, 8, b"\xff", array("i", [0] * 10), 4, b""),
        (1, 0, None, array("i", [0, 1]), 2, b"a"),
        (-1, 0, None, array("i", [0, 1]), 4, b"a"),
        (1, -1, None, array("i", [0, 1]), 4, b"a"),
        (2, 0, None, b"\x01", 1, None),
        (1, 0, None, b"\x01" * 4, 4, None),
    ):
        with pytest.raises(ValueError, match=r"values|numbers|validity"):
            values(count, first, valid, words, width, data)
    assert values(0, 0, None, b"", 4, b"").count == 0


@pytest.mark.parametrize("mode", MODES)
def test_columns_of_random_words_never_crash(mode: str) -> None:
    kernel = loaded(mode)
    chance = random.Random(7)
    for _ in range(400):
        count = chance.randrange(1, 6)
        words = array(
            "i", [chance.choice((0, 1, 2, 3, 9, -1, 2**31 - 1)) for _ in range(count + 1)]
        )
        lying = kernel.property_lists.Values(
            count, 0, bytes((chance.randrange(256),)), words, 4, b"abc"
        )
        try:
            made = lists(kernel.property_lists.property_lists(count, only("headers", lying)))
        except ValueError:
            continue
        assert sum(map(len, made)) <= 2 * count + 3 * count


# ------------------------------------------------------------------ expirations


@pytest.mark.parametrize("mode", MODES)
def test_expirations_have_one_rule(mode: str) -> None:
    kernel = loaded(mode)
    good = [b"0", None, b"+7", b"4294967294", b"4294967295", b"0" * 30 + b"5"]
    made, bad = kernel.property_lists.expirations(texts(kernel, good, 3), 2**32 - 1)
    most = TTL_NONE - 1
    assert bad == -1
    assert memoryview(made).cast("I").tolist() == [0, TTL_NONE, 7, most, most, 5]
    for wrong in (b"4294967296", b"", b"-1", b" 7", b"9" * 200):
        found = kernel.property_lists.expirations(texts(kernel, [b"1", wrong]), 2**32 - 1)
        assert found[1] == 1, wrong
    years = 315_360_000_000
    for text, position in ((b"315360000000", -1), (b"315360000001", 0)):
        assert kernel.property_lists.expirations(texts(kernel, [text]), years)[1] == position
    with pytest.raises(ValueError, match="a column of numbers"):
        kernel.property_lists.expirations(numbers(kernel, [1], 8), years)


# ------------------------------------------------------------------ header tables

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=6),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "boolean": st.booleans(),
    "binary": st.binary(max_size=6),
    "timestamp": st.integers(0, TIME_END - 1),
    "void": st.none(),
}
entry = st.sampled_from(HEADER_KINDS).flatmap(
    lambda kind: st.tuples(st.text(max_size=4), st.just(kind), VALUES[kind])
)
table = st.none() | st.lists(entry, max_size=5, unique_by=lambda each: each[0])


def rows_of(
    kernel: Kernel, tables: Sequence[list[Any] | None], first: int
) -> tuple[Any, list[Any]]:
    """Values that count the entries of each table, and all entries, some of them of no table."""
    entries = [("other", "long", 1)] * first
    ends = list(range(first + 1))
    for each in tables:
        entries += each or []
        ends.append(len(entries))
    valid = bitmap(tables, first) if None in tables else None
    values = kernel.property_lists.Values
    return values(len(tables), first, valid, array("i", ends), 4, None, len(entries)), entries


def members_of(kernel: Kernel, entries: Sequence[Any], hide: str = "") -> Any:
    """A column of each kind; `hide`: this one is missing."""

    def chosen(kind: str, other: Any) -> list[Any]:
        return [value if k == kind else other for _, k, value in entries]

    doubles = array("d", chosen("double", 0.0)).tobytes()
    size = len(entries)
    values = {
        "string": texts(kernel, [v.encode() for v in chosen("string", "")]),
        "long": numbers(kernel, chosen("long", None), 8),
        "double": kernel.property_lists.Values(size, 0, None, doubles, 8),
        "boolean": numbers(kernel, chosen("boolean", 0), 1),
        "binary": texts(kernel, chosen("binary", b"")),
        "timestamp": numbers(kernel, chosen("timestamp", 0), 8),
    }
    kinds = numbers(
        kernel, [None if k == "void" else HEADER_KINDS.index(k) for _, k, _ in entries], 1
    )
    listed = [None if kind == hide else values.get(kind) for kind in HEADER_KINDS]
    return kernel.property_lists.Members(kinds, 0, listed)


def field(kind: str, value: Any) -> Field:
    """An entry as the codec takes it."""
    code = "SldtxTV"[HEADER_KINDS.index(kind)]
    return Field(code, value // 1_000_000 if kind == "timestamp" else value)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=120, deadline=None)
@given(st.lists(table, max_size=6), st.integers(0, 9))
def test_tables_are_those_of_the_codec(mode: str, tables: list[Any], first: int) -> None:
    kernel = loaded(mode)
    rows, entries = rows_of(kernel, tables, first)
    names = texts(kernel, [name.encode() for name, _, _ in entries])
    made = kernel.property_lists.header_tables(rows, names, members_of(kernel, entries))
    assert lists(made) == [
        b"" if each is None else fields.table({n: field(k, v) for n, k, v in each})
        for each in tables
    ]


def tried(
    kernel: Kernel, entries: list[Any], names: list[bytes | None] | None = None, hide: str = ""
) -> Any:
    rows, all_entries = rows_of(kernel, [entries], 0)
    listed = [n.encode() for n, _, _ in all_entries] if names is None else names
    return kernel.property_lists.header_tables(
        rows, texts(kernel, listed), members_of(kernel, all_entries, hide)
    )


@pytest.mark.parametrize("mode", MODES)
def test_tables_that_need_the_codec_of_single_values(mode: str) -> None:
    kernel = loaded(mode)
    one = [("a", "long", 1)]
    assert tried(kernel, one) is not None
    assert tried(kernel, [("x" * 255, "long", 1)]) is not None
    assert tried(kernel, [(f"{i}", "long", i) for i in range(64)]) is not None
    assert tried(kernel, [("a", "timestamp", TIME_END - 1)]) is not None
    assert tried(kernel, [("x" * 256, "long", 1)]) is None
    assert tried(kernel, [(f"{i}", "long", i) for i in range(65)]) is None
    assert tried(kernel, [("a", "long", 1), ("b", "long", 1), ("a", "long", 2)]) is None
    assert tried(kernel, one, [None]) is None
    assert tried(kernel, one, [b"\xff"]) is None
    assert tried(kernel, [("a", "timestamp", -1)]) is None
    assert tried(kernel, [("a", "timestamp", TIME_END)]) is None
    assert tried(kernel, [("a", "string", "x")], hide="string") is None
    wrong = kernel.property_lists.Members(
        None, 0, [texts(kernel, [b"\xff"]), None, None, None, None, None, None]
    )
    rows, _ = rows_of(kernel, [one], 0)
    assert kernel.property_lists.header_tables(rows, texts(kernel, [b"a"]), wrong) is None
    unknown = kernel.property_lists.Members(numbers(kernel, [7], 1), 0, [None] * 7)
    assert kernel.property_lists.header_tables(rows, texts(kernel, [b"a"]), unknown) is None


@pytest.mark.parametrize("mode", MODES)
def test_columns_of_headers_that_lie_are_refused(mode: str) -> None:
    kernel = loaded(mode)
    made, members = kernel.property_lists.header_tables, kernel.property_lists.Members
    one = [("a", "long", 1)]
    rows, entries = rows_of(kernel, [one], 0)
    good = members_of(kernel, entries)
    with pytest.raises(ValueError, match="1 entries, of which 0 have names"):
        made(rows, texts(kernel, []), good)
    with pytest.raises(ValueError, match="1 entries"):
        made(rows, texts(kernel, [b"a"]), members_of(kernel, []))
    with pytest.raises(ValueError, match="1 entries"):
        made(texts(kernel, [b"a"]), texts(kernel, [b"a"]), good)
    lying = kernel.property_lists.Values(1, 0, None, array("i", [0, 2]), 4, None, 1)
    with pytest.raises(ValueError, match="offsets 0 and 2 of 1"):
        made(lying, texts(kernel, [b"a"]), good)
    for position, values in ((1, numbers(kernel, [1], 1)), (3, numbers(kernel, [1], 8)), (0, rows)):
        listed: list[Any] = [None] * 7
        listed[position] = values
        with pytest.raises(ValueError, match="a column of"):
            members(None, position, listed)
    with pytest.raises(ValueError, match="6 kinds of values"):
        members(None, 0, [None] * 6)
    with pytest.raises(ValueError, match="a column of"):
        members(numbers(kernel, [1], 8), 0, [None] * 7)
    with pytest.raises(OverflowError, match="15 bytes in 1 of 1; the limit is 14"):
        made(rows, texts(kernel, [b"a"]), good, 14)
    assert len(made(rows, texts(kernel, [b"a"]), good, 15)[1]) == 15
