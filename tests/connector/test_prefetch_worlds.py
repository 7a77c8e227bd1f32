"""The worlds of `test_claim_worlds` with drivers that open the next claim ahead.

Requests ahead are made at any later step, or just before their answer is needed; claims are given
back before Spark asks for them, by requests that may be late or unanswered, also by a process that
is to end; drivers die with a claim ahead, and continue beside their successors. Some drivers open
nothing ahead: the option changes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from connector.test_claim_worlds import SEEDS, World
from pyspark_warren.claim_ahead import ClaimAhead
from pyspark_warren.driver import ClaimDriver
from pyspark_warren.offset import Offset
from pyspark_warren.prefetch import PrefetchingDriver
from warren_machines.queue import claim as claims

SEEN: Counter[str] = Counter()


class Stepped(PrefetchingDriver):
    """Its requests ahead are made when the world says so."""

    asked = False

    def _start(self, ahead: ClaimAhead) -> None:
        self.asked = False

    def ask(self) -> None:
        """Make the request, now."""
        if self._ahead is not None and not self.asked:
            self.asked = True
            self._ahead.ask()

    def _held(self, start: Offset) -> Offset | None:
        self.ask()
        end = super()._held(start)
        SEEN["taken" if end is not None else "none"] += 1
        return end


class Ahead(World):
    """A world in which something happens beside Spark's calls."""

    def made(self) -> type[ClaimDriver]:
        """Option prefetchClaims is one of those that change."""
        return ClaimDriver if self.random.random() < 0.3 else Stepped

    def pass_time(self) -> None:
        for run in self.runs:
            driver: Any = run.driver
            if not isinstance(driver, Stepped) or driver._ahead is None:
                continue
            if run.over or self.random.random() < 0.3:
                continue
            driver.ask()
            if self.random.random() < 0.2:
                driver.stop()  # SIGTERM; Spark may still be calling, for a moment
                run.over = self.random.random() < 0.7
                SEEN["stopped"] += 1
            elif self.random.random() < 0.7:
                before = self.machine.stat().messages_claimed
                driver._ahead.give_back()
                SEEN["given back"] += self.machine.stat().messages_claimed < before
        super().pass_time()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_is_lost_or_doubled_with_a_claim_ahead(
    seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claims, "READERS_MAX", 3)
    caplog.set_level("WARNING", logger="pyspark_warren")
    Ahead(seed, caplog).run()


def test_these_worlds_take_claims_ahead_and_give_some_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    SEEN.clear()
    monkeypatch.setattr(claims, "READERS_MAX", 3)
    for seed in range(60, 140):
        Ahead(seed, caplog).run()
    assert SEEN["taken"] > 100 and SEEN["given back"] > 3 and SEEN["stopped"] > 3, SEEN
