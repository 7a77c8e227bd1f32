"""What a node does not take while its disk is far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren_raft.core.node import Node
from warren_raft.core.ready import Ready
from warren_raft.messages import AnyRaftMessage, Append, SnapshotChunk
from warren_raft.storage.wal import Wal

if TYPE_CHECKING:
    from warren_raft.runtime.group import Group

ToApply = list[tuple["Group", Ready]]


def without_entries(message: Append) -> Append:
    """It still says who leads, and where the logs agree."""
    return Append(
        message.group, message.sender, message.to, message.term, message.prev_index,
        message.prev_term, min(message.commit, message.prev_index),
    )  # fmt: skip


class DiskPace:
    """Bounds what waits in memory for a disk that is slow, or has no space.

    1. This leader's disk is full; two others have what it proposes.  2. It is committed, applied,
    answered: publishers go on.  3. What its own disk is to write grows without end. So while that
    is more than `bytes_max` nothing is applied: what is not applied is not answered, and what is
    not answered is bounded at those who sent it. Of other leaders nothing is taken that is to be
    written, as if it had been lost: they send it again. Who leads is learned all the same.
    """

    __slots__ = ("_bytes_max", "_late", "_wal")

    def __init__(self, wal: Wal, bytes_max: int) -> None:
        self._wal = wal
        self._bytes_max = bytes_max
        self._late: ToApply = []

    @property
    def behind(self) -> bool:
        """Nothing more should be taken."""
        return self._wal.backlog_bytes > self._bytes_max

    @property
    def waiting(self) -> bool:
        """Something is to be applied when the disk has caught up."""
        return bool(self._late)

    def admit(self, message: AnyRaftMessage, node: Node) -> AnyRaftMessage | None:
        """What is to be taken of a message, on a node that is behind; None: nothing."""
        if type(message) is SnapshotChunk:
            return None
        if type(message) is Append and message.entries:
            return None if node.leader == message.sender else without_entries(message)
        return message

    def ripe(self, to_apply: ToApply) -> ToApply:
        """What is to be applied now, in order; news of who leads does not wait."""
        if self._late:
            to_apply = self._late + to_apply
            self._late = []
        if self.behind and not any(ready.soft_state is not None for _, ready in to_apply):
            self._late = to_apply
            return []
        return to_apply
