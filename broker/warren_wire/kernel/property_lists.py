# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Columns as AMQP 0.9.1 property lists, without a Python object per message.

The columns have Arrow's layout, as in `property_columns`, which is the way back. They come from
another program: whatever its offsets say, nothing is read outside the buffers, and what is
written is bounded by what was measured.

One source for both kernels: interpreted, `p` is a view of the bytes; compiled, a pointer to them.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

if not cython.compiled:
    from warren_wire.kernel.properties import Size, is_text, milliseconds
else:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.warren_wire.kernel.compiled.properties import Size, is_text, milliseconds

from warren_wire.amqp091.fields import SHORT_STRING_BYTES_MAX
from warren_wire.amqp091.properties import NAMES
from warren_wire.block.layout import TTL_NONE, Buffer
from warren_wire.kernel.property_columns import HEADER_KINDS

_HEADERS, _DELIVERY_MODE, _PRIORITY, _TIMESTAMP = 2, 3, 4, 9
"""Numbers of the properties that are not short strings: content_type is 0, cluster_id 13."""
_WIDTHS = {_DELIVERY_MODE: 1, _PRIORITY: 1, _TIMESTAMP: 8}
_NO_OFFSETS = cython.declare(cython.longlong, -1)
_SHORT_MAX = cython.declare(cython.longlong, SHORT_STRING_BYTES_MAX)
_ttl_none = cython.declare(cython.longlong, TTL_NONE)
BYTES_MAX = 2**31 - 1
"""Offsets are Arrow's, of 32 bits with a sign."""

_CODES = cython.declare(bytes, b"SldtxTV")
"""The type octet of each of HEADER_KINDS."""
_STRING = cython.declare(cython.longlong, HEADER_KINDS.index("string"))
_LONG = cython.declare(cython.longlong, HEADER_KINDS.index("long"))
_DOUBLE = cython.declare(cython.longlong, HEADER_KINDS.index("double"))
_BOOLEAN = cython.declare(cython.longlong, HEADER_KINDS.index("boolean"))
_BINARY = cython.declare(cython.longlong, HEADER_KINDS.index("binary"))
_TIME = cython.declare(cython.longlong, HEADER_KINDS.index("timestamp"))
_VOID = cython.declare(cython.longlong, HEADER_KINDS.index("void"))
_MICROS = cython.declare(cython.longlong, 1_000_000)
_SECONDS_END = cython.declare(cython.longlong, 1 << 32)
"""Times from then on (2106) are left to the codec of single values."""
_ENTRIES_MAX = cython.declare(cython.longlong, 64)
"""Maximum of headers of a message, which are compared with each other for repeated names."""


