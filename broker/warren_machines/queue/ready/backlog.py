"""The ready messages of one priority that were never delivered, from the oldest to the newest."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from warren_machines.queue.filters.filters import Filter, FilterSearch
from warren_raft.index_set import PAGE_BITS
from warren_raft.int_runs import end_of, pack, unpack, value

Fresh: TypeAlias = tuple[int, int, int]
"""(index, first, last) of messages that were never delivered."""
Place: TypeAlias = tuple[int, int]
"""(number of a chunk, position of a run in it)."""
CHUNK_RUNS_MAX: Final = 4_096
_GAP: Final = 1 << 40
"""Between the numbers of chunks: a chunk that is split gets numbers of its own."""
_OPEN_MAX: Final = 8
"""Chunks in the middle that stay unpacked after a run was cut from them."""
_BEGIN: Final = (-1, -1)
_BEYOND: Final = 1 << 62


def encode_chunk(runs: Iterable[Fresh]) -> bytes:
    """Encode the columns of a chunk's runs in the format of `warren_raft.int_runs`."""
    return b"".join(map(pack, zip(*runs, strict=True)))


def decode_chunk(data: bytes) -> deque[Fresh]:
    """Decode what `encode_chunk` returned."""
    second = end_of(data)
    columns = unpack(data), unpack(data, second), unpack(data, end_of(data, second))
    return deque(zip(*columns, strict=True))


class _Chunk:
    """A chunk: either `rows`, or `packed` of them; page: of the log."""

    __slots__ = ("number", "packed", "page", "rows")

    def __init__(self, number: int, rows: deque[Fresh] | None, packed: bytes) -> None:
        self.number = number
        self.rows = rows
        self.packed = packed
        self.page = (rows[0][0] if rows else value(packed, 0, 0)) >> PAGE_BITS

    def begin(self) -> int:
        """Return the index of the first run."""
        return value(self.packed, 0, 0) if self.rows is None else self.rows[0][0]

    def encoded(self) -> bytes:
        return self.packed if self.rows is None else encode_chunk(self.rows)

    def read(self) -> deque[Fresh]:
        return decode_chunk(self.packed) if self.rows is None else self.rows


