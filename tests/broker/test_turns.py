"""Work over many items is divided among turns by what each item costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.admin.caller import Asker
from warren_broker.admin.queues import QUEUES_LISTED_MAX
from warren_broker.admin.resources import HANDLERS
from warren_broker.cluster.turn_shares import (
    ROUND_STEPS,
    SHARE_STEPS,
    WORK_STEPS,
    TurnShares,
)
from warren_broker.cluster.turns import Work, filtered
from warren_machines.metadata import view
from warren_wire.admin.resources import parse_request
from warren_wire.errors import InvalidArgument


class Loop:
    """A loop's turns: what is called soon, which one it is, and what was done in each.

    steps  of work, by turn; told: what has ended, by turn
    """

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.turn = 1
        self.shares = TurnShares(self)  # type: ignore[arg-type]
        self.steps: Counter[int] = Counter()
        self.told: dict[Any, int] = {}

    def call_soon(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def run(self) -> int:
        """Return how many turns there were, with the first one."""
        while self.waiting:
            self.turn += 1
            calls, self.waiting = self.waiting, []
            for call in calls:
                call()
        return self.turn

    def ask(self, name: Any, pieces: int, piece: int = SHARE_STEPS // 8) -> None:
        """Begin a request of so many pieces of so many steps each."""

        def work() -> Work[None]:
            for _ in range(pieces):
                self.steps[self.turn] += piece
                yield piece * WORK_STEPS

        def done(result: None) -> None:
            self.told[name] = self.turn

        self.shares.divide(work(), done, lambda refusal: None)


@pytest.mark.parametrize("requests", [1, 10, 300])
def test_a_turn_does_not_grow_with_the_number_of_requests(requests: int) -> None:
    """Each took 10 ms of every turn, and a client chooses how many there are."""
    loop = Loop()
    for number in range(requests):
        loop.ask(number, 40)
    loop.run()
    assert len(loop.told) == requests
    assert sum(loop.steps.values()) == requests * 40 * (SHARE_STEPS // 8)
    most = ROUND_STEPS + SHARE_STEPS
    assert max(loop.steps.values()) <= most, "at once, or of a round"


def test_a_small_request_waits_for_slices_of_large_ones() -> None:
    loop = Loop()
    for number in range(20):
        loop.ask(("large", number), 4_000)
    loop.ask("small", 1, 10)
    loop.run()
    others = [turn for name, turn in loop.told.items() if name != "small"]
    assert loop.told["small"] <= 2 + 21 * SHARE_STEPS // ROUND_STEPS < min(others) // 100


def test_a_fault_of_a_later_turn_ends_its_request_alone() -> None:
    loop, faults = Loop(), list[Exception]()

    def work() -> Work[None]:
        for _ in range(9):
            yield SHARE_STEPS * WORK_STEPS // 2
        raise ZeroDivisionError

    loop.shares.divide(work(), faults.append, faults.append, faults.append)
    loop.ask("other", 100)
    loop.run()
    assert [type(one) for one in faults] == [ZeroDivisionError] and "other" in loop.told


def test_few_items_are_answered_at_once_and_no_more_are_looked_at_than_wanted() -> None:
    loop, found, seen = Loop(), [], []

    def keeps(item: int) -> bool:
        seen.append(item)
        return True

    work = filtered(range(100), keeps, lambda item: 1, 3)
    loop.shares.divide(work, found.append, found.append)
    assert (found, seen, loop.turn) == ([[0, 1, 2]], [0, 1, 2], 1)


# ------------------------------------------------------------------ lists of queues


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    names = [f"q{at:05}" + "xa" * 100 for at in range(2_000)]
    queues = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(view.MetadataView, "queues", lambda self, vhost: queues)
    monkeypatch.setattr("warren_broker.admin.queues.info_of", lambda *of: of[1].name)
    return names


def listed(path: str) -> tuple[Any, int]:
    """Return the answer and the number of turns that it took."""
    loop = Loop()
    answers: list[Any] = []
    broker: Any = SimpleNamespace(
        definitions=SimpleNamespace(state=None),
        cluster=SimpleNamespace(loop=loop),
        publishing=SimpleNamespace(shares=loop.shares),
        tags=lambda user: ("management",),
    )
    request = parse_request("GET", path, None)
    asker = Asker(broker, "/", "u", 1, lambda call: call)
    HANDLERS[type(request)](asker, request, answers.append)
    took = loop.run()
    (answer,) = answers
    return answer, took


def test_a_list_of_queues_takes_as_many_turns_as_its_pattern_needs(world: list[str]) -> None:
    """Sixty names of 254 bytes and this pattern were matched in one turn, of 9 to 20 s."""
    answer, took = listed("/queues?counts=false&count=500&pattern=^q0000")
    assert answer.values == tuple(world[:10]) and took <= 5
    answer, took = listed("/queues?counts=false&count=500&pattern=a.%7B200%7D[cd]")
    assert answer.values == ()
    assert took > 100, "some twenty names a turn"
    answer, took = listed("/queues?counts=false&count=500")
    assert (answer.values, took) == (tuple(world[:500]), 1)


def test_more_queues_than_an_answer_has_are_refused(world: list[str]) -> None:
    for asked in ("", "&pattern=q"):
        answer, _ = listed(f"/queues?counts=false{asked}")
        assert isinstance(answer, InvalidArgument)
        assert f"more than {QUEUES_LISTED_MAX} queues" in answer.detail
