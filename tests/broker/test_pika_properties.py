"""A process with pika reads and writes properties without changing a value, or its type."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pytest

from warren_broker.transfers.shovel.received import Received091, Received10
from warren_wire.amqp091 import properties as codec
from warren_wire.amqp091.fields import Field, Timestamp
from warren_wire.kernel.section_types import MalformedSections
from warren_wire.sessions.pika_properties import MessageProperties

LATE = Timestamp((1 << 64) - 1)
"""Seconds of a date that neither Python nor pika has."""


def through(headers: dict[str, Any], **more: Any) -> codec.Properties:
    raw = codec.encode(codec.Properties(headers=headers, **more))
    return codec.decode(b"".join(MessageProperties().decode(b"ab" + raw, 2).encode()))


def test_values_stay_what_they_are() -> None:
    headers = {
        "half": 2.5,
        "large": 1e300,
        "infinite": math.inf,
        "late": LATE,
        "price": Decimal("-12.50"),
        "bytes": b"\xff",
        "list": [0.5, {"deep": 1.25}, None, True, -(1 << 63)],
        "\udcff": "name",
    }
    found = through(headers, timestamp=int(LATE), message_id="\udcff", priority=255)
    assert found.headers == headers and isinstance(headers["late"], Timestamp)
    assert (found.timestamp, found.message_id, found.priority) == (int(LATE), "\udcff", 255)
    none = through({"nan": math.nan}).headers
    assert none is not None and math.isnan(none["nan"])
    assert codec.decode(b"".join(MessageProperties().decode(b"\0\0").encode())) == (
        codec.Properties()
    )


def test_what_cannot_be_read_is_a_message_that_cannot_be_passed_on() -> None:
    properties = MessageProperties().decode(b"\x20\x00\x00\x00\x00\x05\x01kZ\x00\x00")
    received = Received091(1, "", "q", False, properties, b"body")
    for convert in (received.as_091, received.as_10):
        with pytest.raises(MalformedSections, match="unknown field type 'Z'"):
            convert()


def test_a_message_over_amqp_10_with_a_large_number_is_converted() -> None:
    number = struct.pack(">d", 1e300)
    entries = b"\xa1\x01k\x82" + number
    data = b"\x00\x53\x74\xc1" + bytes((1 + len(entries), 2)) + entries + b"\x00\x53\x75\xa0\x01b"
    plain = Received10(1, data).as_091()
    assert codec.decode(b"".join(plain.properties.encode())).headers == {"k": 1e300}


def test_types_of_headers_stay_what_they_are() -> None:
    """Before: a count of x-death came out of a shovel with 4 bytes, another class in Java."""
    death = {"count": Field("l", 1), "queue": "q"}
    headers = {
        "x-death": [death],
        "byte": Field("b", -1),
        "short": Field("u", 1),
        "long": Field("l", 1),
        "float": Field("f", 0.5),
        "deep": {"list": [Field("s", 1), {"l": Field("l", 2)}]},
    }
    raw = codec.encode(codec.Properties(headers=headers, message_id="id"))
    assert b"".join(MessageProperties().decode(raw).encode()) == raw
    changed = MessageProperties().decode(raw)
    changed.headers = {**changed.headers, "long": 7, "new": 1}
    del changed.headers["short"]
    expected = {**headers, "long": 7, "new": 1}
    del expected["short"]
    assert b"".join(changed.encode()) == codec.encode(
        codec.Properties(headers=expected, message_id="id")
    )
