"""Sorted rows of six integers in leaves, most of them packed.

What waits in a queue, by the time at which it is ready (`delayed_queue`) or in the order in which
it died (`letter_queue`), is a list of such leaves. Leaves that were not used for a while are
packed, as the ready messages are (`ready_queue`), so a long list costs a few bytes per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final, TypeAlias

from warren_raft.int_runs import count_of, end_of, pack, unpack, value

LEAF_ROWS_MAX: Final = 512
LEAVES_UNPACKED_MAX: Final = 32
"""Leaves kept unpacked, those used last: messages of one delivery count that come back one after
another go to one leaf, so these are enough for as many delivery counts."""
ADDED_MAX: Final = 64
"""Rows that a packed leaf gets before it is packed again: a client that adds to many leaves in any
order has none unpacked for each row."""
Row: TypeAlias = tuple[int, int, int, int, int, int]
"""(key, index, first, last, and two more): messages first … last of the block at that index."""
_COLUMNS: Final = 6


def encode_leaf(rows: Sequence[Row]) -> bytes:
    """Encode the columns of 1 … LEAF_ROWS_MAX rows in the format of `warren_raft.int_runs`.

    In place of its last ordinal, a row has the difference from its first: 0 for single messages.
    """
    keys, indexes, firsts, lasts, *others = zip(*rows, strict=True)
    lengths = [last - first for first, last in zip(firsts, lasts, strict=True)]
    return b"".join(map(pack, (keys, indexes, firsts, lengths, *others)))


def decode_leaf(data: bytes) -> list[Row]:
    """Decode what `encode_leaf` returned."""
    starts = _starts(data)
    keys, indexes, firsts, lengths, fifth, sixth = (unpack(data, at) for at in starts)
    lasts = [first + length for first, length in zip(firsts, lengths, strict=True)]
    return list(zip(keys, indexes, firsts, lasts, fifth, sixth, strict=True))


def _starts(data: bytes) -> list[int]:
    starts = [0]
    while len(starts) < _COLUMNS:
        starts.append(end_of(data, starts[-1]))
    return starts


class Leaf:
    """Neighbouring rows: either `rows`, or `packed` of them. key: of its first row.

    added    rows that came to it while it was packed, in any order
    passed   number of a filter to (rows before which nothing matches it, entry of the row there
             that had not been judged or 0), see `returned_runs`
    """

    __slots__ = ("added", "key", "packed", "passed", "rows")

    def __init__(self, rows: list[Row] | None, packed: bytes = b"") -> None:
        self.rows = rows
        self.packed = packed
        self.added: list[Row] = []
        self.passed: dict[int, tuple[int, int]] = {}
        if rows is not None:
            self.key: tuple[int, ...] = rows[0]
        else:
            self.key = tuple(value(packed, at, 0) for at in _starts(packed)[:3])

    def encoded(self) -> bytes:
        """Return its packed form."""
        return self.packed if self.rows is None and not self.added else encode_leaf(self.read())

    def add(self, row: Row) -> bool:
        """Add a row at its place, if the leaf is packed and has room; return whether it was."""
        if self.rows is not None or self.count() >= LEAF_ROWS_MAX:
            return False
        self.added.append(row)
        if row < self.key:
            self.key = row
        if len(self.added) >= ADDED_MAX:
            self.packed, self.added = encode_leaf(self.read()), []
        return True

    def count(self) -> int:
        """Return how many rows it has."""
        if self.rows is not None:
            return len(self.rows)
        return count_of(self.packed) + len(self.added)

    def last_key(self) -> int:
        """Return the key of its last row."""
        if self.rows is None and not self.added:
            return value(self.packed, 0, count_of(self.packed) - 1)
        return self.read()[-1][0]

    def read(self) -> list[Row]:
        """Return its rows; it stays as it is."""
        if self.rows is not None:
            return self.rows
        rows = decode_leaf(self.packed)
        return sorted(rows + self.added) if self.added else rows


LEAF_KEY: Final = attrgetter("key")


class Unpacked:
    """The leaves of one list that are unpacked, in the order of their last use.

    Which leaves these are is not observable: neither in results nor in what a list dumps.
    Invariant: at most LEAVES_UNPACKED_MAX, each with `rows`
    """

    __slots__ = ("_leaves",)

    def __init__(self) -> None:
        self._leaves: dict[Leaf, None] = {}

    def rows(self, leaf: Leaf) -> list[Row]:
        """Return the rows of a leaf that is about to change, unpacked."""
        rows = leaf.rows
        if rows is None:
            rows = leaf.rows = leaf.read()
            leaf.packed, leaf.added = b"", []
        else:
            del self._leaves[leaf]
        self.track(leaf)
        return rows

    def track(self, leaf: Leaf) -> None:
        """Add a leaf with rows as the one used last; pack the one that was not used for longest."""
        self._leaves[leaf] = None
        while len(self._leaves) > LEAVES_UNPACKED_MAX:
            oldest = next(iter(self._leaves))
            del self._leaves[oldest]
            if oldest.rows:
                oldest.packed, oldest.rows = encode_leaf(oldest.rows), None

    def drop(self, leaf: Leaf) -> None:
        """Forget a leaf that was removed."""
        self._leaves.pop(leaf, None)

    def clear(self) -> None:
        """Forget all of them."""
        self._leaves.clear()

    def check(self, leaf: Leaf) -> list[Row]:
        """Assert a leaf's invariants, and the bound; return its rows."""
        assert len(self._leaves) <= LEAVES_UNPACKED_MAX, len(self._leaves)
        found = leaf.read()
        assert 0 < len(found) <= LEAF_ROWS_MAX, len(found)
        assert leaf.key[:3] == found[0][:3], (leaf.key, found[0])
        assert (leaf.rows is not None) == (leaf in self._leaves), leaf.key
        return found
