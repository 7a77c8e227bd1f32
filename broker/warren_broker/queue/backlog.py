"""A lane of ready messages, from the oldest to the newest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from warren_raft.index_set import PAGE_BITS
from warren_raft.int_runs import end_of, pack, unpack

Fresh: TypeAlias = tuple[int, int, int]
"""(index, first, last) of messages that were never delivered."""
CHUNK_RUNS_MAX: Final = 4_096


def encode_chunk(runs: Iterable[Fresh]) -> bytes:
    """The columns of at most CHUNK_RUNS_MAX runs, as `warren_raft.int_runs` makes them."""
    return b"".join(map(pack, zip(*runs, strict=True)))


def decode_chunk(data: bytes) -> deque[Fresh]:
    """The inverse."""
    second = end_of(data)
    columns = unpack(data), unpack(data, second), unpack(data, end_of(data, second))
    return deque(zip(*columns, strict=True))


class Backlog:
    """Runs in chunks; all chunks but the first and the last are packed.

    A run joins the last chunk while it ascends and is of the same page of the log, so a chunk of
    single-message blocks is a few bytes. A chunk goes with its last run.

    Invariants: without runs all three parts are empty; `_packed` only between a `_first` and a
    `_last` that have runs; a chunk has 1 … CHUNK_RUNS_MAX runs, ascending, of one page
    """

    __slots__ = ("_first", "_last", "_packed")

    def __init__(self, chunks: Iterable[bytes] = ()) -> None:
        """chunks: as `chunks` gives them."""
        self._first: deque[Fresh] = deque()
        self._last: deque[Fresh] | None = None
        self._packed: deque[bytes] | None = None
        packed = deque(chunks)
        if packed:
            self._first = decode_chunk(packed.popleft())
        if packed:
            self._last = decode_chunk(packed.pop())
        if packed:
            self._packed = packed

    def append(self, run: Fresh) -> None:
        """A run joins the end."""
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
            if self._packed is None:
                self._packed = deque()
            self._packed.append(encode_chunk(self._last))
        self._last = deque((run,))

    def head(self) -> Fresh:
        """The oldest run; there is one."""
        return self._first[0]

    def tail(self) -> Fresh:
        """The newest run; there is one."""
        return (self._last or self._first)[-1]

    def popleft(self) -> Fresh:
        """The oldest run leaves."""
        first = self._first
        run = first.popleft()
        if not first and self._last:
            if self._packed:
                self._first = decode_chunk(self._packed.popleft())
            else:
                self._first, self._last = self._last, None
        return run

    def pop(self) -> Fresh:
        """The newest run leaves."""
        last = self._last
        if not last:
            return self._first.pop()
        run = last.pop()
        if not last:
            self._last = decode_chunk(self._packed.pop()) if self._packed else None
        return run

    def shorten_head(self, first: int) -> None:
        """Of the oldest run those from ordinal `first` on stay."""
        index, _, last = self._first[0]
        self._first[0] = (index, first, last)

    def shorten_tail(self, last: int) -> None:
        """Of the newest run those up to ordinal `last` stay."""
        chunk = self._last or self._first
        index, first, _ = chunk[-1]
        chunk[-1] = (index, first, last)

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[Fresh]:
        yield from self._first
        for chunk in self._packed or ():
            yield from decode_chunk(chunk)
        yield from self._last or ()

    def chunks(self) -> list[bytes]:
        """All chunks; what a queue went through since they were loaded shows in them nowhere."""
        chunks = list(self._packed or ())
        if self._first:
            chunks.insert(0, encode_chunk(self._first))
        if self._last:
            chunks.append(encode_chunk(self._last))
        return chunks

    def check(self) -> None:
        """Assert the invariants."""
        assert self._first or not (self._packed or self._last), "runs behind an empty head"
        assert self._last or not self._packed, "packed chunks without a last one"
        for data in self.chunks():
            runs = list(decode_chunk(data))
            assert 0 < len(runs) <= CHUNK_RUNS_MAX, len(runs)
            assert runs == sorted(set(runs)), runs
            assert len({index >> PAGE_BITS for index, _, _ in runs}) == 1, runs
