"""What a queue holds of a claim reader: its claims, and the parts of those that were divided."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from warren_machines.queue.claims.decision_commands import ClaimBinding
from warren_machines.queue.ready.ranges import Run, length
from warren_wire.queue_values.describe_command import ReadBy
from warren_wire.queue_values.give_up_command import HALF, UNDIVIDED


class HeldClaim(msgspec.Struct, array_like=True, eq=False):
    """The messages held by a micro-batch, possibly none. ttl_ms 0: no expiry; expires_ms then 0.

    Snapshots contain it as it is: its fields and their order are replicated state, and a new one
    goes to the end, with a default. The queue is in use while one with messages is open.

    binding  the batch that decides about it: it neither expires nor is given back
    origin   of its messages, see `give_up_command.ORIGINS`
    """

    number: int
    runs: tuple[Run, ...]
    messages: int
    size_bytes: int
    ttl_ms: int
    expires_ms: int
    binding: ClaimBinding | None = None
    origin: int = UNDIVIDED


class ReaderState(msgspec.Struct, array_like=True, eq=False):
    """A claim reader. Snapshots contain it as it is: see `HeldClaim`.

    claims    the open ones, ascending
    settled   last settled claim
    opened    highest number ever opened; not settled and not in `claims`: lost
    heard_ms  last sign of life of its driver
    calls     (name, epoch) of the latest named calls to register, at most CALLS_KEPT_MAX
    decided   the last settled claim that was bound, and its batch
    parts     of claims that were divided, which are the next claims; last those that failed alone
    in_row    messages that failed alone, and claims that were rejected, since a claim was settled
    passed    a claim was settled since parts are there
    starts    how often it has registered
    ahead     the last claim that was opened ahead, and the epoch of the driver that opened it

    Invariants: every number in `claims` is settled < number <= opened; epochs in `calls` ascend
    """

    name: str
    epoch: int
    settled: int = 0
    opened: int = 0
    heard_ms: int = 0
    claims: dict[int, HeldClaim] = {}
    calls: tuple[tuple[str, int], ...] = ()
    decided: tuple[int, ClaimBinding] | None = None
    expires_ms: int = 0
    described: tuple[int, ReadBy] | None = None
    parts: list[HeldClaim] = []
    in_row: int = 0
    passed: bool = False
    starts: int = 0
    ahead: tuple[int, int] | None = None

    @property
    def holds_messages(self) -> bool:
        """Return whether a claim holds messages, which would have no owner without the reader."""
        return any(claim.messages for claim in self.all_claims())

    def all_claims(self) -> Iterator[HeldClaim]:
        """Yield the open claims, then the parts that are the next ones."""
        yield from self.claims.values()
        yield from self.parts

    def check(self) -> None:
        """Assert the invariants, also those of its claims and parts."""
        epochs = [epoch for _, epoch in self.calls]
        assert epochs == sorted(set(epochs)) and max(epochs, default=0) <= self.epoch, epochs
        assert list(self.claims) == sorted(self.claims), (self.name, self.claims)
        for number, claim in self.claims.items():
            assert number == claim.number, (number, claim.number)
            assert self.settled < number <= self.opened, (self, number)
            assert claim.messages == length(claim.runs), (self.name, number)
            assert claim.binding is None or not claim.expires_ms, (self.name, number)
        assert self.decided is None or self.decided[0] <= self.settled, self.name
        origins = [part.origin for part in self.parts]
        assert origins == sorted(origins) and UNDIVIDED not in origins, (self.name, origins)
        for part in self.parts:
            assert 0 < part.messages == length(part.runs), (self.name, part)
            assert part.messages == 1 or part.origin == HALF, (self.name, part)
            assert not part.number and part.binding is None, (self.name, part)
