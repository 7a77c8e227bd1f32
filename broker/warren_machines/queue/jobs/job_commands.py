"""The commands about jobs, of clients and of the leader that carries a job out."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from warren_wire.queue_values.command_base import QueueCommand, Reply

JOBS_VERSION = 2
"""Of the cluster: before it no queue may be sent one of these commands."""
JobWay: TypeAlias = Literal["move", "copy", "drop", "recall"]
JobState: TypeAlias = Literal[
    "running", "paused", "cancelling", "returning", "cancelled", "done", "undoing", "undone"
]
Steering: TypeAlias = Literal["pause", "resume", "cancel", "undo", "forget"]
Runs: TypeAlias = tuple[tuple[int, int, int], ...]
"""(log index, first, last) of messages."""
TargetGroup: TypeAlias = tuple[int, str]
"""(group, name) of a queue that has got messages of a job."""


class BeginJob(QueueCommand, frozen=True, array_like=True, tag="begin_job"):
    """Begin a job over the messages that are in the queue now. Reply: JobIs.

    call     its caller's name for it: a repeat is answered with the job that it began; "": none
    origin   of the names under which its messages are published (`relay_commands.EnqueueRelayed`)
    undo_ms  for so long after its end, what it has moved or dropped is kept; 0: not at all
    spec     which messages, where to, for which user, at what rate; the machine does not read it
    """

    call: str
    way: JobWay
    origin: int
    undo_ms: int
    spec: bytes


class StepJob(QueueCommand, frozen=True, array_like=True, tag="step_job"):
    """Carry a job on, by its leader. Reply: Done.

    step      so many steps were applied before; with another number nothing is changed
    settled   messages that it holds which their targets have confirmed
    returned  those that are given back to the queue
    take      messages that match: it takes those of them that are ready
    at        (log index, ordinal) up to which messages were looked at
    looked    how many in this step; left: of these matched and have no target
    finished  nothing is left to look at
    why       for what it waits; "": for nothing
    targets   queues that got some of its messages, or may get some that are on their way
    gives_up  a cancelled job publishes no more of what it holds
    over      groups of targets at which an undo has nothing left to remove, and whether that is
              because the queue was deleted
    """

    job: int
    step: int
    settled: Runs = ()
    returned: Runs = ()
    take: Runs = ()
    at: tuple[int, int] = (0, 0)
    looked: int = 0
    left: int = 0
    finished: bool = False
    why: str = ""
    targets: tuple[TargetGroup, ...] = ()
    gives_up: bool = False
    over: tuple[tuple[int, bool], ...] = ()


class RecallJob(QueueCommand, frozen=True, array_like=True, tag="recall_job"):
    """Bring back messages that a job has moved: a target of it holds them. Reply: Recalled.

    A repeat, also one of another leader of the target, brings nothing back twice.

    target   group of the queue that holds them, and lets them leave once this was answered
    places   where the job found them in this queue
    removed  messages that this target has removed altogether, with these
    """

    job: int
    target: int
    places: Runs
    removed: int


class SteerJob(QueueCommand, frozen=True, array_like=True, tag="steer_job"):
    """Pause, resume, cancel, undo or forget a job. Reply: JobIs, as it is then.

    pause    take no more messages; resume: continue
    cancel   take no more; what was taken and is not with its target yet comes back
    undo     bring back what an ended job has moved or dropped, while that is kept, and is ready at
             its targets
    forget   keep nothing any more, and show it no more; it must have ended

    Refused(job_state) where the state of the job forbids it, no_job when there is none.
    """

    job: int
    action: Steering


class JobStat(msgspec.Struct, frozen=True, array_like=True):
    """A job as it is.

    began_ms, ended_ms  ended_ms 0: it has not ended
    kept_ms  until when it can be undone; 0: it cannot
    looked   messages looked at; matched: of these taken, or for a copy found
    done     moved, copied or dropped; left: matched and left where they are, or given back
    held     taken, and not with their targets yet; kept: done, and kept for an undo
    why      for what it waits; "": for nothing
    targets  queues that got some of its messages, at most job_state.TARGETS_MAX
    back     brought back by an undo; of a copy: removed from the targets
    consumed of a job that is undone: done, and not back, because no target had them ready
    """

    number: int
    call: str
    way: JobWay
    spec: bytes
    state: JobState
    why: str
    began_ms: int
    ended_ms: int
    kept_ms: int
    looked: int
    matched: int
    done: int
    left: int
    held: int
    kept: int
    targets: tuple[str, ...]
    back: int = 0
    consumed: int = 0


class JobIs(Reply, frozen=True, array_like=True, tag="job"):
    """A job as it is."""

    job: JobStat


class Recalled(Reply, frozen=True, array_like=True, tag="recalled"):
    """The answer to a target; accepted: False: this job is not being undone, and never will be."""

    accepted: bool


AnyJobCommand: TypeAlias = BeginJob | StepJob | SteerJob | RecallJob
AnyJobReply: TypeAlias = JobIs | Recalled
