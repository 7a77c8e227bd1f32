"""The body of a message of a run: names its sender, and shows whether it was damaged."""

from __future__ import annotations


def make(stream: str, number: int, size_bytes: int) -> bytes:
    """At least the name and number; filled up to size_bytes."""
    head = f"{stream}:{number}:{size_bytes}:".encode()
    return head + _filling(number, size_bytes - len(head))


def parse(data: bytes) -> tuple[str, int] | None:
    """(stream, number); None: no run made this."""
    parts = data.split(b":", 3)
    if len(parts) != 4 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    stream, number, size_bytes = parts[0].decode("utf-8", "replace"), int(parts[1]), int(parts[2])
    return (stream, number) if data == make(stream, number, size_bytes) else None


def _filling(number: int, size_bytes: int) -> bytes:
    return bytes([97 + number % 26]) * max(0, size_bytes)
