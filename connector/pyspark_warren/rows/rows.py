"""Conversion of blocks to Arrow columns.

Columns that are not wanted cost nothing. The body is a view of the block.

A property list that the codec refuses, or with a number that a column cannot hold, is an error that
names the message; with a column for corrupt records the list is there, and the other columns
derived from it are null. So is a body that is to be a text and is none.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pyspark_warren.errors import (
    BrokerRefusedError,
    MalformedMessageError,
    SchemaError,
    UnsupportedError,
)
from pyspark_warren.rows import compute as pc
from pyspark_warren.rows.columns import (
    COLUMNS,
    CORRUPT_DDL,
    PROPERTY_COLUMNS,
    STATE_COLUMNS,
    hint_of,
)
from pyspark_warren.rows.decode import (
    ARROW_TYPES,
    HEADERS_TEXT,
    PLAIN_TYPES,
    decode_columns,
    headers_as,
)
from warren_wire.block.block import FORM_AMQP091, Block, BlockError

ROWS_MAX: Final = 16_384
"""Rows of one Arrow batch: larger ones made Spark slower, not faster."""


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


def check_columns(names: Sequence[str], corrupt: str | None = None, states: bool = False) -> None:
    """Raise SchemaError for a column that no message has.

    corrupt  the column for bytes that cannot be decoded; None: those are errors
    states   columns of a message's state are known, too
    """
    for name in names:
        if name not in COLUMNS and name != corrupt and not (states and name in STATE_COLUMNS):
            raise SchemaError(f"unknown column {name!r}; {hint_of(name, COLUMNS)}")
    if corrupt is not None and corrupt not in names and PROPERTY_COLUMNS.intersection(names):
        raise _no_place(corrupt)


def _no_place(corrupt: str) -> SchemaError:
    return SchemaError(
        f"mode=PERMISSIVE needs a place for what cannot be decoded: add "
        f"{corrupt} {CORRUPT_DDL} to the schema, or read with mode=FAILFAST"
    )


def check_schema(schema: pa.Schema, corrupt: str | None = None, states: bool = False) -> None:
    """Raise SchemaError unless every column is known and of its type, or the other one it has.

    The body may be a string, and the values of headers may be.
    """
    check_columns(schema.names, corrupt, states)
    for field in schema:
        ddl = {**COLUMNS, **STATE_COLUMNS}.get(field.name, CORRUPT_DDL)
        wanted = PLAIN_TYPES.get(ddl) or ARROW_TYPES[field.name]
        if field.type not in (wanted, _OTHER_TYPES.get(field.name, wanted)):
            raise SchemaError(
                f"column {field.name}: the schema says {field.type}, it is "
                f"{ddl}; say that, and cast it after reading"
            )
        if field.name == "body" and field.type != wanted and corrupt is not None:
            if corrupt not in schema.names:
                raise _no_place(corrupt)


def to_arrow(piece: ClaimedBlock, schema: pa.Schema, corrupt: str | None = None) -> pa.RecordBatch:
    """Make the columns that the schema names, one row per message; `corrupt` as in `make_rows`."""
    block = piece.block
    if block.form != FORM_AMQP091:
        raise UnsupportedError(
            f"queue {piece.queue!r} holds messages published over AMQP 1.0; reading "
            "those is not supported by this version"
        )
    return make_rows(
        schema,
        corrupt,
        lambda: (block.properties_offsets, block.properties_data, block.count),
        lambda field: _MAKERS[field.name](piece, field.type),
        lambda row: place_text(piece.queue, *_place(piece, row)),
    )


def make_rows(
    schema: pa.Schema,
    corrupt: str | None,
    lists: Callable[[], tuple[memoryview, memoryview, int]],
    make: Callable[[pa.Field], pa.Array],
    place: Callable[[int], str],
) -> pa.RecordBatch:
    """Make the columns that the schema names, in the order of the messages.

    corrupt  the column that takes what cannot be decoded, as bytes: a property list, a body, or
             the one and then the other; None: such a message raises MalformedMessageError
    lists    returns offsets and data of the property lists, and how many there are
    make     returns a column that is no property
    place    returns where a message is, by the number of its row, for the error's text
    """
    made: dict[str, pa.Array] = {}
    wanted = PROPERTY_COLUMNS.intersection(schema.names)
    if corrupt is not None and corrupt in schema.names:
        wanted = PROPERTY_COLUMNS
    if wanted:
        decoded = decode_columns(*lists(), wanted)
        if corrupt is None and decoded.malformed:
            row = decoded.malformed[0]
            raise MalformedMessageError(
                f"{place(row)}: the message's properties cannot be decoded: {decoded.why(row)}. "
                "Read with mode=PERMISSIVE to get them as bytes in a column of their own "
                "(columnNameOfCorruptRecord), or take the message from the queue by other means"
            )
        made = dict(decoded.columns)
        if corrupt is not None:
            made[corrupt] = decoded.refused()
    for field in schema:
        if field.name not in made:
            made[field.name] = make(field)
    if "headers" in schema.names:
        made["headers"] = headers_as(made["headers"], schema.field("headers").type)
    if "body" in schema.names and schema.field("body").type == pa.string():
        _decode_bodies(made, corrupt, place)
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def _decode_bodies(
    made: dict[str, pa.Array], corrupt: str | None, place: Callable[[int], str]
) -> None:
    """Make texts of bodies; those that are not UTF-8 are null, and in the column `corrupt`."""
    bodies = made["body"]
    try:
        made["body"] = bodies.cast(pa.string())
        return
    except pa.ArrowInvalid:
        refused = [] if corrupt is None else made[corrupt].to_pylist()
    texts: list[str | None] = []
    for row, raw in enumerate(bodies.to_pylist()):
        try:
            texts.append(raw.decode())
        except UnicodeDecodeError:
            if corrupt is None:
                raise MalformedMessageError(
                    f"{place(row)}: the message's body is not UTF-8; read the column body as "
                    "binary, or with mode=PERMISSIVE to get it as bytes in a column of their own "
                    "(columnNameOfCorruptRecord)"
                ) from None
            texts.append(None)
            refused[row] = (refused[row] or b"") + raw
    made["body"] = pa.array(texts, pa.string())
    if corrupt is not None:
        made[corrupt] = pa.array(refused, pa.binary())


# ------------------------------------------------------------------ one maker per column


def _body(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
    block = piece.block
    return _binary(block.body_offsets, block.body_data, block.count)


def _binary(offsets: memoryview, data: memoryview, count: int) -> pa.BinaryArray:
    """Return a view; offsets are little-endian 32 bit and start at 0, as in Arrow."""
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


@lru_cache(maxsize=4)
def _repeated(word: str, count: int) -> pa.StringArray:
    """Return a word so many times; not by `pa.repeat`: pyarrow imports pandas for a scalar."""
    data = word.encode()
    size = len(data)
    offsets = array("i", range(0, size * count + 1, size) if size else bytes(4 * (count + 1)))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data * count))


def _routed(which: int) -> Callable[[ClaimedBlock, pa.DataType], pa.Array]:
    def make(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
        block = piece.block
        words = [route[which].decode("utf-8", "replace") for route in block.routes]
        if block.route_column is None:
            return _repeated(words[0] if words else "", block.count)
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
    return _repeated(piece.queue, piece.block.count)


def _position(piece: ClaimedBlock, wanted: pa.DataType) -> pa.Array:
    ordinals = array("q")
    for _, first, last, _, _ in piece.runs:
        ordinals.extend(range(first, last + 1))
    parts = [_counted(0)(piece, pa.int64()), _int64(ordinals)]
    return pa.StructArray.from_arrays(parts, fields=list(wanted))


_OTHER_TYPES: Final = {"body": pa.string(), "headers": HEADERS_TEXT}
"""The type that a column has in a schema that says so."""
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


def place_text(queue: str, index: int, ordinal: int) -> str:
    """Return where a message is, for an error's text."""
    return f"queue {queue!r}, position (index {index}, ordinal {ordinal})"


def _place(piece: ClaimedBlock, row: int) -> tuple[int, int]:
    for index, first, last, _, _ in piece.runs:
        if row <= last - first:
            return index, first + row
        row -= last - first + 1
    raise AssertionError((row, piece.runs))
