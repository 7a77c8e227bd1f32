"""How a relay and the queues at its two ends tell each other the names of messages.

1. A relay consumes with the argument ARGUMENT, its name.  2. Each delivery has the headers ORIGIN
and NUMBER, the message's name (`queue.relays`).  3. The relay publishes it with RELAYED before all
other headers, on a connection with the capability CAPABILITY; the header ends with the connection.
Nodes that do so announce the same capability.  4. A passive declaration of a queue with ARGUMENT
counts what the relay has taken of it, too.

Over AMQP 1.0 the messages stay as they are: names are in the delivery tags. A link of a relay has
the property ARGUMENT: its name where it receives, true where it sends. A tag is three or four
numbers of 64 bits: one of the sender's own, then origin and number, and from a relay the floor.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

CAPABILITY: Final = "warren_relays"
NACKS: Final = "warren_relay_nacks"
"""Capability of AMQP 0.9.1: a nack says that the queue does not have the message, nor will."""
ARGUMENT: Final = "x-relay"
ORIGIN: Final = "x-relay-origin"
NUMBER: Final = "x-relay-number"
RELAYED: Final = "x-relayed"
_NAMES: Final = struct.Struct(">QQQ")
_DELIVERED_TAG: Final = struct.Struct(">QQQ")
_RELAYED_TAG: Final = struct.Struct(">QQQQ")
_FIELD: Final = b"%c%bx%b" % (len(RELAYED), RELAYED.encode(), _NAMES.size.to_bytes(4, "big"))
_FIELD_BYTES: Final = len(_FIELD) + _NAMES.size


class RelayedName(NamedTuple):
    """The name of a message that a relay publishes, and the lowest number not settled."""

    origin: int
    number: int
    floor: int


def packed(name: RelayedName) -> bytes:
    """Return the value of the header RELAYED."""
    return _NAMES.pack(*name)


def delivered_tag(own: int, origin: int, number: int) -> bytes:
    """Return the tag of a delivery to a relay over AMQP 1.0."""
    return _DELIVERED_TAG.pack(own, origin, number)


def name_in_delivered_tag(tag: bytes) -> tuple[int, int]:
    """Return (origin, number) of a delivery to a relay; zeros: it has no name."""
    if len(tag) != _DELIVERED_TAG.size:
        return 0, 0
    _, origin, number = _DELIVERED_TAG.unpack(tag)
    return origin, number


def relayed_tag(own: int, name: RelayedName) -> bytes:
    """Return the tag of a message that a relay publishes over AMQP 1.0."""
    return _RELAYED_TAG.pack(own, *name)


def name_in_relayed_tag(tag: bytes) -> RelayedName | None:
    """Return the name of a message that a relay publishes; None: it has none."""
    if len(tag) != _RELAYED_TAG.size:
        return None
    return RelayedName(*_RELAYED_TAG.unpack(tag)[1:])


def split_name(properties: bytes) -> tuple[bytes, RelayedName | None]:
    """Return well-formed properties without the header RELAYED, and what it says.

    None: it is not the first header, or is of another form; then the properties are unchanged.
    """
    if not properties[0] & 0x20:
        return properties, None
    at = 2
    for bit in (0x80, 0x40):  # content_type, content_encoding come before the headers
        if properties[0] & bit:
            at += 1 + properties[at]
    first = at + 4
    if not properties.startswith(_FIELD, first):
        return properties, None
    end = first + _FIELD_BYTES
    size = int.from_bytes(properties[at:first], "big") - _FIELD_BYTES
    if size < 0:
        return properties, None
    name = RelayedName(*_NAMES.unpack_from(properties, end - _NAMES.size))
    if not size:
        flags = bytes((properties[0] & 0xDF, properties[1]))
        return flags + properties[2:at] + properties[end:], name
    return properties[:at] + size.to_bytes(4, "big") + properties[end:], name
