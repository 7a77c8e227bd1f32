"""Option prefetchClaims: the next claim is opened while Spark works on the batch before it."""

from __future__ import annotations

import logging
import threading
from typing import Final

from pyspark_warren.claims.client import WarrenBroker
from pyspark_warren.claims.offset import Position
from pyspark_warren.claims.pacing import Admission
from pyspark_warren.claims.queue_reader import QueueReader
from pyspark_warren.errors import WarrenSparkError
from pyspark_warren.options.amqp import FAIL
from pyspark_warren.options.options import Options
from pyspark_warren.surroundings import Surroundings
from warren import errors as client_errors
from warren.claims import Claim, ReaderStep, StepTaken

log = logging.getLogger("pyspark_warren")

BATCH_MS_MAX: Final = 5_000
"""Nothing is opened ahead after a batch that took longer: what a round trip takes is nothing
beside it, and other consumers would be without the messages for as long."""
HELD_S_MAX: Final = 10.0
"""How long a claim that Spark has not asked for is kept from other consumers."""
STOP_S_MAX: Final = 2.0
"""How long the end of a query waits for the answer to a request that is under way."""
_HELD_NO_MORE: Final = (client_errors.ClaimLost, client_errors.Fenced, client_errors.NotFound)
"""The refusals that mean that this driver does not hold the claim."""


def prefetches(options: Options) -> bool:
    """Return whether claims are opened ahead.

    Not where what is read next depends on the batch that is being read: its duration, or whether it
    fails. And not from several queues: their shares of a batch depend on what is ready then.
    """
    return (
        options.prefetch_claims > 0
        and not options.several
        and not options.target_batch_ms
        and options.on_batch_failure == FAIL
    )


class ClaimsAhead:
    """The claim after the one that Spark works on, of a query that reads one queue.

    When `latest` returns the end of a batch, a request that settles the batch before it and opens
    the claim after it is made in another thread (`ClaimAhead`), where:
    1. That claim would be full, so that nothing is gained by opening it later, and nothing that
       comes meanwhile has to wait for the claim after it.
    2. The batch before took at most BATCH_MS_MAX.
    The next `latest` takes the claim, without a request. Where there is none, it asks for one. So a
    claim is open that no offset names yet, as between `latest` and Spark's offset log: a driver
    that comes after this one has it as its next claim, as it is.

    A number of a claim is in no offset before `latest` has returned it, so what was not returned
    may be given back: after HELD_S_MAX, and when the query ends (`stop`). It stays open then, and
    empty, and a batch without rows reads it.

    Invariant: while a request is under way, no other one settles or opens; `held` waits for it.
    """

    def __init__(
        self,
        broker: WarrenBroker,
        options: Options,
        surroundings: Surroundings,
        admission: Admission,
        queue: QueueReader,
    ) -> None:
        self._broker = broker
        self._options = options
        self._clock_ms = surroundings.clock_ms
        self._beside = surroundings.beside
        self._admission = admission
        self._queue = queue
        self._began_ms: int | None = None
        self._took_ms: int | None = None
        self._stopped = False
        self.request: ClaimAhead | None = None

    def held(self, start: Position) -> Position | None:
        """Return the end of the batch that was opened ahead after `start`; None: there is none.

        Where the claim of an earlier batch was lost, with onClaimLost=continue, perhaps the
        position of another reader.
        """
        if self._began_ms is not None:
            self._took_ms = self._clock_ms() - self._began_ms
            self._began_ms = None
        ahead = self.request
        if ahead is None:
            return None
        try:
            with self._queue.fencing(start.reader):
                taken = ahead.take()
        except client_errors.ClaimLost as lost:
            elsewhere = self._queue.lost(ahead.start, lost)
            self.request = None
            stays = elsewhere.reader == start.reader and elsewhere.number <= start.number
            return None if stays else elsewhere
        self.request = None  # and not before: what is not known is asked again
        if taken is None:
            return None
        self._queue.note_settled(ahead.step.settles, taken.messages)
        claim = taken.claim
        if claim is None or not claim.open or claim.number != start.number + 1:
            return None
        return self._queue.took(start, claim)

    def begin(self, start: Position, end: Position, limit: int) -> None:
        """Settle the batch before, and open the claim after `end`, in another thread."""
        self._began_ms = self._clock_ms()
        if self._stopped or not self._queue.reads_as(end.reader):
            return
        most = self._admission.most(limit)
        if not self._is_worth_it(end, most):
            most = 0
        step = self._queue.step(start, most, self._options.max_bytes, end)
        if step.settles or step.opens:
            self.request = ClaimAhead(self._broker, self._queue, start, step)
            self._beside(self.request.run)

    def settles(self, upto: Position) -> bool:
        """Return whether a request that settles up to there is under way."""
        ahead = self.request
        return ahead is not None and upto.number <= ahead.step.settles

    def stop(self) -> None:
        """Give back what is held ahead; callable from any thread."""
        self._stopped = True
        ahead = self.request
        if ahead is not None:
            ahead.give_back()

    def _is_worth_it(self, end: Position, most: int) -> bool:
        """Return whether batches are short, and the last claim was full: so may the next one be.

        Where messages differ in size, half of the bytes may be all that fitted.
        """
        if self._took_ms is None or self._took_ms > BATCH_MS_MAX:
            return False
        last = end.claims[-1]
        return last.messages >= most or 2 * last.size_bytes >= self._options.max_bytes