@cython.cclass
class Values:
    """The values of an Arrow array, which may begin anywhere in its buffers.

    count     of the values
    width     bytes of each number in `words`: a value, or an offset
    holds     "numbers", "texts", or "counts": offsets into the entries of another array
    at, size  of the value that `look` has found: bytes from `at` in the data, or a place in `words`

    Invariant: validity and words have the bits and the bytes of all values
    """

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    width = cython.declare(cython.Py_ssize_t, visibility="readonly")
    holds = cython.declare(str, visibility="readonly")
    _held: tuple
    _first: cython.Py_ssize_t
    _end: cython.longlong
    _bits: cython.p_const_uchar
    _words: cython.p_const_uchar
    p: cython.p_const_uchar
    _nullable: cython.bint
    at: cython.longlong
    size: cython.longlong

    def __init__(
        self,
        count: int,
        first: int,
        validity: Buffer | None,
        words: Buffer,
        width: int,
        data: Buffer | None = None,
        end: int = -1,
    ) -> None:
        """Take the buffers of an array; ValueError when one is too short for it.

        first     position of the first value in the buffers
        validity  bitmap; None: no value is null
        words     values of `width` bytes, or offsets of 4 or 8
        data      what the offsets point into
        end       the offsets do not point into data but count something, and so many there are
        """
        self.holds = "texts" if data is not None else "counts" if end >= 0 else "numbers"
        has_offsets = self.holds != "numbers"
        bits = memoryview(b"" if validity is None else validity).cast("B")
        numbers = memoryview(words).cast("B")
        area = memoryview(b"" if data is None else data).cast("B")
        if count < 0 or first < 0 or width not in ((4, 8) if has_offsets else (1, 8)):
            raise ValueError(f"{count} values from {first} on, {self.holds} of {width} bytes")
        if count and len(numbers) < (first + count + has_offsets) * width:
            raise ValueError(f"{len(numbers)} bytes of numbers for {first + count} values")
        if validity is not None and len(bits) < (first + count + 7) // 8:
            raise ValueError(f"{len(bits)} bytes of validity for {first + count} values")
        self._held = (bits, numbers, area)
        self.count, self._first, self.width = count, first, width
        self._nullable = validity is not None
        self._end = (len(area) if data is not None else end) if has_offsets else _NO_OFFSETS
        self._bits, self._words, self.p = _start(bits), _start(numbers), _start(area)

    @cython.cfunc
    def look(self, i: Size) -> cython.bint:
        """Set at and size of value `i`; False: it is null. ValueError for impossible offsets."""
        k: Size = self._first + i
        end: cython.longlong
        if self._nullable and not self._bits[k >> 3] >> (k & 7) & 1:
            return False
        if self._end < 0:
            self.at, self.size = k * self.width, self.width
            return True
        self.at = _signed(self._words, k * self.width, self.width)
        end = _signed(self._words, (k + 1) * self.width, self.width)
        if self.at < 0 or end < self.at or end > self._end:
            raise ValueError(f"offsets {self.at} and {end} of {self._end}")
        self.size = end - self.at
        return True

    @cython.cfunc
    def number(self) -> cython.longlong:
        """Return the value that `look` has found, a signed integer of 8 bytes or an octet."""
        if self.width == 1:
            return self._words[self.at]
        return _signed(self._words, self.at, 8)


@cython.cfunc
def _start(area: Any) -> cython.p_const_uchar:
    """Return a pointer to the bytes of a buffer, which must outlive the pointer."""
    if cython.compiled:
        if not len(area):
            return cython.NULL
        data: cython.const[cython.uchar][::1] = area
        return cython.cast(cython.p_const_uchar, cython.address(data[0]))
    else:
        return area


@cython.cfunc
@cython.exceptval(check=False)
def _signed(p: cython.p_const_uchar, at: Size, width: Size) -> cython.longlong:
    if cython.compiled:
        small: cython.int = 0
        large: cython.longlong = 0
        if width == 4:
            memcpy(cython.address(small), p + at, 4)
            return small
        memcpy(cython.address(large), p + at, 8)
        return large
    else:
        return int.from_bytes(p[at : at + width], "little", signed=True)


# ------------------------------------------------------------------ bytes that are made


