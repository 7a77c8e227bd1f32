"""A claim that is opened while Spark works on the batch before it."""

from __future__ import annotations

import logging
import threading
from typing import Final

from pyspark_warren.errors import WarrenSparkError
from pyspark_warren.offset import Offset
from pyspark_warren.port import ReaderPort
from warren import errors as client_errors
from warren.claims import Claim, ReaderStep, StepTaken

log = logging.getLogger("pyspark_warren")

HELD_S_MAX: Final = 10.0
"""How long a claim that Spark has not asked for is kept from other consumers."""
STOP_S_MAX: Final = 2.0
"""How long the end of a query waits for the answer to a request that is under way."""
_HELD_NO_MORE: Final = (client_errors.ClaimLost, client_errors.Fenced, client_errors.NotFound)
"""The refusals that mean that this driver does not hold the claim."""


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

    start  the offset up to which claims are settled
    """

    def __init__(self, reader: ReaderPort, start: Offset, step: ReaderStep) -> None:
        self._reader = reader
        self.start = start
        self._step = step
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._answered = threading.Event()
        self._over = threading.Event()
        self._claim: Claim | None = None
        self._messages: int | None = None
        self._failed: client_errors.WarrenError | None = None
        self._taken = self._withdrawn = self._emptied = False

    @property
    def settles(self) -> int:
        """The claim up to which it settles; 0: none."""
        return self._step.settles

    # -------------------------------------------------------------- beside Spark's thread

    def run(self) -> None:
        """Make the request; give the claim back when it is not taken in HELD_S_MAX."""
        self.ask()
        if self._holds and not self._over.wait(HELD_S_MAX):
            self.give_back()

    def ask(self) -> None:
        """Make the request, once."""
        step = self._step
        try:
            self._messages, self._claim = self._reader.open_ahead(
                step.opens,
                settles=step.settles,
                max_messages=step.max_messages,
                max_bytes=step.max_bytes,
                ttl_ms=step.ttl_ms,
            )
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
            log.warning("claim %d is not given back yet: %s", self._step.opens, wrong)

    def _withdraw(self) -> None:
        """Give the claim back, once.

        raises  no answer, or a refusal that does not mean that this driver has it no more: a right
                that was removed, or a login that is refused after the request was lost on its way
        """
        with self._sending:
            if self._emptied:
                return
            try:
                messages = self._reader.withdraw(self._step.opens)
                log.info("claim %d: %d messages given back", self._step.opens, messages)
            except _HELD_NO_MORE as refused:
                log.info("claim %d is not given back: %s", self._step.opens, refused)
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
