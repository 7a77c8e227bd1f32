"""What the Spark part rests on: CPU told apart by kind of process, the same rows on both sides."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from bench.memory_spark import BLOCK_ROWS, block
from bench.spark_cpu import KINDS, SparkMeter
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.rows.rows import ClaimedBlock, to_arrow
from warren_wire.block.block import Block

BURNT_S = 0.3
BURN = f"""
import sys, time
while time.process_time() < {BURNT_S}:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["pyspark.daemon", "pyspark.worker"], "workers"),
        (["pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner"], "driver"),
        (["something.else"], None),
    ],
)
def test_cpu_is_counted_for_the_kind_of_process(words: list[str], kind: str | None) -> None:
    meter = SparkMeter([])
    command = [sys.executable, "-c", BURN, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"burnt\n"
        spent = meter.stop()
        child.communicate()
    assert {each: seconds > 0.8 * BURNT_S for each, seconds in spent.items()} == {
        each: each == kind for each in KINDS
    }


def test_a_node_counts_as_a_node_from_the_start_of_the_meter() -> None:
    command = [sys.executable, "-c", BURN, "pyspark.daemon", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"burnt\n"
        spent = SparkMeter([child.pid]).stop()
        child.communicate()
    assert spent["workers"] == 0.0
    assert spent["nodes"] < 0.8 * BURNT_S, "what it used before is not counted"


def test_the_peer_has_the_rows_of_a_block_in_every_column() -> None:
    piece = ClaimedBlock(Block.decode(block(100)), [(1, 0, BLOCK_ROWS - 1, 0, 0)], "rows")
    rows = to_arrow(piece, pa.schema([pa.field(*each) for each in ARROW_TYPES.items()]))
    assert rows.num_rows == BLOCK_ROWS
    assert len(rows.column("message_id").unique()) == BLOCK_ROWS
    assert rows.column("body").unique().to_pylist() == [b"x" * 100]
    assert rows.column("routing_key").unique().to_pylist() == ["rows"]
