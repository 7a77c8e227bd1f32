"""The search for messages at fault in the rows of a spool: its state, which offsets have.

The rules are those of a Warren queue (`warren_wire.queue_values.part_rules`). There the queue's
log has the state. Here Spark's offset log has it: the offset of a batch says which rows it
reads, and what remains after it. So a driver that ends has lost none of it, whenever that is.
Of some rows something is decided before the rows before them are settled (`DecidedRows`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias

from warren_wire.queue_values import part_rules
from warren_wire.queue_values.give_up_command import ALONE, HALF, UNDIVIDED, Way

Decision: TypeAlias = Literal["passed", "reject", "release"]
PASSED: Final = "passed"
RELEASED: Final = "release"


class Decided(NamedTuple):
    """Rows first <= position < last, and what their deliveries are answered with.

    decision  passed   acknowledged: a batch with them is committed
              reject   basic.nack without requeue: the broker dead-letters them, or drops them
              release  basic.nack with requeue: they come back as new rows, to whichever consumer
    """

    first: int
    last: int
    decision: Decision


class DecidedRows:
    """Decided rows, to be looked up.

    Invariant: they are ascending and do not overlap.
    """

    def __init__(self, rows: Iterable[Iterable[int | str]] = ()) -> None:
        self._rows = tuple(sorted(Decided(*each) for each in rows))  # type: ignore[arg-type]
        for before, after in zip(self._rows, self._rows[1:], strict=False):
            assert before.last <= after.first, (before, after)

    def __bool__(self) -> bool:
        return bool(self._rows)

    def of(self, row: int) -> Decision | None:
        """Return what is decided of a row; None: nothing yet."""
        for each in self.within(row, row + 1):
            return each.decision
        return None

    def within(self, first: int, last: int) -> Iterator[Decided]:
        """Yield what is decided of rows first <= position < last, ascending, cut to these."""
        at = bisect_right(self._rows, first, key=_last)
        while at < len(self._rows) and self._rows[at].first < last:
            found = self._rows[at]
            yield Decided(max(found.first, first), min(found.last, last), found.decision)
            at += 1


NONE_DECIDED: Final = DecidedRows()


def _last(rows: Decided) -> int:
    return rows.last


DECIDED_MAX: Final = 256
"""Stretches of rejected and released rows in an offset, the newest ones."""
DECIDED_ROWS: Final = 262_144
"""So many rows later they are not in the offset any more: the broker has long had the answer, and
the lane does not remember them either."""


class Part(NamedTuple):
    """Rows first <= position < last that are, or were, read by one batch.

    origin  as of a claim, see `give_up_command.ORIGINS`
    """

    first: int
    last: int
    origin: int = UNDIVIDED

    @property
    def rows(self) -> int:
        """How many."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Search:
    """What remains of batches that failed, after the batch that ends with the offset.

    turn     number of the batch since a search began
    reading  the part that this batch reads; None: the rows before its position
    parts    the next batches, in order; those of rows that failed alone are the last
    in_row   rows that failed alone, and batches that were rejected, since a batch passed
    passed   a batch passed since parts are there
    decided  rows that were rejected or released, in the order of that
    """

    turn: int = 0
    reading: Part | None = None
    parts: tuple[Part, ...] = ()
    in_row: int = 0
    passed: bool = False
    decided: tuple[Decided, ...] = ()

    def __post_init__(self) -> None:
        for part in self.parts if self.reading is None else (self.reading, *self.parts):
            assert 0 <= part.first < part.last, part

    @property
    def is_over(self) -> bool:
        """Whether offsets need not have it any more."""
        return not (self.parts or self.in_row or self.decided)

    def after_passing(self) -> Search:
        """Return what remains when the batch is committed and its rows were written."""
        return replace(self, reading=None, in_row=0, passed=bool(self.parts))

    def after_failing(self, batch: Part, way: Way) -> Search:
        """Return what remains when the batch is committed and was given up in that way."""
        in_row = self.in_row + part_rules.counts_in_row(way, batch.origin, batch.rows)
        if way != "divide":
            given_up = Decided(batch.first, batch.last, way)
            decided = (*self.decided, given_up)[-DECIDED_MAX:]
            return replace(self, reading=None, in_row=in_row, decided=decided)
        passed = self.passed and not part_rules.begins(batch.origin, len(self.parts))
        if batch.rows == 1:
            parts = (*self.parts, batch._replace(origin=ALONE))
        else:
            middle = batch.first + part_rules.first_half(batch.rows)
            halves = Part(batch.first, middle, HALF), Part(middle, batch.last, HALF)
            parts = (*halves, *self.parts)
        return replace(self, reading=None, parts=parts, in_row=in_row, passed=passed)

    def next_part(self) -> Search | None:
        """Return the state of the batch that reads the next part; None: no part is due."""
        if not self.parts:
            return None
        first, *others = self.parts
        if not part_rules.is_due(first.origin, self.in_row, self.passed):
            return None
        return replace(self, turn=self.turn + 1, reading=first, parts=tuple(others))

    def next_rows(self, position: int) -> Search | None:
        """Return the state of a batch that reads rows up to the position; None: it is over."""
        kept = tuple(each for each in self.decided if each.last > position - DECIDED_ROWS)
        found = replace(self, turn=self.turn + 1, reading=None, decided=kept)
        return None if found.is_over else found

    def settled(self, position: int) -> int:
        """Return up to where rows are settled, when all before the position were read."""
        return min([position] + [part.first for part in self.parts])

    def decisions(self, position: int) -> tuple[Decided, ...]:
        """Return what is decided of single rows before the position, ascending.

        Rows that were written are acknowledged although a row before them waits: it may wait until
        others pass, and they come only while the prefetch has room.
        """
        at = self.settled(position)
        taken = sorted((*((p.first, p.last) for p in self.parts), *(d[:2] for d in self.decided)))
        passed = []
        for first, last in taken:
            if at < first:
                passed.append(Decided(at, first, PASSED))
            at = max(at, last)
        if at < position and self.parts:
            passed.append(Decided(at, position, PASSED))
        return tuple(sorted((*passed, *self.decided)))


NO_SEARCH: Final = Search()
