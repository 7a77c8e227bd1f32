"""Newcomers that begin in turn, a few in each turn of a loop: sockets before a login, logins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from warren_raft.address_shares import AddressShares
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)
BEGINS_MAX: Final = 16
"""Newcomers that begin in one turn of the loop."""
WAITERS_LOOK_MS: Final = 250
"""Interval at which those that wait are looked at."""
TOLD_MS: Final = 60_000
"""Interval at which the log says again that newcomers are turned away."""


class Newcomer(Hashable, Protocol):
    """What waits for its turn; hashable by identity."""

    @property
    def host(self) -> str:
        """The address by which its share is counted."""

    def begin(self) -> None:
        """Use the place, until `AddressTurns.end`."""

    def turn_away(self, reason: str) -> None:
        """End: it has waited for too long, too many wait, or others wait for its place."""


class Scheduler(Protocol):
    """The part of a loop that turns need."""

    def call_soon(self, call: Callable[[], None]) -> Any:
        """Call in this turn or the next one."""

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> Any:
        """Call once, that much later."""


class Monotonic(Protocol):
    """A clock that is never set."""

    def monotonic_ms(self) -> int:
        """Return the time."""


@dataclass(eq=False, repr=False)
class AddressTurns:
    """The turns of newcomers, of which each address has a share.

    what         names them in the log
    wait_ms_max  how long one waits
    refused, evicted  how many were turned away: before they began, and after
    Invariant: while newcomers wait, one run or one look is scheduled
    """

    what: str
    scheduler: Scheduler
    clock: Monotonic
    shares: AddressShares[Newcomer]
    wait_ms_max: int
    _running: bool = False
    _looking: bool = False
    _untold: int = 0
    _told_ms: int = -TOLD_MS
    refused: int = 0
    evicted: int = 0
    _total: int = field(init=False)

    def __post_init__(self) -> None:
        self._total = self.shares.total

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many have a place, wait, were refused and were evicted."""
        return self.held, self.waiting, self.refused, self.evicted

    @property
    def held(self) -> int:
        """How many have begun and not ended."""
        return self.shares.held

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self.shares.waiting

    def limit(self, total: int) -> None:
        """Have no more than so many places from now on, of all addresses together."""
        self.shares.total = min(self._total, total)

    def arrive(self, newcomer: Newcomer) -> None:
        """Let it begin in this turn or a later one, or turn one away."""
        dropped = self.shares.wait(newcomer, newcomer.host, self.clock.monotonic_ms())
        self._run_soon()
        if dropped is not None:
            self._refuse(dropped, "too many wait for a place")

    def end(self, newcomer: Newcomer) -> None:
        """Take the place, or the turn, of one that needs it no more; a repeat is harmless."""
        self.shares.end(newcomer)
        if self.shares.waiting:
            self._run_soon()

    def _run_soon(self) -> None:
        if not self._running:
            self._running = True
            self.scheduler.call_soon(self._run)

    def _run(self) -> None:
        self._running = False
        now_ms = self.clock.monotonic_ms()
        for _ in range(BEGINS_MAX):
            started = self.shares.start(now_ms)
            if started is None:
                self._look_later()
                return
            if started.evicted is not None:
                self.evicted += 1
                self._turn_away(started.evicted, "others wait for its place")
            started.item.begin()
        if self.shares.waiting:
            self._run_soon()

    def _look_later(self) -> None:
        if self.shares.waiting and not self._looking:
            self._looking = True
            self.scheduler.call_later(WAITERS_LOOK_MS, self._look)

    def _look(self) -> None:
        self._looking = False
        for newcomer in self.shares.tick(self.clock.monotonic_ms(), self.wait_ms_max):
            self._refuse(newcomer, f"it has waited for {self.wait_ms_max} ms in vain")
        if self.shares.waiting:
            self._run_soon()

    def _refuse(self, newcomer: Newcomer, why: str) -> None:
        self.refused += 1
        self._turn_away(newcomer, why)

    def _turn_away(self, newcomer: Newcomer, why: str) -> None:
        """End one; the first is logged, then at most one line each TOLD_MS, with the number."""
        newcomer.turn_away(f"{self.what} are bounded, for each address and altogether: {why}")
        self._untold += 1
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._told_ms < TOLD_MS:
            return
        log.warning(
            "%s turned away: %d, the last one from %s: %s; %d have a place, of which an address "
            "may have %d, and %d wait",
            self.what,
            self._untold,
            quoted(newcomer.host),
            why,
            self.shares.held,
            self.shares.share,
            self.shares.waiting,
        )
        self._told_ms, self._untold = now_ms, 0
