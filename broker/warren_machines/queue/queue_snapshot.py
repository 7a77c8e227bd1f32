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
from warren_machines.queue.commands import AnyReply
from warren_machines.queue.decision_commands import ClaimBinding, ClaimName
from warren_machines.queue.deduplication import SeenIds
from warren_machines.queue.delayed_queue import Delayed
from warren_machines.queue.filters import Filter, PageRow
from warren_machines.queue.letter_queue import LetterQueue
from warren_machines.queue.origins import OriginRow
from warren_machines.queue.ranges import Held
from warren_machines.queue.ready_queue import Order
from warren_machines.queue.relay_state import KeptRun, Relay
from warren_machines.queue.state import (
    Consumer,
    HeldClaim,
    PublishedBatch,
    QueueState,
    ReaderState,
    RunStage,
    SeenUplink,
    SinkRun,
)
from warren_wire.queue_values.config import QueueConfig
from warren_wire.queue_values.describe_command import ReadBy

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
    origins: _OriginsRow | None
    over: list[tuple[str, int]]
    uplinks: list[_UplinkRow]
    service: list[tuple[int, list[tuple[int, int]]]]
    active: tuple[int, int] | None
    relays: list[_RelayRow]
    filters: _FiltersRow | None
    readers: list[_ReaderRow]
    claim_floor: int
    runs: list[tuple[str, list[_RunRow]]]
    forgotten_epoch: int


class _ReaderRow(msgspec.Struct, array_like=True):
    """A `ReaderState`; claims: ascending."""

    name: str
    epoch: int
    settled: int
    opened: int
    heard_ms: int
    claims: list[HeldClaim]
    calls: tuple[tuple[str, int], ...]
    decided: tuple[int, ClaimBinding] | None
    expires_ms: int
    described: tuple[int, ReadBy] | None
    parts: list[HeldClaim]
    in_row: int
    passed: bool
    starts: int
    ahead: tuple[int, int] | None


class _RelayRow(msgspec.Struct, array_like=True):
    name: str
    origin: int
    owner: tuple[int, int]
    next_number: int
    idle_ms: int
    kept: list[KeptRun]
    numbered: list[tuple[tuple[int, int], list[tuple[int, int, int]]]]


class _OriginsRow(msgspec.Struct, array_like=True):
    dropped: int
    rows: list[OriginRow]


class _FiltersRow(msgspec.Struct, array_like=True):
    """uses: (uplink, consumer, filter, drain_at)."""

    next_id: int
    newest: int
    filters: list[_FilterRow]
    uses: list[tuple[int, int, int, int]]


class _FilterRow(msgspec.Struct, array_like=True):
    id: int
    text: bytes
    judged: int
    goal: int
    parked: list[tuple[int, int]]
    pages: list[PageRow]


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


class _RunRow(msgspec.Struct, array_like=True):
    run: str
    epoch: int
    last_batch: int
    published: list[_PublishedRow]
    stages: list[_RunStageRow]
    heard_ms: int
    expires_ms: int


class _PublishedRow(msgspec.Struct, array_like=True):
    batch: int
    messages: int
    digest: int
    named: bytes
    settles: tuple[ClaimName, ...] | None


class _RunStageRow(msgspec.Struct, array_like=True):
    key: tuple[int, int, int]
    blocks: list[tuple[int, int, tuple[tuple[int, int], ...]]]
    count: int
    messages: int
    digest: int
    repeat: bool
    expires_ms: int
    last_seq: int


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
            origins=_origins_row(state),
            over=sorted(state.over.items()),
            uplinks=[_uplink_row(uplink) for uplink in state.uplinks.values()],
            service=[
                (priority, [consumer.key for consumer in state.service[priority]])
                for priority in sorted(state.service)
            ],
            active=state.active.key if state.active is not None else None,
            relays=[_relay_row(state, state.relays[name]) for name in sorted(state.relays)],
            filters=_filters_row(state) if state.filters.next_id > 1 else None,
            readers=[_reader_row(state.readers[name]) for name in sorted(state.readers)],
            claim_floor=state.claim_floor,
            runs=[
                (sink, [_run_row(name, run) for name, run in runs.items()])
                for sink, runs in state.runs.items()
            ],
            forgotten_epoch=state.forgotten_epoch,
        )
    )


