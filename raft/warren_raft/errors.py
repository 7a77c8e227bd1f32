"""The tree of errors; the branch says which side must act.

`UsageError`: the caller. `PeerError`: another node. `StorageError`: the operator.
`Unavailable`: no one; try again later.
"""

from __future__ import annotations

from warren_raft.types import GroupId, NodeId


class RaftError(Exception):
    """The base of every error that this package raises for outside causes."""


class UsageError(RaftError):
    """The request is invalid; a retry will not help."""


class PeerError(RaftError):
    """Another node sent what no node of this version sends."""


class StorageError(RaftError):
    """The disk lost data or refuses a write; the operator must act."""


class Unavailable(RaftError):
    """The request is valid but cannot be served now; try again later."""


class NotLeader(Unavailable):
    """Only the leader can do that.

    leader  the node to ask instead; None while no leader is known
    """

    def __init__(self, group: GroupId, node: NodeId, leader: NodeId | None) -> None:
        self.group = group
        self.node = node
        self.leader = leader
        super().__init__(group, node, leader)

    def __str__(self) -> str:
        remedy = f"ask {self.leader}" if self.leader else "ask again when a leader is known"
        return f"group {self.group}: {self.node} is not the leader; {remedy}"


class TooManyReads(Unavailable):
    """The limit of pending read-index requests is reached."""

    def __init__(self, group: GroupId, limit: int) -> None:
        self.group = group
        self.limit = limit
        super().__init__(group, limit)

    def __str__(self) -> str:
        return (
            f"group {self.group}: {self.limit} reads wait already (reads_pending_max); "
            "ask again when one was answered"
        )


class MalformedMessage(PeerError):
    """Bytes from a peer that are not a Raft message."""

    def __init__(self, size: int, detail: str) -> None:
        self.size = size
        self.detail = detail
        super().__init__(size, detail)

    def __str__(self) -> str:
        return (
            f"{self.size} bytes from a peer are not a Raft message ({self.detail}); "
            "run the same version on every node"
        )


class MembershipRefused(UsageError):
    """A membership change that is not one safe step from the present membership.

    what    the change that was asked for, of `node`: "cannot add", …
    remedy  the reason, and what to do
    again   temporary: the same request may be granted later
    """

    def __init__(self, what: str, node: NodeId, remedy: str, again: bool = False) -> None:
        self.what = what
        self.node = node
        self.remedy = remedy
        self.again = again
        super().__init__(what, node, remedy, again)

    def __str__(self) -> str:
        return f"{self.what} {self.node}: {self.remedy}"
