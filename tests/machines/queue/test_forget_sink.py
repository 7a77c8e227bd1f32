"""An operator has a queue forget a sink: what goes, what stays, what its next batch does."""

from __future__ import annotations

import pytest

from tests.machines.queue.stages import Stages
from tests.machines.queue.world import Queue
from warren_machines.queue.claims.decision_commands import AskBatch, BatchFate, ClaimName
from warren_machines.queue.commands import Count, ForgetSink, Refused, SinkForgotten
from warren_machines.queue.queue_snapshot import restore, snapshot
from warren_machines.queue.view import sinks_of

CLAIM = ClaimName(7, "reader", 1)


def publish(queue: Queue, sink: Stages, batch: int) -> object:
    """Stage and publish a batch of two messages."""
    sink.put(queue, batch, 0)
    return queue.do(sink.publish(batch, (0, 0, 1)))


def runs(queue: Queue, sink: str = "s") -> list[str]:
    _, rows = sinks_of(queue.state, sink, "", 100)
    return sorted(row[1] for row in rows)


def refused(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    return reply.reason


def test_all_runs_of_a_sink_or_one_are_forgotten_and_no_other_sink() -> None:
    queue = Queue()
    for run in "abc":
        publish(queue, Stages("s", run), 5)
    publish(queue, Stages("other", "a"), 5)
    assert queue.do(ForgetSink("s", "b")) == SinkForgotten(1, 0)
    assert runs(queue) == ["a", "c"]
    assert queue.do(ForgetSink("s", "b")) == SinkForgotten(0, 0)
    assert queue.do(ForgetSink("s")) == SinkForgotten(2, 0)
    assert runs(queue) == [] and "s" not in queue.state.runs
    assert queue.do(ForgetSink("s")) == SinkForgotten(0, 0)
    assert runs(queue, "other") == ["a"]
    assert queue.stat().messages_ready == 8


def test_a_sink_with_a_staged_batch_is_forgotten_by_force_only() -> None:
    queue, idle, sink = Queue(), Stages("s", "idle"), Stages("s", "busy")
    publish(queue, idle, 5)
    publish(queue, sink, 5)
    sink.put(queue, 6, 0)
    sink.put(queue, 6, 1)
    for run in ("", "busy"):
        reply = queue.do(ForgetSink("s", run))
        assert refused(reply) == "sink_in_use"
        assert isinstance(reply, Refused) and "run 'busy'" in reply.detail
        assert "batch 6" in reply.detail and "2 in all" in reply.detail
    assert runs(queue) == ["busy", "idle"] and queue.stat().messages_staged == 4
    assert queue.do(ForgetSink("s", "idle")) == SinkForgotten(1, 0)
    assert queue.do(ForgetSink("s", forced=True)) == SinkForgotten(1, 4)
    assert queue.stat().messages_staged == 0 and queue.stat().messages_ready == 4
    assert refused(queue.do(sink.publish(6, (0, 0, 1), (1, 0, 1)))) == "stage_lost"
    sink.put(queue, 6, 0)
    assert queue.do(sink.publish(6, (0, 0, 1))) == Count(2), "its restart writes the batch again"


def test_a_staged_repeat_holds_no_messages_and_is_in_use_all_the_same() -> None:
    queue, sink = Queue(), Stages()
    publish(queue, sink, 5)
    sink.put(queue, 5, 0, 1)
    assert refused(queue.do(ForgetSink("s"))) == "sink_in_use"
    assert queue.do(ForgetSink("s", forced=True)) == SinkForgotten(1, 0)
    assert queue.stat().messages_ready == 2


def test_stages_that_expire_end_the_use() -> None:
    queue, sink = Queue(), Stages()
    sink.put(queue, 0, 0, ttl_ms=100)
    assert refused(queue.do(ForgetSink("s"))) == "sink_in_use"
    queue.now += 100
    queue.tick(0)
    assert queue.do(ForgetSink("s")) == SinkForgotten(1, 0)


@pytest.mark.parametrize("batch", [0, 5, 6])
def test_the_next_batch_of_a_forgotten_run_is_a_new_run_s_whatever_its_number(batch: int) -> None:
    """Batch 5 was published: again it is published again, as the documentation says."""
    queue, sink = Queue(), Stages()
    publish(queue, sink, 5)
    queue.do(ForgetSink("s"))
    assert publish(queue, sink, batch) == Count(2)
    assert queue.stat().messages_ready == 4
    assert publish(queue, sink, batch) == Count(2)
    assert queue.stat().messages_ready == 4, "from then on a repeat is recognised"


def test_an_older_driver_is_fenced_again_when_the_newer_one_has_written() -> None:
    queue, old, new = Queue(), Stages(epoch=1), Stages(epoch=2)
    publish(queue, new, 5)
    queue.do(ForgetSink("s"))
    publish(queue, new, 6)
    assert refused(queue.do(old.publish(7))) == "fenced"


def test_no_claim_is_given_back_because_its_published_batch_was_forgotten() -> None:
    queue, sink = Queue(), Stages()
    publish(queue, sink, 5)
    queue.do(ForgetSink("s"))
    again = restore(snapshot(queue.state))
    assert again.forgotten_epoch == queue.state.forgotten_epoch == 1
    assert queue.do(AskBatch("s", "r", 5, 1, CLAIM)) == BatchFate("unknown")
    assert queue.do(AskBatch("s", "r", 5, 2, CLAIM)) == BatchFate("closed")


def test_bounds_count_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren_machines.queue.sinks.stage.RUNS_MAX", 2)
    queue = Queue()
    for run in "ab":
        publish(queue, Stages("s", run), 0)
    queue.do(ForgetSink("s", "a"))
    publish(queue, Stages("s", "c"), 0)
    assert runs(queue) == ["b", "c"]
