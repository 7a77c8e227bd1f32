"""Changes of MessagePack that keep it MessagePack: values, fields and elements, at any depth.

What decodes it is C code that the fuzzer does not see into, and refuses nearly every change of
single octets. Byte strings that hold MessagePack themselves are changed within.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

NUMBERS = (0, 1, 2, 3, 7, -1, 127, 255, 1 << 16, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63)
PIECES = (b"", b"\0", b"\xff" * 8, b"a" * 40, b"\x00\x01\x00\x00\x00\x00\x00\x00\x00")
DEPTH_MAX = 12


def reshaped(chance: random.Random, data: bytes, head: int = 0) -> bytes | None:
    """Return the data with one value after the head changed; None: it is no MessagePack."""
    found = _decoded(data[head:])
    if found is None:
        return None
    try:
        return data[:head] + msgspec.msgpack.encode(_changed(chance, found[0], 0))
    except (TypeError, OverflowError, RecursionError, ValueError):
        return None  # such as a map with a list for a key


def _decoded(data: bytes) -> tuple[Any] | None:
    try:
        return (msgspec.msgpack.decode(data, strict=False),)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError, ValueError):
        return None


def _changed(chance: random.Random, value: Any, depth: int) -> Any:
    if depth < DEPTH_MAX and chance.random() < 0.9:
        if isinstance(value, list) and value:
            return _changed_list(chance, value, depth)
        if isinstance(value, dict) and value:
            key = chance.choice(list(value))
            return {**value, key: _changed(chance, value[key], depth + 1)}
    if isinstance(value, bool) or value is None:
        return chance.choice((None, True, False, 0))
    if isinstance(value, int):
        return chance.choice((*NUMBERS, value + 1, value - 1, value ^ 1 << chance.randrange(40)))
    if isinstance(value, str):
        return chance.choice((value[1:], value * 2, "", "x" * 300, "a", value[::-1]))
    if isinstance(value, bytes):
        return _changed_bytes(chance, value)
    return chance.choice((None, 0, "", b"", [], {}))


def _changed_list(chance: random.Random, value: list[Any], depth: int) -> list[Any]:
    made, at = list(value), chance.randrange(len(value))
    kind = chance.randrange(12)
    if kind == 0:
        del made[at]
    elif kind == 1:
        made.insert(at, made[at])
    elif kind == 2:
        other = chance.randrange(len(made))
        made[at], made[other] = made[other], made[at]
    elif kind == 3:
        made.append(chance.choice((0, None, b"", [], made[at])))
    else:
        made[at] = _changed(chance, made[at], depth + 1)
    return made


def _changed_bytes(chance: random.Random, value: bytes) -> bytes:
    within = reshaped(chance, value) if len(value) > 2 and chance.random() < 0.5 else None
    if within is not None:
        return within
    made = bytearray(value)
    if not made or chance.random() < 0.2:
        return bytes(made) + chance.choice(PIECES)
    at = chance.randrange(len(made))
    kind = chance.randrange(4)
    if kind == 0:
        made[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del made[at : at + chance.choice((1, 1, 8, 19))]
    elif kind == 2:
        made[at:at] = made[at : at + chance.choice((1, 8, 19))]
    else:
        made[at : at + 8] = chance.choice((b"\0" * 8, b"\xff" * 8, b"\1" + bytes(7)))
    return bytes(made)
