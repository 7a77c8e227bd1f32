"""Rows of the spool of which something is decided before the rows before them are settled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

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
