"""CPU per row of making blocks from Spark's columns, without Spark and without a broker."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from bench.report import show
from pyspark_warren.rows.blocks import blocks_of
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.rows.encode import encode_rows
from pyspark_warren.sink.writer import keep_freed_memory

ROWS = 4_000
REPEATS = 9
BLOCK_BYTES = 4 << 20
"""The default of the option blockBytes."""
CHEAP = ("body", "message_id")


def _batch(body_bytes: int) -> pa.RecordBatch:
    """Rows as a query reads and writes them: unique ids, two headers, one of them unique."""
    headers = [
        [
            ("trace", {"type": "string", "string": f"t{row}"}),
            ("size", {"type": "long", "long": row}),
        ]
        for row in range(ROWS)
    ]
    return pa.record_batch(
        {
            "body": pa.array([b"x" * body_bytes] * ROWS),
            "message_id": pa.array([f"id-{row:012d}" for row in range(ROWS)]),
            "routing_key": pa.array([f"queue-{row % 4}" for row in range(ROWS)]),
            "priority": pa.array([row % 3 for row in range(ROWS)], pa.int32()),
            "content_type": pa.array(["application/json"] * ROWS),
            "correlation_id": pa.array([f"c-{row}" for row in range(ROWS)]),
            "expiration": pa.array(["60000"] * ROWS),
            "timestamp": pa.array(
                [row * 1_000_000 for row in range(ROWS)], pa.timestamp("us", tz="UTC")
            ),
            "headers": pa.array(headers, ARROW_TYPES["headers"]),
        }
    )


def encoding() -> list[dict[str, Any]]:
    """Convert the same rows again and again; the least CPU time counts."""
    keep_freed_memory()
    results: list[dict[str, Any]] = []
    for body_bytes in (100, 1024):
        batch = _batch(body_bytes)
        without = [name for name in batch.schema.names if name != "headers"]
        for name, columns, key in (
            ("body, message_id", list(CHEAP), "q"),
            ("every column but headers", without, None),
            ("every column", batch.schema.names, None),
        ):
            rows = batch.select(columns)
            lists, whole = min(_seconds(rows, key) for _ in range(REPEATS))
            results.append(
                {
                    "body": body_bytes,
                    "columns": name,
                    "lists_us": lists / ROWS * 1e6,
                    "us_per_row": whole / ROWS * 1e6,
                }
            )
    show(
        "Arrow columns to blocks, CPU per row",
        [
            {
                "body": f"{one['body']} B",
                "columns": one["columns"],
                "property lists, µs": f"{one['lists_us']:.2f}",
                "with blocks, µs": f"{one['us_per_row']:.2f}",
            }
            for one in results
        ],
        [f"one process, no Spark; the least of {REPEATS} runs"],
    )
    return results


def _seconds(rows: pa.RecordBatch, key: str | None) -> tuple[float, float]:
    began = time.process_time()
    encoded = encode_rows(rows, None, key, True)
    lists = time.process_time() - began
    for _ in blocks_of(encoded, BLOCK_BYTES):
        pass
    return lists, time.process_time() - began
