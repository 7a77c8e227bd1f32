"""Rows and places for tests of the spool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from pyspark_warren.spool.files import read_stretch, stretches
from pyspark_warren.spool.lane import LaneUse, LaneWriter
from pyspark_warren.spool.layout import SCHEMA
from pyspark_warren.spool.store import ArrowStore, SpoolPlace, open_place
from warren_wire.amqp091.properties import NONE, Properties, encode

USE = LaneUse("/", "flights", keep=100)


def place(kind: str, directory: Path) -> SpoolPlace:
    """A place of that kind: path, uri, or mock (a file system in memory, for object stores)."""
    if kind == "mock":
        return SpoolPlace(ArrowStore(fs._MockFileSystem()), "bucket/spool", "mock://bucket/spool")
    return open_place(str(directory) if kind == "path" else directory.as_uri())


def rows(
    bodies: Sequence[bytes],
    redelivered: bool | Iterable[bool] = False,
    properties: bytes | Sequence[bytes] = NONE,
) -> pa.RecordBatch:
    """Deliveries with these bodies."""
    count = len(bodies)
    again = [redelivered] * count if isinstance(redelivered, bool) else list(redelivered)
    lists = [properties] * count if isinstance(properties, bytes) else list(properties)
    columns: list[Any] = [list(bodies), lists, [b""] * count, [b"flights"] * count, again]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def with_id(message_id: str, **more: Any) -> bytes:
    """A property list with a message id."""
    return encode(Properties(message_id=message_id, **more))


def take_over(where: SpoolPlace, use: LaneUse = USE) -> LaneWriter:
    """The next owner of the lane."""
    return LaneWriter.take_over(where, "spark-1", use)


def bodies(where: SpoolPlace, start: int, end: int) -> list[bytes]:
    """The bodies of rows, as Spark's tasks read them."""
    found: list[bytes] = []
    for stretch in stretches(where, "spark-1", start, end):
        batch = read_stretch(where, "spark-1", stretch, ["body"])
        found += batch.column("body").to_pylist()
    return found
