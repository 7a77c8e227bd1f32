"""The values that show the nodes of a cluster and the members of its queues.

Pure values: results of `cluster.membership.service.MemberService`, shown by `/management` and by
the CLI.
Units are in the names; names of queues come with their vhost.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["leader", "follower", "learner", "none"]
"""In the queue's Raft group; none: not (yet, or any longer) a member of it."""
MemberState: TypeAlias = Literal[
    "running", "down", "starting", "catching_up", "snapshot", "lost", "leaving", "unknown"
]
"""running      in step, or nearly
down         suspected, or never reached
starting     to be added: not in the group's configuration yet
catching_up  a learner that receives the entries it lacks and is promoted then
snapshot     the same, by a snapshot
lost         a voter whose disk is another one than before: Raft replaces it without a command
leaving      to be removed: still in the group's configuration
unknown      the queue has no leader that could tell
"""


class MemberInfo(msgspec.Struct, frozen=True):
    """One member of a queue, as the queue's leader sees it.

    voter       counts for the majority
    match       the last entry it is known to hold; lag: how many of the leader's it lacks
    sent_bytes, total_bytes  of the snapshot that is on its way; 0: none is
    """

    node: str
    role: Role
    state: MemberState
    voter: bool = False
    match: int = 0
    lag: int = 0
    sent_bytes: int = 0
    total_bytes: int = 0


class QueueMembers(msgspec.Struct, frozen=True):
    """A queue's members now (`members`, sorted by node) against those it is to have (`wanted`).

    leader    None: it has none, or none is reachable
    settled   the group's voters are exactly the wanted ones
    """

    vhost: str
    name: str
    kind: str
    leader: str | None
    term: int
    last_index: int
    commit_index: int
    members: tuple[MemberInfo, ...]
    wanted: tuple[str, ...]
    settled: bool


class MembersChanged(msgspec.Struct, frozen=True):
    """What a queue's members are to be from now on; `queue_status` shows how far that is.

    changed  False: they were so already (as in RabbitMQ, that is no error)
    """

    vhost: str
    name: str
    wanted: tuple[str, ...]
    changed: bool


class Resized(msgspec.Struct, frozen=True):
    """One queue's part in growing or shrinking a node.

    size   members that it is to have now (with `error`: still has)
    error  why it was left as it is; "": it was changed
    """

    vhost: str
    name: str
    size: int
    error: str = ""


class Resizing(msgspec.Struct, frozen=True):
    """What growing or shrinking a node has begun; `node_status` shows how far it is.

    queues  on the wire at most SHOWN_MAX of them, those with an error first
    count   how many they are in all; failed: how many of these have an error. Set on the wire
    """

    node: str
    queues: tuple[Resized, ...]
    count: int = 0
    failed: int = 0


class LeaderMoved(msgspec.Struct, frozen=True):
    """Who leads the queue now; moved: False when it did so before."""

    vhost: str
    name: str
    leader: str
    moved: bool


class NodeLeaders(msgspec.Struct, frozen=True):
    """How many of the queues concerned a node leads (or is to lead, once they have moved)."""

    node: str
    queues: int


class LeaderMove(msgspec.Struct, frozen=True):
    """A queue that is to have another leader."""

    vhost: str
    name: str
    source: str
    target: str


class Rebalanced(msgspec.Struct, frozen=True):
    """What rebalancing has begun: the moves, and how leaders lie when all are done.

    moves  on the wire at most SHOWN_MAX of them
    count  how many they are in all. Set on the wire
    """

    moves: tuple[LeaderMove, ...]
    leaders: tuple[NodeLeaders, ...]
    count: int = 0


class NodeInfo(msgspec.Struct, frozen=True):
    """One node of the cluster.

    address      where its peers reach it
    running      reachable now; drained: in maintenance; forgetting: on its way out of the cluster
    metadata     its part in the group of the cluster's definitions
    members      quorum queues that have, or are to have, a member on it
    leaders      queues that it leads, as far as the asked node has heard
    local_queues queues that live on this node alone (classic, exclusive, transient)
    moving       quorum queues with a member on it that is being added or removed
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


class Moving(msgspec.Struct, frozen=True):
    """A queue with a member on the node that is being added or removed; see `MemberInfo`."""

    vhost: str
    name: str
    member: MemberInfo


class NodeStatus(msgspec.Struct, frozen=True):
    """A node with what is under way on it.

    moving  at most MOVING_SHOWN_MAX; `node.moving` is their true number
    done    nothing is under way: it was grown, shrunk, drained or revived to the end
    """

    node: NodeInfo
    moving: tuple[Moving, ...]
    done: bool


SHOWN_MAX = 1000
"""Queues named in one answer: an AMQP value as Proton has it holds 65,535 parts at most."""
MOVING_SHOWN_MAX = 100
"""Queues named in a NodeStatus."""


class Forgetting(msgspec.Struct, frozen=True):
    """A node that is leaving for good; it is gone when `nodes` shows it no longer.

    queues  quorum queues that give up their member there
    lost    (vhost, name) of the queues that lived on it alone: they are deleted. On the wire at
            most SHOWN_MAX of them
    lost_count  how many they are in all. Set on the wire
    """

    node: str
    queues: int
    lost: tuple[tuple[str, str], ...]
    lost_count: int = 0


class QueueName(msgspec.Struct, frozen=True):
    """A queue."""

    vhost: str
    name: str


class QuorumCritical(msgspec.Struct, frozen=True):
    """Who would be without a majority if that node stopped.

    metadata  the group of the cluster's definitions would
    queues    these would, at most CRITICAL_SHOWN_MAX of them, in the order of declaration
    count     how many
    safe      none would: the node may be stopped
    """

    node: str
    metadata: bool
    queues: tuple[QueueName, ...]
    count: int

    @property
    def safe(self) -> bool:
        """Nothing would be lost to reach."""
        return not self.metadata and not self.count


CRITICAL_SHOWN_MAX = 1000
"""Queues named in a QuorumCritical."""
