"""What an operator asks of the nodes of a cluster with the members of its queues.

Every node answers for the whole cluster. Each call ends in `done`, called once with a value of
`session.membership`, or with a Refusal. Long work answers as soon as it is sure to be done (the
intent is in the definitions, so that it survives whoever began it), and is watched through
`queue_status` and `node_status`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from warren_broker import errors

if TYPE_CHECKING:
    from warren_broker.cluster.broker import Broker

Answer = Callable[[Any], None]
"""Called once with a value of `session.membership`, or with a Refusal."""


class Members:
    """`Broker.membership`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # ------------------------------------------------------------ one queue

    def add_member(self, vhost: str, queue: str, node: str, done: Answer) -> None:
        """MembersChanged. Refused: no such queue or node (NotFound), a queue that lives on one node
        (classic, exclusive, transient), a node that is down or drained (PreconditionFailed)."""
        done(errors.NotImplementedHere("add_member"))

    def delete_member(self, vhost: str, queue: str, node: str, done: Answer) -> None:
        """MembersChanged. Refused as add_member, the last member, a loss of the majority."""
        done(errors.NotImplementedHere("delete_member"))

    def queue_status(self, vhost: str, queue: str, done: Answer) -> None:
        """QueueMembers."""
        done(errors.NotImplementedHere("queue_status"))

    def transfer_leadership(self, vhost: str, queue: str, node: str, done: Answer) -> None:
        """LeaderMoved, when it has. Refused: no such queue, no in-step member there."""
        done(errors.NotImplementedHere("transfer_leadership"))

    # ------------------------------------------------------------ many queues

    def grow(
        self, node: str, strategy: Literal["all", "even"], vhost_pattern: str, queue_pattern: str,
        done: Answer,
    ) -> None:
        """Resizing: every quorum queue (even: every one with an even number of members) that
        matches gets a member on the node. Patterns are regular expressions found anywhere."""
        done(errors.NotImplementedHere("grow"))

    def shrink(self, node: str, errors_only: bool, done: Answer) -> None:
        """Resizing: every quorum queue with a member on the node gives it up.

        errors_only  name only those that could not be
        """
        done(errors.NotImplementedHere("shrink"))

    def rebalance(self, vhost_pattern: str, queue_pattern: str, done: Answer) -> None:
        """Rebalanced: no node leads more of the matching quorum queues than it must."""
        done(errors.NotImplementedHere("rebalance"))

    # ------------------------------------------------------------ nodes

    def nodes(self, done: Answer) -> None:
        """A list of NodeInfo, by name."""
        done(errors.NotImplementedHere("nodes"))

    def node_status(self, node: str, done: Answer) -> None:
        """NodeStatus. Refused: no such node (NotFound)."""
        done(errors.NotImplementedHere("node_status"))

    def drain(self, node: str, done: Answer) -> None:
        """NodeStatus: in maintenance, until it is revived or starts again."""
        done(errors.NotImplementedHere("drain"))

    def revive(self, node: str, done: Answer) -> None:
        """NodeStatus: in service again."""
        done(errors.NotImplementedHere("revive"))

    def forget(self, node: str, done: Answer) -> None:
        """Forgetting: the node leaves the cluster for good. Refused while it is running."""
        done(errors.NotImplementedHere("forget"))

    def quorum_critical(self, node: str, done: Answer) -> None:
        """QuorumCritical: what would lose its majority if that node stopped."""
        done(errors.NotImplementedHere("quorum_critical"))
