"""Continuous membership reconciliation: queues grow towards their target size by themselves.

Each node checks the queues that it leads: every `interval`, and `trigger_interval` after a
node has joined or left. One timer per node; a queue costs nothing in between. Off unless enabled,
as in RabbitMQ.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.membership.maintenance import Maintenance
from warren_broker.cluster.membership.mirror_follower import MirrorFollower
from warren_broker.cluster.membership.placement import Placement
from warren_broker.config import ContinuousMembership
from warren_machines.metadata import commands
from warren_machines.metadata.records import QueueRecord
from warren_raft.runtime.loop import LoopTimer
from warren_wire import errors
from warren_wire.policy_keys import setting

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class AutoGrow:
    """Grows queues by changing the intent; `Reconciler` takes the steps towards it."""

    cluster: Cluster
    definitions: Definitions
    placement: Placement
    mirrors: MirrorFollower
    maintenance: Maintenance
    settings: ContinuousMembership
    _timer: LoopTimer | None = None

    def __post_init__(self) -> None:
        if self.settings.enabled:
            self.definitions.on_ready.append(lambda: self._plan(self.settings.interval))
            self.definitions.on_nodes.append(self._nodes_changed)
            self.definitions.on_policies.append(lambda vhosts: self.policy_changed())

    def policy_changed(self) -> None:
        """Check soon: policies may have changed the target of queues."""
        if self.settings.enabled and self.definitions.ready:
            self._plan(self.settings.trigger_interval)

    def _nodes_changed(self, name: str) -> None:
        # Changes without a node name (an address, maintenance) do not trigger; nor does a node's
        # failure.
        if name and self.definitions.ready:
            self._plan(self.settings.trigger_interval)

    def _plan(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.cluster.loop.call_later(delay_ms, self._evaluate)

    def _evaluate(self) -> None:
        changed = 0
        host = self.cluster.host
        if not self.maintenance.drained:
            for queue in list(self.definitions.state.queues()):
                if queue.replicated and host.is_leader(queue.group) and not self._mirrored(queue):
                    changed += self._reconcile(queue)
        # As in RabbitMQ: after a change the queues are checked again soon, otherwise later.
        settings = self.settings
        self._plan(settings.trigger_interval if changed else settings.interval)

    def _mirrored(self, queue: QueueRecord) -> bool:
        """Return whether the queue's members follow a mirror policy: that goes before a target."""
        return self.mirrors.policy(queue) is not None or not queue.config.several

    def target(self, queue: QueueRecord) -> int:
        """Return the wanted number of members: the largest of setting, argument and policy.

        0: as many as there are.
        """
        followed = self.definitions.policy(queue).definition
        asked: int = setting("target-group-size", followed, queue.arguments) or 0
        return max(asked, self.settings.target_group_size or 0)

    def _reconcile(self, queue: QueueRecord) -> bool:
        """Change the queue's wanted members if needed; return whether it did."""
        nodes = self.definitions.nodes()
        dangling = tuple(node for node in queue.nodes if node not in nodes)
        if dangling and self.settings.auto_remove and len(dangling) < len(queue.nodes):
            change = commands.ChangeMembers(queue.group, remove=dangling)
        else:
            others = [node for node in queue.nodes if node != self.cluster.host.node_id]
            if queue.leaving or not all(self.placement.running(node) for node in others):
                return False
            added = self.placement.to_add(queue.nodes, self.target(queue))
            if not added:
                return False
            change = commands.ChangeMembers(queue.group, add=added)
        name = errors.named("queue", queue.name, queue.vhost)
        log.info(
            "%s has %d members and should have %d: adding %s, removing %s",
            name,
            len(queue.nodes),
            self.target(queue),
            ", ".join(change.add) or "none",
            ", ".join(change.remove) or "none",
        )

        def changed(reply: object) -> None:
            if isinstance(reply, errors.Refusal):
                log.warning("%s: %s", name, reply.detail)

        self.definitions.submit(change, changed)
        return True
