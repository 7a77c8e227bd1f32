"""One queue of a query on Spark's driver: its reader there, and which claim to settle or open."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark_warren.claims.client import WarrenBroker
from pyspark_warren.claims.failed_batches import GivingUp, give_back, narrowed_claim, tries_before
from pyspark_warren.claims.offset import ClaimInfo, Position
from pyspark_warren.claims.pacing import IdleReader
from pyspark_warren.claims.plan import (
    BATCH_MESSAGES_MAX,
    CLAIM_BYTES_MAX,
    Slice,
    claims_between,
    cut,
)
from pyspark_warren.errors import (
    CheckpointBehindError,
    CheckpointError,
    ClaimLostError,
    FencedError,
)
from pyspark_warren.options.amqp import RELEASE
from pyspark_warren.options.options import Options
from pyspark_warren.surroundings import Surroundings
from warren import errors as client_errors
from warren.claims import Claim, ClaimReader, ReaderStep, StepTaken
from warren.queues import Queue, Reader

log = logging.getLogger("pyspark_warren")

AFTER_LOSS: Final = "+"
"""Separates `readerId`, which has none, from what is drawn for an older copy of its checkpoint."""
FIRST_MOST: Final = (BATCH_MESSAGES_MAX, CLAIM_BYTES_MAX)
"""Messages and bytes of a first claim without a limit."""
_DOUBLED: Final = (
    "The batch that read it is committed: what went back to the queue is read a second "
    "time, by this query or by another consumer. "
)
_REMEDY: Final = (
    "Messages that went back will be read again; others were settled or deleted by another "
    "client. Start the query with onClaimLost=continue to continue from here, or with a new "
    "checkpoint"
)


class QueueReader:
    """The reader of a query in one queue, of one run; see `driver.ClaimDriver` for Spark's calls.

    With claimTtl a claim can expire when no driver renews it (`renew`): between a query's end and
    its next start, or when this process is stopped for longer than that. The query then fails with
    ClaimLostError, or continues if the user has set onClaimLost=continue:
    - in `plan` the batch was not committed: it becomes an empty one, its messages are in the queue;
    - in `standing` and `taken` the batch was committed: its messages are in the queue again, and
       will be in a second batch, or another consumer has them. Without an error they would silently
       be in the next batch.

    What is asked of the queue is a step, which the driver sends together with those of other
    queues: `step` says what to ask, `taken` notes the answer. A claim is opened after what precedes
    it was settled.

    options  with the queue's name in `queue`

    Invariant: settled claims never exceed the number of a position that Spark has named.
    """

    def __init__(self, broker: WarrenBroker, options: Options, surroundings: Surroundings) -> None:
        self._broker = broker
        self._options = options
        self._queue = options.queue
        self._fails = options.on_claim_lost == "fail"
        self._clock_ms = surroundings.clock_ms
        self._mint = surroundings.mint
        self._reader: ClaimReader | None = None
        self._reader_name = ""
        self._opened = ("", 0)
        self._settled = 0
        self._epoch = self._starts = 0
        self._idle = IdleReader(self._clock_ms)
        self._giving_up = GivingUp(broker, options)
        self._in_parts: dict[str, int] = {}
        self._budget: int | None = None
        self._open_at_start: dict[str, range] = {}
        self._ended_continued = not options.reader_id

    # -------------------------------------------------------------- where it stands

    def hello(self, reader: str) -> Position:
        """Return a reader's position before its first claim, or after an earlier checkpoint's."""
        self._attach(reader)
        return Position(self._queue, reader, self._settled)

    def first_claim(self, at: Position) -> Position:
        """Return the end of a first batch with a claim that is opened when it is planned.

        That is after the offset log, and again, as the same claim, by a driver that plans it after
        a crash. Other consumers may have taken everything by then: the claim is empty, and stays so
        (keep_empty), because the batch must not have rows when it is planned again.
        """
        return at.after(ClaimInfo(at.number + 1, 0, 0), self._run_noted)

    def standing(self, start: Position) -> Position:
        """Register, and check that the reader stands at `start`; return that.

        returns  another position when a claim is lost, with onClaimLost=continue
        """
        self._check_is_ours(start)
        begins = not self.reads_as(start.reader)
        if self.is_older_copy(start, start.number):
            return self._as_another_reader()
        try:
            self._attach(start.reader)
            # The checkpoint's claims are settled, except its last, or two (`claims.ahead`).
            least = start.number - 2 * bool(start.claims)
            if not least <= self._settled <= start.number:
                raise client_errors.ClaimLost(
                    f"the checkpoint ends at claim {start.number} of reader {start.reader!r}, the "
                    f"broker has settled claims up to {self._settled}: the reader was released, or "
                    "forgotten after long silence, or the queue was restored from a backup"
                )
            if begins:
                self._check_claim(start)
            planned = start.number <= self._settled or self._opened == (start.reader, start.number)
            if start.claims and not start.claims[-1].messages and not planned:
                # Spark commits a batch without a plan that needs no row of the source (a join with
                # an empty table). Its claim is opened to be settled; one that is open is as it was.
                self._open_planned(start.claims[-1], start, (1, 1))
        except client_errors.ClaimLost as lost:
            return self.lost(start, lost)
        return start

    def _check_claim(self, start: Position) -> None:
        """Raise ClaimLost if the last claim is open and has other messages than the checkpoint's.

        1. A queue is restored from a backup of before claim 5 was opened.  2. An older copy of the
        checkpoint opens claim 5, of other messages, and is stopped.  3. The newest copy has claim 5
        as read: it would settle messages that no batch has.
        Replayed by tests/connector/test_restored.py
        """
        if not start.claims or start.number <= self._settled:
            return
        mine, wanted = self._known(start.reader), start.claims[-1]
        if mine is None or start.number > mine.settled + mine.open_claims:
            return  # it is not open: its settlement says so
        held = self._held_by(start)
        shown = (held.messages, held.size_bytes) if held is not None else (0, 0)
        # One that was given up is empty.
        if shown[0] and wanted.messages and shown != (wanted.messages, wanted.size_bytes):
            raise client_errors.ClaimLost(
                f"claim {start.number} of reader {start.reader!r} has {shown[0]} messages of "
                f"{shown[1]} bytes, by the checkpoint {wanted.messages} of {wanted.size_bytes}: "
                "the queue was restored from a backup, and a copy of the checkpoint has read it"
            )

    def is_older_copy(self, at: Position, settled_max: int) -> bool:
        """Return whether claims are settled that the checkpoint does not have as read.

        It is asked before this run registers, so that the query that has settled them, and may be
        running, is not fenced by a copy of its checkpoint.

        settled_max  the last claim that a driver with this checkpoint may have settled
        raises       CheckpointBehindError; with onClaimLost=continue it is logged. ClaimLostError
                     for a reader that the queue does not know: if it registered, it would stand
                     elsewhere at the next start, and look like an older copy
        """
        if at.reader == self._reader_name:
            return False
        mine = self._known(at.reader)
        if mine is None and self._fails:
            raise ClaimLostError(
                f"queue {self._queue!r}: the checkpoint ends at claim {at.number} of "
                f"reader {at.reader!r}, which the queue does not know: it was released, or "
                "forgotten after long silence, or the queue was declared again, or restored from "
                f"a backup of before it registered. {_REMEDY}"
            )
        settled = 0 if mine is None else mine.settled
        if settled <= settled_max:
            return False
        text = (
            f"queue {self._queue!r}: the checkpoint has claims of reader "
            f"{at.reader!r} up to {settled_max} as read, and those up to {settled} are "
            "settled: it is an older copy, or a query has gone on with a copy of it, or the "
            "claims were settled by hand (warren claims settle), or the queue was declared again"
        )
        if self._fails:
            raise CheckpointBehindError(
                f"{text}. Use the newest copy, or a new checkpoint, or onClaimLost=continue: the "
                "query then continues as another reader, with what is ready"
            )
        log.warning("%s. Continuing without these claims (onClaimLost=continue)", text)
        return True

    def reads_as(self, reader: str) -> bool:
        """Return whether this run has registered under that name."""
        return self._reader is not None and self._reader_name == reader

    @property
    def attached(self) -> bool:
        """Return whether this run has registered."""
        return self._reader is not None

    # -------------------------------------------------------------- settling and opening

    def step(
        self, start: Position, most: int, most_bytes: int, end: Position | None = None
    ) -> ReaderStep:
        """Return what to ask: to settle up to `start`, and to open the next claim of that much.

        most  0: no claim is opened
        end   the claim is opened ahead, after that position; None: after `start`
        """
        at = start if end is None else end
        most = self._bounded(at, most) if most else 0
        settles = start.number if start.number > self._settled else 0
        if settles or most:
            self._idle.sends(uses=most > 0)
        return ReaderStep(
            self._queue,
            at.reader,
            self._epoch,
            settles,
            at.number + 1 if most else 0,
            most,
            most_bytes,
            self._options.claim_ttl_ms,
            ahead=end is not None,
        )

    def taken(
        self, start: Position, step: ReaderStep, answer: StepTaken | client_errors.WarrenError
    ) -> Position:
        """Note the answer to a step; return where the reader stands then.

        returns  `start` when nothing was ready; a position without a claim when one is lost, with
                 onClaimLost=continue
        """
        assert self._reader is not None
        try:
            with self.fencing(start.reader):
                if isinstance(answer, client_errors.WarrenError):
                    raise answer
                self.note_settled(step.settles, answer.messages)
                if not step.opens:
                    return start
                claim = answer.claim or self._reader.open(
                    step.opens,
                    max_messages=step.max_messages,
                    max_bytes=step.max_bytes,
                    ttl_ms=step.ttl_ms,
                )
        except client_errors.ClaimLost as lost:
            return self.lost(start, lost)
        return self.took(start, claim)

    def took(self, start: Position, claim: Claim) -> Position:
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
        return start.after(ClaimInfo(number, claim.messages, claim.size_bytes), self._run_noted)

    def settle(self, upto: Position) -> None:
        """Settle claims up to that position of this run's reader; a repeat is harmless."""
        if upto.number > self._settled:
            assert self._reader is not None
            self._idle.sends()
            with self.fencing(upto.reader):
                messages = self._reader.settle(upto.number)
            self.note_settled(upto.number, messages)

    def note_settled(self, number: int, messages: int) -> None:
        """Note that claims up to that one are settled, with so many messages by the last call."""
        if number > self._settled:
            self._settled = number
            self._giving_up.settled(number, messages)

    def leave(self, at: Position) -> None:
        """End the reader at `at`, which is settled; what was opened after it is given back.

        1. A driver that stands still knows that the queue is left.  2. Another one has left it, had
        it join again and opened a claim.  3. The first one continues: it must not give that back.
        So nothing is done to a reader that stands elsewhere: it was ended before.
        """
        self._check_is_ours(at)
        self._attach(at.reader)
        assert self._reader is not None
        if self._settled == at.number:
            with self.fencing(at.reader):
                self._reader.release()
        self._reader, self._reader_name = None, ""

    def withdraw(self, number: int) -> int:
        """Give the messages of a claim back that was opened ahead; return how many."""
        assert self._reader is not None
        return self._reader.withdraw(number)

    def renew(self) -> None:
        """Renew the claims, when there is a reader."""
        if self._reader is not None:
            self._reader.renew()

    # -------------------------------------------------------------- how much, and when

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

    def was_open(self, start: Position) -> bool:
        """Return whether an earlier run has opened the next claim."""
        return start.number + 1 in self._open_at_start.get(start.reader, ())

    def allowed(self, messages: int) -> int:
        """Return how many of that many messages may still be read."""
        return messages if self._budget is None else min(messages, self._budget)

    def used_up(self, start: Position) -> bool:
        """Return whether availableNow has read what was there; parts of claims were, too."""
        if self._budget is None:
            return False
        self._budget += self._in_parts.pop(start.reader, 0)
        return self._budget <= 0 and not self.was_open(start)

    def has_asked_for(self, number: int) -> bool:
        """Return whether claim `number` was requested, in vain."""
        return self._idle.has_asked_for(number)

    def owes_request(self, start: Position, found: Queue) -> bool:
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

    def stay_known(self, start: Position) -> None:
        """Send a sign of life after long silence, so that the queue does not forget the reader."""
        if self._reader is None or not self._idle.silent_for_long():
            return
        self._idle.sends()
        try:
            with self.fencing(start.reader):
                self._reader.renew()
        except client_errors.ClaimLost as lost:
            # The counts will not show the reader either, and the next claim request is told.
            log.info("queue %r: %s", self._queue, lost)

    def _bounded(self, start: Position, most: int) -> int:
        """Return the most messages of the next claim, of that many; 0: it is not requested."""
        if self.was_open(start):
            return most
        if self._budget is not None:
            if self.used_up(start):
                return 0
            most = min(most, self._budget)
        if self._options.on_batch_failure == RELEASE:
            most = narrowed_claim(self._broker, self._queue, most)
        return most

    # -------------------------------------------------------------- a batch's plan

    def plan(
        self, start: Position | None, end: Position, first_most: tuple[int, int] = FIRST_MOST
    ) -> tuple[Slice, ...]:
        """Return the slices of a micro-batch; arithmetic, except for fencing and a first claim.

        start       None: a checkpoint before it does not have the queue
        first_most  most messages and bytes of a first claim
        """
        for at in (start, end):
            if at is not None:
                self._check_is_ours(at)
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
            claim if claim.messages else self._open_planned(claim, end, first_most)
            for claim in claims
        )
        return cut(opened, self._queue, end.reader, self._options.partitions)

    def plan_of_lost(self, end: Position, why: str) -> tuple[Slice, ...]:
        """Return no slices for a batch with a claim that is gone; ClaimLostError."""
        if not end.claims:
            return ()
        if self._fails:
            raise ClaimLostError(
                f"queue {self._queue!r}: claim {end.number} of reader {end.reader!r} is "
                f"not open, and the unfinished batch of the checkpoint reads it: {why}. {_REMEDY}"
            )
        log.warning(
            "queue %r: claim %d of reader %r was given back before its batch was "
            "committed; the batch reads nothing, its messages are in the queue "
            "(onClaimLost=continue)",
            self._queue,
            end.number,
            end.reader,
        )
        return ()

    def _open_planned(self, claim: ClaimInfo, end: Position, most: tuple[int, int]) -> ClaimInfo:
        assert self._reader is not None
        try:
            with self.fencing(end.reader):
                found = self._reader.open(
                    claim.number,
                    max_messages=max(1, self.allowed(most[0])),
                    max_bytes=most[1],
                    ttl_ms=self._options.claim_ttl_ms,
                    keep_empty=True,
                )
        except client_errors.ClaimLost as lost:
            if self._fails:
                raise
            log.warning("%s; the batch is empty (onClaimLost=continue)", lost)
            return claim
        was_open = claim.number in self._open_at_start.get(end.reader, ())
        if self._budget is not None and not was_open and self._opened != (end.reader, claim.number):
            self._budget -= found.messages
        self._opened = (end.reader, claim.number)
        return ClaimInfo(claim.number, found.messages, found.size_bytes)

    def _gone(self, start: Position | None, end: Position) -> bool:
        """Return whether a claim of a batch that was begun is no longer open, or is empty."""
        mine = self._known(self._reader_name)
        if mine is None or not _stands_in(mine, start, end):
            return True
        found = self._held_by(end)
        return found is None or found.messages != end.claims[-1].messages

    def _held_by(self, end: Position) -> Claim | None:
        """Return the last claim of a batch that was begun; None: it is not open any more."""
        self._attach(end.reader)
        assert self._reader is not None
        try:
            with self.fencing(end.reader):  # it was opened, so this only asks what it holds
                return self._reader.open(end.number, max_messages=1, max_bytes=1)
        except client_errors.ClaimLost:
            return None

    def _settled_with_batch(self, end: Position) -> bool:
        """Return whether the sink has published the batch that ends here.

        Its claims are settled then, and no later one: the driver has ended between that decision
        and Spark's commit log. Spark runs the batch again, and it reads nothing.
        """
        mine = self._known(end.reader)
        return mine is not None and mine.settled == end.number

    # -------------------------------------------------------------- batches that fail

    @property
    def last_given_up(self) -> dict[str, object] | None:
        """Return what was given up last in this run, for the query's progress."""
        return self._giving_up.last

    @property
    def _run_noted(self) -> int:
        """Number of this run for the offset of a batch, when its tries are counted."""
        return self._starts if self._giving_up.counts_tries else 0

    def _given_up(self, end: Position) -> tuple[Slice, ...] | None:
        """Return the slices of a batch that was begun and is given up, or was; None: it is not."""
        if not end.starts:
            return None
        mine = self._known(end.reader)
        if mine is None:
            return None
        run = self._starts if self.reads_as(end.reader) else mine.starts + 1
        tried = tries_before(end, run)
        if self._giving_up.gives_back:
            return () if self._gives_back(end, tried, mine.settled) else None
        if not mine.settled < end.number <= mine.settled + mine.open_claims:
            return None
        claim = self._held_by(end)
        if claim is None:  # since `mine` was told
            return None
        planned = self._giving_up.plan(self._epoch, end, claim, tried, mine)
        if planned and self._budget is not None:
            self._budget += claim.messages  # availableNow: they were there at the start
        return planned

    def _gives_back(self, end: Position, tried: int, settled: int) -> bool:
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
        with self.fencing(end.reader):
            back = give_back(self._broker, self._reader, end, tried)
            self._register(end.reader, go_on_after=end.number)
        if self._budget is not None:
            self._budget += back  # availableNow: they were there at the start
        return True

    # -------------------------------------------------------------- losses

    def lost(self, start: Position, lost: Exception) -> Position:
        """Handle the loss of a claim of the checkpoint: fail, or continue from the queue's head.

        If it is the last batch's claim, the same reader continues: the loss is accepted, the
        numbers continue. Otherwise a new reader does; with `readerId` under the same name, and
        above all numbers of the old one.
        """
        committed = bool(start.claims) and self._settled < start.number
        if self._fails:
            raise ClaimLostError(
                f"queue {self._queue!r}: {lost}. {_DOUBLED if committed else ''}{_REMEDY}"
            ) from lost
        log.warning(
            "queue %r: %s. %sContinuing (onClaimLost=continue)",
            self._queue,
            lost,
            _DOUBLED if committed else "",
        )
        if committed:
            self._register(start.reader, go_on_after=start.number)
            if self._settled == start.number:
                return Position(self._queue, start.reader, start.number)
        try:
            if self._reader is not None:
                with self.fencing(start.reader):  # a newer driver may have opened a claim
                    self._reader.release()
        except client_errors.PeerError as refused:
            log.info("reader %r did not exist any more: %s", start.reader, refused)
        if not self._options.reader_id:
            return self._as_another_reader()
        # 1. Two drivers of a `readerId` begin, and the first one's claim is released.  2. The
        # second one opens a claim.  3. The first one writes the offset log. Under another name, it
        # would leave the claim to nothing but an operator; under its own, the claim is its next.
        self._register(start.reader, go_on_after=start.number)
        return Position(self._queue, start.reader, self._settled)

    def _as_another_reader(self) -> Position:
        """Return the first position under a name that no reader has.

        The reader of the checkpoint is that of the query that is ahead.
        """
        readers = self._options.reader_id
        return self.hello(f"{readers}{AFTER_LOSS}{self._mint()}" if readers else self._mint())

    def end_continued(self) -> None:
        """End the readers that continued an earlier checkpoint of `readerId`, once.

        1. An older copy of a checkpoint of readerId r continues as r+x (onClaimLost=continue).  2.
        A query begins with a new checkpoint, which knows r alone. What r+x holds would have no
        owner, as if there were no readerId. So it goes back to the queue, and a driver of r+x that
        still runs is fenced, as one of r is. Before the first batch of a checkpoint none in use
        names them.
        """
        if self._ended_continued:
            return
        for each in self._broker.queue(self._queue).readers:
            if each.name.startswith(self._options.reader_id + AFTER_LOSS):
                self._end_reader(each.name)
        self._ended_continued = True

    def _end_reader(self, name: str) -> None:
        reader = self._broker.reader(self._queue, name)
        try:
            reader.register()
            back = reader.release()
        except client_errors.PeerError as refused:
            log.warning("queue %r: reader %r is not ended: %s", self._queue, name, refused)
            return
        log.warning(
            "queue %r: reader %r of an earlier checkpoint of readerId=%s is ended, %d messages are "
            "in the queue again",
            self._queue,
            name,
            self._options.reader_id,
            back,
        )

    # -------------------------------------------------------------- the registration

    def _attach(self, name: str) -> None:
        """Register as that reader, once per run: older drivers of it are fenced from here on."""
        if self._reader_name != name:
            self._register(name)

    def _register(self, name: str, go_on_after: int = 0) -> None:
        self._giving_up.check_dead_letters()
        reader = self._broker.reader(self._queue, name)
        self._idle = IdleReader(self._clock_ms)
        found = reader.register(go_on_after=go_on_after, expires_ms=self._options.reader_expires_ms)
        self._settled, self._epoch, self._starts = found.settled, found.epoch, found.starts
        self._reader, self._reader_name = reader, name

    def _check_is_ours(self, at: Position) -> None:
        """Raise CheckpointError for the checkpoint of a reader that is not `readerId`'s."""
        wanted = self._options.reader_id
        if wanted and at.reader.partition(AFTER_LOSS)[0] != wanted:
            raise CheckpointError(
                f"the checkpoint is of reader {at.reader!r}, the option readerId says {wanted!r}; "
                "leave readerId out to use this checkpoint, or give the query another "
                "checkpointLocation"
            )

    def _known(self, name: str) -> Reader | None:
        """Return the reader with that name; None: the queue does not know it."""
        return reader_of(self._broker.queue(self._queue), name)

    @contextmanager
    def fencing(self, reader: str) -> Iterator[None]:
        """Convert the client's Fenced to the connector's."""
        try:
            yield
        except client_errors.Fenced as fenced:
            raise FencedError(
                f"another driver has taken over reader {reader!r} of queue "
                f"{self._queue!r}: the same checkpoint or readerId is in use twice; stop "
                "one of the queries, or give each its own checkpoint and readerId"
            ) from fenced


def reader_of(found: Queue, name: str) -> Reader | None:
    """Return the reader with that name; None: the queue does not know it."""
    return next((each for each in found.readers if each.name == name), None)


def has_to_read(found: Queue, name: str) -> bool:
    """Return whether messages are ready, or claims open that an earlier checkpoint has left."""
    mine = reader_of(found, name)
    return found.messages_ready > 0 or (mine is not None and mine.open_claims + mine.in_parts > 0)


def _stands_in(reader: Reader, start: Position | None, end: Position) -> bool:
    """Return whether the reader's open claims can be those of the batch from start to end.

    1. The first batch of a query with `readerId` reads claim 6, and its driver ends.  2. The queue
    is put back from elsewhere, and does not know the reader, or less of it.  3. The next driver
    begins at 0, with a batch that ends at 6. Claims 1 to 5 are in no batch of this checkpoint: a
    claim 6 would be another one.
    """
    first, last = end.claims[0].number, end.claims[-1].number
    # The batch before may not be settled yet.
    settled_min = first - 1 - bool(start is not None and start.claims)
    return settled_min <= reader.settled < first and last <= reader.settled + reader.open_claims
