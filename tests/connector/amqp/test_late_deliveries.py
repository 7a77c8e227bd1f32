"""A busy broker counts messages as taken, and answers, before it sends them."""

from __future__ import annotations

import pytest

from connector.amqp.poison_world import PoisonSpoolWorld, StepLane
from pyspark_warren.options.options import parse_options
from pyspark_warren.spool import queue_spool
from pyspark_warren.spool.driver import SpoolDriver
from pyspark_warren.spool.lanes import LaneCounts

LATE = 40


class LateLane(StepLane):
    """Its broker sends what it has taken after so many answers."""

    answers = 0

    def wait_for_counts(self, probe: int, timeout_s: float) -> LaneCounts:
        self.answers += 1
        self.receive()
        return self.counts

    def receive(self) -> None:
        self.world.broker.deliver()
        if self.answers >= LATE:
            super().receive()


def driver_of(world: PoisonSpoolWorld, patch: pytest.MonkeyPatch) -> SpoolDriver:
    patch.setattr(queue_spool, "Lane", type("WorldLane", (LateLane,), {"world": world}))
    return SpoolDriver(parse_options(world.given, "read", "stream"), lambda: "spark-1")


def test_one_batch_waits_for_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PoisonSpoolWorld(monkeypatch)
    world.put(5)
    driver = driver_of(world, monkeypatch)
    end = driver.latest(driver.initial(), 100, alone=True)
    assert end.of("q", False).row == 5


def test_available_now_waits_for_what_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = PoisonSpoolWorld(monkeypatch)
    world.put(5)
    driver = driver_of(world, monkeypatch)
    driver.prepare_available_now()
    named = driver.latest(driver.initial(), 100)
    assert driver.latest(named, 100).of("q", False).row == 5


def test_what_others_have_taken_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_spool, "UNDER_WAY_S", 0.0)
    world = PoisonSpoolWorld(monkeypatch)
    world.put(5)
    driver = driver_of(world, monkeypatch)
    initial = driver.initial()
    world.broker.ready.clear()
    assert driver.latest(initial, 100, alone=True).of("q", False).row == 0
