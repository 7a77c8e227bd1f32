"""The command with which messages come from a relay, which another queue has given them."""

from __future__ import annotations

from warren_broker.queue.command_base import QueueCommand


class EnqueueRelayed(QueueCommand, frozen=True, array_like=True, tag="enqueue_relayed"):
    """Enqueue the messages of the entry's block that this origin has not brought before.

    origin   see `Checkout.origin`: of all of them
    floor    messages with lower numbers will not come again, unless they were accepted before
    numbers  (messages, number of the first) of runs of the block, in order; together they are its
             messages. Within a run numbers are consecutive
    """

    origin: int
    floor: int
    numbers: tuple[tuple[int, int], ...]
