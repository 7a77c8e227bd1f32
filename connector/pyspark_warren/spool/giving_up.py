"""Option onBatchFailure with a spool: which batch is given up, how, and what is read next.

What this is decided by survives a driver that is killed in any moment: what the search for messages
at fault has left is in the offsets of Spark's log (`search`), how often a batch was tried is in the
spool. A batch is given up by a task of it, and not by the driver: see
`failed_batches.GivingUp.plan`. Its file counts once Spark has committed the batch.

    <location>/<reader>/tries/<batch>.<n>.try             the n-th try after the first one begins
    <location>/<reader>/tries/<batch>.<n>.<way>.<first>   in that try the batch, with rows from
                                                          `first` on, was given up by its task

The first run of a batch writes none, so a query without failures has no such file. The second kind
counts only where no later try is noted:

1. Run 2 plans batch 7 with a task that gives it up; driver and task stand still.  2. Run 3 has
other options, notes its try, and plans batch 7 with its rows; they are written.  3. The task of run
2 continues, and says that batch 7 was given up. Its rows must not be read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_args

from pyspark_warren.claims.failed_batches import FailedBatch
from pyspark_warren.errors import OptionError
from pyspark_warren.options.amqp import FAIL, check_room
from pyspark_warren.options.options import Options
from pyspark_warren.spool.offset import SpoolPosition, SpoolSlice
from pyspark_warren.spool.search import NO_SEARCH, Part, Search
from pyspark_warren.spool.store import SpoolPlace
from warren_wire.queue_values.give_up_command import Way

TRIES: Final = "tries"
_TRY: Final = "try"
_KINDS: Final = "|".join((_TRY, *get_args(Way)))
_NAME: Final = re.compile(rf"(\d+-\d+)\.(\d+)\.({_KINDS})(?:\.(\d+))?")


class Tried(NamedTuple):
    """What is noted of a batch.

    again  how often it was tried after the first time
    way    how it was given up; None: it was not
    first  its first row, when it was given up
    """

    again: int = 0
    way: Way | None = None
    first: int = 0


NOT_TRIED: Final = Tried()


class Tries:
    """The tries of one reader's batches; used by Spark's driver."""

    def __init__(self, place: SpoolPlace, reader: str) -> None:
        self._place = place
        self._folder = _folder(place, reader)

    def of(self, batch: str) -> Tried:
        """Return what is noted of a batch."""
        found = self._found().get(batch, [])
        again = max((int(match[2]) for match in found if match[3] == _TRY), default=0)
        for match in found:
            if match[3] != _TRY and int(match[2]) == again:
                return Tried(again, match[3], int(match[4]))  # type: ignore[arg-type]
        return Tried(again)

    def note(self, batch: str, number: int) -> None:
        """Note that the batch is tried again, durable; a repeat changes nothing."""
        _write(self._place, self._folder, f"{batch}.{number}.{_TRY}")

    def keep_only(self, batch: str) -> None:
        """Remove what is noted of other batches, which are committed."""
        with self._place.named("removing notes of tries"):
            for other, files in self._found().items():
                for match in files if other != batch else ():
                    self._place.store.remove(f"{self._folder}/{match[0]}")

    def _found(self) -> dict[str, list[re.Match[str]]]:
        found: dict[str, list[re.Match[str]]] = {}
        with self._place.named("reading notes of tries"):
            names = self._place.store.sizes(self._folder)
        for match in filter(None, map(_NAME.fullmatch, sorted(names))):
            found.setdefault(match[1], []).append(match)
        return found


def given_up_file(batch: str, number: int, way: Way, first: int) -> str:
    """Return the name of the file by which the task of that try gives the batch up."""
    return f"{batch}.{number}.{way}.{first}"


def give_up(place: SpoolPlace, reader: str, name: str) -> None:
    """Write such a file, durable; used by a task, perhaps twice."""
    _write(place, _folder(place, reader), name)


def _folder(place: SpoolPlace, reader: str) -> str:
    return f"{place.reader_folder(reader)}/{TRIES}"


def _write(place: SpoolPlace, folder: str, name: str) -> None:
    with place.named(f"writing {name}"):
        place.store.make(folder)
        place.store.write(folder, name, lambda sink: None)


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
        place = f"(index {rows.first}, ordinal 0)"
        self._shown = failed, failed.shown(given_up.way, place)
        file = given_up_file(batch, number, given_up.way, rows.first)
        return (SpoolSlice(end.queue, end.reader, (), file),)
