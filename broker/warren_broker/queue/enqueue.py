"""Enqueueing: the messages of a block join the ready ones."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Final

from warren_broker.block.block import FORM_AMQP091, PRIORITY_DEFAULT, Block, BlockError
from warren_broker.block.layout import TTL_NONE
from warren_broker.queue import consumers, limits
from warren_broker.queue.apply_context import QueueContext
from warren_broker.queue.block_index import Shape, measure
from warren_broker.queue.commands import AnyReply, Done, Enqueue, Refused
from warren_broker.queue.config import QueueConfig
from warren_broker.queue.ready_queue import PRIORITIES

DONE: Final = Done()


def read_shape(block: memoryview, config: QueueConfig) -> Shape:
    """Read what the machine needs to know of a block; raises BlockError.

    The bytes of partial runs are exact where the queue has a limit in bytes.
    """
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
    highest, default = min(config.priority_max, PRIORITIES - 1), config.priority_default
    if highest == 0:
        return ((0, 0),)
    lanes: list[tuple[int, int]] = []
    for first, last, priority in block.priority_runs:
        if priority == PRIORITY_DEFAULT != default and block.form == FORM_AMQP091:
            # A block stores 4 for messages without a priority. Only here, on queues with a default
            # of their own (x-max-priority), their properties have to be read.
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


def _says_priority(properties: memoryview) -> bool:
    """Return whether AMQP 0.9.1 properties hold a priority: bit 11 of their flags."""
    return len(properties) > 0 and bool(properties[0] & 0x08)


def shape_of(context: QueueContext) -> Shape | Refused:
    """Return the shape of the entry's block, or the refusal."""
    if context.block is None:
        return Refused("invalid", "a command that owns a block came without one: send one along")
    try:
        return read_shape(context.block, context.config)
    except BlockError as error:
        return Refused("invalid", str(error))


def enqueue(context: QueueContext, command: Enqueue) -> AnyReply:
    """Enqueue the entry's block; refuse part or all of it where the queue rejects at its limit."""
    del command
    shape = shape_of(context)
    if isinstance(shape, Refused):
        return shape
    state, index = context.state, context.index
    if not shape.count:
        return DONE
    if state.contents.has(index):
        return Refused("invalid", f"entry {index}: only one command of a submission owns its block")
    if context.config.overflow == "reject-publish" and limits.limited(context):
        return _enqueue_within_limits(context, shape)
    state.contents.add(index, shape)
    make_ready(context, index, shape.count, shape.runs, shape.total)
    return DONE


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


def _enqueue_within_limits(context: QueueContext, shape: Shape) -> AnyReply:
    """Enqueue run by run, as if they arrived separately: serve consumers, then check the limit."""
    state, index = context.state, context.index
    contents = state.contents
    if limits.overfull(context):
        return _full(context, shape.count, 0)
    contents.add(index, shape)
    contents.ready_at(index, context.now, context.config.message_ttl_ms)
    for at, (first, lane) in enumerate(shape.runs):
        end = shape.runs[at + 1][0] if at + 1 < len(shape.runs) else shape.count
        state.order.append(lane, index, first, end - 1)
        state.ready_bytes += contents.size(index, first, end - 1)
        consumers.dispatch(context)
        cut = limits.cut_surplus(context, lane, index)
        if cut:
            accepted = end - cut
            if end < shape.count:
                contents.drop(index, shape.count - end)
            return _full(context, shape.count, accepted)
    return DONE


def _full(context: QueueContext, count: int, accepted: int) -> Refused:
    config = context.config
    return Refused(
        "queue_full",
        f"queue {config.name!r} took {accepted} of {count} messages: it holds "
        f"{limits.fill(context)}; consume from it, or raise max-length",
        accepted,
    )
