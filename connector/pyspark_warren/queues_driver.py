"""The source's logic on Spark's driver for several queues: a claim in each, one offset for all."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark_warren.admission import Admission
from pyspark_warren.conditions import naming_queue
from pyspark_warren.continued import ContinuedReaders
from pyspark_warren.driver import BATCH_MESSAGES_MAX, CLAIM_BYTES_MAX
from pyspark_warren.errors import CheckpointError, WarrenSparkError
from pyspark_warren.known_reader import has_to_read
from pyspark_warren.offset import ClaimInfo, Offset, check_same_vhost
from pyspark_warren.options import Options
from pyspark_warren.pace import Pace
from pyspark_warren.plan import Slice
from pyspark_warren.port import BrokerPort
from pyspark_warren.queue_offsets import QueueOffsets
from pyspark_warren.selection import Selection
from pyspark_warren.share import divide
from pyspark_warren.stepped_driver import SteppedDriver
from pyspark_warren.surroundings import Surroundings
from warren import errors as client_errors
from warren.admin import Queue

log = logging.getLogger("pyspark_warren")


class QueuesDriver:
    """One run of one query that reads several queues; see `ClaimDriver` for Spark's calls.

    A micro-batch has at most one claim of each queue, and its offset names them all. Each queue has
    a driver of its own, with what that promises: the same claim for the same number, settled when
    Spark has committed it. What one driver of several queues adds:

    1. A queue joins in two batches: the first one puts it into the checkpoint, the second one opens
       its first claim. So no claim is open that no checkpoint knows of.
    2. A queue that the options no longer select leaves in two batches: the batch that was begun is
       read to its end and settled; the next one says in the checkpoint that the queue is left; then
       a claim that was opened and not used is given back, and the reader is ended. A driver with
       other options that comes in between finds the queue as it was, or has it join again.
    3. A queue of a pattern that was deleted leaves, too. A batch that was begun and has rows of it
       is a loss, as onClaimLost says.
    4. The queues are not asked one after another. A batch takes two round trips, whatever their
       number: all counts; then, in each queue, the settlement of the committed claim with the
       opening of the next one. The first batch of a run settles before it looks, because the counts
       must show which claims an earlier run has opened. Every answer is noted before an error of
       one queue, which names it, is raised: the claims of the others are open, and a repeat, or the
       next run, gets the same ones.

    Invariant: a queue's claim is opened only at a position that `start`, which Spark has in its
    logs, names.
    """

    def __init__(self, broker: BrokerPort, options: Options, surroundings: Surroundings) -> None:
        self._broker = broker
        self._options = options
        self._surroundings = surroundings
        clock_ms = surroundings.clock_ms
        self._pace = Pace(clock_ms, surroundings.sleep_s, options.poll_interval_ms)
        self._admission = Admission(options, clock_ms)
        self._selection = Selection(options)
        self._lanes: dict[str, SteppedDriver] = {}
        self._initial: QueueOffsets | None = None
        self._found: dict[str, Queue] | None = None
        self._looked = False
        self._compared = False
        self._now: frozenset[str] | None = None
        self._left: dict[str, Offset] = {}
        self._turn = 0
        self._turns: dict[str, int] = {}
        self._group = _Readers(self._lanes)

    # -------------------------------------------------------------- Spark's calls

    def initial(self) -> QueueOffsets:
        """Return the offset where a query without a checkpoint starts; always the same."""
        if self._initial is None:
            reader = self._options.reader_id or self._surroundings.mint()
            self._initial = QueueOffsets(self._options.vhost, reader, {}, registered=False)
        return self._initial

    def latest(self, start: QueueOffsets, limit: int | None) -> QueueOffsets:
        """Settle up to `start`, then open the next claims; `start` when there is nothing to read.

        limit  maximum number of messages; None: all that are ready, whatever the options say
        """
        self._check_is_ours(start)
        self._admission.ended()
        if not start.registered:
            return self._first(start, limit)
        self._leave(start)
        at, leaving = self._standing(start)
        if not (self._looked and self._pace.due):
            at, leaving = self._take(at, {}), self._take(leaving, {})
        self._pace.wait()
        found = self._look(exact=limit is None or self._now is not None or not self._looked)
        for name in [name for name in at if name not in found]:
            self._vanished(name)
            del at[name]
        joined = self._joined(start.reader, at, found, limit)
        taken = self._opened(start, at, leaving, found, limit)
        leaving = {name: replace(taken[name], claims=()) for name in leaving if name in taken}
        end = {name: taken[name] for name in at if name in taken} | joined
        if dict(start.queues) == end and not leaving:
            self._pace.found_nothing(self._admission.pause_ms())
            return start
        self._pace.found_messages()
        still = {
            name: replace(offset, claims=()) if offset == start.queues.get(name) else offset
            for name, offset in end.items()
        }
        return start.moved(still, leaving)

    def plan(self, start: QueueOffsets, end: QueueOffsets) -> tuple[Slice, ...]:
        """Return the slices of a micro-batch's claims, queue by queue."""
        for offset in (start, end):
            self._check_is_ours(offset)
        slices: list[Slice] = []
        begun = {name: last for name, last in end.queues.items() if last.claims}
        self._check_copies(begun, {name: last.claims[0].number - 1 for name, last in begun.items()})
        for name, last in sorted(end.queues.items()):
            lane = self._lane(name)
            try:
                parts = lane.plan(start.of(name), last)
            except client_errors.NotFound as gone:
                parts = lane.plan_of_lost(last, str(gone))
            slices += [part.of_queue(name) for part in parts]
        return tuple(slices)

    def settle(self, upto: QueueOffsets) -> None:
        """Settle claims up to that offset, of queues that this run reads; a repeat is harmless."""
        for name, offset in upto.queues.items():
            lane = self._lanes.get(name)
            if lane is None or not lane.reads_as(offset.reader):
                continue
            try:
                lane.settle(offset)
            except client_errors.NotFound as gone:
                log.info("queue %r: nothing to settle: %s", name, gone)  # `latest` decides

    def prepare_available_now(self) -> None:
        """Limit further batches to the messages that are ready now, in queues that exist now."""
        found = self._look(exact=True)
        self._now = frozenset(found)
        for name, queue in found.items():
            self._lane(name).limit_to(queue)

    def backlog(self) -> dict[str, Any]:
        """Return the counts of the last look at the queues, for the query's progress."""
        found = self._found if self._found is not None else self._look(exact=False)
        return {
            "bytes_ready": sum(queue.bytes_ready for queue in found.values()),
            "messages_claimed": sum(queue.messages_claimed for queue in found.values()),
            "messages_ready": sum(queue.messages_ready for queue in found.values()),
            "messages_unacknowledged": sum(
                queue.messages_unacknowledged for queue in found.values()
            ),
            "queues": {name: queue.messages_ready for name, queue in sorted(found.items())},
        }

    @property
    def attached(self) -> _Readers | None:
        """The registered readers, once there is one."""
        return self._group if self._group.registered() else None

    # -------------------------------------------------------------- steps

    def _check_is_ours(self, offset: QueueOffsets) -> None:
        check_same_vhost(offset.vhost, self._options.vhost)
        if offset.queues and not any(map(self._selection.selects, offset.queues)):
            names = ", ".join(sorted(offset.queues)[:5])
            raise CheckpointError(
                f"the checkpoint is of queue {names}, the query reads "
                f"{self._options.read_text()}, none of those: give this query its own "
                "checkpointLocation, or name one of the checkpoint's queues, too"
            )

    def _lane(self, name: str) -> SteppedDriver:
        """Return the driver of one queue."""
        lane = self._lanes.get(name)
        if lane is None:
            options = replace(self._options, queue=name)
            lane = SteppedDriver(self._broker, options, self._surroundings)
            self._lanes[name] = lane
        return lane

    def _look(self, exact: bool) -> dict[str, Queue]:
        self._found = self._selection.look(self._broker, exact)
        if exact and not self._looked:
            for name, queue in self._found.items():
                self._lane(name).note_open(queue)
        self._looked = self._looked or exact
        return self._found

    def _first(self, start: QueueOffsets, limit: int | None) -> QueueOffsets:
        """Return the end of the first batch, which puts the reader's name into the checkpoint.

        With a single batch (trigger once) the claims are opened when it is planned.
        """
        found = self._look(exact=True)
        if limit is None and not any(has_to_read(each, start.reader) for each in found.values()):
            return start
        for name in found:
            with suppress(client_errors.NotFound):
                ContinuedReaders(self._broker, replace(self._options, queue=name)).end()
        return start.moved(self._joined(start.reader, {}, found, limit), {})

    def _standing(self, start: QueueOffsets) -> tuple[dict[str, Offset], dict[str, Offset]]:
        """Return the positions in queues still read, and in others; nothing is settled yet."""
        at: dict[str, Offset] = {}
        leaving: dict[str, Offset] = {}
        self._check_copies(
            start.queues, {name: offset.number for name, offset in start.queues.items()}
        )
        for name, offset in start.queues.items():
            into = at if self._selection.selects(name) else leaving
            try:
                into[name] = self._lane(name).standing(offset)
            except client_errors.NotFound as gone:
                self._gone(name, gone)
        return at, leaving

    def _take(
        self, at: Mapping[str, Offset], opens: Mapping[str, tuple[int, int]]
    ) -> dict[str, Offset]:
        """Settle in all these queues at once, and open claims; return the positions then.

        opens   the most messages and bytes of the next claim, in queues where one is opened
        raises  the error of the first queue that has one, when all answers have been noted
        """
        steps = {}
        for name, offset in at.items():
            step = self._lanes[name].step(offset, *opens.get(name, (0, 0)))
            if step.settles or step.opens:
                steps[name] = step
        answers = self._broker.take_steps(list(steps.values())) if steps else []
        taken = dict(at)
        wrong: Exception | None = None
        for (name, step), answer in zip(steps.items(), answers, strict=True):
            try:
                taken[name] = self._lanes[name].taken(at[name], step, answer)
            except client_errors.NotFound as gone:
                del taken[name]
                try:
                    self._gone(name, gone)
                except client_errors.NotFound as named:
                    wrong = wrong or named
            except (client_errors.WarrenError, WarrenSparkError) as failed:
                wrong = wrong or naming_queue(name, failed)
        if wrong is not None:
            raise wrong
        return taken

    def _gone(self, name: str, gone: client_errors.NotFound) -> None:
        """Continue without a deleted queue; raise `gone` when the options name it."""
        if self._selection.selects(name) and not self._selection.by_pattern:
            raise gone
        self._vanished(name)

    def _check_copies(self, offsets: Mapping[str, Offset], settled_max: Mapping[str, int]) -> None:
        """Raise CheckpointBehindError for an older copy, before any reader is taken over."""
        if self._compared:
            return
        self._compared = True
        for name, offset in offsets.items():
            with suppress(client_errors.NotFound):
                self._lane(name).is_older_copy(offset, settled_max[name])

    def _leave(self, start: QueueOffsets) -> None:
        """End the reader in the queues of which the checkpoint says that they are left."""
        for name, offset in start.leaving.items():
            if self._left.get(name) == offset:
                continue
            try:
                self._lane(name).leave(offset)
                log.warning("queue %r is not selected any more: the query has left it", name)
            except client_errors.NotFound as gone:
                log.info("queue %r is not selected any more, and gone: %s", name, gone)
            del self._lanes[name]
            self._left[name] = offset

    def _vanished(self, name: str) -> None:
        log.warning("queue %r was deleted; the query continues without it", name)
        self._lanes.pop(name, None)

    def _joined(
        self, reader: str, at: dict[str, Offset], found: dict[str, Queue], limit: int | None
    ) -> dict[str, Offset]:
        """Return the first positions in queues that the checkpoint does not have yet."""
        joined: dict[str, Offset] = {}
        for name, queue in found.items():
            if name in at or (self._now is not None and name not in self._now):
                continue
            try:
                hello = self._lane(name).hello(reader)
            except client_errors.NotFound as gone:
                self._gone(name, gone)
                continue
            once = limit is None and has_to_read(queue, reader)
            joined[name] = hello.after(ClaimInfo(hello.number + 1, 0, 0)) if once else hello
        return joined

    def _opened(
        self,
        start: QueueOffsets,
        at: dict[str, Offset],
        leaving: dict[str, Offset],
        found: dict[str, Queue],
        limit: int | None,
    ) -> dict[str, Offset]:
        """Open the next claim of each queue that has messages, within the limits together.

        What is committed is settled with the same requests. Returns the position in each queue.
        """
        # Where settling ended elsewhere, a claim was lost: that is told in a batch of its own.
        still = {name: offset for name, offset in at.items() if offset is start.queues[name]}
        begun = {name for name in still if self._lanes[name].was_open(still[name])}
        # What an earlier run has opened is its batch, alone: the others would not be repeated.
        shares = dict.fromkeys(begun, (1, 1)) if begun else self._wanted(still, found, limit)
        taken = self._take({**at, **leaving}, shares)
        messages = 0
        for name in shares:
            end = taken.get(name, still[name])
            if end is not still[name]:
                self._turn += 1
                self._turns[name] = self._turn
                messages += sum(claim.messages for claim in end.claims)
        if messages:
            self._admission.began(messages)
        return taken

    def _wanted(
        self, still: dict[str, Offset], found: dict[str, Queue], limit: int | None
    ) -> dict[str, tuple[int, int]]:
        """Return the most messages and bytes for each queue to request a claim of.

        Where a claim is requested only because the reader owes a request, it has one message at
        most, if one has just come, and the other queues have that many less.
        """
        ready = {name: found[name] for name in still}
        shares = self._shares(ready, limit)
        if limit is None or self._now is not None:
            return shares
        if not self._enough(shares, found, limit):
            shares = {}
        owing = self._owing(still, found, shares)
        most = self._admission.most(limit)
        owing = owing[: most - 1 if shares else most]
        if shares and owing:
            shares = self._shares({name: found[name] for name in shares}, most - len(owing))
        return shares | dict.fromkeys(owing, (1, 1))

    def _owing(
        self, still: dict[str, Offset], found: dict[str, Queue], shares: Collection[str]
    ) -> list[str]:
        """Return the queues, of those that have no share, to which the reader owes a request."""
        owing = []
        for name, offset in still.items():
            if name in shares or not found[name].readers:
                continue  # without readers the counts did not come in time, or `settled` will tell
            if self._lanes[name].owes_request(offset, found[name]):
                owing.append(name)
            else:
                self._lanes[name].stay_known(offset)
        return owing

    def _shares(self, ready: dict[str, Queue], limit: int | None) -> dict[str, tuple[int, int]]:
        """Return the most messages and bytes for each queue that has some."""
        counts = {
            name: self._lanes[name].allowed(queue.messages_ready) for name, queue in ready.items()
        }
        turns = [name for name in counts if counts[name]]
        if limit is None:
            return dict.fromkeys(turns, (BATCH_MESSAGES_MAX, CLAIM_BYTES_MAX))
        turns.sort(key=lambda name: (self._turns.get(name, 0), name))
        sharing = self._options.queue_sharing
        most = divide(self._admission.most(limit), counts, turns, sharing)
        # Messages differ in size: twice the mean, so that bytes bind only where they should.
        sizes = {
            name: max(1, min(queue.bytes_ready, 2 * queue.bytes_ready * most[name] // counts[name]))
            for name, queue in ready.items()
            if name in most
        }
        most_bytes = divide(self._options.max_bytes, sizes, list(most), sharing)
        return {name: (most[name], most_bytes.get(name, 1)) for name in most}

    def _enough(
        self, shares: dict[str, tuple[int, int]], found: dict[str, Queue], limit: int | None
    ) -> bool:
        """Return whether a batch may begin now."""
        if limit is None or self._now is not None or not self._admission.waits:
            return True
        waiting = [found[name] for name in shares]
        return self._admission.may_begin(
            sum(queue.messages_ready for queue in waiting),
            sum(queue.bytes_ready for queue in waiting),
        )


class _Readers:
    """The registered readers of all queues, for their renewal by another thread."""

    def __init__(self, lanes: dict[str, SteppedDriver]) -> None:
        self._lanes = lanes

    def registered(self) -> bool:
        """Return whether there is one."""
        return any(lane.attached is not None for lane in list(self._lanes.values()))

    def renew(self) -> None:
        """Renew the claims in every queue; a failure in one does not keep the others from it."""
        wrong: client_errors.WarrenError | WarrenSparkError | None = None
        for lane in list(self._lanes.values()):
            if lane.attached is None:
                continue
            try:
                lane.attached.renew()
            except (client_errors.WarrenError, WarrenSparkError) as failed:
                wrong = wrong if isinstance(wrong, client_errors.Fenced) else failed
        if wrong is not None:
            raise wrong
