"""Division of encoded rows into blocks of bounded size, in order within each priority."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pyspark_warren.errors import SchemaError
from pyspark_warren.rows import compute as pc
from pyspark_warren.rows.encode import EncodedRows
from warren_wire import kernel
from warren_wire.block.block import BLOCK_MESSAGES_MAX, LARGEST_BODY_BYTES, BlockError
from warren_wire.block.layout import PRIORITY_DEFAULT

OVERHEAD_BYTES = 64
"""Overhead of a row beside its body and properties, so that empty ones are bounded, too."""


def blocks_of(rows: EncodedRows, block_bytes: int) -> Iterator[bytes]:
    """Yield blocks of about `block_bytes` at most; a larger row is a block of its own.

    raises  SchemaError when a body is above the broker's limit
    """
    for first, count in _cuts(rows, block_bytes):
        try:
            yield _block(_sorted(rows.slice(first, count)))
        except BlockError as wrong:
            raise SchemaError(f"rows cannot be sent: {wrong}") from wrong


def _cuts(rows: EncodedRows, block_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of runs, by halving: sizes are computed without a loop over rows."""
    pending = [(0, len(rows))] if len(rows) else []
    while pending:
        first, count = pending.pop()
        part = rows.slice(first, count)
        if count > BLOCK_MESSAGES_MAX or (count > 1 and size_bytes(part) > block_bytes):
            half = count // 2
            pending += [(first + half, count - half), (first, half)]
        else:
            yield first, count


def size_bytes(rows: EncodedRows) -> int:
    """Return the bytes of bodies and properties, with some for each row."""
    return _area_bytes(rows.bodies) + _area_bytes(rows.properties) + OVERHEAD_BYTES * len(rows)


def _area_bytes(values: pa.BinaryArray) -> int:
    offsets, _ = area_of(values)
    return offsets[len(values)] - offsets[0]


def area_of(values: pa.BinaryArray) -> tuple[memoryview, memoryview]:
    """Return the array's offsets, count + 1 of them, which may start above 0, and its data."""
    _, offsets, data = values.buffers()
    words = memoryview(offsets).cast("B").cast("i")
    words = words[values.offset : values.offset + len(values) + 1]
    return words, memoryview(data if data is not None else b"")


def _sorted(rows: EncodedRows) -> EncodedRows:
    """Sort by priority, highest first, stable within one."""
    if rows.priorities is None:
        return rows
    low_high = pc.min_max(rows.priorities)
    if low_high["min"] == low_high["max"]:
        return rows
    # `array_sort_indices` is stable (Arrow, compute functions, "Sorts and partitions").
    return rows.take(pc.array_sort_indices(rows.priorities, order="descending"))


def _used_routes(rows: EncodedRows) -> tuple[tuple[tuple[str, str], ...], pa.Array | None]:
    """Return the used routes and each row's index into them; at most one route per message."""
    if rows.route_ids is None or len(rows.routes) <= BLOCK_MESSAGES_MAX:
        return rows.routes, rows.route_ids
    coded = rows.route_ids.dictionary_encode()
    return tuple(rows.routes[each.as_py()] for each in coded.dictionary), coded.indices


def _block(rows: EncodedRows) -> bytes:
    routes, route_ids = _used_routes(rows)
    properties, property_data = area_of(rows.properties)
    bodies, body_data = area_of(rows.bodies)
    priorities: int | bytes = PRIORITY_DEFAULT
    if rows.priorities is not None:
        priorities = _column(rows.priorities, 1)
    return kernel.block_of_columns(
        count=len(rows),
        properties_offsets=properties,
        properties_data=property_data,
        body_offsets=bodies,
        body_data=body_data,
        routes=[(exchange.encode(), key.encode()) for exchange, key in routes],
        route_column=None if route_ids is None else _column(route_ids, 4),
        ttl_column=None if rows.ttls_ms is None else _column(rows.ttls_ms, 4),
        priorities=priorities,
        message_bytes_max=LARGEST_BODY_BYTES,  # the broker refuses what is above its own limit
    )


def _column(values: pa.Array, width: int) -> bytes:
    """Return the bytes of a fixed-width array without nulls."""
    assert not values.null_count, values.null_count
    start = values.offset * width
    return bytes(memoryview(values.buffers()[1])[start : start + len(values) * width])