def _origins_row(state: QueueState) -> _OriginsRow | None:
    if not state.origins and not state.origins.dropped:
        return None
    return _OriginsRow(state.origins.dropped, state.origins.dump())


def _relay_row(state: QueueState, relay: Relay) -> _RelayRow:
    numbered = [
        (consumer.key, consumer.numbering)
        for consumer in state.all_consumers()
        if consumer.relay == relay.name
    ]
    return _RelayRow(
        relay.name,
        relay.origin,
        relay.owner,
        relay.next_number,
        relay.idle_ms,
        relay.kept,
        sorted(numbered),
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
        [
            (*consumer.key, consumer.filter.id, consumer.drain_at)
            for consumer in state.all_consumers()
            if consumer.filter is not None
        ],
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


def _run_row(name: str, run: SinkRun) -> _RunRow:
    return _RunRow(
        name,
        run.epoch,
        run.last_batch,
        [
            _PublishedRow(known.batch, known.messages, known.digest, known.named, known.settles)
            for known in run.published
        ],
        [
            _RunStageRow(
                key,
                part.blocks,
                part.count,
                part.messages,
                part.digest,
                part.repeat,
                part.expires_ms,
                part.last_seq,
            )
            for key, part in run.stages.items()
        ],
        run.heard_ms,
        run.expires_ms,
    )


def _reader_row(reader: ReaderState) -> _ReaderRow:
    return _ReaderRow(
        reader.name,
        reader.epoch,
        reader.settled,
        reader.opened,
        reader.heard_ms,
        [reader.claims[number] for number in sorted(reader.claims)],
        reader.calls,
        reader.decided,
        reader.expires_ms,
        reader.described,
        reader.parts,
        reader.in_row,
        reader.passed,
        reader.starts,
        reader.ahead,
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
        state.service[priority] = deque(_known(state, key) for key in keys)
    state.active = _known(state, row.active) if row.active is not None else None
    _load_relays(state, row)
    if row.filters is not None:
        _load_filters(state, row.filters)
    for reader in row.readers:
        state.readers[reader.name] = _reader(reader)
    state.claim_floor = row.claim_floor
    state.forgotten_epoch = row.forgotten_epoch
    for sink, rows in row.runs:
        state.runs[sink] = {each.run: _run(each) for each in rows}
    return state


def _load_relays(state: QueueState, row: _Row) -> None:
    for one in row.relays:
        state.relays[one.name] = Relay(
            one.name, one.origin, one.owner, one.next_number, one.idle_ms, one.kept
        )
        for key, numbering in one.numbered:
            consumer = _known(state, key)
            consumer.relay, consumer.numbering = one.name, numbering
    if row.origins is not None:
        state.origins.dropped = row.origins.dropped
        state.origins.load(row.origins.rows)


def _load_filters(state: QueueState, row: _FiltersRow) -> None:
    state.filters.next_id, state.filters.newest = row.next_id, row.newest
    for one in row.filters:
        made = Filter(one.id, one.text, one.judged, one.goal)
        made.parked = dict.fromkeys(one.parked)
        made.load(one.pages)
        state.filters.add(made)
    for uplink, number, filter_id, drain_at in row.uses:
        consumer = _known(state, (uplink, number))
        consumer.filter = state.filters.get(filter_id)
        consumer.drain_at = drain_at
        assert consumer.filter is not None, filter_id
        consumer.filter.users += 1


def _reader(row: _ReaderRow) -> ReaderState:
    return ReaderState(
        row.name,
        row.epoch,
        row.settled,
        row.opened,
        row.heard_ms,
        {claim.number: claim for claim in row.claims},
        row.calls,
        row.decided,
        row.expires_ms,
        row.described,
        row.parts,
        row.in_row,
        row.passed,
        row.starts,
        row.ahead,
    )


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


def _run(row: _RunRow) -> SinkRun:
    stages = {
        each.key: RunStage(
            each.blocks,
            each.count,
            each.messages,
            each.digest,
            each.repeat,
            each.expires_ms,
            each.last_seq,
        )
        for each in row.stages
    }
    published = [
        PublishedBatch(known.batch, known.messages, known.digest, known.named, known.settles)
        for known in row.published
    ]
    return SinkRun(row.epoch, row.last_batch, published, stages, row.heard_ms, row.expires_ms)


def _known(state: QueueState, key: tuple[int, int]) -> Consumer:
    consumer = state.find(*key)
    assert consumer is not None, key
    return consumer
