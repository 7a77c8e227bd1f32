"""Enqueueing: the messages of a block join the ready ones."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from warren_machines.queue import deduplication
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply, Done, Enqueue, Refused
from warren_machines.queue.ready import limits, service_order
from warren_machines.queue.ready.block_index import Shape, measure
from warren_machines.queue.ready.ready_queue import PRIORITIES
from warren_machines.queue.relays.relay_commands import EnqueueRelayed
from warren_wire.block.block import FORM_AMQP091, PRIORITY_DEFAULT, Block, BlockError
from warren_wire.block.layout import TTL_NONE
from warren_wire.kernel import even_block
from warren_wire.queue_values.config import QueueConfig

DONE: Final = Done()


def read_shape(block: memoryview, config: QueueConfig) -> Shape:
    """Read what the machine needs to know of a block; raises BlockError.

    The bytes of partial runs are exact where the queue has a limit in bytes.
    """
    highest = min(config.priority_max, PRIORITIES - 1)
    even = even_block(block)
    if even is not None:  # most often, and always of one message
        form, count, priority, head, body = even
        if not highest or not _tells_priority(form, priority, config):
            each = body if config.max_length_bytes is not None else head + body
            return Shape(count, ((0, min(priority, highest)),), each * count, each)
    decoded = Block.outline(block)
    if not decoded.whole and config.priority_default != PRIORITY_DEFAULT:
        decoded = Block.decode(block, verify=False)  # `_lanes` looks at properties
    if not decoded.count:
        return Shape(0, (), 0, 0)
    exact = config.max_length_bytes is not None
    # x-max-length-bytes counts bodies only, as in RabbitMQ; elsewhere bytes bound memory.
    heads = _no_bytes(decoded.count) if exact else decoded.properties_offsets.cast("B")
    total, largest, ends = measure(heads, decoded.body_offsets.cast("B"), exact)
    ttl: int | array[int] | None = None
    if decoded.ttl_column is not None:
        column = array("I")
        column.frombytes(decoded.ttl_column.cast("B"))
        ttl = column
        if column.count(column[0]) == len(column):
            ttl = None if column[0] == TTL_NONE else column[0]
    return Shape(decoded.count, _lanes(decoded, config), total, largest, ends, ttl)


@lru_cache(maxsize=64)
def _no_bytes(count: int) -> memoryview:
    """Return the offset column of `count` items without any bytes."""
    return memoryview(bytes(4 * (count + 1)))


def _lanes(block: Block, config: QueueConfig) -> tuple[tuple[int, int], ...]:
    """Return (first ordinal, lane) of the block's runs, under the queue's priority settings."""
    highest = min(config.priority_max, PRIORITIES - 1)
    if highest == 0:
        return ((0, 0),)
    lanes: list[tuple[int, int]] = []
    for first, last, priority in block.priority_runs:
        if _tells_priority(block.form, priority, config):
            default = config.priority_default
            runs = [
                (i, priority if _says_priority(block.properties(i)) else default)
                for i in range(first, last)
            ]
        else:
            runs = [(first, priority)]
        for at, wanted in runs:
            lane = min(wanted, highest)
            if not lanes or lanes[-1][1] != lane:
                lanes.append((at, lane))
    return tuple(lanes)


def _tells_priority(form: int, priority: int, config: QueueConfig) -> bool:
    """Return whether only the properties of messages tell whether they have this priority.

    A block stores PRIORITY_DEFAULT for messages without one; queues with x-max-priority have a
    default of their own.
    """
    return priority == PRIORITY_DEFAULT != config.priority_default and form == FORM_AMQP091


def _says_priority(properties: memoryview) -> bool:
    """Return whether AMQP 0.9.1 properties hold a priority: bit 11 of their flags."""
    return len(properties) > 0 and bool(properties[0] & 0x08)


def shape_of(context: QueueContext) -> Shape | Refused:
    """Return the shape of the entry's block, or the refusal."""
    if context.block is None:
        return Refused("invalid", "a command that owns a block came without one: send one along")
    try:
        return read_shape(context.block, context.state.config)
    except BlockError as error:
        return Refused("invalid", str(error))


def enqueue(context: QueueContext, command: Enqueue) -> AnyReply:
    """Enqueue the entry's block; refuse part or all of it where the queue rejects at its limit."""
    del command
    shape = shape_of(context)
    if isinstance(shape, Refused):
        return shape
    state, index = context.state, context.index
    config = state.config
    if not shape.count:
        return DONE
    if state.contents.has(index):
        return Refused("invalid", f"entry {index}: only one command of a submission owns its block")
    if config.deduplication:
        return _enqueue_once(context, shape)
    if config.refuses and limits.limited(context):
        return _enqueue_within_limits(context, shape)
    state.contents.add(index, shape)
    make_ready(context, index, shape.count, shape.runs, shape.total)
    return DONE


def enqueue_relayed(context: QueueContext, command: EnqueueRelayed) -> AnyReply:
    """Enqueue the messages of the entry's block that their origin has not brought before.

    What the length limit refuses is not remembered: it may be brought again.
    """
    shape = shape_of(context)
    if isinstance(shape, Refused):
        return shape
    state, origins = context.state, context.state.origins
    numbers = [at for count, first in command.numbers for at in range(first, first + count)]
    if len(numbers) != shape.count:
        return Refused("invalid", f"{len(numbers)} names for a block of {shape.count} messages")
    if state.contents.has(context.index):
        detail = f"entry {context.index}: only one command of a submission owns its block"
        return Refused("invalid", detail)
    repeats = origins.repeats(command.origin, numbers)
    reply: AnyReply = DONE
    if context.config.deduplication:
        reply = _enqueue_once(context, shape, repeats)
    elif len(repeats) < shape.count:
        if context.config.refuses and limits.limited(context):
            reply = _enqueue_within_limits(context, shape, repeats)
        else:
            _enqueue_without(context, shape, repeats)
    end = shape.count
    if isinstance(reply, Refused):
        if reply.reason != "queue_full":
            return reply
        end = reply.accepted
    known = set(repeats)
    taken = [numbers[at] for at in range(end) if at not in known]
    origins.accept(command.origin, command.floor, taken, context.now)
    origins.dropped += sum(at < end for at in repeats)
    return reply


