"""Jobs: messages that match are taken, published elsewhere or dropped, and kept for an undo.

A job is part of the queue's state; its leader carries it on (`cluster.leader.job_runners`). 1. It
looks at messages in the order of the log and proposes to take those that match: they are held, so
no consumer gets them.  2. It publishes them under names of the job, (origin, place in the log), by
which a queue drops what it was brought before.  3. When every target has confirmed them it proposes
that they leave. A leader that takes over between any two of these finds what is held, and publishes
that again under the same names: so each message leaves once, and arrives once.

Messages are named by their place in the log, and looked at in that order. So the names of what is
not settled are above all that are, which is the floor that a relay's are (`relay_state.Origins`).
What is published while the job runs is younger than its own entry, and is not looked at: messages
that come back from their targets are not moved again.
"""

from __future__ import annotations

from typing import Final

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply, Done, Refused
from warren_machines.queue.filters.filters import Filter, FilterSearch
from warren_machines.queue.jobs.job_commands import (
    BeginJob,
    JobIs,
    JobState,
    Recalled,
    RecallJob,
    Runs,
    SteerJob,
    StepJob,
)
from warren_machines.queue.jobs.job_state import Job
from warren_machines.queue.letters.dead_letter import give_back
from warren_machines.queue.ready import service_order
from warren_machines.queue.ready.ranges import COUNT_MASK, Run, length
from warren_raft.index_set import PAGE_BITS

DONE: Final = Done()
UNFINISHED_MAX: Final = 16
"""Jobs of a queue that have not ended."""
ENDED_JOBS_MAX: Final = 50
"""Ended jobs of a queue that are shown; those that can be undone are not counted."""
LISTED_MS: Final = 24 * 3_600_000
"""How long an ended job is shown, unless it can be undone for longer."""
KEPT_RUNS_MAX: Final = 5_000
"""Runs that one entry brings back, or keeps no more."""
_NOT_A_FILTER: Final = 0
"""No filter of a consumer has this number."""


class _Listed(Filter):
    """Messages of a list, as a filter that has judged everything: `Order.find` finds them."""

    __slots__ = ("_listed", "_numbers")

    def __init__(self, runs: Runs) -> None:
        super().__init__(_NOT_A_FILTER, b"", 1 << 62, 0)
        self._listed: dict[int, list[tuple[int, int]]] = {}
        for index, first, last in runs:
            self._listed.setdefault(index, []).append((first, last))
        self._numbers = {index >> PAGE_BITS for index in self._listed}

    def matching(self, index: int, first: int, last: int) -> tuple[int, int] | None:
        """See `Filter`."""
        for low, high in self._listed.get(index, ()):
            if low <= last and first <= high:
                return max(low, first), min(high, last)
        return None

    def without_matches(self, page: int) -> bool:
        """See `Filter`."""
        return page not in self._numbers

    def remove(self, index: int, first: int, last: int) -> None:
        """Take messages off the list."""
        rest: list[tuple[int, int]] = []
        for low, high in self._listed[index]:
            rest += [(low, min(high, first - 1))] if low < first else []
            rest += [(max(low, last + 1), high)] if last < high else []
        self._listed[index] = rest


def begin(context: QueueContext, command: BeginJob) -> AnyReply:
    """Begin a job, unless the same call has begun it before."""
    jobs = context.state.jobs
    for job in jobs:
        if command.call and job.given.call == command.call:
            return JobIs(job.stat())
    if len(jobs.unfinished) >= UNFINISHED_MAX:
        detail = (
            f"queue {context.config.name!r} has {UNFINISHED_MAX} jobs that have not ended, which "
            "is the most: wait for one, or cancel one"
        )
        return Refused("invalid", detail)
    ended = [job.number for job in jobs if job.ended_ms and not job.kept]
    for number in ended[: max(0, len(ended) - ENDED_JOBS_MAX)]:
        del jobs.by_number[number]
    job = jobs.by_number[context.index] = Job(context.index, command, context.now)
    context.jobs_due()
    return JobIs(job.stat())


def step(context: QueueContext, command: StepJob) -> AnyReply:
    """Carry a job on. A repeat, or what a leader that was replaced has proposed, changes nothing.

    1. A leader proposes to take messages, and is replaced.  2. The next one proposes to take them,
    too.  3. Both are applied: the second has the number of a step that was taken.
    """
    job = context.state.jobs.by_number.get(command.job)
    if job is None or command.step != job.step or job.ended_ms:
        return DONE
    job.step += 1
    context.jobs_due()
    for run in job.cut(command.settled):
        job.done += run[2] - run[1] + 1
        if job.owns:
            _done_with(context, job, run)
    for run in job.cut(command.returned):
        job.left += run[2] - run[1] + 1
        if job.owns:
            give_back(context, run, False)
    job.note_targets(command)
    job.why = command.why
    if job.state == "undoing":
        if command.finished and all(target.over for target in job.targets):
            _end_undo(context, job)
        return DONE
    if job.state == "running":
        _take(context, job, command)
    if command.gives_up and job.state == "cancelling":
        job.state = "returning"
    if not job.held and job.state in ("cancelling", "returning"):
        _end(context, job, "cancelled")
    elif not job.held and command.finished and job.state == "running":
        _end(context, job, "done")
    return DONE


