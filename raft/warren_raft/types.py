"""The basic values of the Raft implementation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec

LOG_NUMBER_MAX: Final = (1 << 63) - 1
"""Of an index, a term and a time: what reads bytes of a peer or a file refuses others."""
NodeId: TypeAlias = str
"""The name of a node, unique in its cluster, at most 255 bytes of UTF-8."""
GroupId: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""A replicated group; unsigned 64 bit. 0 is the cluster's metadata."""
MemberId: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""The identity of one node's log of a group, unsigned 64 bit.

0: a founding member's, on a disk that never held the group before. Else random bits, drawn when the
log was created empty in a group that existed on other nodes. A member that lost its disk returns
under another id, and is another voter.
"""
Term: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LOG_NUMBER_MAX)]
Index: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LOG_NUMBER_MAX)]
"""Position in a group's log; the first entry is 1, 0 stands before it."""
TimeMs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LOG_NUMBER_MAX)]
"""Milliseconds since the epoch."""

METADATA_GROUP: GroupId = 0


class EntryKind(IntEnum):
    """The kind of an entry; the value is stored on disk."""

    NOOP = 0  # a new leader's first entry
    COMMAND = 1  # for the machine
    CONFIG = 2  # a membership


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a group's log.

    time_ms  the leader's clock when it was proposed, milliseconds since the epoch;
             never below the time of the entry before it
    data     what the machine applies (COMMAND) or an encoded Membership (CONFIG)
    """

    index: Index
    term: Term
    kind: EntryKind
    time_ms: TimeMs
    data: bytes


@dataclass(frozen=True, slots=True)
class HardState:
    """The state that must be on disk before a reply based on it leaves (paper, figure 2)."""

    term: Term = 0
    vote: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of a group; all tuples sorted, voters and learners disjoint.

    ids  (node, member id) of every voter with an id other than 0; learners have none here
    """

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    ids: tuple[tuple[NodeId, MemberId], ...] = ()

    def __post_init__(self) -> None:
        assert list(self.voters) == sorted(set(self.voters)), self.voters
        assert list(self.learners) == sorted(set(self.learners)), self.learners
        assert not set(self.voters) & set(self.learners), (self.voters, self.learners)
        named = [node for node, _ in self.ids]
        assert named == sorted(set(named)), self.ids
        assert all(node in self.voters and member for node, member in self.ids), self.ids

    def id_of(self, node: NodeId) -> MemberId:
        """Return the id under which that node votes; also 0 for one that does not."""
        for voter, member in self.ids:
            if voter == node:
                return member
        return 0

    def votes(self, node: NodeId, member: MemberId) -> bool:
        """Return whether that node, under that id, is a voter."""
        return node in self.voters and self.id_of(node) == member

    def __contains__(self, node: NodeId) -> bool:
        return node in self.voters or node in self.learners


class MemberState(msgspec.Struct, frozen=True, array_like=True):
    """A member as its leader sees it.

    voter         it votes, or will once the change under way is committed; else a learner
    leader        it is the leader itself
    match         it holds everything up to there on disk; last: the end of the leader's log
    suspected  its node is unreachable
    snapshotting  it is being sent a snapshot
    lost          a voter that answers under another id: its log was lost, it does not count
    changing      its role in the group is not committed yet
    probing       its log's end is being determined: `match` is what it held before
    sent_bytes    of the snapshot that it is being sent, about; total_bytes: of all of it
    """

    node: NodeId
    voter: bool
    leader: bool
    match: Index
    last: Index
    suspected: bool = False
    snapshotting: bool = False
    lost: bool = False
    changing: bool = False
    probing: bool = False
    sent_bytes: int = 0
    total_bytes: int = 0
