"""Recalls: what a job that is undone has brought to its targets is taken there, and goes back.

A recall is a job of the target (`JobWay`). It finds the messages by their names in the log, which
no client can give: (origin of the job undone, place in its queue). 1. It takes those that are
ready, so that no consumer gets them.  2. It asks the job's queue to bring them back (`RecallJob`).
3. When that has answered they leave the target. What a consumer has, or took before, is not found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.relayed import draw_origin
from warren_machines.metadata.records import QueueRecord
from warren_machines.metadata.state import MetadataState
from warren_machines.queue.codec import decode_submission
from warren_machines.queue.jobs.job_commands import BeginJob, JobIs, RecallJob, Runs
from warren_machines.queue.jobs.job_state import Job
from warren_machines.queue.relays.relay_commands import EnqueueRelayed
from warren_wire import errors
from warren_wire.job_spec import JobSpec, Recalls, encode_spec, place_of


class MessagePlace(NamedTuple):
    """A message by its place in the log of its queue."""

    entry: int
    ordinal: int


def runs_of(places: Iterable[tuple[int, int]]) -> Runs:
    """Return places as runs, neighbours joined."""
    found: list[tuple[int, int, int]] = []
    for index, ordinal in sorted(places):
        if found and found[-1][0] == index and found[-1][2] + 1 == ordinal:
            found[-1] = (index, found[-1][1], ordinal)
        else:
            found.append((index, ordinal, ordinal))
    return tuple(found)


def is_deleted(state: MetadataState, group: int) -> bool:
    """Return whether a queue that existed does not exist any more, and so never will again.

    1. A queue is declared, and a job moves messages to it.  2. The job's queue gets a leader that
    has not applied the declaration yet.  3. To it the target must not look deleted.
    """
    return group not in state.groups and group <= state.last_group


def numbers_brought(data: bytes | memoryview, origin: int) -> list[int]:
    """Return the numbers of the messages of an entry; empty: that origin has not brought it."""
    for command in decode_submission(data)[0].commands:
        if isinstance(command, EnqueueRelayed) and command.origin == origin:
            return [n for count, first in command.numbers for n in range(first, first + count)]
    return []


def recall_command(recalls: Recalls, target: int, numbers: list[int], done: int) -> RecallJob:
    """Return what the queue of the job undone is told; done: messages that have left before."""
    places = runs_of(place_of(number) for number in numbers)
    return RecallJob(recalls.job, target, places, done + len(numbers))


class TargetRecalls:
    """The recalls at the targets of a job that is undone.

    hindrance  why one of them could not be begun; "": all could

    What this knows may be lost with its node: a recall that was begun is found again by its call.
    """

    def __init__(self, queues: QueueClients, group: int, number: int, user: str) -> None:
        self._queues = queues
        self._group = group
        self._number = number
        self._user = user
        self._ended: set[int] = set()
        self.hindrance = ""

    def ask(self, job: Job) -> tuple[tuple[int, bool], ...]:
        """Have each target recall, or ask how far it is; return those that are over by now.

        returns  (group, whether it was deleted): see `StepJob.over`
        """
        over: list[tuple[int, bool]] = []
        state, self.hindrance = self._queues.definitions.state, ""
        for target in job.targets:
            queue = state.groups.get(target.group)
            if target.over:
                continue
            if is_deleted(state, target.group):
                over.append((target.group, True))
            elif queue is not None and (queue.store_of or target.group in self._ended):
                over.append((target.group, False))
            elif queue is not None:
                self._recall_from(queue, job)
        return tuple(over)

    def _recall_from(self, target: QueueRecord, job: Job) -> None:
        source = self._queues.definitions.state.groups[self._group]
        spec = JobSpec(
            user=self._user,
            vhost=source.vhost,
            routing_key=source.name,
            recalls=Recalls(self._group, self._number, job.given.origin),
        )
        call = f"undo {self._group}.{self._number}"
        begin = BeginJob(call, "recall", draw_origin(), 0, encode_spec(spec))

        def told(reply: object) -> None:
            if isinstance(reply, JobIs) and reply.job.ended_ms:
                self._ended.add(target.group)
            elif isinstance(reply, errors.Refusal):
                self.hindrance = str(reply)

        self._queues.ask(target, begin, told)
