"""Jobs of a queue: what each step takes, keeps and gives back, and that a repeat does nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines.queue.world import Queue, block, check
from warren_machines.queue import commands as c
from warren_machines.queue.effects import Expired, JobsDue
from warren_machines.queue.jobs import jobs
from warren_machines.queue.jobs.job_commands import (
    BeginJob,
    JobStat,
    Recalled,
    RecallJob,
    SteerJob,
    StepJob,
)

UNDO_MS = 60_000


def begun(queue: Queue, way: Any = "move", undo_ms: int = UNDO_MS, call: str = "") -> int:
    """The number of a new job."""
    number: int = queue.do(BeginJob(call, way, 77, undo_ms, b"spec")).job.number
    return number


def step(queue: Queue, job: int, **said: Any) -> None:
    """The leader's next step of a job, proposed twice: the second time nothing changes."""
    command = StepJob(job, queue.state.jobs.by_number[job].step, **said)
    assert queue.do(command) == c.Done()
    before = stat(queue, job), queue.ready(), queue.state.jobs.by_number[job].step
    queue.do(command)
    after = stat(queue, job), queue.ready(), queue.state.jobs.by_number[job].step
    assert after == before and before[2] == command.step + 1


def stat(queue: Queue, job: int) -> JobStat:
    return queue.state.jobs.by_number[job].stat()


def steer(queue: Queue, job: int, action: Any) -> Any:
    return queue.do(SteerJob(job, action))


def test_what_a_job_takes_leaves_when_it_is_confirmed() -> None:
    queue = Queue()
    first, second = queue.put(4), queue.put(3)
    job = begun(queue)
    assert queue.of(JobsDue)
    step(queue, job, take=((first, 1, 2), (second, 0, 0)), at=(second, 2), looked=7)
    assert queue.ready() == [(first, 0), (first, 3), (second, 1), (second, 2)]
    assert (stat(queue, job).held, stat(queue, job).matched, stat(queue, job).looked) == (3, 3, 7)
    assert queue.stat().messages_in_jobs == 3
    step(queue, job, settled=((first, 1, 2),), targets=((5, "t"),))
    step(
        queue,
        job,
        settled=((second, 0, 0), (first, 1, 2)),
        finished=True,
        targets=((5, "t"), (6, "u")),
    )
    done = stat(queue, job)
    assert (done.state, done.done, done.held, done.kept) == ("done", 3, 0, 3)
    assert done.targets == ("t", "u") and done.kept_ms == queue.now + UNDO_MS
    assert list(queue.machine.live_indexes(queue.state)) == [first, second]
    queue.tick(UNDO_MS)
    assert stat(queue, job).kept == 0
    assert queue.state.contents.size(first, 0, 0) and not queue.state.jobs.owns_messages
    queue.tick(jobs.LISTED_MS)
    assert not queue.state.jobs


def test_what_is_not_ready_is_not_taken() -> None:
    queue = Queue()
    index = queue.put(5)
    queue.do(c.Checkout(1, 1, "t", 2))
    job = begun(queue)
    step(queue, job, take=((index, 0, 4),), at=(index, 4), looked=5)
    assert stat(queue, job).matched == 3 and queue.stat().messages_unacknowledged == 2
    # What comes back is ready again, but the job has passed it.
    queue.do(c.Return(1, ((0, 1),), False))
    assert stat(queue, job).held == 3


def test_returned_messages_are_found_wherever_they_are() -> None:
    queue = Queue(kind="classic", priority_max=9, priority_default=0)
    indexes = [queue.put(3, priorities=[7, 3, 0]) for _ in range(4)]
    queue.do(c.Checkout(1, 1, "t", 6))
    queue.do(c.Cancel(1))
    queue.do(c.Return(1, ((0, 5),), False))
    before = queue.ready()
    job = begun(queue, undo_ms=0)
    step(queue, job, take=tuple((index, 1, 2) for index in indexes), looked=12)
    assert queue.ready() == [one for one in before if not one[1]]
    step(queue, job, returned=tuple((index, 1, 2) for index in indexes), finished=True)
    assert sorted(queue.ready()) == sorted(before)
    assert stat(queue, job).left == 8


