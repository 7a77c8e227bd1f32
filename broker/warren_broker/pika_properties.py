"""Properties of messages in a process with pika, read and written by the broker's own codec.

Pika's makes whole numbers of floats: 2.5 becomes 2. It cannot read an infinite one or a late date,
nor write back a very large one, and such an error ends a shovel's process with all that is under
way, or the HTTP API's connection, with a message that it had taken for good.
"""

from __future__ import annotations

from typing import Any

import pika
from pika import spec

from warren_broker.amqp091.wire import properties as codec
from warren_broker.errors import Refusal


class MessageProperties(pika.BasicProperties):  # type: ignore[misc]
    """Properties with the values that they came with, whatever those are.

    flaw  why the message cannot be passed on; "": it can be
    """

    flaw = ""

    def decode(self, encoded: bytes, offset: int = 0) -> MessageProperties:
        """Read the flags and the list; never raises, because pika's connection would end by it."""
        try:
            found = codec.decode(encoded[offset:])
        except Refusal as refusal:
            self.flaw = f"its properties cannot be read: {refusal}"
            return self
        for name in codec.NAMES:
            setattr(self, name, getattr(found, name))
        return self

    def encode(self) -> list[bytes]:
        """Return the pieces of the flags and the list."""
        values: dict[str, Any] = {name: getattr(self, name) for name in codec.NAMES}
        return [codec.encode(codec.Properties(**values))]


def install() -> None:
    """Have pika read messages with these, in the whole process."""
    spec.props[pika.BasicProperties.INDEX] = MessageProperties
