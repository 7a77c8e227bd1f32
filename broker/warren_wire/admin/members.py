"""The nodes of a cluster and the members of its queues, and the requests for them.

The values are results of `cluster.membership.service.MemberService`. Units are in the names; names
of queues come with their vhost. The vhost of a request is the connection's, and patterns select
from all vhosts. What RabbitMQ has in its command line only (drain, revive, forget, leader transfer)
is named after its commands. Changes need the tag `administrator`; reads need `monitoring`, or for
one queue the permission to read it; the health check needs any tag, as in RabbitMQ.

Status 202 says that the operation was started and continues after the answer:
GET /queues/quorum/:queue/status or GET /nodes/:node shows its progress.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

import msgspec

from warren_wire.admin.requests import AdminRequest, NodeName, Result, checked_pattern, route, seen
from warren_wire.errors import InvalidArgument

T = TypeVar("T")

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


class MemberLog(msgspec.Struct, frozen=True):
    """How far a member's log is, as its own node says; each is the index of an entry.

    last_index       the last one; last_written: the last one on disk
    snapshot_index   0: there is no snapshot
    machine_version  by which the last command was applied
    """

    term: int
    last_index: int
    last_written: int
    last_applied: int
    commit_index: int
    snapshot_index: int
    machine_version: int


class MemberInfo(msgspec.Struct, frozen=True):
    """One member of a queue, as the queue's leader sees it.

    voter       counts for the majority
    match       the last entry it is known to hold; lag: number of the leader's entries it lacks
    sent_bytes, total_bytes  of the snapshot being sent; 0: none is
    log         where the queue's status was asked for; None: its node did not say
    """

    node: str
    role: Role
    state: MemberState
    voter: bool = False
    match: int = 0
    lag: int = 0
    sent_bytes: int = 0
    total_bytes: int = 0
    log: MemberLog | None = None


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


class QueueRecovered(QueueName, frozen=True):
    """A queue that one member continues alone.

    last      the last entry that it held
    given_up  the nodes of the other members
    """

    node: str
    last: int
    given_up: tuple[str, ...]


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
    metadata: Annotated[Role, seen(column=True)]
    members: Annotated[int, seen(column=True)]
    leaders: Annotated[int, seen(column=True)]
    local_queues: Annotated[int, seen(column=True)]
    moving: Annotated[int, seen(column=True)]
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


class Criticality(Result, frozen=True):
    """The result of a health check: 200 when the node may stop, else 503, as in RabbitMQ."""

    found: QuorumCritical


# ------------------------------------------------------------------ requests about members

MEMBERSHIPS = ("promotable",)
"""The supported ones of RabbitMQ's values; `voter` and `non_voter` are not."""
_QUEUE = "/queues/quorum/:queue"
_OF_VHOST = "/queues/quorum/:vhost/:queue"
_ON_NODE = "/queues/quorum/replicas/on/:node"
_CRITICAL = "/health/checks/node-is-quorum-critical"


def _check_membership(asked: str) -> None:
    """Refuse another membership than RabbitMQ's `promotable`: a learner, then a voter."""
    if asked not in MEMBERSHIPS:
        raise InvalidArgument(
            f"membership={asked[:40]!r}: a new member learns first, then becomes a voter by "
            "itself; leave membership out, or give 'promotable'"
        )


class MembersRequest(AdminRequest[T], Generic[T], frozen=True):
    """A request about the members of a queue."""

    queue: str


class GetMembersRequest(MembersRequest[QueueMembers], frozen=True):
    """Return a queue's members as the leader sees them, and its intended members; 404.

    Answer: QueueMembers, with role, entries behind, and bytes of a snapshot being sent.
    """

    ROUTES: ClassVar = (route(f"GET {_QUEUE}/status", http="/queues/:vhost/:queue/members"),)


class AddMemberRequest(MembersRequest[MembersChanged], frozen=True):
    """Add a member of the queue on the node: a learner, then a voter. A repeat is harmless.

    Answer: MembersChanged; 404; 409 for a queue on one node only (classic, exclusive, transient),
    and for a node that is down or drained.
    """

    ROUTES: ClassVar = (
        route(
            f"POST {_QUEUE}/replicas/add",
            "administrator",
            http=f"{_OF_VHOST}/replicas/add",
            status=202,
        ),
    )
    node: NodeName
    membership: str = "promotable"

    def checked(self) -> Self:
        """See the base class."""
        _check_membership(self.membership)
        return self


class DeleteMemberRequest(MembersRequest[MembersChanged], frozen=True):
    """Remove the queue's member from the node; a leader transfers its leadership first.

    A repeat is harmless. Answer: MembersChanged; 404; 409 for the last member, and if the majority
    would be lost.
    """

    ROUTES: ClassVar = (
        route(
            f"DELETE {_QUEUE}/replicas/delete",
            "administrator",
            body=True,
            http=f"{_OF_VHOST}/replicas/delete",
        ),
    )
    node: NodeName


