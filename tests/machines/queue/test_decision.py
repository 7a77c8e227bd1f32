"""A batch decides about a claim: bound, resolved, asked, in all orders."""

from __future__ import annotations

import pytest

from tests.machines.queue.stages import Stages
from tests.machines.queue.test_claim import claim, reading
from tests.machines.queue.world import Queue
from warren_machines.queue.claims.decision_commands import (
    AskBatch,
    BatchFate,
    BindClaim,
    BoundClaim,
    ClaimBinding,
    ClaimName,
    ResolveClaim,
)
from warren_machines.queue.commands import (
    AnyReply,
    Count,
    Done,
    Refused,
    RegisterReader,
    ReleaseClaim,
    RenewClaims,
    SettleClaims,
    SinkPublish,
)
from warren_machines.queue.queue_snapshot import restore, snapshot
from warren_machines.queue.sinks import stage as stage_module

BATCH = ClaimBinding("out", 7, "s", "r", 3, 1)
LATER = ClaimBinding("out", 7, "s", "r", 4, 1)
CLAIM = ClaimName(5, "r", 1)
OTHER = ClaimName(5, "r", 2)
OPERATOR = -1


def bound(ttl_ms: int = 0) -> Queue:
    """A queue with 10 messages, 4 of them in claim 1, which is bound to BATCH."""
    queue = reading()
    claim(queue, ttl_ms=ttl_ms)
    assert queue.do(BindClaim("r", 1, 1, BATCH)) == Done()
    return queue


def settling(sink: Stages, batch: int, *claims: ClaimName, attempt: int = 0) -> SinkPublish:
    """Publish partition 0 for these claims; none given: CLAIM."""
    attempts = ((0, attempt, 1),)
    return SinkPublish(sink.sink, sink.run, sink.epoch, batch, attempts, claims or (CLAIM,))


def ready(queue: Queue) -> tuple[int, int]:
    """(ready, claimed) messages."""
    found = queue.stat()
    return found.messages_ready, found.messages_claimed


def reason(reply: AnyReply) -> str:
    assert isinstance(reply, Refused), reply
    return reply.reason


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("epoch", [1, OPERATOR])
def test_a_bound_claim_is_not_given_back(number: int, epoch: int) -> None:
    queue = bound()
    assert queue.do(ReleaseClaim("r", number, epoch)) == BoundClaim(1, BATCH)
    assert ready(queue) == (6, 4)


def test_a_bound_claim_does_not_expire_and_a_freed_one_does() -> None:
    queue = bound(ttl_ms=100)
    queue.do(RenewClaims("r", 1))
    queue.tick(1_000)
    assert ready(queue) == (6, 4)
    assert queue.do(ResolveClaim("r", 1, BATCH, False)) == Count(0)
    queue.tick(99)
    assert ready(queue) == (6, 4)
    queue.tick(1)
    assert ready(queue) == (10, 0)


def test_published_settles_and_a_repeat_by_any_driver_is_answered() -> None:
    queue = bound()
    assert queue.do(ResolveClaim("r", 1, BATCH, True)) == Count(4)
    assert ready(queue) == (6, 0)
    assert queue.do(ResolveClaim("r", 1, BATCH, True)) == Count(0)
    queue.do(RegisterReader("r"))
    newer = ClaimBinding("out", 7, "s", "r", 3, 9)
    assert queue.do(BindClaim("r", 1, 2, newer)) == Done()
    assert reason(queue.do(BindClaim("r", 1, 2, LATER))) == "claim_lost"
    assert reason(queue.do(BindClaim("r", 1, 1, newer))) == "fenced"
    assert ready(queue) == (6, 0)


def test_a_plain_settle_of_a_bound_claim_is_remembered_too() -> None:
    queue = bound()
    assert queue.do(SettleClaims("r", 1, 1)) == Count(4)
    assert queue.do(BindClaim("r", 1, 1, BATCH)) == Done()


def test_a_claim_is_bound_to_one_batch_until_that_is_resolved() -> None:
    queue = bound()
    assert queue.do(BindClaim("r", 1, 1, LATER)) == BoundClaim(1, BATCH)
    assert queue.do(ResolveClaim("r", 1, LATER, False)) == Count(0)
    assert queue.do(BindClaim("r", 1, 1, LATER)) == BoundClaim(1, BATCH)
    assert queue.do(ResolveClaim("r", 1, BATCH, False)) == Count(0)
    assert queue.do(BindClaim("r", 1, 1, LATER)) == Done()
    assert queue.do(ReleaseClaim("r", 1, 1)) == BoundClaim(1, LATER)


def test_only_an_open_claim_of_the_current_driver_is_bound() -> None:
    queue = reading()
    assert reason(queue.do(BindClaim("r", 1, 1, BATCH))) == "claim_lost"
    assert reason(queue.do(BindClaim("other", 1, 1, BATCH))) == "unknown_reader"
    claim(queue)
    assert queue.do(ReleaseClaim("r", 1, 1)) == Count(4)
    assert reason(queue.do(BindClaim("r", 1, 1, BATCH))) == "claim_lost"
    assert queue.do(ResolveClaim("other", 1, BATCH, True)) == Count(0)
    assert ready(queue) == (10, 0)


