"""The filters of consumers in worlds that have any, and what they say of a message by its body."""

from __future__ import annotations

PARITY = "odd"
"""The header of messages in worlds with filters: 1 for those with an odd number, 0 for others."""
UNNUMBERED = (b"sink-", b"settler-", b"once/", b"carried/")
"""Bodies of rows, and of what is sent again or late."""
SIEVES = (f"{PARITY} = 0", f"{PARITY} = 1", f"{PARITY} IS NULL")
"""Filters of consumers; each message is matched by one of them."""


def passes(sieve: int, body: bytes) -> bool:
    """Whether a message has what that filter asks for, as its body says."""
    number = -1 if body.startswith(UNNUMBERED) else int(body.split(b"/")[2])
    return number % 2 == sieve if number >= 0 else sieve == 2