def test_a_dropped_message_comes_back_by_an_undo() -> None:
    queue = Queue()
    index = queue.put(5)
    job = begun(queue, "drop")
    step(queue, job, take=((index, 0, 1), (index, 3, 3)), looked=5, finished=True)
    assert (stat(queue, job).done, stat(queue, job).kept, queue.stat().messages_ready) == (3, 3, 2)
    queue.now += UNDO_MS - 1
    assert steer(queue, job, "undo").job.state == "undoing"
    step(queue, job)
    assert stat(queue, job).kept == 3  # until its leader has removed what is elsewhere
    step(queue, job, finished=True)
    assert (stat(queue, job).state, queue.stat().messages_ready) == ("undone", 5)
    assert steer(queue, job, "undo").job.state == "undone"
    queue.tick(UNDO_MS)
    assert queue.stat().messages_ready == 5


def moved(queue: Queue, index: int, count: int, way: Any = "move", *more: Any) -> int:
    """A job that has moved the first messages of an entry to queue t, and to more."""
    job = begun(queue, way)
    step(queue, job, take=((index, 0, count - 1),), looked=count)
    to = ((5, "t"), *more)
    step(queue, job, settled=((index, 0, count - 1),), finished=True, targets=to)
    return job


def recalled(queue: Queue, job: int, *places: Any, target: int = 5, removed: int = 0) -> bool:
    """Whether a target's recall is accepted, which is asked twice: the second changes nothing."""
    command = RecallJob(job, target, places, removed)
    reply: Recalled = queue.do(command)
    before = stat(queue, job), queue.ready()
    assert queue.do(command) == reply and (stat(queue, job), queue.ready()) == before
    return reply.accepted


def test_an_undo_brings_back_what_a_target_removed() -> None:
    queue = Queue()
    index = queue.put(6)
    job = moved(queue, index, 6)
    assert not recalled(queue, job, (index, 0, 5), removed=6) and not queue.ready()
    steer(queue, job, "undo")
    step(queue, job, finished=True)
    assert stat(queue, job).state == "undoing"  # its target has not said that it is over
    assert recalled(queue, job, (index, 1, 2), removed=2)
    assert recalled(queue, job, (index, 4, 4), (index, 1, 1), (99, 0, 3), removed=3)
    assert queue.ready() == [(index, 1), (index, 2), (index, 4)]
    assert (stat(queue, job).back, stat(queue, job).kept, stat(queue, job).consumed) == (3, 3, 0)
    step(queue, job, over=((5, False),), finished=True)
    done = stat(queue, job)
    assert (done.state, done.done, done.back, done.consumed, done.kept) == ("undone", 6, 3, 3, 0)
    assert not recalled(queue, job, (index, 0, 0), removed=4)  # of a leader replaced long ago
    assert queue.ready() == [(index, 1), (index, 2), (index, 4)]
    queue.do(c.Purge())
    assert not list(queue.machine.live_indexes(queue.state))


def test_one_of_several_targets_that_had_it_is_enough() -> None:
    queue = Queue()
    index = queue.put(4)
    job = moved(queue, index, 4, "move", (6, "u"))
    steer(queue, job, "undo")
    assert recalled(queue, job, (index, 0, 1), removed=2)
    assert recalled(queue, job, (index, 1, 2), target=6, removed=2)
    step(queue, job, over=((6, False),), finished=True)
    assert stat(queue, job).state == "undoing"
    step(queue, job, over=((5, False),), finished=True)
    assert (stat(queue, job).back, stat(queue, job).consumed) == (3, 1)


