"""Operations on the nodes of a cluster, with the members of its queues.

The values are the broker's own (`warren_wire.admin.members`). A call starts a long
operation, which continues in the cluster without the caller: `wait` waits for its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from warren.calls import AdminCalls, call
from warren.errors import (
    Conflict,
    NoNodeReached,
    NotFound,
    StillUnderWay,
    Unavailable,
    UsageError,
)
from warren.waiting import until
from warren_wire.admin import members as m
from warren_wire.admin.members import (
    Forgetting,
    MemberInfo,
    MembersChanged,
    NodeStatus,
    QueueMembers,
    QuorumCritical,
    Rebalanced,
    Resizing,
)
from warren_wire.admin.requests import AdminRequest

T = TypeVar("T")
QueueProgress: TypeAlias = Callable[[QueueMembers], None] | None
NodeProgress: TypeAlias = Callable[[NodeStatus], None] | None


class LongCalls(AdminCalls):
    """Calls for nodes and the members of queues.

    Changes need the tag `administrator`, reads the tag `monitoring`. Each call raises NotFound (no
    such queue, no such node), Conflict (refused, with the reason and the remedy), AccessRefused,
    Unavailable. Calls that start a long operation have the parameters

    wait      seconds until it must be done, more than 0; None: do not wait. Raises StillUnderWay,
              which says what is missing, when it takes longer: the operation continues
    progress  called with the observed state, at least once, about once a second while waiting
    """

    def _began(self, request: AdminRequest[T], wait: float | None) -> T:
        """Begin a long operation; raises UsageError for a wait that is none."""
        if wait is not None and not wait > 0:
            raise UsageError(f"wait={wait!r}: seconds, more than 0; None: do not wait")
        return self.ask(request)


class MemberCalls(LongCalls):
    """Members of queues: of one, or the leaders of many."""

    get = call(m.GetMembersRequest)
    transfer = call(m.TransferLeadershipRequest)

    def await_synchronised(
        self, queue: str, *, wait: float, progress: QueueProgress = None
    ) -> QueueMembers:
        """Wait until the queue has the members that it should have, and all hold everything.

        Members synchronise by themselves, and the queue works meanwhile: nothing is started here.
        Raises StillUnderWay, with what is missing, after `wait` seconds.
        """
        self._wait_for_queue(queue, wait, progress)
        return self.get(queue)

    def add(
        self, queue: str, node: str, *, wait: float | None = None, progress: QueueProgress = None
    ) -> MembersChanged:
        """Add a member of the queue on the node: a learner, then a voter. A repeat is harmless.

        Conflict for a queue on one node only (classic, exclusive, transient), and for a node that
        is down or drained.
        """
        began = self._began(m.AddMemberRequest(queue, node), wait)
        self._wait_for_queue(queue, wait, progress)
        return began

    def delete(
        self, queue: str, node: str, *, wait: float | None = None, progress: QueueProgress = None
    ) -> MembersChanged:
        """Remove the queue's member from the node; a leader transfers its leadership first.

        A repeat is harmless. Conflict for the last member, and if the majority would be lost.
        """
        began = self._began(m.DeleteMemberRequest(queue, node), wait)
        self._wait_for_queue(queue, wait, progress)
        return began

    def rebalance(
        self,
        *,
        vhost_pattern: str = ".*",
        queue_pattern: str = ".*",
        wait: float | None = None,
        progress: Callable[[Rebalanced], None] | None = None,
    ) -> Rebalanced:
        """Move leaders until no node leads more of the matching quorum queues than it must.

        A repeated call moves what has not moved; `wait` repeats it until nothing is left, and
        returns the first answer.
        """
        asked = m.RebalanceQueuesRequest(vhost_pattern=vhost_pattern, queue_pattern=queue_pattern)
        began = seen = self._began(asked, wait)

        def look(left: float) -> Rebalanced:
            nonlocal seen
            try:
                seen = self.ask(asked, timeout_s=left)
            except Conflict:
                pass  # the moves that were started are in progress: use the last observation
            return seen

        if wait is not None:
            until(
                look,
                lambda seen: not seen.moves,
                wait,
                progress,
                lambda seen: f"{seen.count:,} leaders have not moved",
            )
        return began

    def _wait_for_queue(self, queue: str, wait: float | None, progress: QueueProgress) -> None:
        if wait is not None:
            until(
                lambda left: self.ask(m.GetMembersRequest(queue), timeout_s=left),
                lambda seen: seen.settled,
                wait,
                progress,
                lambda seen: f"queue {queue!r}: {_unsettled(seen)}",
            )


class NodeCalls(LongCalls):
    """Nodes, and members of all queues on one of them."""

    list = call(m.ListNodesRequest)
    get = call(m.GetNodeRequest)

    def drain(
        self, node: str, *, wait: float | None = None, progress: NodeProgress = None
    ) -> NodeStatus:
        """Put the node into maintenance: no clients, no leaders, no new members.

        Until `revive`, or until it restarts. With `wait`, returns when it leads nothing any more.
        This connection must know other nodes, too: the drained one serves no clients. Where it
        knows one address only, it does not wait for that longer than for a request.
        """
        known = f"{node!r} may be in maintenance"
        try:
            began = self._began(m.DrainNodeRequest(node), wait)
            known = f"{node!r} is in maintenance now"
            # The only address may be that of the node, which takes no clients from now on.
            alone = len(self.connection.address.hosts) == 1
            limit = self.connection.address.request_timeout_s if alone else wait
            return self._wait_for_node(node, wait, progress, limit) or began
        except NoNodeReached:
            raise  # nothing was asked: its maintenance has not begun by this
        except Unavailable as error:
            answered = isinstance(error, StillUnderWay) and error.__cause__ is None
            if answered or len(self.connection.address.hosts) > 1:
                raise
            raise Unavailable(
                f"{error}; {known}. If it is the only node that this connection knows, it serves "
                "no clients then: give the others' addresses, too"
            ) from error

    def revive(
        self, node: str, *, wait: float | None = None, progress: NodeProgress = None
    ) -> NodeStatus:
        """End the node's maintenance; `rebalance` gives it leaders again."""
        began = self._began(m.ReviveNodeRequest(node), wait)
        return self._wait_for_node(node, wait, progress) or began

    def forget(
        self, node: str, *, wait: float | None = None, progress: NodeProgress = None
    ) -> Forgetting:
        """Remove the node from the cluster permanently; it must be stopped (else Conflict).

        Quorum queues remove their member there; queues that were only on it are deleted, and
        named in the answer. Its data directory can never join this cluster again. With `wait`,
        returns when `nodes` no longer shows it.
        """
        began = self._began(m.ForgetNodeRequest(node), wait)
        if wait is not None:
            until(
                lambda left: self._status_or_none(node, left),
                lambda seen: seen is None,
                wait,
                lambda seen: progress(seen) if progress and seen is not None else None,
                lambda seen: f"node {node!r}: {_left(seen) if seen else ''}",
            )
        return began

    def quorum_critical(self, node: str = "") -> QuorumCritical:
        """Return what would lose its majority if that node stopped; `safe`: nothing would.

        node  empty: the one that answers. The only node of a cluster is safe, as in RabbitMQ
        """

        def is_answer(status: int, body: Any) -> bool:
            # 503 for a critical node, as in RabbitMQ; 503 without `status` is a node that cannot
            # tell, while another one may.
            return status == 503 and isinstance(body, Mapping) and "status" in body

        return self.ask(m.CheckQuorumCriticalRequest(node or None), is_answer=is_answer)

    def grow(
        self,
        node: str,
        strategy: Literal["all", "even"] = "all",
        *,
        vhost_pattern: str = ".*",
        queue_pattern: str = ".*",
        wait: float | None = None,
        progress: NodeProgress = None,
    ) -> Resizing:
        """Add a member on the node to every matching quorum queue of all vhosts.

        strategy  even: only queues with an even number of members
        patterns  regular expressions that are found anywhere in a name
        """
        request = m.GrowNodeRequest(
            node, strategy, vhost_pattern=vhost_pattern, queue_pattern=queue_pattern
        )
        began = self._began(request, wait)
        self._wait_for_node(node, wait, progress)
        return began

    def shrink(
        self,
        node: str,
        *,
        errors_only: bool = False,
        wait: float | None = None,
        progress: NodeProgress = None,
    ) -> Resizing:
        """Remove the members of all quorum queues from the node; failures are named.

        errors_only  name only the failures
        """
        began = self._began(m.ShrinkNodeRequest(node, errors_only), wait)
        self._wait_for_node(node, wait, progress)
        return began

    def _wait_for_node(
        self, node: str, wait: float | None, progress: NodeProgress, limit: float | None = None
    ) -> NodeStatus | None:
        """Wait for the end of what a node does; limit: of one look, None: none but `wait`."""
        if wait is None:
            return None
        most = wait if limit is None else limit
        return until(
            lambda left: self.ask(m.GetNodeRequest(node), timeout_s=min(left, most)),
            lambda seen: seen.done,
            wait,
            progress,
            lambda seen: f"node {node!r}: {_left(seen)}",
        )

    def _status_or_none(self, node: str, timeout_s: float) -> NodeStatus | None:
        try:
            return self.ask(m.GetNodeRequest(node), timeout_s=timeout_s)
        except NotFound:
            return None


def describe_member(member: MemberInfo) -> str:
    """Describe one member's state with what it lacks."""
    text = f"{member.node} {member.state.replace('_', ' ')}"
    if member.total_bytes:
        return f"{text} ({member.sent_bytes:,} of {member.total_bytes:,} bytes)"
    return f"{text} ({member.lag:,} entries behind)" if member.lag else text


def _unsettled(seen: QueueMembers) -> str:
    """Name the members that do not have (or still have) their intended role."""
    if seen.leader is None:
        return "it has no leader; start its members"
    shown = [
        describe_member(member)
        for member in seen.members
        if member.state != "running" or (member.node in seen.wanted) != member.voter
    ]
    return ", ".join(shown) or "its members change"


def _left(seen: NodeStatus) -> str:
    """Describe the operations in progress on a node."""
    node = seen.node
    parts = [f"members of {node.moving:,} queues are in transit"] if node.moving else []
    parts += [f"it leads {node.leaders:,} queues"] if node.drained and node.leaders else []
    parts += ["it is being forgotten"] if node.forgetting else []
    parts += [f"{m.name}: {describe_member(m.member)}" for m in seen.moving[:1]]
    return ", ".join(parts) or "it is not done"
