"""Carries out the jobs of the queues that are led here (`warren_machines.queue.jobs`).

A job's state is its queue's. What a runner knows beside it may be lost with its node: the next
leader's runner publishes again what the job holds, under the same names, and looks again at a few
messages that did not match.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from warren_broker.access.access import Access
from warren_broker.cluster import messages
from warren_broker.cluster.client.dead_letters import annotate
from warren_broker.cluster.client.forwarding import Fate, Forwarding, restored
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.routed_runs import QueuePart
from warren_broker.cluster.leader.recalls import (
    MessagePlace,
    TargetRecalls,
    is_deleted,
    numbers_brought,
    recall_command,
    runs_of,
)
from warren_broker.cluster.message_match import MessageMatch, headers_of, latest_death, with_headers
from warren_broker.cluster.survey import Answers, Survey
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.effects import JobsDue
from warren_machines.queue.jobs.job_commands import (
    JOBS_VERSION,
    JobStat,
    Recalled,
    StepJob,
    TargetGroup,
)
from warren_machines.queue.jobs.job_state import UNFINISHED, Job
from warren_machines.queue.relays.relay_commands import EnqueueRelayed
from warren_machines.queue.state import QueueState
from warren_raft.runtime.host import UnknownGroup
from warren_raft.runtime.loop import LoopTimer
from warren_raft.storage.errors import EntryDamaged
from warren_wire import errors
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block, BlockError, encode
from warren_wire.job_spec import JobSpec, decode_spec, place_number, shown_spec
from warren_wire.kernel import MessageTable, Route, readable
from warren_wire.kernel.properties import SECTIONS
from warren_wire.relay_names import RelayedName
from warren_wire.undecodable import UNDECODABLE

log = logging.getLogger(__name__)
TAKEN_MESSAGES_MAX: Final = 500
JOB_TAKEN_BYTES_MAX: Final = 4 << 20
"""Messages that a job takes at once, and bytes after which it takes no more; one may be larger."""
JOB_LOOKED_MAX: Final = 50_000
"""Messages without a match after which it is noted how far the job has looked."""
JOB_TURN_MS: Final = 10
"""Time of a turn for looking, of all jobs; the message at hand is not interrupted."""
JOB_RETRY_MS: Final = 1_000
JOB_RETRY_MS_MAX: Final = 10_000
POLL_MS: Final = 300
"""Interval of questions to a queue whether it has given up what an undone job had brought."""

_NO_MESSAGES: Final = encode([], [], (b"", b""))


class LedJob(NamedTuple):
    """A job of a queue that is led here."""

    queue: QueueRecord
    stat: JobStat


class _NoWay(Exception):
    """A job cannot publish now; its text says why."""


@dataclass(eq=False, repr=False)
class _Found:
    """What was looked at since the last step; at: up to which message."""

    at: tuple[int, int]
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    looked: int = 0
    left: int = 0
    messages: int = 0
    size_bytes: int = 0
    over: bool = False

    def add(self, index: int, ordinal: int, size: int) -> None:
        """Add a message that matches."""
        self.messages += 1
        self.size_bytes += size
        if self.runs and self.runs[-1][0] == index and self.runs[-1][2] + 1 == ordinal:
            self.runs[-1] = (index, self.runs[-1][1], ordinal)
        else:
            self.runs.append((index, ordinal, ordinal))


class JobRunner:
    """The runner of one job, for as long as this node leads its queue in one term.

    It does one thing after the other: looks for messages, has them taken, publishes them, has them
    settled. At most one proposal is out: `_proposed` is the step that it is to be. One runner of a
    node does so in a turn, however many jobs there are.

    A job that is cancelled gives back what it holds when a target has refused it, or when it may
    not be published at all any more. A target that does not answer is waited for: it may have it.
    """

    def __init__(self, owner: JobRunners, group: int, number: int, term: int) -> None:
        self.term = term
        self._owner = owner
        self._group = group
        self._number = number
        self._ended = False
        self._proposed = -1
        self._found: _Found | None = None
        self._attempt: _JobAttempt | None = None
        self._timer: LoopTimer | None = None
        self._soon = False
        self._fences = 0
        self._retry_ms = JOB_RETRY_MS
        self._seen = ""
        self._next_ms = 0
        self._asked = False
        job = self._job()
        assert job is not None, number
        self._counted = job.done
        self.spec: JobSpec = decode_spec(job.given.spec)
        self._match = MessageMatch(self.spec.wanted)
        self._recalls = TargetRecalls(owner.queues, group, number, self.spec.user)

    # ------------------------------------------------------------ what is next

    def _state(self) -> QueueState:
        state: QueueState = self._owner.queues.cluster.host.state(self._group)
        return state

    def _job(self) -> Job | None:
        return self._state().jobs.by_number.get(self._number)

    def end(self) -> None:
        """Stop: this node does not lead the queue any more, or the job has ended."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def wake(self) -> None:
        """Do what is next when it is this runner's turn: one for all jobs of the node."""
        if not self._soon:
            self._soon = True
            self._owner.publishing.shares.of("jobs").run_alone(self._carry_on)

    def _carry_on(self) -> None:
        """Do what is next, unless something is under way; what waits, waits no more if steered."""
        self._soon = False
        if self._ended or not self._owner.leads(self._group, self.term):
            return
        job = self._job()
        if job is not None and job.done > self._counted:
            done, self._counted = job.done - self._counted, job.done
            self._owner.queues.cluster.counters.add("job_messages_done", done)
        if job is None or job.state not in UNFINISHED:
            if job is not None:
                said = (self._number, self._name(), job.state, job.done, job.left)
                log.info("job %d of queue %s is %s: %d messages done, %d left", *said)
            self._owner.ended(self._group, self._number)
            return
        if job.step > self._proposed:
            self._proposed = -1
        if self._proposed >= 0 or self._attempt is not None or self._fences > 0 or self._asked:
            return
        steered, self._seen = job.state != self._seen, job.state
        if self._timer is not None and not steered:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        states = {"undoing": self._undo, "returning": self._give_back}
        passes_on = self._publish if self.spec.recalls is None else self._bring_back
        step = states.get(job.state, passes_on if job.held else self._look)
        if step == self._look and job.state != "running":
            return
        try:
            if not self.guarded(step, job):
                self._later(JOB_RETRY_MS_MAX)
        except EntryDamaged as damage:
            self._later(JOB_RETRY_MS_MAX)
            self._owner.queues.cluster.host.repair.when(self._group, damage.index, self.wake)
        except (KeyError, UnknownGroup):
            log.exception("job %d of queue %s is tried again", self._number, self._name())
            self._later(JOB_RETRY_MS_MAX)

    def guarded(self, call: Callable[..., object], *args: object) -> bool:
        """Call it; a fault is logged and counted, and costs no other client anything."""
        aside = self._owner.queues.cluster.set_aside
        return aside.attempt(self._group, f"job {self._number}", call, *args)

    def _later(self, wait_ms: int) -> None:
        """Continue after that time."""
        if self._ended or self._timer is not None:
            return

        def due() -> None:
            self._timer = None
            self.wake()

        self._timer = self._owner.queues.cluster.loop.call_later(max(0, wait_ms), due)

    def _propose(self, job: Job, **said: Any) -> None:
        self._proposed = job.step
        command = StepJob(self._number, job.step, **said)
        self._owner.queues.cluster.effects.command(self._group, command)

    def _waits(self, job: Job, why: str) -> None:
        """Note for what the job waits, and try again later."""
        wait_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, JOB_RETRY_MS_MAX)
        self._later(wait_ms)
        if job.why != why:
            log.warning("job %d of queue %s waits: %s", self._number, self._name(), why)
            self._propose(job, why=why)

    def _name(self) -> str:
        return self._owner.queues.cluster.set_aside.name(self._group)

    # ------------------------------------------------------------ looking

    def _look(self, job: Job) -> None:
        """Look at the next messages, for as long as a turn may take; have some taken."""
        loop = self._owner.queues.cluster.loop
        wait_ms = self._next_ms - loop.now_ms
        if wait_ms > 0:
            self._later(wait_ms)
            return
        found = self._found = self._found or _Found(job.at)
        most = min(TAKEN_MESSAGES_MAX, self.spec.rate or TAKEN_MESSAGES_MAX)
        until = loop.clock.monotonic_ms() + JOB_TURN_MS
        self._look_on(job, found, most, until)
        if not (found.over or found.messages or found.looked >= JOB_LOOKED_MAX):
            self.wake()
            return
        self._found = None
        dropped = found.messages if job.given.way == "drop" else 0
        self._paced(dropped)
        counts = {"looked": found.looked, "left": found.left, "finished": found.over}
        self._propose(job, take=tuple(found.runs), at=found.at, **counts)

    def _look_on(self, job: Job, found: _Found, most: int, until: int) -> None:
        clock = self._owner.queues.cluster.loop.clock
        begin = found.at[0]
        for index in self._state().contents.after(begin - 1):
            if index >= job.number or self._is_past(index):
                break
            first = found.at[1] + 1 if index == begin else 0
            if self.spec.recalls is not None:
                self._look_for_recalled(found, index)
                if found.messages >= most or clock.monotonic_ms() >= until:
                    return
                continue
            block, born_ms = self.block(index), self._born_ms(index)
            for ordinal in range(first, block.count if block is not None else 0):
                assert block is not None
                self._ask(found, block, index, ordinal, born_ms)
                full = found.messages >= most or found.size_bytes >= JOB_TAKEN_BYTES_MAX
                if full or clock.monotonic_ms() >= until:
                    return
            found.at = (index + 1, -1)
            if found.looked >= JOB_LOOKED_MAX or clock.monotonic_ms() >= until:
                return
        found.at, found.over = (job.number, -1), True

    def _is_past(self, index: int) -> bool:
        """Return whether a message was named, and is in an earlier entry."""
        return 0 < self.spec.wanted.index < index

    def _ask(self, found: _Found, block: Block, index: int, ordinal: int, born_ms: int) -> None:
        found.at = (index, ordinal)
        wanted = self.spec.wanted
        if wanted.index and (wanted.index, wanted.ordinal) != (index, ordinal):
            return
        found.looked += 1
        taken: list[bool] = []
        self.guarded(lambda: taken.append(self._match.takes(block, ordinal, born_ms)))
        if not taken or not taken[0]:
            return
        if self.spec.aim == "origin" and not self._origin(block, ordinal):
            found.left += 1
            return
        size = len(block.body(ordinal)) + len(block.properties(ordinal))
        found.add(index, ordinal, size)

    def block(self, index: int) -> Block | None:
        """Return the block of an entry; None: it has left, or cannot be read."""
        try:
            return self._owner.queues.cluster.stored.read(self._group, index)
        except (KeyError, BlockError) as error:
            log.error("entry %d of queue %s cannot be read: %s", index, self._name(), error)
            return None

    def _born_ms(self, index: int) -> int:
        if not self._match.asks_time:
            return 0
        try:
            return self._owner.queues.cluster.host.read_entry(self._group, index).time_ms
        except KeyError:
            return 0

    def _origin(self, block: Block, ordinal: int) -> str:
        """Return the queue in which a message died; "": none, or it does not exist."""
        queue = latest_death(headers_of(block, ordinal)).queue
        state = self._owner.queues.definitions.state
        return queue if state.queue(self.spec.vhost, queue) is not None else ""

    def _paced(self, messages_done: int) -> None:
        """Note when so many messages are done that the rate allows more."""
        if self.spec.rate and messages_done:
            now_ms = self._owner.queues.cluster.loop.now_ms
            self._next_ms = max(self._next_ms, now_ms) + messages_done * 1000 // self.spec.rate

    # ------------------------------------------------------------ publishing

    def _publish(self, job: Job) -> None:
        """Publish what the job holds, or give back what does not exist any more."""
        places = [
            MessagePlace(index, ordinal)
            for index, first, last, _, _ in job.held
            for ordinal in range(first, last + 1)
        ]
        attempt = _JobAttempt(self, job)
        for place in places:
            attempt.add(place)
        try:
            self._check(attempt.table)
        except _NoWay as refused:
            self._refused_all(job, str(refused))
            return
        self._attempt = attempt
        if not attempt.table.count:
            attempt.over()
            return
        publishing = self._owner.publishing
        share = publishing.shares.of(("jobs", self._group))
        table = restored(attempt.table)
        run = (self.spec.vhost, table, 0, table.count, attempt, 0, share)
        if not self.guarded(publishing.publish, *run):
            self._attempt = None
            self._waits(job, "what it holds cannot be published, see the node's log")

    def _check(self, table: MessageTable) -> None:
        """Raise _NoWay where the job's user may not publish, or there is nothing to publish to."""
        spec, definitions = self.spec, self._owner.queues.definitions
        if spec.vhost not in definitions.state.scopes:
            raise _NoWay(f"no vhost '{spec.vhost}'")
        if spec.exchange and definitions.exchange(spec.vhost, spec.exchange) is None:
            raise _NoWay(str(errors.no_exchange(spec.exchange, spec.vhost)))
        if spec.by_token:
            return
        access = self._owner.access(spec.vhost, spec.user)
        try:
            for route in table.routes.entries:
                key = route.routing_key.decode("utf-8", "surrogateescape")
                access.publish(route.exchange.decode("utf-8", "surrogateescape"), (key,))
        except errors.Refusal as refusal:
            raise _NoWay(str(refusal)) from None

    def _refused_all(self, job: Job, why: str) -> None:
        """Wait, or, when the job is cancelled, publish no more of what it holds."""
        if job.state == "cancelling":
            state, spec = self._owner.queues.definitions.state, self.spec
            one = None if spec.exchange else state.queue(spec.vhost, spec.routing_key or "")
            targets = () if one is None else ((one.group, one.name),)
            self._propose(job, gives_up=True, targets=targets)
        else:
            self._waits(job, why)

    def _give_back(self, job: Job) -> None:
        """Give back what the job holds, once its targets accept none of that any more.

        1. A leader has published messages, and loses its leadership.  2. The next one is refused:
        the queue is full. The job is cancelled.  3. The queue has room, and what the first one has
        sent arrives late. So the queue is told that no number up to the last one comes again. From
        then on it confirms them as repeats: so that they are not published any more is noted first.
        Replayed by tests/broker/cluster/leader/test_job_runners.py
        """
        queues, groups = self._owner.queues, self._owner.queues.definitions.state.groups
        waiting = [groups[one.group] for one in job.targets if one.group in groups]
        held = tuple(run[:3] for run in job.held)
        if not waiting:
            self._propose(job, returned=held)
            return
        self._fences = len(waiting)
        last = job.held[-1]
        fence = EnqueueRelayed(job.given.origin, place_number(last[0], last[2]) + 1, ())

        def told(reply: object, index: int) -> None:
            now = self._job()
            if self._ended or now is None or self._fences <= 0:
                return
            self._fences -= 1
            if isinstance(reply, errors.Refusal) and not isinstance(reply, errors.NotFound):
                self._fences = 0
                self._later(JOB_RETRY_MS)
            elif not self._fences:
                self._propose(now, returned=held)

        for queue in waiting:
            queues.client(queue).with_block(fence, _NO_MESSAGES, told)

    def answered(self, attempt: _JobAttempt) -> None:
        """Have the messages settled that all of their targets have; the others are tried again."""
        self._attempt = None
        job = self._job()
        if job is None or self._ended:
            return
        settled = [place for place, fate in attempt.rows if attempt.is_settled(fate)]
        refused = [place for place, fate in attempt.rows if attempt.is_refused(fate)]
        waiting = len(attempt.rows) - len(settled)
        self._paced(len(settled))
        said: dict[str, Any] = {
            "settled": runs_of(settled),
            "why": attempt.why if waiting else "",
            "targets": attempt.groups_of(attempt.targets),
        }
        if job.state == "cancelling" and refused and len(refused) == waiting:
            said["targets"] = attempt.groups_of(attempt.targets | attempt.refusing)
            self._propose(job, returned=runs_of(attempt.gone), gives_up=True, **said)
        elif settled or attempt.gone:
            self._retry_ms = JOB_RETRY_MS if settled else self._retry_ms
            if waiting:
                self._later(self._retry_ms)
            self._propose(job, returned=runs_of(attempt.gone), **said)
        else:
            self._waits(job, attempt.why or "no queue has taken what it holds")

    def groups(self, names: Iterable[str]) -> dict[str, int]:
        """Return the groups of queues, without those of stores that deliver nothing themselves."""
        state, publishing = self._owner.queues.definitions.state, self._owner.publishing
        found = [state.queue(self.spec.vhost, name) for name in names]
        there = [one for one in found if one is not None]
        return {q.name: q.group for q in there if not q.store_of or publishing.delays(q)}

    def is_absent(self, name: str) -> bool:
        """Return whether a queue is out of reach: it may have what it does not confirm."""
        queues = self._owner.queues
        queue = queues.definitions.state.queue(self.spec.vhost, name)
        return queue is not None and queues.absent(queue)

    def message(
        self, block: Block, ordinal: int, place: MessagePlace
    ) -> tuple[Route, bytes, bytes]:
        """Return what is published of a message: route, properties, body."""
        spec = self.spec
        exchange, key = spec.exchange.encode(), bytes(block.route(ordinal)[1])
        if spec.aim == "origin":
            key = latest_death(headers_of(block, ordinal)).queue.encode()
        elif spec.routing_key is not None:
            key = spec.routing_key.encode()
        raw = self._owner.annotated(self._group, block, ordinal, place.entry)
        if spec.headers or spec.body is not None:
            raw = with_headers(raw, dict(spec.headers), (SECTIONS,))
        body = bytes(block.body(ordinal)) if spec.body is None else spec.body
        return Route(exchange, key, False), raw, body

    # ------------------------------------------------------------ undoing

    def _undo(self, job: Job) -> None:
        """Have the targets give up what they still have; the queue itself notes what came back."""
        over = self._recalls.ask(job)
        if over or all(target.over for target in job.targets):
            self._propose(job, over=over, finished=True)
            return
        self._later(POLL_MS)
        if self._recalls.hindrance not in ("", job.why):
            self._propose(job, why=self._recalls.hindrance)

    def _look_for_recalled(self, found: _Found, index: int) -> None:
        """Look at an entry, as a recall: at all of its messages, which are one block's."""
        names = self._names(index)
        for ordinal in range(found.at[1] + 1 if found.at[0] == index else 0, len(names)):
            found.add(index, ordinal, 0)
        found.looked += len(names)
        found.at = (index + 1, -1)

    def _names(self, index: int) -> list[int]:
        assert self.spec.recalls is not None
        entry = self._owner.queues.cluster.host.read_entry(self._group, index)
        return numbers_brought(entry.data, self.spec.recalls.origin)

    def _bring_back(self, job: Job) -> None:
        """Have the queue of the job undone bring back what this recall holds, then let that leave.

        A leader that takes over in between asks again, and nothing is brought back twice. A queue
        that was deleted, or does not undo the job, never will: then the messages stay here.
        """
        recalls, queues = self.spec.recalls, self._owner.queues
        assert recalls is not None
        held = tuple(run[:3] for run in job.held)
        source = queues.definitions.state.groups.get(recalls.group)
        if source is None:
            if is_deleted(queues.definitions.state, recalls.group):
                self._propose(job, returned=held, finished=True)
            else:
                self._later(JOB_RETRY_MS)
            return
        numbers = [n for at, first, last in held for n in self._names(at)[first : last + 1]]
        self._asked = True

        def told(reply: object) -> None:
            self._asked = False
            now = self._job()
            if self._ended or now is None:
                return
            if not isinstance(reply, Recalled):
                self._waits(now, str(reply))
            elif reply.accepted:
                self._retry_ms = JOB_RETRY_MS
                self._propose(now, settled=held)
            else:
                self._propose(now, returned=held, finished=True)

        queues.ask(source, recall_command(recalls, self._group, numbers, job.done), told)


