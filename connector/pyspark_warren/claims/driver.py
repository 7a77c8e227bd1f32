"""The source's logic on Spark's driver: which claims a micro-batch has, when they are settled."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark_warren.claims.ahead import ClaimsAhead, prefetches
from pyspark_warren.claims.client import WarrenBroker
from pyspark_warren.claims.offset import Offset, Position, check_queues
from pyspark_warren.claims.pacing import Admission, Pace
from pyspark_warren.claims.plan import Slice
from pyspark_warren.claims.queue_reader import FIRST_MOST, QueueReader, has_to_read
from pyspark_warren.claims.selection import QueueProgress, Selection, divide, sums
from pyspark_warren.errors import WarrenSparkError, naming_queue
from pyspark_warren.options.options import Options
from pyspark_warren.surroundings import Surroundings
from warren import errors as client_errors
from warren.queues import Queue

log = logging.getLogger("pyspark_warren")


class ClaimDriver:
    """One run of one query, which reads one queue or more.

    It depends on the order of Spark's calls:
    1. `latest(start)`: start is always the end of a batch in the commit log, so claims up to
       it are settled, and the next ones are opened. A driver that ends after this and before the
       offset log restarts with the same start and gets the same claims.
    2. `plan(start, end)` may be the first call of a run, and comes after the offset log. The claims
       are open then, unless an operator released them.
    3. `settle(end)` is not needed: it may be late or never come.

    A micro-batch has at most one claim of each queue, and its offset names them all.

    The reader's name must be in the checkpoint before a claim is opened under it:
    1. This run generates R1 and opens its claim.  2. The driver ends before the offset log.
    3. The next run generates R2, and R1's claim holds its messages forever.
    So a queue joins in two batches: the first one has no row of it and puts it into the checkpoint,
    the second one opens its first claim. Where the first may be the run's only batch, and in the
    first batch of one queue (`ClaimReading.first_has_rows`), the claim is opened when it is planned
    (`QueueReader.first_claim`).

    With `readerId` every driver of the query knows the name, but not every one writes the log:
    1. Driver D writes it, with R's claim 17.  2. That expires, and R is forgotten.  3. A driver
    that began before 1 opens claim 19 as R, and cannot write the log.  4. To the next driver D
    the claims of R look like those of a query with another checkpoint, which are not its own.

    A queue that the options no longer select leaves in two batches: the batch that was begun is
    read to its end and settled; the next one says in the checkpoint that the queue is left; then a
    claim that was opened and not used is given back, and the reader is ended. A driver with other
    options that comes in between finds the queue as it was, or has it join again. A queue of a
    pattern that was deleted leaves, too. A batch that was begun and has rows of it is a loss, as
    onClaimLost says.

    Several queues are not asked one after another. A batch takes two round trips, whatever their
    number: all counts; then, in each queue, the settlement of the committed claim with the opening
    of the next one. The first batch of a run settles before it looks, because the counts must show
    which claims an earlier run has opened. Every answer is noted before an error of one queue,
    which names it, is raised: the claims of the others are open, and a repeat, or the next run,
    gets the same ones. A batch of one queue (option `queue`) takes one round trip: its counts are
    asked for only where they decide (`_counts_decide`).

    Invariant: a queue's claim is opened only at a position that `start`, which Spark has in its
    logs, names; or after the one that `latest` has returned (`claims.ahead`).
    """

    def __init__(self, broker: WarrenBroker, options: Options, surroundings: Surroundings) -> None:
        self._broker = broker
        self._options = options
        self._surroundings = surroundings
        clock_ms = surroundings.clock_ms
        self._pace = Pace(clock_ms, surroundings.sleep_s, options.poll_interval_ms)
        self._admission = Admission(options, clock_ms)
        self._selection = Selection(options)
        self._queues: dict[str, QueueReader] = {}
        self._initial: Offset | None = None
        self._found: dict[str, Queue] | None = None
        self._looked = False
        self._compared = False
        self._now: frozenset[str] | None = None
        self._left: dict[str, Position] = {}
        self._unlimited = False
        self._turn = 0
        self._turns: dict[str, int] = {}
        self._progress = QueueProgress(broker, options.queue, clock_ms)
        self.ahead: ClaimsAhead | None = None
        if prefetches(options):
            only = self._queue(options.queue)
            self.ahead = ClaimsAhead(broker, options, surroundings, self._admission, only)

    # -------------------------------------------------------------- Spark's calls

    def initial(self) -> Offset:
        """Return the offset where a query without a checkpoint starts; always the same."""
        if self._initial is None:
            # Nothing is asked: a query that ended in its first batch calls this, too, and may be
            # an older copy, which must not fence what reads under its name.
            reader = self._options.reader_id or self._surroundings.mint()
            self._initial = Offset(self._options.vhost, reader, registered=False)
        return self._initial

    def latest(self, start: Offset, limit: int | None, alone: bool = False) -> Offset:
        """Settle up to `start`, then open the next claims; `start` when there is nothing to read.

        limit  maximum number of messages; None: all that are ready, whatever the options say
        alone  a first claim is not left to the next batch: the run may have none, as with None
        """
        self._unlimited = limit is None
        alone = alone or self._unlimited
        self._check_is_ours(start)
        self._admission.ended()
        if not start.registered:
            return self._first(start, limit, alone)
        self._leave(start)
        end = self._held(start) or self._asked(start, limit, alone)
        if end is start:
            self._pace.found_nothing(self._admission.pause_ms())
            return start
        self._pace.found_messages()
        new = {name: each for name, each in end.queues.items() if each != start.queues.get(name)}
        messages = sum(claim.messages for each in new.values() for claim in each.claims)
        if messages:
            self._admission.began(messages)
        for name, each in new.items():
            if self.ahead is not None and limit is not None and each.claims:
                self.ahead.begin(start.queues[name], each, limit)
        return end

    def plan(self, start: Offset, end: Offset) -> tuple[Slice, ...]:
        """Return the slices of a micro-batch's claims, queue by queue."""
        for offset in (start, end):
            self._check_is_ours(offset)
        slices: list[Slice] = []
        begun = {name: last for name, last in end.queues.items() if last.claims}
        self._check_copies(begun, {name: last.claims[0].number - 1 for name, last in begun.items()})
        first = sum(not last.claims[-1].messages for last in begun.values())
        for name, last in sorted(end.queues.items()):
            queue = self._queue(name)
            try:
                slices += queue.plan(start.queues.get(name), last, self._first_most(first))
            except client_errors.NotFound as gone:
                if not self._options.several:
                    raise
                slices += queue.plan_of_lost(last, str(gone))
        return tuple(slices)

    def settle(self, upto: Offset) -> None:
        """Settle claims up to that offset, of queues that this run reads; a repeat is harmless."""
        for name, position in upto.queues.items():
            queue = self._queues.get(name)
            if queue is None or not queue.reads_as(position.reader):
                continue
            if self.ahead is not None and self.ahead.settles(position):
                continue
            try:
                queue.settle(position)
            except client_errors.NotFound as gone:
                log.info("queue %r: nothing to settle: %s", name, gone)  # `latest` decides

    def prepare_available_now(self) -> None:
        """Limit further batches to the messages that are ready now, in queues that exist now."""
        found = self._look(exact=True)
        self._now = frozenset(found)
        for name, queue in found.items():
            self._queue(name).limit_to(queue)

    def backlog(self) -> dict[str, Any]:
        """Return the queues' counts for the query's progress."""
        if not self._options.several:
            only = self._queue(self._options.queue)
            return self._progress.counts(self._pace.idle, only.last_given_up)
        return sums(self._found if self._found is not None else self._look(exact=False))

    @property
    def attached(self) -> bool:
        """Return whether there is a registered reader."""
        return any(queue.attached for queue in list(self._queues.values()))

    def renew(self) -> None:
        """Renew the claims in every queue; a failure in one does not keep the others from it.

        Callable from any thread.
        """
        wrong: client_errors.WarrenError | WarrenSparkError | None = None
        for queue in list(self._queues.values()):
            try:
                queue.renew()
            except (client_errors.WarrenError, WarrenSparkError) as failed:
                wrong = wrong if isinstance(wrong, client_errors.Fenced) else failed
        if wrong is not None:
            raise wrong

    def close(self) -> None:
        """Give back what is held ahead; callable from any thread."""
        if self.ahead is not None:
            self.ahead.stop()

    # -------------------------------------------------------------- steps of `latest`

    def _check_is_ours(self, offset: Offset) -> None:
        check_queues(self._options, offset.vhost, offset.queues, self._selection.selects)

    def _queue(self, name: str) -> QueueReader:
        """Return the reader of one queue."""
        queue = self._queues.get(name)
        if queue is None:
            options = replace(self._options, queue=name)
            queue = QueueReader(self._broker, options, self._surroundings)
            self._queues[name] = queue
        return queue

    def _look(self, exact: bool) -> dict[str, Queue]:
        self._found = self._selection.look(self._broker, exact)
        if exact and not self._looked and self._options.several:
            for name, queue in self._found.items():
                self._queue(name).note_open(queue)
        self._looked = self._looked or exact
        return self._found

    def _first(self, start: Offset, limit: int | None, alone: bool) -> Offset:
        """Return the end of the first batch, which puts the reader's name into the checkpoint."""
        found: dict[str, Queue] = {}
        if alone or self._options.several:
            found = self._look(exact=True)
        if limit is None and not any(has_to_read(each, start.reader) for each in found.values()):
            return start
        names = list(found) if self._options.several else [self._options.queue]
        for name in names:
            with suppress(client_errors.NotFound):
                self._queue(name).end_continued()
        return start.moved(self._joined(start.reader, names, found, alone), {})

    def _held(self, start: Offset) -> Offset | None:
        """Return the end of the batch that was opened ahead; None: there is none."""
        at = start.queues.get(self._options.queue)
        end = None if self.ahead is None or at is None else self.ahead.held(at)
        return None if end is None else start.moved({end.queue: end}, {})

    def _asked(self, start: Offset, limit: int | None, alone: bool) -> Offset:
        """Settle, and open the next claims; return their end, `start` when there are none."""
        at, leaving = self._standing(start)
        if not self._asks_at_once(at):
            at, leaving = self._take(at, {}), self._take(leaving, {})
        counted = self._counts(start, at, limit)
        found = counted or {}
        for name in [name for name in at if counted is not None and name not in counted]:
            self._vanished(name)
            del at[name]
        new = [name for name in found if name not in at]
        if self._now is not None:
            new = [name for name in new if name in self._now]
        joined = self._joined(start.reader, new, found, alone)
        taken = self._opened(start, at, leaving, found, limit)
        leaving = {name: replace(taken[name], claims=()) for name in leaving if name in taken}
        end = {name: taken[name] for name in at if name in taken} | joined
        if dict(start.queues) == end and not leaving:
            return start
        still = {
            name: replace(each, claims=()) if each == start.queues.get(name) else each
            for name, each in end.items()
        }
        return start.moved(still, leaving)

    def _asks_at_once(self, at: Mapping[str, Position]) -> bool:
        """Return whether claims will be opened without a wait, or a look that is to come after.

        Then what precedes them is settled in the same round trip. Otherwise it must not wait.
        """
        if self._options.several:
            return self._looked and self._pace.due
        return self._pace.due and not self._used_up(at) and not self._counts_decide(at)

    def _used_up(self, at: Mapping[str, Position]) -> bool:
        """Return whether availableNow has read what was there."""
        return all(self._queue(name).used_up(each) for name, each in at.items())

    def _counts_decide(self, at: Mapping[str, Position]) -> bool:
        """Return whether the counts say if the next claim of the one queue is requested.

        The first request after a batch is sent at once, so that a busy query sends no other; after
        one that found nothing, or with minima, the counts decide. The last batches of a query that
        ends by itself are not left to counts, which may be a moment old.
        """
        return self._now is None and (
            self._admission.waits
            or any(self._queue(name).has_asked_for(each.number + 1) for name, each in at.items())
        )

    def _counts(
        self, start: Offset, at: Mapping[str, Position], limit: int | None
    ) -> dict[str, Queue] | None:
        """Wait until the next request is due; return the queues' counts, None: not needed."""
        if self._options.several or not at:
            self._pace.wait()
            return self._look(exact=limit is None or self._now is not None or not self._looked)
        told = any(each is not start.queues.get(name) for name, each in at.items())
        if told or self._used_up(at):
            return None
        self._pace.wait()
        return self._look(exact=True) if limit is not None and self._counts_decide(at) else None

    def _standing(self, start: Offset) -> tuple[dict[str, Position], dict[str, Position]]:
        """Return the positions in queues still read, and in others; nothing is settled yet."""
        at: dict[str, Position] = {}
        leaving: dict[str, Position] = {}
        self._check_copies(
            start.queues, {name: position.number for name, position in start.queues.items()}
        )
        for name, position in start.queues.items():
            into = at if self._selection.selects(name) else leaving
            try:
                into[name] = self._queue(name).standing(position)
            except client_errors.NotFound as gone:
                self._gone(name, gone)
        return at, leaving

    def _take(
        self, at: Mapping[str, Position], opens: Mapping[str, tuple[int, int]]
    ) -> dict[str, Position]:
        """Settle in all these queues at once, and open claims; return the positions then.

        opens   the most messages and bytes of the next claim, in queues where one is opened
        raises  the error of the first queue that has one, when all answers have been noted
        """
        steps = {}
        for name, position in at.items():
            step = self._queues[name].step(position, *opens.get(name, (0, 0)))
            if step.settles or step.opens:
                steps[name] = step
        answers = self._broker.take_steps(list(steps.values())) if steps else []
        taken = dict(at)
        wrong: Exception | None = None
        for (name, step), answer in zip(steps.items(), answers, strict=True):
            try:
                taken[name] = self._queues[name].taken(at[name], step, answer)
            except client_errors.NotFound as gone:
                del taken[name]
                try:
                    self._gone(name, gone)
                except client_errors.NotFound as named:
                    wrong = wrong or named
            except (client_errors.WarrenError, WarrenSparkError) as failed:
                several = self._options.several
                wrong = wrong or (naming_queue(name, failed) if several else failed)
        if wrong is not None:
            raise wrong
        return taken

    def _gone(self, name: str, gone: client_errors.NotFound) -> None:
        """Continue without a deleted queue; raise `gone` when the options name it."""
        if self._selection.selects(name) and not self._selection.by_pattern:
            raise gone
        self._vanished(name)

    def _check_copies(
        self, positions: Mapping[str, Position], settled_max: Mapping[str, int]
    ) -> None:
        """Raise CheckpointBehindError for an older copy, before any reader is taken over."""
        if self._compared or len(positions) < 2:  # the only one is checked before it is taken over
            return
        self._compared = True
        for name, position in positions.items():
            with suppress(client_errors.NotFound):
                self._queue(name).is_older_copy(position, settled_max[name])

    def _leave(self, start: Offset) -> None:
        """End the reader in the queues of which the checkpoint says that they are left."""
        for name, position in start.leaving.items():
            if self._left.get(name) == position:
                continue
            try:
                self._queue(name).leave(position)
                log.warning("queue %r is not selected any more: the query has left it", name)
            except client_errors.NotFound as gone:
                log.info("queue %r is not selected any more, and gone: %s", name, gone)
            del self._queues[name]
            self._left[name] = position

    def _vanished(self, name: str) -> None:
        log.warning("queue %r was deleted; the query continues without it", name)
        self._queues.pop(name, None)

    def _joined(
        self, reader: str, names: Collection[str], found: Mapping[str, Queue], alone: bool
    ) -> dict[str, Position]:
        """Return the first positions in queues that the checkpoint does not have yet."""
        joined: dict[str, Position] = {}
        for name in names:
            queue = self._queue(name)
            try:
                hello = queue.hello(reader)
            except client_errors.NotFound as gone:
                self._gone(name, gone)
                continue
            reads = alone and name in found and has_to_read(found[name], reader)
            reads = reads and not queue.used_up(hello)
            joined[name] = queue.first_claim(hello) if reads else hello
        return joined

    def _opened(
        self,
        start: Offset,
        at: dict[str, Position],
        leaving: dict[str, Position],
        found: dict[str, Queue],
        limit: int | None,
    ) -> dict[str, Position]:
        """Open the next claim of each queue that has messages, within the limits together.

        What is committed is settled with the same requests. Returns the position in each queue.
        """
        # Where settling ended elsewhere, a claim was lost: that is told in a batch of its own.
        still = {name: each for name, each in at.items() if each is start.queues[name]}
        begun = {name for name in still if self._queues[name].was_open(still[name])}
        # What an earlier run has opened is its batch, alone: the others would not be repeated.
        shares = dict.fromkeys(begun, (1, 1)) if begun else self._wanted(still, found, limit)
        taken = self._take({**at, **leaving}, shares)
        for name in shares:
            if taken.get(name, still[name]) is not still[name]:
                self._turn += 1
                self._turns[name] = self._turn
        return taken

    # -------------------------------------------------------------- shares of a batch

    def _first_most(self, queues: int) -> tuple[int, int]:
        """Return the most messages and bytes of a claim that is opened when it is planned.

        A batch without limits that this run did not begin has those of the options.

        queues  number of those claims in the batch
        """
        if self._unlimited:
            return FIRST_MOST
        share = max(1, queues)
        options = self._options
        return max(1, options.max_messages // share), max(1, options.max_bytes // share)

    def _wanted(
        self, still: Mapping[str, Position], found: Mapping[str, Queue], limit: int | None
    ) -> dict[str, tuple[int, int]]:
        """Return the most messages and bytes for each queue to request a claim of.

        Where a claim is requested only because the reader owes a request, it has one message at
        most, if one has just come, and the other queues have that many less.
        """
        if not self._options.several:
            return self._wanted_of_one(still, found, limit)
        shares = self._shares({name: found[name] for name in still}, limit)
        if limit is None or self._now is not None:
            return shares
        if not self._admits(found[name] for name in shares):
            shares = {}
        owing = [name for name in still if name not in shares and self._owes(name, still, found)]
        most = self._admission.most(limit)
        owing = owing[: most - 1 if shares else most]
        if shares and owing:
            shares = self._shares({name: found[name] for name in shares}, most - len(owing))
        return shares | dict.fromkeys(owing, (1, 1))

    def _wanted_of_one(
        self, still: Mapping[str, Position], found: Mapping[str, Queue], limit: int | None
    ) -> dict[str, tuple[int, int]]:
        """Return the limits of the batch, which are those of the one queue's claim."""
        if self._used_up(still):
            return {}
        if limit is None:
            return dict.fromkeys(still, FIRST_MOST)
        whole = self._admission.most(limit), self._options.max_bytes
        return {
            name: whole
            for name in still
            if not found or self._admits([found[name]]) or self._owes(name, still, found)
        }

    def _owes(self, name: str, at: Mapping[str, Position], found: Mapping[str, Queue]) -> bool:
        """Return whether the reader owes its queue a request; if not, it sends a sign of life."""
        if self._options.several and not found[name].readers:
            return False  # the counts did not come in time, or `standing` will tell
        if self._queues[name].owes_request(at[name], found[name]):
            return True
        self._queues[name].stay_known(at[name])
        return False

    def _shares(self, ready: Mapping[str, Queue], limit: int | None) -> dict[str, tuple[int, int]]:
        """Return the most messages and bytes for each queue that has some."""
        counts = {
            name: self._queues[name].allowed(queue.messages_ready) for name, queue in ready.items()
        }
        turns = [name for name in counts if counts[name]]
        if limit is None:
            return dict.fromkeys(turns, FIRST_MOST)
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

    def _admits(self, found: Iterable[Queue]) -> bool:
        """Return whether what is ready is enough for a batch."""
        messages = size_bytes = 0
        for queue in found:
            messages += queue.messages_ready
            size_bytes += queue.bytes_ready
        if self._admission.waits:
            return self._admission.may_begin(messages, size_bytes)
        return messages > 0