@cython.cclass
class _Made:
    """Values that are made: measured, then written one after another, each from its own cursor.

    ends     count + 1 offsets; before `place`, entry i + 1 has the bytes of value i
    cursors  where the next byte of each value goes
    """

    ends: bytearray
    data: bytearray
    cursors: bytearray
    _limits: cython.p_uint
    _next: cython.p_uint
    _out: cython.p_uchar

    def __init__(self, count: int) -> None:
        self.ends, self.cursors = bytearray(4 * (count + 1)), bytearray(4 * count)
        self.data = bytearray()
        self._limits, self._next = _numbers(self.ends), _numbers(self.cursors)

    @cython.cfunc
    def more(self, i: Size, size: cython.longlong) -> None:
        """Add to the bytes of value `i`; a part has BYTES_MAX at most, and few parts make one."""
        total: cython.longlong = size + self._limits[i + 1]
        if total > 0x7FFFFFFF:
            raise OverflowError(f"{total} bytes in one value; the limit is {BYTES_MAX}")
        self._limits[i + 1] = total

    @cython.cfunc
    def place(self, count: Size, bytes_max: cython.longlong) -> None:
        """Allocate the data: all sizes are known."""
        i: Size
        at: cython.longlong = 0
        for i in range(count):
            self._next[i] = at
            at += self._limits[i + 1]
            if at > bytes_max:
                raise OverflowError(f"{at} bytes in {i + 1} of {count}; the limit is {bytes_max}")
            self._limits[i + 1] = at
        self.data = bytearray(at)
        if cython.compiled:
            self._out = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data))
        else:
            self._out = memoryview(self.data)

    @cython.cfunc
    def _room(self, i: Size, size: cython.longlong) -> cython.longlong:
        """Take room in value `i`; return where it is."""
        at: cython.longlong = self._next[i]
        if at + size > self._limits[i + 1]:
            raise ValueError("a column has changed while it was read")
        self._next[i] = at + size
        return at

    @cython.cfunc
    def bytes_of(self, i: Size, p: cython.p_const_uchar, at: Size, size: Size) -> None:
        """Append bytes to value `i`."""
        to: Size = self._room(i, size)
        if cython.compiled:
            if size:
                memcpy(self._out + to, p + at, size)
        else:
            self._out[to : to + size] = p[at : at + size]

    @cython.cfunc
    def big(self, i: Size, value: cython.ulonglong, size: cython.int) -> None:
        """Append an unsigned integer, big-endian."""
        to: Size = self._room(i, size)
        k: cython.int
        for k in range(size):
            self._out[to + k] = value >> 8 * (size - 1 - k) & 0xFF


@cython.cfunc
def _numbers(area: bytearray) -> cython.p_uint:
    if cython.compiled:
        return cython.cast(cython.p_uint, PyByteArray_AS_STRING(area))
    else:
        return memoryview(area).cast("I")


# ------------------------------------------------------------------ property lists


def property_lists(count: int, columns: list, bytes_max: int = BYTES_MAX) -> tuple:
    """Return `count` property lists: offsets of 4 bytes, count + 1 of them, and the data.

    columns  14 Values or None, in the order of `properties.NAMES`: texts, header tables with their
             u32 length as binaries, delivery_mode and priority as octets, timestamp as seconds of 8
             bytes. A null is a property that is not there
    raises   ValueError: a text above 255 bytes, buffers that contradict each other;
             OverflowError: more bytes than bytes_max
    """
    total: Size = count
    i: Size
    k: Size
    column: Values
    if len(columns) != len(NAMES):
        raise ValueError(f"{len(columns)} columns; there are {len(NAMES)} properties")
    made: _Made = _Made(count)
    words: bytearray = bytearray(4 * count)
    flags: cython.p_uint = _numbers(words)
    for k in range(14):
        if columns[k] is not None:
            column = columns[k]
            _check_column(k, column, count)
            _measure(made, column, k, total, flags)
    for i in range(total):
        made.more(i, 2)
    made.place(total, bytes_max)
    for i in range(total):
        made.big(i, flags[i], 2)
    for k in range(14):
        if columns[k] is not None:
            _write(made, columns[k], k, total)
    return made.ends, made.data


def _check_column(k: int, column: Values, count: int) -> None:
    if column.count != count:
        raise ValueError(f"property {k} has {column.count} values for {count} messages")
    _check_form(column, _WIDTHS.get(k, 0))


def _check_form(column: Values, width: int) -> None:
    """Check that a column has numbers of so many bytes; 0: texts."""
    if column.holds != ("numbers" if width else "texts") or (width and column.width != width):
        raise ValueError(f"a column of {column.holds} of {column.width} bytes is none of {width}")


@cython.cfunc
def _measure(made: _Made, column: Values, k: Size, count: Size, flags: cython.p_uint) -> None:
    i: Size
    bit: cython.uint = 0x8000 >> k
    head: cython.longlong = 0
    if k != 2 and k != 3 and k != 4 and k != 9:
        head = 1
    for i in range(count):
        if column.look(i):
            if head and column.size > _SHORT_MAX:
                raise ValueError(f"a text of {column.size} bytes; a property holds {_SHORT_MAX}")
            flags[i] |= bit
            made.more(i, head + column.size)


