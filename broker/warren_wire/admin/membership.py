"""The values that describe the nodes of a cluster and the members of its queues.

Pure values: results of `cluster.membership.service.MemberService`, shown by `/management` and the
CLI. Units are in the names; names of queues come with their vhost.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["leader", "follower", "learner", "none"]
"""The role in the queue's Raft group; none: not a member now."""
MemberState: TypeAlias = Literal[
    "running", "down", "starting", "catching_up", "snapshot", "lost", "leaving", "unknown"
]
"""running      up to date, or nearly
down         suspected, or never reached
starting     to be added: not in the group's configuration yet
catching_up  a learner that receives missing entries, to be promoted then
snapshot     the same, by a snapshot
lost         a voter with a new, empty disk: Raft replaces it without a command
leaving      to be removed: still in the group's configuration
unknown      the queue has no reachable leader
"""


class QueueName(msgspec.Struct, frozen=True):
    """The name of a queue, which every value about one begins with."""

    vhost: str
    name: str


class MemberInfo(msgspec.Struct, frozen=True):
    """One member of a queue, as the queue's leader sees it.

    voter       counts for the majority
    match       the last entry it is known to hold; lag: number of the leader's entries it lacks
    sent_bytes, total_bytes  of the snapshot being sent; 0: none is
    """

    node: str
    role: Role
    state: MemberState
    voter: bool = False
    match: int = 0
    lag: int = 0
    sent_bytes: int = 0
    total_bytes: int = 0


class QueueMembers(QueueName, frozen=True):
    """A queue's present members (`members`, sorted by node) and the wanted ones (`wanted`).

    leader        None: it has none, or none is reachable
    settled       the group's voters are exactly the wanted ones, and those are what the mirror
                  policy asks for that they follow
    online        nodes with a member that is reachable
    synchronised  those of them that hold everything, as the leader sees them: they count for the
                  majority
    following     the mirror policy: its name and what it asks for; "": none
    """

    kind: str
    leader: str | None
    term: int
    last_index: int
    commit_index: int
    members: tuple[MemberInfo, ...]
    wanted: tuple[str, ...]
    settled: bool
    online: tuple[str, ...] = ()
    synchronised: tuple[str, ...] = ()
    following: str = ""


class MembersChanged(QueueName, frozen=True):
    """The members that a queue is to have; `queue_status` shows the progress.

    changed  False: they were the same before (as in RabbitMQ, that is not an error)
    remark   what a removal costs, where no member may fail any more; "": nothing of that kind
    """

    wanted: tuple[str, ...]
    changed: bool
    remark: str = ""


class Resized(QueueName, frozen=True):
    """The result for one queue of growing or shrinking a node.

    size    number of members wanted now (with `error`: of the unchanged queue)
    error   why it was not changed; "": it was
    remark  as of MembersChanged
    """

    size: int
    error: str = ""
    remark: str = ""


class Resizing(msgspec.Struct, frozen=True):
    """The changes begun by growing or shrinking a node; `node_status` shows the progress.

    queues  in an answer at most SHOWN_MAX of them, those with an error first
    count   number of all of them; failed: of those with an error. Set in answers
    """

    node: str
    queues: tuple[Resized, ...]
    count: int = 0
    failed: int = 0


class LeaderMoved(QueueName, frozen=True):
    """The queue's present leader; moved: False when it led before."""

    leader: str
    moved: bool


class NodeLeaders(msgspec.Struct, frozen=True):
    """Number of the queues concerned that a node leads, or will lead after the moves."""

    node: str
    queues: int


class LeaderMove(QueueName, frozen=True):
    """A planned leadership transfer of a queue."""

    source: str
    target: str


class Rebalanced(msgspec.Struct, frozen=True):
    """The moves begun by a rebalancing, and the leaders per node when all are done.

    moves  in an answer at most SHOWN_MAX of them
    count  number of all of them. Set in answers
    """

    moves: tuple[LeaderMove, ...]
    leaders: tuple[NodeLeaders, ...]
    count: int = 0


class NodeInfo(msgspec.Struct, frozen=True):
    """One node of the cluster.

    address      where its peers reach it
    running      reachable now; drained: in maintenance; forgetting: being removed from the cluster
    metadata     its role in the group of the cluster's definitions
    members      quorum queues with a present or wanted member on it
    leaders      queues that it leads, as far as the answering node knows
    local_queues queues on this node alone (classic, exclusive, transient)
    moving       quorum queues with a member on it that is being added or removed
    alarms       resources that it is low on: "disk", "memory"
    """

    name: str
    address: str
    running: bool
    drained: bool
    forgetting: bool
    metadata: Role
    members: int
    leaders: int
    local_queues: int
    moving: int
    alarms: tuple[str, ...] = ()


class Moving(QueueName, frozen=True):
    """A queue with a member on the node that is being added or removed; see `MemberInfo`."""

    member: MemberInfo


class NodeStatus(msgspec.Struct, frozen=True):
    """A node with the changes in progress on it.

    moving  at most MOVING_SHOWN_MAX; `node.moving` is the number of all
    done    nothing is in progress: growing, shrinking, draining or reviving is complete
    """

    node: NodeInfo
    moving: tuple[Moving, ...]
    done: bool


SHOWN_MAX = 1000
"""Queues named in one answer: Proton's AMQP values hold 65,535 parts at most."""
MOVING_SHOWN_MAX = 100
"""Queues named in a NodeStatus."""


class Forgetting(msgspec.Struct, frozen=True):
    """A node being removed for good; it has left when `nodes` no longer contains it.

    queues  quorum queues that give up their member there
    lost    (vhost, name) of the queues on that node alone, which are deleted; in an answer at most
            SHOWN_MAX of them
    lost_count  number of all of them. Set in answers
    """

    node: str
    queues: int
    lost: tuple[tuple[str, str], ...]
    lost_count: int = 0


class QuorumCritical(msgspec.Struct, frozen=True):
    """The groups that would lose their majority if that node stopped.

    metadata  the group of the cluster's definitions would
    queues    these would, at most CRITICAL_SHOWN_MAX of them, in the order of declaration
    count     number of all of them
    safe      none would: the node may be stopped
    """

    node: str
    metadata: bool
    queues: tuple[QueueName, ...]
    count: int

    @property
    def safe(self) -> bool:
        """Whether the node can stop without making a group unavailable."""
        return not self.metadata and not self.count


CRITICAL_SHOWN_MAX = 1000
"""Queues named in a QuorumCritical."""
