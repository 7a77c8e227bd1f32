"""The dead letters that a queue keeps until they have been forwarded, in the order of the deaths.

Rows in packed leaves (`leaves`). A row has a number, which is never used again in the queue: a
command that removes letters names them by it, and a repeat of that command, however late, removes
nothing else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from warren_machines.queue.effects import DeathReason
from warren_machines.queue.ready.leaves import LEAF_ROWS_MAX, Leaves, Row

LetterRow: TypeAlias = Row
"""(number, index, first, last, code, died_ms); code: the reason's place in REASONS plus, times
len(REASONS), the delivery count. A row of which some messages from the middle were removed becomes
two with its number."""
REASONS: Final[tuple[DeathReason, ...]] = ("rejected", "expired", "maxlen", "delivery_limit")


class Letter(NamedTuple):
    """One dead letter: message `ordinal` of the block at the log index `entry`.

    died_ms         when it died, by the time of the log, in milliseconds since the epoch
    delivery_count  failed deliveries
    """

    number: int
    ordinal: int
    entry: int
    reason: DeathReason
    died_ms: int
    delivery_count: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Its identity, and its place in the order of the letters."""
        return self.number, self.ordinal


class LetterQueue(Leaves):
    """Dead letters as rows, ordered by (number, ordinal).

    count        messages
    size_bytes   of all; the caller's account
    next_number  of the next row; above every number that was ever used here

    Invariants: rows ascend, and their numbers are below next_number
    """

    __slots__ = ("count", "next_number", "size_bytes")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.size_bytes = 0
        self.next_number = 1

    def add(
        self,
        index: int,
        first: int,
        last: int,
        reason: DeathReason,
        died_ms: int,
        delivery_count: int = 0,
    ) -> None:
        """Append messages that died just now."""
        self.count += last - first + 1
        code = REASONS.index(reason) + len(REASONS) * delivery_count
        if self.leaves:
            rows = self.rows(-1)
            number, at, low, high, *rest = rows[-1]
            if at == index and high + 1 == first and rest == [code, died_ms]:
                rows[-1] = (number, index, low, last, code, died_ms)
                return
            row: LetterRow = (self.next_number, index, first, last, code, died_ms)
            self.next_number += 1
            if len(rows) < LEAF_ROWS_MAX:
                rows.append(row)
                return
        else:
            row = (self.next_number, index, first, last, code, died_ms)
            self.next_number += 1
        self.insert_leaf(len(self.leaves), [row])

    def remove(self, number: int, first: int, last: int) -> list[tuple[int, int, int]]:
        """Remove messages first … last of that number, those that are there.

        returns  (index, first, last) of what was removed
        """
        taken: list[tuple[int, int, int]] = []
        at = self.place_of((number,))
        while at < len(self.leaves) and self.leaves[at].key[0] <= number:
            found = self.leaves[at].read()
            place = bisect_left(found, (number,))
            if place < len(found) and found[place][0] == number:
                rows = self.rows(at)
                end = bisect_left(rows, (number + 1,))
                rows[place:end] = _cut(rows[place:end], first, last, taken)
                at = self.changed(at)
            else:
                at += 1
        self.count -= sum(high - low + 1 for _, low, high in taken)
        return taken

    def after(self, place: tuple[int, int], count: int) -> list[Letter]:
        """Return the first `count` letters after that place; they stay, and leaves stay packed."""
        found: list[Letter] = []
        number, ordinal = place
        for leaf in self.leaves[self.place_of((number,)) :]:
            rows = leaf.read()
            for row in rows[max(0, bisect_left(rows, (number,))) :]:
                given, index, first, last, code, died_ms = row
                begin = max(first, ordinal + 1) if given == number else first
                end = min(last + 1, begin + count - len(found))
                failures, at_reason = divmod(code, len(REASONS))
                said = (index, REASONS[at_reason], died_ms, failures)
                found += (Letter(given, i, *said) for i in range(begin, end))
                if len(found) >= count:
                    return found
        return found

    def clear(self) -> list[tuple[int, int, int]]:
        """Remove everything; return (index, first, last) of all rows."""
        gone = [row[1:4] for row in self.clear_leaves()]
        self.count = self.size_bytes = 0
        return gone

    # ------------------------------------------------------------ as a whole

    def __iter__(self) -> Iterator[LetterRow]:
        return self.all_rows()

    def load(self, counts: tuple[int, int, int], leaves: Iterable[bytes]) -> None:
        """Load (count, next_number, size_bytes) and what `dump` returned into an empty object."""
        self.count, self.next_number, self.size_bytes = counts
        self.move_from(Leaves(leaves))

    def check(self) -> None:
        """Assert the invariants."""
        self.check_leaves()
        rows = list(self)
        assert rows == sorted(set(rows)), rows
        assert not rows or rows[-1][0] < self.next_number, (rows[-1], self.next_number)
        count = sum(last - first + 1 for _, _, first, last, _, _ in rows)
        assert count == self.count, (count, self.count)
        assert self.size_bytes >= 0, self.size_bytes


def _cut(
    rows: list[LetterRow], first: int, last: int, taken: list[tuple[int, int, int]]
) -> list[LetterRow]:
    """Cut messages first … last out of rows of one number; add them to `taken`, return the rest."""
    rest: list[LetterRow] = []
    for number, index, low, high, code, died_ms in rows:
        begin, end = max(low, first), min(high, last)
        if begin > end:
            rest.append((number, index, low, high, code, died_ms))
            continue
        taken.append((index, begin, end))
        if low < begin:
            rest.append((number, index, low, begin - 1, code, died_ms))
        if end < high:
            rest.append((number, index, end + 1, high, code, died_ms))
    return rest