def test_the_batch_that_was_published_stays_published() -> None:
    queue, sink = Queue(), Stages()
    sink.put(queue, 3, 0)
    queue.do(settling(sink, 3))
    assert queue.do(AskBatch("s", "r", 3, 1, CLAIM)) == BatchFate("published")
    assert queue.do(AskBatch("s", "r", 2, 1, CLAIM)) == BatchFate("closed")


def test_a_closed_batch_is_never_published() -> None:
    queue, sink = Queue(), Stages()
    sink.put(queue, 3, 0)
    assert queue.do(AskBatch("s", "r", 3, 1, CLAIM)) == BatchFate("closed")
    assert queue.stat().messages_staged == 0
    assert reason(queue.do(settling(sink, 3))) == "batch_past"
    assert queue.do(AskBatch("s", "r", 3, 1, CLAIM)) == BatchFate("closed")
    sink.put(queue, 4, 0)
    assert isinstance(queue.do(settling(sink, 4)), Count)


def test_a_batch_is_closed_before_anything_of_it_is_staged() -> None:
    queue, sink = Queue(), Stages()
    assert queue.do(AskBatch("s", "r", 3, 1, CLAIM)) == BatchFate("closed")
    assert reason(queue.do(settling(sink, 3))) == "batch_past"


def test_what_a_forgotten_run_has_published_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "RUNS_MAX", 1)
    queue = Queue()
    for epoch, run in enumerate(("old", "new"), 1):
        sink = Stages(run=run, epoch=epoch)
        sink.put(queue, 3, 0)
        queue.do(settling(sink, 3))
    assert queue.do(AskBatch("s", "old", 3, 1, CLAIM)) == BatchFate("unknown")
    assert queue.do(AskBatch("s", "new", 3, 2, CLAIM)) == BatchFate("published")
    assert queue.do(AskBatch("s", "another", 3, 2, CLAIM)) == BatchFate("closed")


def test_a_batch_before_those_remembered_is_unknown() -> None:
    queue, sink = Queue(), Stages()
    for batch in range(stage_module.BATCHES_KEPT + 2):
        sink.put(queue, batch * 2, 0)
        queue.do(settling(sink, batch * 2))
    assert queue.do(AskBatch("s", "r", 0, 1, CLAIM)) == BatchFate("unknown")
    assert queue.do(AskBatch("s", "r", 5, 1, CLAIM)) == BatchFate("closed")
    assert queue.do(AskBatch("s", "r", 4, 1, CLAIM)) == BatchFate("published")


def test_a_restored_member_knows_bindings_and_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = bound(ttl_ms=50)
    queue.do(ResolveClaim("r", 1, BATCH, True))
    claim(queue, 2)
    queue.do(BindClaim("r", 2, 1, LATER))
    monkeypatch.setattr(stage_module, "RUNS_MAX", 1)
    for run in ("old", "new"):
        queue.do(AskBatch("s", run, 3, 1, CLAIM))
    again = restore(snapshot(queue.state))
    again.check()
    assert snapshot(again) == snapshot(queue.state)
    reader = again.readers["r"]
    assert reader.decided == (1, BATCH)
    assert reader.claims[2].binding == LATER
    assert again.forgotten_epoch == 1


def test_a_batch_settles_only_the_claims_with_which_it_was_published() -> None:
    queue, sink = Queue(), Stages()
    sink.put(queue, 3, 0)
    queue.do(settling(sink, 3))
    assert reason(queue.do(settling(sink, 3, OTHER))) == "batch_conflict"
    assert queue.do(AskBatch("s", "r", 3, 1, OTHER)) == BatchFate("closed")
    assert queue.do(AskBatch("s", "r", 3, 1, CLAIM)) == BatchFate("published")
    sink.put(queue, 3, 0, 1)
    count = queue.do(settling(sink, 3, attempt=1))
    assert isinstance(count, Count) and queue.do(settling(sink, 3, attempt=1)) == count
    assert queue.do(AskBatch("s", "r", 3, 1, CLAIM)) == BatchFate("published")


@pytest.mark.parametrize("closed", [False, True])
def test_a_batch_published_before_it_had_claims_gets_them_unless_closed(closed: bool) -> None:
    queue, sink = Queue(), Stages()
    sink.put(queue, 3, 0)
    queue.do(sink.publish(3, (0, 0, 1)))
    if closed:
        assert queue.do(AskBatch("s", "r", 3, 1, CLAIM)) == BatchFate("closed")
    reply = queue.do(settling(sink, 3))
    assert (reason(reply) == "batch_conflict") if closed else isinstance(reply, Count)
    fate = queue.do(AskBatch("s", "r", 3, 1, CLAIM))
    assert fate == BatchFate("closed" if closed else "published")
    assert isinstance(queue.do(sink.publish(3, (0, 0, 1))), Count)
