"""Readers and runs of sinks that are forgotten after silence, by what they have said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.stages import Stages
from tests.machines.queue.world import Queue
from warren_machines.queue.claims.decision_commands import (
    AskBatch,
    BatchFate,
    BindClaim,
    ClaimBinding,
    ClaimName,
)
from warren_machines.queue.commands import (
    Count,
    OpenClaim,
    ReaderReply,
    RegisterReader,
    ReleaseClaim,
    RenewClaims,
    SettleClaims,
    SinkPublish,
)

EXPIRES_MS = 1_000
CLAIM = ClaimName(7, "reader", 1)


def reading(expires_ms: int = EXPIRES_MS) -> Queue:
    """A queue of four messages with a reader that expires."""
    queue = Queue()
    queue.put(4)
    queue.do(RegisterReader("r", expires_ms=expires_ms))
    return queue


def claim(queue: Queue, number: int = 1, ttl_ms: int = 0) -> Any:
    return queue.do(OpenClaim("r", number, 1, 2, 10**6, ttl_ms))


def names(queue: Queue) -> list[str]:
    return [reader.name for reader in queue.stat().readers]


def passes(queue: Queue, ms: int) -> None:
    """Let time pass as the leader does: a timer's entry whenever one is due."""
    end = queue.now + ms
    while (due := queue.state.timer_ms) and due <= end:
        queue.now = max(queue.now, due)
        queue.tick(0)
        assert queue.state.timer_ms != due, "the timer is armed anew, or not at all"
    queue.now = end


def publish(queue: Queue, batch: int, expires_ms: int = EXPIRES_MS, run: str = "run") -> None:
    sink = Stages(run=run)
    sink.put(queue, batch, 0)
    assert queue.do(SinkPublish("s", run, 1, batch, ((0, 0, 1),), expires_ms=expires_ms)) == Count(
        2
    )


def runs(queue: Queue) -> list[str]:
    return sorted(queue.state.runs.get("s", {}))


# ------------------------------------------------------------ readers


def test_a_silent_reader_is_forgotten_when_its_time_is_over_and_not_before() -> None:
    queue = reading()
    assert queue.stat().readers[0].forgotten_ms == queue.now + EXPIRES_MS
    passes(queue, EXPIRES_MS - 1)
    assert names(queue) == ["r"]
    passes(queue, 1)
    assert names(queue) == []


def test_a_reader_that_says_nothing_of_it_stays() -> None:
    queue = reading(0)
    assert queue.state.timer_ms == 0
    passes(queue, 1_000 * EXPIRES_MS)
    assert names(queue) == ["r"]


def test_a_living_reader_stays_however_long_it_reads_nothing() -> None:
    queue = reading()
    for _ in range(50):
        passes(queue, EXPIRES_MS - 1)
        queue.do(RenewClaims("r", 1))
    assert names(queue) == ["r"]
    passes(queue, EXPIRES_MS)
    assert names(queue) == []


@pytest.mark.parametrize("how", ["settled", "released by an operator", "expired"])
def test_a_reader_with_messages_stays_until_they_are_another_s(how: str) -> None:
    queue = reading()
    claim(queue, ttl_ms=20 * EXPIRES_MS if how == "expired" else 0)
    passes(queue, 10 * EXPIRES_MS)
    assert names(queue) == ["r"] and queue.stat().messages_claimed == 2
    if how == "settled":
        assert queue.do(SettleClaims("r", 1, 1)) == Count(2)
        assert names(queue) == ["r"], "a request is a sign of life"
    elif how == "expired":
        passes(queue, 10 * EXPIRES_MS)
    else:
        assert queue.do(ReleaseClaim("r", 1, -1)) == Count(2)
    passes(queue, 2 * EXPIRES_MS)
    assert names(queue) == []
    assert queue.stat().messages_ready == (2 if how == "settled" else 4)


def test_a_claim_that_a_batch_decides_about_keeps_its_reader() -> None:
    queue = reading()
    claim(queue)
    queue.do(BindClaim("r", 1, 1, ClaimBinding("out", 7, "s", "run", 1, 3)))
    passes(queue, 10 * EXPIRES_MS)
    assert names(queue) == ["r"] and queue.stat().messages_claimed == 2


def test_no_number_of_an_expired_reader_is_used_again() -> None:
    queue = reading()
    claim(queue)
    queue.do(SettleClaims("r", 1, 1))
    passes(queue, EXPIRES_MS)
    assert queue.do(SettleClaims("r", 1, 1)).reason == "unknown_reader"
    assert queue.do(RegisterReader("r")) == ReaderReply(2, 2, 1)
    assert queue.do(OpenClaim("r", 2, 2, 2, 10**6)).reason == "claim_lost"


