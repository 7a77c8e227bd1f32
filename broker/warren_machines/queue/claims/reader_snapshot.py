"""A claim reader in a snapshot."""

from __future__ import annotations

import msgspec

from warren_machines.queue.claims.decision_commands import ClaimBinding
from warren_machines.queue.claims.reader_state import HeldClaim, ReaderState
from warren_wire.queue_values.describe_command import ReadBy


class ReaderRow(msgspec.Struct, array_like=True):
    """A `ReaderState`; claims: ascending."""

    name: str
    epoch: int
    settled: int
    opened: int
    heard_ms: int
    claims: list[HeldClaim]
    calls: tuple[tuple[str, int], ...]
    decided: tuple[int, ClaimBinding] | None
    expires_ms: int
    described: tuple[int, ReadBy] | None
    parts: list[HeldClaim]
    in_row: int
    passed: bool
    starts: int
    ahead: tuple[int, int] | None


def reader_row(reader: ReaderState) -> ReaderRow:
    """Return the row of a reader."""
    return ReaderRow(
        reader.name,
        reader.epoch,
        reader.settled,
        reader.opened,
        reader.heard_ms,
        [reader.claims[number] for number in sorted(reader.claims)],
        reader.calls,
        reader.decided,
        reader.expires_ms,
        reader.described,
        reader.parts,
        reader.in_row,
        reader.passed,
        reader.starts,
        reader.ahead,
    )


def restored_reader(row: ReaderRow) -> ReaderState:
    """Return the reader of a row."""
    return ReaderState(
        row.name,
        row.epoch,
        row.settled,
        row.opened,
        row.heard_ms,
        {claim.number: claim for claim in row.claims},
        row.calls,
        row.decided,
        row.expires_ms,
        row.described,
        row.parts,
        row.in_row,
        row.passed,
        row.starts,
        row.ahead,
    )