class Backlog:
    """Runs in chunks; all chunks but the first, the last and a few others are packed.

    A run joins the last chunk while it ascends and is of the same page of the log, so a chunk of
    single-message blocks is a few bytes. A chunk is removed with its last run.

    Consumers with filters take runs from the middle (`find`, `cut`). Chunks have numbers, which
    ascend, and each filter has a cursor: the last chunk to which it has come, and a message there,
    before which nothing matches it. The chunk is the same on all members.

    Invariants: without runs all three parts are empty; `_middle` only between a `_first` and a
    `_last` that have runs; a chunk ascends, is of one page, and has 1 … CHUNK_RUNS_MAX runs
    """

    __slots__ = (
        "_cursors",
        "_first",
        "_first_number",
        "_last",
        "_last_number",
        "_middle",
        "_next_number",
        "_open",
    )

    def __init__(self, chunks: Iterable[bytes] = ()) -> None:
        """chunks: as `chunks` returns them."""
        self._first: deque[Fresh] = deque()
        self._last: deque[Fresh] | None = None
        self._middle: deque[_Chunk] | None = None
        self._open: list[_Chunk] = []
        self._cursors: dict[int, tuple[int, tuple[int, int]]] = {}
        self._first_number = self._last_number = 0
        self._next_number = _GAP
        packed = deque(chunks)
        if packed:
            self._first = decode_chunk(packed.popleft())
        last = packed.pop() if packed else None
        for data in packed:
            self._append_middle(_Chunk(self._number(), None, data))
        if last is not None:
            self._last, self._last_number = decode_chunk(last), self._number()

    def _number(self) -> int:
        number = self._next_number
        self._next_number += _GAP
        return number

    def _append_middle(self, chunk: _Chunk) -> None:
        if self._middle is None:
            self._middle = deque()
        self._middle.append(chunk)

    def append(self, run: Fresh) -> None:
        """Append a run."""
        last = self._last or self._first
        if not last:
            last.append(run)
            return
        before = last[-1]
        if (
            run > before
            and run[0] >> PAGE_BITS == before[0] >> PAGE_BITS
            and len(last) < CHUNK_RUNS_MAX
        ):
            last.append(run)
            return
        if self._last:
            self._append_middle(_Chunk(self._last_number, None, encode_chunk(self._last)))
        self._last, self._last_number = deque((run,)), self._number()

    def head(self) -> Fresh:
        """Return the oldest run; the backlog must not be empty."""
        return self._first[0]

    def tail(self) -> Fresh:
        """Return the newest run; the backlog must not be empty."""
        return (self._last or self._first)[-1]

    def popleft(self) -> Fresh:
        """Remove and return the oldest run."""
        first = self._first
        run = first.popleft()
        if not first:
            self._first_is_empty()
        return run

    def _first_is_empty(self) -> None:
        """Make the second chunk the first one."""
        if self._middle:
            chunk = self._middle.popleft()
            if chunk.rows is not None:
                self._open.remove(chunk)
            self._first, self._first_number = chunk.read(), chunk.number
        elif self._last:
            self._first, self._first_number, self._last = self._last, self._last_number, None
        elif self._cursors:
            self._cursors = {}  # what comes next goes to this chunk, whatever its index is

    def pop(self) -> Fresh:
        """Remove and return the newest run."""
        last = self._last
        if not last:
            run = self._first.pop()
            if not self._first:
                self._first_is_empty()
            return run
        run = last.pop()
        if not last:
            self._last_is_empty()
        return run

    def _last_is_empty(self) -> None:
        """Make the last but one chunk the last one.

        1. A filter's cursor is in the last chunk, which becomes empty.  2. Runs are appended to the
        chunk before it, which is the last one now.  3. A cursor beyond would pass them over. So it
        goes back, to the end of that chunk as it is now.
        """
        if self._middle:
            chunk = self._middle.pop()
            if chunk.rows is not None:
                self._open.remove(chunk)
            self._last, self._last_number = chunk.read(), chunk.number
            rows, number = self._last, chunk.number
        else:
            self._last = None
            rows, number = self._first, self._first_number
        index, _, last = rows[-1]
        for one, cursor in self._cursors.items():
            if cursor[0] > number:
                self._cursors[one] = (number, (index, last + 1))

    def shorten_head(self, first: int) -> None:
        """Keep the messages of the oldest run from ordinal `first` on."""
        index, _, last = self._first[0]
        self._first[0] = (index, first, last)

    def shorten_tail(self, last: int) -> None:
        """Keep the messages of the newest run up to ordinal `last`."""
        chunk = self._last or self._first
        index, first, _ = chunk[-1]
        chunk[-1] = (index, first, last)

    # ------------------------------------------------------------ filters

    def find(self, wanted: Filter, search: FilterSearch) -> tuple[Place, Fresh] | int | None:
        """Return the first matching messages of a run, and the run's place, for `cut`.

        An integer is the entry of a message before any match that has not been judged. Each chunk
        to which the filter comes is a step; None where none is left, too.
        """
        number, _ = self._cursors.get(wanted.id, (-1, _BEGIN))
        for chunk in self._from(number):
            if chunk.number > number:
                if (begin := chunk.begin()) > wanted.judged:
                    return begin
                if not search.take(wanted):
                    return None
                self._cursors[wanted.id] = chunk.number, _BEGIN
            if wanted.without_matches(chunk.page):
                continue
            rows = chunk.read()
            found = self._look(wanted, chunk.number, rows)
            if found is not None:
                if chunk.number not in (self._first_number, self._last_number):
                    self._keep_open(chunk, rows)
                return found
        return None

    def _from(self, number: int) -> Iterator[_Chunk]:
        """Yield the chunks from one on."""
        if self._first and number <= self._first_number:
            yield _Chunk(self._first_number, self._first, b"")
        middle = self._middle or ()
        for at in range(bisect_left(middle, number, key=_number_of), len(middle)):
            yield middle[at]
        if self._last and number <= self._last_number:
            yield _Chunk(self._last_number, self._last, b"")

    def _look(
        self, wanted: Filter, number: int, rows: deque[Fresh]
    ) -> tuple[Place, Fresh] | int | None:
        """Look through the chunk in which the cursor is, from there on; set the cursor."""
        from_index, from_ordinal = self._cursors[wanted.id][1]
        begin = max(0, bisect_right(rows, (from_index, from_ordinal, _BEYOND)) - 1)
        for at, (index, first, last) in enumerate(islice(rows, begin, None), begin):
            if (index, last) < (from_index, from_ordinal):
                continue
            first = max(first, from_ordinal) if index == from_index else first
            if index > wanted.judged:
                self._cursors[wanted.id] = (number, (index, first))
                return index
            found = wanted.matching(index, first, last)
            if found is not None:
                self._cursors[wanted.id] = (number, (index, found[0]))
                return (number, at), (index, *found)
        if rows:
            index, _, last = rows[-1]
            self._cursors[wanted.id] = (number, (index, last + 1))
        return None

    def _keep_open(self, chunk: _Chunk, rows: deque[Fresh]) -> None:
        """Keep a chunk unpacked in which a cursor stands; pack the one kept for longest."""
        if chunk.rows is not None:
            return
        chunk.rows, chunk.packed = rows, b""
        self._open.append(chunk)
        if len(self._open) > _OPEN_MAX:
            oldest = self._open.pop(0)
            assert oldest.rows, oldest.number
            oldest.packed, oldest.rows = encode_chunk(oldest.rows), None

    def cut(self, place: Place, first: int, last: int) -> None:
        """Remove messages first … last of the run at a place that `find` returned just now."""
        number, at = place
        chunk = None
        if number == self._first_number:
            rows = self._first
        elif self._last and number == self._last_number:
            rows = self._last
        else:
            assert self._middle, number
            chunk = self._middle[bisect_left(self._middle, number, key=_number_of)]
            assert chunk.number == number and chunk.rows is not None, (chunk.number, number)
            rows = chunk.rows
        index, low, high = rows[at]
        assert low <= first <= last <= high, (low, first, last, high)
        del rows[at]
        if last < high:
            rows.insert(at, (index, last + 1, high))
        if low < first:
            rows.insert(at, (index, low, first - 1))
        if len(rows) > CHUNK_RUNS_MAX:
            self._split(number, rows)
        elif not rows:
            self._is_empty(chunk)

    def _is_empty(self, chunk: _Chunk | None) -> None:
        """Remove a chunk that is empty; None: the first or the last one."""
        if chunk is not None:
            assert self._middle is not None
            self._middle.remove(chunk)
            self._open.remove(chunk)
        elif not self._first:
            self._first_is_empty()
        else:
            self._last_is_empty()

    def _split(self, number: int, rows: deque[Fresh]) -> None:
        """Move the upper half of a chunk to a new one, which gets the higher number."""
        upper: deque[Fresh] = deque()
        while len(rows) > CHUNK_RUNS_MAX // 2:
            upper.appendleft(rows.pop())
        if self._last and number == self._last_number:
            self._append_middle(_Chunk(number, None, encode_chunk(rows)))
            self._last, self._last_number = upper, self._number()
            return
        if number == self._first_number and not self._last:
            self._last, self._last_number = upper, self._number()
            return
        if self._middle is None:
            self._middle = deque()
        at = bisect_right(self._middle, number, key=_number_of)
        after = self._middle[at].number if at < len(self._middle) else self._last_number
        between = (number + after) // 2
        if between == number:  # after 40 splits of one chunk
            looked = self.looked()
            self._set_numbers()
            self.load_looked(looked)
            between = self._middle[at - 1].number if at else self._first_number
            between += _GAP // 2
        self._middle.insert(at, _Chunk(between, None, encode_chunk(upper)))

    def _set_numbers(self) -> None:
        """Give the chunks new numbers."""
        self._first_number, self._next_number = 0, _GAP
        for chunk in self._middle or ():
            chunk.number = self._number()
        self._last_number = self._number() if self._last else 0

    def _numbers(self) -> list[int]:
        numbers = [self._first_number, *(chunk.number for chunk in self._middle or ())]
        return [*numbers, self._last_number] if self._last else numbers

    def looked(self) -> list[tuple[int, int]]:
        """Return (number of a filter, chunks up to the one to which it has come), ascending."""
        numbers, cursors = self._numbers(), sorted(self._cursors.items())
        found = [(number, bisect_right(numbers, cursor[0])) for number, cursor in cursors]
        return [row for row in found if row[1]]

    def load_looked(self, rows: Iterable[tuple[int, int]]) -> None:
        """Load what `looked` returned."""
        numbers = self._numbers()
        self._cursors = {number: (numbers[place - 1], _BEGIN) for number, place in rows}

    def forget_filter(self, number: int) -> None:
        """Drop the cursor of a filter that is not used any more."""
        self._cursors.pop(number, None)

    # ------------------------------------------------------------ looking

    def runs_after(
        self, number: int, index: int, ordinal: int, own: bool
    ) -> Iterator[tuple[int, Fresh]]:
        """Yield chunks' numbers and runs, those behind a message of a chunk; all stay packed.

        own  False: the number is another member's, and the chunk is found by the page of the log
        """
        if not own:
            number = self._number_at(index, ordinal)
        for chunk in self._from(number):
            rows = chunk.read()
            if chunk.number != number:
                yield from ((chunk.number, run) for run in rows)
                continue
            begin = max(0, bisect_right(rows, (index, ordinal, _BEYOND)) - 1)
            for at, first, last in islice(rows, begin, None):
                if (at, last) > (index, ordinal):
                    first = max(first, ordinal + 1) if at == index else first
                    yield number, (at, first, last)

    def _number_at(self, index: int, ordinal: int) -> int:
        """Return the number of the chunk that has a message.

        Else of the first one of its page; else of the first one after that.
        """
        page, same, later = index >> PAGE_BITS, _BEYOND, _BEYOND
        for chunk in self._from(-1):
            if chunk.page == page:
                if any(
                    at == index and first <= ordinal <= last for at, first, last in chunk.read()
                ):
                    return chunk.number
                same = min(same, chunk.number)
            elif chunk.page > page:
                later = min(later, chunk.number)
        return same if same < _BEYOND else later

    # ------------------------------------------------------------ as a whole

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[Fresh]:
        yield from self._first
        for chunk in self._middle or ():
            yield from chunk.read()
        yield from self._last or ()

    def chunks(self) -> list[bytes]:
        """Return all chunks; they do not depend on the operations since they were loaded."""
        chunks = [chunk.encoded() for chunk in self._middle or ()]
        if self._first:
            chunks.insert(0, encode_chunk(self._first))
        if self._last:
            chunks.append(encode_chunk(self._last))
        return chunks

    def check(self) -> None:
        """Assert the invariants."""
        assert self._first or not (self._middle or self._last), "runs behind an empty head"
        assert self._last or not self._middle, "chunks in the middle without a last one"
        for data in self.chunks():
            runs = list(decode_chunk(data))
            assert 0 < len(runs) <= CHUNK_RUNS_MAX, len(runs)
            assert runs == sorted(set(runs)), runs
            assert len({index >> PAGE_BITS for index, _, _ in runs}) == 1, runs
        numbers = self._numbers()
        assert numbers == sorted(set(numbers)), numbers
        opened = [chunk for chunk in self._middle or () if chunk.rows is not None]
        assert set(opened) == set(self._open) and len(opened) <= _OPEN_MAX, len(opened)


def _number_of(chunk: _Chunk) -> int:
    return chunk.number
