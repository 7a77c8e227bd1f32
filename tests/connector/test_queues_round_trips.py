"""What a micro-batch of many queues costs: round trips that do not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from spark_world.fake import FakeClient
from spark_world.fake_reader import FakeReader

from connector.test_queues_driver import World, counts, started
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.errors import FencedError
from warren import errors
from warren.admin import Queue
from warren.claims import ReaderStep, StepTaken

NAMES = [f"q{number:02d}" for number in range(20)]


class Counted(FakeClient):
    """Notes round trips in `trips`; `refuse` are answers in place of a queue's."""

    def __init__(self, call: Any) -> None:
        self.trips: list[str] = []
        self.refuse: dict[str, errors.WarrenError] = {}
        self._inside = False

        def counted(name: str, *args: Any) -> Any:
            if not self._inside:
                self.trips.append(name)
            return call(name, *args)

        super().__init__(counted)

    def _together(self, name: str, call: Callable[[], Any]) -> Any:
        self.trips.append(name)
        self._inside = True
        try:
            return call()
        finally:
            self._inside = False

    def queues(self, pattern: str) -> list[Queue]:
        found: list[Queue] = self._together("list", lambda: FakeClient.queues(self, pattern))
        return found

    def queues_named(self, names: Sequence[str]) -> list[Queue | errors.WarrenError]:
        found: list[Queue | errors.WarrenError] = self._together(
            "counts", lambda: FakeClient.queues_named(self, names)
        )
        return found

    def take_steps(self, steps: Sequence[ReaderStep]) -> list[StepTaken | errors.WarrenError]:
        answers: list[StepTaken | errors.WarrenError] = self._together(
            "steps", lambda: FakeClient.take_steps(self, steps)
        )
        return [
            self.refuse.get(step.queue, answer) for step, answer in zip(steps, answers, strict=True)
        ]


class ManyQueues(World):
    """A world of NAMES, with a client that counts."""

    def __init__(self, by_pattern: bool, **options: str) -> None:
        chosen = {"queuePattern": "^q"} if by_pattern else {"queues": ",".join(NAMES)}
        super().__init__(*NAMES, **chosen, maxMessagesPerTrigger="1000", **options)
        self.client = Counted(lambda name, *args: getattr(self.broker, name)(*args))

    def driver(self, **more: str) -> ClaimDriver:
        made = super().driver(**more)
        made._broker = self.client
        for lane in made._queues.values():
            lane._broker = self.client
        return made

    def fill(self, messages: int = 3) -> None:
        for name in NAMES:
            self.publish(name, messages)


@pytest.mark.parametrize("by_pattern", [True, False])
def test_a_batch_of_twenty_queues_takes_two_round_trips(by_pattern: bool) -> None:
    world = ManyQueues(by_pattern)
    trips = world.client.trips
    driver = world.driver()
    world.fill()
    at = driver.latest(started(driver), 1000)  # registers, and looks for claims of earlier runs
    for batch in range(1, 4):
        world.fill()
        trips.clear()
        start, at = at, driver.latest(at, 1000)
        assert counts(at) == dict.fromkeys(NAMES, 3)
        assert trips == ["list" if by_pattern else "counts", "steps"]
        assert len(driver.plan(start, at)) == len(NAMES) and len(trips) == 2
        assert world.acknowledged() == dict.fromkeys(NAMES, 3 * batch)


def test_what_is_committed_is_settled_although_nothing_is_ready() -> None:
    world = ManyQueues(True)
    driver = world.driver()
    world.fill()
    at = driver.latest(started(driver), 1000)
    world.client.trips.clear()
    assert driver.latest(at, 1000) is at
    assert world.client.trips == ["list", "steps"]
    assert world.acknowledged() == dict.fromkeys(NAMES, 3)
    for _ in range(3):  # an idle query asks for the counts alone
        world.client.trips.clear()
        assert driver.latest(at, 1000) is at
        assert world.client.trips == ["list"]


def test_settling_does_not_wait_for_the_next_poll() -> None:
    world = ManyQueues(True)
    driver = world.driver()
    world.publish("q00", 3)
    at = driver.latest(started(driver), 1000)
    driver._pace.found_nothing()
    world.publish("q00", 3)
    settled: list[int] = []
    wait = driver._pace.wait

    def waits() -> None:
        settled.append(world.acknowledged()["q00"])
        wait()

    driver._pace.wait = waits  # type: ignore[method-assign]
    assert counts(driver.latest(at, 1000)) == {"q00": 3}
    assert settled == [3]


@pytest.mark.parametrize("same_run", [True, False])
def test_a_queue_that_fails_is_named_and_loses_no_claim_of_the_others(same_run: bool) -> None:
    world = ManyQueues(True)
    driver = world.driver()
    world.fill()
    at = driver.latest(started(driver), 1000)
    world.fill()
    world.client.refuse["q07"] = errors.Unavailable("gave up after 120 s: no leader")
    with pytest.raises(errors.Unavailable, match="queue 'q07': gave up.*no leader"):
        driver.latest(at, 1000)
    assert world.acknowledged() == dict.fromkeys(NAMES, 3)  # each was settled, and noted
    world.client.refuse.clear()
    # The same run, or the next one, continues with the claims that were opened: none twice.
    again = driver if same_run else world.driver()
    end = again.latest(Offset.from_dict(at.to_dict()) if not same_run else at, 1000)
    assert counts(end) == dict.fromkeys(NAMES, 3)
    assert {each.number for each in end.queues.values()} == {2}
    assert again.latest(end, 1000) is end
    assert world.acknowledged() == dict.fromkeys(NAMES, 6)


def test_a_driver_that_was_fenced_in_one_queue_says_in_which() -> None:
    world = ManyQueues(True)
    driver = world.driver()
    world.fill()
    at = driver.latest(started(driver), 1000)
    FakeReader(world.client._call, "q11", at.reader).register()
    with pytest.raises(FencedError, match="'q11'"):
        driver.latest(at, 1000)


def test_a_queue_is_named_when_its_counts_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ManyQueues(False)
    driver = world.driver()
    world.fill()
    at = driver.latest(started(driver), 1000)
    intact = FakeClient.queues_named

    def late(client: FakeClient, names: Sequence[str]) -> list[Queue | errors.WarrenError]:
        return [
            errors.Unavailable("no leader") if name == "q03" else queue
            for name, queue in zip(names, intact(client, names), strict=True)
        ]

    monkeypatch.setattr(FakeClient, "queues_named", late)
    with pytest.raises(errors.Unavailable, match="queue 'q03': no leader"):
        driver.latest(at, 1000)


def test_an_open_that_overtook_its_settlement_is_repeated() -> None:
    world = ManyQueues(True)
    driver = world.driver()
    world.fill()
    at = driver.latest(started(driver), 1000)
    world.fill()
    take = world.client.take_steps

    def overtaken(steps: Sequence[ReaderStep]) -> list[StepTaken | errors.WarrenError]:
        return [
            StepTaken(answer.messages, None)
            if step.queue == "q05" and isinstance(answer, StepTaken)
            else answer
            for step, answer in zip(steps, take(steps), strict=True)
        ]

    world.client.take_steps = overtaken  # type: ignore[method-assign]
    assert counts(driver.latest(at, 1000)) == dict.fromkeys(NAMES, 3)
