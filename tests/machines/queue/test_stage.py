"""Staged publishing: a batch is published whole and once; drivers and their epochs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.stages import Stages, half_expired
from tests.machines.queue.world import Queue, block
from warren_machines.queue.commands import Count, Delete, Done, Purge, SinkDrop, SinkStage
from warren_machines.queue.sinks import stage


def put(
    queue: Queue,
    *place: int,
    sink: str = "s",
    run: str = "r",
    epoch: int = 1,
    digest: int = 100,
    **shape: Any,
) -> int:
    """Stage a block; place: batch, partition, attempt (0), number of messages (2)."""
    return Stages(sink, run, epoch, digest).put(queue, *place, **shape)


def publish(
    queue: Queue,
    batch: int,
    *attempts: tuple[int, int, int],
    sink: str = "s",
    run: str = "r",
    epoch: int = 1,
) -> Any:
    return queue.do(Stages(sink, run, epoch).publish(batch, *attempts))


def drop(queue: Queue, batch: int, *attempts: tuple[int, int], epoch: int = 1) -> Any:
    return queue.do(SinkDrop("s", "r", epoch, batch, attempts))


# ------------------------------------------------------------ whole


def test_losing_attempts_and_earlier_batches_go_and_others_stay() -> None:
    queue = Queue()
    put(queue, 0, 0)
    put(queue, 1, 0, 0)
    winner = put(queue, 1, 0, 1)
    later, other = put(queue, 2, 0), put(queue, 0, 0, run="other")
    assert publish(queue, 1, (0, 1, 1)) == Count(2)
    assert queue.machine.live_indexes(queue.state) == (winner, later, other)
    assert queue.stat().messages_staged == 4


def test_a_publish_that_names_what_is_not_staged_is_refused_and_nothing_is_done() -> None:
    queue = Queue()
    put(queue, 0, 0)
    for attempts in (((0, 0, 1), (1, 0, 1)), ((0, 7, 1),), ((0, 0, 2),), ((0, 0, 0),)):
        refused = publish(queue, 0, *attempts)
        assert refused.reason == "stage_lost", attempts
        assert queue.stat().messages_ready == 0 and queue.stat().messages_staged == 2
    assert publish(queue, 0, (0, 0, 1)) == Count(2)


def test_a_publish_before_the_last_block_is_refused() -> None:
    queue = Queue()
    put(queue, 0, 0, seq=1)
    assert publish(queue, 0, (0, 0, 2)).reason == "stage_lost"
    put(queue, 0, 0, seq=2)
    assert publish(queue, 0, (0, 0, 2)) == Count(4)


def test_a_full_queue_refuses_and_keeps_the_stages() -> None:
    queue = Queue(max_length=3, overflow="reject-publish")
    put(queue, 0, 0)
    queue.put(3)
    assert publish(queue, 0, (0, 0, 1)).reason == "queue_full"
    queue.do(Purge())
    assert publish(queue, 0, (0, 0, 1)) == Count(2)


def test_a_batch_is_published_whole_where_there_is_room_for_one_message() -> None:
    queue = Queue(max_length=3, overflow="reject-publish")
    put(queue, 0, 0)
    queue.put(2)
    assert publish(queue, 0, (0, 0, 1)) == Count(2)
    assert queue.stat().messages_ready == 4


def test_an_abandoned_stage_expires_and_publishing_it_is_refused_as_a_whole() -> None:
    queue = half_expired(put)
    assert publish(queue, 0, (0, 0, 1), (1, 0, 1)).reason == "stage_lost"
    put(queue, 0, 0, 1)
    assert publish(queue, 0, (0, 1, 1), (1, 0, 1)) == Count(4)


def test_what_comes_for_a_stage_that_expired_does_not_make_it_whole() -> None:
    queue = Queue()
    put(queue, 0, 0, ttl_ms=100, seq=1)
    queue.tick(100)
    put(queue, 0, 0, seq=2)
    assert publish(queue, 0, (0, 0, 2)).reason == "stage_lost"


def test_the_last_block_says_how_long_a_stage_lives() -> None:
    queue = Queue()
    put(queue, 0, 0, ttl_ms=100)
    put(queue, 0, 0, ttl_ms=0)
    queue.tick(100)
    assert queue.stat().messages_staged == 4


def test_a_numbered_block_is_known_again_after_one_without_a_number() -> None:
    queue = Queue()
    for seq in (3, 0, 3):
        put(queue, 0, 0, seq=seq)
    assert queue.stat().messages_staged == 4


def test_an_empty_batch_is_published_into_a_full_queue() -> None:
    queue = Queue(max_length=1, overflow="reject-publish")
    queue.put(1)
    assert publish(queue, 0) == Count(0)
    assert publish(queue, 0, run="other") == Count(0)
    assert queue.state.runs["s"]["r"].last_batch == 0


def test_a_deleted_queue_has_no_stages() -> None:
    queue = Queue()
    put(queue, 0, 0)
    queue.do(Delete())
    assert queue.state.runs == {} and queue.machine.live_indexes(queue.state) == ()


def test_a_block_that_is_damaged_empty_or_missing_is_refused() -> None:
    queue = Queue()
    command = SinkStage("s", "r", 1, 0, 0, 0, 0)
    for data in (b"not a block", None, block(0)):
        assert queue.do(command, data).reason == "invalid"
    assert queue.state.runs == {}


# ------------------------------------------------------------ once


def test_a_publish_that_is_repeated_is_answered_with_what_was_published() -> None:
    # The reply to the client's first try was lost; its second one is told the count.
    queue = Queue()
    put(queue, 3, 0)
    assert publish(queue, 3, (0, 0, 1)) == Count(2)
    queue.do(Purge())
    assert publish(queue, 3, (0, 0, 1)) == Count(2)
    assert queue.stat().messages_ready == 0


def test_a_batch_that_is_run_again_in_another_order_is_there_once() -> None:
    queue = Queue()
    put(queue, 3, 0, count=2, digest=10)
    put(queue, 3, 1, count=1, digest=5)
    assert publish(queue, 3, (0, 0, 1), (1, 0, 1)) == Count(3)
    put(queue, 3, 0, 8, count=3, digest=15, epoch=2)
    assert queue.stat().messages_staged == 0, "a repeat is counted, not kept"
    assert publish(queue, 3, (0, 8, 1), epoch=2) == Count(3)
    assert queue.stat().messages_ready == 3
    assert queue.state.runs["s"]["r"].stages == {}


def test_the_publish_of_a_repeat_may_be_repeated_too() -> None:
    queue = Queue()
    put(queue, 3, 0)
    publish(queue, 3, (0, 0, 1))
    put(queue, 3, 0, 8, epoch=2)
    for _ in range(2):
        assert publish(queue, 3, (0, 8, 1), epoch=2) == Count(2)
    assert queue.stat().messages_ready == 2


def test_other_rows_under_a_number_that_was_published_are_an_error() -> None:
    queue = Queue()
    put(queue, 3, 0, digest=10)
    publish(queue, 3, (0, 0, 1))
    put(queue, 3, 0, 1, digest=11)
    put(queue, 3, 0, 2, digest=10, count=3)
    for attempt in (1, 2):
        refused = publish(queue, 3, (0, attempt, 1))
        assert refused.reason == "batch_conflict" and "batch 3" in refused.detail
    assert publish(queue, 3, (0, 9, 1)).reason == "stage_lost"
    assert queue.stat().messages_ready == 2


def test_a_smaller_batch_is_an_error_unless_it_is_a_repeat() -> None:
    queue = Queue()
    for batch in (3, 5):
        put(queue, batch, 0)
        publish(queue, batch, (0, 0, 1))
    for batch in (2, 4):
        refused = queue.do(SinkStage("s", "r", 1, batch, 0, 0, 100), block(2))
        assert refused.reason == "batch_past" and "last one, 5" in refused.detail
        assert publish(queue, batch, (0, 0, 1)).reason == "batch_past"
    put(queue, 3, 0, 1)
    assert publish(queue, 3, (0, 1, 1)) == Count(2)
    assert queue.stat().messages_ready == 4


def test_a_new_run_of_the_sink_starts_at_0_again() -> None:
    # A query with a fixed sinkId and a new checkpoint: nothing of it may be taken for a repeat.
    queue = Queue()
    for run in ("first", "second"):
        put(queue, 0, 0, run=run)
        assert publish(queue, 0, (0, 0, 1), run=run) == Count(2)
    assert queue.stat().messages_ready == 4


def test_what_lies_behind_the_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "BATCHES_KEPT", 2)
    queue = Queue()
    for batch in range(4):
        put(queue, batch, 0)
        publish(queue, batch, (0, 0, 1))
    assert queue.do(SinkStage("s", "r", 1, 1, 0, 1, 100), block(2)).reason == "batch_past"
    assert publish(queue, 1, (0, 0, 1)).reason == "batch_past"
    assert publish(queue, 2, (0, 0, 1)) == Count(2)


def test_what_a_publish_named_is_remembered_as_every_release_does() -> None:
    # The state is the same to the byte on members of different releases.
    queue = Queue()
    put(queue, 0, 0)
    put(queue, 0, 1, 2**40)
    publish(queue, 0, (0, 0, 1), (1, 2**40, 1))
    (batch,) = queue.state.runs["s"]["r"].published
    assert batch.named.hex() == "1e1fa08a9934d288f8f54ced3655c873"
    bounds = (stage.BATCHES_KEPT, stage.RUNS_MAX, stage.SINKS_MAX, stage.DIGESTS)
    assert bounds == (16, 1_024, 1_024, 2**63)


def test_the_digest_of_a_long_attempt_fits_into_a_snapshot() -> None:
    queue = Queue()
    for _ in range(9):
        put(queue, 0, 0, digest=2**62)
    queue.state = queue.machine.restore(queue.digest())
    assert queue.state.runs["s"]["r"].stages[0, 0, 0].digest == 2**62


def test_digests_are_added_modulo_2_to_the_63() -> None:
    queue = Queue()
    put(queue, 0, 0, digest=2**62)
    put(queue, 0, 1, digest=2**62 + 5)
    publish(queue, 0, (0, 0, 1), (1, 0, 1))
    put(queue, 0, 0, 1, digest=5, count=4)
    assert publish(queue, 0, (0, 1, 1)) == Count(4)


def test_what_a_repeat_has_counted_expires_too() -> None:
    queue = Queue()
    put(queue, 0, 0)
    publish(queue, 0, (0, 0, 1))
    put(queue, 0, 0, 1, ttl_ms=100)
    queue.tick(100)
    assert queue.state.runs["s"]["r"].stages == {}
    assert publish(queue, 0, (0, 1, 1)).reason == "stage_lost"


def test_an_attempt_named_twice_is_published_once() -> None:
    queue = Queue()
    put(queue, 0, 0)
    assert publish(queue, 0, (0, 0, 1), (0, 0, 1)) == Count(2)


# ------------------------------------------------------------ drivers


def test_an_older_driver_is_fenced_in_all_that_it_does() -> None:
    queue = Queue()
    put(queue, 0, 0, epoch=1)
    put(queue, 0, 0, 1, epoch=2)
    assert publish(queue, 0, (0, 0, 1), epoch=1).reason == "fenced"
    assert drop(queue, 0, (0, 1), epoch=1).reason == "fenced"
    assert queue.do(SinkStage("s", "r", 1, 0, 0, 0, 1), block(1)).reason == "fenced"
    assert publish(queue, 0, (0, 1, 1), epoch=2) == Count(2)


def test_a_newer_driver_drops_what_older_ones_staged() -> None:
    queue = Queue()
    put(queue, 0, 0, epoch=1)
    mine = put(queue, 0, 1, epoch=2)
    assert queue.machine.live_indexes(queue.state) == (mine,)
    assert queue.stat().messages_staged == 2


def test_a_drop_names_the_attempts_it_drops() -> None:
    queue = Queue()
    put(queue, 0, 0, 0)
    stays = put(queue, 0, 0, 1)
    put(queue, 0, 1, 0)
    assert drop(queue, 0, (0, 0), (1, 0), (2, 0)) == Done()
    assert queue.machine.live_indexes(queue.state) == (stays,)
    assert queue.stat().messages_staged == 2


def test_a_delayed_drop_does_not_lose_the_batch_that_was_staged_again() -> None:
    # Reproduced with 100 rows: the driver aborts batch 0, its DELETE is held up in a node; the
    # query's restart stages batch 0 again; the DELETE arrives; the publish answered 0, for good.
    queue = Queue()
    put(queue, 0, 0, 10, epoch=1)
    put(queue, 0, 0, 11, epoch=2)
    assert drop(queue, 0, (0, 10), epoch=1).reason == "fenced"
    drop(queue, 0, (0, 10), epoch=2)
    assert publish(queue, 0, (0, 11, 1), epoch=2) == Count(2)


def test_a_drop_of_a_run_that_is_not_there_leaves_nothing() -> None:
    queue = Queue()
    assert drop(queue, 0, (0, 0)) == Done()
    assert queue.state.runs == {}


def test_a_fenced_driver_stays_fenced_when_nothing_is_staged() -> None:
    queue = Queue()
    put(queue, 0, 0, epoch=2)
    drop(queue, 0, (0, 0), epoch=2)
    assert queue.do(SinkStage("s", "r", 1, 0, 0, 0, 1), block(1)).reason == "fenced"


# ------------------------------------------------------------ bounds


def test_the_runs_of_a_sink_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "RUNS_MAX", 2)
    queue = Queue()
    put(queue, 0, 0, run="held")
    for batch, run in enumerate("abac"):
        put(queue, batch, 0, run=run)
        publish(queue, batch, (0, 0, 1), run=run)
    assert list(queue.state.runs["s"]) == ["held", "c"]
    assert publish(queue, 0, (0, 0, 1), run="held") == Count(2)


def test_the_sinks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "SINKS_MAX", 2)
    queue = Queue()
    for batch, sink in enumerate("abac"):
        put(queue, batch, 0, sink=sink)
        publish(queue, batch, (0, 0, 1), sink=sink)
    assert list(queue.state.runs) == ["a", "c"]


def test_a_new_run_or_sink_does_not_make_room_by_its_own_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage, "RUNS_MAX", 1)
    monkeypatch.setattr(stage, "SINKS_MAX", 1)
    queue = Queue()
    for name in ("held", "new"):
        put(queue, 0, 0, run=name)
        put(queue, 0, 0, sink=name)
    for name in ("new", "held"):  # what is staged is never forgotten
        assert publish(queue, 0, (0, 0, 1), run=name) == Count(2), name
        assert publish(queue, 0, (0, 0, 1), sink=name) == Count(2), name


def test_all_of_it_is_in_the_snapshot() -> None:
    queue = Queue()
    put(queue, 0, 0)
    publish(queue, 0, (0, 0, 1))
    put(queue, 0, 0, 1, seq=1)
    put(queue, 1, 0, 0, seq=1)
    queue.state = queue.machine.restore(queue.digest())
    put(queue, 1, 0, 0, seq=1)
    put(queue, 1, 0, 0, seq=2)
    assert publish(queue, 0, (0, 1, 1)) == Count(2)
    assert publish(queue, 1, (0, 0, 2)) == Count(4)
    assert publish(queue, 2, (0, 0, 1), epoch=0).reason == "fenced"
