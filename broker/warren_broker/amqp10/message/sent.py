"""A stored message as it is sent to an AMQP 1.0 client."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeAlias

from warren_broker.block.layout import FORM_AMQP091, Buffer
from warren_broker.kernel import is_body, write_sections
from warren_broker.kernel.section_types import ENCODED_TYPE

Annotation: TypeAlias = bool | int | str | bytes
"""true or false, a long of 64 bits, a string, or a binary."""

_SIZED = struct.Struct(">BI")
_LONG = struct.Struct(">Bq")
_NONE: dict[bytes, bytes] = {}


def encode_message(
    form: int,
    properties: Buffer,
    body: Buffer,
    *,
    exchange: bytes,
    routing_key: bytes,
    priority: int | None = None,
    ttl_ms: int | None = None,
    first_acquirer: bool = True,
    delivery_count: int = 0,
    annotations: Mapping[str, Annotation] | None = None,
) -> list[Buffer]:
    """Encode a stored message: its sections, of which the body is not copied.

    exchange, routing_key  for the annotations x-exchange and x-routing-key
    priority, ttl_ms       for the header; None: as the message was published
    delivery_count         unsuccessful deliveries before this one, as the header counts them
    annotations            set by the broker, instead of those of the message with their names
    """
    assert form == FORM_AMQP091, form
    raw = bytes(properties)
    encoded = ENCODED_TYPE in raw and is_body(memoryview(body))
    head = write_sections(
        raw,
        len(body),
        exchange,
        routing_key,
        -1 if priority is None else priority,
        -1 if ttl_ms is None else ttl_ms,
        first_acquirer,
        delivery_count,
        {name.encode("ascii"): _encoded(value) for name, value in annotations.items()}
        if annotations
        else _NONE,
        encoded,
    )
    return [head, body] if len(body) else [head]


def _encoded(value: Annotation) -> bytes:
    if isinstance(value, bool):
        return b"\x41" if value else b"\x42"
    if isinstance(value, int):
        return _LONG.pack(0x81, value)
    code, raw = (0xB1, value.encode()) if isinstance(value, str) else (0xB0, value)
    return _SIZED.pack(code, len(raw)) + raw
