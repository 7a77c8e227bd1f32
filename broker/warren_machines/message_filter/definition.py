"""A filter as a value: what queues keep, and nodes evaluate.

Its bytes are replicated state: a queue keeps them (`Checkout.filter`), and consumers with equal
ones share a filter. A new field goes to the end, with a default that is true of every message.

https://docs.oasis-open.org/amqp/filtex/v1.0/csd01/filtex-v1.0-csd01.html
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

FIELDS_MAX: Final = 16
"""Fields of one property filter, as in RabbitMQ."""
Match: TypeAlias = Literal["equal", "prefix", "suffix", "any"]


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """What a field must be.

    name    a field of the properties section as in `PROPERTY_NAMES`, or an application property
    match   any: whatever it is (a reference of null)
    value   numbers, truths and texts; for bytes the text of their Latin-1
    binary  the value stands for bytes
    """

    name: str
    match: Match
    value: bool | int | float | str | None = None
    binary: bool = False

    @property
    def given(self) -> bool | int | float | str | bytes | None:
        """The value that it stands for."""
        if self.binary:
            assert isinstance(self.value, str)
            return self.value.encode("latin-1")
        return self.value


class MessageFilter(msgspec.Struct, frozen=True, array_like=True):
    """All of these must be true of a message.

    sql          SQL filter expressions
    properties   of the properties section
    application  of the application properties
    """

    sql: tuple[str, ...] = ()
    properties: tuple[Reference, ...] = ()
    application: tuple[Reference, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sql or self.properties or self.application)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(MessageFilter)


def encode_filter(one: MessageFilter) -> bytes:
    """Return the bytes of a filter, which tell it from others in its queue."""
    return _ENCODER.encode(one)


def decode_filter(data: bytes) -> MessageFilter:
    """Invert `encode_filter`."""
    return _DECODER.decode(data)