@cython.cfunc
def _write(made: _Made, column: Values, k: Size, count: Size) -> None:
    i: Size
    if k == 3 or k == 4 or k == 9:  # delivery_mode, priority, timestamp
        for i in range(count):
            if column.look(i):
                made.big(i, column.number(), column.width)
    elif k == 2:  # headers
        for i in range(count):
            if column.look(i):
                made.bytes_of(i, column.p, column.at, column.size)
    else:
        for i in range(count):
            if column.look(i):
                made.big(i, column.size, 1)
                made.bytes_of(i, column.p, column.at, column.size)


def expirations(texts: Any, ms_max: int) -> tuple:
    """Return the time to live of each expiration, and the first text that is none; -1: all are.

    texts    Values; a null has no time to live
    ms_max   the longest one; `properties.expiration_ms` has the rule
    returns  4 bytes for each as in a block's ttl column, and a position
    """
    column: Values = texts
    count: Size = column.count
    i: Size
    value: cython.longlong
    most: cython.longlong = ms_max
    made: bytearray = bytearray(4 * count)
    ttls: cython.p_uint = _numbers(made)
    _check_form(column, 0)
    for i in range(count):
        value = _ttl_none
        if column.look(i):
            value = milliseconds(column.p, column.at, column.size, most)
            if value < 0:
                return made, i
            if value >= _ttl_none:
                value = _ttl_none - 1
        ttls[i] = value
    return made, -1


# ------------------------------------------------------------------ header tables