class _JobAttempt(Forwarding):
    """What a job publishes at once: as a policy, all of it is told of, under names of the job.

    rows       the messages that are published, with their fates; gone: those that are not there
    denied     fates of those that a target has refused
    uncertain  of those that a target out of reach may have
    """

    strict = at_once = True

    def __init__(self, runner: JobRunner, job: Job) -> None:
        self._runner, self._job = runner, job
        self.table = MessageTable()
        self.rows: list[tuple[MessagePlace, Fate]] = []
        self.gone: list[MessagePlace] = []
        self.denied: set[Fate] = set()
        self.uncertain: set[Fate] = set()
        self.targets: set[str] = set()
        self.refusing: set[str] = set()
        self.why = ""
        self.names: dict[int, RelayedName] = {}
        self._groups: dict[str, int] = {}
        self._routed = self._over = False
        self._read: tuple[int, Block | None] | None = None

    def add(self, place: MessagePlace) -> None:
        """Add a message that the job holds."""
        if self._read is None or self._read[0] != place.entry:
            self._read = place.entry, self._runner.block(place.entry)
        block = self._read[1]
        if block is None or place.ordinal >= block.count:
            self.gone.append(place)
            return
        made: list[tuple[Route, bytes, bytes]] = []

        def make() -> None:
            made.append(self._runner.message(block, place.ordinal, place))

        if not self._runner.guarded(make):
            self.gone.append(place)
            return
        (route, raw, body), at = made[0], self.table.count
        number, lowest = place_number(*place), self._job.held[0]
        floor = place_number(lowest[0], lowest[1])
        self.table.append(route, raw, body)
        self.names[at] = RelayedName(self._job.given.origin, number, floor)
        self.rows.append((place, Fate()))

    def is_settled(self, fate: Fate) -> bool:
        """Return whether every target has taken a message."""
        return bool(fate.confirmed) and not fate.unsettled and fate not in self._failed

    def is_refused(self, fate: Fate) -> bool:
        """Return whether no target has a message for sure, and one has refused it."""
        return fate in self.denied and fate not in self.uncertain and not fate.unsettled

    @property
    def _failed(self) -> set[Fate]:
        return self.denied | self.uncertain

    def sends(self, parts: list[QueuePart]) -> None:
        """See Forwarding; a message that no queue gets is refused."""
        self._routed = True
        self._groups = self._runner.groups({part.name for part in parts})
        for part in parts:
            for i in part.selection:
                self.rows[i][1].unsettled.add(part.name)
        for _, fate in self.rows:
            if not fate.unsettled:
                self.denied.add(fate)
                self.why = self.why or "no queue is bound for some of what it holds"
        self._look()

    def refused(self, refusal: errors.Refusal) -> None:
        """See Forwarding."""
        self.why = str(refusal)
        super().refused(refusal)

    def answered(self, queue: str, positions: list[int], denied: set[int]) -> None:
        """See Forwarding."""
        for i in positions:
            fate = self.rows[i][1]
            fate.answer(queue, i not in denied)
            if i not in denied:
                self.targets.add(queue)
            elif self._runner.is_absent(queue):
                self.uncertain.add(fate)
            else:
                self.denied.add(fate)
                self.refusing.add(queue)
        if denied:
            self.why = f"queue '{queue}' has refused messages: it is full, or out of reach"
        self._look()

    def unknown(self) -> bool:
        """See `PublishedRun`: it is published again, under the same names."""
        self.why = "a queue that is to have messages of it is out of reach"
        self.over()
        return True

    def groups_of(self, names: Iterable[str]) -> tuple[TargetGroup, ...]:
        """Return queues as they were when it was routed; those of replies are none."""
        return tuple((self._groups[name], name) for name in sorted(names) if name in self._groups)

    def _look(self) -> None:
        if self._routed and not any(fate.unsettled for _, fate in self.rows):
            self.over()

    def over(self) -> None:
        """Tell the runner, once."""
        if not self._over:
            self._over = True
            self._runner.answered(self)


