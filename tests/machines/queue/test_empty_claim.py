"""Empty claims: what was planned as an empty batch has no rows when it is planned again."""

from __future__ import annotations

from typing import Any

from tests.machines.queue.test_claim import IDLE_MS, names, reading
from tests.machines.queue.world import Queue
from warren_machines.queue.claims.claim import claim_slice
from warren_machines.queue.commands import (
    Checkout,
    Count,
    EmptyClaim,
    OpenClaim,
    RegisterReader,
    ReleaseClaim,
    RenewClaims,
    SettleClaims,
)
from warren_machines.queue.effects import Expired
from warren_machines.queue.queue_snapshot import restore, snapshot


def keep(queue: Queue, number: int = 1, ttl_ms: int = 0, keep_empty: bool = True) -> Any:
    return queue.do(OpenClaim("r", number, 1, 4, 10**6, ttl_ms, keep_empty=keep_empty))


def test_an_empty_claim_that_is_kept_stays_empty_when_messages_come() -> None:
    queue = reading(0)
    assert keep(queue) == EmptyClaim(1)
    queue.put(3)
    queue.state = restore(snapshot(queue.state))
    for keep_empty in (True, False):
        assert keep(queue, keep_empty=keep_empty) == EmptyClaim(1)
    assert claim_slice(queue.state, "r", 1, 0, 9) == ()
    (of,) = queue.stat().readers
    assert (of.settled, of.open_claims, of.heard_ms) == (0, 1, queue.now)
    assert (queue.stat().messages_claimed, queue.stat().messages_ready) == (0, 3)


def test_an_empty_claim_that_is_kept_uses_its_number_and_is_settled_as_any_other() -> None:
    queue = reading(0)
    keep(queue)
    queue.put(3)
    assert keep(queue, 2).reason == "claim_lost"
    assert queue.do(SettleClaims("r", 1, 1)) == Count(0)
    assert keep(queue, 1).reason == "claim_lost"
    assert keep(queue, 2).messages == 3


def test_an_empty_claim_that_was_released_is_lost() -> None:
    queue = reading(0)
    keep(queue)
    assert queue.do(ReleaseClaim("r", 1, 1)) == Count(0)
    queue.put(3)
    assert keep(queue).reason == "claim_lost"


def test_an_empty_claim_does_not_expire_as_it_has_nothing_to_give_back() -> None:
    queue = reading(0)
    keep(queue, ttl_ms=100)
    queue.do(RenewClaims("r", 1))
    assert queue.state.timer_ms == 0
    queue.put(3)
    queue.tick(1000)
    assert keep(queue, ttl_ms=100) == EmptyClaim(1)
    assert queue.do(SettleClaims("r", 1, 1)) == Count(0)


def test_waiting_consumers_come_before_a_claim_that_may_be_empty() -> None:
    queue = reading(0)
    queue.do(Checkout(1, 1, "t", 9))
    queue.put(2)
    assert keep(queue) == EmptyClaim(1)


def test_a_reader_whose_claim_is_empty_is_forgotten_as_no_message_would_be_without_owner() -> None:
    queue = reading(0)
    keep(queue)
    queue.now += IDLE_MS
    queue.do(RegisterReader("a", idle_ms=IDLE_MS))
    assert names(queue) == ["a"]
    assert queue.do(RegisterReader("r", idle_ms=IDLE_MS)).settled == 2


def test_an_empty_claim_does_not_keep_its_queue() -> None:
    queue = reading(0, expires_ms=100)
    queue.tick(60)
    queue.do(OpenClaim("r", 1, 1, 4, 10**6, keep_empty=True))
    queue.tick(99)
    assert not queue.of(Expired)
    queue.tick(1)
    assert queue.of(Expired) == [Expired("expires")]
