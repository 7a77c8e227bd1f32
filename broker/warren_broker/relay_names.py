"""How a relay and the queues at its two ends tell each other the names of messages.

1. A relay consumes with the argument ARGUMENT, its name.  2. Each delivery has the headers ORIGIN
and NUMBER, the message's name (`queue.relays`).  3. The relay publishes it with RELAYED before all
other headers, on a connection with the capability CAPABILITY; the header ends with the connection.
Nodes that do so announce the same capability.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

CAPABILITY: Final = "warren_relays"
ARGUMENT: Final = "x-relay"
ORIGIN: Final = "x-relay-origin"
NUMBER: Final = "x-relay-number"
RELAYED: Final = "x-relayed"
_NAMES: Final = struct.Struct(">QQQ")
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
