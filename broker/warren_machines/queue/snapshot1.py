"""Conversion of snapshots written by version 1 of the machine to the current format."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from warren_machines.queue.backlog import Backlog
from warren_machines.queue.block_index import Detail, encode_page
from warren_raft.index_set import PAGE_BITS


def contents(rows: Sequence[Any]) -> list[bytes]:
    """Convert blocks to what `BlockIndex.dump` returns; rows: one per block, ascending."""
    table: dict[int, int] = {}
    details: dict[int, Detail] = {}
    for index, packed, *rest in rows:
        table[index] = packed
        if rest:
            count, total, largest, ends, ttl, cap_ms, born_ms = rest
            details[index] = Detail(
                count,
                total,
                largest,
                None if ends is None else array("I", ends),
                array("I", ttl) if isinstance(ttl, bytes) else ttl,
                cap_ms,
                born_ms,
            )
    numbers = dict.fromkeys(index >> PAGE_BITS for index in table)
    return [encode_page(table, details, page) for page in numbers]


def lanes(rows: Sequence[Any]) -> list[tuple[int, int, list[bytes]]]:
    """Convert lanes to what `Order.dump` returns; rows: (priority, runs)."""
    found = []
    for lane, runs in rows:
        backlog = Backlog()
        for index, first, last in runs:
            backlog.append((index, first, last))
        count = sum(last - first + 1 for _, first, last in runs)
        found.append((lane, count, backlog.chunks()))
    return found
