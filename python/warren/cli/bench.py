"""`warren bench`: publishers and consumers at any AMQP 0.9.1 broker, with what they get done."""

from __future__ import annotations

import math
import multiprocessing
import struct
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Annotated, Final

import typer

from warren.cli import output
from warren.cli.amqp091 import Pika, connect091, parameters_of
from warren.cli.command_line import JSONL, wanted_format
from warren.cli.target import Json, Uri, address_of
from warren.errors import Unavailable, UsageError
from warren.uri import Address

WORK_EACH_S: Final = 0.05
SAID_EACH_S: Final = 1.0
STAMP: Final = struct.Struct("<q")
"""The time at which a message was sent, in nanoseconds, at the beginning of its body."""
BOUNDS_MS: Final = tuple(0.1 * 1.25**i for i in range(60))
"""Upper bounds of latencies that are counted together."""
END_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """What each worker does.

    rate    messages per second of each publisher; 0: as many as it can
    window  published and not confirmed at most
    """

    queue: str
    size: int
    seconds: float
    rate: float
    window: int
    prefetch: int
    persistent: bool


@dataclass(slots=True)
class WorkDone:
    """What workers did since they last said so; latencies by BOUNDS_MS."""

    published: int = 0
    confirmed: int = 0
    consumed: int = 0
    refused: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))

    def add(self, other: WorkDone) -> None:
        """Add what another one has."""
        self.published += other.published
        self.confirmed += other.confirmed
        self.consumed += other.consumed
        self.refused += other.refused
        self.latencies = [a + b for a, b in zip(self.latencies, other.latencies, strict=True)]

    def percentile_ms(self, share: float) -> float:
        """Return the bound below which that share of the latencies lies; 0 where there are none."""
        left = math.ceil(share * sum(self.latencies))
        for bound, count in zip((*BOUNDS_MS, BOUNDS_MS[-1]), self.latencies, strict=True):
            left -= count
            if left <= 0:
                return bound if sum(self.latencies) else 0.0
        return BOUNDS_MS[-1]

    def shown(self, seconds: float) -> dict[str, float]:
        """Return rates and latencies by name."""
        return {
            "published_per_s": round(self.published / seconds),
            "confirmed_per_s": round(self.confirmed / seconds),
            "consumed_per_s": round(self.consumed / seconds),
            "refused": self.refused,
            **{f"p{p}_ms": round(self.percentile_ms(p / 100), 1) for p in (50, 95, 99)},
        }


class _Worker(ABC):
    """A connection in a process of its own; `tell` gets WorkDone, or a text when it fails."""

    def __init__(self, address: Address, load: Load, tell: Connection) -> None:
        import pika

        self.pika, self.load, self.tell = pika, load, tell
        self.counts, self.said_at = WorkDone(), time.monotonic()
        self.ends = self.said_at + load.seconds
        self.ended = False
        self.connection = pika.SelectConnection(
            parameters_of(pika, address)[0],
            on_open_callback=lambda made: made.channel(on_open_callback=self.opened),
            on_open_error_callback=lambda _, error: self.failed(error),
            on_close_callback=lambda _, error: self.closed(error),
        )

    def run(self) -> None:
        """Work until the time is over, or it fails."""
        self.connection.ioloop.start()

    def opened(self, channel: Pika) -> None:
        """The channel is open."""
        channel.add_on_close_callback(lambda _, error: self.closed(error))
        self.begin(channel)
        self.tick()

    @abstractmethod
    def begin(self, channel: Pika) -> None:
        """Begin to work on the channel."""

    @abstractmethod
    def work(self) -> None:
        """Do what is due; called every WORK_EACH_S."""

    def tick(self) -> None:
        """Work, say what was done, and end when it is time."""
        now = time.monotonic()
        self.work()
        if now - self.said_at >= SAID_EACH_S or now >= self.ends:
            self.tell.send(self.counts)
            self.counts, self.said_at = WorkDone(), now
        if now < self.ends:
            self.connection.ioloop.call_later(WORK_EACH_S, self.tick)
        else:
            self.ended = True
            self.connection.close()

    def closed(self, error: Exception) -> None:
        """The channel or the connection has ended."""
        if not self.ended:
            self.failed(error)
        self.connection.ioloop.stop()

    def failed(self, error: Exception) -> None:
        """Say why it ends early."""
        self.ended = True
        self.tell.send(str(error) or type(error).__name__)
        self.connection.ioloop.stop()


class _Publisher(_Worker):
    """Publishes with confirms, as many as the window and the rate admit."""

    def __init__(self, address: Address, load: Load, tell: Connection) -> None:
        super().__init__(address, load, tell)
        self.sent, self.began = 0, 0.0
        self.pending: dict[int, None] = {}
        self.channel: Pika = None

    def begin(self, channel: Pika) -> None:
        channel.confirm_delivery(self.answered, callback=lambda _: self.confirming(channel))

    def confirming(self, channel: Pika) -> None:
        """The channel answers each message from now on."""
        self.channel, self.began = channel, time.monotonic()
        self.work()

    def work(self) -> None:
        if self.channel is None or not self.channel.is_open:
            return
        load, now = self.load, time.monotonic()
        room = load.window - len(self.pending) if now < self.ends else 0
        if load.rate:
            room = min(room, int((now - self.began) * load.rate) - self.sent)
        said = self.pika.BasicProperties(delivery_mode=2 if load.persistent else 1)
        padding = b"x" * (load.size - STAMP.size)
        for _ in range(room):
            body = STAMP.pack(time.time_ns()) + padding
            self.channel.basic_publish("", load.queue, body, said)
            self.sent += 1
            self.counts.published += 1
            self.pending[self.sent] = None

    def answered(self, frame: Pika) -> None:
        """Messages are confirmed, or refused."""
        method, before = frame.method, len(self.pending)
        self.pending.pop(method.delivery_tag, None)
        while method.multiple and next(iter(self.pending), math.inf) < method.delivery_tag:
            del self.pending[next(iter(self.pending))]
        count = before - len(self.pending)
        if isinstance(method, self.pika.spec.Basic.Nack):
            self.counts.refused += count
        else:
            self.counts.confirmed += count
        self.work()


