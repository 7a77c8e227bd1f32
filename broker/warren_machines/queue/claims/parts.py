"""The parts of claims that were divided: messages of a reader that are its next claims.

The rules of the search for the messages that make a batch fail are in `part_rules`.
"""

from __future__ import annotations

from warren_machines.queue.claims.reader_state import HeldClaim, ReaderState
from warren_machines.queue.ready.ranges import cut_runs
from warren_wire.queue_values import part_rules
from warren_wire.queue_values.give_up_command import ALONE, HALF


def is_due(reader: ReaderState) -> bool:
    """Return whether the reader's next claim is a part of an earlier one."""
    if not reader.parts:
        return False
    return part_rules.is_due(reader.parts[0].origin, reader.in_row, reader.passed)


def next_claim(reader: ReaderState, number: int, ttl_ms: int, now: int) -> HeldClaim | None:
    """Open the first part as that claim; None: none is due."""
    if not is_due(reader):
        return None
    claim = reader.parts.pop(0)
    claim.number = number
    claim.ttl_ms = ttl_ms
    claim.expires_ms = now + ttl_ms if ttl_ms else 0
    reader.claims[number] = claim
    reader.opened = number
    return claim


def divide(reader: ReaderState, claim: HeldClaim) -> None:
    """Keep a claim's messages as parts: as halves before all others, one message behind them."""
    if part_rules.begins(claim.origin, len(reader.parts)):
        reader.passed = False
    if claim.messages == 1:
        reader.parts.append(_part(claim, 0, 1, claim.size_bytes, ALONE))
        return
    half = part_rules.first_half(claim.messages)
    size_bytes = claim.size_bytes * half // claim.messages
    reader.parts[:0] = [
        _part(claim, 0, half, size_bytes, HALF),
        _part(claim, half, claim.messages, claim.size_bytes - size_bytes, HALF),
    ]


def _part(claim: HeldClaim, first: int, last: int, size_bytes: int, origin: int) -> HeldClaim:
    return HeldClaim(
        0,
        cut_runs(claim.runs, first, last),
        last - first,
        size_bytes,
        claim.ttl_ms,
        claim.expires_ms,
        None,
        origin,
    )


def passed(reader: ReaderState) -> None:
    """Note that a claim with messages was settled."""
    reader.in_row = 0
    reader.passed = bool(reader.parts)
