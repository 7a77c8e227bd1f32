"""The commands of a queue that keeps messages which are published with a delay."""

from __future__ import annotations

from warren_wire.queue_values.command_base import QueueCommand


class EnqueueDelayed(QueueCommand, frozen=True, array_like=True, tag="enqueue_delayed"):
    """Enqueue the block of the entry; each of its messages is ready after a delay.

    delays  (messages, delay_ms) of neighbouring messages, in order; together they are the block's
    """

    delays: tuple[tuple[int, int], ...]


class EndDelay(QueueCommand, frozen=True, array_like=True, tag="end_delay"):
    """Make one delayed message ready now, or drop it; reply: Count, 0 when it is not delayed.

    ready_ms, index, ordinal  of the message
    """

    ready_ms: int
    index: int
    ordinal: int
    drop: bool = False
