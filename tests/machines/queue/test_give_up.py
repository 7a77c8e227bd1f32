"""Batches that fail: their claims are divided, rejected or released, and stay open, empty."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.machines.queue.world import Queue
from warren_machines.queue.claims.decision_commands import BindClaim, BoundClaim, ClaimBinding
from warren_machines.queue.commands import (
    Checkout,
    ClaimReply,
    Count,
    EmptyClaim,
    OpenClaim,
    Purge,
    RegisterReader,
    ReleaseClaim,
    RenewClaims,
    SettleClaims,
)
from warren_machines.queue.effects import DeadLetter, Expired
from warren_wire.queue_values.give_up_command import ALONE, HALF, UNDIVIDED, GiveUpClaim

DEAD: dict[str, Any] = {"dead_letter_exchange": "dlx"}


class Reading:
    """A reader "r" of a queue, which numbers its claims itself."""

    def __init__(self, messages: int = 8, **settings: Any) -> None:
        self.queue = Queue(**settings)
        self.number = 0
        self.index = self.queue.put(messages) if messages else 0
        self.queue.do(RegisterReader("r"))

    def open(self, most: int = 100, ttl_ms: int = 0, uses: bool = False) -> Any:
        self.number += 1
        return self.queue.do(OpenClaim("r", self.number, 1, most, 10**6, ttl_ms))

    def give_up(self, way: Any = "divide", most: int = 10, drop: bool = False) -> Any:
        return self.queue.do(GiveUpClaim("r", self.number, 1, way, most, drop))

    def search(self) -> tuple[int, bool, int]:
        """Messages in parts, whether one is due, failures in a row."""
        (of,) = self.queue.stat().readers
        return of.in_parts, of.part_due, of.failed_in_row

    def settle(self) -> int:
        return int(self.queue.do(SettleClaims("r", self.number, 1)).messages)

    def dead(self) -> list[tuple[str, int, int]]:
        """(reason, delivery count, ordinal) of what the last entry has dead-lettered."""
        return [
            (effect.reason, effect.delivery_count, ordinal)
            for effect in self.queue.of(DeadLetter)
            for _, first, last in effect.runs
            for ordinal in range(first, last + 1)
        ]


def ordinals(reply: ClaimReply) -> list[int]:
    return [i for _, first, last, _, _ in reply.runs for i in range(first, last + 1)]


def test_a_divided_claim_is_empty_and_its_halves_are_the_next_claims_in_order() -> None:
    reading = Reading(7)
    assert ordinals(reading.open(5)) == [0, 1, 2, 3, 4]
    reading.queue.put(1, priorities=31)
    assert reading.give_up() == Count(5)
    assert reading.queue.stat().messages_claimed == 5 and reading.queue.stat().messages_ready == 3
    assert reading.queue.do(OpenClaim("r", 1, 1, 9, 9)) == EmptyClaim(1)
    assert reading.settle() == 0
    half = reading.open(1)  # a part is claimed whole
    assert (ordinals(half), half.origin) == ([0, 1], HALF)
    assert reading.settle() == 2
    assert ordinals(reading.open()) == [2, 3, 4]
    assert reading.settle() == 3
    later = reading.open(3)
    assert (later.messages, later.origin) == (3, UNDIVIDED)


def test_giving_up_twice_is_harmless_and_of_a_settled_claim_nothing() -> None:
    reading = Reading()
    reading.open()
    assert [reading.give_up(), reading.give_up(), reading.give_up("release")] == [
        Count(8),
        Count(0),
        Count(0),
    ]
    reading.settle()
    assert reading.give_up() == Count(0)
    reading.number += 1
    assert reading.give_up().reason == "claim_lost"
    assert reading.queue.do(GiveUpClaim("r", 1, 0, "divide", 9)).reason == "fenced"
    assert reading.queue.do(GiveUpClaim("x", 1, 1, "divide", 9)).reason == "unknown_reader"


def test_a_message_that_failed_alone_waits_until_another_claim_has_passed() -> None:
    reading = Reading(1, **DEAD)
    reading.open()
    assert reading.give_up() == Count(1)
    reading.settle()
    assert reading.open().messages == 0, "nothing else is there, and nothing has passed"
    reading.number -= 1
    other = reading.queue.put(1)
    passing = reading.open()
    assert passing.runs[0][0] == other and passing.origin == UNDIVIDED
    reading.settle()
    again = reading.open()
    assert (again.origin, again.messages, again.runs[0][0]) == (ALONE, 1, reading.index)
    assert reading.give_up("divide").reason == "invalid"
    assert reading.give_up("reject") == Count(1)
    assert reading.dead() == [("rejected", 1, 0)]
    assert reading.settle() == 0 and reading.queue.stat().messages_claimed == 0


def test_the_last_message_of_a_claim_needs_only_one_that_passed_before() -> None:
    reading = Reading(2, **DEAD)
    reading.open()
    reading.give_up()
    reading.settle()
    reading.open()
    reading.settle()  # ordinal 0 passes
    reading.open()
    reading.give_up()  # ordinal 1 fails alone
    reading.settle()
    assert reading.open().origin == ALONE


def test_two_in_a_row_wait_even_then() -> None:
    reading = Reading(4, **DEAD)
    reading.open()
    reading.give_up()  # [0 1] [2 3]
    reading.settle()
    reading.open()
    reading.settle()
    reading.open()
    reading.give_up()  # [2] [3]
    reading.settle()
    for _ in range(2):
        reading.open()
        reading.give_up()
        reading.settle()
    assert reading.search() == (2, False, 2)
    assert reading.open().messages == 0
    reading.number -= 1
    reading.queue.put(1)
    reading.open()
    reading.settle()
    assert reading.search() == (2, True, 0)
    assert ordinals(reading.open()) == [2]


def test_when_nothing_passes_the_search_ends_and_nothing_is_rejected() -> None:
    reading = Reading(64, **DEAD)
    rejected = 0
    for _ in range(200):
        claim = reading.open()
        way = "reject" if claim.origin == ALONE else "divide"
        reply = reading.give_up(way, 5)
        rejected += len(reading.dead())
        if not isinstance(reply, Count):
            assert reply.reason == "failed_in_row"
            break
        reading.settle()
    assert rejected == 0
    assert reading.search() == (63, True, 5)
    assert reading.settle() == 1, "it passes at last, and the others are tried again"
    assert ordinals(reading.open()) == [6, 7]


def test_claims_that_are_rejected_count_and_one_that_passes_ends_the_count() -> None:
    reading = Reading(10, **DEAD)
    for _ in range(2):
        reading.open(2)
        assert reading.give_up("reject", 2) == Count(2)
        assert [row[:2] for row in reading.dead()] == [("rejected", 1)] * 2
        reading.settle()
    reading.open(2)
    assert reading.give_up("reject", 2).reason == "failed_in_row"
    assert reading.settle() == 2
    reading.open(2)
    assert reading.give_up("reject", 2) == Count(2)


def test_without_a_dead_letter_exchange_messages_are_dropped_only_on_request() -> None:
    reading = Reading(3)
    reading.open()
    assert "no dead letter exchange" in reading.give_up("reject").detail
    assert reading.queue.stat().messages_claimed == 3
    assert reading.give_up("reject", drop=True) == Count(3)
    assert reading.queue.stat().messages_claimed == 0 and not reading.dead()


def test_letters_are_kept_until_they_are_confirmed() -> None:
    reading = Reading(2, dead_letter_strategy="at-least-once", overflow="reject-publish", **DEAD)
    reading.open()
    reading.give_up("reject")
    assert reading.queue.stat().messages_dlx == 2 and reading.queue.stat().messages_claimed == 0


def test_released_messages_are_failed_deliveries_and_leave_at_the_limit() -> None:
    reading = Reading(2, delivery_limit=1, **DEAD)
    reading.open()
    assert reading.give_up("release") == Count(2)
    reading.settle()
    assert reading.open().runs == ((reading.index, 0, 1, 1, 1),)
    reading.give_up("release")
    assert reading.dead() == [("delivery_limit", 2, 0), ("delivery_limit", 2, 1)]


def test_a_claim_that_a_batch_decides_about_is_not_given_up() -> None:
    reading = Reading()
    reading.open()
    binding = ClaimBinding("out", 7, "s", "run", 1, 1)
    reading.queue.do(BindClaim("r", 1, 1, binding))
    assert reading.give_up() == BoundClaim(1, binding)


def test_parts_expire_with_their_claims_and_are_renewed_with_them() -> None:
    reading = Reading(4)
    reading.open(ttl_ms=100)
    reading.give_up()
    reading.settle()
    reading.queue.tick(60)
    reading.queue.do(RenewClaims("r", 1))
    reading.queue.tick(60)
    assert reading.open(ttl_ms=100).messages == 2
    reading.queue.tick(101)
    stat = reading.queue.stat()
    assert (stat.messages_ready, stat.messages_claimed, reading.search()) == (4, 0, (0, False, 0))


def test_releasing_the_reader_returns_its_parts() -> None:
    reading = Reading(6)
    reading.open(4)
    reading.give_up()
    reading.settle()
    reading.open()
    assert reading.queue.do(ReleaseClaim("r", 0, -1)) == Count(4)
    assert sorted(at for _, at in reading.queue.ready()) == list(range(6))


def test_a_reader_with_parts_is_not_forgotten_and_a_purge_leaves_them() -> None:
    reading = Reading(4)
    reading.queue.do(RegisterReader("r", expires_ms=50))
    reading.queue.do(OpenClaim("r", 1, 2, 9, 999))
    reading.queue.do(GiveUpClaim("r", 1, 2, "divide", 9))
    reading.queue.do(SettleClaims("r", 1, 2))
    reading.queue.do(Purge())
    reading.queue.tick(200)
    assert reading.queue.do(OpenClaim("r", 2, 2, 9, 999)).messages == 2


def test_parts_keep_an_auto_delete_queue_and_the_last_rejected_claim_ends_it() -> None:
    reading = Reading(2, auto_delete=True, **DEAD)
    reading.queue.state.ever_used = True
    reading.open(uses=True)
    reading.give_up()
    reading.settle()
    assert not reading.queue.of(Expired)
    reading.open()
    reading.settle()
    assert not reading.queue.of(Expired)
    reading.open()
    reading.give_up("reject")
    assert reading.queue.of(Expired)


def test_parts_are_no_one_elses() -> None:
    reading = Reading(4)
    reading.open()
    reading.give_up()
    reading.settle()
    reading.queue.do(Checkout(1, 1, "c", 10))
    assert reading.queue.names() == []


@pytest.mark.parametrize("seed", range(20))
def test_a_search_finds_exactly_the_messages_at_fault_in_few_claims(seed: int) -> None:
    random = Random(seed)
    count = random.randint(2, 300)
    bad = set(random.sample(range(count - 1), random.randint(0, min(6, count - 1))))
    reading = Reading(count, **DEAD)
    dead: set[int] = set()
    passed: list[int] = []
    failures = 0
    while True:
        claim = reading.open(random.randint(1, count))
        if not claim.messages:
            break
        if bad & set(ordinals(claim)):
            failures += 1
            reading.give_up("reject" if claim.origin == ALONE else "divide")
            dead |= {at for *_, at in reading.dead()}
            reading.queue.state = reading.queue.machine.restore(reading.queue.digest())
        else:
            passed += ordinals(claim)
        reading.settle()
    waiting = {i for part in reading.queue.state.readers["r"].parts for i in [part.runs[0][1]]}
    assert (
        dead | waiting == bad
        and len(waiting) <= len(bad)
        and sorted(passed) == sorted(set(range(count)) - bad)
    )
    assert failures <= len(bad) * (count.bit_length() + 2)
