"""The checks of a block from a client before any of its messages is routed.

A block is refused for the same reasons as an AMQP 0.9.1 publish, with the same texts;
`message_checks` has what both protocols require of a message's properties. All messages of a block
are accepted, or none.
"""

from __future__ import annotations

import itertools
from typing import Final

from warren_broker.access import message_checks
from warren_machines.steps import Steps, Work
from warren_wire import errors
from warren_wire.amqp091.fitting import HEADER_FRAME_BYTES
from warren_wire.block.block import BLOCK_MESSAGES_MAX, FORM_AMQP091, Block, BlockError
from warren_wire.kernel import MessageTable, check_structure, flags_of, load_block

LOOKED_AT_ONCE: Final = 16
"""Messages of which the properties are checked between two looks at the steps."""


def admit(
    data: bytes | memoryview, exchange: str, message_size_max: int, frame_max: int, steps: Steps
) -> Work[MessageTable]:
    """Return the messages of a block that was sent to an exchange; raises Refusal.

    Their routes name that exchange, whatever the block says: a consumer is told where a message
    was published, and the permission to publish was checked there.

    message_size_max  of one message's body (limits.message_size_max)
    frame_max         of one content header: as many properties as an AMQP 0.9.1 client could
                      publish (limits.frame_max)
    """
    try:
        block = Block.decode(data, messages_max=BLOCK_MESSAGES_MAX, columns=False)
        check_structure(block)
    except BlockError as error:
        raise errors.InvalidArgument(f"not a block: {error}") from error
    if block.form != FORM_AMQP091:  # no check can read such properties
        raise errors.InvalidArgument(
            f"a block whose properties are of form {block.form}; give AMQP 0.9.1's, form "
            f"{FORM_AMQP091}"
        )
    if not len(block):
        raise errors.InvalidArgument("a block without messages; send none instead")
    _check_sizes(block, message_size_max)
    try:
        table = load_block(
            block,
            exchange=exchange.encode("utf-8", "surrogateescape"),
            properties_max=frame_max - HEADER_FRAME_BYTES,
        )
    except BlockError as error:
        raise errors.InvalidArgument(str(error)) from error
    flags = flags_of(table, 0, table.count)
    if flags & message_checks.LOOKED_AT:
        for first in range(0, table.count, LOOKED_AT_ONCE):
            piece = (first, min(first + LOOKED_AT_ONCE, table.count))
            _, refusal = message_checks.first_refused(table, *piece, flags)
            if refusal is not None:
                raise refusal
            if steps.take(message_checks.looking_steps(table, *piece)):
                yield
    return table


def _check_sizes(block: Block, limit: int) -> None:
    if block.body_offsets[-1] <= limit:
        return  # none of them can exceed it
    ends = block.body_offsets.tolist()
    largest = max(end - start for start, end in itertools.pairwise(ends))
    if largest > limit:
        raise errors.ContentTooLarge(
            f"message of {largest} bytes: at most {limit} are allowed (limits.message_size_max)"
        )