class ClaimAhead:
    """One request to settle and to open ahead, and the claim that it opened.

    One thread makes it (`run`), Spark's takes what it opened (`take`), and any may give it back
    (`give_back`). The claim is either taken or given back, never both:
    1. It is to be given back, and the request is delayed on its way.  2. Spark asks for the next
    batch, and gets the claim.  3. The delayed request empties it: the batch lacks its messages, and
    they are read twice. So `take` waits for the answer to a request to give back, and repeats it
    when there was none.

    A claim that an earlier driver opened is not given back by the queue, which answers that it held
    nothing. So after that, what the claim holds is asked when its turn comes (`ClaimReader.open`).

    start  the position up to which claims are settled
    """

    def __init__(
        self, broker: WarrenBroker, queue: QueueReader, start: Position, step: ReaderStep
    ) -> None:
        self._broker = broker
        self._queue = queue
        self.start = start
        self.step = step
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._answered = threading.Event()
        self._over = threading.Event()
        self._claim: Claim | None = None
        self._messages: int | None = None
        self._failed: client_errors.WarrenError | None = None
        self._taken = self._withdrawn = self._emptied = False

    # -------------------------------------------------------------- beside Spark's thread

    def run(self) -> None:
        """Make the request; give the claim back when it is not taken in HELD_S_MAX."""
        self.ask()
        if self._holds and not self._over.wait(HELD_S_MAX):
            self.give_back()

    def ask(self) -> None:
        """Make the request, once."""
        try:
            (answer,) = self._broker.take_steps([self.step])
            if isinstance(answer, client_errors.WarrenError):
                raise answer
            self._messages, self._claim = answer.messages, answer.claim
        except client_errors.WarrenError as failed:
            self._failed = failed
        except WarrenSparkError as wrong:  # of the login: Spark's thread asks again, and is told
            log.info("no request ahead: %s", wrong)
        finally:
            self._answered.set()

    @property
    def _holds(self) -> bool:
        return self._claim is not None and self._claim.open

    def give_back(self) -> None:
        """Give the claim back unless it was taken; log a failure."""
        if not self._answered.wait(STOP_S_MAX):
            return
        with self._lock:
            if self._taken or not self._holds:
                return
            self._withdrawn = True
        self._over.set()
        try:
            self._withdraw()
        except (client_errors.WarrenError, WarrenSparkError) as wrong:
            log.warning("claim %d is not given back yet: %s", self.step.opens, wrong)

    def _withdraw(self) -> None:
        """Give the claim back, once.

        raises  no answer, or a refusal that does not mean that this driver has it no more: a right
                that was removed, or a login that is refused after the request was lost on its way
        """
        with self._sending:
            if self._emptied:
                return
            try:
                messages = self._queue.withdraw(self.step.opens)
                log.info("claim %d: %d messages given back", self.step.opens, messages)
            except _HELD_NO_MORE as refused:
                log.info("claim %d is not given back: %s", self.step.opens, refused)
            self._emptied = True

    # -------------------------------------------------------------- Spark's thread

    def take(self) -> StepTaken | None:
        """Wait for the answer; return it, with the claim unless that was given back.

        returns  None: there was no answer. What it did is seen when it is asked again
        raises   the refusal of the settlement; what `_withdraw` raises, when it is not known
                 whether the claim was given back
        """
        self._answered.wait()
        with self._lock:
            self._taken = not self._withdrawn
        self._over.set()
        if self._failed is not None and not isinstance(self._failed, client_errors.Unavailable):
            raise self._failed
        if self._messages is None:
            log.info("no answer to a request ahead, which is repeated: %s", self._failed)
            return None
        if self._withdrawn:
            self._withdraw()
            return StepTaken(self._messages, None)
        return StepTaken(self._messages, self._claim)
