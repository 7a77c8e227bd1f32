"""What a node does not take while its disk is far behind."""

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
"""Answers of one group that wait for the disk; what would add to them counts as lost."""

ToApply = list[tuple["Group", Ready]]


class DiskBackpressure:
    """Bounds what waits in memory for a disk that is slow, or has no space.

    1. This leader's disk is full; two others have what it proposes.  2. It is committed, applied,
    answered: publishers continue.  3. What its own disk is to write grows without end. So while
    that is over `bytes_max` nothing is applied: what is not applied is not answered, and what is
    not answered is bounded at its senders. Of other leaders nothing is taken that is to be
    written, as if it had been lost: they send it again. The leader is learned all the same.
    """

    __slots__ = ("_bytes_max", "_late", "_place", "_tell", "_wal")

    def __init__(self, wal: Wal, bytes_max: int, place: Path, tell: Callable[[bool], None]) -> None:
        """place: what to free space in; tell: hears that there is none, and that there is again."""
        self._wal = wal
        self._bytes_max = bytes_max
        self._place = place
        self._tell = tell
        self._late: ToApply = []
        wal.on_full = self._full

    def _full(self, error: OSError | None) -> None:
        if error is None:
            log.warning("%s: there is space again: what waited is on disk", self._place)
        else:
            log.error(
                "no space for the log in %s (%s); nothing that rests on this disk leaves until "
                "there is. Free some: it goes on by itself",
                self._place,
                error.strerror,
            )
        self._tell(error is not None)

    @property
    def behind(self) -> bool:
        """Nothing more should be taken."""
        return self._wal.backlog_bytes > self._bytes_max

    @property
    def waiting(self) -> bool:
        """Something is to be applied when the disk has caught up."""
        return bool(self._late)

    def admit(self, message: AnyRaftMessage, group: Group) -> AnyRaftMessage | None:
        """What is to be taken of a message; None: nothing of it, for now."""
        # A leader repeats itself for as long as it is not answered, a disk may hang for a day.
        if len(group.after_sync) >= ANSWERS_MAX:
            return None
        if not self.behind:
            return message
        node = group.node
        if type(message) is SnapshotChunk:
            return None
        if type(message) is Append and message.entries:
            return None if node.leader == message.sender else message.without_entries()
        return message

    def put_off(self, to_apply: ToApply) -> None:
        """That was ripe, and comes first when `ripe` is asked again."""
        assert not self._late, len(self._late)
        self._late = to_apply

    def ripe(self, to_apply: ToApply) -> ToApply:
        """What is to be applied now, in order; news of the leader does not wait."""
        if self._late:
            to_apply = self._late + to_apply
            self._late = []
        if self.behind and not any(ready.soft_state is not None for _, ready in to_apply):
            self._late = to_apply
            return []
        return to_apply
