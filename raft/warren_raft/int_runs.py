"""Compact encoding of runs of integers.

Counters, sizes and offsets of messages that follow each other are equal, equally spaced, or near
each other; `pack` finds out which, and equal runs give equal bytes. Little-endian:

| at | what |
| --- | --- |
| 0 | u8 form, u16 number of values, u64 base, i64 step |
| 19 | form 0x01, 02, 04, 08: value - base, one after another; the form is the bytes of each |
| | form 0x11, 12, 14, 18: the first value is base; then difference to the one before - step |

Form 0: value i is base + i * step.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, chain, islice, repeat
from operator import sub
from typing import Final, Literal

COUNT_MAX: Final = 0xFFFF
VALUE_MAX: Final = (1 << 63) - 1
_HEAD: Final = struct.Struct("<BHQq")
HEAD_BYTES: Final = _HEAD.size
_CODES: Final[dict[int, Literal["B", "H", "I", "Q"]]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_DIFFERENCES: Final = 0x10
Buffer = bytes | bytearray | memoryview


class Unreadable(ValueError):
    """Bytes that are not a valid run."""


def pack(values: Sequence[int]) -> bytes:
    """Encode 1 … COUNT_MAX values of 0 … VALUE_MAX."""
    count = len(values)
    assert 0 < count <= COUNT_MAX, count
    first, last = values[0], values[-1]
    step, rest = divmod(last - first, count - 1) if count > 1 else (0, 0)
    if not rest and _is_progression(values, first, step, count):
        return _HEAD.pack(0, count, first, step)
    low, high = min(values), max(values)
    assert low >= 0 and high <= VALUE_MAX, (low, high)
    width = _width(high - low)
    if width > 1:
        steps = list(map(sub, islice(values, 1, None), values))
        least = min(steps)
        narrow = _width(max(steps) - least)
        if narrow < width:
            data = array(_CODES[narrow], map(sub, steps, repeat(least)) if least else steps)
            return _HEAD.pack(_DIFFERENCES | narrow, count, first, least) + data.tobytes()
    data = array(_CODES[width], map(sub, values, repeat(low)) if low else values)
    return _HEAD.pack(width, count, low, 0) + data.tobytes()


def _is_progression(values: Sequence[int], first: int, step: int, count: int) -> bool:
    if isinstance(values, range):
        return True
    if count > 1 and values[1] - first != step:
        return False
    expected: Sequence[int] = range(first, first + count * step, step) if step else [first] * count
    return list(values) == list(expected)


def _width(largest: int) -> int:
    if largest < 1 << 8:
        return 1
    if largest < 1 << 16:
        return 2
    return 4 if largest < 1 << 32 else 8


def count_of(data: Buffer, at: int = 0) -> int:
    """Return the number of values in the run at that offset."""
    count: int = _HEAD.unpack_from(data, at)[1]
    return count


def is_consecutive(data: Buffer, at: int = 0) -> bool:
    """Return whether every value is one more than the one before."""
    form, count, _, step = _HEAD.unpack_from(data, at)
    return bool(form == 0 and (step == 1 or count == 1))


def end_of(data: Buffer, at: int = 0) -> int:
    """Return where the run at that offset ends; raises Unreadable."""
    if at + HEAD_BYTES > len(data):
        raise Unreadable(f"a run at {at} needs {HEAD_BYTES} bytes, {len(data) - at} are there")
    form, count, _, _ = _HEAD.unpack_from(data, at)
    width = form & ~_DIFFERENCES
    if not count or (width not in _CODES and form):
        raise Unreadable(f"a run at {at} of {count} values in form {form}")
    end: int = at + HEAD_BYTES + width * (count - (form >= _DIFFERENCES))
    if end > len(data):
        raise Unreadable(f"a run at {at} ends at {end}, after {len(data)} bytes")
    return end


def unpack(data: Buffer, at: int = 0) -> Sequence[int]:
    """Return the values of the run at that offset."""
    form, count, base, step = _HEAD.unpack_from(data, at)
    if not form:
        return range(base, base + count * step, step) if step else [base] * count
    width = form & ~_DIFFERENCES
    items = count - (form >= _DIFFERENCES)
    start = at + HEAD_BYTES
    column = memoryview(data)[start : start + width * items].cast(_CODES[width])
    if form < _DIFFERENCES:
        return list(map(base.__add__, column)) if base else column.tolist()
    steps = map(step.__add__, column) if step else column
    return list(accumulate(chain((base,), steps)))


def value(data: Buffer, at: int, number: int) -> int:
    """Return one value of the run at that offset; unpacks the others only where it must."""
    form, count, base, step = _HEAD.unpack_from(data, at)
    assert 0 <= number < count, (number, count)
    found: int
    if not form:
        found = base + number * step
        return found
    width = form & ~_DIFFERENCES
    start = at + HEAD_BYTES
    if form < _DIFFERENCES:
        place = start + width * number
        found = base + int.from_bytes(data[place : place + width], "little")
        return found
    column = memoryview(data)[start : start + width * number].cast(_CODES[width])
    found = base + number * step + sum(column)
    return found