@cython.cclass
class Members:
    """What the entries of header tables hold.

    kinds   a position in HEADER_KINDS for each entry, a null for none; None: all have `kind`
    values  by position in HEADER_KINDS: texts, integers, doubles and times (microseconds) of 8
            bytes, booleans as octets; None where no entry has it. A null is a value of type V
    """

    kinds: Values
    kind: cython.int
    values: list

    def __init__(self, kinds: Any, kind: int, values: list) -> None:
        if len(values) != len(HEADER_KINDS):
            raise ValueError(f"{len(values)} kinds of values; there are {len(HEADER_KINDS)}")
        for column, width in zip(values, (0, 8, 8, 1, 0, 8, 1), strict=True):
            if column is not None:
                _check_form(column, width)
        if kinds is not None:
            _check_form(kinds, 1)
        self.kinds, self.kind, self.values = kinds, kind, values

    def shortest(self) -> int:
        """Return how many entries all of the columns have."""
        columns = [each for each in (self.kinds, *self.values) if each is not None]
        return min((each.count for each in columns), default=BYTES_MAX)

    @cython.cfunc
    def look(self, e: Size) -> cython.int:
        """Return the kind of entry `e`, and have its value looked at; -1: none that is known."""
        kind: cython.int = self.kind
        value: Values
        if self.kinds is not None:
            if not self.kinds.look(e):
                return _VOID
            kind = self.kinds.number()
        if kind == _VOID:
            return kind
        if kind > _VOID or self.values[kind] is None:
            return -1
        value = self.values[kind]
        if not value.look(e):
            return -1 if kind == _TIME else _VOID  # the codec refuses a time that is null
        if kind == _TIME and not 0 <= value.number() < _SECONDS_END * _MICROS:
            return -1
        if kind == _STRING and not is_text(value.p, value.at, value.size):
            return -1
        return kind

    @cython.cfunc
    def size(self, kind: cython.int) -> cython.longlong:
        """Return the bytes of the value looked at, with its type octet."""
        value: Values
        if kind == _VOID:
            return 1
        if kind == _BOOLEAN:
            return 2
        if kind in (_STRING, _BINARY):
            value = self.values[kind]
            return 5 + value.size
        return 9

    @cython.cfunc
    def write(self, made: _Made, i: Size, kind: cython.int) -> None:
        """Append the value looked at to table `i`."""
        value: Values
        made.big(i, _CODES[kind], 1)
        if kind == _VOID:
            return
        value = self.values[kind]
        if kind == _BOOLEAN:
            made.big(i, 1 if value.number() else 0, 1)
        elif kind in (_STRING, _BINARY):
            made.big(i, value.size, 4)
            made.bytes_of(i, value.p, value.at, value.size)
        elif kind == _TIME:
            made.big(i, value.number() // _MICROS, 8)
        else:
            made.big(i, value.number() & 0xFFFFFFFFFFFFFFFF, 8)


def header_tables(rows: Any, names: Any, members: Any, bytes_max: int = BYTES_MAX) -> Any:
    """Return header tables with their u32 lengths: offsets of 4 bytes, and the data.

    None when one of them needs the codec of single values, which may refuse it: a name that is
    null, no UTF-8, above 255 bytes or twice in its table, a string that is no UTF-8, a time before
    1970 or from 2106 on, a value of another type, more than 64 entries.

    rows    Values that count entries, `end` of them at most; null: no table
    names   Values, one per entry; members: of the same entries
    raises  ValueError: buffers that contradict each other; OverflowError: more than bytes_max
    """
    tables: Values = rows
    keys: Values = names
    values: Members = members
    count: Size = tables.count
    i: Size
    if (
        tables.holds != "counts"
        or keys.holds != "texts"
        or tables._end > keys.count
        or tables._end > values.shortest()
    ):
        raise ValueError(f"{tables._end} entries, of which {keys.count} have names")
    made: _Made = _Made(count)
    for i in range(count):
        if tables.look(i):
            made.more(i, 4)
            if not _measure_table(made, i, tables.at, tables.at + tables.size, keys, values):
                return None
    made.place(count, bytes_max)
    for i in range(count):
        if tables.look(i):
            made.big(i, made._limits[i + 1] - made._limits[i] - 4, 4)
            _write_table(made, i, tables.at, tables.at + tables.size, keys, values)
    return made.ends, made.data


@cython.cfunc
def _measure_table(
    made: _Made, i: Size, first: Size, last: Size, keys: Values, values: Members
) -> cython.bint:
    e: Size
    kind: cython.int
    if last - first > _ENTRIES_MAX:
        return False
    for e in range(first, last):
        kind = values.look(e)
        if kind < 0 or not _is_name(keys, first, e):
            return False
        made.more(i, 1 + keys.size + values.size(kind))
    return True


@cython.cfunc
def _is_name(keys: Values, first: Size, e: Size) -> cython.bint:
    """Return whether name `e` can stand in a table of which the entries begin at `first`.

    It is the one looked at on return.
    """
    other: Size
    at: cython.longlong
    size: cython.longlong
    if not keys.look(e) or keys.size > _SHORT_MAX or not is_text(keys.p, keys.at, keys.size):
        return False
    at, size = keys.at, keys.size
    for other in range(first, e):
        keys.look(other)
        if keys.size == size and _same(keys.p, at, keys.at, size):
            return False
    return keys.look(e)


@cython.cfunc
@cython.exceptval(check=False)
def _same(p: cython.p_const_uchar, a: Size, b: Size, size: Size) -> cython.bint:
    if cython.compiled:
        return size == 0 or memcmp(p + a, p + b, size) == 0
    else:
        return p[a : a + size] == p[b : b + size]


@cython.cfunc
def _write_table(
    made: _Made, i: Size, first: Size, last: Size, keys: Values, values: Members
) -> None:
    e: Size
    kind: cython.int
    for e in range(first, last):
        kind = values.look(e)
        if kind < 0 or not keys.look(e):
            raise ValueError("a column has changed while it was read")
        made.big(i, keys.size, 1)
        made.bytes_of(i, keys.p, keys.at, keys.size)
        values.write(made, i, kind)
