"""A dead letter's history as an AMQP 1.0 message annotation."""

from __future__ import annotations

import struct
from typing import Any

from warren_wire.amqp091.fields import FieldReader
from warren_wire.kernel.properties import expiration_ms

_ARRAY = struct.Struct(">BIIB")
_SIZES = struct.Struct(">II")
_LONG = struct.Struct(">Bq")
_ULONG = struct.Struct(">BQ")
_UINT = struct.Struct(">BI")
_MAP32, _ARRAY32, _STRING32 = 0xD1, 0xF0, 0xB1


def encode_deaths(array: bytes) -> bytes | None:
    """Convert the value of the header x-death to that of the annotation x-opt-deaths.

    An array of maps: queue, reason, count, first-time, last-time, exchange, routing-keys, and ttl
    where the message had one. The header has one time for each; it stands for both.

    array    a field, type octet first, well formed
    returns  None: an entry is not one that a broker makes
    """
    deaths = FieldReader(array).field().value
    maps = []
    for death in deaths:
        encoded = _death(death) if isinstance(death, dict) else None
        if encoded is None:
            return None
        maps.append(encoded)
    content = b"".join(maps)
    return _ARRAY.pack(_ARRAY32, len(content) + 5, len(maps), _MAP32) + content


def _death(death: dict[str, Any]) -> bytes | None:
    """Encode one entry: size, count and content of a map."""
    strings = [death.get(name) for name in ("queue", "reason", "exchange")]
    count, time, keys = death.get("count"), death.get("time"), death.get("routing-keys")
    if not (isinstance(count, int) and isinstance(time, int) and isinstance(keys, list)):
        return None
    if not all(isinstance(text, str) for text in strings + keys):
        return None
    if not (0 <= count < 1 << 63 and 0 <= time < 1 << 53):
        return None
    queue, reason, exchange = strings
    moment = _LONG.pack(0x83, time * 1000)
    pairs = [("queue", _string(queue)), ("reason", _symbol(str(reason)))]
    pairs += [("count", _ULONG.pack(0x80, count)), ("first-time", moment), ("last-time", moment)]
    pairs += [("exchange", _string(exchange)), ("routing-keys", _strings(keys))]
    said = str(death.get("original-expiration", ""))
    ttl_ms = expiration_ms(said.encode("utf-8", "surrogateescape"))
    if ttl_ms >= 0:
        pairs.insert(0, ("ttl", _UINT.pack(0x70, ttl_ms)))
    content = b"".join(_symbol(name) + value for name, value in pairs)
    return _SIZES.pack(len(content) + 4, 2 * len(pairs)) + content


def _sized(code: int, raw: bytes) -> bytes:
    if len(raw) <= 255:
        return bytes((code, len(raw))) + raw
    return bytes((code + 0x10,)) + len(raw).to_bytes(4, "big") + raw


def _string(text: Any) -> bytes:
    return _sized(0xA1, str(text).encode("utf-8", "replace"))


def _symbol(text: str) -> bytes:
    return _sized(0xA3, text.encode("ascii", "replace"))


def _strings(texts: list[str]) -> bytes:
    raw = [text.encode("utf-8", "replace") for text in texts]
    content = b"".join(len(one).to_bytes(4, "big") + one for one in raw)
    return _ARRAY.pack(_ARRAY32, len(content) + 5, len(raw), _STRING32) + content
