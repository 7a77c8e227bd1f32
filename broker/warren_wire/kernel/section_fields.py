# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Single fields of an AMQP 1.0 message's sections, as filters need them.

One source for both kernels, as `section_values`. What is not asked for is measured, not read.
"""

from __future__ import annotations

import struct
from typing import Any

from warren_wire.block.layout import Buffer

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.kernel.section_types import SECTION_SYMBOLS

if not cython.compiled:
    from warren_wire.kernel.section_values import ValueReader
else:
    from cython.cimports.warren_wire.kernel.compiled.section_values import ValueReader

_FLOAT = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_text(code: cython.uint) -> cython.bint:
    """Return whether a constructor is that of a string or a symbol."""
    return code == 0xA1 or code == 0xA3 or code == 0xB1 or code == 0xB3


@cython.cclass
class _FieldReader(ValueReader):
    """One message of which fields are read.

    found  the values so far, in the order in which they are asked for
    """

    found: list

    def __init__(self, data: Buffer, found: list) -> None:
        super().__init__(data)
        self.found = found

    @cython.cfunc
    def read(self, priority: cython.int, fields: dict, names: dict) -> cython.int:
        """Read the sections; see `read_fields`."""
        at: cython.Py_ssize_t = 0
        code: cython.uint
        section: cython.uint
        while at < self.end:
            section = self.descriptor(at)
            at = self.after
            code = self.element(at)
            at = self.after
            if section == 0x70 and priority >= 0:
                self.listed(code, 2, {1: priority})
            elif section == 0x73 and fields:
                self.listed(code, 13, fields)
            elif section == 0x74 and names:
                self.mapped(code, names)
        return 0

    @cython.cfunc
    def descriptor(self, at: cython.Py_ssize_t) -> cython.uint:
        """Return the number of the section that begins there; 0: it has another descriptor."""
        p: cython.p_const_uchar = self.p
        code: cython.uint
        if self.end - at >= 3 and p[at] == 0 and p[at + 1] == 0x53:
            self.after = at + 3
            return p[at + 2]
        if p[at] != 0:
            self.refuse(f"no section begins at byte {at}")
        code = self.element(at + 1)
        if code == 0x80:
            return self.integer(code, self.start, self.after) & 0xFF
        if code == 0xA3 or code == 0xB3:
            return SECTION_SYMBOLS.get(bytes(self.p[self.start : self.after]), 0)
        return 0

    @cython.cfunc
    def listed(self, code: cython.uint, most: cython.ulonglong, wanted: dict) -> cython.int:
        """Read the wanted fields among the first of a list."""
        after: cython.Py_ssize_t = self.after
        at: cython.Py_ssize_t
        i: cython.ulonglong
        kind: cython.uint
        at = self.counted(code, self.start, after)
        if self.count < most:
            most = self.count
        for i in range(most):
            kind = self.element(at)
            at = self.after
            place = wanted.get(i)
            if place is not None:
                self.found[place] = self.given(kind)
        self.after = after
        return 0

    @cython.cfunc
    def mapped(self, code: cython.uint, wanted: dict) -> cython.int:
        """Read the values of the wanted keys of a map; of equal keys the first one counts."""
        after: cython.Py_ssize_t = self.after
        at: cython.Py_ssize_t
        kind: cython.uint
        left: cython.ulonglong
        bit: Any
        at = self.counted(code, self.start, after)
        left = self.count >> 1
        seen: Any = 0
        while left:
            left -= 1
            kind = self.element(at)
            at = self.after
            place = None
            if _is_text(kind):
                place = wanted.get(bytes(self.p[self.start : self.after]))
            kind = self.element(at)
            at = self.after
            if place is not None:
                bit = 1 << place
                if not seen & bit:
                    seen = seen | bit
                    self.found[place] = self.given(kind)
        self.after = after
        return 0

    @cython.cfunc
    def given(self, code: cython.uint) -> Any:
        """Return the value measured last; None for what no filter compares."""
        at: cython.Py_ssize_t = self.start
        after: cython.Py_ssize_t = self.after
        value: Any
        if _is_text(code):
            text = bytes(self.p[at:after])
            try:
                return text.decode()
            except UnicodeDecodeError:
                return text
        if code == 0xA0 or code == 0xB0 or code == 0x98:
            return bytes(self.p[at:after])
        if code in (0x43, 0x44, 0x50, 0x52, 0x53, 0x60, 0x70, 0x73, 0x80):
            return self.integer(code, at, after)
        if code in (0x51, 0x54, 0x55, 0x61, 0x71, 0x81, 0x83):
            value = self.integer(code, at, after)
            return value - (1 << 64) if value >> 63 else value
        if code == 0x41 or code == 0x42 or code == 0x56:
            return bool(self.boolean(code, at))
        if code == 0x72:
            return _FLOAT.unpack(bytes(self.p[at:after]))[0]
        if code == 0x82:
            return _DOUBLE.unpack(bytes(self.p[at:after]))[0]
        return None


def read_fields(
    sections: bytes, priority: int, fields: dict[int, int], names: dict[bytes, int], found: list
) -> list:
    """Return `found`, with the values that the sections of a message's head have put into it.

    priority  place in `found` of the header's priority; -1: it is not wanted
    fields    number of a field of the properties section -> its place in `found`
    names     key of an application property -> its place
    found     what is there where a message has no such field; a value is a bool, int, float, str
              or bytes (also a UUID, and a text that is not UTF-8), or None for null and all else
    raises    MalformedSections
    """
    reader: _FieldReader = _FieldReader(sections, found)
    reader.read(priority, fields, names)
    return found
