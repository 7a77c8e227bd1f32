"""The connector beside Python sources and sinks of Arrow batches in memory, pair by pair.

Each pair is one streaming query with the connector and the same query with the peer, one after the
other in one Spark session: rows per second, CPU per row, and the time of a small micro-batch.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, SparkSession

from bench.flame_graphs import FLAMES, Watched, folder_name, profile
from bench.memory_spark import BLOCK_ROWS, PARTITIONS
from bench.peers import Warren
from bench.report import show
from bench.spark_cpu import KINDS, SparkMeter
from bench.spark_session import CHEAP, MS_PER_S, QUEUE, batches_of, ended, fill, session
from pyspark_warren.rows.columns import COLUMNS
from warren.admin import Admin

BODY_BYTES: Final = (1024, 100)
BATCHES: Final = 4
SMALL_ROWS: Final = 1_000
SMALL_BATCHES: Final = 24
WRITTEN: Final = "written"
MICROS_PER_S: Final = 1_000_000
CALLS: Final = ("latestOffset", "getBatch")
"""Spark's names for what it waits for of a source on the driver, in a query's progress."""


@dataclass(frozen=True, slots=True)
class Side:
    """One query's measurement; the first batch with rows, in which workers start, is left out.

    batch_ms   of a micro-batch, at the median
    source_ms  of it, in the source's calls on the driver, at the median
    """

    rows: int
    rows_per_s: float
    batch_ms: float
    source_ms: float
    cpu_us: dict[str, float]


@dataclass(frozen=True, slots=True)
class Pair:
    """What is compared: columns that are read, and whether the connector reads and writes."""

    name: str
    columns: tuple[str, ...]
    reads: bool = True
    writes: bool = False


PAIRS: Final = (
    Pair("source, body and cheap columns", CHEAP),
    Pair("source, every column", tuple(COLUMNS)),
    Pair("sink, atomicBatch", CHEAP, reads=False, writes=True),
    Pair("queue to queue", CHEAP, writes=True),
)


class Bench:
    """A Spark session beside a running cluster."""

    def __init__(self, spark: SparkSession, warren: Warren) -> None:
        self.spark, self.warren = spark, warren
        self.connection = warren.connect()
        for name in (QUEUE, WRITTEN):
            Admin(self.connection).queues.declare(name)

    def frame(self, pair: Pair, peer: bool, body_bytes: int, rows: int, batch: int) -> DataFrame:
        """Return the rows of one side."""
        reader = self.spark.readStream.schema(", ".join(f"{c} {COLUMNS[c]}" for c in pair.columns))
        if pair.reads and not peer:
            options = {"queue": QUEUE, "maxMessagesPerTrigger": batch, "partitions": PARTITIONS}
            return reader.format("warren").options(hosts=self.warren.targets(), **options).load()
        sizes = {"rows": rows, "batch": batch, "body_bytes": body_bytes}
        return reader.format("memory_arrow").options(**sizes).load()

    def measured(self, pair: Pair, peer: bool, body_bytes: int, rows: int, batch: int) -> Side:
        """Run one query until it has read everything."""
        if pair.reads and not peer:
            fill(self.connection, body_bytes, rows)
        writer = self.frame(pair, peer, body_bytes, rows, batch).writeStream
        if not pair.writes:
            writer = writer.format("noop")
        elif peer:
            writer = writer.format("memory_arrow")
        else:
            target = {"hosts": self.warren.targets(), "routingKey": WRITTEN}
            writer = writer.format("warren").options(**target)
        meter = SparkMeter(self.warren.pids())
        batches, _ = batches_of(
            writer, lambda batches: sum(each.numInputRows for each in batches) >= rows
        )
        cpu = meter.stop(ended(batches[0]))
        read = sum(each.numInputRows for each in batches)
        assert read == rows, (pair.name, peer, read, rows)
        times = [each.durationMs["triggerExecution"] for each in batches[1:]]
        counted = sum(each.numInputRows for each in batches[1:])
        return Side(
            rows,
            counted * MS_PER_S / sum(times),
            statistics.median(times),
            statistics.median(sum(each.durationMs[call] for call in CALLS) for each in batches[1:]),
            {kind: seconds * MICROS_PER_S / counted for kind, seconds in cpu.items()},
        )

    def profile(self, pair: Pair, body_bytes: int, rows: int, batch: int) -> str:
        """Make flame graphs of the connector's side; return why there are none, or an empty text.

        Spark's Python workers, and its Python beside the driver, are in one graph.
        """
        java = self.spark.sparkContext._jvm
        assert java is not None
        jvm = int(java.java.lang.ProcessHandle.current().pid())
        watched = [
            Watched("jvm", jvm, java=True),
            Watched("workers", jvm, below=True),
            Watched("driver", os.getpid()),
            *(Watched(f"node-{i}", pid) for i, pid in enumerate(self.warren.pids())),
        ]
        name = folder_name(f"{pair.name} {body_bytes} B, batches of {batch}")
        return profile(
            FLAMES / "spark" / name,
            watched,
            lambda: self.measured(pair, False, body_bytes, rows, batch),
        )


def pairs(rows: int, master: str, profiled: bool = False) -> list[dict[str, Any]]:
    """Measure every pair at every size, and each pair's small micro-batches.

    profiled  make flame graphs of the connector's side, too, in runs that do not count
    """
    batch = max(1, rows // BATCHES // BLOCK_ROWS) * BLOCK_ROWS
    runs = [(size, BATCHES * batch, batch) for size in BODY_BYTES]
    runs.append((BODY_BYTES[-1], SMALL_BATCHES * SMALL_ROWS, SMALL_ROWS))
    results: list[dict[str, Any]] = []
    notes: list[str] = []
    spark = session(master)
    try:
        with Warren() as warren:
            bench = Bench(spark, warren)
            for size, total, each in runs:
                for pair in PAIRS:
                    peer, ours = (
                        bench.measured(pair, peer, size, total, each) for peer in (True, False)
                    )
                    results.append(_result(pair, size, each, ours, peer))
                    print(f"\n{results[-1]}", flush=True)
                    if profiled:
                        notes.append(bench.profile(pair, size, total, each))
    finally:
        spark.stop()
    _show(results, master, sorted(set(filter(None, notes))))
    return results


def _result(pair: Pair, size: int, batch: int, ours: Side, peer: Side) -> dict[str, Any]:
    return {
        "pair": pair.name,
        "body_bytes": size,
        "batch_rows": batch,
        "rows_per_s": ours.rows_per_s,
        "peer_rows_per_s": peer.rows_per_s,
        "ratio": ours.rows_per_s / peer.rows_per_s,
        "batch_ms": ours.batch_ms,
        "peer_batch_ms": peer.batch_ms,
        "source_ms": ours.source_ms,
        "peer_source_ms": peer.source_ms,
        "cpu_us": ours.cpu_us,
        "peer_cpu_us": peer.cpu_us,
    }


def _show(results: list[dict[str, Any]], master: str, notes: list[str]) -> None:
    show(
        f"Spark {pyspark.__version__}, {master}: the connector beside Arrow in memory",
        [_row(one) for one in results if one["batch_rows"] != SMALL_ROWS],
        [f"CPU in µs per row by kind of process: {', '.join(KINDS)}", *notes],
    )
    show(
        f"a micro-batch of {SMALL_ROWS:,} rows, ms at the median",
        [
            {
                "pair": one["pair"],
                "connector": f"{one['batch_ms']:.0f}",
                "in memory": f"{one['peer_batch_ms']:.0f}",
                "more": f"{one['batch_ms'] - one['peer_batch_ms']:.0f}",
                "of it in the source": f"{one['source_ms'] - one['peer_source_ms']:.0f}",
            }
            for one in results
            if one["batch_rows"] == SMALL_ROWS
        ],
        [],
    )


def _row(one: dict[str, Any]) -> dict[str, str]:
    return {
        "body": f"{one['body_bytes']} B",
        "pair": one["pair"],
        "rows/s": f"{one['rows_per_s']:,.0f}",
        "in memory": f"{one['peer_rows_per_s']:,.0f}",
        "ratio": f"{one['ratio']:.2f}",
        "CPU": _cpu(one["cpu_us"]),
        "its CPU": _cpu(one["peer_cpu_us"]),
    }


def _cpu(micros: dict[str, float]) -> str:
    return " ".join(f"{micros[kind]:.1f}" for kind in KINDS)
