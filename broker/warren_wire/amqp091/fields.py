"""AMQP 0.9.1's field types as bytes.

Values of a table, by type octet (RabbitMQ's set, which is what clients send):

| octet | Python | octet | Python |
| --- | --- | --- | --- |
| `t` | bool | `f` `d` | float (4, 8 bytes) |
| `b` `B` | int (1 byte, signed / unsigned) | `D` | Decimal (scale octet, i32) |
| `s` `u` | int (2 bytes) | `S` | str; bytes when it is not UTF-8 |
| `I` `i` | int (4 bytes) | `x` | bytes |
| `l` `L` | int (8 bytes, both signed) | `T` | Timestamp (seconds, u64) |
| `A` `F` | list, dict | `V` | None |

The number of a `D` is signed, as clients write it (the specification's grammar has it unsigned,
which cannot represent -0.5).

Decoding is bounded by the bytes given: a length that points past them is refused, and so is a
nesting deeper than `DEPTH_MAX`. The limit is defined only here: what the kernel accepts is what
every decoder of the broker, the client and the Spark connector can read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from warren_wire.errors import FrameError, SyntaxRefused

DEPTH_MAX = 64
"""Nesting limit of tables and arrays, not counting the outermost."""
SHORT_STRING_BYTES_MAX = 255


class Timestamp(int):
    """Seconds since the epoch (`T`)."""


class Field(msgspec.Struct, frozen=True):
    """A table's entry with its type octet, so that it can be written back as it came."""

    code: str
    value: Any


class Nested(Field, frozen=True):
    """A table or an array in a table, with its bytes: types in it are kept when it is written."""

    encoded: bytes


_FIXED: dict[int, struct.Struct] = {
    ord(code): struct.Struct(">" + form)
    for code, form in {
        "b": "b",
        "B": "B",
        "s": "h",
        "u": "H",
        "I": "i",
        "i": "I",
        "l": "q",
        "L": "q",
        "f": "f",
        "d": "d",
        "T": "Q",
    }.items()
}
_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")


_SIZES: dict[int, int] = {code: form.size for code, form in _FIXED.items()}
_SIZES |= {ord("t"): 1, ord("D"): 5, ord("V"): 0}
_LENGTH_FIRST = b"SxFA"


def entries(table: bytes) -> list[tuple[bytes, bytes]]:
    """Return (name, whole entry) of a table's content, undecoded and in order.

    Values are measured, not checked: what is within a nested table may be malformed.
    fails  SyntaxRefused: an unknown type, an entry past the end
    """
    found = []
    at, end = 0, len(table)
    while at < end:
        value = at + 2 + table[at]
        code = table[value - 1] if value <= end else 0
        size = _SIZES.get(code)
        if size is None:
            if code not in _LENGTH_FIRST or not code:
                raise SyntaxRefused(f"an entry of unknown type {code:#04x} at byte {at} of {end}")
            size = 4 + int.from_bytes(table[value : value + 4], "big")
        if value + size > end:
            raise SyntaxRefused(f"an entry ends at byte {value + size} of {end}")
        found.append((table[at + 1 : value - 1], table[at : value + size]))
        at = value + size
    return found


