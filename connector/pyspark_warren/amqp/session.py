"""One connection that consumes a queue: pika keeps it, the kernel reads the deliveries.

A session is one consumer on one channel of one connection of its own. It ends once, with a reason,
whatever went wrong first; the next one begins with delivery tag 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import pika
from pika import exceptions, spec
from pika.adapters.utils import io_services_utils

from pyspark_warren.amqp.connection import is_no_queue, named
from pyspark_warren.amqp.renewing import forget_refused, keep_renewed
from pyspark_warren.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    UnsupportedError,
    WarrenSparkError,
)
from warren_wire.kernel import Deliveries, DeliveryMalformed, DeliveryScanner
from warren_wire.sessions.pika_connections import IOServices

CHANNEL: Final = 1
RECEIVED_FRAME_BYTES_MAX: Final = 131_072
RECEIVED_BODY_BYTES_MAX: Final = 512 << 20
"""The largest body that any broker sends: the highest limit that RabbitMQ can be given."""
_RECEIVE_BYTES: Final = 256 << 10
_PRIORITY: Final = {"x-priority": 0}
"""A consumer's priority when it gives none. RabbitMQ refuses the argument, whatever its value, for
a stream, and says so before anything is delivered: streams have no priorities. Without it a stream
would be read from its end, and its acknowledgements would mean nothing."""
_RABBITMQ: Final = "RabbitMQ"
_NO_PRIORITY: Final = "invalid arg 'x-priority'"


def receive_in_large_pieces() -> None:
    """Let pika read more than 4 KiB from a socket at once, in this process."""
    base: Any = getattr(io_services_utils, "_AsyncTransportBase", None)
    if hasattr(base, "_MAX_RECV_BYTES"):
        base._MAX_RECV_BYTES = _RECEIVE_BYTES


ENDS_LIKEWISE: Final = (BrokerRefusedError, UnsupportedError)
"""Ends of a session that trying again does not change."""


class KernelConnection(pika.SelectConnection):
    """A connection of pika that gives the frames of deliveries to the kernel."""

    def __init__(self, on_deliveries: Callable[[], None], **more: object) -> None:
        self.scanner = DeliveryScanner(CHANNEL, RECEIVED_FRAME_BYTES_MAX, RECEIVED_BODY_BYTES_MAX)
        self._on_deliveries = on_deliveries
        super().__init__(**more)

    def _on_data_available(self, data_in: bytes) -> None:
        try:
            other = self.scanner.feed(data_in)
        except DeliveryMalformed as wrong:
            self._terminate_stream(exceptions.ConnectionWrongStateError(f"it sent {wrong}"))
            return
        # Received deliveries count for pika's heartbeats like everything else.
        self.bytes_received += len(data_in) - len(other)
        if other:
            super()._on_data_available(other)
        if self.scanner.filled.count:
            self._on_deliveries()


class SessionEvents(Protocol):
    """What a session reports; nothing follows `ended`."""

    def began(self, messages: int, consumers: int) -> None:
        """The consumer is there; the queue had that many ready messages and consumers before."""

    def received(self) -> None:
        """`Session.filled` has messages."""

    def ended(self, why: WarrenSparkError | None) -> None:
        """It is over: None after `close`, one of ENDS_LIKEWISE where another would, too."""


class Session:
    """A consumer, from its connection's first byte to its end.

    doing      such as "reading queue 'flights'", for errors
    arguments  of the consumer
    tag        the consumer's; "": the library draws one
    """

    def __init__(
        self,
        loop: object,
        parameters: pika.ConnectionParameters,
        queue: str,
        prefetch: int,
        doing: str,
        events: SessionEvents,
        arguments: Mapping[str, object] = _PRIORITY,
        tag: str = "",
    ) -> None:
        self._queue, self._prefetch, self._events = queue, prefetch, events
        self._arguments, self._tag = dict(arguments), tag
        self._login = parameters.credentials
        self._at = f"{parameters.host}:{parameters.port}"
        self._doing = doing
        self._why: WarrenSparkError | None = None
        self._closing = False
        self._over = False
        self._channel: Any = None
        self._probes: list[Callable[[int, int], None]] = []
        self._probe_channel: Any = None
        self.consuming = False
        self._connection = KernelConnection(
            events.received,
            parameters=parameters,
            on_open_callback=self._opened,
            on_open_error_callback=self._not_opened,
            on_close_callback=self._closed,
            custom_ioloop=IOServices(loop),
        )

    @property
    def filled(self) -> Deliveries:
        """The messages received since the last `take`."""
        filled: Deliveries = self._connection.scanner.filled
        return filled

    @property
    def counts_returns(self) -> bool:
        """Whether a message that comes to this session again has a higher delivery count.

        RabbitMQ's quorum queues count each return. Its classic queues do not, and deliver again
        only what belonged to a session that has ended; before 4.0, however, mirrored ones did so on
        the same channel when another mirror took over. What other brokers do is not known.
        """
        said: Mapping[str, Any] = self._connection.server_properties or {}
        major = str(said.get("version", "")).partition(".")[0]
        return said.get("product") == _RABBITMQ and major.isdecimal() and int(major) >= 4

    marks_returns = True
    """Whether a message that comes again is marked."""
    unsure = ()
    """Identities of messages without an id of which it is not known that the broker has the
    acknowledgement, where what comes again is not marked."""

    def take(self) -> Deliveries:
        """Return the complete messages received since the last call."""
        taken: Deliveries = self._connection.scanner.take()
        return taken

    def ack(self, tag: int, multiple: bool) -> None:
        """Acknowledge; nothing happens when the session is over: the broker delivers it again."""
        if self.consuming and self._channel.is_open:
            self._channel.basic_ack(tag, multiple)

    def nack(self, tag: int, requeue: bool) -> None:
        """Return one delivery, or have it dead-lettered; nothing happens as in `ack`."""
        if self.consuming and self._channel.is_open:
            self._channel.basic_nack(tag, False, requeue)

    def probe(self, answer: Callable[[int, int], None]) -> None:
        """Ask for the queue's ready messages and consumers; no answer when the session ends."""
        if not self.consuming:
            return
        self._probes.append(answer)
        if len(self._probes) == 1:
            self._next_probe()

    def mark(self, answer: Callable[[int], None]) -> None:
        """Ask for the queue's messages on the consumer's channel: after what is sent before."""
        if self.consuming and self._channel.is_open:
            self._channel.queue_declare(
                self._queue,
                passive=True,
                callback=lambda frame: answer(frame.method.message_count),
            )

    def close(self) -> None:
        """End it; acknowledgements leave before."""
        self._closing = True
        if not (self._connection.is_closing or self._connection.is_closed):
            self._connection.close()

    # -------------------------------------------------------------- from connection to consumer

    def _opened(self, connection: Any) -> None:
        if self._closing:
            self._connection.close()
        else:
            keep_renewed(connection)
            connection.channel(CHANNEL, on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_cancel_callback(self._cancelled)
        channel.queue_declare(self._queue, passive=True, callback=self._declared)

    def _declared(self, frame: Any) -> None:
        messages, consumers = frame.method.message_count, frame.method.consumer_count

        def consuming(_: object) -> None:
            self.consuming = True
            self._events.began(messages, consumers)

        def limited(_: object) -> None:
            self._channel.basic_consume(
                self._queue,
                _not_called,
                consumer_tag=self._tag or None,
                arguments=self._arguments,
                callback=consuming,
            )

        self._channel.basic_qos(prefetch_count=self._prefetch, callback=limited)

    def _next_probe(self) -> None:
        if self._probe_channel is None:
            self._connection.channel(CHANNEL + 1, on_open_callback=self._probe_opened)
        else:
            self._probe_channel.queue_declare(self._queue, passive=True, callback=self._probed)

    def _probe_opened(self, channel: Any) -> None:
        self._probe_channel = channel
        channel.add_on_close_callback(self._channel_closed)
        self._next_probe()

    def _probed(self, frame: Any) -> None:
        answer = self._probes.pop(0)
        if self._probes:
            self._next_probe()
        answer(frame.method.message_count, frame.method.consumer_count)

    # -------------------------------------------------------------- the end

    def _cancelled(self, _: object) -> None:
        self._fail(
            BrokerUnavailableError(
                f"{self._doing}: {self._at} cancelled the consumer: the queue was deleted, or has "
                "lost its node"
            )
        )

    def _channel_closed(self, channel: object, wrong: Exception) -> None:
        if not self._closing and self._connection.is_open:
            self._fail(self._named(wrong))

    def _named(self, wrong: Exception) -> WarrenSparkError:
        text = str(wrong)
        if isinstance(wrong, exceptions.ChannelClosedByBroker):
            text = f"{self._at} answers {wrong.reply_code} {wrong.reply_text}"
            if is_no_queue(wrong):
                return BrokerRefusedError(f"{self._doing}: {text}; declare the queue first")
            if wrong.reply_code == spec.PRECONDITION_FAILED and _NO_PRIORITY in text:
                return UnsupportedError(
                    f"{self._doing}: it is a stream (x-queue-type: stream), which has offsets and "
                    "keeps its messages; give startingOffset, such as first, and leave out what is "
                    f"for queues (spoolLocation, ackMode, prefetch, receivers). {text}"
                )
            if wrong.reply_code == spec.PRECONDITION_FAILED and self.consuming:
                return BrokerUnavailableError(
                    f"{self._doing}: {text}. With ackMode=spool messages are acknowledged as soon "
                    "as they are in the spool"
                )
            if wrong.reply_code == spec.NOT_FOUND:
                return BrokerUnavailableError(f"{self._doing}: {text}")
        return named(wrong, self._doing, self._at)

    def _fail(self, why: WarrenSparkError) -> None:
        self._why = self._why or why
        if self._connection.is_open:
            self._connection.close()

    def _not_opened(self, _: Any, wrong: Any) -> None:
        why = named(wrong, self._doing, self._at)
        if isinstance(why, BrokerRefusedError):
            forget_refused(self._login)
        self._end(why)

    def _closed(self, _: object, wrong: Exception) -> None:
        self._end(None if self._closing and self._why is None else self._why or self._named(wrong))

    def _end(self, why: WarrenSparkError | None) -> None:
        if not self._over:
            self._over, self.consuming = True, False
            self._events.ended(why)


def _not_called(*_: object) -> None:
    """The consumer's callback in pika, which sees no delivery."""
    raise AssertionError("a delivery reached pika")
