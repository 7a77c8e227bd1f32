"""The side effects that a queue asks its leader to carry out."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from warren_machines.queue.commands import ConsumerId, Delivery, MsgIds, Pairs, UplinkId

DeathReason: TypeAlias = Literal["rejected", "expired", "maxlen", "delivery_limit"]


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag="deliver"):
    """Send these deliveries; the node recognises a repeat by its msg_ids."""

    uplink: UplinkId
    consumer: ConsumerId
    deliveries: tuple[Delivery, ...]


class CancelConsumer(msgspec.Struct, frozen=True, array_like=True, tag="cancelled"):
    """Tell a consumer that the queue cancelled it (basic.cancel, or the channel's error).

    msg_ids  what it held too long and has lost, closed ranges; it keeps the rest
    """

    uplink: UplinkId
    consumer: ConsumerId
    reason: Literal["timeout", "deleted", "disconnected"]
    msg_ids: MsgIds = ()


class ActiveIs(msgspec.Struct, frozen=True, array_like=True, tag="active"):
    """Tell a link whether its consumer is the queue's single active one.

    index  of the entry that says so: what a later one says counts
    """

    uplink: UplinkId
    consumer: ConsumerId
    active: bool
    index: int


class SetTimer(msgspec.Struct, frozen=True, array_like=True, tag="timer"):
    """Propose `Timer` at that time (milliseconds since the epoch); the newest one counts."""

    at_ms: int


class DeadLetter(msgspec.Struct, frozen=True, array_like=True, tag="dead_letter"):
    """Publish messages to the dead letter exchange, at most once; runs are (index, first, last).

    delivery_count  failed deliveries of each of them, which the dead letter shows
    annotations     (index, ordinal, annotations) of those that consumers have annotated
    """

    reason: DeathReason
    runs: tuple[tuple[int, int, int], ...]
    delivery_count: int = 0
    annotations: tuple[tuple[int, int, Pairs], ...] = ()


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag="dropped"):
    """Count messages that died in a queue without a dead letter exchange; died: by reason."""

    died: tuple[tuple[DeathReason, int], ...]


class LettersDue(msgspec.Struct, frozen=True, array_like=True, tag="letters"):
    """Forward the dead letters that the queue keeps (`letter_queue`): there are new ones.

    died     those of this entry, by reason
    changed  the settings were replaced: what was refused or not routed may have another way now
    """

    died: tuple[tuple[DeathReason, int], ...] = ()
    changed: bool = False


class LettersGone(msgspec.Struct, frozen=True, array_like=True, tag="letters_gone"):
    """Note that letters have left the queue.

    dropped  the queue was purged, or keeps none any more; False: they have been forwarded
    """

    messages: int
    size_bytes: int
    dropped: bool = False


ExpiryReason: TypeAlias = Literal["expires", "auto_delete", "disconnected", "deleted"]


class Expired(msgspec.Struct, frozen=True, array_like=True, tag="expired"):
    """Delete the queue: unused for longer than x-expires, or auto-delete without consumers.

    The leader uses Delete(if_unused=True): a consumer may have joined in the meantime.

    reason  "disconnected": auto-delete, and the last consumer was lost with its node, or this is a
            new leader, which cannot know; "deleted": Delete was applied, and the definitions are to
            forget the queue
    """

    reason: ExpiryReason


class FiltersBehind(msgspec.Struct, frozen=True, array_like=True, tag="filters"):
    """Judge messages by the filters of consumers, and propose `Judge`; see `Filters.wait`."""


class JobsDue(msgspec.Struct, frozen=True, array_like=True, tag="jobs"):
    """Carry on the queue's jobs: one has begun, or has changed."""


AnyEffect: TypeAlias = (
    Deliver
    | CancelConsumer
    | ActiveIs
    | SetTimer
    | DeadLetter
    | Dropped
    | LettersDue
    | LettersGone
    | Expired
    | FiltersBehind
    | JobsDue
)
