"""An AMQP broker with one queue, as far as a consumer can tell the difference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from warren_wire.amqp091 import properties as wire


@dataclass
class Message:
    """A message; `number` names it, whatever its bytes are."""

    number: int
    body: bytes
    properties: bytes
    deliveries: int = 0


@dataclass
class Channel:
    """A consumer's channel: deliveries that are not acknowledged, by tag."""

    prefetch: int
    open: bool = True
    next_tag: int = 1
    unacked: dict[int, Message] = field(default_factory=dict)
    outbox: list[tuple[int, Message, bool]] = field(default_factory=list)


class FakeBroker:
    """A queue, its channels, and the acknowledgements that a killed node would forget.

    ordered  False: as a priority queue, a new message may overtake others
    counts   a redelivered message says how often it was delivered, as in a quorum queue
    marks    a redelivered message is marked
    """

    def __init__(
        self, random: Random, ordered: bool, counts: bool = False, marks: bool = True
    ) -> None:
        self.random, self.marks = random, marks
        self.ordered, self.counts = ordered, counts
        self.ready: list[Message] = []
        self.channels: list[Channel] = []
        self.acked: list[Message] = []
        self.dead: list[Message] = []
        self.published = 0
        self.forgettable: list[Message] = []

    def publish(self, body: bytes, properties: bytes) -> Message:
        """Put a message into the queue."""
        message = Message(self.published, body, properties)
        self.published += 1
        at = len(self.ready) if self.ordered else self.random.randint(0, len(self.ready))
        self.ready.insert(at, message)
        return message

    def open(self, prefetch: int) -> Channel:
        """Open a channel that consumes."""
        channel = Channel(prefetch)
        self.channels.append(channel)
        return channel

    def deliver(self) -> None:
        """Deliver what the prefetches allow."""
        for channel in self.channels:
            while channel.open and self.ready and len(channel.unacked) < channel.prefetch:
                message = self.ready.pop(0)
                channel.unacked[channel.next_tag] = message
                shown = self._shown(message)
                again = self.marks and message.deliveries > 0
                channel.outbox.append((channel.next_tag, shown, again))
                message.deliveries += 1
                channel.next_tag += 1

    def _shown(self, message: Message) -> Message:
        """Return the message as it is delivered."""
        if not self.counts or not message.deliveries:
            return message
        headers = wire.decode(message.properties).headers or {}
        headers = {**headers, "x-acquired-count": message.deliveries}
        return replace(message, properties=wire.replace(message.properties, headers=headers))

    def ack(self, channel: Channel, tag: int) -> Message | None:
        """Acknowledge one delivery; on a closed channel it is not heard."""
        if not channel.open:
            return None
        message = channel.unacked.pop(tag, None)
        if message is not None:
            self.acked.append(message)
            self.forgettable = [*self.forgettable, message][-channel.prefetch :]
        return message

    def nack(self, channel: Channel, tag: int, requeue: bool) -> None:
        """Return one delivery to the queue's head, or dead-letter it."""
        message = channel.unacked.pop(tag, None) if channel.open else None
        if message is not None and requeue:
            self.ready.insert(0, message)
        elif message is not None:
            self.dead.append(message)

    def close(self, channel: Channel) -> None:
        """End a channel: what it had is in the queue again, at its head."""
        channel.open = False
        self.channels.remove(channel)
        self._requeue(channel)

    def look(self, count: int) -> None:
        """Another client gets the first messages and returns them, as a management page does."""
        for message in self.ready[:count]:
            message.deliveries += 1

    def return_silently(self, channel: Channel) -> None:
        """The consumer's node was unreachable: its messages come again on the same channel."""
        self._requeue(channel)

    def _requeue(self, channel: Channel) -> None:
        self.ready[:0] = channel.unacked.values()
        channel.unacked.clear()

    def crash(self) -> None:
        """Kill the node: channels end, and its last acknowledgements were not on disk."""
        for channel in list(self.channels):
            self.close(channel)
        self.ready[:0] = self.forgettable
        self.forgettable = []

    def held(self) -> int:
        """How many messages are not acknowledged."""
        return len(self.ready) + sum(len(channel.unacked) for channel in self.channels)
