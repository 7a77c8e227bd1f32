"""Option prefetchClaims: the next claim is opened while Spark works on a batch."""

from __future__ import annotations

from typing import Final

from pyspark_warren.claim_ahead import ClaimAhead
from pyspark_warren.driver import ClaimDriver
from pyspark_warren.failing_options import FAIL
from pyspark_warren.fencing import Fencing
from pyspark_warren.offset import Offset
from pyspark_warren.options import Options
from pyspark_warren.port import BrokerPort
from pyspark_warren.surroundings import Surroundings
from warren import errors as client_errors
from warren.claims import ReaderStep

BATCH_MS_MAX: Final = 5_000
"""Nothing is opened ahead after a batch that took longer: what a round trip takes is nothing
beside it, and other consumers would be without the messages for as long."""


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


class PrefetchingDriver(ClaimDriver):
    """The driver of one queue, with the claim after the one that Spark works on.

    When `latest` returns the end of a batch, a request that settles the batch before it and opens
    the claim after it is made in another thread (`ClaimAhead`), where:
    1. That claim would be full, so that nothing is gained by opening it later, and nothing that
       comes meanwhile has to wait for the claim after it.
    2. The batch before took at most BATCH_MS_MAX.
    The next `latest` takes the claim, without a request. Where there is none, it does what
    `ClaimDriver` does. So a claim is open that no offset names yet, as between `latest` and Spark's
    offset log: a driver that comes after this one has it as its next claim, as it is.

    A number of a claim is in no offset before `latest` has returned it, so what was not returned
    may be given back: after HELD_S_MAX, and when the query ends (`stop`). It stays open then, and
    empty, and a batch without rows reads it.

    Invariant: while a request is under way, no other one settles or opens; `latest` waits for it.
    """

    def __init__(self, broker: BrokerPort, options: Options, surroundings: Surroundings) -> None:
        super().__init__(broker, options, surroundings)
        self._beside = surroundings.beside
        self._ahead: ClaimAhead | None = None
        self._began_ms: int | None = None
        self._took_ms: int | None = None
        self._stopped = False

    def latest(self, start: Offset, limit: int | None) -> Offset:
        """Settle up to `start`, then open the next claims; see `ClaimDriver.latest`."""
        if self._began_ms is not None:
            self._took_ms = self._clock_ms() - self._began_ms
            self._began_ms = None
        end = self._held(start)
        if end is None:
            end = super().latest(start, limit)
        if limit is not None and end.claims and end != start:
            self._began_ms = self._clock_ms()
            self._begin(start, end, limit)
        return end

    def settle(self, upto: Offset) -> None:
        """Settle claims up to that offset, unless a request that does is under way."""
        ahead = self._ahead
        if ahead is None or upto.number > ahead.settles or not self.reads_as(upto.reader):
            super().settle(upto)

    def stop(self) -> None:
        """Give back what is held ahead; callable from any thread."""
        self._stopped = True
        ahead = self._ahead
        if ahead is not None:
            ahead.give_back()

    # -------------------------------------------------------------- steps

    def _held(self, start: Offset) -> Offset | None:
        """Return the end of the batch that was opened ahead after `start`; None: there is none.

        Where the claim of an earlier batch was lost, with onClaimLost=continue, perhaps the offset
        of another reader.
        """
        ahead = self._ahead
        if ahead is None:
            return None
        try:
            with Fencing(start):
                taken = ahead.take()
        except client_errors.ClaimLost as lost:
            elsewhere = self._lost(ahead.start, lost)
            self._ahead = None
            stays = elsewhere.reader == start.reader and elsewhere.number <= start.number
            return None if stays else elsewhere
        self._ahead = None  # and not before: what is not known is asked again
        if taken is None:
            return None
        if ahead.settles > self._settled:
            self._note_settled(ahead.settles, taken.messages)
        claim = taken.claim
        if claim is None or not claim.open or claim.number != start.number + 1:
            return None
        self._admission.ended()
        self._admission.began(claim.messages)
        self._pace.found_messages()
        return self._took(start, claim)

    def _begin(self, start: Offset, end: Offset, limit: int) -> None:
        """Settle the batch before, and open the claim after `end`, in another thread."""
        reader = self._reader
        if reader is None or not self.reads_as(end.reader) or self._stopped:
            return
        settles = start.number if start.number > self._settled else 0
        most = self._admission.most(limit)
        most = self._bounded(end, most) if self._is_worth_it(end, most) else 0
        if not settles and not most:
            return
        self._idle.sends(uses=most > 0)
        self._ahead = ClaimAhead(
            reader,
            start,
            ReaderStep(
                end.queue,
                end.reader,
                self._epoch,
                settles,
                end.number + 1 if most else 0,
                most,
                self._options.max_bytes,
                self._options.claim_ttl_ms,
                ahead=True,
            ),
        )
        self._start(self._ahead)

    def _start(self, ahead: ClaimAhead) -> None:
        self._beside(ahead.run)

    def _is_worth_it(self, end: Offset, most: int) -> bool:
        """Return whether batches are short, and the last claim was full: so may the next one be.

        Where messages differ in size, half of the bytes may be all that fitted.
        """
        if self._took_ms is None or self._took_ms > BATCH_MS_MAX:
            return False
        last = end.claims[-1]
        return last.messages >= most or 2 * last.size_bytes >= self._options.max_bytes
