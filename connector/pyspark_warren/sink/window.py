"""The rows that a sink has sent to the broker and that are not confirmed yet."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Final

import pyarrow as pa

from pyspark_warren.rows.blocks import size_bytes
from pyspark_warren.rows.encode import EncodedRows
from pyspark_warren.rows.properties import decode_properties

PUBLISH_WINDOW_BYTES: Final = 16 << 20
"""Most bytes of bodies and properties that wait for confirms; one row may be larger."""


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that are sent together.

    numbers     each row's number in its Spark partition, ascending, without gaps in a first
                sending
    size_bytes  bodies and properties (blocks.size_bytes)
    """

    numbers: Sequence[int]
    rows: EncodedRows
    size_bytes: int

    def only(self, kept: Sequence[int]) -> Run:
        """Return these of its rows, in their order."""
        if len(kept) == len(self.numbers):
            return self
        rows = self.rows.take(pa.array(kept, pa.int64()))
        return Run([self.numbers[i] for i in kept], rows, size_bytes(rows))


class Window:
    """The unconfirmed rows of one channel in confirm mode, by delivery tag.

    The broker numbers the messages of a channel from 1; so does `send`.

    size_bytes  of the runs from the first one with unconfirmed rows on
    Invariants: tags of `_open` ascend; `_sent` has the last tag and the run of each of these runs
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._open: OrderedDict[int, tuple[Run, int]] = OrderedDict()
        self._sent: deque[tuple[int, Run]] = deque()
        self._next_tag = 1
        self.size_bytes = 0

    @property
    def rows(self) -> int:
        """The number of unconfirmed rows."""
        return len(self._open)

    def fits(self, run: Run) -> bool:
        """Whether this run may be sent now; one alone always may."""
        if not self.rows:
            return True
        return (
            self.rows + len(run.numbers) <= self._rows_max
            and self.size_bytes + run.size_bytes <= PUBLISH_WINDOW_BYTES
        )

    def send(self, run: Run) -> None:
        """Give the next delivery tags to the rows of a run."""
        assert len(run.numbers) == len(run.rows) > 0, run
        for at in range(len(run.numbers)):
            self._open[self._next_tag + at] = run, at
        self._next_tag += len(run.numbers)
        self._sent.append((self._next_tag - 1, run))
        self.size_bytes += run.size_bytes

    def confirm(self, tag: int, multiple: bool) -> int:
        """Note a confirm; return how many rows were confirmed by it. Unknown tags confirm none."""
        done = [tag] if tag in self._open else []
        if multiple:
            done = list(takewhile(lambda each: each <= tag, self._open))
        for each in done:
            del self._open[each]
        first = next(iter(self._open), self._next_tag)
        while self._sent and self._sent[0][0] < first:
            self.size_bytes -= self._sent.popleft()[1].size_bytes
        return len(done)

    def row_of(self, tag: int) -> tuple[Run, int] | None:
        """Return the run with that tag and the row's index in it; None: it is confirmed."""
        return self._open.get(tag)

    def unconfirmed(self) -> list[Run]:
        """Return what must be sent again on another channel, in order."""
        by_run = groupby(self._open.values(), key=lambda each: id(each[0]))
        found = [list(rows) for _, rows in by_run]
        return [rows[0][0].only([at for _, at in rows]) for rows in found]

    def check(self) -> None:
        """Check the invariants."""
        assert list(self._open) == sorted(self._open)
        assert self.size_bytes == sum(run.size_bytes for _, run in self._sent)
        ends = [last for last, _ in self._sent]
        assert ends == sorted(ends) and (not ends or ends[-1] == self._next_tag - 1), ends
        assert not ends or next(iter(self._open)) <= ends[0], ends


def row_text(run: Run, i: int) -> str:
    """Return a row's number, route and message_id, for an error's text."""
    rows = run.rows
    route = 0 if rows.route_ids is None else rows.route_ids[i].as_py()
    exchange, key = rows.routes[route]
    found = decode_properties(rows.properties[i].as_py(), frozenset({"message_id"}))
    return (
        f"row {run.numbers[i]} (exchange {exchange!r}, routing key {key!r}, message_id "
        f"{found.get('message_id', '')!r})"
    )
