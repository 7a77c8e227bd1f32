"""The tree of errors: which branch says what must be done by which side.

`UsageError`: you, the caller. `PeerError`: another node. `StorageError`: the operator.
`Unavailable`: nobody, try again later.
"""

from __future__ import annotations

from warren_raft.types import GroupId, NodeId


class RaftError(Exception):
    """The parent of everything that this package raises about the world."""


class UsageError(RaftError):
    """The caller asked for what cannot be; asking again will not help."""


class PeerError(RaftError):
    """Another node sent what no node of this version sends."""


class StorageError(RaftError):
    """The disk does not hold, or does not take, what it must; the operator acts."""


class Unavailable(RaftError):
    """Not now: nothing is wrong with the request, try again later."""


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
    """The bound on read-index requests that wait for their round was reached."""

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
    """A change of members that is not one safe step from the members there are.

    what    the change that was asked for, of `node`: "cannot add", …
    remedy  why not, and what to do
    again   only the moment is wrong: the same request may be granted later
    """

    def __init__(self, what: str, node: NodeId, remedy: str, again: bool = False) -> None:
        self.what = what
        self.node = node
        self.remedy = remedy
        self.again = again
        super().__init__(what, node, remedy, again)

    def __str__(self) -> str:
        return f"{self.what} {self.node}: {self.remedy}"
