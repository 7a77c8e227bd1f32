"""Work over many items is divided among turns by what each item costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.admin.caller import Asker
from warren_broker.admin.queues import QUEUES_LISTED_MAX
from warren_broker.admin.resources import HANDLERS
from warren_broker.cluster.turns import WORK_STEPS_PER_TURN, filtered, in_turns
from warren_machines.metadata import view
from warren_wire.admin.resources import parse_request
from warren_wire.errors import InvalidArgument


class Loop:
    """A loop's turns: what is called later, and how many there were."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.count = 1

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        assert delay_ms == 0
        self.waiting.append(call)

    def run(self) -> int:
        """Return how many turns there were, with the first one."""
        while self.waiting:
            self.count += 1
            self.waiting.popleft()()
        return self.count


def test_a_turn_ends_when_its_steps_are_taken() -> None:
    loop, found, per_turn = Loop(), [], [0]

    def keeps(item: int) -> bool:
        if loop.count > len(per_turn):
            per_turn.append(0)
        per_turn[-1] += 1
        return item % 2 == 0

    work = filtered(range(10), keeps, lambda item: WORK_STEPS_PER_TURN // 3)
    in_turns(loop.call_later, work, found.append)
    assert not found
    loop.run()
    assert found == [[0, 2, 4, 6, 8]]
    assert per_turn == [4, 4, 2], "three and a rest of a turn's steps, then the next turn"


def test_few_items_are_answered_at_once_and_no_more_are_looked_at_than_wanted() -> None:
    loop, found, seen = Loop(), [], []

    def keeps(item: int) -> bool:
        seen.append(item)
        return True

    in_turns(loop.call_later, filtered(range(100), keeps, lambda item: 1, 3), found.append)
    assert (found, seen, loop.count) == ([[0, 1, 2]], [0, 1, 2], 1)


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
    assert (answer.values, took) == (tuple(world[:10]), 1)
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
