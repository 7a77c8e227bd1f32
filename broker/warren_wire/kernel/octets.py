"""Received octets, for the interpreted kernel: big-endian integers, pieces appended to an area.

The compiled modules take `compiled/octets.pxd` instead, which the C compiler puts in place.
"""

from __future__ import annotations


def u16(p: bytes, at: int) -> int:
    """Return the two octets from `at` on."""
    return (p[at] << 8) | p[at + 1]


def u32(p: bytes, at: int) -> int:
    """Return the four octets from `at` on."""
    return int.from_bytes(p[at : at + 4], "big")


def u64(p: bytes, at: int) -> int:
    """Return the eight octets from `at` on."""
    return int.from_bytes(p[at : at + 8], "big")


def extend(area: bytearray, p: bytes, at: int, end: int) -> None:
    """Append the octets at..end to an area."""
    area += memoryview(p)[at:end]
