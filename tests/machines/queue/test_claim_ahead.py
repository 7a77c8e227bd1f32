"""Claims that are opened while the one before them is open, and taken back."""

from __future__ import annotations

from typing import Any

from tests.machines.queue.test_claim import reading
from tests.machines.queue.test_give_up import ordinals
from tests.machines.queue.world import Queue
from warren_machines.queue.claims.claim import claim_slice
from warren_machines.queue.claims.decision_commands import BindClaim, ClaimBinding, ResolveClaim
from warren_machines.queue.commands import (
    Checkout,
    ClaimReply,
    Count,
    EmptyClaim,
    OpenClaim,
    RegisterReader,
    ReleaseClaim,
    SettleClaims,
)
from warren_machines.queue.effects import Expired
from warren_machines.queue.queue_snapshot import restore, snapshot
from warren_wire.queue_values.give_up_command import GiveUpClaim


def open_(queue: Queue, number: int, ahead: bool = False, most: int = 4, **more: Any) -> Any:
    epoch = queue.state.readers["r"].epoch
    size = more.pop("size", 10**6)
    return queue.do(OpenClaim("r", number, epoch, most, size, ahead=ahead, **more))


def settle(queue: Queue, number: int) -> Any:
    return queue.do(SettleClaims("r", number, queue.state.readers["r"].epoch))


def withdraw(queue: Queue, number: int, epoch: int = 1) -> Any:
    return queue.do(GiveUpClaim("r", number, epoch, "withdraw", 1))


def test_the_next_claim_is_opened_ahead_while_the_one_before_is_open() -> None:
    queue = reading(10)
    assert ordinals(open_(queue, 1)) == [0, 1, 2, 3]
    assert open_(queue, 2).reason == "claim_lost", "not without saying that it is ahead"
    ahead = open_(queue, 2, ahead=True)
    assert ordinals(ahead) == [4, 5, 6, 7]
    queue.state = restore(snapshot(queue.state))
    assert open_(queue, 2, ahead=True) == ahead
    assert open_(queue, 3, ahead=True).reason == "claim_lost", "one ahead, no more"
    assert settle(queue, 1) == Count(4)
    assert open_(queue, 2) == ahead, "when its turn comes it is as it was"
    assert queue.stat().messages_claimed == 4
    assert ordinals(open_(queue, 3, ahead=True, most=2)) == [8, 9]


def test_a_claim_that_would_not_be_full_is_not_opened_ahead() -> None:
    queue = reading(7)
    open_(queue, 1)
    assert open_(queue, 2, ahead=True) == ClaimReply(2, 0, 0, ())
    assert queue.stat().messages_ready == 3
    queue.put(1)
    assert open_(queue, 2, ahead=True).messages == 4


def test_a_claim_is_full_when_it_has_the_bytes() -> None:
    queue = reading(10)
    open_(queue, 1)
    each = queue.state.ready_bytes // 6
    assert open_(queue, 2, ahead=True, most=100, size=6 * each + 1).messages == 0
    assert open_(queue, 2, ahead=True, most=100, size=3 * each).messages == 3


def test_waiting_consumers_come_before_a_claim_ahead() -> None:
    queue = reading(4)
    open_(queue, 1)
    queue.do(Checkout(1, 1, "t", 9))
    queue.put(4)
    assert open_(queue, 2, ahead=True).messages == 0


def test_settling_and_opening_ahead_in_one_go_needs_the_settlement() -> None:
    queue = reading(12)
    open_(queue, 1, ttl_ms=50)
    open_(queue, 2, ahead=True)
    queue.tick(60)
    assert settle(queue, 1).reason == "claim_lost"
    assert open_(queue, 3, ahead=True).reason == "claim_lost"


