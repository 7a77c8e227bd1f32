"""Operations on the nodes of a cluster, with the members of its queues.

The values are the broker's own (`warren_broker.management.membership`). A call starts long
work, which continues in the cluster without the caller: `wait` waits for its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from warren.connection import Connection
from warren.errors import Conflict, NotFound, PeerError, StillUnderWay, Unavailable, UsageError
from warren_broker.management.membership import (
    Forgetting,
    LeaderMove,
    LeaderMoved,
    MemberInfo,
    MembersChanged,
    Moving,
    NodeInfo,
    NodeLeaders,
    NodeStatus,
    QueueMembers,
    QueueName,
    QuorumCritical,
    Rebalanced,
    Resized,
    Resizing,
)

T = TypeVar("T")
QueueProgress: TypeAlias = Callable[[QueueMembers], None] | None
NodeProgress: TypeAlias = Callable[[NodeStatus], None] | None
POLL_S_FIRST = 0.1
POLL_S_MAX = 1.0
HEALTH = "/health/checks/node-is-quorum-critical"


class MembershipCalls:
    """The part of `Admin` that concerns nodes; a user with the tag `administrator` is needed for
    changes, `monitoring` for looking.

    Each raises NotFound (no such queue, no such node), Conflict (it is refused, with the reason
    and the way out), AccessRefused, Unavailable. Calls that begin something long take

    wait      seconds until it must be done, more than 0; None: do not wait. StillUnderWay, which
              says what is missing, when it takes longer: the work continues nevertheless
    progress  called with what is seen, at least once, about once a second while waiting
    """

    connection: Connection

    # -------------------------------------------------------------- one queue's members

    def queue_members(self, queue: str, *, timeout_s: float | None = None) -> QueueMembers:
        """Its members as its leader sees them: role, how far behind (entries), snapshots on their
        way (bytes); against those it is to have."""
        return self._ask("GET", _on_queue(queue, "status"), QueueMembers, timeout_s=timeout_s)

    def add_member(
        self, queue: str, node: str, *, wait: float | None = None, progress: QueueProgress = None
    ) -> MembersChanged:
        """Give the queue a member on the node: it learns, then counts. A repeat is harmless.

        Conflict for a queue that lives on one node (classic, exclusive, transient), for a node
        that is down or drained.
        """
        began = self._ask(
            "POST", _on_queue(queue, "replicas/add"), MembersChanged, {"node": node}, wait=wait
        )
        self._wait_for_queue(queue, wait, progress)
        return began

    def delete_member(
        self, queue: str, node: str, *, wait: float | None = None, progress: QueueProgress = None
    ) -> MembersChanged:
        """Take the queue's member off the node; one that leads hands over first. A repeat is
        harmless. Conflict for the last member, and where the majority would be lost."""
        began = self._ask(
            "DELETE",
            _on_queue(queue, "replicas/delete"),
            MembersChanged,
            {"node": node},
            wait=wait,
        )
        self._wait_for_queue(queue, wait, progress)
        return began

    def transfer_leadership(self, queue: str, node: str) -> LeaderMoved:
        """Have that node's member lead; answers when it does. Conflict: it is not in step."""
        path = _on_queue(queue, "leader/transfer")
        return self._ask("POST", path, LeaderMoved, {"node": node})

    # -------------------------------------------------------------- many queues

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
        """Give every quorum queue that matches, of all vhosts, a member on the node.

        strategy  even: only queues with an even number of members
        patterns  regular expressions that are found anywhere in a name
        """
        body = {
            "strategy": strategy,
            "vhost_pattern": vhost_pattern,
            "queue_pattern": queue_pattern,
        }
        began = self._ask("POST", _replicas_on(node, "grow"), Resizing, body, wait=wait)
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
        """Take the members of all quorum queues off the node; those that cannot be are named.

        errors_only  name only these
        """
        body = {"errors_only": errors_only}
        began = self._ask("DELETE", _replicas_on(node, "shrink"), Resizing, body, wait=wait)
        self._wait_for_node(node, wait, progress)
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

        Asking again moves what has not moved; with `wait` this does so until nothing is left, and
        returns the first answer.
        """
        body = {"vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern}
        began = seen = self._ask("POST", "/rebalance/queues", Rebalanced, body, wait=wait)

        def look(left: float) -> Rebalanced:
            nonlocal seen
            try:
                seen = self._ask("POST", "/rebalance/queues", Rebalanced, body, timeout_s=left)
            except Conflict:
                pass  # the moves that were begun are under way: that is what was seen last
            return seen

        if wait is not None:
            _until(
                look,
                lambda seen: not seen.moves,
                wait,
                progress,
                lambda seen: f"{seen.count:,} leaders have not moved",
            )
        return began

    # -------------------------------------------------------------- nodes

    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes of the cluster, by name."""
        return self._ask("GET", "/nodes", tuple[NodeInfo, ...])

    def node_status(self, node: str, *, timeout_s: float | None = None) -> NodeStatus:
        """One node with what is under way on it."""
        return self._ask("GET", _node(node), NodeStatus, timeout_s=timeout_s)

    def drain(
        self, node: str, *, wait: float | None = None, progress: NodeProgress = None
    ) -> NodeStatus:
        """Put the node into maintenance: no clients, no leaders, no new members; until `revive`,
        or until it starts again. With `wait`, returns when it leads nothing any more.

        This connection must know other nodes, too: that one serves no client from then on.
        """
        try:
            began = self._ask("POST", _node(node, "/drain"), NodeStatus, wait=wait)
            return self._wait_for_node(node, wait, progress) or began
        except Unavailable as error:
            answered = isinstance(error, StillUnderWay) and error.__cause__ is None
            if answered or len(self.connection.address.hosts) > 1:
                raise
            raise Unavailable(
                f"{error}; if {node!r} is the only node that this connection knows, it is in "
                "maintenance now and serves nobody: give the others' addresses, too"
            ) from error

    def revive(
        self, node: str, *, wait: float | None = None, progress: NodeProgress = None
    ) -> NodeStatus:
        """End the node's maintenance; `rebalance` gives it leaders again."""
        began = self._ask("POST", _node(node, "/revive"), NodeStatus, wait=wait)
        return self._wait_for_node(node, wait, progress) or began

    def forget(
        self, node: str, *, wait: float | None = None, progress: NodeProgress = None
    ) -> Forgetting:
        """Remove the node from the cluster for good; it must have been stopped (else Conflict).

        Quorum queues give up their member there; queues that lived on it alone are deleted, and
        named in the answer. Its data directory can never join this cluster again. With `wait`,
        returns when `nodes` shows it no longer.
        """
        began = self._ask("DELETE", _node(node), Forgetting, wait=wait)
        if wait is not None:
            _until(
                lambda left: self._status_or_none(node, left),
                lambda seen: seen is None,
                wait,
                lambda seen: progress(seen) if progress and seen is not None else None,
                lambda seen: f"node {node!r}: {_left(seen) if seen else ''}",
            )
        return began

    def quorum_critical(self, node: str = "") -> QuorumCritical:
        """What would lose its majority if that node (empty: the one that answers) stopped; `safe`
        says that nothing would. The only node of a cluster is safe, as for RabbitMQ."""
        path = f"{HEALTH}/{quote(node, safe='')}" if node else HEALTH

        def is_answer(status: int, body: Any) -> bool:
            # 503 for a critical node, as RabbitMQ has it; 503 without `status` is a node that
            # cannot say, and another may.
            return status == 503 and isinstance(body, Mapping) and "status" in body

        return _convert(self.connection.request("GET", path, is_answer=is_answer), QuorumCritical)

    # -------------------------------------------------------------- inside

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Any = None,
        *,
        timeout_s: float | None = None,
        wait: float | None = None,
    ) -> T:
        if wait is not None and not wait > 0:
            raise UsageError(f"wait={wait!r}: seconds, more than 0; None: do not wait")
        answer = self.connection.request(method, path, body, timeout_s=timeout_s)
        return _convert(answer, kind)

    def _wait_for_queue(self, queue: str, wait: float | None, progress: QueueProgress) -> None:
        if wait is not None:
            _until(
                lambda left: self.queue_members(queue, timeout_s=left),
                lambda seen: seen.settled,
                wait,
                progress,
                lambda seen: f"queue {queue!r}: {_unsettled(seen)}",
            )

    def _wait_for_node(
        self, node: str, wait: float | None, progress: NodeProgress
    ) -> NodeStatus | None:
        if wait is None:
            return None
        return _until(
            lambda left: self.node_status(node, timeout_s=left),
            lambda seen: seen.done,
            wait,
            progress,
            lambda seen: f"node {node!r}: {_left(seen)}",
        )

    def _status_or_none(self, node: str, timeout_s: float) -> NodeStatus | None:
        try:
            return self.node_status(node, timeout_s=timeout_s)
        except NotFound:
            return None


