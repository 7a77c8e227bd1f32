"""Conversion of blocks to Arrow columns.

Columns that are not wanted cost nothing. The body is a view of the block.

A property list that the codec refuses, or with a number that a column cannot hold, is an error that
names the message; with a column for corrupt records the list is there, and the other columns
derived from it are null.
"""

from __future__ import annotations

import difflib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_warren.columns import COLUMNS, CORRUPT_DDL, PROPERTY_COLUMNS
from pyspark_warren.decode import ARROW_TYPES, decode_columns
from pyspark_warren.errors import (
    BrokerRefusedError,
    MalformedMessageError,
    SchemaError,
    UnsupportedError,
)
from warren_broker.block.block import FORM_AMQP091, Block, BlockError


@dataclass(frozen=True, slots=True)
class ClaimedBlock:
    """A block with the positions and delivery counts of its messages.

    runs  (index, first, last, delivery_count, acquired_count), first and last both included;
          together as many messages as the block has, in its order
    """

    block: Block
    runs: Sequence[tuple[int, int, int, int, int]]
    queue: str

    @classmethod
    def decode(
        cls, data: memoryview, runs: Sequence[tuple[int, int, int, int, int]], queue: str
    ) -> ClaimedBlock:
        """Decode a block from the broker; raises BrokerRefusedError when it is damaged."""
        try:
            block = Block.decode(data)
        except BlockError as wrong:
            raise BrokerRefusedError(
                f"queue {queue!r}: a block from the broker cannot be read: {wrong}"
            ) from wrong
        told = sum(last - first + 1 for _, first, last, _, _ in runs)
        if told != block.count:
            raise BrokerRefusedError(
                f"queue {queue!r}: a block of {block.count} messages came with runs for {told}"
            )
        return cls(block, runs, queue)


def check_columns(names: Sequence[str], corrupt: str | None = None) -> None:
    """Raise SchemaError for a column that no message has.

    corrupt  the column for property lists that cannot be decoded; None: those are errors
    """
    for name in names:
        if name not in COLUMNS and name != corrupt:
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "known ones: " + ", ".join(COLUMNS)
            raise SchemaError(f"unknown column {name!r}; {hint}")
    if corrupt is not None and corrupt not in names and PROPERTY_COLUMNS.intersection(names):
        raise SchemaError(
            f"mode=PERMISSIVE needs a place for what cannot be decoded: add "
            f"{corrupt} {CORRUPT_DDL} to the schema, or read with mode=FAILFAST"
        )


def check_schema(schema: pa.Schema, corrupt: str | None = None) -> None:
    """Raise SchemaError unless every column is known and of its type (body may be a string)."""
    check_columns(schema.names, corrupt)
    for field in schema:
        if field.name == corrupt:
            wanted, ddl = pa.binary(), CORRUPT_DDL
        else:
            wanted, ddl = ARROW_TYPES[field.name], COLUMNS[field.name]
        if field.type != wanted and not (field.name == "body" and field.type == pa.string()):
            raise SchemaError(
                f"column {field.name}: the schema says {field.type}, it is "
                f"{ddl}; say that, and cast it after reading"
            )