def _end_undo(context: QueueContext, job: Job) -> None:
    """Drop what no target had any more; bring it back where there was no target, or one is deleted.

    What was in a deleted queue is gone with it, and nothing says which of that was consumed before.
    """
    comes_back = not job.targets or any(target.deleted for target in job.targets)
    for run in context.state.jobs.let_go(job, KEPT_RUNS_MAX):
        if comes_back:
            _bring_back(context, job, run)
        else:
            context.frees += context.state.contents.size(*run[:3])
            context.state.leave(*run[:3])
    if not job.kept:
        _end(context, job, "undone")


def _bring_back(context: QueueContext, job: Job, run: Run) -> None:
    job.back += run[2] - run[1] + 1
    give_back(context, run, False)


def recall(context: QueueContext, command: RecallJob) -> AnyReply:
    """Bring back messages that a target holds for an undo, and lets leave when this was answered.

    1. The target's leader asks, and is replaced.  2. The next one asks again.  3. Both arrive, the
    first perhaps long after the job was undone: what is not kept any more does not come back twice.
    A target asks only while the job is undone: a job that is not being undone now never will be
    again, so a target that is refused keeps its messages.
    """
    job = context.state.jobs.by_number.get(command.job)
    if job is None or job.state != "undoing":
        return Recalled(False)
    for run in context.state.jobs.cut_kept(job, command.places):
        _bring_back(context, job, run)
    job.note_removed(command)
    return Recalled(True)


def _take(context: QueueContext, job: Job, command: StepJob) -> None:
    """Note what was looked at, and take what matches of it and is ready."""
    job.at = max(job.at, command.at)
    job.looked += command.looked
    job.left += command.left
    runs = _listed(context, command.take, job.owns)
    job.matched += length(runs)
    if job.given.way != "drop":
        job.held = sorted([*job.held, *runs])
        return
    job.done += length(runs)
    for run in runs:
        _done_with(context, job, run)


def _listed(context: QueueContext, runs: Runs, cut: bool) -> list[Run]:
    """Take those of these messages that are ready; cut: False: find them only."""
    if not runs:
        return []
    service_order.dispatch(context)  # as if it had an entry of its own: consumers come first
    state = context.state
    wanted, search = _Listed(runs), FilterSearch(context.index, 1 << 62)
    left = sum(last - first + 1 for _, first, last in runs)
    taken: list[Run] = []
    while left and (found := state.order.find(wanted, search)) is not None:
        index, first, last, failed, acquired = found.run
        wanted.remove(index, first, last)
        left -= last - first + 1
        if not cut:
            taken.append((index, first, last, failed, acquired & COUNT_MASK))
            continue
        taken.append(state.order.take_found(found, last - first + 1, context.in_place))
        state.ready_bytes -= state.contents.size(index, first, last)
    state.order.forget_listed(_NOT_A_FILTER)
    return taken


def _done_with(context: QueueContext, job: Job, run: Run) -> None:
    """Let messages leave the queue, now or when the job cannot be undone any more."""
    if job.given.undo_ms:
        context.state.jobs.keep(job, run)
        return
    context.frees += context.state.contents.size(*run[:3])
    context.state.leave(*run[:3])


def _end(context: QueueContext, job: Job, state: JobState) -> None:
    job.state, job.why, job.ended_ms = state, "", context.now
    context.arm(job.kept_ms or context.now + LISTED_MS)
    context.use_ended()


def steer(context: QueueContext, command: SteerJob) -> AnyReply:
    """Do with a job what its user asks for; what it asks for a second time is done."""
    job = context.state.jobs.by_number.get(command.job)
    queue = context.config.name
    if job is None:
        return Refused("no_job", f"queue {queue!r} has no job {command.job}")
    action, state = command.action, job.state
    if action == "pause" and state == "running":
        job.state = "paused"
    elif action == "resume" and state == "paused":
        job.state = "running"
    elif action == "cancel" and state in ("running", "paused"):
        job.state = "cancelling"
        if not job.held:
            _end(context, job, "cancelled")
    elif action == "undo" and job.kept_ms > context.now:
        job.state, job.ended_ms = "undoing", 0
    elif action == "forget" and job.ended_ms:
        job.given = _without_undo(job)
        expire(context)
    elif (action, state) not in _DONE_ALREADY:
        if action == "undo":
            why = "it cannot be undone: it has not ended, has done nothing, or its time is over"
        else:
            why = f"it is {state}"
        return Refused("job_state", f"{action} job {job.number} of queue {queue!r}: {why}")
    context.jobs_due()
    return JobIs(job.stat())


_DONE_ALREADY: Final = frozenset(
    {
        ("pause", "paused"),
        ("resume", "running"),
        ("cancel", "cancelling"),
        ("cancel", "returning"),
        ("cancel", "cancelled"),
        ("undo", "undoing"),
        ("undo", "undone"),
    }
)


def _without_undo(job: Job) -> BeginJob:
    given = job.given
    return BeginJob("", given.way, given.origin, -1, given.spec)


def expire(context: QueueContext) -> None:
    """Keep no more what cannot be undone; forget jobs that have long ended; arm a timer."""
    state = context.state
    for number in sorted(state.jobs.by_number):
        job = state.jobs.by_number[number]
        if not job.ended_ms:
            continue
        forgotten = job.given.undo_ms < 0
        if not forgotten and context.now < job.kept_ms:
            context.arm(job.kept_ms)
            continue
        for index, first, last, _, _ in state.jobs.let_go(job, KEPT_RUNS_MAX):
            context.frees += state.contents.size(index, first, last)
            state.leave(index, first, last)
        if job.kept:
            context.arm(context.now)
        elif forgotten or job.ended_ms + LISTED_MS <= context.now:
            del state.jobs.by_number[number]
        else:
            context.arm(job.ended_ms + LISTED_MS)
