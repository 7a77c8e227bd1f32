"""Work that takes more than a client's share of a turn: in order, round the circle, to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from warren_broker.cluster.turn_shares import ROUND_STEPS, SHARE_STEPS, Share, TurnShares
from warren_machines.steps import PIECE, Steps, Work
from warren_wire.admin.definitions import ExportRequest
from warren_wire.admin.exchanges import ListBindingsRequest
from warren_wire.admin.permissions import ListPermissionsRequest
from warren_wire.admin.queues import DeclareQueueRequest, GetQueueRequest, ListQueuesRequest
from warren_wire.errors import NotFound, Refusal


class Turns:
    """A loop of turns; `told` has what work has ended with."""

    def __init__(self) -> None:
        self.turn = 0
        self.soon: list[Callable[[], None]] = []
        self.told: list[Any] = []
        self.shares = TurnShares(self)  # type: ignore[arg-type]

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def run(self) -> None:
        """Run one turn; a circle is gone round once in it."""
        self.turn += 1
        calls, self.soon = self.soon, []
        assert len(calls) <= 1
        for call in calls:
            call()

    def client(self, number: int) -> Share:
        return self.shares.open(
            number,
            lambda: self.told.append((number, "free")),
            lambda fault: self.told.append(fault),
        )

    def give(self, share: Share, name: str, count: int, fault: Exception | None = None) -> None:
        share.run(self.work(share.steps, name, count, fault), self.told.append, self.told.append)

    def work(self, steps: Steps, name: str, count: int, fault: Exception | None) -> Work[str]:
        for _ in range(count // PIECE):
            if steps.take(PIECE):
                yield
        if fault is not None:
            raise fault
        return name


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_what_is_little_is_done_at_once_and_alone(turns: Turns) -> None:
    share = turns.client(1)
    turns.give(share, "a", SHARE_STEPS // 2)
    assert turns.told == ["a"] and not share.busy and not turns.soon
    turns.give(share, "b", SHARE_STEPS // 2 + 2 * PIECE)  # the share of this turn is used up
    turns.give(share, "c", 0)
    assert turns.told == ["a"] and share.waiting == 2
    turns.run()
    assert turns.told == ["a", "b", "c", (1, "free")] and not share.busy


def test_a_round_does_not_grow_with_those_that_wait(turns: Turns) -> None:
    several = [turns.client(number) for number in range(200)]
    for share in several:
        turns.give(share, "long", 5 * SHARE_STEPS)
    while turns.soon:
        before = sum(share.steps.taken for share in several)
        turns.run()
        assert (
            sum(share.steps.taken for share in several) - before
            <= ROUND_STEPS + SHARE_STEPS + PIECE
        )
    assert turns.told.count("long") == 200


def test_one_with_little_to_do_waits_for_a_slice_of_each_not_for_its_end(turns: Turns) -> None:
    several = [turns.client(number) for number in range(5)]
    for share in several:
        turns.give(share, "long", 1_000 * SHARE_STEPS)
    little = turns.client(9)
    turns.give(little, "little", SHARE_STEPS + PIECE)
    turns.run()
    turns.run()
    assert turns.told == ["little", (9, "free")]


def test_work_that_comes_of_an_end_is_after_what_waits(turns: Turns) -> None:
    share = turns.client(1)

    def more(name: str) -> None:
        turns.told.append(name)
        turns.give(share, "after", 0)

    share.run(turns.work(share.steps, "first", 2 * SHARE_STEPS, None), more, turns.told.append)
    turns.give(share, "second", 2 * SHARE_STEPS)
    while turns.soon:
        turns.run()
    assert turns.told == ["first", "second", "after", (1, "free")]


def test_a_refusal_and_a_fault_end_what_they_concern(turns: Turns) -> None:
    one, other, own = turns.client(1), turns.client(2), turns.shares.of("own")
    refusal, fault = NotFound("no exchange"), RuntimeError("a fault")
    turns.give(one, "refused", 2 * SHARE_STEPS, refusal)
    turns.give(one, "next", 0)
    turns.give(other, "fault", 2 * SHARE_STEPS, fault)
    turns.give(other, "dropped", 0)
    turns.give(own, "own fault", 2 * SHARE_STEPS, fault)
    turns.give(own, "own", 0)
    assert turns.shares.of("own") is own and turns.shares.of(1) is one
    while turns.soon:
        turns.run()
    assert turns.told == [refusal, "next", (1, "free"), fault, "own"]
    assert isinstance(turns.told[0], Refusal)
    assert turns.shares.of("own") is not own, "idle ones are not kept"


def test_a_closed_share_drops_what_waits(turns: Turns) -> None:
    share = turns.client(1)
    turns.give(share, "dropped", 2 * SHARE_STEPS)
    turns.give(share, "dropped, too", 0)
    share.close()
    turns.give(share, "little", 0)
    turns.give(share, "too much", 2 * SHARE_STEPS)
    while turns.soon:
        turns.run()
    assert turns.told == ["little"] and turns.shares.of(1) is not share


def test_what_counts_no_steps_is_done_once_in_a_turn(turns: Turns) -> None:
    """Before: 64 lists of all bindings for each link of a connection, in one turn."""
    one, other = turns.client(1), turns.client(2)
    done: list[int] = []
    for at in range(3):
        one.run_alone(lambda at=at: done.append(at))
    other.run_alone(lambda: done.append(9))
    assert done == [0, 9] and one.busy and not other.busy
    turns.run()
    assert done == [0, 9, 1]
    turns.run()
    assert done == [0, 9, 1, 2] and not one.busy


@pytest.mark.parametrize(
    ("request_type", "many"),
    [
        (ListBindingsRequest, True),
        (ListQueuesRequest, True),
        (ExportRequest, True),
        (ListPermissionsRequest, True),
        (GetQueueRequest, False),
        (DeclareQueueRequest, False),
    ],
)
def test_requests_that_read_many_objects(request_type: Any, many: bool) -> None:
    assert request_type.reads_many() is many
