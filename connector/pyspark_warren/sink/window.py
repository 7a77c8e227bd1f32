"""The rows that a sink has sent to the broker and that are not confirmed yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_warren.rows.blocks import size_bytes
from pyspark_warren.rows.encode import EncodedRows

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


@dataclass(slots=True)
class _Sent:
    """A run on the channel: its first delivery tag, and which of its rows are unconfirmed."""

    run: Run
    first_tag: int
    left: int
    unconfirmed: bytearray

    def confirm(self, first: int, last: int) -> int:
        """Confirm the rows first <= i < last; return how many were not yet."""
        found = self.unconfirmed.count(1, first, last)
        if found:
            self.unconfirmed[first:last] = bytes(last - first)
            self.left -= found
        return found


class Window:
    """The unconfirmed rows of one channel in confirm mode, by delivery tag.

    The broker numbers the messages of a channel from 1; so does `send`.

    rows        unconfirmed rows
    size_bytes  of the runs with unconfirmed rows
    Invariants: tags of `_sent` ascend without gaps up to `_next_tag`; its first run has
                unconfirmed rows; rows is the sum of their `left`
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._sent: deque[_Sent] = deque()
        self._next_tag = 1
        self.rows = 0
        self.size_bytes = 0

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
        rows = len(run.numbers)
        self._sent.append(_Sent(run, self._next_tag, rows, bytearray(b"\1" * rows)))
        self._next_tag += rows
        self.rows += rows
        self.size_bytes += run.size_bytes

    def confirm(self, tag: int, multiple: bool) -> int:
        """Note a confirm; return how many rows were confirmed by it. Unknown tags confirm none."""
        done = 0
        for sent in self._sent:
            if sent.first_tag > tag:
                break
            last = min(tag - sent.first_tag + 1, len(sent.unconfirmed))
            if multiple:
                done += sent.confirm(0, last)
            elif tag < sent.first_tag + len(sent.unconfirmed):
                done += sent.confirm(last - 1, last)
        while self._sent and not self._sent[0].left:
            self.size_bytes -= self._sent.popleft().run.size_bytes
        self.rows -= done
        return done

    def row_of(self, tag: int) -> tuple[Run, int] | None:
        """Return the run with that tag and the row's index in it; None: it is confirmed."""
        for sent in self._sent:
            at = tag - sent.first_tag
            if 0 <= at < len(sent.unconfirmed) and sent.unconfirmed[at]:
                return sent.run, at
        return None

    def unconfirmed(self) -> list[Run]:
        """Return what must be sent again on another channel, in order."""
        return [
            sent.run.only([i for i, open_ in enumerate(sent.unconfirmed) if open_])
            for sent in self._sent
            if sent.left
        ]

    def check(self) -> None:
        """Check the invariants."""
        tag = self._next_tag - sum(len(sent.unconfirmed) for sent in self._sent)
        for sent in self._sent:
            assert sent.first_tag == tag, (sent.first_tag, tag)
            assert sent.left == sent.unconfirmed.count(1), tag
            tag += len(sent.unconfirmed)
        assert self.rows == sum(sent.left for sent in self._sent), self.rows
        assert self.size_bytes == sum(sent.run.size_bytes for sent in self._sent)
        assert not self._sent or self._sent[0].left
