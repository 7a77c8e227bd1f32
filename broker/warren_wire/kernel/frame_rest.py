"""The incomplete frame at the end of what was received, until the rest of it comes."""

from __future__ import annotations

JOIN_BYTES_MAX = 16 << 10
"""Received bytes up to that size are joined with an incomplete frame as a whole.

Then the message of that frame takes the scanner's fast path. Of more bytes only those are
copied that the frame needs.
"""
FILL_BYTES_MIN = 4 << 10
"""Payload of a body frame of that size is moved to the message's body before the frame is whole."""
_HEAD_BYTES = 7


def complete(rest: bytearray, data: memoryview) -> int:
    """Move to `rest`, an incomplete frame, what it needs of `data`; return how many bytes."""
    if len(data) <= JOIN_BYTES_MAX:
        rest += data
        return len(data)
    used = max(0, _HEAD_BYTES - len(rest))
    rest += data[:used]
    end = used + _HEAD_BYTES + 1 + int.from_bytes(rest[3:_HEAD_BYTES], "big") - len(rest)
    rest += data[used:end]
    return min(end, len(data))
