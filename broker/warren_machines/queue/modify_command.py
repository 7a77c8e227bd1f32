"""The command of AMQP 1.0's modified outcome."""

from __future__ import annotations

from typing import TypeAlias

from warren_wire.queue_values.command_base import QueueCommand

Pairs: TypeAlias = tuple[tuple[str, bytes], ...]
"""Annotations of a message: (key, value in MessagePack), keys ascending, each once.

What the values mean is said in `amqp10.message.annotation_values`; the machine does not read them.
"""


class Modify(QueueCommand, frozen=True, array_like=True, tag="modify"):
    """Return messages to the queue, or discard them, and annotate them.

    failed       the delivery failed: delivery-count rises
    discard      drop or dead-letter them (undeliverable-here), as `Discard` does
    annotations  stay with each message while it is in the queue, and replace those with equal keys
    ready_ms     do not deliver them before that time, whatever delayed retry says; a time that has
                 passed, such as 0, says nothing

    A classic queue knows neither annotations nor the time.
    """

    consumer: int
    msg_ids: tuple[tuple[int, int], ...]
    failed: bool = False
    discard: bool = False
    annotations: Pairs = ()
    ready_ms: int = 0
