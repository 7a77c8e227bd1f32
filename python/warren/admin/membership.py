"""Operations on the nodes of a cluster, with the members of its queues.

The values are the broker's own (`warren_wire.admin.members`). A call starts a long
operation, which continues in the cluster without the caller: `Admin.waiting` waits for its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from warren.calls import AdminCalls, call
from warren.connection import Connection
from warren.errors import (
    Conflict,
    NoNodeReached,
    NotFound,
    StillUnderWay,
    Unavailable,
    UsageError,
)
from warren.waiting import Waiting, until
from warren_wire.admin import members as m
from warren_wire.admin.members import MemberInfo, NodeStatus, QueueMembers, QuorumCritical
from warren_wire.admin.requests import AdminRequest, AnyAdminRequest

T = TypeVar("T")


class _End(NamedTuple):
    """How the end of a long operation is seen.

    look     returns the request for its state
    done     whether a state is the end
    missing  what is missing in a state, for the request
    """

    look: Callable[[Any], AnyAdminRequest]
    done: Callable[[Any], bool]
    missing: Callable[[Any, Any], str]


_OF_QUEUE = _End(
    lambda asked: m.GetMembersRequest(asked.queue),
    lambda seen: seen.settled,
    lambda asked, seen: f"queue {asked.queue!r}: {_unsettled(seen)}",
)
_OF_NODE = _End(
    lambda asked: m.GetNodeRequest(asked.node),
    lambda seen: seen is None or seen.done,
    lambda asked, seen: f"node {asked.node!r}: {_left(seen)}",
)
_ENDS: dict[type[AnyAdminRequest], _End] = {
    m.AddMemberRequest: _OF_QUEUE,
    m.DeleteMemberRequest: _OF_QUEUE,
    m.RebalanceQueuesRequest: _End(
        lambda asked: asked,  # a repeat moves what has not moved
        lambda seen: not seen.moves,
        lambda asked, seen: f"{seen.count:,} leaders have not moved",
    ),
    m.DrainNodeRequest: _OF_NODE,
    m.ReviveNodeRequest: _OF_NODE,
    m.GrowNodeRequest: _OF_NODE,
    m.ShrinkNodeRequest: _OF_NODE,
    m.ForgetNodeRequest: _OF_NODE._replace(done=lambda seen: seen is None),
}
"""Requests that start a long operation."""


class LongCalls(AdminCalls):
    """Calls for nodes and the members of queues.

    Changes need the tag `administrator`, reads the tag `monitoring`. Each call raises NotFound (no
    such queue, no such node), Conflict (refused, with the reason and the remedy), AccessRefused,
    Unavailable; one that waits raises StillUnderWay.
    """

    def __init__(self, connection: Connection, waiting: Waiting | None = None) -> None:
        super().__init__(connection)
        self.waiting = waiting

    def ask(
        self,
        request: AdminRequest[T],
        *,
        timeout_s: float | None = None,
        is_answer: Callable[[int, Any], bool] = lambda status, answer: False,
    ) -> T:
        """Return what a request is answered; a NodeStatus is that at the operation's end."""
        began = super().ask(request, timeout_s=timeout_s, is_answer=is_answer)
        return self._ended(request, began) if type(request) in _ENDS else began

    def _ended(self, request: AdminRequest[T], began: T, limit: float | None = None) -> T:
        """Wait for the end of an operation if calls wait; limit: of one look, None: no other."""
        if self.waiting is None:
            return began
        end, seen = _ENDS[type(request)], cast(Any, began)
        most = self.waiting.seconds if limit is None else limit

        def look(left: float) -> Any:
            nonlocal seen
            try:
                seen = AdminCalls.ask(self, end.look(request), timeout_s=min(left, most))
            except Conflict:
                pass  # the moves that were started are in progress: use the last observation
            except NotFound:
                if not isinstance(request, m.ForgetNodeRequest):
                    raise
                seen = None
            return seen

        last = until(look, end.done, self.waiting, lambda seen: end.missing(request, seen))
        return cast(T, last) if isinstance(began, NodeStatus) else began


class MemberCalls(LongCalls):
    """Members of queues: of one, or the leaders of many."""

    get = call(m.GetMembersRequest)
    transfer = call(m.TransferLeadershipRequest)
    add = call(m.AddMemberRequest)
    delete = call(m.DeleteMemberRequest)
    recover = call(m.RecoverQueueRequest)
    rebalance = call(m.RebalanceQueuesRequest)

    def await_synchronised(self, queue: str) -> QueueMembers:
        """Wait until the queue has the members that it should have, and all hold everything.

        Members synchronise by themselves, and the queue works meanwhile: nothing is started here.
        Raises StillUnderWay, with what is missing, at the end of the waiting.
        """
        if self.waiting is None:
            raise UsageError("say how long: `admin.waiting(60).members.await_synchronised(queue)`")
        asked = m.GetMembersRequest(queue)
        until(
            lambda left: self.ask(asked, timeout_s=left),
            _OF_QUEUE.done,
            self.waiting,
            lambda seen: _OF_QUEUE.missing(asked, seen),
        )
        return self.get(queue)


class NodeCalls(LongCalls):
    """Nodes, and members of all queues on one of them."""

    list = call(m.ListNodesRequest)
    get = call(m.GetNodeRequest)
    revive = call(m.ReviveNodeRequest)
    forget = call(m.ForgetNodeRequest)
    grow = call(m.GrowNodeRequest)
    shrink = call(m.ShrinkNodeRequest)

    def drain(self, node: str) -> NodeStatus:
        """Put the node into maintenance: no clients, no leaders, no new members.

        Until `revive`, or until it restarts. A call that waits returns when it leads nothing any
        more. This connection must know other nodes, too: the drained one serves no clients. Where
        it knows one address only, it does not wait for that longer than for a request.
        """
        request, known = m.DrainNodeRequest(node), f"{node!r} may be in maintenance"
        try:
            began = AdminCalls.ask(self, request)
            known = f"{node!r} is in maintenance now"
            # The only address may be that of the node, which takes no clients from now on.
            alone = len(self.connection.address.hosts) == 1
            limit = self.connection.address.request_timeout_s if alone else None
            return self._ended(request, began, limit)
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

    def quorum_critical(self, node: str = "") -> QuorumCritical:
        """Return what would lose its majority if that node stopped; `safe`: nothing would.

        node  empty: the one that answers. The only node of a cluster is safe, as in RabbitMQ
        """

        def is_answer(status: int, body: object) -> bool:
            # 503 for a critical node, as in RabbitMQ; 503 without `status` is a node that cannot
            # tell, while another one may.
            return status == 503 and isinstance(body, Mapping) and "status" in body

        return self.ask(m.CheckQuorumCriticalRequest(node or None), is_answer=is_answer)


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