def test_what_went_to_a_deleted_queue_comes_back() -> None:
    queue = Queue()
    index = queue.put(3)
    job = moved(queue, index, 3)
    steer(queue, job, "undo")
    assert recalled(queue, job, (index, 1, 1), removed=1)
    step(queue, job, over=((5, True),), finished=True)
    done = stat(queue, job)
    assert (done.state, done.back, done.consumed) == ("undone", 3, 0)
    assert sorted(queue.ready()) == [(index, 0), (index, 1), (index, 2)]


def test_the_copies_that_an_undo_removed_are_counted() -> None:
    queue = Queue()
    index = queue.put(3)
    job = moved(queue, index, 3, "copy")
    steer(queue, job, "undo")
    assert recalled(queue, job, (index, 0, 0), removed=1)
    assert recalled(queue, job, (index, 2, 2), removed=2)
    assert recalled(queue, job, (index, 2, 2), removed=1)
    step(queue, job, over=((5, False),), finished=True)
    assert (stat(queue, job).back, stat(queue, job).consumed) == (2, 1)
    assert len(queue.ready()) == 3


def test_an_undo_is_refused_after_its_time() -> None:
    queue = Queue()
    index = queue.put(2)
    job = begun(queue, "drop")
    assert "cannot be undone" in steer(queue, job, "undo").detail
    step(queue, job, take=((index, 0, 0),), finished=True)
    queue.now += UNDO_MS
    assert "cannot be undone" in steer(queue, job, "undo").detail
    assert "has no job 99" in steer(queue, 99, "undo").detail
    assert list(queue.machine.live_indexes(queue.state)) == [index]


def test_what_is_kept_leaves_when_the_job_is_forgotten() -> None:
    queue = Queue()
    index = queue.put(2)
    job = begun(queue, "drop")
    assert "it is running" in steer(queue, job, "forget").detail
    step(queue, job, take=((index, 0, 1),), finished=True)
    steer(queue, job, "forget")
    assert not queue.state.jobs and not list(queue.machine.live_indexes(queue.state))


def test_many_come_back_in_several_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "KEPT_RUNS_MAX", 2)
    for undone in (True, False):
        queue = Queue()
        indexes = [queue.put(1) for _ in range(5)]
        job = begun(queue, "drop")
        step(queue, job, take=tuple((index, 0, 0) for index in indexes), finished=True)
        if not undone:
            for left in (3, 1, 0):
                queue.tick(UNDO_MS if left == 3 else 0)
                assert stat(queue, job).kept == left
            continue
        steer(queue, job, "undo")
        for back in (2, 4, 5):
            step(queue, job, finished=True)
            assert queue.stat().messages_ready == back
        assert queue.ready() == [(index, 0) for index in indexes]


def test_a_paused_job_settles_and_takes_nothing() -> None:
    queue = Queue()
    index = queue.put(4)
    job = begun(queue)
    step(queue, job, take=((index, 0, 0),), looked=1)
    assert steer(queue, job, "pause").job.state == "paused"
    step(queue, job, settled=((index, 0, 0),), take=((index, 1, 1),), finished=True)
    assert (stat(queue, job).state, stat(queue, job).done, stat(queue, job).held) == (
        "paused",
        1,
        0,
    )
    assert steer(queue, job, "resume").job.state == "running"
    step(queue, job, take=((index, 1, 1),), looked=1)
    assert stat(queue, job).held == 1


def test_a_cancelled_job_ends_when_it_holds_nothing() -> None:
    queue = Queue()
    index = queue.put(4)
    job = begun(queue)
    step(queue, job, take=((index, 0, 1),), looked=2)
    assert steer(queue, job, "cancel").job.state == "cancelling"
    step(queue, job, settled=((index, 0, 0),), take=((index, 2, 3),))
    assert stat(queue, job).state == "cancelling"
    step(queue, job, returned=((index, 1, 1),))
    done = stat(queue, job)
    assert (done.state, done.done, done.left, done.kept) == ("cancelled", 1, 1, 1)
    assert queue.ready() == [(index, 1), (index, 2), (index, 3)]
    idle = begun(queue)
    assert steer(queue, idle, "cancel").job.state == "cancelled"