def _until(
    look: Callable[[float], T],
    done: Callable[[T], bool],
    wait: float,
    progress: Callable[[T], None] | None,
    missing: Callable[[T], str],
) -> T:
    """Look until it is done; `look` gets the seconds that are left."""
    deadline = time.monotonic() + wait
    pause = POLL_S_FIRST
    while True:
        try:
            seen = look(max(deadline - time.monotonic(), POLL_S_MAX))
        except Unavailable as error:
            raise StillUnderWay(
                f"not known to be done within {wait:g} s: {error}; it goes on by itself"
            ) from error
        if progress is not None:
            progress(seen)
        if done(seen):
            return seen
        left = deadline - time.monotonic()
        if left <= 0:
            raise StillUnderWay(
                f"not done within {wait:g} s: {missing(seen)}; it goes on by itself"
            )
        time.sleep(min(pause, left))
        pause = min(2 * pause, POLL_S_MAX)


def describe_member(member: MemberInfo) -> str:
    """One member's state with what it lacks, in words."""
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
    """What is under way on a node."""
    node = seen.node
    parts = [f"{node.moving:,} queues' members are on their way"] if node.moving else []
    parts += [f"it leads {node.leaders:,} queues"] if node.drained and node.leaders else []
    parts += ["it is being forgotten"] if node.forgetting else []
    parts += [f"{m.name}: {describe_member(m.member)}" for m in seen.moving[:1]]
    return ", ".join(parts) or "it is not done"


def _convert(answer: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise PeerError(
            f"the node's answer is not one that this client knows ({error}): use the client of "
            "the cluster's version"
        ) from error


def _on_queue(queue: str, rest: str) -> str:
    if not queue:
        raise UsageError("a queue's name must not be empty")
    return f"/queues/quorum/{quote(queue, safe='')}/{rest}"


def _replicas_on(node: str, what: str) -> str:
    return f"/queues/quorum/replicas/on/{_name(node)}/{what}"


def _node(node: str, rest: str = "") -> str:
    return f"/nodes/{_name(node)}{rest}"


def _name(node: str) -> str:
    if not node:
        raise UsageError("a node's name must not be empty; `warren nodes list` shows them")
    return quote(node, safe="")


__all__ = [
    "Forgetting",
    "LeaderMove",
    "LeaderMoved",
    "MemberInfo",
    "MembersChanged",
    "MembershipCalls",
    "Moving",
    "NodeInfo",
    "NodeLeaders",
    "NodeStatus",
    "QueueMembers",
    "QueueName",
    "QuorumCritical",
    "Rebalanced",
    "Resized",
    "Resizing",
    "describe_member",
]
