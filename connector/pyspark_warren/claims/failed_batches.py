"""Option onBatchFailure: when a failing micro-batch is given up, how, and what is read next.

The queue keeps all that this is decided by. Each run of the query registers, and the queue counts
these starts of its reader, so the starts since a batch was begun limit how often it was tried. The
queue says of a claim whether it is a part of one that has failed (isolatePoison). A claim that is
given back as failed raises the delivery count of its messages, so the count of the message at the
head says how much of the queue to read with it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark_warren.claims.client import WarrenBroker
from pyspark_warren.claims.offset import Position
from pyspark_warren.claims.plan import GivenUp, Slice
from pyspark_warren.errors import OptionError
from pyspark_warren.options.amqp import FAIL, REJECT, RELEASE
from pyspark_warren.options.options import Options
from warren import errors as client_errors
from warren.claims import Claim, ClaimReader, ClaimSlice
from warren.queues import Queue, Reader
from warren_wire.queue_values.give_up_command import ALONE, HALF, ORIGINS, Way
from warren_wire.queue_values.part_rules import counts_in_row

log = logging.getLogger("pyspark_warren")

_PART: Final = 16
"""How much less is claimed for each failure of the message at the head."""
_DEAD_LETTERS: Final = ("x-dead-letter-exchange", "dead-letter-exchange")
"""The argument of a queue, and the key of a policy."""


_SAID: Final = {
    "divide": "queue %r: batch of %s of reader %r failed, tries: %d. Its %d messages, the "
    "first at position %s, are read again in halves (isolatePoison)",
    "alone": "queue %r: batch of %s of reader %r failed, tries: %d. It is %d message alone, "
    "at position %s, which is read again after a batch that passes (isolatePoison)",
    REJECT: "queue %r: batch of %s of reader %r failed, tries: %d. Its messages are "
    "rejected: %d, the first at position %s (onBatchFailure=reject)",
    RELEASE: "queue %r: batch of %s of reader %r failed, tries: %d. Its messages are given "
    "back as failed: %d, the first at position %s (onBatchFailure=release)",
}


def tries_before(begun: Position, starts: int) -> int:
    """Return how many runs have tried a batch before the run with that number, at most.

    begun  the end of the batch, which says what run has opened its claim: the first try
    """
    assert begun.starts, begun
    return max(0, starts - begun.starts)


def narrowed(most: int, failures: int) -> int:
    """Return how many messages to claim when the first of them has failed that often.

    200,000 messages are 12,500 after one failure, then 782, 49, 4 and 1: whatever is claimed with
    the message at fault has failed as often, and is claimed without it afterwards.
    """
    assert most >= 1 and failures >= 0, (most, failures)
    for _ in range(failures):
        if most == 1:
            break
        most = -(-most // _PART)
    return most


def narrowed_claim(broker: WarrenBroker, queue: str, most: int) -> int:
    """Return how many of at most that many messages to claim now; see `narrowed`."""
    for block in broker.browse(queue, 1, 0):
        for _, _, _, failures, _ in block.runs:
            return narrowed(most, failures)
    return most


def give_back(broker: WarrenBroker, reader: ClaimReader, end: Position, tried: int) -> int:
    """Release the claims of the batch that ends there, as failed; return how many messages.

    tried  how often the batch was tried, for the log
    """
    place = _place_of_first(broker, end)
    messages = sum(reader.release(claim.number, failed=True) for claim in end.claims)
    log.warning(
        "queue %r: batch of claim %d of reader %r given back as failed after %d tries: %d "
        "messages, the first at position %s (onBatchFailure=release)",
        end.queue,
        end.number,
        end.reader,
        tried,
        messages,
        place,
    )
    return messages


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """A batch that was begun by an earlier run of the query, and not committed.

    named          what it reads, for the log: "claim 8"
    origin         of its messages, see `give_up_command.ORIGINS`
    tried          how often it was tried
    failed_in_row  see `part_rules.counts_in_row`
    """

    queue: str
    reader: str
    named: str
    messages: int
    origin: int
    tried: int
    failed_in_row: int

    def given_up(self, options: Options) -> GivenUp | None:
        """Return how to give it up; None: it is tried again.

        A part of a batch that has failed is tried once, a message that has failed alone
        batchTriesMax times.
        """
        if options.on_batch_failure == FAIL:
            return None
        way: Way = "release" if options.on_batch_failure == RELEASE else "reject"
        tries = options.batch_tries_max
        if options.isolate_poison and self.origin != ALONE:
            way = "divide"
            tries = 1 if self.origin == HALF else tries
        if self.tried < tries:
            return None
        in_row_max = options.failures_in_row_max
        counted = counts_in_row(way, self.origin, self.messages)
        if counted and self.failed_in_row >= in_row_max:
            log.error(
                "queue %r: %d messages alone, or batches, of reader %r have failed one after "
                "another while none passed (failuresInRowMax=%d): nothing is given up, the batch "
                "of %s is tried again. See whether what the query writes to is available",
                self.queue,
                self.failed_in_row,
                self.reader,
                in_row_max,
                self.named,
            )
            return None
        return GivenUp(way, in_row_max, options.drop_rejected)

    def shown(self, way: Way, place: str) -> dict[str, Any]:
        """Log how it is given up; return that for the query's progress.

        place  position of its first message
        """
        said = "alone" if way == "divide" and self.messages == 1 else way
        named = (self.queue, self.named, self.reader, self.tried, self.messages, place)
        log.warning(_SAID[said], *named)
        return {
            "messages": self.messages,
            "position": place,
            "reader": self.reader,
            "tries": self.tried,
            "way": said,
        }

    def was_written(self) -> None:
        """Log that a sink had the batch: its task, which would have given it up, did not run."""
        log.warning(
            "queue %r: the batch of %s had been written before: nothing was given up",
            self.queue,
            self.named,
        )


class GivingUp:
    """What a run of a query gives up, for its log and its progress.

    last  what was given up last in this run; None: nothing yet
    """

    def __init__(self, broker: WarrenBroker, options: Options) -> None:
        self._broker = broker
        self._options = options
        self._begun: tuple[int, FailedBatch, dict[str, Any]] | None = None
        self.last: dict[str, Any] | None = None

    @property
    def counts_tries(self) -> bool:
        """Whether the offset of a batch says which run has begun it."""
        return self._options.on_batch_failure != FAIL

    @property
    def gives_back(self) -> bool:
        """Whether the driver releases a batch that failed, as a whole."""
        return self._options.releases_whole

    def check_dead_letters(self) -> None:
        """Raise OptionError when the queue would drop what this query rejects."""
        options = self._options
        if options.on_batch_failure != REJECT or options.drop_rejected:
            return
        if not dead_letters(self._broker.queue(options.queue)):
            raise OptionError(
                f"option onBatchFailure=reject: queue {options.queue!r} has no dead letter "
                "exchange and would drop what is rejected. Give it one (x-dead-letter-exchange, or "
                "dead-letter-exchange of a policy), or set dropRejected=true"
            )

    def plan(
        self, epoch: int, end: Position, claim: Claim, tried: int, mine: Reader
    ) -> tuple[Slice, ...] | None:
        """Return the slices of a batch that was begun by an earlier run; None: it is tried again.

        The claim is given up by the task that reads the one slice, and not here:
        1. A file sink has written the batch, and the driver ends before Spark's commit log.
        2. The next run would take the messages out of the claim here, and read them in later
        batches: they would be written twice.  3. Such a sink runs no task of a batch that it has.
        So the claim keeps its messages, and is settled with the batch.

        epoch  of this run
        mine   the reader as the queue knows it
        """
        if not claim.messages:
            return () if end.claims[-1].messages else None
        batch = FailedBatch(
            end.queue,
            end.reader,
            f"claim {end.number}",
            claim.messages,
            ORIGINS.index(claim.origin),
            tried,
            mine.failed_in_row,
        )
        given_up = batch.given_up(self._options)
        if given_up is None:
            return None
        shown = batch.shown(given_up.way, _place_of_first(self._broker, end))
        self._begun = (end.number, batch, {"claim": end.number, **shown})
        by_this_run = replace(given_up, epoch=epoch)
        return (Slice(end.queue, end.reader, end.number, 0, claim.messages, given_up=by_this_run),)

    def settled(self, number: int, messages: int) -> None:
        """Note that claims up to that one were settled, with so many messages in them."""
        if self._begun is None or number < self._begun[0]:
            return
        _, batch, shown = self._begun
        self._begun = None
        if messages:
            batch.was_written()
        else:
            self.last = shown


def dead_letters(queue: Queue) -> bool:
    """Return whether the queue has a dead letter exchange, of its own or of a policy."""
    said = {**queue.effective_policy_definition, **queue.arguments}
    return any(said.get(name) is not None for name in _DEAD_LETTERS)


def _place_of_first(broker: WarrenBroker, end: Position) -> str:
    number = end.claims[0].number
    try:
        head = ClaimSlice(end.queue, end.reader, number, 0, 1)
        for _, block in broker.fetch_slices([head], 0):
            for index, first, _, failures, _ in block.runs:
                return f"(index {index}, ordinal {first}), failed {failures} times before"
    except client_errors.WarrenError as wrong:  # given back before, or empty
        log.info("queue %r: claim %d cannot be read: %s", end.queue, number, wrong)
    return "unknown"
