# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The values of a received AMQP 1.0 message, converted to AMQP 0.9.1 fields.

One source for both kernels: interpreted, `p` is a view of the message; compiled, a pointer to it
(the attributes' C types are in compiled/section_values.pxd). Every read is checked against the end
of the message.
"""

from __future__ import annotations

from warren_wire.block.layout import Buffer

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.amqp091.fields import DEPTH_MAX
from warren_wire.kernel.section_types import (
    HEADER,
    SECTION_NAMES,
    SIZE1,
    SIZE4,
    UNKNOWN_WIDTH,
    WIDTHS,
    MalformedSections,
)

WITHOUT_BYTES_MAX = 65_536
"""Limit of the number of values without bytes in all arrays of a message together.

One such array can stand in each few bytes of a message; each value takes up to nine bytes of a
field.
"""

_WIDTHS = cython.declare(bytes, WIDTHS)
_SIZE1 = cython.declare(cython.uint, SIZE1)
_SIZE4 = cython.declare(cython.uint, SIZE4)
_UNKNOWN = cython.declare(cython.uint, UNKNOWN_WIDTH)


@cython.cfunc
@cython.exceptval(-1, check=True)
def put_number(out: bytearray, value: cython.ulonglong, size: cython.int) -> cython.int:
    """Append a number of `size` bytes, most significant first."""
    shift: cython.int = 8 * size
    while shift:
        shift -= 8
        out.append((value >> shift) & 0xFF)
    return 0


@cython.cfunc
@cython.exceptval(-1, check=True)
def open_length(out: bytearray, kind: cython.int) -> cython.Py_ssize_t:
    """Append a field's type and a u32 length to be set; return where the length is."""
    out.append(kind)
    put_number(out, 0, 4)
    return len(out) - 4


@cython.cfunc
@cython.exceptval(-1, check=True)
def close_length(out: bytearray, mark: cython.Py_ssize_t) -> cython.int:
    """Set the u32 length at `mark` to the number of bytes after it."""
    size: cython.Py_ssize_t = len(out) - mark - 4
    out[mark] = size >> 24 & 0xFF
    out[mark + 1] = size >> 16 & 0xFF
    out[mark + 2] = size >> 8 & 0xFF
    out[mark + 3] = size & 0xFF
    return 0


@cython.cclass
class ValueReader:
    """A reader of untrusted values.

    start, after         content of the value measured last: from its count, for lists and maps
    count                that was read last
    without_bytes        values without bytes in arrays so far
    section, section_at  the section that is read, for errors
    """

    def __init__(self, data: Buffer) -> None:
        view: cython.const[cython.uchar][::1] = data
        self.data = data
        self.end = len(data)
        if cython.compiled:
            self.p = cython.cast(cython.p_const_uchar, cython.address(view[0]))
        else:
            self.p = data
        self.start = self.after = 0
        self.count = 0
        self.without_bytes = 0
        self.section = HEADER - 1
        self.section_at = 0

    # -------------------------------------------------------------- measuring

    @cython.cfunc
    def refuse(self, text: str) -> object:
        """Raise MalformedSections, with the section's name and offset."""
        where = f"{SECTION_NAMES[self.section - HEADER]} section " if self.section >= HEADER else ""
        raise MalformedSections(f"{where}at byte {self.section_at}: {text}")

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def span(self, code: cython.uint, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Measure the value after its constructor, `code`, which ends at `at`; return its end."""
        p: cython.p_const_uchar = self.p
        size: cython.Py_ssize_t = _WIDTHS[code]
        if size == _SIZE1 and at < self.end:
            size = p[at]
            at += 1
        elif size == _SIZE4 and self.end - at >= 4:
            if cython.compiled:
                high: cython.uint = p[at]
                size = (high << 24) | (p[at + 1] << 16) | (p[at + 2] << 8) | p[at + 3]
            else:
                size = int.from_bytes(p[at : at + 4], "big")
            at += 4
        elif size == _UNKNOWN:
            self.refuse(f"unknown constructor {code:#04x} at byte {at - 1}")
        elif size > 16:
            self.refuse(f"the value at byte {at - 1} has no size: the message ends at {self.end}")
        if size > self.end - at:
            self.refuse(
                f"the value at byte {at - 1} ends at byte {at + size}; "
                f"the message ends at {self.end}"
            )
        self.start = at
        self.after = at + size
        return self.after

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def element(self, at: cython.Py_ssize_t) -> cython.int:
        """Measure the value at `at`; return its constructor, 0 for a described value."""
        if at >= self.end:
            self.refuse(f"a value is missing at byte {at}, the end of the message")
        code: cython.int = self.p[at]
        if code:
            self.span(code, at + 1)
        else:
            self.after = self.skip(at, 0)
            self.start = at
        return code

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def skip(self, at: cython.Py_ssize_t, depth: cython.int) -> cython.Py_ssize_t:
        """Return the end of the value at `at`, described ones included."""
        if at >= self.end:
            self.refuse(f"a value is missing at byte {at}, the end of the message")
        if self.p[at]:
            return self.span(self.p[at], at + 1)
        self.deep(depth, at)
        return self.skip(self.skip(at + 1, depth + 1), depth + 1)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def deep(self, depth: cython.int, at: cython.Py_ssize_t) -> cython.int:
        """Refuse a value in more than DEPTH_MAX others."""
        if depth >= DEPTH_MAX:
            self.refuse(f"the value at byte {at} is nested deeper than {DEPTH_MAX}")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def counted(
        self, code: cython.uint, start: cython.Py_ssize_t, after: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read the count of a list, map or array from start to after; return what follows it."""
        p: cython.p_const_uchar = self.p
        self.count = 0
        if code == 0x45:
            return start
        width: cython.Py_ssize_t = 1 if code in (0xC0, 0xC1, 0xE0) else 4
        if after - start < width:
            self.refuse(f"the value that ends at byte {after} is too short for its count")
        for i in range(width):
            self.count = self.count << 8 | p[start + i]
        return start + width

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def opened(self, code: cython.uint, depth: cython.int) -> cython.Py_ssize_t:
        """Read the count of the value measured last, at that depth; return what follows it."""
        self.deep(depth, self.start)
        return self.counted(code, self.start, self.after)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def filled(self, at: cython.Py_ssize_t, after: cython.Py_ssize_t) -> cython.int:
        """Refuse a list, map or array that ends elsewhere than its values."""
        if at != after:
            self.refuse(f"values end at byte {at}, their list or map at byte {after}")
        return 0

    # -------------------------------------------------------------- whole values

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def read_whole(self, at: cython.Py_ssize_t, depth: cython.int) -> cython.Py_ssize_t:
        """Return the end of the value at `at`, and read all that is in it."""
        if at < self.end and not self.p[at]:
            self.deep(depth, at)
            return self.read_whole(self.read_descriptor(at + 1), depth + 1)
        code: cython.uint = self.element(at)
        after: cython.Py_ssize_t = self.after
        self.read_inside(code, depth)
        return after

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def read_descriptor(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the end of the descriptor at `at`; those of other types are reserved."""
        if self.element(at) not in (0x44, 0x53, 0x80, 0xA3, 0xB3):
            self.refuse(f"the descriptor at byte {at} is neither a ulong nor a symbol")
        return self.after

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def read_inside(self, code: cython.uint, depth: cython.int) -> cython.int:
        """Read all that is in the value measured last."""
        _i: cython.ulonglong
        after: cython.Py_ssize_t = self.after
        at: cython.Py_ssize_t
        count: cython.ulonglong
        kind: cython.uint
        if code not in (0x45, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0):
            return 0
        at = self.opened(code, depth)
        count = self.count
        if code in (0xE0, 0xF0):
            kind = self.read_constructor(at, after, count)
            at = self.after
            for _i in range(count):
                at = self.span(kind, at)
                self.read_inside(kind, depth + 1)
            return self.filled(at, after)
        if code in (0xC1, 0xD1):
            self.pairs(at)
        for _i in range(count):
            at = self.read_whole(at, depth + 1)
        return self.filled(at, after)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def read_constructor(
        self, at: cython.Py_ssize_t, after: cython.Py_ssize_t, count: cython.ulonglong
    ) -> cython.int:
        """Return the constructor of an array's values, which ends at `self.after`."""
        if at < after and not self.p[at]:
            at = self.read_descriptor(at + 1)
        if at >= after:
            self.refuse(f"the array that ends at byte {after} has no constructor")
        kind: cython.uint = self.p[at]
        if not kind:
            self.refuse(f"the constructor at byte {at} has two descriptors")
        self.count_without(kind, count)
        self.after = at + 1
        return kind

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def count_without(self, kind: cython.uint, count: cython.ulonglong) -> cython.int:
        """Count an array's values without bytes."""
        if _WIDTHS[kind] == 0:
            self.without_bytes += count
            if self.without_bytes > WITHOUT_BYTES_MAX:
                self.refuse(
                    f"an array of {count} values without bytes; the limit is {WITHOUT_BYTES_MAX} "
                    "in all arrays of a message"
                )
        return 0

    # -------------------------------------------------------------- values

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def value(self, at: cython.Py_ssize_t, out: bytearray, depth: cython.int) -> cython.Py_ssize_t:
        """Append the value at `at` as a field, or nothing when it has no 0.9.1 type."""
        code: cython.uint = self.element(at)
        after: cython.Py_ssize_t = self.after
        if code:
            self.field(code, out, depth)
        return after

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def field(self, code: cython.uint, out: bytearray, depth: cython.int) -> cython.int:
        """Append the value measured last as a field, or nothing when it has no 0.9.1 type."""
        at: cython.Py_ssize_t = self.start
        after: cython.Py_ssize_t = self.after
        p: cython.p_const_uchar = self.p
        if code in (0xA1, 0xB1, 0xA3, 0xB3, 0xA0, 0xB0):
            out.append(0x53)
            put_number(out, after - at, 4)
            out += bytes(p[at:after])
        elif code in (0x45, 0xC0, 0xD0):
            self.array(code, out, depth)
        elif code in (0xC1, 0xD1):
            self.table(code, out, depth)
        elif code in (0xE0, 0xF0):
            self.uniform(code, out, depth)
        elif code == 0x40:
            out.append(0x56)
        elif code in (0x41, 0x42, 0x56):
            out.append(0x74)
            out.append(self.boolean(code, at))
        else:
            self.number(code, at, after, out)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def boolean(self, code: cython.uint, at: cython.Py_ssize_t) -> cython.int:
        """Return 1 for true, 0 for false."""
        if code == 0x56 and self.p[at] > 1:
            self.refuse(f"the boolean at byte {at} is {self.p[at]}, neither 0 nor 1")
        return code == 0x41 or (code == 0x56 and self.p[at] == 1)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def integer(
        self, code: cython.uint, at: cython.Py_ssize_t, after: cython.Py_ssize_t
    ) -> cython.ulonglong:
        """Return a number's 64 bits: sign-extended where its type has a sign."""
        p: cython.p_const_uchar = self.p
        value: cython.ulonglong = 0
        signed: cython.bint = code in (0x51, 0x61, 0x71, 0x54, 0x81, 0x55, 0x83)
        if signed and p[at] & 0x80:
            value = 0xFFFFFFFFFFFFFFFF
        while at < after:
            value = (value << 8 | p[at]) & 0xFFFFFFFFFFFFFFFF
            at += 1
        return value

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def seconds(self, at: cython.Py_ssize_t) -> cython.longlong:
        """Return a timestamp's seconds, rounded down."""
        value: cython.longlong
        bits: cython.ulonglong = self.integer(0x83, at, at + 8)
        if cython.compiled:
            value = cython.cast(cython.longlong, bits)
            return value // 1000 if value >= 0 else -(-(value + 1) // 1000) - 1  # down, in 64 bits
        else:
            return (bits - (1 << 64) if bits >> 63 else bits) // 1000

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def number(
        self,
        code: cython.uint,
        at: cython.Py_ssize_t,
        after: cython.Py_ssize_t,
        out: bytearray,
    ) -> cython.int:
        """Append a number; nothing for decimals, characters, UUIDs, infinities and NaN."""
        p: cython.p_const_uchar = self.p
        if code in (0x44, 0x53, 0x80, 0x55, 0x81):  # ulong, long: l
            out.append(0x6C)
            put_number(out, self.integer(code, at, after), 8)
        elif code in (0x54, 0x71):  # int: I
            out.append(0x49)
            put_number(out, self.integer(code, at, after) & 0xFFFFFFFF, 4)
        elif code in (0x43, 0x52, 0x70):  # uint: i
            out.append(0x69)
            put_number(out, self.integer(code, at, after), 4)
        elif code == 0x83:
            out.append(0x54)
            put_number(out, self.seconds(at) & 0xFFFFFFFFFFFFFFFF, 8)
        elif code == 0x82:
            if p[at] & 0x7F != 0x7F or p[at + 1] & 0xF0 != 0xF0:
                out.append(0x64)
                out += bytes(p[at:after])
        elif code == 0x72:
            if p[at] & 0x7F != 0x7F or p[at + 1] & 0x80 != 0x80:
                out.append(0x66)
                out += bytes(p[at:after])
        elif code in (0x50, 0x51, 0x60, 0x61):  # B, b, u, s
            out.append(b"Bb"[code & 1] if code < 0x60 else b"us"[code & 1])
            out += bytes(p[at:after])
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def array(self, code: cython.uint, out: bytearray, depth: cython.int) -> cython.int:
        """Append a list as an array of its values that have a 0.9.1 type."""
        _i: cython.ulonglong
        after: cython.Py_ssize_t = self.after
        at: cython.Py_ssize_t = self.opened(code, depth)
        count: cython.ulonglong = self.count
        mark: cython.Py_ssize_t = open_length(out, 0x41)
        for _i in range(count):
            at = self.value(at, out, depth + 1)
        self.filled(at, after)
        return close_length(out, mark)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def uniform(self, code: cython.uint, out: bytearray, depth: cython.int) -> cython.int:
        """Append an AMQP 1.0 array, a list of values of one constructor, as an array."""
        _i: cython.ulonglong
        after: cython.Py_ssize_t = self.after
        at: cython.Py_ssize_t = self.opened(code, depth)
        count: cython.ulonglong = self.count
        if at >= after:
            self.refuse(f"the array that ends at byte {after} has no constructor")
        kind: cython.uint = self.p[at]
        if not kind:  # described values have no 0.9.1 type
            return 0
        at += 1
        self.count_without(kind, count)
        mark: cython.Py_ssize_t = open_length(out, 0x41)
        for _i in range(count):
            at = self.span(kind, at)
            self.field(kind, out, depth + 1)
        self.filled(at, after)
        return close_length(out, mark)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def table(self, code: cython.uint, out: bytearray, depth: cython.int) -> cython.int:
        """Append a map as a table of its entries that have a name and a 0.9.1 type."""
        after: cython.Py_ssize_t = self.after
        at: cython.Py_ssize_t = self.opened(code, depth)
        mark: cython.Py_ssize_t = open_length(out, 0x46)
        _i: cython.ulonglong
        key: cython.uint
        pairs: cython.ulonglong = self.pairs(at)
        for _i in range(pairs):
            key = self.element(at)
            at = self.entry(key, self.start, self.after, out, depth + 1)
        self.filled(at, after)
        return close_length(out, mark)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def pairs(self, at: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the number of entries of the map of which the count was read last."""
        if self.count & 1:
            self.refuse(f"a map of {self.count} keys and values at byte {at}: one has no value")
        return self.count >> 1

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def entry(
        self,
        code: cython.uint,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        out: bytearray,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Append an entry, its key already measured, unless it has no 0.9.1 name or type."""
        before: cython.Py_ssize_t = len(out)
        named: cython.bint = code in (0xA1, 0xB1, 0xA3, 0xB3) and end - at <= 255
        after: cython.Py_ssize_t
        if named:
            out.append(end - at)
            out += bytes(self.p[at:end])
        start: cython.Py_ssize_t = len(out)
        after = self.value(end, out, depth)
        if not named or len(out) == start:
            del out[before:]
        return after
