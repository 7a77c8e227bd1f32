"""The source's logic on Spark's driver: which claim to settle, which to open, when to wait."""

from __future__ import annotations

import logging
from typing import Any

from pyspark_warren.admission import Admission
from pyspark_warren.continued import ContinuedReaders, check_reader, continued_name
from pyspark_warren.errors import CheckpointBehindError, ClaimLostError
from pyspark_warren.failed_batches import GivingUp, give_back, narrowed_claim, tries_before
from pyspark_warren.failing_options import RELEASE
from pyspark_warren.fencing import Fencing
from pyspark_warren.idle import IdleReader
from pyspark_warren.known_reader import (
    check_standing,
    has_to_read,
    known_reader,
    stands_in,
)
from pyspark_warren.offset import ClaimInfo, Offset
from pyspark_warren.options import Options
from pyspark_warren.pace import Pace
from pyspark_warren.plan import Slice, claims_between, cut
from pyspark_warren.port import BrokerPort, ReaderPort
from pyspark_warren.queue_progress import QueueProgress
from pyspark_warren.surroundings import Surroundings
from warren import errors as client_errors
from warren.admin import Queue
from warren.claims import Claim

log = logging.getLogger("pyspark_warren")

BATCH_MESSAGES_MAX = 2**31 - 1
CLAIM_BYTES_MAX = 1 << 50
_DOUBLED = (
    "The batch that read it is committed: what went back to the queue is read a second "
    "time, by this query or by another consumer. "
)
_REMEDY = (
    "Messages that went back will be read again; others were settled or deleted by another "
    "client. Start the query with onClaimLost=continue to continue from here, or with a new "
    "checkpoint"
)


