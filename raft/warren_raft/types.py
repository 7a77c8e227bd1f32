"""The values that every part of the Raft implementation speaks in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

NodeId: TypeAlias = str
"""The name of a node, unique in its cluster, at most 255 bytes of UTF-8."""
GroupId: TypeAlias = int
"""A replicated group; unsigned 64 bit. 0 is the cluster's metadata."""
Term: TypeAlias = int
Index: TypeAlias = int
"""Position in a group's log; the first entry is 1, 0 stands before it."""

METADATA_GROUP: GroupId = 0


class EntryKind(IntEnum):
    """What an entry is for; the value is what stands on disk."""

    NOOP = 0  # a new leader's first entry
    COMMAND = 1  # for the machine
    CONFIG = 2  # a membership


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a group's log.

    time_ms  the leader's clock when it was proposed, milliseconds since the epoch;
             never below the time of the entry before it
    data     what the machine applies (COMMAND) or an encoded Membership (CONFIG)
    """

    index: Index
    term: Term
    kind: EntryKind
    time_ms: int
    data: bytes


@dataclass(frozen=True, slots=True)
class HardState:
    """What must be on disk before a reply that rests on it leaves (Raft paper, figure 2)."""

    term: Term = 0
    vote: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Membership:
    """Who is in a group; both tuples sorted, disjoint."""

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()

    def __post_init__(self) -> None:
        assert list(self.voters) == sorted(set(self.voters)), self.voters
        assert list(self.learners) == sorted(set(self.learners)), self.learners
        assert not set(self.voters) & set(self.learners), (self.voters, self.learners)