class JobRunners:
    """The runners of the jobs of all queues that are led here.

    access  makes the checks of what a user may do in a vhost
    """

    def __init__(
        self, queues: QueueClients, publishing: Publisher, access: Callable[[str, str], Access]
    ) -> None:
        self.queues = queues
        self.publishing = publishing
        self.access = access
        self._runners: dict[int, dict[int, JobRunner]] = {}
        cluster = queues.cluster
        self._survey = Survey(cluster, messages.AskJobs, messages.JobsAre)
        cluster.handlers[messages.AskJobs] = self._on_ask
        cluster.on_leader.append(self._leader_changed)

    # ------------------------------------------------------------ running

    def carry_out(self, group: int, effect: JobsDue) -> None:
        """Carry the jobs of a queue on that is led here, once this node knows the definitions."""
        del effect
        self.queues.definitions.call_at_ready(lambda: self._wake(group))

    def _wake(self, group: int) -> None:
        host = self.queues.cluster.host
        if not host.is_leader(group) or group not in self.queues.definitions.state.groups:
            return
        jobs, term = host.state(group).jobs, host.term(group)
        known = self._runners.setdefault(group, {})
        for job in jobs.unfinished:
            runner = known.get(job.number)
            if runner is not None and runner.term != term:
                runner.end()
                runner = None
            if runner is None:
                runner = self._made(group, job, term)
            if runner is not None:
                known[job.number] = runner
        for runner in list(known.values()):
            runner.wake()
        if not jobs:
            self._runners.pop(group, None)

    def _made(self, group: int, job: Job, term: int) -> JobRunner | None:
        """Make the runner of a job; None: what it is to do cannot be read here."""
        try:
            return JobRunner(self, group, job.number, term)
        except (errors.Refusal, *UNDECODABLE) as error:
            name = self.queues.cluster.set_aside.name(group)
            log.error("job %d of queue %s cannot be read: %s", job.number, name, error)
            return None

    def leads(self, group: int, term: int) -> bool:
        """Return whether this node leads a queue in that term."""
        host = self.queues.cluster.host
        there = group in self.queues.definitions.state.groups
        return there and host.is_leader(group) and host.term(group) == term

    def ended(self, group: int, number: int) -> None:
        """Forget the runner of a job that has ended."""
        runner = self._runners.get(group, {}).pop(number, None)
        if runner is not None:
            runner.end()

    def _leader_changed(self, group: int) -> None:
        host = self.queues.cluster.host
        if group in self._runners and not host.is_leader(group):
            for runner in self._runners.pop(group).values():
                runner.end()

    def annotated(self, group: int, block: Block, ordinal: int, index: int) -> bytes:
        """Return a message's properties, with the annotations of consumers of its queue."""
        raw = readable(bytes(block.properties(ordinal)))
        state: QueueState = self.queues.cluster.host.state(group)
        notes = state.annotations.blocks.get(index, {}).get(ordinal, ())
        if not notes:
            return raw
        headers: dict[str, Any] = dict(properties.headers(raw))
        annotate(headers, notes, raw)
        return properties.replace(raw, headers=headers)

    # ------------------------------------------------------------ asking

    def survey(self, answer: Callable[[list[LedJob]], None]) -> None:
        """Answer the jobs of all queues with a leader, by queue and number."""

        def told(answers: Answers) -> None:
            rows = [*self._led(), *(row for of in answers.values() for row in of.jobs)]
            groups = self.queues.definitions.state.groups
            found = {(group, stat.number): stat for group, stat in sorted(rows, key=_age)}
            answer([LedJob(groups[g], found[g, n]) for g, n in sorted(found) if g in groups])

        asks = self.queues.definitions.state.version >= JOBS_VERSION
        self._survey.ask(self.queues.definitions.within_reach() if asks else (), told)

    def _led(self) -> Iterator[tuple[int, JobStat]]:
        host = self.queues.cluster.host
        for group in list(self._runners):
            try:
                jobs = host.state(group).jobs
            except UnknownGroup:
                del self._runners[group]
                continue
            if not jobs:
                del self._runners[group]
            for job in jobs:
                stat = job.stat()
                yield group, replace(stat, spec=shown_spec(stat.spec))

    def _on_ask(self, node: str, message: messages.AskJobs, rest: memoryview) -> None:
        told = messages.JobsAre(message.request, tuple(self._led()))
        self.queues.cluster.host.send(node, messages.encode(told))


def _age(row: tuple[int, JobStat]) -> tuple[int, int]:
    """Order what two nodes say of a job: one of them may have lost its leadership just now."""
    return row[1].ended_ms, row[1].looked