def _enqueue_once(context: QueueContext, shape: Shape, repeats: Sequence[int] = ()) -> AnyReply:
    """Enqueue the messages that are no duplicates of earlier ones; remember the ids of those taken.

    A message that the length limit refuses is not remembered: it may be published again.

    repeats  ordinals of messages that are left out; their ids do not count
    """
    assert context.block is not None
    seen, config = context.state.seen, context.config
    window, ttl_ms = config.deduplication_window, config.deduplication_ttl_ms
    try:
        groups = deduplication.read_ids(context.block)
    except BlockError as error:
        return Refused("invalid", str(error))
    if repeats:
        groups = deduplication.without(groups, repeats)
    seen.expire(context.now, ttl_ms)
    seen.trim(window)
    duplicates = seen.duplicates(groups, window)
    dropped = duplicates
    if repeats:
        duplicates = sorted([*duplicates, *repeats])
    reply: AnyReply = DONE
    if len(duplicates) < shape.count:
        if config.refuses and limits.limited(context):
            reply = _enqueue_within_limits(context, shape, duplicates)
        else:
            _enqueue_without(context, shape, duplicates)
    end = reply.accepted if isinstance(reply, Refused) else shape.count
    runs = deduplication.accepted_runs(groups, duplicates, end)
    seen.remember(runs, context.now, window, ttl_ms)
    seen.dropped += sum(ordinal < end for ordinal in dropped)
    return reply


def _enqueue_without(context: QueueContext, shape: Shape, duplicates: Sequence[int]) -> None:
    """Enqueue a block without its duplicates."""
    state, index = context.state, context.index
    state.contents.add(index, shape)
    if not duplicates:
        make_ready(context, index, shape.count, shape.runs, shape.total)
        return
    if state.config.message_ttl_ms is not None or state.contents.detailed:
        state.contents.ready_at(index, context.now, state.config.message_ttl_ms)
    for first, end, lane in _parts(shape, duplicates):
        state.order.append(lane, index, first, end - 1)
        state.ready_bytes += state.contents.size(index, first, end - 1)
    state.contents.drop(index, len(duplicates))


def _parts(shape: Shape, duplicates: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first, end, lane) of the block's runs without the duplicates."""
    for at, (first, lane) in enumerate(shape.runs):
        end = shape.runs[at + 1][0] if at + 1 < len(shape.runs) else shape.count
        for low, high in deduplication.gaps(first, end, duplicates):
            yield low, high, lane


def make_ready(
    context: QueueContext, index: int, count: int, runs: tuple[tuple[int, int], ...], total: int
) -> None:
    """Make all messages of a block in `contents` ready, each in its lane."""
    state = context.state
    config = state.config
    if config.message_ttl_ms is not None or state.contents.detailed:
        state.contents.ready_at(index, context.now, config.message_ttl_ms)
    if len(runs) == 1:
        state.order.append(runs[0][1], index, 0, count - 1)
    else:
        last = len(runs) - 1
        for at, (first, priority) in enumerate(runs):
            end = runs[at + 1][0] if at < last else count
            state.order.append(priority, index, first, end - 1)
    state.ready_bytes += total


def _enqueue_within_limits(
    context: QueueContext, shape: Shape, duplicates: Sequence[int] = ()
) -> AnyReply:
    """Enqueue run by run, as if they arrived separately: serve consumers, then check the limit.

    duplicates  ordinals that are left out, not all of them: those before the first message that is
                refused count as accepted
    """
    state, index = context.state, context.index
    contents = state.contents
    parts = list(_parts(shape, duplicates))
    if limits.overfull(context):
        return _full(context, shape.count, parts[0][0], parts)
    contents.add(index, shape)
    contents.ready_at(index, context.now, context.config.message_ttl_ms)
    left_out = 0
    for at, (first, end, lane) in enumerate(parts):
        left_out += first - (parts[at - 1][1] if at else 0)
        state.order.append(lane, index, first, end - 1)
        state.ready_bytes += contents.size(index, first, end - 1)
        service_order.dispatch(context)
        cut = limits.cut_surplus(context, lane, index)
        if cut:
            accepted = end - cut
            if end < shape.count or left_out:
                contents.drop(index, shape.count - end + left_out)
            return _full(context, shape.count, accepted, parts)
    if duplicates:
        contents.drop(index, len(duplicates))
    return DONE


def _full(
    context: QueueContext, count: int, accepted: int, parts: Sequence[tuple[int, int, int]]
) -> Refused:
    """Refuse the block's messages from `accepted` on; reject-publish-dlx dead-letters them.

    parts  (first, end, lane) of those that are no duplicates
    """
    config = context.config
    if config.overflow == "reject-publish-dlx" and config.dead_letter_exchange is not None:
        for first, end, _ in parts:
            if end > accepted:
                context.dead_letter("maxlen", context.index, max(first, accepted), end - 1, 0)
    return Refused(
        "queue_full",
        f"queue {config.name!r} took {accepted} of {count} messages: it holds "
        f"{limits.fill(context)}; consume from it, or raise max-length",
        accepted,
    )
