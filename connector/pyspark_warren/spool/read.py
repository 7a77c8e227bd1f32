"""The executor's side of a slice of the spool: opens its files and makes the wanted columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_warren.rows.columns import PROPERTY_COLUMNS
from pyspark_warren.rows.identities import DELIVERY_COUNT
from pyspark_warren.rows.properties import decode_properties
from pyspark_warren.rows.rows import ROWS_MAX, make_rows, place_text
from pyspark_warren.spool.files import read_stretch
from pyspark_warren.spool.giving_up import give_up
from pyspark_warren.spool.offset import SpoolSlice
from pyspark_warren.spool.recognise import ACQUIRED_COUNT
from pyspark_warren.spool.store import open_place
from warren_wire.amqp091 import properties as wire
from warren_wire.block.layout import PRIORITY_DEFAULT
from warren_wire.errors import SyntaxRefused

_HEADERS: Final = {"delivery_count": DELIVERY_COUNT, "acquired_count": ACQUIRED_COUNT}
"""Columns that a quorum queue's broker tells in a header; 0 without it."""
_FROM_PROPERTIES: Final = PROPERTY_COLUMNS.union(_HEADERS, ["priority"])
_STORED: Final = ("body", "exchange", "routing_key", "redelivered")


def read_spooled(
    location: str, part: SpoolSlice, schema: pa.Schema, corrupt: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice, always the same ones in the same order.

    location  of the spool
    corrupt   the column for bytes that cannot be decoded; None: those are errors
    """
    place = open_place(location)
    if part.given_up:
        give_up(place, part.reader, part.given_up)
        return
    wanted = [name for name in _STORED if name in schema.names]
    if corrupt in schema.names or _FROM_PROPERTIES.intersection(schema.names):
        wanted.append("properties")
    for stretch in part.stretches:
        stored = read_stretch(place, part.reader, stretch, wanted or ["redelivered"])
        for first in range(0, stored.num_rows, ROWS_MAX):
            rows = stored.slice(first, ROWS_MAX)
            at = stretch.position + first
            piece = DeliveredRows(rows, range(at, at + rows.num_rows), part.queue)
            yield piece.to_arrow(schema, corrupt)


@dataclass(frozen=True, slots=True)
class DeliveredRows:
    """Messages as a broker delivered them, with the position of each; its ordinal is 0."""

    stored: pa.RecordBatch
    positions: Sequence[int]
    queue: str

    def to_arrow(self, schema: pa.Schema, corrupt: str | None) -> pa.RecordBatch:
        """Make the columns that the schema names; `corrupt` as in `rows.make_rows`."""
        return make_rows(
            schema,
            corrupt,
            self._lists,
            self._column,
            lambda row: place_text(self.queue, self.positions[row], 0),
        )

    def pieces(self, schema: pa.Schema, corrupt: str | None) -> tuple[pa.RecordBatch, ...]:
        """Return the rows in one piece."""
        return (self.to_arrow(schema, corrupt),)

    def _lists(self) -> tuple[memoryview, memoryview, int]:
        lists = self.stored.column("properties")
        _, words, data = lists.buffers()
        offsets = memoryview(words).cast("B").cast("I")
        return (
            offsets[lists.offset : lists.offset + len(lists) + 1],
            memoryview(data if data is not None else b"").cast("B"),
            len(lists),
        )

    def _column(self, field: pa.Field) -> pa.Array:
        rows = self.stored.num_rows
        if field.name == "queue":
            return pa.repeat(pa.scalar(self.queue, field.type), rows)
        if field.name == "position":
            positions = pa.array(self.positions, pa.int64())
            ordinals = pa.repeat(pa.scalar(0, pa.int64()), rows)
            return pa.StructArray.from_arrays([positions, ordinals], fields=list(field.type))
        if field.name == "body":
            return self.stored.column("body")
        if field.name in ("exchange", "routing_key"):
            coded = self.stored.column(field.name).dictionary_encode()
            words = [word.decode("utf-8", "replace") for word in coded.dictionary.to_pylist()]
            return pa.array(words, field.type).take(coded.indices)
        if field.name == "redelivered":
            return self.stored.column("redelivered")
        coded = self.stored.column("properties").dictionary_encode()
        numbers = [_number(field.name, raw) for raw in coded.dictionary.to_pylist()]
        return pa.array(numbers, field.type).take(coded.indices)


def _number(column: str, raw: bytes) -> int:
    """Return a column's number from a property list; the default where it has none."""
    try:
        if column == "priority":
            found = wire.select(raw, frozenset(("priority",)))
            return int(found.get("priority", PRIORITY_DEFAULT))
        headers = decode_properties(raw, frozenset(("headers",))).get("headers", ())
    except SyntaxRefused:
        return PRIORITY_DEFAULT if column == "priority" else 0
    name = _HEADERS[column]
    return max([typed.get("long") or 0 for key, typed in headers if key == name] + [0])
