"""A thread that publishes the flights with pika and publisher confirms.

It is a client of any AMQP 0.9.1 broker: of Warren's it has but `IOServices`, which keeps pika's
loop from ending when a node that stops resets a new connection.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pika
from data import Flight

from warren_wire.sessions.pika_connections import IOServices

WINDOW = 2000
"""Limit of unconfirmed messages."""
BURST = 200
"""Messages published before the connection's events are processed again."""
QUEUE = "flights"


class Publisher(threading.Thread):
    """A publisher of a list of flights, each once.

    A message with an outstanding confirm when the connection is lost may be in the queue or not.
    Publishing it again may duplicate it, not publishing it may lose it: AMQP 0.9.1 offers no other
    choice. So it is published again and counted in `in_doubt`. Before a caller stops this
    publisher's node, it calls `move`, which waits for all confirms and reconnects to another node.

    confirmed   number of messages that the broker has confirmed
    in_doubt    number of messages published again because their outcome was not known
    failure     why the thread has ended early; None: it has not
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        flights: Sequence[Flight],
        user: str = "guest",
        password: str = "guest",
    ) -> None:
        super().__init__(name="publisher", daemon=True)
        self.addresses = list(addresses)
        self.flights = flights
        self.confirmed = 0
        self.in_doubt = 0
        self.failure: BaseException | None = None
        self.address = self.addresses[0]
        self._credentials = pika.PlainCredentials(user, password)
        self._next = 0
        self._again: list[int] = []
        self._pending: OrderedDict[int, int] = OrderedDict()  # delivery tag to flight
        self._tag = 0
        self._go_to: tuple[str, int] | None = None
        self._moved = threading.Event()
        self._connection: Any = None
        self._channel: Any = None

    @property
    def done(self) -> bool:
        """Whether everything is confirmed."""
        return self.confirmed == len(self.flights)

    def move(self, address: tuple[str, int], timeout_s: float = 60) -> bool:
        """Wait for all confirms, then continue at that address; return whether that was in time."""
        if self.done or not self.is_alive():
            return True
        self._moved.clear()
        self._go_to = address
        return self._moved.wait(timeout_s)

    # -------------------------------------------------------------- the thread

    def run(self) -> None:
        """Run until everything is confirmed."""
        try:
            while not self.done:
                self._connect()
                self._connection.ioloop.start()
                self._lost()
        except BaseException as wrong:
            self.failure = wrong
            raise
        finally:
            self._moved.set()

    def _connect(self) -> None:
        parameters = pika.ConnectionParameters(
            host=self.address[0],
            port=self.address[1],
            credentials=self._credentials,
            heartbeat=30,
            connection_attempts=1,
            socket_timeout=5,
        )
        self._tag = 0
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=self._opened,
            on_open_error_callback=lambda connection, wrong: self._next_address(),
            on_close_callback=lambda connection, reason: connection.ioloop.stop(),
            custom_ioloop=IOServices(),
        )

    def _next_address(self) -> None:
        at = self.addresses.index(self.address)
        self.address = self.addresses[(at + 1) % len(self.addresses)]
        self._connection.ioloop.call_later(0.2, self._connection.ioloop.stop)

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_open)

    def _channel_open(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        channel.confirm_delivery(
            self._confirm,
            callback=lambda _: channel.queue_declare(
                QUEUE,
                durable=True,
                arguments={"x-queue-type": "quorum"},
                callback=lambda _: self._pump(),
            ),
        )

    def _channel_closed(self, channel: Any, reason: Any) -> None:
        if self._connection.is_open:
            self._connection.close()

    def _confirm(self, frame: Any) -> None:
        method = frame.method
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self._pending if tag <= method.delivery_tag]
        for tag in tags:
            number = self._pending.pop(tag)
            if isinstance(method, pika.spec.Basic.Nack):
                self._again.append(number)
            else:
                self.confirmed += 1

    def _pump(self) -> None:
        """Publish a burst if the window has room, and schedule the next one."""
        if self.done or (self._go_to is not None and not self._pending):
            self._leave()
            return
        room = WINDOW - len(self._pending) if self._go_to is None else 0
        for _ in range(min(room, BURST)):
            if self._again:
                self._publish(self._again.pop())
            elif self._next < len(self.flights):
                self._publish(self._next)
                self._next += 1
            else:
                break
        idle = not room or (self._next == len(self.flights) and not self._again)
        self._connection.ioloop.call_later(0.005 if idle else 0, self._pump)

    def _publish(self, number: int) -> None:
        flight = self.flights[number]
        self._tag += 1
        self._pending[self._tag] = number
        self._channel.basic_publish(
            "",
            QUEUE,
            flight.body,
            pika.BasicProperties(
                delivery_mode=2,
                priority=flight.priority,
                message_id=str(flight.number),
                content_type="application/json",
            ),
        )

    def _leave(self) -> None:
        if self._go_to is not None:
            self.address, self._go_to = self._go_to, None
            self._moved.set()
        if self._connection.is_open:
            self._connection.close()

    def _lost(self) -> None:
        """Handle the end of the connection, with or without outstanding confirms."""
        if self._pending:
            self.in_doubt += len(self._pending)
            self._again += list(self._pending.values())
            self._pending.clear()
            at = self.addresses.index(self.address)
            self.address = self.addresses[(at + 1) % len(self.addresses)]
