"""A queue's state as canonical bytes.

MessagePack of plain arrays: equal states give equal bytes, on every member. Where order matters
(uplinks, consumers in service, returned messages, sinks, their runs) it is kept; everywhere else
keys are sorted. It holds runs and counts, never a message.

Blocks and ready messages are stored in the packed form of the state (`block_index`,
`ready_queue`): a snapshot costs some microseconds per thousand blocks.

The layout of everything in it is replicated state, also that of `QueueConfig`, `HeldClaim`,
`ReadBy`, `ClaimBinding`, `ClaimName` and of the replies that it keeps: another one is a new FORMAT.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeAlias

import msgspec

from warren_machines.queue.annotations import AnnotatedRow
from warren_machines.queue.claims.reader_snapshot import ReaderRow, reader_row, restored_reader
from warren_machines.queue.commands import AnyReply
from warren_machines.queue.deduplication import SeenIds
from warren_machines.queue.delayed.delayed_queue import Delayed
from warren_machines.queue.filters.filter_snapshot import FiltersRow, filters_row, load_filters
from warren_machines.queue.letters.letter_queue import LetterQueue
from warren_machines.queue.ready.ranges import Held
from warren_machines.queue.ready.ready_queue import Order
from warren_machines.queue.relays.relay_snapshot import (
    OriginsRow,
    RelayRow,
    load_relays,
    origins_row,
    relay_row,
)
from warren_machines.queue.sinks.sink_snapshot import RunRow, restored_run, run_row
from warren_machines.queue.state import (
    Consumer,
    QueueState,
    SeenUplink,
)
from warren_wire.queue_values.config import QueueConfig

FORMAT: Final = 1
_ENCODER: Final = msgspec.msgpack.Encoder()
_CONSUMER_FIELDS: Final = (
    "uplink",
    "id",
    "session",
    "tag",
    "order",
    "limit",
    "windowed",
    "explicit",
    "priority",
    "no_ack",
    "exclusive",
    "getter",
    "timeout_ms",
    "next_msg_id",
    "credit",
    "held_count",
    "held_bytes",
    "cancelled",
    "suspended",
    "quiescing",
    "queued",
)
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


_KeptRow: TypeAlias = tuple[int, tuple[AnyReply, ...]]


class _Row(msgspec.Struct, array_like=True):
    """A snapshot as decoded."""

    format: int
    config: QueueConfig
    plain: list[Any]
    contents: list[Any]
    lanes: list[Any]
    came_back: _CameBackRow | None
    delayed: _DelayedRow | None
    annotations: list[AnnotatedRow]
    letters: _LettersRow | None
    seen: _SeenRow | None
    origins: OriginsRow | None
    over: list[tuple[str, int]]
    uplinks: list[_UplinkRow]
    service: list[tuple[int, list[tuple[int, int]]]]
    active: tuple[int, int] | None
    relays: list[RelayRow]
    filters: FiltersRow | None
    readers: list[ReaderRow]
    claim_floor: int
    runs: list[tuple[str, list[RunRow]]]
    forgotten_epoch: int


class _CameBackRow(msgspec.Struct, array_like=True):
    count: int
    leaves: list[bytes]
    back: list[tuple[int, list[bytes]]]


class _SeenRow(msgspec.Struct, array_like=True):
    dropped: int
    producers: list[bytes]
    order: list[bytes | tuple[int, int, int]]
    times: list[tuple[int, int, int]]


class _DelayedRow(msgspec.Struct, array_like=True):
    counts: tuple[int, int, int]
    forced: list[bytes]
    leaves: list[bytes]


class _LettersRow(msgspec.Struct, array_like=True):
    counts: tuple[int, int, int]
    leaves: list[bytes]


class _UplinkRow(msgspec.Struct, array_like=True):
    id: int
    node: str
    last_seq: int
    suspected_ms: int
    kept: list[_KeptRow]
    consumers: list[_ConsumerRow]
    incarnation: int
    yields: bool


class _ConsumerRow(msgspec.Struct, array_like=True):
    fields: list[Any]
    held: list[Held]


_DECODER: Final = msgspec.msgpack.Decoder(_Row)


def snapshot(state: QueueState) -> bytes:
    """Encode the state."""
    order = state.order
    return _ENCODER.encode(
        _Row(
            format=FORMAT,
            config=state.config,
            plain=[getattr(state, name) for name in _PLAIN],
            contents=state.contents.dump(),
            lanes=order.dump(),
            came_back=_came_back_row(order) if order.returned_count else None,
            delayed=_delayed_row(state.delayed) if state.delayed.count else None,
            annotations=state.annotations.dump(),
            letters=_letters_row(state.letters) if state.letters.next_number > 1 else None,
            seen=_seen_row(state.seen) if state.seen.count or state.seen.dropped else None,
            origins=origins_row(state),
            over=sorted(state.over.items()),
            uplinks=[_uplink_row(uplink) for uplink in state.uplinks.values()],
            service=[
                (priority, [consumer.key for consumer in state.service[priority]])
                for priority in sorted(state.service)
            ],
            active=state.active.key if state.active is not None else None,
            relays=[relay_row(state, state.relays[name]) for name in sorted(state.relays)],
            filters=filters_row(state) if state.filters.next_id > 1 else None,
            readers=[reader_row(state.readers[name]) for name in sorted(state.readers)],
            claim_floor=state.claim_floor,
            runs=[
                (sink, [run_row(name, run) for name, run in runs.items()])
                for sink, runs in state.runs.items()
            ],
            forgotten_epoch=state.forgotten_epoch,
        )
    )


def _delayed_row(delayed: Delayed) -> _DelayedRow:
    return _DelayedRow((delayed.count, delayed.forced, delayed.size_bytes), *delayed.dump())


def _letters_row(letters: LetterQueue) -> _LettersRow:
    counts = (letters.count, letters.next_number, letters.size_bytes)
    return _LettersRow(counts, letters.dump())


def _came_back_row(order: Order) -> _CameBackRow:
    return _CameBackRow(order.returned_count, *order.dump_returned())


def _seen_row(seen: SeenIds) -> _SeenRow:
    return _SeenRow(seen.dropped, *seen.dump())


def _uplink_row(uplink: SeenUplink) -> _UplinkRow:
    return _UplinkRow(
        uplink.id,
        uplink.node,
        uplink.last_seq,
        uplink.suspected_ms,
        sorted(uplink.kept.items(), key=lambda item: item[0]),
        [
            _ConsumerRow([getattr(c, name) for name in _CONSUMER_FIELDS], c.held)
            for c in uplink.consumers.values()
        ],
        uplink.incarnation,
        uplink.yields,
    )


def restore(data: bytes) -> QueueState:
    """Restore a state from `snapshot`; it behaves as the original."""
    row = _DECODER.decode(data)
    assert row.format == FORMAT, (row.format, FORMAT)
    state = QueueState(row.config)
    for name, value in zip(_PLAIN, row.plain, strict=True):
        setattr(state, name, value)
    state.contents.load(row.contents)
    state.order.load(row.lanes)
    if row.came_back is not None:
        back = row.came_back
        state.order.load_returned(back.count, back.leaves, back.back)
    state.over = dict(row.over)
    _load_beside(state, row)
    for one in row.uplinks:
        uplink = SeenUplink(
            one.id,
            one.node,
            one.last_seq,
            dict(one.kept),
            {},
            one.suspected_ms,
            one.incarnation,
            one.yields,
        )
        state.uplinks[uplink.id] = uplink
        for consumer_row in one.consumers:
            fields = dict(zip(_CONSUMER_FIELDS, consumer_row.fields, strict=True))
            consumer = Consumer(**fields, held=consumer_row.held)
            uplink.consumers[consumer.id] = consumer
    for priority, keys in row.service:
        state.service[priority] = deque(state.consumer(key) for key in keys)
    state.active = state.consumer(row.active) if row.active is not None else None
    load_relays(state, row.relays, row.origins)
    if row.filters is not None:
        load_filters(state, row.filters)
    for reader in row.readers:
        state.readers[reader.name] = restored_reader(reader)
    state.claim_floor = row.claim_floor
    state.forgotten_epoch = row.forgotten_epoch
    for sink, rows in row.runs:
        state.runs[sink] = {each.run: restored_run(each) for each in rows}
    return state


def _load_beside(state: QueueState, row: _Row) -> None:
    """Load what is beside the order: delayed messages, annotations, letters, ids."""
    if row.delayed is not None:
        state.delayed.load(row.delayed.counts, row.delayed.forced, row.delayed.leaves)
    state.annotations.load(row.annotations)
    if row.letters is not None:
        state.letters.load(row.letters.counts, row.letters.leaves)
    if row.seen is not None:
        state.seen.dropped = row.seen.dropped
        state.seen.load(row.seen.producers, row.seen.order, row.seen.times)
