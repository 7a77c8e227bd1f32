"""The jobs of a queue, with the messages that each of them holds or keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from warren_machines.queue.jobs.job_commands import (
    BeginJob,
    JobStat,
    JobState,
    RecallJob,
    Runs,
    StepJob,
)
from warren_machines.queue.ready.leaves import Leaves, Row
from warren_machines.queue.ready.ranges import Run, length

TARGETS_MAX: Final = 256
"""Targets of a job that are remembered."""
UNFINISHED: Final[frozenset[JobState]] = frozenset(
    {"running", "paused", "cancelling", "returning", "undoing"}
)
_ALL_KEPT: Final = 0
"""The first column of a row that is kept: rows ascend by log index."""


class JobTarget(msgspec.Struct, array_like=True):
    """A queue that got messages of a job.

    removed  messages that it has removed for an undo; over: it has no more to remove
    deleted  it did not exist any more when the undo asked
    """

    group: int
    name: str
    removed: int = 0
    over: bool = False
    deleted: bool = False


class Job(msgspec.Struct, array_like=True, eq=False):
    """A job. Snapshots contain it as it is: its fields and their order are replicated state.

    number   the log index of the entry that began it: it looks at older entries only
    step     steps applied
    at       (log index, ordinal) up to which it has looked at messages
    held     what it has taken and is not with its targets, by log index; of a copy: where the
             messages were found, which stay where they are
    kept     messages that are kept for an undo (`Jobs.kept`)
    back     messages that an undo has brought back; of a copy: removed from its targets

    Invariants: only an unfinished job holds messages; only an ended one has `ended_ms`; a message
    that the job has done is kept, back, or never seen again; a target is over only in an undo, and
    an undone job keeps nothing
    """

    number: int
    given: BeginJob
    began_ms: int
    state: JobState = "running"
    why: str = ""
    step: int = 0
    at: tuple[int, int] = (0, -1)
    looked: int = 0
    matched: int = 0
    done: int = 0
    left: int = 0
    ended_ms: int = 0
    held: list[Run] = []
    kept: int = 0
    targets: list[JobTarget] = []
    back: int = 0

    @property
    def kept_ms(self) -> int:
        """Until when it can be undone; 0: it cannot, or not yet."""
        undoable = self.state in ("done", "cancelled") and self.given.undo_ms and self.done
        return self.ended_ms + self.given.undo_ms if undoable else 0

    @property
    def owns(self) -> bool:
        """Whether what it holds has left the ready messages."""
        return self.given.way != "copy"

    def cut(self, runs: Runs) -> list[Run]:
        """Cut messages out of what it holds; return those that were there."""
        wanted: dict[int, list[tuple[int, int]]] = {}
        for index, first, last in runs:
            wanted.setdefault(index, []).append((first, last))
        taken: list[Run] = []
        rest: list[Run] = []
        for run in self.held:
            at, last = run[1], run[2]
            for low, high in sorted(wanted.get(run[0], ())):
                low, high = max(low, at), min(high, last)
                if low > high:
                    continue
                if at < low:
                    rest.append((run[0], at, low - 1, *run[3:]))
                taken.append((run[0], low, high, *run[3:]))
                at = high + 1
            if at <= last:
                rest.append((run[0], at, last, *run[3:]))
        self.held = rest
        return taken

    def note_targets(self, command: StepJob) -> None:
        """Add targets, and note which of them an undo is over with."""
        known = {target.group: target for target in self.targets}
        for group, name in command.targets:
            if group not in known and len(self.targets) < TARGETS_MAX:
                known[group] = JobTarget(group, name)
                self.targets.append(known[group])
        for group, deleted in command.over:
            if self.state == "undoing" and group in known:
                known[group].over, known[group].deleted = True, deleted

    def note_removed(self, command: RecallJob) -> None:
        """Note how many messages a target has removed: the number never falls."""
        for target in self.targets:
            if target.group == command.target:
                target.removed = max(target.removed, command.removed)
        if not self.owns:
            self.back = min(self.done, sum(target.removed for target in self.targets))

    def stat(self) -> JobStat:
        """Return what is shown of it."""
        given = self.given
        return JobStat(
            self.number,
            given.call,
            given.way,
            given.spec,
            self.state,
            self.why,
            self.began_ms,
            self.ended_ms,
            self.kept_ms,
            self.looked,
            self.matched,
            self.done,
            self.left,
            length(self.held),
            self.kept,
            tuple(target.name for target in self.targets),
            self.back,
            self.done - self.back if self.state == "undone" else 0,
        )


JobRow: TypeAlias = tuple[Job, list[bytes]]
"""A job, and the packed leaves of what it keeps."""


class Jobs:
    """The jobs of a queue by number, which ascends.

    kept  of each job that keeps messages for an undo: (0, log index, first, last, both counts)

    Invariant: `Job.kept` counts what is in `kept`, where no job has an empty list
    """

    __slots__ = ("by_number", "kept")

    def __init__(self) -> None:
        self.by_number: dict[int, Job] = {}
        self.kept: dict[int, Leaves] = {}

    def __bool__(self) -> bool:
        return bool(self.by_number)

    def __iter__(self) -> Iterator[Job]:
        """Yield them, the oldest first."""
        return iter(self.by_number.values())

    @property
    def unfinished(self) -> list[Job]:
        """Those that are to be carried on."""
        return [job for job in self if job.state in UNFINISHED]

    @property
    def messages(self) -> int:
        """The messages that are in the hands of jobs, or kept for an undo."""
        return sum(job.kept + (length(job.held) if job.owns else 0) for job in self)

    @property
    def owns_messages(self) -> bool:
        """Whether messages are in the hands of jobs, or kept for an undo."""
        return bool(self.kept) or any(job.held and job.owns for job in self)

    def keep(self, job: Job, run: Run) -> None:
        """Keep messages for an undo."""
        leaves = self.kept.setdefault(job.number, Leaves())
        leaves.insert((_ALL_KEPT, *run))
        job.kept += run[2] - run[1] + 1

    def let_go(self, job: Job, most: int) -> list[Run]:
        """Keep the first `most` runs no more; return them."""
        leaves = self.kept.get(job.number)
        if leaves is None:
            return []
        taken: list[Row] = []
        while leaves.leaves and len(taken) < most:
            rows = leaves.rows(0)
            some = rows[: most - len(taken)]
            taken += some
            del rows[: len(some)]
            leaves.changed(0)
        if not leaves.leaves:
            del self.kept[job.number]
        runs = [row[1:] for row in taken]
        job.kept -= length(runs)
        return runs

    def cut_kept(self, job: Job, places: Runs) -> list[Run]:
        """Cut messages out of what a job keeps; return those that were there."""
        runs: list[Run] = []
        leaves = self.kept.get(job.number)
        for place in places if leaves is not None else ():
            assert leaves is not None
            runs += [row[1:] for row in leaves.cut_out((_ALL_KEPT, *place))]
        if leaves is not None and not leaves.leaves:
            del self.kept[job.number]
        job.kept -= length(runs)
        return runs

    def runs(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield (where, index, first, last) of what jobs hold and keep."""
        for job in self:
            for index, first, last, _, _ in job.held if job.owns else ():
                yield f"job {job.number}", index, first, last
            for _, index, first, last, _, _ in self.kept_rows(job):
                yield f"kept by job {job.number}", index, first, last

    def kept_rows(self, job: Job, after: tuple[int, int] = (0, -1)) -> Iterator[Row]:
        """Yield the rows that a job keeps behind (log index, ordinal)."""
        leaves = self.kept.get(job.number)
        return iter(()) if leaves is None else leaves.rows_after((_ALL_KEPT, *after))

    def clear(self) -> None:
        """Forget all."""
        self.by_number.clear()
        self.kept.clear()

    def dump(self) -> list[JobRow]:
        """Return the jobs: equal states give equal values."""
        return [
            (job, self.kept[number].dump() if number in self.kept else [])
            for number, job in sorted(self.by_number.items())
        ]

    def load(self, rows: Iterable[JobRow]) -> None:
        """Load what `dump` returned into an empty object."""
        for job, leaves in rows:
            self.by_number[job.number] = job
            if leaves:
                self.kept[job.number] = Leaves(leaves)

    def check(self) -> None:
        """Assert the invariants."""
        assert list(self.by_number) == sorted(self.by_number), list(self.by_number)
        assert self.kept.keys() <= self.by_number.keys(), list(self.kept)
        for number, job in self.by_number.items():
            assert number == job.number and job.given.way, number
            assert not job.held or job.state in UNFINISHED, (number, job.state)
            assert bool(job.ended_ms) != (job.state in UNFINISHED), (number, job.state)
            rows = list(self.kept_rows(job))
            assert job.kept == sum(row[3] - row[2] + 1 for row in rows), (number, job.kept)
            assert rows or number not in self.kept, number
            assert job.back + job.kept <= job.done, (number, job.back, job.kept, job.done)
            assert not (job.state == "undone" and job.kept), number
            over = any(target.over for target in job.targets)
            assert not over or job.state in ("undoing", "undone"), (number, job.state)
            if rows:
                self.kept[number].check_leaves()
                assert rows == sorted(rows), number
