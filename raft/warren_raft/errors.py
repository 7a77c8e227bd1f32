"""The tree of errors; the branch says which side must act.

`UsageError`: the caller. `PeerError`: another node. `StorageError`: the operator.
`Unavailable`: no one; try again later.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren_raft.types import GroupId, NodeId


class RaftError(Exception):
    """The base of every error that this package raises for outside causes.

    One with fields is a dataclass; it compares, hashes and prints as any exception does.
    """


class UsageError(RaftError):
    """The request is invalid; a retry will not help."""


class PeerError(RaftError):
    """Another node sent what no node of this version sends."""


@dataclass(eq=False, repr=False)
class ImpossibleMessage(PeerError):
    """A message that no member sends while Raft holds: it is dropped, with its connection."""

    group: GroupId
    sender: NodeId
    what: str

    def __str__(self) -> str:
        return (
            f"group {self.group}: node {self.sender} {self.what}; look for two processes with "
            "copies of one data directory, or a node with a directory that is not its own"
        )


class StorageError(RaftError):
    """The disk lost data or refuses a write; the operator must act."""


class Unavailable(RaftError):
    """The request is valid but cannot be served now; try again later."""


@dataclass(eq=False, repr=False)
class NotLeader(Unavailable):
    """Only the leader can do that.

    leader  the node to ask instead; None while no leader is known
    """

    group: GroupId
    node: NodeId
    leader: NodeId | None

    def __str__(self) -> str:
        remedy = f"ask {self.leader}" if self.leader else "ask again when a leader is known"
        return f"group {self.group}: {self.node} is not the leader; {remedy}"


@dataclass(eq=False, repr=False)
class TooManyReads(Unavailable):
    """The limit of pending read-index requests is reached."""

    group: GroupId
    limit: int

    def __str__(self) -> str:
        return (
            f"group {self.group}: {self.limit} reads wait already (reads_pending_max); "
            "ask again when one was answered"
        )


@dataclass(eq=False, repr=False)
class MembershipRefused(UsageError):
    """A membership change that is not one safe step from the present membership.

    what    the change that was asked for, of `node`: "cannot add", …
    remedy  the reason, and what to do
    """

    what: str
    node: NodeId
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {self.node}: {self.remedy}"
