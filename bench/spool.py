"""Messages per second from a RabbitMQ queue: a bare pika consumer, and the connector's receiver.

Each consumer is a process of its own that takes the same number of messages from the same queue:

pika      pika.BlockingConnection, basic_consume, an acknowledgement for every thousand
kernel    the receiver's connection, which reads deliveries with the kernel, and drops them
receiver  the receiver with its spool in a temporary directory, ackMode=spool
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pika

from bench import rabbitmq
from bench.report import show

BODY_BYTES = (1024, 100)
PREFETCH = 10_000
ACK_EVERY = 1000
WAIT_S = 300.0
CONSUMERS = ("pika", "kernel", "receiver")


def spool(rows: int, rounds: int) -> list[dict[str, Any]]:
    """Measure each consumer on a queue with that many messages; raises Missing."""
    notes: list[str] = []
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    with rabbitmq.RabbitMQ(rabbitmq.find(notes), nodes=1) as broker:
        target = broker.targets()
        for size in BODY_BYTES:
            for _ in range(rounds):
                for name in CONSUMERS:
                    _fill(target, rows, size)
                    found.setdefault((size, name), []).append(_measured(name, target, rows))
        results: list[dict[str, Any]] = []
        for (size, name), runs in found.items():
            best = max(runs, key=lambda run: run["per_s"])
            bare = max(run["per_s"] for run in found[size, "pika"])
            results.append(
                {
                    "broker": broker.name,
                    "body_bytes": size,
                    "consumer": name,
                    "messages_per_s": round(best["per_s"]),
                    "cpu_us_per_message": round(min(run["cpu_us"] for run in runs), 1),
                    "to_pika": round(best["per_s"] / bare, 2),
                }
            )
    rows_shown = [
        {
            "consumer": each["consumer"],
            "body": f"{each['body_bytes']} B",
            "messages per second": str(each["messages_per_s"]),
            "CPU of it, µs": str(each["cpu_us_per_message"]),
            "beside pika": str(each["to_pika"]),
        }
        for each in results
    ]
    show(f"{rows:,} messages from a queue of {broker.name}", rows_shown, notes)
    return results


def _fill(target: str, rows: int, size: int) -> None:
    with pika.BlockingConnection(_parameters(target)) as connection:
        channel = connection.channel()
        channel.queue_delete("spool")
        channel.queue_declare("spool", durable=True)
        properties = pika.BasicProperties(delivery_mode=2, content_type="text/plain")
        body = os.urandom(size)
        for i in range(rows):
            channel.basic_publish("", "spool", body[8:] + b"%08d" % i, properties)


def _parameters(target: str) -> pika.ConnectionParameters:
    host, _, port = target.partition(":")
    return pika.ConnectionParameters(host, int(port))


def _measured(name: str, target: str, rows: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.spool", name, target, str(rows)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=WAIT_S,
    )
    return dict(json.loads(done.stdout))


# ------------------------------------------------------------------ the consumers


def pika_alone(target: str, rows: int) -> float:
    """Consume with pika; return the seconds between the consumer's begin and the last ack."""
    with pika.BlockingConnection(_parameters(target)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        began = time.monotonic()
        for seen, (method, _, _) in enumerate(channel.consume("spool"), 1):
            if seen % ACK_EVERY == 0 or seen == rows:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if seen == rows:
                return time.monotonic() - began
    raise AssertionError("the consumer was cancelled")


def kernel_alone(target: str, rows: int) -> float:
    """Consume with the receiver's connection, without a spool."""
    from pika.adapters.select_connection import IOLoop

    from pyspark_warren.amqp.session import Session, receive_in_large_pieces

    class Drop:
        began_at = ended_at = 0.0
        seen = 0

        def began(self, messages: int, consumers: int) -> None:
            self.began_at = time.monotonic()

        def received(self) -> None:
            if session.filled.count >= ACK_EVERY or self.seen + session.filled.count == rows:
                self.seen += session.take().count
                session.ack(self.seen, True)
            if self.seen == rows:
                self.ended_at = time.monotonic()
                session.close()

        def ended(self, why: Exception | None) -> None:
            loop.stop()

    receive_in_large_pieces()
    loop, events = IOLoop(), Drop()
    session = Session(loop, _parameters(target), "spool", PREFETCH, "measuring", events)
    loop.start()
    return events.ended_at - events.began_at


def receiver(target: str, rows: int) -> float:
    """Consume with a receiver process; until the last message is in the spool."""
    from pyspark_warren.options.options import parse_options
    from pyspark_warren.spool.lanes import Lane
    from pyspark_warren.spool.stdio import ReceiverTask

    with tempfile.TemporaryDirectory(prefix="warren-bench-spool-", dir="/var/tmp") as place:
        given = {"hosts": target, "queue": "spool", "broker": "amqp", "ackMode": "spool"}
        given |= {"prefetch": str(PREFETCH), "spoolLocation": place}
        options = parse_options(given, "read", "stream")
        task = ReceiverTask(options, "bench", 0, may_ack=True)
        lane = Lane(task, threading.Condition())
        lane.wait(lambda: lane.down_s() == 0, WAIT_S)
        began = time.monotonic()
        while lane.end < rows:
            lane.wait(lambda: lane.end >= rows, 1.0)
            lane.settle(lane.end)
        took_s = time.monotonic() - began
        lane.close()
        lane.join()
    return took_s


def main(arguments: Sequence[str]) -> None:
    """Run one consumer and print what it took."""
    name, target, rows = arguments
    kinds: dict[str, Callable[[str, int], float]] = {
        "pika": pika_alone,
        "kernel": kernel_alone,
        "receiver": receiver,
    }
    imported = resource.getrusage(resource.RUSAGE_SELF)
    took_s = kinds[name](target, int(rows))
    who = resource.RUSAGE_CHILDREN if name == "receiver" else resource.RUSAGE_SELF
    used = resource.getrusage(who)
    cpu_s = used.ru_utime + used.ru_stime
    if name != "receiver":
        cpu_s -= imported.ru_utime + imported.ru_stime
    print(json.dumps({"per_s": int(rows) / took_s, "cpu_us": cpu_s * 1e6 / int(rows)}))


if __name__ == "__main__":
    main(sys.argv[1:])
