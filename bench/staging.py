"""CPU per row of staging and publishing a sink's batches: of the three nodes, and of the client."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.memory_spark import BLOCK_ROWS, block
from bench.peers import NODES, Warren
from bench.processes import cpu_s, filed_bytes
from bench.report import show
from warren import Admin
from warren.connection import Connection
from warren.stages import SinkDriver, StageWriter, draw_epoch, publish_batch

QUEUE = "rows"
"""The routing key of `memory_spark.block`."""
BODY_BYTES = (1024, 100)
BATCHES = 8
FIRST = 2
"""Batches that are not counted: no file of the log can be used again yet."""
BLOCKS = {1024: 31, 100: 60}
"""Blocks of a batch: 120 MiB of bodies of 1 KiB."""


def staging() -> list[dict[str, Any]]:
    """Stage and publish batches of ready-made blocks; show the least CPU, and the median."""
    results = []
    with Warren() as warren, warren.connect() as connection:
        admin = Admin(connection)
        admin.queues.declare(QUEUE)
        for body_bytes in BODY_BYTES:
            made, count = block(body_bytes), BLOCKS[body_bytes]
            driver = SinkDriver("bench", str(body_bytes), draw_epoch(connection))
            spent = []
            written = [filed_bytes(pid) for pid in warren.pids()]
            for number in range(BATCHES):
                before = [cpu_s(pid) for pid in warren.pids()]
                own = _batch(connection, driver, number, made, count)
                after = [cpu_s(pid) for pid in warren.pids()]
                rows = count * BLOCK_ROWS
                spent.append(
                    ([(b - a) / rows for a, b in zip(before, after, strict=True)], own / rows)
                )
                admin.queues.purge(QUEUE)
            staged = BATCHES * count * len(made)
            logged = [
                (filed_bytes(pid) - before) / staged
                for pid, before in zip(warren.pids(), written, strict=True)
            ]
            counted = spent[FIRST:]
            nodes, own = min(counted, key=lambda each: sum(each[0]))
            leader = warren.leader(QUEUE)
            results.append(
                {
                    "body": body_bytes,
                    "nodes_us": 1e6 * sum(nodes),
                    "median_us": 1e6 * statistics.median(sum(each) for each, _ in counted),
                    "first_us": 1e6 * sum(spent[0][0]),
                    "leader_us": 1e6 * nodes[leader],
                    "client_us": 1e6 * own,
                    "logged": max(logged),
                }
            )
    _show(results)
    return results


def _batch(
    connection: Connection, driver: SinkDriver, number: int, made: bytes, count: int
) -> float:
    """Stage and publish one batch; return the CPU seconds of this process."""
    began = time.process_time()
    with StageWriter(connection, driver, batch=number, partition=0) as writer:
        for _ in range(count):
            writer.write(made)
        part = writer.finish()
    published = publish_batch(connection, driver, number, [part])
    assert published == count * BLOCK_ROWS, published
    return time.process_time() - began


def _show(results: list[dict[str, Any]]) -> None:
    show(
        "staged and published rows, CPU per row",
        [
            {
                "body": f"{one['body']} B",
                "µs of the nodes": f"{one['nodes_us']:.2f}",
                "of it the leader": f"{one['leader_us']:.2f}",
                "median": f"{one['median_us']:.2f}",
                "first batch": f"{one['first_us']:.2f}",
                "µs of the client": f"{one['client_us']:.2f}",
                "bytes a node writes per byte": f"{one['logged']:.2f}",
            }
            for one in results
        ],
        [
            (
                f"{NODES} nodes; blocks of {BLOCK_ROWS:,} rows; least and median of batches "
                f"{FIRST + 1} to {BATCHES}"
            ),
        ],
    )
