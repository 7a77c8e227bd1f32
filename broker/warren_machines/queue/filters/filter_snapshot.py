"""Filters of consumers in a snapshot."""

from __future__ import annotations

import msgspec

from warren_machines.queue.filters.filters import Filter, PageRow
from warren_machines.queue.state import QueueState


class FiltersRow(msgspec.Struct, array_like=True):
    """uses: (uplink, consumer, filter, drain_at)."""

    next_id: int
    newest: int
    filters: list[FilterRow]
    uses: list[tuple[int, int, int, int]]


class FilterRow(msgspec.Struct, array_like=True):
    """A `Filter` with what it has judged; parked: keys of consumers."""

    id: int
    text: bytes
    judged: int
    goal: int
    parked: list[tuple[int, int]]
    pages: list[PageRow]


def filters_row(state: QueueState) -> FiltersRow:
    """Return the row of all filters and of those that use them."""
    known = state.filters
    return FiltersRow(
        known.next_id,
        known.newest if known else 0,
        [
            FilterRow(
                one.id, one.text, one.judged, one.goal, list(one.parked), one.dump(state.contents)
            )
            for one in known
        ],
        [
            (*consumer.key, consumer.filter.id, consumer.drain_at)
            for consumer in state.all_consumers()
            if consumer.filter is not None
        ],
    )


def load_filters(state: QueueState, row: FiltersRow) -> None:
    """Load filters, and the consumers that use them."""
    state.filters.next_id, state.filters.newest = row.next_id, row.newest
    for one in row.filters:
        made = Filter(one.id, one.text, one.judged, one.goal)
        made.parked = dict.fromkeys(one.parked)
        made.load(one.pages)
        state.filters.add(made)
    for uplink, number, filter_id, drain_at in row.uses:
        consumer = state.consumer((uplink, number))
        consumer.filter = state.filters.get(filter_id)
        consumer.drain_at = drain_at
        assert consumer.filter is not None, filter_id
        consumer.filter.users += 1