def test_the_latest_registration_says_whether_the_reader_expires() -> None:
    queue = reading()
    queue.do(RegisterReader("r"))
    passes(queue, 10 * EXPIRES_MS)
    assert names(queue) == ["r"]
    queue.do(RegisterReader("r", expires_ms=3 * EXPIRES_MS))
    passes(queue, 3 * EXPIRES_MS - 1)
    assert names(queue) == ["r"]
    passes(queue, 1)
    assert names(queue) == []


def test_a_delayed_repeat_of_a_registration_changes_nothing() -> None:
    queue = Queue()
    for expires_ms in (0, EXPIRES_MS):
        queue.do(RegisterReader("r", 0, "call", expires_ms=expires_ms))
    passes(queue, 2 * EXPIRES_MS)
    assert names(queue) == ["r"]


def test_a_restored_member_forgets_at_the_same_entry() -> None:
    queue = reading()
    publish(queue, 1, 2 * EXPIRES_MS)
    queue.state = queue.machine.restore(queue.digest())
    passes(queue, EXPIRES_MS)
    assert (names(queue), runs(queue)) == ([], ["run"])
    queue.state = queue.machine.restore(queue.digest())
    passes(queue, EXPIRES_MS)
    assert (names(queue), runs(queue)) == ([], [])


# ------------------------------------------------------------ runs of sinks


def test_a_silent_run_is_forgotten_when_its_time_is_over_and_not_before() -> None:
    queue = Queue()
    publish(queue, 1)
    publish(queue, 1, 0, "stays")
    passes(queue, EXPIRES_MS - 1)
    publish(queue, 2)
    passes(queue, EXPIRES_MS - 1)
    assert runs(queue) == ["run", "stays"]
    passes(queue, 1)
    assert runs(queue) == ["stays"]
    assert queue.stat().messages_ready == 6


def test_a_run_that_writes_a_batch_stays_until_its_stages_are_gone() -> None:
    queue, sink = Queue(), Stages(run="run")
    publish(queue, 1)
    sink.put(queue, 2, 0, ttl_ms=10 * EXPIRES_MS)
    passes(queue, 9 * EXPIRES_MS)
    assert runs(queue) == ["run"] and queue.stat().messages_staged == 2
    passes(queue, 3 * EXPIRES_MS)
    assert runs(queue) == [] and queue.stat().messages_staged == 0


def test_a_stage_is_a_sign_of_life() -> None:
    queue, sink = Queue(), Stages(run="run")
    publish(queue, 1)
    passes(queue, EXPIRES_MS - 1)
    sink.put(queue, 2, 0)
    passes(queue, EXPIRES_MS - 1)
    publish(queue, 3)
    assert queue.state.runs["s"]["run"].last_batch == 3


def test_the_next_batch_of_an_expired_run_is_taken_and_a_repeat_is_published_again() -> None:
    """What the documentation warns of: sinkExpires is longer than a pause within a batch."""
    queue = Queue()
    publish(queue, 5)
    repeat = SinkPublish("s", "run", 1, 5, ((0, 0, 1),), expires_ms=EXPIRES_MS)
    assert queue.do(repeat) == Count(2)
    assert queue.stat().messages_ready == 2
    passes(queue, EXPIRES_MS)
    publish(queue, 5)
    assert queue.stat().messages_ready == 4
    passes(queue, EXPIRES_MS)
    publish(queue, 6)
    assert queue.stat().messages_ready == 6


def test_no_claim_is_given_back_because_the_run_of_its_published_batch_expired() -> None:
    queue = Queue()
    publish(queue, 5)
    passes(queue, EXPIRES_MS)
    assert queue.do(AskBatch("s", "run", 5, 1, CLAIM)) == BatchFate("unknown")


@pytest.mark.parametrize("same", [True, False])
def test_a_repeat_renews_the_time_and_says_it_anew(same: bool) -> None:
    queue, sink = Queue(), Stages(run="run")
    publish(queue, 5)
    passes(queue, EXPIRES_MS - 1)
    if not same:
        sink.put(queue, 5, 0, 1)
    attempts = ((0, 0 if same else 1, 1),)
    assert queue.do(SinkPublish("s", "run", 1, 5, attempts)) == Count(2)
    passes(queue, 10 * EXPIRES_MS)
    assert runs(queue) == ["run"], "the latest publish says that it does not expire"
