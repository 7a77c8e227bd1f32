"""The commands about relays: messages that one brings, and the release of what is kept for one."""

from __future__ import annotations

from typing import TypeAlias

from warren_wire.queue_values.command_base import QueueCommand


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


class ReleaseRelay(QueueCommand, frozen=True, array_like=True, tag="release_relay"):
    """Make ready what is kept for a relay, for any consumer, and forget the relay; reply: Count.

    Messages that the relay has published may then be in the world twice. Refused(relay_in_use)
    while the relay has a session, unless that of a node which is suspected. A relay that is not
    known has 0 messages.
    """

    relay: str


AnyRelayed: TypeAlias = EnqueueRelayed | ReleaseRelay