def test_a_withdrawn_claim_stays_open_and_frees_messages_in_order() -> None:
    queue = reading(12)
    open_(queue, 1)
    open_(queue, 2, ahead=True)
    assert withdraw(queue, 2) == Count(4)
    assert queue.stat().messages_ready == 8
    queue.state = restore(snapshot(queue.state))
    assert withdraw(queue, 2) == Count(0), "a repeat changes nothing"
    for ahead in (False, True):
        assert open_(queue, 2, ahead=ahead) == EmptyClaim(2)
    assert claim_slice(queue.state, "r", 2, 0, 9) == ()
    assert settle(queue, 1) == Count(4)
    assert settle(queue, 2) == Count(0)
    assert withdraw(queue, 2) == Count(0)
    again = open_(queue, 3, most=8)
    assert ordinals(again) == list(range(4, 12))
    counts = [(failed, acquired & 0xFF) for _, _, _, failed, acquired in again.runs]
    assert counts == [(0, 1), (0, 0)], "no failed delivery is counted"


def test_a_late_repeat_of_taking_back_does_not_concern_the_next_claim() -> None:
    queue = reading(12)
    open_(queue, 1)
    open_(queue, 2, ahead=True)
    withdraw(queue, 2)
    settle(queue, 1)
    settle(queue, 2)
    held = open_(queue, 3)
    assert withdraw(queue, 2) == Count(0)
    assert open_(queue, 3) == held


def test_an_older_driver_takes_nothing_back() -> None:
    queue = reading(12)
    open_(queue, 1)
    open_(queue, 2, ahead=True)
    queue.do(RegisterReader("r"))
    assert withdraw(queue, 2, epoch=1).reason == "fenced"
    settle(queue, 1)
    assert open_(queue, 2).messages == 4, "the newer one has it as its next"


def test_only_the_driver_that_opened_a_claim_ahead_takes_it_back() -> None:
    queue = reading(12)
    open_(queue, 1)
    open_(queue, 2, ahead=True)
    queue.do(RegisterReader("r"))
    queue.state = restore(snapshot(queue.state))
    held = open_(queue, 2, ahead=True)
    assert withdraw(queue, 2, epoch=2) == Count(0)
    assert open_(queue, 2) == held, "the first driver may have it in a batch"
    assert withdraw(queue, 1, epoch=2) == Count(0), "nor one that was not opened ahead"


def test_a_claim_ahead_is_released_and_then_lost_as_any_other() -> None:
    queue = reading(12)
    open_(queue, 1)
    open_(queue, 2, ahead=True)
    assert queue.do(ReleaseClaim("r", 2, -1)) == Count(4)
    assert open_(queue, 2, ahead=True).reason == "claim_lost"
    settle(queue, 1)
    assert open_(queue, 2).reason == "claim_lost"


def test_a_claim_ahead_expires_and_is_renewed_as_any_other() -> None:
    queue = reading(12)
    open_(queue, 1)
    open_(queue, 2, ahead=True, ttl_ms=50)
    queue.tick(60)
    assert queue.stat().messages_ready == 8
    settle(queue, 1)
    assert open_(queue, 2).reason == "claim_lost"


def test_no_claim_is_opened_ahead_of_parts() -> None:
    queue = reading(12)
    open_(queue, 1)
    queue.do(GiveUpClaim("r", 1, 1, "divide", 9))
    assert open_(queue, 2, ahead=True).messages == 0
    settle(queue, 1)
    assert ordinals(open_(queue, 2)) == [0, 1]


def test_a_batch_settles_its_claim_and_not_the_one_ahead() -> None:
    queue = reading(12)
    open_(queue, 1)
    binding = ClaimBinding("out", 7, "sink", "run", 1, 1)
    queue.do(BindClaim("r", 1, 1, binding))
    ahead = open_(queue, 2, ahead=True)
    assert queue.do(ResolveClaim("r", 1, binding, True)) == Count(4)
    assert open_(queue, 2) == ahead


def test_a_claim_taken_back_does_not_keep_its_queue() -> None:
    queue = reading(4, expires_ms=100)
    open_(queue, 1, most=2)
    open_(queue, 2, ahead=True, most=2)
    settle(queue, 1)
    queue.tick(150)
    assert not queue.of(Expired)
    withdraw(queue, 2)
    queue.tick(101)
    assert queue.of(Expired) == [Expired("expires")]
