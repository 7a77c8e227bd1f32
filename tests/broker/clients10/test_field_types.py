"""Every field of every frame as null, and as a value of each other type: no fault of the node.

A link name of null ended in a TypeError: it was a fault of the node, with a traceback, and not the
client's error.
"""

from __future__ import annotations

import struct

import pytest

from tests.broker.clients10.stream_fuzz import FRAMES, LOGIN, carry_out
from tests.broker.clients10.test_connection import new, output
from tests.broker.clients10.test_endings import frame
from warren_broker.clients10.connection import Connection10

NULL = b"\x40"
TRUE, FALSE = b"\x41", b"\x42"
SOURCE = b"\x00\x53\x28\xc0\x0c\x01\xa1\x09/queues/q"
TARGET = b"\x00\x53\x29\xc0\x0c\x01\xa1\x09/queues/q"
VALUES = {
    "null": NULL,
    "true": TRUE,
    "ubyte": b"\x50\x07",
    "uint": b"\x70\xff\xff\xff\xff",
    "ulong": b"\x80" + b"\xff" * 8,
    "long": b"\x81" + b"\xff" * 8,
    "double": b"\x82\x7f\xf8\0\0\0\0\0\0",
    "text": b"\xa1\x01x",
    "no text": b"\xa1\x02\xc3\x28",
    "empty text": b"\xa1\x00",
    "symbol": b"\xa3\x01x",
    "binary": b"\xa0\x02\xff\x00",
    "list": b"\x45",
    "map": b"\xc1\x01\x00",
    "map of a list": b"\xc1\x04\x02\x45\xa1\x00",
    "array": b"\xf0\x00\x00\x00\x06\x00\x00\x00\x01\xa3\x00",
    "timestamp": b"\x83" + b"\x80" + b"\0" * 7,
    "described": b"\x00\x53\x28\x45",
    "described by a text": b"\x00\xa1\x01x\x45",
    "terminus of a null address": b"\x00\x53\x29\xc0\x02\x01\x40",
    "terminus of a numbered address": b"\x00\x53\x29\xc0\x03\x01\x52\x07",
}
UINT0, UINT1 = b"\x43", b"\x52\x01"
PERFORMATIVES: dict[str, tuple[int, list[bytes]]] = {
    "open": (
        0x10,
        [b"\xa1\x01c", b"\xa1\x01h", b"\x70\0\1\0\0", b"\x60\x00\xff", NULL, NULL, NULL]
        + [NULL, NULL, b"\xc1\x01\x00"],
    ),
    "begin": (0x11, [NULL, UINT0, b"\x70\0\0\xff\xff", b"\x52\x7f", b"\x52\x0f", NULL, NULL, NULL]),
    "attach": (
        0x12,
        [b"\xa1\x01n", UINT1, FALSE, b"\x50\x02", b"\x50\x00", SOURCE, TARGET, NULL, NULL, UINT0]
        + [NULL, NULL, NULL, b"\xc1\x01\x00"],
    ),
    "receiver": (
        0x12,
        [b"\xa1\x01r", b"\x52\x02", TRUE, b"\x50\x02", b"\x50\x00", SOURCE, TARGET, NULL, NULL]
        + [NULL, NULL, NULL, NULL, NULL],
    ),
    "flow": (
        0x13,
        [UINT0, b"\x70\0\0\xff\xff", UINT0, b"\x70\0\0\xff\xff", UINT1, UINT0, b"\x52\x0a"]
        + [NULL, FALSE, FALSE, NULL],
    ),
    "transfer": (
        0x14,
        [UINT1, UINT0, b"\xa0\x01t", UINT0, FALSE, FALSE, NULL, NULL, FALSE, FALSE, FALSE],
    ),
    "disposition": (0x15, [TRUE, UINT0, UINT0, TRUE, b"\x00\x53\x24\x45", FALSE]),
    "detach": (0x16, [UINT1, TRUE, NULL]),
    "end": (0x17, [NULL]),
    "close": (0x18, [NULL]),
}
ORDER = ("begin", "attach", "receiver", "flow", "transfer", "disposition", "detach", "end", "close")


def performative(name: str, fields: list[bytes] | None = None) -> bytes:
    """A frame with these fields, by default those of a client that does everything right."""
    code, right = PERFORMATIVES[name]
    given = right if fields is None else fields
    data = b"".join(given)
    body = b"\x00\x53" + bytes([code]) + b"\xd0" + struct.pack(">II", len(data) + 4, len(given))
    payload = b"\x00\x53\x75\xa0\x01m" if name == "transfer" else b""
    return frame(body + data + payload)


def logged_in() -> Connection10:
    """A connection with a login, and no Open."""
    connection = new()
    for each in FRAMES[:LOGIN]:
        connection.receive(each)
        carry_out(connection)
    return connection


def played(changed: str, fields: list[bytes], *, at_once: bool = False) -> Connection10:
    """A connection that was sent everything, with one frame's fields changed.

    at_once  without waiting for answers: a frame that is refused has the others behind it
    """
    connection = logged_in()
    frames = [performative(name, fields if name == changed else None) for name in ("open", *ORDER)]
    for each in [b"".join(frames)] if at_once else frames:
        if connection.done:
            break
        connection.receive(each)
        carry_out(connection)
        output(connection)
    connection.end_of_input()
    carry_out(connection)
    connection.free()
    return connection


@pytest.mark.parametrize("name", PERFORMATIVES)
def test_a_field_of_any_type_is_no_fault_of_the_node(name: str) -> None:
    right = PERFORMATIVES[name][1]
    assert played("none", []).failure in ("", "the client closed the connection")
    for at in range(len(right)):
        for kind, value in VALUES.items():
            fields = [*right[:at], value, *right[at + 1 :]]
            try:
                played(name, fields)
                played(name, fields, at_once=True)
            except Exception as error:
                raise AssertionError(f"{name}, field {at} is {kind}") from error
    for count in range(len(right)):
        played(name, right[:count])


@pytest.mark.parametrize("name", ["attach", "receiver"])
@pytest.mark.parametrize("value", ["null", "ubyte", "list", "binary"])
def test_a_link_without_a_name_ends_the_connection_with_a_text(name: str, value: str) -> None:
    right = PERFORMATIVES[name][1]
    assert "name" in played(name, [VALUES[value], *right[1:]]).failure
