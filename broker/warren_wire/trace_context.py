"""W3C Trace Context as messages carry it: the header, or application property, `traceparent`.

The value has 55 characters: version, trace-id, parent-id and flags, in hexadecimal digits. What is
malformed, or of another length, is no context. `tracestate` stays in the message, and is not read.
source: W3C Trace Context, 3.2; AMQP 0.9.1 field tables; AMQP 1.0, 1.6 (strings)
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from warren_wire.block.layout import Buffer

TRACE_HEADER: Final = "traceparent"
TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
_NAMED: Final = re.compile(rb"\x0btraceparent")
_SAMPLED: Final = re.compile(
    # the name with its length; then a string of 55 bytes, of AMQP 0.9.1 or 1.0
    rb"\x0btraceparent(?:S\0\0\0|\xa1|\xb1\0\0\0)7"
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f][13579bdf]"
)


class TraceContext(NamedTuple):
    """A span of a sampled trace; both ids as bytes, and neither is all zeros."""

    trace_id: bytes
    span_id: bytes

    def header(self) -> str:
        """Return the value of `traceparent` for what comes after this span."""
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-01"


def next_sampled(area: Buffer, start: int, end: int) -> tuple[int, TraceContext] | None:
    """Return the first context with the flag `sampled`, and its place in the area; None: no more.

    area   encoded properties or sections of messages, one after the other, of which only the bytes
           start <= i < end are searched: all in one pass, without decoding
    A text in a message's headers that looks like the header counts, too.
    """
    found = _SAMPLED.search(area, start, end)
    if found is None:
        return None
    trace_id, span_id = (bytes.fromhex(text.decode("ascii")) for text in found.groups())
    return found.start(), TraceContext(trace_id, span_id)


def has_context(properties: Buffer) -> bool:
    """Return whether a message has a traceparent of any form, sampled or not."""
    return _NAMED.search(properties) is not None
