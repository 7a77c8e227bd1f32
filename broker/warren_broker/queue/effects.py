"""What a queue may ask its leader to do."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from warren_broker.queue.commands import ConsumerId, Delivery, MsgIds, UplinkId


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag="deliver"):
    """Send these; a repeat is recognised by its msg_ids."""

    uplink: UplinkId
    consumer: ConsumerId
    deliveries: tuple[Delivery, ...]


class CancelConsumer(msgspec.Struct, frozen=True, array_like=True, tag="cancelled"):
    """Tell a consumer that it is one no longer (basic.cancel, or the channel's error).

    msg_ids  what it held too long and has lost, closed ranges; the rest stays its own
    """

    uplink: UplinkId
    consumer: ConsumerId
    reason: Literal["timeout", "deleted", "disconnected"]
    msg_ids: MsgIds = ()


class Drained(msgspec.Struct, frozen=True, array_like=True, tag="drained"):
    """A link's credit was given back."""

    uplink: UplinkId
    consumer: ConsumerId
    delivered: int


class SetTimer(msgspec.Struct, frozen=True, array_like=True, tag="timer"):
    """Propose `Timer` at that time (milliseconds since the epoch); the newest one counts."""

    at_ms: int


class DeadLetter(msgspec.Struct, frozen=True, array_like=True, tag="dead_letter"):
    """Publish these to the dead letter exchange, at most once; runs are (index, first, last)."""

    reason: Literal["rejected", "expired", "maxlen", "delivery_limit"]
    runs: tuple[tuple[int, int, int], ...]


class Expired(msgspec.Struct, frozen=True, array_like=True, tag="expired"):
    """Unused for longer than x-expires, or auto-delete without its last consumer: delete the queue.

    To be carried out as Delete(if_unused=True) first: a consumer may have joined meanwhile.
    """

    reason: Literal["expires", "auto_delete"]


AnyEffect: TypeAlias = Deliver | CancelConsumer | Drained | SetTimer | DeadLetter | Expired
