"""The load of a soak: one publisher and mostly one consumer for each of twelve kinds of queue."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from warren.claims import ClaimReader
from warren.connection import Connection
from warren_wire.sessions.pika_connections import blocking_connection

TICK_S = 0.05
OPEN_S = 30.0
WINDOW = 2_000
"""A publisher pauses while so many of its messages have no confirm."""
BODY_BYTES = (200, 2_000)
PREFETCH = 200
BACKLOG = 5_000
LATE = 150
"""A late consumer acknowledges a message when it has got so many after it."""
REJECT_ONE_IN = 20
CLAIM_MESSAGES = 500
QUORUM = {"x-queue-type": "quorum"}
LETTERS, VISITS = "soak.letters", "soak.visit"
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": LETTERS}


@dataclass(frozen=True)
class Kind:
    """A queue and what is done with its messages.

    way   "ack": each at once; "late": LATE messages later; "retry": some are rejected once; "get":
          basic.get; "claim": a reader of claims; "none": no consumer
    share of the rate; 0: nothing is published to it
    """

    queue: str
    arguments: Mapping[str, Any]
    way: str = "ack"
    share: float = 1.0
    exclusive: bool = False


KINDS = (
    Kind("soak.quorum", QUORUM),
    Kind("soak.single", {**QUORUM, "x-quorum-initial-group-size": 1}),
    Kind("soak.late", QUORUM, "late"),
    Kind(
        "soak.retry",
        {**QUORUM, "x-delayed-retry-type": "failed", "x-delayed-retry-min": 2_000},
        "retry",
    ),
    Kind("soak.claims", QUORUM, "claim"),
    Kind(
        "soak.ttl",
        {**QUORUM, **DEAD, "x-message-ttl": 5_000, "x-overflow": "reject-publish"}
        | {"x-dead-letter-strategy": "at-least-once"},
        "none",
        0.5,
    ),
    Kind(LETTERS, QUORUM, "ack", 0),
    Kind("soak.backlog", {**QUORUM, "x-max-length": BACKLOG}, "none"),
    Kind(
        "soak.deduplicated",
        {**QUORUM, "x-deduplication": True, "x-single-active-consumer": True},
    ),
    Kind("soak.classic", {"x-queue-type": "classic"}),
    Kind("soak.priorities", {"x-queue-type": "classic", "x-max-priority": 10}),
    Kind("soak.exclusive", {"x-queue-type": "classic"}, exclusive=True),
    Kind("soak.got", QUORUM, "get", 0.5),
)


@dataclass
class Counts:
    """What clients have done so far, by queue; `problems` ends the soak."""

    confirmed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Load:
    """All clients: on an event loop, readers of claims, and one that comes and goes."""

    def __init__(self, addresses: list[str], uri: str, rate: float, seed: int) -> None:
        self.counts = Counts()
        self._addresses = addresses
        self._rate = rate / sum(kind.share for kind in KINDS)
        self._seed = seed
        self._stop = threading.Event()
        self._uri = uri
        self._threads = [
            threading.Thread(target=self._run, daemon=True),
            *(
                threading.Thread(target=self._claim, args=(kind.queue,), daemon=True)
                for kind in KINDS
                if kind.way == "claim"
            ),
            threading.Thread(target=self._visit, daemon=True),
        ]
        self._declared = threading.Event()
        self._getters: list[asyncio.Future[None]] = []

    def start(self) -> None:
        """Declare the queues and start the clients."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the clients."""
        self._stop.set()
        for thread in self._threads:
            thread.join(OPEN_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._clients())
        except Exception as error:
            self.counts.problems.append(f"a client failed: {error!r}")
            raise

    async def _clients(self) -> None:
        at = len(self._addresses)
        opened = [await self._open(number % at) for number in range(2 * len(KINDS))]
        publishers, consumers = opened[: len(KINDS)], opened[len(KINDS) :]
        for number, kind in enumerate(KINDS):
            channel = await self._channel(consumers[number])
            done = asyncio.get_running_loop().create_future()
            channel.queue_declare(
                kind.queue,
                durable=not kind.exclusive,
                exclusive=kind.exclusive,
                arguments=dict(kind.arguments),
                callback=done.set_result,
            )
            await asyncio.wait_for(done, OPEN_S)
            self._consume(channel, kind)
        self._declared.set()
        work = [
            self._publish(await self._channel(connection), kind, number)
            for number, (connection, kind) in enumerate(zip(publishers, KINDS, strict=True))
            if kind.share
        ]
        await asyncio.gather(*work)
        for connection in opened:
            connection.close()

    async def _open(self, node: int) -> AsyncioConnection:
        loop = asyncio.get_running_loop()
        opened = loop.create_future()
        host, _, port = self._addresses[node].rpartition(":")

        def ended(connection: Any, error: Any) -> None:
            if not opened.done():
                opened.set_exception(ConnectionError(str(error)))
            elif not self._stop.is_set():
                self.counts.problems.append(f"a connection with node {node} ended: {error!r}")

        AsyncioConnection(
            pika.ConnectionParameters(host, int(port), heartbeat=60),
            on_open_callback=opened.set_result,
            on_open_error_callback=ended,
            on_close_callback=ended,
            custom_ioloop=loop,
        )
        connection: AsyncioConnection = await asyncio.wait_for(opened, OPEN_S)
        return connection

    async def _channel(self, connection: AsyncioConnection) -> Any:
        opened = asyncio.get_running_loop().create_future()
        connection.channel(on_open_callback=opened.set_result)
        channel = await asyncio.wait_for(opened, OPEN_S)
        channel.add_on_close_callback(self._closed)
        return channel

    def _closed(self, channel: Any, error: Any) -> None:
        if not self._stop.is_set():
            self.counts.problems.append(f"a channel was closed: {error!r}")

    async def _publish(self, channel: Any, kind: Kind, number: int) -> None:
        """Publish at the kind's share of the rate until the end; no bursts after a pause."""
        chance = random.Random(f"{self._seed} {number}")
        filler = chance.randbytes(BODY_BYTES[1])
        sent = done = 0

        def confirmed(frame: Any) -> None:
            nonlocal done
            first, done = done, max(done, frame.method.delivery_tag)
            is_ack = isinstance(frame.method, pika.spec.Basic.Ack)
            counted = self.counts.confirmed if is_ack else self.counts.refused
            counted[kind.queue] += done - first

        channel.confirm_delivery(ack_nack_callback=confirmed)
        due, last = 0.0, time.monotonic()
        while not self._stop.is_set():
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due = min(due + (now - last) * self._rate * kind.share, 2.0 * self._rate)
            last = now
            while due >= 1 and sent - done < WINDOW:
                due -= 1
                sent += 1
                properties = pika.BasicProperties(
                    delivery_mode=2,
                    priority=chance.randrange(10),
                    message_id=f"{number}-{sent}",
                    headers={"number": sent, "origin": kind.queue},
                )
                body = filler[: chance.randint(*BODY_BYTES)]
                channel.basic_publish("", kind.queue, body, properties)

    def _consume(self, channel: Any, kind: Kind) -> None:
        if kind.way in ("none", "claim"):
            return
        if kind.way == "get":
            self._getters.append(asyncio.ensure_future(self._get(channel, kind.queue)))
            return
        late: deque[int] = deque()
        arrived = 0

        def take(_: Any, method: Any, properties: Any, body: bytes) -> None:
            nonlocal arrived
            arrived += 1
            self.counts.taken[kind.queue] += 1
            if kind.way == "late":
                late.append(method.delivery_tag)
                if len(late) > LATE:
                    channel.basic_ack(late.popleft())
            elif kind.way == "retry" and not method.redelivered and not arrived % REJECT_ONE_IN:
                channel.basic_reject(method.delivery_tag, requeue=True)
            else:
                channel.basic_ack(method.delivery_tag)

        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(kind.queue, take)

    async def _get(self, channel: Any, queue: str) -> None:
        """Take messages by basic.get, for as long as there are some in a turn."""
        while not self._stop.is_set():
            answer = asyncio.get_running_loop().create_future()
            channel.add_callback(
                lambda _, future=answer: _set(future, False), [pika.spec.Basic.GetEmpty]
            )
            channel.basic_get(
                queue, lambda *message, future=answer: _set(future, message[1].delivery_tag)
            )
            tag = await answer
            if tag:
                self.counts.taken[queue] += 1
                channel.basic_ack(tag)
            else:
                await asyncio.sleep(TICK_S)

    def _visit(self) -> None:
        """Once a second a client comes, uses queues of its own, deletes them, and leaves."""
        self._declared.wait(OPEN_S)
        visits = 0
        try:
            while not self._stop.wait(1.0):
                host, _, port = self._addresses[visits % len(self._addresses)].rpartition(":")
                with blocking_connection(pika.ConnectionParameters(host, int(port))) as connection:
                    visits += 1
                    self._use_and_delete(connection.channel(), f"{VISITS}.{visits}")
        except Exception as error:
            self.counts.problems.append(f"visit {visits} failed: {error!r}")
            raise

    def _use_and_delete(self, channel: Any, name: str) -> None:
        channel.confirm_delivery()
        channel.exchange_declare(name, "topic")
        own = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_declare(name, durable=True, arguments=QUORUM)
        for queue in (name, own):
            channel.queue_bind(queue, name, "visit.*")
        channel.basic_publish(name, "visit.1", b"x" * BODY_BYTES[0])
        self.counts.confirmed[VISITS] += 1
        for queue in (name, own):
            method, _, _ = channel.basic_get(queue, auto_ack=True)
            self.counts.taken[VISITS] += method is not None
        channel.queue_delete(name)
        channel.exchange_delete(name)

    def _claim(self, queue: str) -> None:
        self._declared.wait(OPEN_S)
        try:
            with Connection(self._uri) as connection:
                reader = ClaimReader(connection, queue, "soak")
                number = reader.register().settled + 1
                while not self._stop.wait(1.0):
                    claim = reader.open(number, max_messages=CLAIM_MESSAGES, max_bytes=1 << 20)
                    if claim.open:
                        for block in reader.fetch(number, 0, claim.messages - 1):
                            self.counts.taken[queue] += block.messages
                        reader.settle(number)
                        number += 1
        except Exception as error:
            self.counts.problems.append(f"the reader of claims failed: {error!r}")
            raise


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
