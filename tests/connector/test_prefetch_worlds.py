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
from pyspark_warren.claims import driver
from pyspark_warren.claims.ahead import ClaimAhead, ClaimsAhead
from pyspark_warren.claims.offset import Position
from warren_machines.queue.claims import claim as claims

SEEN: Counter[str] = Counter()


class Stepped(ClaimsAhead):
    """Its requests ahead are made when the world says so."""

    asked: ClaimAhead | None = None

    def ask(self) -> None:
        """Make the request, now."""
        if self.request is not None and self.request is not self.asked:
            self.asked = self.request
            self.request.ask()

    def held(self, start: Position) -> Position | None:
        self.ask()
        end = super().held(start)
        SEEN["taken" if end is not None else "none"] += 1
        return end


class Ahead(World):
    """A world in which something happens beside Spark's calls."""

    def options(self) -> dict[str, str]:
        """Option prefetchClaims is one of those that change."""
        return {**super().options(), "prefetchClaims": "01"[self.random.random() >= 0.3]}

    def pass_time(self) -> None:
        for run in self.runs:
            ahead: Any = run.driver.ahead
            if ahead is None or ahead.request is None:
                continue
            if run.over or self.random.random() < 0.3:
                continue
            ahead.ask()
            if self.random.random() < 0.2:
                run.driver.close()  # SIGTERM; Spark may still be calling, for a moment
                run.over = self.random.random() < 0.7
                SEEN["stopped"] += 1
            elif self.random.random() < 0.7:
                before = self.machine.stat().messages_claimed
                ahead.request.give_back()
                SEEN["given back"] += self.machine.stat().messages_claimed < before
        super().pass_time()


@pytest.fixture(autouse=True)
def stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ClaimsAhead", Stepped)


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
