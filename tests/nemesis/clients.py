"""AMQP 0.9.1 clients of a run: publishers with confirms, consumers with acks, getters.

They are pika's, on one event loop; whatever happens to a connection, the client continues with a
new one, mostly at another node.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import AMQPError

from nemesis import body
from nemesis.history import Recorder, runs
from nemesis.nodes import Nodes

TICK_S = 0.02
WINDOW = 2000
HEARTBEAT_S = 4
OPEN_S = 5.0
PATIENCE_S = 6.0
"""A restless client that hears nothing for this long tries another node."""
BURST_ONE_IN = 200
BURST = 400
BODY_BYTES_MAX = 600
REQUEUE_ONE_IN = 500
EPHEMERAL_S = (3.0, 8.0)


@dataclass(eq=False)
class World:
    """What all clients share: where nodes are, the recorder, whether to continue.

    stopping  publishers begin nothing new
    closing   all clients leave
    """

    nodes: Nodes
    record: Recorder
    seed: int
    rate: float
    stopping: bool = False
    closing: bool = False
    confirmed: int = 0
    delivered: int = 0
    unconfirmed: int = 0


class Client:
    """One connection after the other."""

    def __init__(self, world: World, name: str, node: int) -> None:
        self.world = world
        self.name = name
        self.node = node
        self.epoch = 0
        self.chance = random.Random(f"{world.seed} {name}")
        self.closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Until the world closes."""
        while not self.world.closing:
            self.epoch += 1
            connection = None
            try:
                connection = await self._open()
                await self.work(connection)
            except (AMQPError, OSError, TimeoutError, ConnectionLost):
                pass
            finally:
                self.left()
                if connection is not None and connection.is_open:
                    connection.close()
            self.node += 1
            await asyncio.sleep(self.chance.uniform(0.05, 0.3))

    async def work(self, connection: AsyncioConnection) -> None:
        """While this connection lasts; raises what `_open` raises when it ends."""
        raise NotImplementedError

    def left(self) -> None:
        """The connection has ended."""

    async def _open(self) -> AsyncioConnection:
        loop = asyncio.get_running_loop()
        opened = loop.create_future()
        self.closed = closed = loop.create_future()
        host, port = self.world.nodes.endpoint(self.node % len(self.world.nodes))

        def ended(connection: Any, error: Any) -> None:
            for future in (opened, closed):
                if not future.done():
                    future.set_result(None)

        connection = AsyncioConnection(
            pika.ConnectionParameters(
                host,
                port,
                connection_attempts=1,
                socket_timeout=OPEN_S,
                stack_timeout=OPEN_S,
                heartbeat=HEARTBEAT_S,
                blocked_connection_timeout=60,
            ),
            on_open_callback=lambda connection: opened.done() or opened.set_result(True),
            on_open_error_callback=ended,
            on_close_callback=ended,
            custom_ioloop=loop,
        )
        if await asyncio.wait_for(opened, 2 * OPEN_S) is None:
            raise ConnectionLost
        return connection

    async def channel(self, connection: AsyncioConnection) -> Any:
        """A channel whose end is the connection's."""
        opened = asyncio.get_running_loop().create_future()
        channel = connection.channel(on_open_callback=lambda channel: _set(opened, channel))
        channel.add_on_close_callback(lambda channel, error: _set(self.closed, None))
        await self.answer(opened)
        return channel

    async def answer(self, future: asyncio.Future[Any]) -> Any:
        """The answer of the broker, unless the connection ends first."""
        await asyncio.wait((future, self.closed), timeout=60, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise ConnectionLost
        return future.result()

    async def pause(self, seconds: float) -> None:
        """Raises when the connection ends meanwhile."""
        await asyncio.wait((self.closed,), timeout=seconds)
        if self.closed.done():
            raise ConnectionLost


class ConnectionLost(Exception):
    """The client's connection has ended."""


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


class Publisher(Client):
    """Publishes with confirms; every message has an identity of its own and is sent once.

    restless  leaves a node that confirms nothing for PATIENCE_S
    share     of the world's rate
    ends_in   the queue in which its messages arrive, when it is another one
    exchange  that it publishes to, with the queue's name as the routing key
    """

    def __init__(
        self,
        world: World,
        name: str,
        node: int,
        queue: str,
        priorities: int,
        restless: bool,
        share: float = 1.0,
        ends_in: str = "",
        exchange: str = "",
    ) -> None:
        super().__init__(world, name, node)
        self.ends_in = ends_in or queue
        self.exchange = exchange
        self.rate = world.rate * share
        self.queue = queue
        self.priorities = priorities
        self.restless = restless
        self._open_numbers: dict[int, None] = {}
        self._heard = 0.0
        self._serving = False

    @property
    def _stream(self) -> str:
        return f"{self.name}.{self.epoch}"

    async def work(self, connection: AsyncioConnection) -> None:
        """See `Client`."""
        channel = await self.channel(connection)
        selected = asyncio.get_running_loop().create_future()
        epoch = self.epoch
        channel.confirm_delivery(
            lambda frame: self._on_confirm(epoch, frame), lambda frame: _set(selected, True)
        )
        await self.answer(selected)
        self.world.record("stream", s=self._stream, node=self.node % len(self.world.nodes))
        clock = asyncio.get_running_loop().time
        self._heard = clock()
        self._serving = True
        number = 0
        blocked: list[bool] = []
        connection.add_on_connection_blocked_callback(lambda *_: blocked.append(True))
        connection.add_on_connection_unblocked_callback(lambda *_: blocked.clear())
        while not self.world.closing:
            if not self.world.stopping and not blocked:
                for _ in range(self._how_many()):
                    number += 1
                    self._publish(channel, number)
            await self.pause(TICK_S)
            if not self._open_numbers:
                self._heard = clock()
            elif self.restless and clock() - self._heard > PATIENCE_S:
                return

    def _how_many(self) -> int:
        room = WINDOW - len(self._open_numbers)
        if self.chance.randrange(BURST_ONE_IN) == 0:
            return min(room, BURST)
        return min(room, int(self.rate * TICK_S * self.chance.uniform(0, 2) + 0.5))

    def _publish(self, channel: Any, number: int) -> None:
        priority = self.chance.choice((0, 1, 4, 5, 9)) if self.priorities else None
        self.world.record(
            "publish",
            s=self._stream,
            n=number,
            q=self.ends_in,
            y=4 if priority is None else priority,
        )
        self._open_numbers[number] = None
        self.world.unconfirmed += 1
        channel.basic_publish(
            self.exchange,
            self.queue,
            body.make(self._stream, number, self.chance.randrange(BODY_BYTES_MAX)),
            pika.BasicProperties(delivery_mode=2, priority=priority),
        )

    def _on_confirm(self, epoch: int, frame: Any) -> None:
        if not self._serving or epoch != self.epoch:
            return  # of a connection that was left: all that was open is recorded as unknown
        method = frame.method
        first = tag = method.delivery_tag
        if method.multiple:
            numbers = [number for number in self._open_numbers if number <= tag]
        else:
            numbers = [first] if tag in self._open_numbers else []
        if not numbers:
            what = f"{self._stream}: {method} confirms nothing that was open"
            self.world.record("problem", what=what)
            return
        for number in numbers:
            del self._open_numbers[number]
        ok = isinstance(method, pika.spec.Basic.Ack)
        self.world.record("confirm" if ok else "nack", s=self._stream, n=runs(numbers))
        self.world.confirmed += len(numbers)
        self.world.unconfirmed -= len(numbers)
        self._heard = asyncio.get_running_loop().time()

    def left(self) -> None:
        """See `Client`."""
        self._serving = False
        if self._open_numbers:
            self.world.record("unknown", s=self._stream, n=runs(sorted(self._open_numbers)))
            self.world.unconfirmed -= len(self._open_numbers)
            self._open_numbers.clear()


class Consumer(Client):
    """Consumes with acks on `channels` channels of one connection.

    lasts_s  it reconnects after about that long; 0: it stays
    late     it begins when the publishers have ended: until then the queue grows
    """

    def __init__(
        self,
        world: World,
        name: str,
        node: int,
        queue: str,
        *,
        prefetch: int = 200,
        priority: int = 0,
        channels: int = 1,
        lasts_s: float = 0.0,
        no_ack: bool = False,
        late: bool = False,
    ) -> None:
        super().__init__(world, name, node)
        self.queue = queue
        self.prefetch = prefetch
        self.priority = priority
        self.channels = channels
        self.lasts_s = lasts_s
        self.no_ack = no_ack
        self.late = late
        self._tags: list[str] = []

    async def work(self, connection: AsyncioConnection) -> None:
        """See `Client`."""
        while self.late and not self.world.stopping and not self.world.closing:
            await self.pause(0.2)
        for i in range(self.channels):
            channel = await self.channel(connection)
            tag = f"{self.name}.{self.epoch}.{i}"
            self._tags.append(tag)
            done = asyncio.get_running_loop().create_future()
            channel.basic_qos(
                prefetch_count=self.prefetch, callback=lambda frame, done=done: _set(done, True)
            )
            await self.answer(done)
            _Taking(self, channel, tag)
        clock = asyncio.get_running_loop().time
        until = clock() + self.chance.uniform(0.5, 1.5) * self.lasts_s
        while not self.world.closing:
            await self.pause(0.2)
            if self.lasts_s and clock() > until and not self.world.stopping:
                return

    def left(self) -> None:
        """See `Client`."""
        for tag in self._tags:
            self.world.record("gone", c=tag)
        self._tags.clear()


class _Taking:
    """One channel's deliveries: acknowledged in runs, a few given back."""

    def __init__(self, consumer: Consumer, channel: Any, tag: str) -> None:
        self.consumer = consumer
        self.channel = channel
        self.tag = tag
        self.held: dict[int, tuple[str, int]] = {}
        self.scheduled = False
        channel.add_on_cancel_callback(self._cancelled)
        channel.basic_consume(
            consumer.queue,
            self._on_message,
            consumer_tag=tag,
            auto_ack=consumer.no_ack,
            arguments={"x-priority": consumer.priority},
        )

    def _cancelled(self, frame: Any) -> None:
        _set(self.consumer.closed, None)

    def _on_message(self, channel: Any, method: Any, properties: Any, data: bytes) -> None:
        world, queue = self.consumer.world, self.consumer.queue
        found = body.parse(data)
        if found is None:
            world.record("stray", q=queue, what=repr(data[:80]))
            if not self.consumer.no_ack:
                channel.basic_ack(method.delivery_tag)
            return
        world.delivered += 1
        world.record("deliver", c=self.tag, q=queue, s=found[0], n=found[1], r=method.redelivered)
        if self.consumer.no_ack:
            return
        self.held[method.delivery_tag] = found
        if not self.scheduled:
            self.scheduled = True
            delay = self.consumer.chance.choice((0.0, 0.0, 0.01, 0.1))
            asyncio.get_running_loop().call_later(delay, self._settle)

    def _settle(self) -> None:
        self.scheduled = False
        if not self.channel.is_open or not self.held:
            return
        chance, record = self.consumer.chance, self.consumer.world.record
        held, self.held = self.held, {}
        last = max(held)
        if chance.randrange(REQUEUE_ONE_IN) == 0 and not self.consumer.world.stopping:
            s, n = held.pop(last)
            record("requeue", c=self.tag, s=s, n=n)
            self.channel.basic_nack(last, requeue=True)
        if not held:
            return
        multiple = chance.random() < 0.7
        for s, n in held.values():
            record("ack", c=self.tag, s=s, n=n)
        if multiple:
            self.channel.basic_ack(max(held), multiple=True)
        else:
            for delivery_tag in held:
                self.channel.basic_ack(delivery_tag)


class Getter(Client):
    """Takes messages with basic.get, one at a time."""

    def __init__(self, world: World, name: str, node: int, queue: str) -> None:
        super().__init__(world, name, node)
        self.queue = queue
        self._tag = ""

    async def work(self, connection: AsyncioConnection) -> None:
        """See `Client`."""
        channel = await self.channel(connection)
        self._tag = f"{self.name}.{self.epoch}"
        while not self.world.closing:
            got = asyncio.get_running_loop().create_future()
            channel.add_callback(lambda frame, got=got: _set(got, None), [pika.spec.Basic.GetEmpty])
            channel.basic_get(
                self.queue, lambda ch, method, properties, data, got=got: _set(got, (method, data))
            )
            found = await self.answer(got)
            if found is None:
                await self.pause(0.3)
                continue
            self._take(channel, *found)
            await self.pause(0.02)

    def _take(self, channel: Any, method: Any, data: bytes) -> None:
        world, found = self.world, body.parse(data)
        if found is None:
            world.record("stray", q=self.queue, what=repr(data[:80]))
            return
        world.record(
            "deliver", c=self._tag, q=self.queue, s=found[0], n=found[1], r=method.redelivered
        )
        world.record("ack", c=self._tag, s=found[0], n=found[1])
        channel.basic_ack(method.delivery_tag)

    def left(self) -> None:
        """See `Client`."""
        if self._tag:
            self.world.record("gone", c=self._tag)


class Ephemeral(Client):
    """Declares an exclusive queue, talks to itself through it, leaves; nothing may remain."""

    async def work(self, connection: AsyncioConnection) -> None:
        """See `Client`."""
        channel = await self.channel(connection)
        declared = asyncio.get_running_loop().create_future()
        channel.queue_declare("", exclusive=True, callback=lambda frame: _set(declared, frame))
        queue = (await self.answer(declared)).method.queue
        heard = asyncio.get_running_loop().create_future()
        channel.basic_consume(
            queue, lambda ch, method, properties, data: _set(heard, data), auto_ack=True
        )
        channel.basic_publish("", queue, b"to myself")
        if await self.answer(heard) != b"to myself":
            self.world.record("problem", what=f"{queue}: other bytes came back")
        await self.pause(self.chance.uniform(*EPHEMERAL_S))
