"""The command by which a queue learns which of its messages a consumer's filter matches."""

from __future__ import annotations

import msgspec

from warren_wire.queue_values.command_base import QueueCommand, Reply


class Judged(msgspec.Struct, frozen=True, array_like=True):
    """What a filter says of the messages of a stretch of the log.

    filter  number of the filter in its queue
    after   the log index up to which it was judged before; another one: nothing is changed
    to      the log index up to which it is judged now
    whole   log indexes of the blocks of which every message matches, ascending
    parts   (log index, bits) of those of which some do: bit i of the little-endian number is set
            when the message with ordinal i matches
    """

    filter: int
    after: int
    to: int
    whole: tuple[int, ...] = ()
    parts: tuple[tuple[int, bytes], ...] = ()


class Judge(QueueCommand, frozen=True, array_like=True, tag="judge"):
    """Note which messages match the filters of consumers, as the leader has found.

    The queue's machine holds no message, and does not evaluate filters: so what a filter says of a
    message is the same on all members, whatever evaluates it there. A repeat is harmless.
    """

    judged: tuple[Judged, ...]


class NotYet(Reply, frozen=True, array_like=True, tag="not_yet"):
    """A drain of a consumer with a filter that has not been asked about all messages: ask again."""
