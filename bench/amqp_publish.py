"""Rows per second of the connector's sink at RabbitMQ, beside a bare publisher of pika."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa

from bench import rabbitmq
from bench.report import show
from pyspark_warren.options.options import parse_options
from pyspark_warren.sink.others import write_published
from pyspark_warren.sink.writer import Attempt
from warren.stages import SinkDriver

SIZES_BYTES = (1024, 100)
ROWS = 60_000
ROUNDS = 3
WINDOW = 1_000
BATCH_ROWS = 10_000
QUEUE = "published"
DATA = "/var/tmp/warren-bench-publish"


class BarePublisher:
    """A SelectConnection that keeps the window full, as pika's own example does."""

    def __init__(self, port: int, body: bytes, rows: int) -> None:
        self._body, self._rows = body, rows
        self._sent = self._confirmed = 0
        self._channel: Any = None
        self._connection: Any = pika.SelectConnection(
            pika.ConnectionParameters("127.0.0.1", port), on_open_callback=self._open
        )

    def run(self) -> None:
        """Publish everything, and wait for the last confirm."""
        self._connection.ioloop.start()

    def _open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_open)

    def _channel_open(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, lambda _frame: self._fill())

    def _on_confirm(self, frame: Any) -> None:
        assert frame.method.NAME == "Basic.Ack", frame
        # Of one queue's messages: their confirms come in order, and one stands for all before it.
        self._confirmed = max(self._confirmed, frame.method.delivery_tag)
        if self._confirmed == self._rows:
            self._connection.ioloop.stop()
        else:
            self._fill()

    def _fill(self) -> None:
        while self._sent < self._rows and self._sent - self._confirmed < WINDOW:
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=f"bench-run-0-0-{self._sent}"
            )
            self._channel.basic_publish("", QUEUE, self._body, properties, mandatory=True)
            self._sent += 1


def bare(port: int, body: bytes, rows: int) -> None:
    """Publish with pika alone."""
    BarePublisher(port, body, rows).run()


def connector(port: int, body: bytes, rows: int) -> None:
    """Publish with the sink's task, as Spark would call it."""
    options = parse_options(
        {
            "hosts": f"127.0.0.1:{port}",
            "broker": "amqp",
            "routingKey": QUEUE,
            "publishWindow": str(WINDOW),
        },
        "write",
    )
    batch = pa.record_batch({"body": pa.array([body] * BATCH_ROWS, pa.binary())})
    attempt = Attempt.drawn(SinkDriver("bench", "run", 1), 0, 0)
    part = write_published(
        options, attempt, iter([batch] * (rows // BATCH_ROWS)), "publishing the rows"
    )
    assert part.rows == rows, part


PUBLISHERS: dict[str, Callable[[int, bytes, int], None]] = {
    "bare pika, SelectConnection": bare,
    "connector's sink": connector,
}


def publish() -> list[dict[str, Any]]:
    """Measure both publishers in turns, one node, a durable classic queue."""
    notes: list[str] = []
    root: Path = rabbitmq.find(notes)
    results: list[dict[str, Any]] = []
    with rabbitmq.RabbitMQ(root, 1, data=DATA) as node:
        port = int(node.targets().rpartition(":")[2])
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as made:
            channel = made.channel()
            channel.queue_declare(QUEUE, durable=True)
            for size in SIZES_BYTES:
                speeds: dict[str, list[float]] = {name: [] for name in PUBLISHERS}
                cpu: dict[str, list[float]] = {name: [] for name in PUBLISHERS}
                for _ in range(ROUNDS):
                    for name, run in PUBLISHERS.items():
                        began, used = time.monotonic(), time.process_time()
                        run(port, b"x" * size, ROWS)
                        speeds[name].append(ROWS / (time.monotonic() - began))
                        cpu[name].append((time.process_time() - used) / ROWS * 1e6)
                        made.process_data_events(0)
                        assert channel.queue_purge(QUEUE).method.message_count == ROWS
                results += [
                    {
                        "publisher": name,
                        "bytes": size,
                        "rows_per_s": statistics.median(speeds[name]),
                        "cpu_us_per_row": statistics.median(cpu[name]),
                    }
                    for name in PUBLISHERS
                ]
        title = f"{node.name}, one node, durable queue, window {WINDOW}, {ROWS:,} rows"
    show(
        title,
        [
            {
                "publisher": one["publisher"],
                "bytes": f"{one['bytes']:,}",
                "rows/s": f"{one['rows_per_s']:,.0f}",
                "CPU µs/row": f"{one['cpu_us_per_row']:.1f}",
            }
            for one in results
        ],
        notes,
    )
    return results
