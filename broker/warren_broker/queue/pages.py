"""The bytes of a page: what is kept of the blocks of PAGE neighbouring entries.

Runs as `warren_raft.int_runs` makes them, one after another:

    index, live messages, size of each message      of every block that has a live message
    then, if any of them have details: index, count, total, largest, ttl, cap, born of those,
    then, if any of these have columns: MessagePack array of (number, ends, ttl column)

ttl is 0: none, 1: a column, else milliseconds + 2; cap and born are milliseconds + 1, 0: none.
Equal contents give equal bytes: a page is in a snapshot as it is in memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from warren_broker.queue.block_index import Detail
from warren_raft.index_set import PAGE_BITS
from warren_raft.int_runs import count_of, end_of, pack, unpack

LIVE: Final = 0xFFFFFFFF
SIZE_SHIFT: Final = 32
"""A block is an integer: size of each message << SIZE_SHIFT | live messages."""
_COLUMN: Final = 1
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes | None, bytes | None]])
_DETAIL_RUNS: Final = 7


def encode(table: Mapping[int, int], details: Mapping[int, Detail], page: int) -> bytes:
    """The blocks of a page; nothing when it has none."""
    found = indexes_of(table, page)
    if not found:
        return b""
    packed = [table[index] for index in found]
    plain = (
        pack(found),
        pack([block & LIVE for block in packed]),
        pack([block >> SIZE_SHIFT for block in packed]),
    )
    detailed = [index for index in found if index in details] if details else []
    if not detailed:
        return b"".join(plain)
    return b"".join((*plain, pack(detailed), *_details([details[i] for i in detailed])))


def indexes_of(table: Mapping[int, int], page: int) -> list[int]:
    """Those of `table` in a page, ascending."""
    return [i for i in range(page << PAGE_BITS, page + 1 << PAGE_BITS) if i in table]


def _details(details: Sequence[Detail]) -> list[bytes]:
    columns = [
        (
            number,
            None if detail.ends is None else detail.ends.tobytes(),
            detail.ttl.tobytes() if isinstance(detail.ttl, array) else None,
        )
        for number, detail in enumerate(details)
        if detail.ends is not None or isinstance(detail.ttl, array)
    ]
    runs = [
        pack([detail.count for detail in details]),
        pack([detail.total for detail in details]),
        pack([detail.largest for detail in details]),
        pack([_ttl(detail) for detail in details]),
        pack([detail.cap_ms + 1 for detail in details]),
        pack([detail.born_ms + 1 for detail in details]),
    ]
    return [*runs, _ENCODER.encode(columns)] if columns else runs


def _ttl(detail: Detail) -> int:
    if detail.ttl is None:
        return 0
    return _COLUMN if isinstance(detail.ttl, array) else detail.ttl + 2


def indexes(page: bytes) -> bytes:
    """The run of the blocks' indexes."""
    return page[: end_of(page)]


def blocks(page: bytes) -> tuple[Sequence[int], list[int]]:
    """(indexes, their blocks)."""
    at = end_of(page)
    live = unpack(page, at)
    sizes = unpack(page, end_of(page, at))
    return unpack(page), list(map(_block, sizes, live))


def _block(size: int, live: int) -> int:
    return size << SIZE_SHIFT | live


def details(page: bytes) -> dict[int, Detail]:
    """The details of those that have any."""
    starts = _starts(page)
    if len(starts) == 4:
        return {}
    columns: dict[int, tuple[bytes | None, bytes | None]] = {}
    if starts[-1] < len(page):
        rows = _DECODER.decode(memoryview(page)[starts[-1] :])
        columns = {number: (ends, ttl) for number, ends, ttl in rows}
    found: dict[int, Detail] = {}
    names, *values = (unpack(page, at) for at in starts[3 : 3 + _DETAIL_RUNS])
    rows_of = zip(names, *values, strict=True)
    for number, (index, count, total, largest, ttl, cap, born) in enumerate(rows_of):
        ends, column = columns.get(number, (None, None))
        limit: int | array[int] | None = ttl - 2 if ttl > _COLUMN else None
        if column is not None:
            limit = array("I", column)
        measured = None if ends is None else array("I", ends)
        found[index] = Detail(count, total, largest, measured, limit, cap - 1, born - 1)
    return found


def _starts(page: bytes) -> list[int]:
    """Where its runs begin, and where the last one ends."""
    starts, at = [0], 0
    while at < len(page) and len(starts) <= 3 + _DETAIL_RUNS:
        at = end_of(page, at)
        starts.append(at)
    return starts


def census(page: bytes) -> tuple[int, int, int]:
    """(blocks, those with details, those of them that can expire)."""
    starts = _starts(page)
    if len(starts) == 4:
        return count_of(page), 0, 0
    born: Sequence[Any] = unpack(page, starts[9])
    return count_of(page), len(born), len(born) - list(born).count(0)
