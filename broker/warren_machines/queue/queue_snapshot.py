"""A queue's state as canonical bytes.

MessagePack of plain arrays: equal states give equal bytes, on every member. Where order matters
(uplinks, consumers in service, returned messages, sinks, their runs) it is kept; everywhere else
keys are sorted. It holds runs and counts, never a message.

Blocks and ready messages are stored in the packed form of the state (`block_index`,
`ready_queue`): a snapshot costs some microseconds per thousand blocks.

The layout of everything in it is replicated state, also that of `QueueConfig`, `ReaderState`,
`SinkRun`, of what these contain, of the replies that it keeps, and the order of the fields of
`Consumer`, `Relay` and `SeenUplink`: another one is a new version
(`warren_raft.versions`). A snapshot begins with the version in the form of which it is.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import astuple

from warren_machines.queue.annotations import AnnotatedRow
from warren_machines.queue.claims.reader_state import ReaderState
from warren_machines.queue.commands import AnyReply
from warren_machines.queue.delayed.delayed_queue import Delayed
from warren_machines.queue.filters.filters import Filter, PageRow
from warren_machines.queue.jobs.job_commands import JOBS_VERSION
from warren_machines.queue.jobs.job_state import JobRow
from warren_machines.queue.letters.letter_queue import LetterQueue
from warren_machines.queue.ready.ranges import Held
from warren_machines.queue.ready.ready_queue import LaneRow
from warren_machines.queue.ready.returned_runs import PassedRow
from warren_machines.queue.relays import relays
from warren_machines.queue.relays.relay_state import KeptRun, Numbering, OriginRow, Relay
from warren_machines.queue.sinks.sink_state import SinkRun
from warren_machines.queue.state import Consumer, QueueState, SeenUplink, Standby
from warren_wire.queue_values.config import QueueConfig

_ENCODER: Final = msgspec.msgpack.Encoder()
_CONSUMER_FIELDS: Final = tuple(
    each.name
    for each in fields(Consumer)
    if each.name not in ("held", "numbering", "filter", "lane", "ahead")
)
"""Fields of a `Consumer` that are plain values."""
_PLAIN: Final = (
    "ready_bytes",
    "consumer_count",
    "unacked",
    "claimed",
    "staged",
    "next_order",
    "next_epoch",
    "deleted",
    "ever_used",
    "unused_ms",
    "timer_ms",
)


_consumer_values: Final = attrgetter(*_CONSUMER_FIELDS)
_Counts: TypeAlias = tuple[int, int, int]
_ConsumerRow: TypeAlias = tuple[list[Any], list[Held], Numbering, int]
"""The _CONSUMER_FIELDS of a `Consumer` and `ahead`, unless that is 0, as in a state of the first
version; what it holds with the names of that, its filter or 0."""
_UplinkRow: TypeAlias = tuple[
    tuple[int, str, int, dict[int, tuple[AnyReply, ...]], int, int, bool], list[_ConsumerRow]
]
"""The fields of a `SeenUplink` up to its consumers, and these."""
_RelayRow: TypeAlias = tuple[str, int, tuple[int, int], int, int, list[KeptRun]]
"""The fields of a `Relay` up to `kept`: its consumers name it."""


class _Row(msgspec.Struct, array_like=True):
    """A snapshot as decoded."""

    version: int
    config: QueueConfig
    plain: list[Any]
    contents: list[Any]
    lanes: list[Any]
    came_back: tuple[int, list[bytes], list[tuple[int, list[bytes]]]] | None
    delayed: tuple[_Counts, list[bytes], list[bytes]] | None
    annotations: list[AnnotatedRow]
    letters: tuple[_Counts, list[bytes]] | None
    seen: _SeenRow | None
    origins: tuple[int, list[OriginRow]] | None
    over: list[tuple[str, int]]
    uplinks: list[_UplinkRow]
    service: list[tuple[int, list[tuple[int, int]]]]
    active: tuple[int, int] | None
    relays: list[_RelayRow]
    filters: _FiltersRow | None
    readers: list[ReaderState]
    claim_floor: int
    runs: dict[str, dict[str, SinkRun]]
    forgotten_epoch: int


class _RowWithJobs(_Row):
    """The same in the form of JOBS_VERSION and later."""

    jobs: list[JobRow] = []


class _SeenRow(msgspec.Struct, array_like=True):
    """The `SeenIds`."""

    dropped: int
    producers: list[bytes]
    order: list[bytes | tuple[int, int, int]]
    times: list[tuple[int, int, int]]


class _FilterRow(msgspec.Struct, array_like=True):
    """A `Filter` with what it has judged; parked: keys of consumers."""

    id: int
    text: bytes
    judged: int
    goal: int
    parked: list[tuple[int, int]]
    pages: list[PageRow]


class _FiltersRow(msgspec.Struct, array_like=True):
    """The `Filters`; lanes, passed: see `Order.looked`; unfinished: see `FilterSearch`."""

    next_id: int
    newest: int
    filters: list[_FilterRow]
    lanes: list[LaneRow] = []
    passed: list[tuple[int, list[PassedRow]]] = []
    unfinished: list[int] = []


_DECODER: Final = msgspec.msgpack.Decoder(_RowWithJobs)


def snapshot(state: QueueState) -> bytes:
    """Encode the state."""
    order, seen, origins = state.order, state.seen, state.origins
    kind: type[_Row] = _Row
    more: dict[str, Any] = {}
    if state.version >= JOBS_VERSION:
        kind, more = _RowWithJobs, {"jobs": state.jobs.dump()}
    return _ENCODER.encode(
        kind(
            version=state.version,
            config=state.config,
            plain=[
                *(getattr(state, name) for name in _PLAIN),
                *([state.taker] if state.taker is not None else ()),
            ],
            contents=state.contents.dump(),
            lanes=order.dump(),
            came_back=(order.returned_count, *order.dump_returned())
            if order.returned_count
            else None,
            delayed=_delayed_row(state.delayed),
            annotations=state.annotations.dump(),
            letters=_letters_row(state.letters),
            seen=_SeenRow(seen.dropped, *seen.dump()) if seen.count or seen.dropped else None,
            origins=(origins.dropped, origins.dump()) if origins or origins.dropped else None,
            over=sorted(state.over.items()),
            uplinks=[_uplink_row(uplink) for uplink in state.uplinks.values()],
            service=[(at[1], list(state.service.lanes[at])) for at in state.service.order],
            active=state.active.key if state.active is not None else None,
            relays=[astuple(state.relays[name])[:-1] for name in sorted(state.relays)],
            filters=_filters_row(state) if state.filters.next_id > 1 else None,
            readers=[state.readers[name] for name in sorted(state.readers)],
            claim_floor=state.claim_floor,
            runs=state.runs,
            forgotten_epoch=state.forgotten_epoch,
            **more,
        )
    )


def _delayed_row(delayed: Delayed) -> tuple[_Counts, list[bytes], list[bytes]] | None:
    counts = (delayed.count, delayed.forced, delayed.size_bytes)
    return (counts, *delayed.dump()) if delayed.count else None


def _letters_row(letters: LetterQueue) -> tuple[_Counts, list[bytes]] | None:
    counts = (letters.count, letters.next_number, letters.size_bytes)
    return (counts, letters.dump()) if letters.next_number > 1 else None


def _uplink_row(uplink: SeenUplink) -> _UplinkRow:
    consumers: list[_ConsumerRow] = [
        (
            [*_consumer_values(one), *([one.ahead] if one.ahead else ())],
            one.held,
            one.numbering,
            one.filter.id if one.filter is not None else 0,
        )
        for one in uplink.consumers.values()
    ]
    return (
        (
            uplink.id,
            uplink.node,
            uplink.last_seq,
            uplink.kept,
            uplink.suspected_ms,
            uplink.incarnation,
            uplink.yields,
        ),
        consumers,
    )


def _filters_row(state: QueueState) -> _FiltersRow:
    known = state.filters
    return _FiltersRow(
        known.next_id,
        known.newest if known else 0,
        [
            _FilterRow(
                one.id, one.text, one.judged, one.goal, list(one.parked), one.dump(state.contents)
            )
            for one in known
        ],
        *state.order.looked(),
        sorted(known.search.unfinished),
    )


def restore(data: bytes) -> QueueState:
    """Restore a state from `snapshot`; it behaves as the original."""
    row = _DECODER.decode(data)
    state = QueueState(row.config)
    state.version = row.version
    for name, value in zip(_PLAIN, row.plain, strict=False):
        setattr(state, name, value)
    state.taker = tuple(row.plain[-1]) if len(row.plain) > len(_PLAIN) else None
    state.contents.load(row.contents)
    state.order.load(row.lanes)
    if row.came_back is not None:
        state.order.load_returned(*row.came_back)
    state.over = dict(row.over)
    _load_beside(state, row)
    if row.filters is not None:
        _load_filters(state, row.filters)
    for relay in row.relays:
        relays.add(state, Relay(*relay))
    for known, consumers in row.uplinks:
        uplink = state.uplinks[known[0]] = SeenUplink(*known)
        for consumer in consumers:
            _load_consumer(state, uplink, consumer)
    for _, keys in row.service:
        for key in keys:
            state.service.add(state.consumer(key))
    state.active = state.consumer(row.active) if row.active is not None else None
    if state.config.single_active_consumer:
        state.standby = Standby(state.all_consumers())
    state.changed_relays = dict.fromkeys(state.relays)
    if row.origins is not None:
        state.origins.dropped, rows = row.origins
        state.origins.load(rows)
    state.readers = {reader.name: reader for reader in row.readers}
    state.claim_floor = row.claim_floor
    state.forgotten_epoch = row.forgotten_epoch
    state.runs = row.runs
    state.jobs.load(row.jobs)
    return state


def _load_beside(state: QueueState, row: _Row) -> None:
    """Load what is beside the order: delayed messages, annotations, letters, ids."""
    if row.delayed is not None:
        state.delayed.load(*row.delayed)
    state.annotations.load(row.annotations)
    if row.letters is not None:
        state.letters.load(*row.letters)
    if row.seen is not None:
        state.seen.dropped = row.seen.dropped
        state.seen.load(row.seen.producers, row.seen.order, row.seen.times)


def _load_consumer(state: QueueState, uplink: SeenUplink, row: _ConsumerRow) -> None:
    """Load a consumer with its place among those of its relay and filter."""
    values, held, numbering, filter_id = row
    named = dict(zip((*_CONSUMER_FIELDS, "ahead"), values, strict=False))
    consumer = Consumer(**named, held=held, numbering=numbering)
    uplink.add(consumer)
    if consumer.exclusive and not consumer.cancelled:
        state.exclusive = consumer
    if consumer.relay:
        state.relays[consumer.relay].consumer_keys[consumer.key] = None
    if filter_id:
        consumer.filter = state.filters.by_id[filter_id]
        consumer.filter.users += 1


def _load_filters(state: QueueState, row: _FiltersRow) -> None:
    """Load filters, without the consumers that use them."""
    state.filters.next_id, state.filters.newest = row.next_id, row.newest
    for one in row.filters:
        made = Filter(one.id, one.text, one.judged, one.goal)
        made.parked = dict.fromkeys(one.parked)
        made.load(one.pages)
        state.filters.add(made)
    state.order.load_looked(row.lanes, row.passed)
    state.filters.search.unfinished.update(row.unfinished)
