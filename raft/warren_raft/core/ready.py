"""`Ready`: the work that a node hands to its host."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from warren_raft.messages import AnyRaftMessage, SnapshotChunk, SnapshotWanted
from warren_raft.types import Entry, HardState, Index, NodeId, Term


class Role(IntEnum):
    """A member's present role."""

    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class SoftState(msgspec.Struct, frozen=True, gc=False):
    """The role and the leader, as far as this member knows; never written to disk."""

    role: Role
    leader: NodeId | None
    term: Term


class ReadState(msgspec.Struct, frozen=True, gc=False):
    """The answer to `Node.read_index`.

    index  read when at least this much is applied; None: leadership was lost, ask again
    """

    context: int
    index: Index | None


class Ready(msgspec.Struct, frozen=True):
    """The host's next work, in this order where an order is given.

    A host that takes a Ready must carry it out: the next `ready()` does not repeat it, and may be
    called before the write of this one is done. Writes of one group are carried out in the order in
    which their Readys were taken.

    sequence             numbers the writes of this group: `durable(sequence)` says that this
                         Ready's hard_state and entries, with those of all before it, are on disk.
                         A Ready with nothing to write bears the number of the last one that had
                         (0: none)
    hard_state           write and sync before messages_after_sync leave; None: unchanged
    entries              append to the log, replacing everything from entries[0].index on
    messages             may leave at once: the leader's appends, in parallel with its own write
    messages_after_sync  leave once everything up to `sequence` is on disk: votes, requests for
                         them, append replies. With nothing to write and all earlier writes done
                         (`node.synced >= ready.sequence`): at once
    committed            apply in this order; each index is handed out once in an incarnation. They
                         are on a majority's disks but perhaps not yet on this one's: safe, because
                         what is applied is in memory and is rebuilt from the log after a crash,
                         and a committed entry is never truncated
    reads                answers to read_index
    soft_state           None: unchanged; else act on it after `committed` is applied
    snapshots            members with a next entry that the log no longer has: send them a snapshot
                         (core.snapshot_transfer); each is named once, and again after it was
                         unreachable
    chunks               parts of a snapshot for this member, and answers to its own, in order
    """

    sequence: int
    hard_state: HardState | None
    entries: tuple[Entry, ...]
    messages: tuple[AnyRaftMessage, ...]
    messages_after_sync: tuple[AnyRaftMessage, ...]
    committed: tuple[Entry, ...]
    reads: tuple[ReadState, ...]
    soft_state: SoftState | None
    snapshots: tuple[NodeId, ...] = ()
    chunks: tuple[SnapshotChunk | SnapshotWanted, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether there is anything to put on disk."""
        return self.hard_state is not None or bool(self.entries)