class _Consumer(_Worker):
    """Consumes, and acknowledges half a prefetch at once."""

    def __init__(self, address: Address, load: Load, tell: Connection) -> None:
        super().__init__(address, load, tell)
        self.tag, self.acked = 0, 0
        self.channel: Pika = None

    def begin(self, channel: Pika) -> None:
        self.channel = channel
        channel.basic_qos(prefetch_count=self.load.prefetch)
        channel.basic_consume(self.load.queue, self.delivered)

    def delivered(self, channel: Pika, method: Pika, properties: Pika, body: bytes) -> None:
        """A message has come."""
        self.tag = method.delivery_tag
        self.counts.consumed += 1
        if len(body) >= STAMP.size:
            ms = (time.time_ns() - STAMP.unpack_from(body)[0]) / 1e6
            self.counts.latencies[bisect_left(BOUNDS_MS, ms)] += 1
        if self.tag - self.acked >= max(1, self.load.prefetch // 2):
            self.work()

    def work(self) -> None:
        if self.tag > self.acked and self.channel.is_open:
            self.channel.basic_ack(self.tag, multiple=True)
            self.acked = self.tag


def _run(kind: Callable[..., _Worker], address: Address, load: Load, tell: Connection) -> None:
    try:
        kind(address, load, tell).run()
    except KeyboardInterrupt:
        pass
    finally:
        tell.close()


def bench(
    queue: Annotated[
        str, typer.Option(help="is declared, and deleted afterwards")
    ] = "warren-bench",
    publishers: Annotated[int, typer.Option(min=0, max=64, help="processes that publish")] = 1,
    consumers: Annotated[int, typer.Option(min=0, max=64, help="processes that consume")] = 1,
    size: Annotated[int, typer.Option(min=8, max=1 << 20, help="bytes of a body")] = 100,
    seconds: Annotated[float, typer.Option(min=0.1, help="how long")] = 10.0,
    rate: Annotated[
        float, typer.Option(min=0, help="messages per second of each publisher; 0: all it can")
    ] = 0.0,
    window: Annotated[int, typer.Option(min=1, max=65_535, help="unconfirmed at most")] = 1_000,
    prefetch: Annotated[int, typer.Option(min=1, max=65_535, help="of each consumer")] = 1_000,
    queue_type: Annotated[str, typer.Option(help="quorum or classic")] = "quorum",
    keep: Annotated[bool, typer.Option("--keep", help="do not delete the queue")] = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Publish and consume at any AMQP 0.9.1 broker, and show rates and latencies.

    Each worker is a process with pika, which has its own limit of about 20,000 messages per second:
    for the limit of a broker take several. Exit code 1: a worker has failed.
    """
    if not publishers + consumers:
        raise UsageError("neither publishers nor consumers: there is nothing to do")
    load = Load(queue, size, seconds, rate, window, prefetch, persistent=True)
    with connect091(uri) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": queue_type})
    kinds = [_Publisher] * publishers + [_Consumer] * consumers
    total = _measured(kinds, address_of(uri), load, json and wanted_format() == JSONL)
    if not keep:
        with connect091(uri) as connection:
            connection.channel().queue_delete(queue)
    if json and wanted_format() != JSONL:
        output.as_json(total.shown(seconds))
    elif not json:
        output.facts("", total.shown(seconds))


def _measured(kinds: list[Pika], address: Address, load: Load, lines: bool) -> WorkDone:
    """Run the workers; return what all of them did. Raises Unavailable for one that fails."""
    context = multiprocessing.get_context("fork")
    reading: list[Connection] = []
    processes = []
    for kind in kinds:
        ours, theirs = context.Pipe(duplex=False)
        processes.append(context.Process(target=_run, args=(kind, address, load, theirs)))
        processes[-1].start()
        theirs.close()
        reading.append(ours)
    total, recent, shown_at = WorkDone(), WorkDone(), time.monotonic()
    ends = shown_at + load.seconds + END_S
    try:
        while reading and time.monotonic() < ends:
            for one in wait(reading, SAID_EACH_S):
                assert isinstance(one, Connection)
                try:
                    said = one.recv()
                except EOFError:
                    reading.remove(one)
                    continue
                if isinstance(said, str):
                    raise Unavailable(f"a worker has failed: {said}")
                total.add(said)
                recent.add(said)
            now = time.monotonic()
            if lines and now - shown_at >= SAID_EACH_S:
                output.as_json_line(recent.shown(now - shown_at))
                recent, shown_at = WorkDone(), now
    finally:
        for process in processes:
            process.join(0.5 if reading else END_S)
            process.terminate()
    return total
