"""What consumers have annotated messages with: kept beside the blocks, which do not change.

A queue keeps (key, MessagePack) and reads neither. As in RabbitMQ booleans, integers and times,
strings and symbols, and binaries are kept without the width of their type. All other values (lists,
maps, arrays, described ones, null, fractions, characters, UUIDs) are an extension of MessagePack
that has their AMQP 1.0 encoding, constructor first, and are shown as they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.msgpack import Ext

from warren_machines.queue.commands import Pairs
from warren_wire.amqp091.fields import Field
from warren_wire.amqp10.message.sent import encode_annotation
from warren_wire.errors import InvalidArgument, SyntaxRefused
from warren_wire.kernel import whole_entries
from warren_wire.kernel.section_types import MalformedSections

ANNOTATIONS_BYTES_MAX: Final = 16_384
"""Keys and values of one message; a change that would exceed it is not made."""
AnnotatedRow: TypeAlias = tuple[int, list[tuple[int, Pairs]]]
"""(index, [(ordinal, annotations)]), both ascending."""
DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_TIME_MAX: Final = (1 << 63) - 1
ENCODED: Final = 1
"""The code of the extension."""
_INTEGER_LIMIT: Final = 1 << 63
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder().decode
_BOOLEANS: Final = frozenset((0x41, 0x42, 0x56))
_SIGNED: Final = frozenset((0x51, 0x54, 0x55, 0x61, 0x71, 0x81, 0x83))
_UNSIGNED: Final = frozenset((0x43, 0x44, 0x50, 0x52, 0x53, 0x60, 0x70, 0x80))
_BINARIES: Final = frozenset((0xA0, 0xB0))
_SYMBOLS: Final = frozenset((0xA3, 0xB3))
_SIZES: Final = {0xA0: 2, 0xA1: 2, 0xA3: 2, 0xB0: 5, 0xB1: 5, 0xB3: 5}
"""Constructor of a text or binary -> octets that precede its content."""


class Annotations:
    """The annotations of messages, by block and ordinal.

    Invariants: every block in `blocks` has an annotated message; every one of these is in the queue
    """

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[int, dict[int, Pairs]] = {}

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def put(self, index: int, first: int, last: int, pairs: Pairs) -> None:
        """Annotate the messages of a run."""
        block = self.blocks.setdefault(index, {})
        for ordinal in range(first, last + 1):
            merged = tuple(sorted({**dict(block.get(ordinal, ())), **dict(pairs)}.items()))
            if size_bytes(merged) <= ANNOTATIONS_BYTES_MAX:
                block[ordinal] = merged
        if not block:
            del self.blocks[index]

    def of_run(self, index: int, first: int, last: int) -> Iterator[tuple[int, Pairs]]:
        """Yield (offset in the run, annotations) of its annotated messages."""
        block = self.blocks.get(index)
        if block is not None:
            for ordinal in _within(block, first, last):
                yield ordinal - first, block[ordinal]

    def forget(self, index: int, first: int, last: int) -> None:
        """Drop those of a run that leaves the queue."""
        block = self.blocks.get(index)
        if block is not None:
            for ordinal in _within(block, first, last):
                del block[ordinal]
            if not block:
                del self.blocks[index]

    def dump(self) -> list[AnnotatedRow]:
        """Return everything; equal contents give equal rows."""
        return [(index, sorted(self.blocks[index].items())) for index in sorted(self.blocks)]

    def load(self, rows: Iterable[AnnotatedRow]) -> None:
        """Load what `dump` returned into an empty object."""
        self.blocks = {index: dict(messages) for index, messages in rows}


def _within(block: dict[int, Pairs], first: int, last: int) -> list[int]:
    """Return the annotated messages first … last, ascending: a run may be one of 65,536."""
    if last - first < len(block):
        return [ordinal for ordinal in range(first, last + 1) if ordinal in block]
    return sorted(ordinal for ordinal in block if first <= ordinal <= last)


def size_bytes(pairs: Pairs) -> int:
    """Return the bytes of keys and values."""
    return sum(len(key.encode()) + len(value) for key, value in pairs)


def read_annotations(encoded: bytes) -> tuple[Pairs, int]:
    """Return a modified outcome's (annotations, delivery time, 0: none).

    encoded  a map, b"" and null: none
    raises   InvalidArgument, SyntaxRefused
    """
    pairs: dict[str, bytes] = {}
    ready_ms = 0
    for name, encoded_value in _entries(encoded):
        value = _value(name, encoded_value)
        pairs[name] = _ENCODE(value)
        if name == DELIVERY_TIME:
            # as in RabbitMQ: what is no integer says no time, and is an annotation all the same
            if isinstance(value, int) and not isinstance(value, bool):
                ready_ms = max(0, min(value, DELIVERY_TIME_MAX))
    found = tuple(sorted(pairs.items()))
    if size_bytes(found) > ANNOTATIONS_BYTES_MAX:
        raise InvalidArgument(
            f"annotations of {size_bytes(found)} bytes; {ANNOTATIONS_BYTES_MAX} is the limit"
        )
    return found, ready_ms


def _entries(encoded: bytes) -> list[tuple[str, bytes]]:
    if encoded in (b"", b"\x40"):
        return []
    try:
        entries = whole_entries(memoryview(encoded))
    except MalformedSections as error:
        raise SyntaxRefused(f"annotations of a modified outcome cannot be read: {error}") from error
    found = []
    for constructor, name, value in entries:
        if constructor not in _SYMBOLS or not name.startswith(b"x-") or not name.isascii():
            raise InvalidArgument(
                f"annotation {name[:80]!r} of a modified outcome: keys are symbols that begin "
                "with 'x-', all others are reserved"
            )
        found.append((name.decode("ascii"), value))
    return found


def _value(name: str, encoded: bytes) -> bool | int | str | bytes | Ext:
    code, raw = encoded[0], encoded[1:]
    if code in _BOOLEANS:
        return code == 0x41 or raw == b"\x01"
    if code in _SIGNED or code in _UNSIGNED:
        number = int.from_bytes(raw, "big", signed=code in _SIGNED)
        return number if number < _INTEGER_LIMIT else Ext(ENCODED, encoded)
    before = _SIZES.get(code)
    if before is None:
        return Ext(ENCODED, encoded)
    data = encoded[before:]
    if code in _BINARIES:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SyntaxRefused(
            f"annotation {name[:80]!r} of a modified outcome cannot be read: {error}"
        ) from error


def encoded_annotation(packed: bytes) -> bytes:
    """Return a kept value as AMQP 1.0, constructor first."""
    value = _DECODE(packed)
    return bytes(value.data) if isinstance(value, Ext) else encode_annotation(value)


def as_header(packed: bytes) -> Any:
    """Return a kept value as a header of AMQP 0.9.1; None: it is not shown there."""
    value = _DECODE(packed)
    if isinstance(value, Ext):
        return None
    if isinstance(value, bytes):
        return Field("x", value)
    return Field("l", value) if isinstance(value, int) and not isinstance(value, bool) else value