def to_arrow(piece: ClaimedBlock, schema: pa.Schema, corrupt: str | None = None) -> pa.RecordBatch:
    """Make the columns that the schema names, one row per message, in the block's order.

    corrupt  the column that takes property lists which cannot be decoded, as bytes; None: such a
             list raises MalformedMessageError
    """
    if piece.block.form != FORM_AMQP091:
        raise UnsupportedError(
            f"queue {piece.queue!r} holds messages published over AMQP 1.0; reading "
            "those is not supported by this version"
        )
    properties: Mapping[str, pa.Array] = {}
    wanted = PROPERTY_COLUMNS.intersection(schema.names)
    if corrupt is not None and corrupt in schema.names:
        wanted = PROPERTY_COLUMNS
    if wanted:
        properties = _property_columns(piece, wanted, corrupt)
    arrays = []
    for field in schema:
        made = properties.get(field.name)
        arrays.append(made if made is not None else _MAKERS[field.name](piece, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# ------------------------------------------------------------------ one maker per column


def _body(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
    block = piece.block
    return body_as(_binary(block.body_offsets, block.body_data, block.count), wanted, piece.queue)


def body_as(made: pa.BinaryArray, wanted: pa.DataType, queue: str) -> pa.Array:
    """Return bodies as binary or as string; raises SchemaError when one is no UTF-8."""
    if wanted == made.type:
        return made
    try:
        return made.cast(wanted)
    except pa.ArrowInvalid as wrong:
        raise SchemaError(
            f"column body as string: a message of queue {queue!r} is not "
            f"UTF-8; read it as binary ({wrong})"
        ) from None


def _binary(offsets: memoryview, data: memoryview, count: int) -> pa.BinaryArray:
    """Return a view; offsets are little-endian 32 bit and start at 0, as in Arrow."""
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _routed(which: int) -> Callable[[ClaimedBlock, pa.DataType], pa.Array]:
    def make(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
        block = piece.block
        words = [route[which].decode("utf-8", "replace") for route in block.routes]
        if block.route_column is None:
            return pa.repeat(pa.scalar(words[0] if words else "", wanted), block.count)
        ids = pa.UInt32Array.from_buffers(
            pa.uint32(), block.count, [None, pa.py_buffer(block.route_column)]
        )
        return pa.array(words, wanted).take(ids)

    return make


def _priority(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
    column = piece.block.priority_column
    if column is None:
        column = memoryview(
            b"".join(
                bytes((priority,)) * (last - first)
                for first, last, priority in piece.block.priority_runs
            )
        )
    small = pa.UInt8Array.from_buffers(pa.uint8(), piece.block.count, [None, pa.py_buffer(column)])
    return small.cast(wanted)


def _counted(which: int) -> Callable[[ClaimedBlock, pa.DataType], pa.Array]:
    def make(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
        values = array("q")
        for run in piece.runs:
            values.extend(array("q", (run[which],)) * (run[2] - run[1] + 1))
        return _int64(values)

    return make


def _int64(values: array[int]) -> pa.Array:
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _redelivered(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
    return pc.greater(_counted(4)(piece, pa.int64()), 0)


def _queue(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(piece.queue, wanted), piece.block.count)


def _position(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
    ordinals = array("q")
    for _, first, last, _, _ in piece.runs:
        ordinals.extend(range(first, last + 1))
    parts = [_counted(0)(piece, pa.int64()), _int64(ordinals)]
    return pa.StructArray.from_arrays(parts, fields=list(wanted))


_MAKERS: Final[dict[str, Callable[[ClaimedBlock, pa.DataType], pa.Array]]] = {
    "body": _body,
    "exchange": _routed(0),
    "routing_key": _routed(1),
    "priority": _priority,
    "delivery_count": _counted(3),
    "acquired_count": _counted(4),
    "redelivered": _redelivered,
    "queue": _queue,
    "position": _position,
}


# ------------------------------------------------------------------ properties


def _property_columns(
    piece: ClaimedBlock, wanted: frozenset[str], corrupt: str | None
) -> dict[str, pa.Array]:
    block = piece.block
    decoded = decode_columns(block.properties_offsets, block.properties_data, block.count, wanted)
    if corrupt is None and decoded.malformed:
        row = decoded.malformed[0]
        raise MalformedMessageError(
            malformed(piece.queue, *_place(piece, row), decoded.why(row))
        ) from None
    columns = dict(decoded.columns)
    if corrupt is not None:
        columns[corrupt] = decoded.refused()
    return columns


def malformed(queue: str, index: int, ordinal: int, why: str) -> str:
    """Return the text about a message with properties that cannot be decoded."""
    return (
        f"queue {queue!r}, position (index {index}, ordinal {ordinal}): the message's "
        f"properties cannot be decoded: {why}. Read with mode=PERMISSIVE to get them as bytes "
        "in a column of their own (columnNameOfCorruptRecord), or take the message from the "
        "queue by other means"
    )


def _place(piece: ClaimedBlock, row: int) -> tuple[int, int]:
    for index, first, last, _, _ in piece.runs:
        if row <= last - first:
            return index, first + row
        row -= last - first + 1
    raise AssertionError((row, piece.runs))
