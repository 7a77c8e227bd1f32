"""The messages between the members of a group: one record per RPC.

A record is a MessagePack array whose first element names the kind. Every record carries its group,
so one connection per pair of nodes serves all groups.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from warren_raft.types import EntryKind, GroupId, Index, MemberId, NodeId, Term, TimeMs

WireEntry: TypeAlias = tuple[Term, EntryKind, TimeMs, bytes]
"""An entry inside Append: (term, kind, time_ms, data); its position gives its index."""
WireLive: TypeAlias = tuple[Index, Term, EntryKind, TimeMs, bytes]
"""An entry inside SnapshotChunk, where indexes have gaps: (index, term, kind, time_ms, data)."""


class RaftMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of all messages: the group, the sender, the receiver, and the sender's term."""

    group: GroupId
    sender: NodeId
    to: NodeId
    term: Term


class PreVote(RaftMessage, frozen=True, array_like=True, gc=False, tag="pv"):
    """A question whether the receiver would vote for the sender; changes nothing there.

    term    the one the sender would campaign in: its own + 1
    member  the id under which the receiver votes, as the sender knows it
    """

    last_index: Index
    last_term: Term
    member: MemberId = 0


class PreVoteReply(RaftMessage, frozen=True, array_like=True, gc=False, tag="pvr"):
    """Answer to PreVote.

    term  granted: the term asked for; refused: the voter's own
    """

    granted: bool


class Vote(RaftMessage, frozen=True, array_like=True, gc=False, tag="v"):
    """RequestVote (Raft paper, figure 2).

    member  the id under which the receiver votes, as the sender knows it: the node must not answer
            under another id
    asker   the sender's own id
    """

    last_index: Index
    last_term: Term
    member: MemberId = 0
    asker: MemberId = 0


class VoteReply(RaftMessage, frozen=True, array_like=True, gc=False, tag="vr"):
    """Answer to Vote; leaves after the vote is on disk.

    asker  as in the Vote: an answer to an earlier member id of the candidate does not count
    """

    granted: bool
    asker: MemberId = 0


class Append(RaftMessage, frozen=True, array_like=True, gc=False, tag="a"):
    """AppendEntries (Raft paper, figure 2); without entries: a probe, or a new commit index.

    commit  the leader's; the receiver takes min(commit, prev_index + len(entries))
    """

    prev_index: Index
    prev_term: Term
    commit: Index
    entries: tuple[WireEntry, ...] = ()

    def without_entries(self) -> Append:
        """Return it as a probe, which still names the leader and where the logs agree."""
        return replace(self, entries=(), commit=min(self.commit, self.prev_index))


class AppendReply(RaftMessage, frozen=True, array_like=True, gc=False, tag="ar"):
    """Answer to Append; leaves after everything it acknowledges is on disk.

    ok          True: the log matches the leader's up to `index` and is durable up to there
                False: there is no entry (index = prev_index, term = prev_term) here
    index       see above
    commit      what the sender knows to be committed
    hint_index  with ok False: the highest index that may match …
    hint_term   … and the term of the sender's entry there
    member      the sender's own id: the leader counts what is held under that id
    """

    ok: bool
    index: Index
    commit: Index
    hint_index: Index = 0
    hint_term: Term = 0
    member: MemberId = 0


class SnapshotChunk(RaftMessage, frozen=True, array_like=True, gc=False, tag="sc"):
    """A part of InstallSnapshot (Raft paper, figure 13); see core.snapshot_transfer.

    index, last_term  of the snapshot's last entry
    live_after        the live entries up to that index were sent before this chunk
    entries           live entries, ascending
    payload_from      offset of `payload`; -1: there is none
    payload_bytes     of the whole payload; with neither entries nor payload: an offer
    """

    index: Index
    last_term: Term
    live_after: Index
    entries: tuple[WireLive, ...]
    payload_from: int
    payload: bytes
    payload_bytes: int


class SnapshotWanted(RaftMessage, frozen=True, array_like=True, gc=False, tag="sw"):
    """Answer to SnapshotChunk: what is wanted next.

    repeat  the chunk was not the one wanted: continue from here

    last_term 0: not an answer. The sender cannot read entry `index`, and wants a snapshot that
    covers it; index 0: no longer.
    """

    index: Index
    last_term: Term
    live_after: Index
    payload_from: int
    repeat: bool


class TimeoutNow(RaftMessage, frozen=True, array_like=True, gc=False, tag="tn"):
    """The leader asks the receiver to campaign at once, without a pre-vote (thesis, 3.10).

    member  the id under which the receiver votes
    """

    member: MemberId = 0


class ReadIndexHeartbeat(RaftMessage, frozen=True, array_like=True, gc=False, tag="c"):
    """A leader's question whether it still leads, asked in rounds for reads (thesis, 6.4)."""

    round: int


class ReadIndexHeartbeatReply(RaftMessage, frozen=True, array_like=True, gc=False, tag="cr"):
    """A voter's confirmation, in `term`, of that round and every one before it.

    member  the sender's own id
    """

    round: int
    member: MemberId = 0


class ReadIndex(RaftMessage, frozen=True, array_like=True, gc=False, tag="ri"):
    """A follower's request for an index at which the read of `context` is current."""

    context: int


class ReadIndexReply(RaftMessage, frozen=True, array_like=True, gc=False, tag="rir"):
    """Answer to ReadIndex: the index that the follower must have applied before it reads."""

    context: int
    index: Index


class EntryWanted(RaftMessage, frozen=True, array_like=True, gc=False, tag="ew"):
    """A host's request for an entry that is damaged on its disk; the answer is EntryIs.

    entry_term  of the entry; 0: it is committed, the index alone names it
    """

    index: Index
    entry_term: Term


class EntryIs(RaftMessage, frozen=True, array_like=True, gc=False, tag="ei"):
    """Answer to EntryWanted; entry_term 0: the sender does not have it."""

    index: Index
    entry_term: Term
    kind: EntryKind
    time_ms: TimeMs
    data: bytes


AnyRaftMessage: TypeAlias = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | Append
    | AppendReply
    | SnapshotChunk
    | SnapshotWanted
    | TimeoutNow
    | ReadIndexHeartbeat
    | ReadIndexHeartbeatReply
    | ReadIndex
    | ReadIndexReply
    | EntryWanted
    | EntryIs
)