class RecoverQueueRequest(MembersRequest[QueueRecovered], frozen=True):
    """Give up the members of a queue but one: it has lost its majority for good.

    The member on the node continues the queue with what it holds. What only the others held is
    lost, and they are refused if they return. Consumers are cancelled as by a deletion, and what
    they held is delivered again; claims stay. Answer: QueueRecovered; 404; 409 for a queue with a
    leader, or with a majority in reach, and if another member in reach holds more.

    node  the one that continues the queue
    """

    ROUTES: ClassVar = (
        route(f"POST {_QUEUE}/recover", "administrator", http=f"{_OF_VHOST}/recover"),
    )
    node: NodeName


class TransferLeadershipRequest(MembersRequest[LeaderMoved], frozen=True):
    """Transfer the leadership of a queue to its member on that node, and wait for it; 404, 409.

    Answer: LeaderMoved. Refused with 409: the member is behind.

    node  its name, as the list of nodes shows it
    """

    ROUTES: ClassVar = (
        route(
            f"POST {_QUEUE}/leader/transfer",
            "administrator",
            http=f"{_OF_VHOST}/leader/transfer",
            status=200,
            shows=True,
        ),
    )
    node: NodeName


class PatternsRequest(AdminRequest[T], Generic[T], frozen=True, kw_only=True):
    """A request about queues with matching names: regular expressions, found anywhere in them."""

    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"

    def checked(self) -> Self:
        """See the base class."""
        checked_pattern("vhost_pattern", self.vhost_pattern)
        checked_pattern("queue_pattern", self.queue_pattern)
        return self


class GrowNodeRequest(PatternsRequest[Resizing], frozen=True):
    """Add a member on the node to every matching quorum queue of all vhosts; 404, 409.

    Answer: Resizing.

    strategy  even: only queues with an even number of members
    """

    ROUTES: ClassVar = (
        route(f"POST {_ON_NODE}/grow", "administrator", http=True, status=200, shows=True),
    )
    node: NodeName
    strategy: Literal["all", "even"]
    membership: str = "promotable"

    def checked(self) -> Self:
        """See the base class."""
        _check_membership(self.membership)
        return super().checked()


class ShrinkNodeRequest(AdminRequest[Resizing], frozen=True):
    """Remove the members of all quorum queues from the node; failures are named; 404.

    Answer: Resizing.

    errors_only  name only the failures
    """

    ROUTES: ClassVar = (
        route(
            f"DELETE {_ON_NODE}/shrink",
            "administrator",
            body=True,
            http=True,
            status=200,
            shows=True,
        ),
    )
    node: NodeName
    errors_only: bool = False


class RebalanceQueuesRequest(PatternsRequest[Rebalanced], frozen=True):
    """Move leaders until no node leads more of the matching quorum queues than it must.

    A repeated call moves what has not moved. Answer: Rebalanced.
    """

    ROUTES: ClassVar = (route("POST /rebalance/queues", "administrator", http=True),)


# ------------------------------------------------------------------ requests about nodes


class NodeRequest(AdminRequest[T], Generic[T], frozen=True):
    """A request about one node.

    node  its name, as the list of nodes shows it
    """

    node: NodeName


class ListNodesRequest(AdminRequest[tuple[NodeInfo, ...]], frozen=True):
    """Return all nodes of the cluster, by name. Answer: Listed (NodeInfo)."""

    ROUTES: ClassVar = (route("GET /nodes", "monitoring"),)


class GetNodeRequest(NodeRequest[NodeStatus], frozen=True):
    """Return one node with the operations in progress on it; 404. Answer: NodeStatus."""

    ROUTES: ClassVar = (route("GET /nodes/:node", "monitoring"),)


class DrainNodeRequest(NodeRequest[NodeStatus], frozen=True):
    """Put the node into maintenance: no clients, no leaders, no new members; 404, 409.

    Until it is revived, or until it restarts. Answer: NodeStatus.
    """

    ROUTES: ClassVar = (route("POST /nodes/:node/drain", "administrator", http=True, shows=True),)


class ReviveNodeRequest(NodeRequest[NodeStatus], frozen=True):
    """End the node's maintenance; a rebalancing gives it leaders again. Answer: NodeStatus.

    Refused: 404, 409.
    """

    ROUTES: ClassVar = (route("POST /nodes/:node/revive", "administrator", http=True, shows=True),)


class ForgetNodeRequest(NodeRequest[Forgetting], frozen=True):
    """Remove the node from the cluster permanently; 404; 409 while it runs. Answer: Forgetting.

    Quorum queues remove their member there; queues that were only on it are deleted, and named in
    the answer. Its data directory can never join this cluster again.
    """

    ROUTES: ClassVar = (route("DELETE /nodes/:node", "administrator", http=True),)


class CheckQuorumCriticalRequest(AdminRequest[QuorumCritical], frozen=True):
    """Return what would lose its majority if the node stopped. Answer: QuorumCritical; 404.

    node  None: the one that answers. The only node of a cluster is safe, as in RabbitMQ
    """

    ROUTES: ClassVar = (
        route(f"GET {_CRITICAL}/:node", "management"),
        route(f"GET {_CRITICAL}", "management", http=True),
    )
    node: NodeName | None = None