class FieldReader:
    """A reader of untrusted bytes; every read is checked against their end."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes | memoryview, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        assert position <= self.end <= len(data)

    def skip(self, size: int) -> int:
        """Advance by `size` bytes; return the position before."""
        start = self.position
        if size > self.end - start:
            raise SyntaxRefused(f"a field of {size} bytes has only {self.end - start} bytes left")
        self.position = start + size
        return start

    def take(self, size: int) -> bytes:
        """Read `size` bytes."""
        start = self.skip(size)
        return bytes(self.data[start : self.position])

    def octet(self) -> int:
        """Read one byte as a number."""
        start = self.position
        if start >= self.end:
            raise SyntaxRefused("a field of 1 bytes has only 0 bytes left")
        self.position = start + 1
        return self.data[start]

    def unsigned(self, size: int) -> int:
        """Read `size` bytes as a number."""
        return int.from_bytes(self.take(size), "big")

    def short_string(self) -> str:
        """A length octet, then UTF-8."""
        try:
            return self.take(self.octet()).decode()
        except UnicodeDecodeError as bad:
            raise FrameError(f"Malformed UTF-8 in shortstr: {bad.reason}") from bad

    def long_string(self) -> bytes:
        """A u32 length, then bytes."""
        return self.take(self.unsigned(4))

    def fields(self, depth: int = 0) -> Iterator[tuple[str, Field]]:
        """Read the entries of a table, after its u32 length; of the outermost, `Nested` ones."""
        inner = self._inner(depth)
        while inner.position < inner.end:
            name = inner.take(inner.octet()).decode("utf-8", "surrogateescape")
            start = inner.position + 1
            found = inner.field(depth)
            if not depth and found.code in "AF":
                encoded = bytes(inner.data[start : inner.position])
                found = Nested(found.code, found.value, encoded)
            yield name, found

    def table(self, depth: int = 0) -> dict[str, Any]:
        """Read a table as plain values; of entries with one name the last is used."""
        return {name: field.value for name, field in self.fields(depth)}

    def array(self, depth: int = 0) -> list[Any]:
        """Read an array as plain values."""
        inner = self._inner(depth)
        values = []
        while inner.position < inner.end:
            values.append(inner.field(depth).value)
        return values

    def _inner(self, depth: int) -> FieldReader:
        if depth > DEPTH_MAX:
            raise SyntaxRefused(f"tables are nested deeper than {DEPTH_MAX}")
        size = self.unsigned(4)
        start = self.skip(size)
        return FieldReader(self.data, start, self.position)

    def field(self, depth: int = 0) -> Field:
        """A type octet, then a value."""
        code = self.octet()
        fixed = _FIXED.get(code)
        value: Any
        if fixed is not None:
            (value,) = fixed.unpack_from(self.data, self.skip(fixed.size))
            if code == ord("T"):
                value = Timestamp(value)
        elif code == ord("S"):
            value = _text(self.long_string())
        elif code == ord("t"):
            value = self.octet() != 0
        elif code == ord("F"):
            value = self.table(depth + 1)
        elif code == ord("A"):
            value = self.array(depth + 1)
        elif code == ord("x"):
            value = self.long_string()
        elif code == ord("V"):
            value = None
        elif code == ord("D"):
            scale = self.octet()
            number = int.from_bytes(self.take(4), "big", signed=True)
            value = Decimal(number).scaleb(-scale)
        else:
            raise SyntaxRefused(f"unknown field type {chr(code)!r} (octet {code}) in a table")
        return Field(chr(code), value)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


# ------------------------------------------------------------------ writing


def short_string(value: str) -> bytes:
    """A length octet, then UTF-8 of at most 255 bytes."""
    raw = value.encode("utf-8", "surrogateescape")
    assert len(raw) <= SHORT_STRING_BYTES_MAX, (len(raw), value[:40])
    return bytes((len(raw),)) + raw


def long_string(value: bytes) -> bytes:
    """A u32 length, then bytes."""
    return _U32.pack(len(value)) + value


def table(values: dict[str, Any]) -> bytes:
    """Encode a table; a value may be a `Field` to choose its type."""
    return long_string(
        b"".join(short_string(name) + field(value) for name, value in values.items())
    )


def field(value: object) -> bytes:
    """Encode a type octet and a value: int as `I` if it fits 32 bits, else `l`; str as `S`."""
    if isinstance(value, Nested):
        return value.code.encode() + value.encoded
    if isinstance(value, Field):
        return value.code.encode() + _encoded(value.code, value.value)
    code = _code(value)
    return code.encode() + _encoded(code, value)


def _code(value: object) -> str:
    if isinstance(value, bool):
        return "t"
    if isinstance(value, Timestamp):
        return "T"
    if isinstance(value, int):
        return "I" if -(1 << 31) <= value < 1 << 31 else "l"
    for kind, code in (
        (str, "S"),
        (bytes, "x"),
        (float, "d"),
        (dict, "F"),
        (list, "A"),
        (tuple, "A"),
        (Decimal, "D"),
        (type(None), "V"),
    ):
        if isinstance(value, kind):
            return code
    raise AssertionError(f"no field type for {type(value).__name__}")


def _encoded(code: str, value: Any) -> bytes:
    fixed = _FIXED.get(ord(code))
    if fixed is not None:
        return fixed.pack(value)
    if code in "Sx":
        # A short string that was not UTF-8 (`surrogateescape`) may be put into a table.
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return long_string(raw)
    if code == "t":
        return b"\1" if value else b"\0"
    if code == "F":
        return table(value)
    if code == "A":
        return long_string(b"".join(map(field, value)))
    if code == "D":
        return _decimal(value)
    assert code == "V", code
    return b""


def _decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    return bytes((scale,)) + _I32.pack(int(value.scaleb(scale)))
