"""CPU per row of making Spark's columns from a block, without Spark and without a broker."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from bench.report import show
from pyspark_warren.rows.blocks import blocks_of
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.rows.encode import encode_rows
from pyspark_warren.rows.rows import ClaimedBlock, to_arrow
from warren_wire.block.block import Block

ROWS = 4_000
REPEATS = 7
SCHEMAS = {
    "body": ("body",),
    "body, routing_key, message_id": ("body", "routing_key", "message_id"),
    "every column": tuple(ARROW_TYPES),
}


def _blocks(body_bytes: int, headers: bool) -> list[Block]:
    """Rows with unique message ids, and with two headers if asked for, one of them unique."""
    columns: dict[str, pa.Array] = {
        "body": pa.array([b"x" * body_bytes] * ROWS),
        "message_id": pa.array([f"id-{row:012d}" for row in range(ROWS)]),
        "content_type": pa.array(["application/json"] * ROWS),
        "timestamp": pa.array(
            [row * 1_000_000 for row in range(ROWS)], pa.timestamp("us", tz="UTC")
        ),
    }
    if headers:
        columns["headers"] = pa.array(
            [[("trace", f"t{row}"), ("kind", "order")] for row in range(ROWS)],
            pa.map_(pa.string(), pa.string()),
        )
    encoded = encode_rows(pa.record_batch(columns), None, "q", True)
    return [Block.decode(data) for data in blocks_of(encoded, 64 << 20)]


def decoding() -> list[dict[str, Any]]:
    """Convert the same blocks again and again; the least CPU time counts."""
    results: list[dict[str, Any]] = []
    for body_bytes in (100, 1024):
        for headers in (False, True):
            pieces = [
                ClaimedBlock(block, [(1, 0, block.count - 1, 0, 0)], "q")
                for block in _blocks(body_bytes, headers)
            ]
            for name, columns in SCHEMAS.items():
                schema = pa.schema([pa.field(each, ARROW_TYPES[each]) for each in columns])
                least = min(_seconds(pieces, schema) for _ in range(REPEATS))
                results.append(
                    {
                        "body": body_bytes,
                        "headers": headers,
                        "columns": name,
                        "us_per_row": least / ROWS * 1e6,
                    }
                )
    show(
        "blocks to Arrow columns, CPU per row",
        [
            {
                "body": f"{one['body']} B",
                "two headers": "yes" if one["headers"] else "no",
                "columns": one["columns"],
                "µs": f"{one['us_per_row']:.2f}",
            }
            for one in results
        ],
        ["one process, no Spark; the least of seven runs"],
    )
    return results


def _seconds(pieces: list[ClaimedBlock], schema: pa.Schema) -> float:
    began = time.process_time()
    for piece in pieces:
        to_arrow(piece, schema)
    return time.process_time() - began
