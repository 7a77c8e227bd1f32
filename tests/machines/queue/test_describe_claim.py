"""What is noted about the batch that reads a claim, and that nothing is decided by it."""

from __future__ import annotations

import pytest

from tests.machines.queue.world import Queue
from warren_machines.queue.commands import (
    Done,
    OpenClaim,
    RegisterReader,
    ReleaseClaim,
    SettleClaims,
)
from warren_wire.queue_values.describe_command import DescribeClaim, ReadBy


def batch(number: int) -> ReadBy:
    return ReadBy("0d3c", "orders", number)


def reading(claims: int = 1, ttl_ms: int = 0) -> Queue:
    """A reader with that many claims of a message each."""
    queue = Queue()
    queue.put(5)
    queue.do(RegisterReader("r"))
    for number in range(1, claims + 1):
        queue.do(SettleClaims("r", number - 1, 1))
        queue.do(OpenClaim("r", number, 1, 1, 10**6, ttl_ms))
    return queue


def described(queue: Queue) -> object:
    """What is noted of the first reader."""
    return queue.stat().readers[0].described


def describe(queue: Queue, claim: int, number: int, reader: str = "r") -> object:
    return queue.do(DescribeClaim(reader, claim, batch(number)))


def test_the_batch_that_reads_an_open_claim_is_shown_also_after_it_was_settled() -> None:
    queue = reading()
    assert described(queue) is None
    assert describe(queue, 1, 41) == Done()
    assert described(queue) == (1, batch(41))
    queue.do(SettleClaims("r", 1, 1))
    queue.state = queue.machine.restore(queue.digest())
    assert described(queue) == (1, batch(41))
    queue.do(ReleaseClaim("r", 0, -1))
    assert not queue.stat().readers


@pytest.mark.parametrize(("reader", "claim"), [("r", 0), ("r", 1), ("r", 3), ("unknown", 2)])
def test_a_note_about_a_claim_that_is_not_open_changes_nothing(reader: str, claim: int) -> None:
    queue = reading(2)
    describe(queue, 2, 8)
    before = queue.digest()
    assert describe(queue, claim, 7, reader) == Done()
    assert described(queue) == (2, batch(8))
    assert queue.machine.restore(before).readers.keys() == queue.state.readers.keys()


def test_a_late_note_does_not_replace_that_of_a_later_claim_and_a_repeat_does() -> None:
    queue = reading()
    queue.state.readers["r"].described = (2, batch(8))
    describe(queue, 1, 7)
    assert described(queue) == (2, batch(8))
    queue = reading()
    for number in (7, 9):
        describe(queue, 1, number)
    assert described(queue) == (1, batch(9))


def test_a_note_is_no_sign_of_life_and_renews_nothing() -> None:
    queue = reading(ttl_ms=50)
    queue.do(RegisterReader("idle", expires_ms=80))
    heard = [of.heard_ms for of in queue.stat().readers]
    queue.now += 40
    describe(queue, 1, 7)
    describe(queue, 1, 7, "idle")
    assert [of.heard_ms for of in queue.stat().readers] == heard
    queue.tick(10)
    assert queue.stat().messages_claimed == 0
    queue.tick(30)
    assert [reader.name for reader in queue.stat().readers] == ["r"]
