"""Backpressure while this node's disk is far behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from warren_raft.core.ready import Ready
from warren_raft.messages import AnyRaftMessage, Append, SnapshotChunk
from warren_raft.storage.wal import Wal

if TYPE_CHECKING:
    from warren_raft.runtime.group import Group

log = logging.getLogger("warren.raft")

ANSWERS_MAX = 4_096
"""Answers of one group that wait for the disk; messages that would add one are dropped."""

ToApply = list[tuple["Group", Ready]]


def report_full(place: Path, tell: Callable[[bool], None], error: OSError | None) -> None:
    """Log that there is no space in `place`, and call `tell`; None: there is space again."""
    if error is None:
        log.warning("%s: there is space again: the pending writes are on disk", place)
    else:
        log.error(
            "no space for the log in %s (%s): votes and acknowledgements wait. "
            "Free space: the node continues by itself",
            place,
            error.strerror,
        )
    tell(error is not None)


class DiskBackpressure:
    """A bound on what waits in memory for a disk that is slow, or has no space.

    1. This leader's disk is full; two others have its entries.  2. They are committed, applied and
    answered: publishers continue.  3. The backlog of its own disk grows without bound. So while
    that is over `bytes_max` nothing is applied: what is not applied is not answered, and senders
    bound what is not answered. Entries of other leaders are dropped as if they had been lost: they
    are sent again. The leader is still learned from the message.

    late  what waits to be applied, until the disk has caught up or the next turn
    """

    __slots__ = ("_bytes_max", "_wal", "late")

    def __init__(self, wal: Wal, bytes_max: int) -> None:
        self._wal = wal
        self._bytes_max = bytes_max
        self.late: ToApply = []

    def admit(self, message: AnyRaftMessage, group: Group) -> AnyRaftMessage | None:
        """Return the part of a message to process now; None: drop it."""
        # A leader repeats a message until it is answered, and a disk may hang for a day.
        if len(group.after_sync) >= ANSWERS_MAX:
            return None
        kind = type(message)
        quick = self._wal.backlog_bytes <= self._bytes_max
        if (kind is not Append and kind is not SnapshotChunk) or quick:
            return message
        if not isinstance(message, Append):
            return None
        if message.entries:
            return None if group.node.leader == message.sender else message.without_entries()
        return message

    def put_off(self, to_apply: ToApply) -> None:
        """Put back what `ripe` returned; it comes first at the next call."""
        assert not self.late, len(self.late)
        self.late = to_apply

    def ripe(self, to_apply: ToApply) -> ToApply:
        """Return what to apply now, in order; a change of leader does not wait."""
        if self.late:
            to_apply = self.late + to_apply
            self.late = []
        behind = self._wal.backlog_bytes > self._bytes_max
        if behind and not any(ready.soft_state is not None for _, ready in to_apply):
            self.late = to_apply
            return []
        return to_apply
