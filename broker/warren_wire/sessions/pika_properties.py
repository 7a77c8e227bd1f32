"""Properties of messages in a process with pika, read and written by the broker's own codec.

Pika's makes whole numbers of floats: 2.5 becomes 2. It cannot read an infinite one or a late date,
nor write back a very large one, and such an error ends a shovel's process with all that is under
way, or the HTTP API's connection, with a message that it had taken for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pika
from pika import spec

from warren_wire.amqp091 import properties as codec
from warren_wire.amqp091.fields import Field
from warren_wire.errors import Refusal

_ALL: Final = frozenset(codec.NAMES)


class MessageProperties(pika.BasicProperties):  # type: ignore[misc]
    """Properties with the values that they came with, whatever those are.

    Headers are plain values, which nothing changes in place; those that are still the same objects
    are written with the types, and within tables and lists the bytes, that they came with. A count
    of x-death has 8 bytes, which a client in Java takes for another class than 4.

    flaw  why the message cannot be passed on; "": it can be
    """

    __slots__ = ("_came", "flaw")  # not among the values that pika compares and prints

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.flaw = ""
        self._came: Mapping[str, Field] = {}

    def decode(self, encoded: bytes, offset: int = 0) -> MessageProperties:
        """Read the flags and the list; never raises, because pika's connection would end by it."""
        try:
            found = codec.select(encoded[offset:], _ALL)
        except Refusal as refusal:
            self.flaw = f"its properties cannot be read: {refusal}"
            return self
        if "headers" in found:
            self._came = dict(found["headers"])
            found["headers"] = {name: each.value for name, each in self._came.items()}
        for name in codec.NAMES:
            setattr(self, name, found.get(name))
        return self

    def encode(self) -> list[bytes]:
        """Return the pieces of the flags and the list."""
        values: dict[str, Any] = {name: getattr(self, name) for name in codec.NAMES}
        if values["headers"]:
            values["headers"] = {
                name: self._as_it_came(name, value) for name, value in values["headers"].items()
            }
        return [codec.encode(codec.Properties(**values))]

    def _as_it_came(self, name: str, value: object) -> object:
        came = self._came.get(name)
        return value if came is None or came.value is not value else came


def install() -> None:
    """Have pika read messages with these, in the whole process."""
    spec.props[pika.BasicProperties.INDEX] = MessageProperties
