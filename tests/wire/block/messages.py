"""The messages of a block as values that tests compare."""

from __future__ import annotations

from warren_wire.block.block import Block

# (exchange, routing key), properties, body, priority, TTL in ms
Message = tuple[tuple[bytes, bytes], bytes, bytes, int, int | None]


def messages_of(block: Block) -> list[Message]:
    """Unpack every message of a block."""
    return [
        (
            block.route(i),
            bytes(block.properties(i)),
            bytes(block.body(i)),
            block.priority(i),
            block.ttl_ms(i),
        )
        for i in range(block.count)
    ]
