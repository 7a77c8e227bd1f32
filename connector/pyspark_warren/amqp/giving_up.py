"""Option onBatchFailure with a spool: which batch is given up, how, and what is read next.

What this is decided by survives a driver that is killed in any moment: how often a batch was tried
is in the spool (`spool.tries`), what the search for messages at fault has left is in the offsets of
Spark's log (`search`). A batch is given up by a task of it, and not by the driver: see
`failed_batches.GivingUp.plan`. Its file counts once Spark has committed the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark_warren.amqp.plan import SpoolSlice
from pyspark_warren.amqp.search import NO_SEARCH, Part, Search
from pyspark_warren.amqp.spool.layout import LANE
from pyspark_warren.amqp.spool.store import SpoolPlace
from pyspark_warren.amqp.spool.tries import NOT_TRIED, Tries, given_up_file
from pyspark_warren.amqp.spool_offset import SpoolPosition
from pyspark_warren.errors import OptionError
from pyspark_warren.failed_batches import FailedBatch
from pyspark_warren.failing_options import FAIL, check_room
from pyspark_warren.options import Options


class SpoolGivingUp:
    """What one run of a query gives up.

    last  what was given up last in this run, for its progress; None: nothing yet
    """

    def __init__(self, options: Options, place: Callable[[], SpoolPlace]) -> None:
        self._options = options
        self._place = place
        self._begun = ""
        self._planned: dict[str, tuple[SpoolSlice, ...] | None] = {}
        self._shown: tuple[FailedBatch, dict[str, Any]] | None = None
        self._standing: tuple[SpoolPosition, Search] | None = None
        self._has_notes = True
        self.last: dict[str, Any] | None = None

    def standing(self, start: SpoolPosition) -> Search:
        """Return what remains of batches that failed, when the batch that ends there is committed.

        1. A batch is given up and committed.  2. The driver ends before the offset log has the next
        one.  3. The next driver finds the same file of the same try, and the same remains.
        """
        if self._standing is None or self._standing[0] != start:
            self._standing = start, self._after(start)
        return self._standing[1]

    def begins(self, end: SpoolPosition) -> SpoolPosition:
        """Note that this run begins the batch that ends there; its first try is not noted."""
        self._begun = end.batch
        return end

    def check_room(self, start: SpoolPosition) -> None:
        """Raise OptionError when only messages that wait are, and will be, received."""
        if self.standing(start).parts:
            check_room(self._options, sum(part.rows for part in self.standing(start).parts))

    def plan(
        self, start: SpoolPosition | None, end: SpoolPosition
    ) -> tuple[SpoolSlice, ...] | None:
        """Return the slices of a batch that is given up, or was; None: its rows are read.

        Spark's offset log has the batch, so what is noted of the one before it is not needed.
        """
        batch = end.batch
        if self._has_notes:
            Tries(self._place(), end.reader).keep_only(batch)
            self._has_notes = False
        if batch == self._begun:
            return None
        if batch not in self._planned:
            self._planned = {batch: self._plan(start, end)}
        return self._planned[batch]

    # -------------------------------------------------------------- steps

    def _after(self, start: SpoolPosition) -> Search:
        found = start.search or NO_SEARCH
        batch = start.batch
        noted = NOT_TRIED
        if batch != self._begun:
            noted = Tries(self._place(), start.reader).of(batch)
        if self._shown is not None and batch in self._planned:
            failed, shown = self._shown
            self._shown = None
            if noted.way is None:
                failed.was_written()
            else:
                self.last = shown
        if noted.way is None:
            found = found.after_passing()
        else:
            rows = Part(noted.first, start.row)
            found = found.after_failing(found.reading or rows, noted.way)
        if found.parts and self._options.ack_mode != "commit":
            raise OptionError(
                f"option ackMode={self._options.ack_mode}: the query searches for messages at "
                f"fault in queue {self._options.queue!r} (isolatePoison), and does not acknowledge "
                "them before they are found; start it with ackMode=commit until then"
            )
        return found

    def _plan(
        self, start: SpoolPosition | None, end: SpoolPosition
    ) -> tuple[SpoolSlice, ...] | None:
        batch, rows = end.batch, end.read_since(start)
        if not rows.rows:
            return None
        tries = Tries(self._place(), end.reader)
        noted = tries.of(batch)
        if noted.way is not None:
            return ()
        failed = FailedBatch(
            end.queue,
            end.reader,
            f"rows {rows.first} to {rows.last - 1}",
            rows.rows,
            rows.origin,
            noted.again + 1,
            (end.search or NO_SEARCH).in_row,
        )
        given_up = failed.given_up(self._options)
        number = noted.again + 1
        if self._options.on_batch_failure != FAIL or noted.again:
            tries.note(batch, number)
            self._has_notes = True
        if given_up is None:
            return None
        place = f"(index {rows.first}, ordinal {int(LANE)})"
        self._shown = failed, failed.shown(given_up.way, place)
        file = given_up_file(batch, number, given_up.way, rows.first)
        return (SpoolSlice(end.queue, end.reader, LANE, (), file),)
