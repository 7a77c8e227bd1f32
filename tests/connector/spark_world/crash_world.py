"""One query of a crash run: where its rows come from, where they must arrive, what is missing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from spark_world.rabbit import RabbitWorld
from spark_world.runs import RealWorld

BATCH = 100
SINKS = ("parquet", "queue", "foreach", "files")
"""Where the rows go; `files`: from files into the queue, a source that is not Warren's."""
SOURCE_STEPS = {
    "warren": ("after_claim", "after_offset_log", "driver_in_read", "before_settle"),
    "rabbitmq": ("after_latest", "after_offset_log", "in_read", "before_settle"),
}
SINK_STEPS = {
    "parquet": (),
    "queue": ("in_write", "before_publish", "after_publish"),
    "foreach": ("between_actions", "after_actions"),
    "files": ("in_write", "before_publish", "after_publish"),
}
TO_QUEUE = ("queue", "files")
FINISH_RUNS_MAX = 10


class CrashWorld:
    """A query from a queue into one kind of sink.

    runs     the query, its source queue and its broker
    bodies   what was published
    endless  each run continues until the source has nothing; otherwise it is availableNow
    """

    def __init__(self, runs: RealWorld | RabbitWorld, sink: str, endless: bool) -> None:
        self.runs, self.sink = runs, sink
        runs.where["endless"] = endless
        self.of_warren = isinstance(runs, RealWorld)
        self.bodies: list[bytes] = []
        runs.where.setdefault("source", {})["maxMessagesPerTrigger"] = str(BATCH)
        runs.where.pop("foreach_batch", None)
        self.out = runs.directory / "out"
        self.files = runs.directory / "files"
        if sink in TO_QUEUE:
            runs.where["target_queue"] = runs.target
            if sink == "files":
                self.files.mkdir()
                runs.where["files"] = str(self.files)
        else:
            runs.where["parquet" if sink == "parquet" else "foreach_batch"] = str(self.out)

    @property
    def steps(self) -> tuple[str, ...]:
        """Where its driver may die, in the order of a batch."""
        return self.source_steps + SINK_STEPS[self.sink]

    @property
    def source_steps(self) -> tuple[str, ...]:
        """Where it may die before it writes."""
        if self.sink == "files":
            return ()
        return SOURCE_STEPS["warren" if self.of_warren else "rabbitmq"]

    def queues(self) -> list[str]:
        """Return the source and, where the sink is one, the target."""
        if self.sink == "files":
            return [self.runs.target]
        source, target = self.runs.where["source_queue"], self.runs.where.get("target_queue")
        return [source, target] if self.sink == "queue" and target else [source]

    def publish(self, count: int) -> None:
        """Publish numbered messages into the source."""
        if self.sink == "files":
            self._write_files(count)
        elif isinstance(self.runs, RealWorld):
            self.bodies += self.runs.publish(count, len(self.bodies))
        else:
            self.runs.publish(count)
            self.bodies = self.runs.bodies

    def _write_files(self, count: int) -> None:
        """Write numbered rows into files, each of a batch."""
        for first in range(0, count, BATCH):
            number = len(self.bodies)
            rows = [b"message %06d" % (number + i) for i in range(min(BATCH, count - first))]
            table = pa.table({"body": rows, "priority": pa.array([4] * len(rows), pa.int32())})
            pq.write_table(table, self.files / f".{number}")
            (self.files / f".{number}").rename(self.files / f"{number}.parquet")
            self.bodies += rows

    def finish(self, **plan: Any) -> None:
        """Run the query until every row has arrived and the last batch is settled."""
        for _ in range(FINISH_RUNS_MAX):
            self.wait_until_free()
            self.runs.finish(**plan)
            if not self.missing():
                break
        if not self.of_warren:
            self.wait_until_free()
            self.runs.finish(**plan)  # a RabbitMQ is acknowledged when the next batch is asked for

    def wait_until_free(self) -> None:
        """Wait until the receiver of a dead driver has left the queue."""
        if isinstance(self.runs, RabbitWorld):
            self.runs.wait_until_free()

    def rows(self) -> list[tuple[bytes, str | None]]:
        """Return body and message_id of each row that has arrived."""
        if self.sink == "parquet":
            return [(body, None) for body in of_file_sink(self.out)]
        if self.sink == "foreach":
            return [(body, None) for body in _of_folders(self.out / "second")]
        if isinstance(self.runs, RealWorld):
            return [(body, None) for body in self.runs.bodies()]
        return self.runs.published()

    def missing(self) -> int:
        """Return how many messages have not arrived."""
        return len(set(self.bodies) - {body for body, _ in self.rows()})

    def check(self) -> tuple[int, int]:
        """Return rows lost and doubled.

        raises AssertionError: rows that were not published, repeats under other names, leftovers
        """
        rows = self.rows()
        times = Counter(body for body, _ in rows)
        lost, doubled = len(set(self.bodies) - set(times)), len(rows) - len(times)
        assert set(times) <= set(self.bodies), "rows that were not published"
        names = {(body, name) for body, name in rows}
        assert len(names) == len(times), "a repeated row has another message_id"
        if self.sink == "foreach":
            first = Counter(_of_folders(self.out / "first"))
            assert first == times, "the two actions of foreachBatch saw different rows"
        if not lost:
            self.runs.check_source_empty()
        return lost, doubled


def _of_folders(parent: Path) -> list[bytes]:
    """Return the bodies in a folder of Parquet files per batch."""
    found: list[bytes] = []
    for batch in parent.glob("*"):
        table = ds.dataset(batch, format="parquet").to_table()
        found += [bytes.fromhex(text) for text in table["body"].to_pylist()]
    return found


def of_file_sink(directory: Path) -> list[bytes]:
    """Return the bodies in the files that the log of Spark's file sink names."""
    names = set()
    for log in (directory / "_spark_metadata").glob("*"):
        if not log.name.startswith(".") and log.suffix in ("", ".compact"):
            lines = log.read_text().splitlines()[1:]
            names |= {json.loads(line)["path"].rsplit("/", 1)[1] for line in lines}
    found: list[bytes] = []
    for name in sorted(names):
        table = ds.dataset(directory / name, format="parquet").to_table()
        found += [bytes.fromhex(text) for text in table["body"].to_pylist()]
    return found
