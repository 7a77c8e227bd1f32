"""Queues of a single node while that node is unreachable: they must not delay other queues.

1. A node dies or hangs; one of its exclusive queues is bound to a fanout exchange.  2. A client
publishes to the exchange, on another node.  3. The confirm would wait until the node is back, and
messages published without confirms would accumulate, for as long as it is away.

So as soon as this node suspects the other one, that node's exclusive and transient queues take no
part in routing, nothing waits for submissions to them, and operations on them are refused.
Publishes to a durable one are refused for that queue alone. Each node goes by its own suspicions.

The leader of the metadata group deletes the former when the node's process has ended, or when the
node was unreachable for `queues.consumer_disconnected_timeout_ms`: if it comes back later, its
clients are told that the queues were deleted.
"""

from __future__ import annotations

import logging

from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.reads import RemoteReads
from warren_machines.metadata.commands import DeleteQueue
from warren_machines.metadata.records import QueueRecord
from warren_raft.types import METADATA_GROUP

log = logging.getLogger(__name__)


class Absences:
    """Follows which nodes are suspected.

    patience_ms  how long an unreachable node's passing queues are kept
    Invariant: `definitions.absent` holds exactly the nodes that the host suspects and that have not
    left the cluster; `_since` numbers the suspicions, so that the timer of an older one does
    nothing.
    """

    def __init__(self, queues: QueueClients, reading: RemoteReads, patience_ms: int) -> None:
        self._queues = queues
        self._reading = reading
        self._cluster = queues.cluster
        self._definitions = queues.definitions
        self._patience_ms = patience_ms
        self._since: dict[str, int] = {}
        self._count = 0
        self._cluster.on_peer_suspected.append(self._suspected)
        self._cluster.on_peer_gone.append(self._gone)
        self._cluster.on_peer_back.append(self._back)
        self._cluster.on_led.append(self._led)
        self._definitions.on_nodes.append(self._nodes_changed)
        self._definitions.on_members.append(self._members_changed)

    # ------------------------------------------------------------ which nodes are reachable

    def _suspected(self, node: str) -> None:
        self._definitions.absent.add(node)
        self._plan(node)
        for queue in self._local(node):
            self._queues.park(queue)
            self._reading.give_up(queue.group)

    def _gone(self, node: str) -> None:
        self._delete(node, "its process has ended")

    def _back(self, node: str) -> None:
        self._definitions.absent.remove(node)
        self._since.pop(node, None)
        for queue in self._local(node):
            self._queues.unpark(queue)

    def _nodes_changed(self, node: str) -> None:
        # A node that has left the cluster is not expected back.
        if node and node not in self._definitions.state.nodes:
            self._definitions.absent.remove(node)
            self._since.pop(node, None)

    def _members_changed(self, group: int) -> None:
        # 1. A queue's only node is suspected here, and led it all the time.  2. A policy gives it
        # more members.  3. The node is reachable again: the queue is not one of its own any more.
        queue = self._definitions.state.groups.get(group)
        if queue is not None and not self._definitions.absent.holds(queue):
            self._queues.unpark(queue)

    def _local(self, node: str) -> list[QueueRecord]:
        """Return the queues that exist on that node alone."""
        return [queue for queue in self._definitions.state.queues() if queue.home == node]

    # ------------------------------------------------------------ deleting

    def _led(self, group: int) -> None:
        """Plan the deletions again: the previous leader may have died with its timers."""
        if group == METADATA_GROUP:
            for node in self._definitions.absent.nodes:
                if self._cluster.host.gone(node):
                    self._gone(node)
                else:
                    self._plan(node)

    def _plan(self, node: str) -> None:
        self._count += 1
        number = self._since[node] = self._count

        def due() -> None:
            if self._since.get(node) == number:
                seconds = self._patience_ms / 1000
                self._delete(node, f"it has been unreachable for {seconds:g} s")

        self._cluster.loop.call_later(self._patience_ms, due)

    def _delete(self, node: str, why: str) -> None:
        """Delete what does not outlive the node, if this node leads the metadata group."""
        state = self._definitions.state
        if not self._cluster.host.is_leader(METADATA_GROUP):
            return
        life = state.lives.get(node, 0)
        doomed = [
            queue
            for queue in state.queues()
            if (queue.passing and queue.home == node) or (life and queue.owner_uplink == life)
        ]
        if doomed:
            log.warning(
                "node %s: %s; %d exclusive and transient queues of it are deleted",
                node,
                why,
                len(doomed),
            )
        for queue in doomed:
            command = DeleteQueue(queue.vhost, queue.name, queue.group)
            self._definitions.submit(command, lambda reply: None, forever=True)