class ClaimDriver:
    """One run of one query.

    It depends on the order of Spark's calls:
    1. `latest(start)`: start is always the end of a batch in the commit log, so claims up to
       it are settled, and the next one is opened. A driver that ends after this and before the
       offset log restarts with the same start and gets the same claim.
    2. `plan(start, end)` may be the first call of a run, and comes after the offset log. The claim
       is open then, unless an operator released it.
    3. `settle(end)` is not needed: it may be late or never come.

    With claimTtl a claim can expire when no driver renews it (`renew`): between a query's end and
    its next start, or when this process is stopped for longer than that. The query then fails with
    ClaimLostError, or continues if the user has set onClaimLost=continue:
    - in `plan` the batch was not committed: it becomes an empty one, its messages are in the queue;
    - in `latest(start)` the batch was committed: its messages are in the queue again, and will be
       in a second batch, or another consumer has them. Without an error they would silently be in
       the next batch.

    Invariant: settled claims never exceed the number of a `start` or `end` that Spark has named.
    """

    def __init__(self, broker: BrokerPort, options: Options, surroundings: Surroundings) -> None:
        self._broker = broker
        self._options = options
        self._clock_ms = clock_ms = surroundings.clock_ms
        self._mint = surroundings.mint
        self._admission = Admission(options, clock_ms)
        self._pace = Pace(clock_ms, surroundings.sleep_s, options.poll_interval_ms)
        self._initial: Offset | None = None
        self._reader: ReaderPort | None = None
        self._reader_name = ""
        self._opened = ("", 0)
        self._settled = 0
        self._epoch = self._starts = 0
        self._idle = IdleReader(clock_ms)
        self._progress = QueueProgress(broker, options.queue, clock_ms)
        self._giving_up = GivingUp(broker, options)
        self._in_parts: dict[str, int] = {}
        self._budget: int | None = None
        self._open_at_start: dict[str, range] = {}
        self._continued = ContinuedReaders(broker, options)

    # -------------------------------------------------------------- Spark's calls

    def initial(self) -> Offset:
        """Return the offset where a query without a checkpoint starts; always the same."""
        if self._initial is None:
            # Nothing is asked: a query that ended in its first batch calls this, too, and may be
            # an older copy, which must not fence what reads under its name.
            name = self._options.reader_id or self._mint()
            self._initial = self._offset(name, 0, registered=False)
        return self._initial

    def latest(self, start: Offset, limit: int | None) -> Offset:
        """Settle up to `start`, then open the next claim; `start` when there is nothing to read.

        limit  maximum number of messages; None: all that are ready, whatever the options say
        """
        if not start.registered:
            self._check_is_ours(start)
            try:
                return self._first(start, limit)
            except client_errors.ClaimLost as lost:
                return self._lost(start, lost)
        self._admission.ended()
        standing = self.standing(start) if self._opens_at_once(start) else self.settled(start)
        return standing if standing is not start else self._next(start, limit)

    def settled(self, start: Offset) -> Offset:
        """Settle up to `start`, the end of a committed batch; return it.

        returns  another offset when a claim is lost, with onClaimLost=continue
        """
        standing = self.standing(start)
        if standing is start:
            try:
                self.settle(start)
            except client_errors.ClaimLost as lost:
                return self._lost(start, lost)
        return standing

    def standing(self, start: Offset) -> Offset:
        """Register, and check that the reader stands at `start`; return that, as `settled` does."""
        self._check_is_ours(start)
        if self.is_older_copy(start, start.number):
            return self._as_another_reader()
        try:
            self._attach(start.reader)
            check_standing(start, self._settled)
        except client_errors.ClaimLost as lost:
            return self._lost(start, lost)
        return start

    def take(self, start: Offset, most: int, most_bytes: int) -> Offset:
        """Open the next claim of at most that much; `start` when nothing is ready.

        What precedes `start` is settled with the same request if it is not settled yet.

        returns  an offset without a claim when one is lost, with onClaimLost=continue
        """
        most = self._bounded(start, most)
        if not most:
            return start
        assert self._reader is not None
        self._idle.sends(uses=True)
        try:
            with Fencing(start):
                claim = self._settle_and_open(self._reader, start, most, most_bytes)
        except client_errors.ClaimLost as lost:
            return self._lost(start, lost)
        return self._took(start, claim)

    def plan(self, start: Offset, end: Offset) -> tuple[Slice, ...]:
        """Return the slices of a micro-batch; arithmetic, except for fencing and `_first`."""
        for offset in (start, end):
            self._check_is_ours(offset)
        claims = claims_between(start, end)
        # An earlier run has begun the batch unless this one has opened its claim.
        if start != end and end.claims and self._opened != (end.reader, end.number):
            if self._options.settle_with_batch and self._settled_with_batch(end):
                return ()
            given_up = self._given_up(end)
            if given_up is not None:
                return given_up
            if self.is_older_copy(end, end.claims[0].number - 1):
                return ()
            self._attach(end.reader)
            if end.claims[-1].messages and self._gone(start, end):
                return self.plan_of_lost(end, "it expired or was released")
        opened = tuple(
            claim if claim.messages else self._open_planned(claim, end) for claim in claims
        )
        return cut(opened, end.reader, self._options.partitions)

    def settle(self, upto: Offset) -> None:
        """Settle claims up to that offset; a repeat is harmless."""
        self._attach(upto.reader)
        if upto.number > self._settled:
            assert self._reader is not None
            self._idle.sends()
            with Fencing(upto):
                messages = self._reader.settle(upto.number)
            self._note_settled(upto.number, messages)

    def prepare_available_now(self) -> None:
        """Limit further batches to the messages that are ready now."""
        self.limit_to(self._broker.queue(self._options.queue))

    def limit_to(self, found: Queue) -> None:
        """Limit further batches to the messages that were ready then."""
        self._budget = found.messages_ready
        self.note_open(found)

    def note_open(self, found: Queue) -> None:
        """Remember the claims that an earlier run has left open."""
        self._open_at_start = {
            reader.name: range(reader.settled + 1, reader.settled + reader.open_claims + 1)
            for reader in found.readers
        }
        self._in_parts = {reader.name: reader.in_parts for reader in found.readers}

    def was_open(self, start: Offset) -> bool:
        """Return whether an earlier run has opened the next claim."""
        return start.number + 1 in self._open_at_start.get(start.reader, ())

    def backlog(self) -> dict[str, Any]:
        """Return the queue's counts for the query's progress."""
        return self._progress.counts(self._pace.idle, self._giving_up.last)

    @property
    def attached(self) -> ReaderPort | None:
        """The registered reader, once there is one."""
        return self._reader

    def reads_as(self, reader: str) -> bool:
        """Return whether this run has registered under that name."""
        return self._reader is not None and self._reader_name == reader

    def is_older_copy(self, offset: Offset, settled_max: int) -> bool:
        """Return whether claims are settled that the checkpoint does not have as read.

        It is asked before this run registers, so that the query that has settled them, and may be
        running, is not fenced by a copy of its checkpoint.

        settled_max  the last claim that a driver with this checkpoint may have settled
        raises       CheckpointBehindError; with onClaimLost=continue it is logged. ClaimLostError
                     for a reader that the queue does not know: if it registered, it would stand
                     elsewhere at the next start, and look like an older copy
        """
        if offset.reader == self._reader_name:
            return False
        fails = self._options.on_claim_lost == "fail"
        mine = known_reader(self._broker, self._options.queue, offset.reader)
        if mine is None and fails:
            raise ClaimLostError(
                f"queue {self._options.queue!r}: the checkpoint ends at claim {offset.number} of "
                f"reader {offset.reader!r}, which the queue does not know: it was released, or "
                f"forgotten after long silence, or the queue was declared again. {_REMEDY}"
            )
        settled = 0 if mine is None else mine.settled
        if settled <= settled_max:
            return False
        text = (
            f"queue {self._options.queue!r}: the checkpoint has claims of reader "
            f"{offset.reader!r} up to {settled_max} as read, and those up to {settled} are "
            "settled: it is an older copy, or a query has gone on with a copy of it, or the "
            "claims were settled by hand (warren claims settle), or the queue was declared again"
        )
        if fails:
            raise CheckpointBehindError(
                f"{text}. Use the newest copy, or a new checkpoint, or onClaimLost=continue: the "
                "query then continues as another reader, with what is ready"
            )
        log.warning("%s. Continuing without these claims (onClaimLost=continue)", text)
        return True

    # -------------------------------------------------------------- steps

    def _bounded(self, start: Offset, most: int) -> int:
        """Return the most messages of the next claim, of that many; 0: it is not requested."""
        if self.was_open(start):
            return most
        if self._budget is not None:
            if self._used_up(start):
                return 0
            most = min(most, self._budget)
        if self._options.on_batch_failure == RELEASE:
            most = narrowed_claim(self._broker, start.queue, most)
        return most

    def _took(self, start: Offset, claim: Claim) -> Offset:
        """Note the claim after `start` that was requested; return where the reader stands then."""
        number = start.number + 1
        if not claim.open:
            if self._budget is not None:
                self._budget = 0  # other consumers took the rest: done
            self._idle.found_nothing(number)
            return start
        assert claim.number == number, (claim, number)
        self._opened = (start.reader, number)
        if self._budget is not None and not self.was_open(start):
            self._budget -= claim.messages
        found = ClaimInfo(number, claim.messages, claim.size_bytes)
        return start.after(found, *self._run_noted)

    def _check_is_ours(self, offset: Offset) -> None:
        offset.check_is_of(self._options.vhost, self._options.queue)
        check_reader(self._options, offset)

    def _first(self, start: Offset, limit: int | None) -> Offset:
        """Return the end of the first batch of a query without a checkpoint.

        The reader's name must be in the checkpoint before a claim is opened under it:
        1. This run generates R1 and opens its claim.  2. The driver ends before the offset log.
        3. The next run generates R2, and R1's claim holds its messages forever.
        So the first batch is an empty one that only records the reader's name. With a single batch
        (trigger once), its claim is opened when it is planned: after the offset log, and again, as
        the same claim, by a driver that plans it after a crash. Other consumers may have taken
        everything by then: the claim is empty, and stays so (keep_empty), because the batch must
        not have rows when it is planned again.

        With `readerId` every driver of the query knows the name, but not every one writes the log:
        1. Driver D writes it, with R's claim 17.  2. That expires, and R is forgotten.  3. A driver
        that began before 1 opens claim 19 as R, and cannot write the log.  4. To the next driver D
        the claims of R look like those of a query with another checkpoint, which are not its own.
        """
        self._continued.end()
        hello = self.hello(start.reader)
        if limit is not None:
            return hello
        if not has_to_read(self._broker.queue(self._options.queue), start.reader):
            return start
        return hello.after(ClaimInfo(hello.number + 1, 0, 0), *self._run_noted)

    def _open_planned(self, claim: ClaimInfo, end: Offset) -> ClaimInfo:
        assert self._reader is not None
        try:
            with Fencing(end):
                found = self._reader.open(
                    claim.number,
                    max_messages=BATCH_MESSAGES_MAX,
                    max_bytes=CLAIM_BYTES_MAX,
                    ttl_ms=self._options.claim_ttl_ms,
                    keep_empty=True,
                )
        except client_errors.ClaimLost as lost:
            if self._options.on_claim_lost == "fail":
                raise
            log.warning("%s; the batch is empty (onClaimLost=continue)", lost)
            return claim
        return ClaimInfo(claim.number, found.messages, found.size_bytes)

    def _gone(self, start: Offset, end: Offset) -> bool:
        """Return whether a claim of a batch that was begun is no longer open, or is empty."""
        mine = known_reader(self._broker, self._options.queue, self._reader_name)
        if mine is None or not stands_in(mine, start, end):
            return True
        assert self._reader is not None
        try:
            with Fencing(end):  # it was opened, so this only asks what it holds
                found = self._reader.open(end.number, max_messages=1, max_bytes=1)
        except client_errors.ClaimLost:
            return True
        return found.messages != end.claims[-1].messages

    def _settled_with_batch(self, end: Offset) -> bool:
        """Return whether the sink has published the batch that ends here.

        Its claims are settled then, and no later one: the driver has ended between that decision
        and Spark's commit log. Spark runs the batch again, and it reads nothing.
        """
        mine = known_reader(self._broker, self._options.queue, end.reader)
        return mine is not None and mine.settled == end.number

    @property
    def _run_noted(self) -> tuple[int, int]:
        """Epoch and number of this run for the offset of a batch, when its tries are counted."""
        return (self._epoch, self._starts) if self._giving_up.counts_tries else (0, 0)

    def _used_up(self, start: Offset) -> bool:
        """Return whether availableNow has read what was there; parts of claims were, too."""
        if self._budget is None:
            return False
        self._budget += self._in_parts.pop(start.reader, 0)
        return self._budget <= 0

    def _given_up(self, end: Offset) -> tuple[Slice, ...] | None:
        """Return the slices of a batch that was begun and is given up, or was; None: it is not."""
        if not end.counts_tries:
            return None
        mine = known_reader(self._broker, self._options.queue, end.reader)
        if mine is None:
            return None
        run = (mine.epoch + 1, mine.starts + 1)
        if self.reads_as(end.reader):
            run = (self._epoch, self._starts)
        tried = tries_before(end, *run)
        if self._giving_up.gives_back:
            return () if self._gives_back(end, tried, mine.settled) else None
        if not mine.settled < end.number <= mine.settled + mine.open_claims:
            return None
        self._attach(end.reader)
        assert self._reader is not None
        try:
            with Fencing(end):  # the claim is open, so this only asks what it holds
                claim = self._reader.open(end.number, max_messages=1, max_bytes=1)
        except client_errors.ClaimLost:  # since `mine` was told
            return None
        planned = self._giving_up.plan(self._reader, end, claim, tried, mine)
        if planned and self._budget is not None:
            self._budget += claim.messages  # availableNow: they were there at the start
        return planned

    def _gives_back(self, end: Offset, tried: int, settled: int) -> bool:
        """Return whether the batch that ends here was tried too often; its claims are given back.

        1. The claims are released, as failed.  2. The reader registers as one that continues after
        them.  A driver that ends between the two does both again; the release finds nothing. One
        that ends after them finds them counted as settled: the batch is empty then, too.
        """
        if tried < self._options.batch_tries_max or settled > end.number:
            return False
        if settled == end.number:
            return True
        self._attach(end.reader)
        assert self._reader is not None
        with Fencing(end):
            back = give_back(self._broker, self._reader, end, tried)
            self._register(end.reader, go_on_after=end.number)
        if self._budget is not None:
            self._budget += back  # availableNow: they were there at the start
        return True

    def plan_of_lost(self, end: Offset, why: str) -> tuple[Slice, ...]:
        """Return no slices for a batch with a claim that is gone; ClaimLostError."""
        if not end.claims:
            return ()
        if self._options.on_claim_lost == "fail":
            raise ClaimLostError(
                f"queue {self._options.queue!r}: claim {end.number} of reader {end.reader!r} is "
                f"not open, and the unfinished batch of the checkpoint reads it: {why}. {_REMEDY}"
            )
        log.warning(
            "queue %r: claim %d of reader %r was given back before its batch was "
            "committed; the batch reads nothing, its messages are in the queue "
            "(onClaimLost=continue)",
            self._options.queue,
            end.number,
            end.reader,
        )
        return ()

    def hello(self, reader: str) -> Offset:
        """Return a reader's offset before its first claim, or after an earlier checkpoint's."""
        self._attach(reader)
        return self._offset(reader, self._settled)

    def _offset(self, reader: str, number: int, registered: bool = True) -> Offset:
        return Offset(self._options.vhost, self._options.queue, reader, number, (), registered)

    def _attach(self, name: str) -> None:
        """Register as that reader, once per run: older drivers of it are fenced from here on."""
        if self._reader_name == name:
            return
        self._register(name)

    def _register(self, name: str, go_on_after: int = 0) -> None:
        self._giving_up.check_dead_letters()
        reader = self._broker.reader(self._options.queue, name)
        self._idle = IdleReader(self._clock_ms)
        found = reader.register(go_on_after=go_on_after, expires_ms=self._options.reader_expires_ms)
        self._settled, self._epoch, self._starts = found.settled, found.epoch, found.starts
        self._reader, self._reader_name = reader, name

    def _next(self, start: Offset, limit: int | None) -> Offset:
        if self._used_up(start) and not self.was_open(start):
            return start
        self._pace.wait()
        if limit is None:
            end = self.take(start, BATCH_MESSAGES_MAX, CLAIM_BYTES_MAX)
        elif self._may_begin(start):
            end = self.take(start, self._admission.most(limit), self._options.max_bytes)
        else:
            end = start
        if end is start:
            self._pace.found_nothing(self._admission.pause_ms())
        elif end.claims:
            self._pace.found_messages()
            self._admission.began(end.claims[-1].messages)
        return end

    def _opens_at_once(self, start: Offset) -> bool:
        """Return whether `_next` will open the claim after `start` without a wait or a look.

        Then what precedes it is settled in the same round trip. Otherwise it must not wait.
        """
        used_up = self._used_up(start) and not self.was_open(start)
        return self._pace.due and not used_up and not self._counts_decide(start)

    def _settle_and_open(
        self, reader: ReaderPort, start: Offset, most: int, most_bytes: int
    ) -> Claim:
        number, ttl_ms = start.number + 1, self._options.claim_ttl_ms
        if start.number > self._settled:
            messages, claim = reader.settle_and_open(
                number, max_messages=most, max_bytes=most_bytes, ttl_ms=ttl_ms
            )
            self._note_settled(start.number, messages)
            if claim is not None:
                return claim
        return reader.open(number, max_messages=most, max_bytes=most_bytes, ttl_ms=ttl_ms)

    def _note_settled(self, number: int, messages: int) -> None:
        self._settled = number
        self._giving_up.settled(number, messages)

    def _counts_decide(self, start: Offset) -> bool:
        """Return whether the queue's counts say if the next claim is requested."""
        if self._budget is not None:
            return False
        return self._admission.waits or self._idle.has_asked_for(start.number + 1)

    def _may_begin(self, start: Offset) -> bool:
        """Return whether to request the next claim now.

        The first request after a batch is sent at once, so that a busy query sends no other; after
        one that found nothing, or with minima, the counts decide. The last batches of a query that
        ends by itself are not left to counts, which may be a moment old.
        """
        if not self._counts_decide(start):
            return True
        found = self._broker.queue(self._options.queue)
        enough = found.messages_ready > 0
        if self._admission.waits:
            enough = self._admission.may_begin(found.messages_ready, found.bytes_ready)
        if enough or self.owes_request(start, found):
            return True
        self.stay_known(start)
        return False

    def owes_request(self, start: Offset, found: Queue) -> bool:
        """Return whether the next claim is to be requested although nothing is ready.

        When the counts show the reader elsewhere than it stands, because another driver has taken
        over, an operator has released it or the queue was declared again, the answer to the request
        says so, and fails the query. A claim that an earlier run has opened is shown, too: it is
        the next batch, as is a part of one that has failed. And the request keeps a queue with
        `x-expires`.

        found  the queue's counts; when they are older than what this driver did, the request is
               unnecessary, and harmless
        """
        stands = any(
            (each.name, each.epoch, each.settled, each.open_claims, each.part_due)
            == (start.reader, self._epoch, self._settled, start.number - self._settled, False)
            for each in found.readers
        )
        return not stands or self._idle.unused_for_long(found)

    def stay_known(self, start: Offset) -> None:
        """Send a sign of life after long silence, so that the queue does not forget the reader."""
        if self._reader is None or not self._idle.silent_for_long():
            return
        self._idle.sends()
        try:
            with Fencing(start):
                self._reader.renew()
        except client_errors.ClaimLost as lost:
            # The counts will not show the reader either, and the next claim request is told.
            log.info("queue %r: %s", self._options.queue, lost)

    def _lost(self, start: Offset, lost: Exception) -> Offset:
        """Handle the loss of a claim of the checkpoint: fail, or continue from the queue's head.

        If it is the last batch's claim, the same reader continues: the loss is accepted, the
        numbers continue. Otherwise a new reader does; with `readerId` under the same name, and
        above all numbers of the old one.
        """
        committed = bool(start.claims) and self._settled < start.number
        if self._options.on_claim_lost == "fail":
            raise ClaimLostError(
                f"queue {self._options.queue!r}: {lost}. {_DOUBLED if committed else ''}{_REMEDY}"
            ) from lost
        log.warning(
            "queue %r: %s. %sContinuing (onClaimLost=continue)",
            self._options.queue,
            lost,
            _DOUBLED if committed else "",
        )
        if committed:
            self._register(start.reader, go_on_after=start.number)
            if self._settled == start.number:
                return self._offset(start.reader, start.number)
        try:
            if self._reader is not None:
                with Fencing(start):  # a newer driver may have opened a claim
                    self._reader.release()
        except client_errors.PeerError as refused:
            log.info("reader %r did not exist any more: %s", start.reader, refused)
        if not self._options.reader_id:
            return self._as_another_reader()
        # 1. Two drivers of a `readerId` begin, and the first one's claim is released.  2. The
        # second one opens a claim.  3. The first one writes the offset log. Under another name, it
        # would leave the claim to nothing but an operator; under its own, the claim is its next.
        self._register(start.reader, go_on_after=start.number)
        return self._offset(start.reader, self._settled)

    def _as_another_reader(self) -> Offset:
        return self.hello(continued_name(self._options, self._mint))
