"""A queue's state as canonical bytes.

MessagePack of plain arrays: equal states give equal bytes, on every member. Where order matters
(uplinks, consumers in service, returned messages, sinks, their runs) it is kept; everywhere else
keys are sorted. It holds runs and counts, never a message.

Blocks and ready messages are stored in the packed form of the state (`block_index`,
`ready_queue`): a snapshot costs some microseconds per thousand blocks.

The layout of everything in it is replicated state, also that of `QueueConfig`, `HeldClaim`,
`PublishedBatch`, `ReadBy`, `ClaimBinding`, `ClaimName`, of the replies that it keeps, and the order
of the fields of `Consumer`, `Relay` and `RunStage`: another one is a new FORMAT.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import astuple

from warren_machines.queue.annotations import AnnotatedRow
from warren_machines.queue.claims.reader_state import ReaderRow, reader_row, restored_reader
from warren_machines.queue.commands import AnyReply
from warren_machines.queue.delayed.delayed_queue import Delayed
from warren_machines.queue.filters.filters import Filter, PageRow
from warren_machines.queue.letters.letter_queue import LetterQueue
from warren_machines.queue.ready.ranges import Held
from warren_machines.queue.relays import relays
from warren_machines.queue.relays.relay_state import KeptRun, OriginRow, Relay
from warren_machines.queue.sinks.sink_state import RunRow, restored_run, run_row
from warren_machines.queue.state import Consumer, QueueState, SeenUplink, Standby
from warren_wire.queue_values.config import QueueConfig

FORMAT: Final = 1
_ENCODER: Final = msgspec.msgpack.Encoder()
_CONSUMER_FIELDS: Final = tuple(
    each.name
    for each in fields(Consumer)
    if each.name not in ("held", "relay", "numbering", "filter", "drain_at")
)
"""Fields of a `Consumer` as they are; its relay and filter are in the rows of these."""
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
_Counts: TypeAlias = tuple[int, int, int]


class _Row(msgspec.Struct, array_like=True):
    """A snapshot as decoded."""

    format: int
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
    readers: list[ReaderRow]
    claim_floor: int
    runs: list[tuple[str, list[RunRow]]]
    forgotten_epoch: int


class _SeenRow(msgspec.Struct, array_like=True):
    """The `SeenIds`."""

    dropped: int
    producers: list[bytes]
    order: list[bytes | tuple[int, int, int]]
    times: list[tuple[int, int, int]]


class _UplinkRow(msgspec.Struct, array_like=True):
    """A `SeenUplink`; consumers: their _CONSUMER_FIELDS, and what they hold."""

    id: int
    node: str
    last_seq: int
    suspected_ms: int
    kept: list[_KeptRow]
    consumers: list[tuple[list[Any], list[Held]]]
    incarnation: int
    yields: bool


class _RelayRow(msgspec.Struct, array_like=True):
    """A `Relay`: the same fields; numbered: the names of what its consumers hold, by their keys."""

    name: str
    origin: int
    owner: tuple[int, int]
    next_number: int
    idle_ms: int
    kept: list[KeptRun]
    numbered: list[tuple[tuple[int, int], list[tuple[int, int, int]]]]


class _FilterRow(msgspec.Struct, array_like=True):
    """A `Filter` with what it has judged; parked: keys of consumers."""

    id: int
    text: bytes
    judged: int
    goal: int
    parked: list[tuple[int, int]]
    pages: list[PageRow]


class _FiltersRow(msgspec.Struct, array_like=True):
    """The `Filters`; uses: (uplink, consumer, filter, drain_at)."""

    next_id: int
    newest: int
    filters: list[_FilterRow]
    uses: list[tuple[int, int, int, int]]


_DECODER: Final = msgspec.msgpack.Decoder(_Row)


def snapshot(state: QueueState) -> bytes:
    """Encode the state."""
    order, seen, origins = state.order, state.seen, state.origins
    return _ENCODER.encode(
        _Row(
            format=FORMAT,
            config=state.config,
            plain=[getattr(state, name) for name in _PLAIN],
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
            service=[
                (priority, list(state.service.lanes[priority]))
                for priority in sorted(state.service.lanes)
            ],
            active=state.active.key if state.active is not None else None,
            relays=[_relay_row(state, state.relays[name]) for name in sorted(state.relays)],
            filters=_filters_row(state) if state.filters.next_id > 1 else None,
            readers=[reader_row(state.readers[name]) for name in sorted(state.readers)],
            claim_floor=state.claim_floor,
            runs=[
                (sink, [run_row(name, run) for name, run in runs.items()])
                for sink, runs in state.runs.items()
            ],
            forgotten_epoch=state.forgotten_epoch,
        )
    )


def _delayed_row(delayed: Delayed) -> tuple[_Counts, list[bytes], list[bytes]] | None:
    counts = (delayed.count, delayed.forced, delayed.size_bytes)
    return (counts, *delayed.dump()) if delayed.count else None


def _letters_row(letters: LetterQueue) -> tuple[_Counts, list[bytes]] | None:
    counts = (letters.count, letters.next_number, letters.size_bytes)
    return (counts, letters.dump()) if letters.next_number > 1 else None


def _uplink_row(uplink: SeenUplink) -> _UplinkRow:
    return _UplinkRow(
        uplink.id,
        uplink.node,
        uplink.last_seq,
        uplink.suspected_ms,
        sorted(uplink.kept.items(), key=lambda item: item[0]),
        [
            ([getattr(one, name) for name in _CONSUMER_FIELDS], one.held)
            for one in uplink.consumers.values()
        ],
        uplink.incarnation,
        uplink.yields,
    )


def _relay_row(state: QueueState, relay: Relay) -> _RelayRow:
    known = [state.find(*key) for key in relay.consumer_keys]
    named = [each for each in known if each is not None and each.relay == relay.name]
    numbered = [(consumer.key, consumer.numbering) for consumer in named]
    values: tuple[Any, ...] = (*astuple(relay)[:-1], sorted(numbered))
    return _RelayRow(*values)


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
        [
            (*consumer.key, consumer.filter.id, consumer.drain_at)
            for consumer in state.all_consumers()
            if consumer.filter is not None
        ],
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
        state.order.load_returned(*row.came_back)
    state.over = dict(row.over)
    _load_beside(state, row)
    for one in row.uplinks:
        uplink = SeenUplink(one.id, one.node, one.last_seq, dict(one.kept))
        uplink.suspected_ms, uplink.incarnation = one.suspected_ms, one.incarnation
        uplink.yields = one.yields
        state.uplinks[uplink.id] = uplink
        for values, held in one.consumers:
            named = dict(zip(_CONSUMER_FIELDS, values, strict=True))
            consumer = Consumer(**named, held=held)
            uplink.add(consumer)
            if consumer.exclusive and not consumer.cancelled:
                state.exclusive = consumer
    for _, keys in row.service:
        for key in keys:
            state.service.add(state.consumer(key))
    state.active = state.consumer(row.active) if row.active is not None else None
    if state.config.single_active_consumer:
        state.standby = Standby(state.all_consumers())
    _load_relays(state, row)
    if row.filters is not None:
        _load_filters(state, row.filters)
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
        state.delayed.load(*row.delayed)
    state.annotations.load(row.annotations)
    if row.letters is not None:
        state.letters.load(*row.letters)
    if row.seen is not None:
        state.seen.dropped = row.seen.dropped
        state.seen.load(row.seen.producers, row.seen.order, row.seen.times)


def _load_relays(state: QueueState, row: _Row) -> None:
    """Load relays with the names of what their consumers hold, and origins."""
    for one in row.relays:
        relays.add(state, Relay(*astuple(one)[:-1]))
        for key, numbering in one.numbered:
            consumer = state.consumer(key)
            consumer.relay, consumer.numbering = one.name, numbering
            state.relays[one.name].consumer_keys[key] = None
    state.changed_relays = dict.fromkeys(state.relays)
    if row.origins is not None:
        state.origins.dropped, rows = row.origins
        state.origins.load(rows)


def _load_filters(state: QueueState, row: _FiltersRow) -> None:
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