def test_a_copy_leaves_messages_where_they_are() -> None:
    queue = Queue()
    index = queue.put(4)
    before = queue.ready()
    job = begun(queue, "copy")
    step(queue, job, take=((index, 1, 2),), looked=4)
    assert queue.ready() == before and stat(queue, job).held == 2
    # One of them leaves before it was copied: there is nothing to copy any more.
    queue.do(c.Get(1, 1, True))
    queue.do(c.Get(1, 1, True))
    step(queue, job, settled=((index, 2, 2),), returned=((index, 1, 1),), finished=True)
    done = stat(queue, job)
    assert (done.state, done.done, done.left, done.kept) == ("done", 1, 1, 0)
    assert queue.ready() == [(index, 2), (index, 3)]
    assert steer(queue, job, "undo").job.state == "undoing"  # its copies are removed


def test_a_call_begins_one_job() -> None:
    queue = Queue()
    assert begun(queue, call="a") == begun(queue, call="a") != begun(queue, call="b")
    for _ in range(jobs.UNFINISHED_MAX - 2):
        begun(queue)
    refused = queue.do(BeginJob("", "drop", 1, 0, b""))
    assert isinstance(refused, c.Refused) and "16 jobs that have not ended" in refused.detail


def test_the_oldest_ended_jobs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "ENDED_JOBS_MAX", 2)
    queue = Queue()
    numbers = [begun(queue) for _ in range(1)]
    for _ in range(3):
        step(queue, numbers[-1], finished=True)
        numbers.append(begun(queue))
    assert list(queue.state.jobs.by_number) == numbers[1:]


def test_a_purge_leaves_what_jobs_hold() -> None:
    queue = Queue()
    index = queue.put(4)
    job = begun(queue)
    step(queue, job, take=((index, 0, 0),), looked=1)
    assert queue.do(c.Purge()) == c.Count(3)
    assert list(queue.machine.live_indexes(queue.state)) == [index]
    assert queue.do(c.Delete(if_unused=True)).reason == "in_use"
    queue.do(c.Delete())
    check(queue.state)
    assert not queue.state.jobs and not list(queue.machine.live_indexes(queue.state))
    assert queue.do(StepJob(job, 1, finished=True)) == c.Done()


def test_an_auto_delete_queue_is_kept_by_its_job() -> None:
    queue = Queue(kind="classic", auto_delete=True)
    index = queue.put(2)
    queue.do(c.Checkout(1, 1, "t", 1))
    job = begun(queue)
    queue.do(c.SessionDown(1))
    assert queue.do(c.Delete(if_unused=True)).reason == "in_use"
    step(queue, job, take=((index, 0, 1),), looked=2)
    queue.do(StepJob(job, 1, settled=((index, 0, 1),), finished=True))
    assert queue.of(Expired) == [Expired("auto_delete")]


def test_a_new_leader_carries_jobs_on() -> None:
    queue = Queue()
    index = queue.put(3)
    assert JobsDue() not in queue.machine.leader_effects(queue.state)
    job = begun(queue)
    step(queue, job, take=((index, 1, 1),), at=(index, 1), looked=2)
    restored = queue.machine.restore(queue.digest())
    check(restored)
    assert JobsDue() in queue.machine.leader_effects(restored)
    assert restored.jobs.by_number[job].stat() == stat(queue, job)
    assert queue.machine.snapshot(restored) == queue.digest()


def test_consumers_come_before_a_job() -> None:
    queue = Queue()
    queue.do(c.Checkout(1, 1, "t", 1))
    job = begun(queue)
    late = block(1)
    queue.submit(c.Enqueue(), StepJob(job, 0, take=((queue.index + 1, 0, 0),)), data=late)
    assert len(queue.got()) == 1 and not stat(queue, job).held
