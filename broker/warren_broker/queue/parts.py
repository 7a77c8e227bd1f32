"""The parts of claims that were divided: messages of a reader that are its next claims.

The search for the messages that make a batch fail. A batch that fails is divided, each half is
claimed, and divided again when it fails. A message that has failed alone is kept behind all parts:
whether it is at fault, or nothing passes at the time, is seen when another claim has passed.
"""

from __future__ import annotations

from warren_broker.queue.give_up_command import ALONE, HALF, UNDIVIDED
from warren_broker.queue.ranges import cut_runs
from warren_broker.queue.state import HeldClaim, ReaderState


def is_due(reader: ReaderState) -> bool:
    """Return whether the reader's next claim is a part of an earlier one.

    1. A message fails alone because what the query writes to is down.  2. Were it claimed again at
    once, it would fail again, and be rejected.  So a claim must pass first, after it. When it is
    the last of the divided claim, nothing follows it: then one that has passed before is enough.
    """
    if not reader.parts:
        return False
    if reader.parts[0].origin == HALF:
        return True
    return reader.in_row == 0 or (reader.in_row == 1 and reader.passed)


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
    if claim.origin == UNDIVIDED and not reader.parts:
        reader.passed = False
    if claim.messages == 1:
        reader.parts.append(_part(claim, 0, 1, claim.size_bytes, ALONE))
        return
    half = claim.messages // 2
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
        claim.uses,
        None,
        origin,
    )


def passed(reader: ReaderState, claim: HeldClaim) -> None:
    """Note that a claim with messages was settled."""
    reader.in_row = 0
    reader.passed = bool(reader.parts)
