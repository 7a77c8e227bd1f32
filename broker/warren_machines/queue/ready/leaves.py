"""Sorted rows of six integers in leaves, most of them packed.

What waits in a queue, by the time at which it is ready (`delayed_queue`) or in the order in which
it died (`letter_queue`), is a list of such leaves. Leaves that were not used for a while are
packed, as the ready messages are (`ready_queue`), so a long list costs a few bytes per row.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
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


class Leaves:
    """Rows in leaves, in an order of the owner's; those used last are unpacked.

    Which leaves these are is not observable: neither in results nor in what a list dumps.
    Invariants: a leaf has 1 … LEAF_ROWS_MAX rows, and its key is its first row's; those with `rows`
    are in `_unpacked`, at most LEAVES_UNPACKED_MAX, in the order of their last use
    """

    __slots__ = ("_unpacked", "leaves")

    def __init__(self, packed: Iterable[bytes] = ()) -> None:
        """packed: what `dump` returned."""
        self.leaves: list[Leaf] = [Leaf(None, data) for data in packed]
        self._unpacked: dict[Leaf, None] = {}

    def rows(self, at: int) -> list[Row]:
        """Return the rows of a leaf that is about to change, unpacked; see `changed`."""
        leaf = self.leaves[at]
        rows = leaf.rows
        if rows is None:
            rows = leaf.rows = leaf.read()
            leaf.packed, leaf.added = b"", []
        else:
            del self._unpacked[leaf]
        self._track(leaf)
        return rows

    def _track(self, leaf: Leaf) -> None:
        """Add a leaf with rows as the one used last; pack the one that was not used for longest."""
        self._unpacked[leaf] = None
        while len(self._unpacked) > LEAVES_UNPACKED_MAX:
            oldest = next(iter(self._unpacked))
            del self._unpacked[oldest]
            if oldest.rows:
                oldest.packed, oldest.rows = encode_leaf(oldest.rows), None

    def changed(self, at: int) -> int:
        """Note that the rows of a leaf have changed; return the place of the leaf after them."""
        leaf = self.leaves[at]
        rows = leaf.rows
        assert rows is not None, at
        if not rows:
            del self._unpacked[leaf]
            self.remove_leaf(at)
            return at
        leaf.key = rows[0]
        if len(rows) <= LEAF_ROWS_MAX:
            return at + 1
        upper = rows[LEAF_ROWS_MAX // 2 :]
        del rows[LEAF_ROWS_MAX // 2 :]
        leaf.passed = {}
        self.insert_leaf(at + 1, upper)
        return at + 2

    def insert_leaf(self, at: int, rows: list[Row]) -> None:
        """Insert a leaf of these rows."""
        leaf = Leaf(rows)
        self.leaves.insert(at, leaf)
        self._track(leaf)

    def remove_leaf(self, at: int) -> None:
        """Remove a leaf that has no row."""
        del self.leaves[at]

    def place_of(self, key: tuple[int, ...]) -> int:
        """Return the place of the leaf to which a row belongs where rows ascend."""
        return max(0, bisect_right(self.leaves, key, key=_first_three) - 1)

    def insert(self, row: Row) -> int:
        """Insert a row where rows ascend; return the place of its leaf.

        A leaf that is packed stays so: a client may add to any leaf with each row.
        """
        if not self.leaves:
            self.insert_leaf(0, [row])
            return 0
        at = self.place_of(row[:3])
        if self.leaves[at].add(row):
            return at
        rows = self.rows(at)
        if len(rows) == LEAF_ROWS_MAX and row > rows[-1]:
            # Most come in this order: the leaf before stays full.
            self.insert_leaf(at + 1, [row])
            return at + 1
        insort(rows, row)
        self.changed(at)
        return at

    def cut_out(self, place: tuple[int, int, int, int]) -> list[Row]:
        """Cut out messages (key, index, first, last) where rows ascend; return what was there."""
        key, index, first, last = place
        taken: list[Row] = []
        at = self.place_of((key, index, first))
        while at < len(self.leaves) and self.leaves[at].key[:3] <= (key, index, last):
            some: list[Row] = []
            rest: list[Row] = []
            for row in self.leaves[at].read():
                low, high = max(row[2], first), min(row[3], last)
                if row[:2] != (key, index) or low > high:
                    rest.append(row)
                    continue
                some.append((*row[:2], low, high, *row[4:]))
                rest += [(*row[:3], low - 1, *row[4:])] if row[2] < low else []
                rest += [(*row[:2], high + 1, *row[3:])] if high < row[3] else []
            if some:
                self.rows(at)[:] = rest
                at = self.changed(at)
            else:
                at += 1
            taken += some
        return taken

    def move_from(self, other: Leaves) -> None:
        """Append the leaves of another list, which is empty then."""
        self.leaves += other.leaves
        for leaf in other._unpacked:
            self._track(leaf)
        other.clear_leaves()

    def clear_leaves(self) -> Iterator[Row]:
        """Remove all leaves; return their rows."""
        gone, self.leaves = self.leaves, []
        self._unpacked = {}
        return (row for leaf in gone for row in leaf.read())

    def all_rows(self) -> Iterator[Row]:
        """Yield all rows in their order; leaves packed leaves packed."""
        for leaf in self.leaves:
            yield from leaf.read()

    def rows_after(self, place: tuple[int, ...]) -> Iterator[Row]:
        """Yield the rows behind (key, index, ordinal), where rows ascend; leaves stay packed.

        Of the row that has this message, what is behind it.
        """
        begin, ordinal = place[:2], place[2]
        for at in range(self.place_of(place), len(self.leaves)):
            for row in self.leaves[at].read():
                if row[:2] > begin:
                    yield row
                elif row[:2] == begin and row[3] > ordinal:
                    yield (row[0], row[1], max(row[2], ordinal + 1), *row[3:])

    def dump(self) -> list[bytes]:
        """Return the packed leaves."""
        return [leaf.encoded() for leaf in self.leaves]

    def check_leaves(self) -> None:
        """Assert the invariants."""
        assert len(self._unpacked) <= LEAVES_UNPACKED_MAX, len(self._unpacked)
        for leaf in self.leaves:
            found = leaf.read()
            assert 0 < len(found) <= LEAF_ROWS_MAX, len(found)
            assert leaf.key[:3] == found[0][:3], (leaf.key, found[0])
        unpacked = {leaf for leaf in self.leaves if leaf.rows is not None}
        assert unpacked == set(self._unpacked), len(unpacked)


def _first_three(leaf: Leaf) -> tuple[int, ...]:
    return leaf.key[:3]
