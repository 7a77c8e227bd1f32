"""One of several queues that a query reads: its requests are sent with those of the others."""

from __future__ import annotations

from pyspark_warren.driver import ClaimDriver
from pyspark_warren.fencing import Fencing
from pyspark_warren.offset import Offset
from warren import errors as client_errors
from warren.claims import ReaderStep, StepTaken


class SteppedDriver(ClaimDriver):
    """The driver of one queue of several.

    What `ClaimDriver.settled` and `take` ask of the queue is a step here, which the driver of all
    sends together with those of the others: `step` says what to ask, `taken` notes the answer.
    Their order in one queue stays: a claim is opened after what precedes it was settled.
    """

    def step(self, start: Offset, most: int, most_bytes: int) -> ReaderStep:
        """Return what to ask: to settle up to `start`, and to open the next claim of that much.

        most  0: no claim is opened
        """
        most = self._bounded(start, most) if most else 0
        settles = start.number if start.number > self._settled else 0
        if settles or most:
            self._idle.sends(uses=most > 0)
        return ReaderStep(
            start.queue,
            start.reader,
            self._epoch,
            settles,
            start.number + 1 if most else 0,
            most,
            most_bytes,
            self._options.claim_ttl_ms,
        )

    def taken(
        self, start: Offset, step: ReaderStep, answer: StepTaken | client_errors.WarrenError
    ) -> Offset:
        """Note the answer to a step; return where the reader stands then, as `take` does."""
        assert self._reader is not None
        try:
            with Fencing(start):
                if isinstance(answer, client_errors.WarrenError):
                    raise answer
                if step.settles:
                    self._note_settled(step.settles, answer.messages)
                if not step.opens:
                    return start
                claim = answer.claim or self._reader.open(
                    step.opens,
                    max_messages=step.max_messages,
                    max_bytes=step.max_bytes,
                    ttl_ms=step.ttl_ms,
                )
        except client_errors.ClaimLost as lost:
            return self._lost(start, lost)
        return self._took(start, claim)

    def allowed(self, messages: int) -> int:
        """Return how many of that many messages may still be read."""
        return messages if self._budget is None else min(messages, self._budget)

    def leave(self, offset: Offset) -> None:
        """End the reader at `offset`, which is settled; what was opened after it is given back.

        1. A driver that stands still knows that the queue is left.  2. Another one has left it, had
        it join again and opened a claim.  3. The first one continues: it must not give that back.
        So nothing is done to a reader that stands elsewhere: it was ended before.
        """
        self._check_is_ours(offset)
        self._attach(offset.reader)
        assert self._reader is not None
        if self._settled == offset.number:
            with Fencing(offset):
                self._reader.release()
        self._reader, self._reader_name = None, ""
