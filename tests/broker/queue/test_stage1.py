"""Stages as versions 1 and 2 of the machine had them: logs that hold them apply as they did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.queue.stages import StagesOfVersion2, half_expired
from tests.broker.queue.world import Queue, block
from warren_machines.queue import stage1
from warren_machines.queue.commands import Count, Done
from warren_machines.queue.stage1_commands import DropStages, PublishBatch, Stage

put = StagesOfVersion2().put


def publish(queue: Queue, batch: int, *attempts: tuple[int, int]) -> Any:
    return queue.do(PublishBatch("s", batch, attempts))


def test_losing_attempts_are_dropped() -> None:
    queue = Queue()
    put(queue, 0, 0, 0)
    winner = put(queue, 0, 0, 1)
    put(queue, 0, 1, 0)
    assert publish(queue, 0, (0, 1)) == Count(2)
    assert queue.machine.live_indexes(queue.state) == (winner,)
    assert queue.stat().messages_staged == 0


def test_a_batch_that_was_published_is_acknowledged_and_dropped() -> None:
    queue = Queue()
    put(queue, 3, 0)
    assert publish(queue, 3, (0, 0)) == Count(2)
    assert publish(queue, 3, (0, 0)) == Count(0)
    assert publish(queue, 2, (0, 0)) == Count(0)
    put(queue, 3, 0, 5)
    put(queue, 1, 0)
    assert queue.stat().messages_staged == 0 and queue.stat().messages_ready == 2


def test_the_first_batch_is_0() -> None:
    queue = Queue()
    put(queue, 0, 0)
    assert publish(queue, 0, (0, 0)) == Count(2)


def test_older_batches_of_the_sink_go_and_later_ones_and_other_sinks_stay() -> None:
    queue = Queue()
    put(queue, 0, 0)
    put(queue, 1, 0)
    later = put(queue, 2, 0)
    queue.do(Stage("other", 0, 0, 0), block(1))
    other = queue.index
    assert publish(queue, 1) == Count(0)
    assert queue.machine.live_indexes(queue.state) == (later, other)
    assert publish(queue, 2, (0, 0)) == Count(2)


def test_an_attempt_that_staged_nothing_here_counts_as_empty() -> None:
    queue = Queue()
    put(queue, 0, 1)
    assert publish(queue, 0, (0, 0), (1, 0), (2, 7)) == Count(2)


def test_an_attempt_named_twice_is_published_once() -> None:
    queue = Queue()
    put(queue, 0, 0)
    assert publish(queue, 0, (0, 0), (0, 0)) == Count(2)


def test_an_aborted_batch_is_dropped_and_others_stay() -> None:
    queue = Queue()
    put(queue, 0, 0)
    put(queue, 0, 1)
    stays = put(queue, 1, 0)
    queue.do(DropStages("s", 0))
    assert queue.machine.live_indexes(queue.state) == (stays,)
    queue.do(DropStages("s", 1))
    queue.do(DropStages("unknown", 1))
    assert queue.state.sinks == {}


def test_dropping_does_not_forget_what_was_published() -> None:
    queue = Queue()
    put(queue, 0, 0)
    publish(queue, 0, (0, 0))
    put(queue, 1, 0)
    queue.do(DropStages("s", 1))
    put(queue, 0, 0, 7)
    assert publish(queue, 0, (0, 7)) == Count(0)
    assert queue.stat().messages_ready == 2 and queue.stat().messages_staged == 0


def test_an_abandoned_stage_expires_and_publishing_it_is_refused_as_a_whole() -> None:
    queue = half_expired(put)
    assert publish(queue, 0, (0, 0), (1, 0)).reason == "stage_lost"
    assert queue.stat().messages_staged == 2 and queue.stat().messages_ready == 0
    # more for a name that expired would make it look whole again
    assert queue.do(Stage("s", 0, 0, 0), block(1)).reason == "stage_lost"
    put(queue, 0, 0, 1)
    assert publish(queue, 0, (0, 1), (1, 0)) == Count(4)


def test_how_many_expired_names_are_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage1, "LOST_STAGES_MAX", 2)
    queue = Queue()
    for attempt in range(4):
        put(queue, 0, 0, attempt, ttl_ms=10)
    queue.tick(10)
    assert list(queue.state.sinks["s"].stages) == [(0, 0, 2), (0, 0, 3)]


def test_how_many_sinks_are_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage1, "SINKS_MAX", 2)
    queue = Queue()
    for name in ("a", "b", "a", "c"):
        last = queue.state.sinks.get(name)
        queue.do(PublishBatch(name, last.last_batch + 1 if last else 0, ()))
    assert list(queue.state.sinks) == ["a", "c"]


def test_the_bounds_are_the_same_in_every_release() -> None:
    # Members of different releases apply the same log to the same state.
    assert (stage1.LOST_STAGES_MAX, stage1.SINKS_MAX) == (4_096, 65_536)


def test_a_sink_that_has_something_staged_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage1, "SINKS_MAX", 1)
    queue = Queue()
    put(queue, 0, 0)
    queue.do(PublishBatch("other", 0, ()))
    assert publish(queue, 0, (0, 0)) == Count(2)


def test_a_full_queue_takes_a_batch_that_brings_nothing_and_no_other() -> None:
    queue = Queue(max_length=1, overflow="reject-publish")
    queue.put(1)
    assert publish(queue, 0, (0, 0)) == Count(0)
    put(queue, 1, 0)
    assert publish(queue, 1, (0, 0)).reason == "queue_full"
    assert queue.stat().messages_staged == 2


def test_an_empty_block_stages_nothing() -> None:
    queue = Queue()
    assert queue.do(Stage("s", 0, 0, 0), block(0)) == Done()
    assert queue.state.sinks == {}


def test_a_damaged_block_is_refused() -> None:
    queue = Queue()
    assert queue.do(Stage("s", 0, 0, 0), b"not a block").reason == "invalid"
    assert queue.do(Stage("s", 0, 0, 0)).reason == "invalid"
