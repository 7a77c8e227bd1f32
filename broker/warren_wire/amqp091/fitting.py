"""Shortening of properties so that they fit into a client's frames.

A content header is one frame; AMQP 0.9.1 has no way to split it. Broker and client agree on the
size of the largest frame, each connection for itself, so a message that one client could publish
may be too large for another one. The headers that the broker adds grow: `x-death` has an entry for
each queue and reason. Its oldest entries are removed first; the publisher's data stays complete.
"""

from __future__ import annotations

from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import FieldReader

HEADER_FRAME_BYTES = 20
"""Bytes of a content header's frame beside the properties."""
_ARRAY = ord("A")
_DEATHS = b"x-death"

Span = tuple[int, int]


def fit(data: bytes, bytes_max: int) -> bytes | None:
    """Return well-formed properties of at most `bytes_max` bytes; None: that is impossible."""
    fitted = shortened(data, bytes_max, 0)
    return fitted if len(fitted) <= bytes_max else None


def shortened(data: bytes, bytes_max: int, deaths_min: int) -> bytes:
    """Return well-formed properties without as many oldest deaths as `bytes_max` requires.

    `x-death` has the newest death first. What stays is unchanged, byte for byte.
    deaths_min  number of the newest that stay even if the properties are too long with them
    """
    surplus = len(data) - bytes_max
    span = properties.spans(data).get("headers") if surplus > 0 else None
    if span is None:
        return data
    headers, end = span
    deaths = _deaths(data, headers, end)
    if deaths is None:
        return data
    (entry, value, last), elements = deaths
    while surplus > 0 and len(elements) > deaths_min:
        start, stop = elements.pop()
        surplus -= stop - start
    if elements:
        start = elements[0][0]
        kept = data[start : elements[-1][1]]
        header = data[entry:value] + b"A" + len(kept).to_bytes(4, "big") + kept
    else:
        header = b""
    table = data[headers + 4 : entry] + header + data[last:end]
    return data[:headers] + len(table).to_bytes(4, "big") + table + data[end:]


def _deaths(data: bytes, start: int, end: int) -> tuple[tuple[int, int, int], list[Span]] | None:
    """Return (start of the entry, its value, its end) of x-death, and its elements."""
    reader = FieldReader(data, start + 4, end)
    while reader.position < end:
        entry = reader.position
        name = reader.take(reader.unsigned(1))
        value = reader.position
        reader.field()
        if name == _DEATHS and data[value] == _ARRAY:
            inner, elements = FieldReader(data, value + 5, reader.position), []
            while inner.position < inner.end:
                before = inner.position
                inner.field(1)
                elements.append((before, inner.position))
            return (entry, value, reader.position), elements
    return None
