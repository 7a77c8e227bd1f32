"""This node's members of queues: started and stopped as the definitions say.

A member starts either as a founder (an empty log that may vote: the group is new, and this disk has
never held it) or as one that joins (an empty log that may not). Taking the one for the other could
lose confirmed messages, so the decision needs definitions that are no older than this process:

1. A node is a founder of a queue, and holds it.  2. It is removed from the queue's members, and
deletes its log.  3. It is added again, and dies before its member has started.  4. It starts, and
replays the definitions from its disk: for a moment they say that it is a founder, as in step 1.

So no member that is not on disk starts until this process's own NodeStarted was applied, after
everything that its earlier incarnations can have seen (`_current`). Nor is one stopped before: a
replay also passes through the time before the queue was placed here. Replayed by
tests/broker/cluster/membership/test_membership.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from warren_broker.cluster.cluster import Cluster
from warren_machines.metadata.records import QueueRecord, numbered_above
from warren_machines.metadata.state import MetadataState
from warren_machines.queue.machine import QueueMachine
from warren_raft.machine import GroupSpec
from warren_raft.types import METADATA_GROUP
from warren_wire import errors

log = logging.getLogger(__name__)


class LocalMembers:
    """This node's members of queues.

    known   every queue of the definitions when last checked, with a member here or not
    """

    def __init__(self, cluster: Cluster, on_deleted: Callable[[QueueRecord], None]) -> None:
        self._cluster = cluster
        self._on_deleted = on_deleted
        self.known: dict[int, QueueRecord] = {}

    def settle(self, state: MetadataState, groups: Iterable[int]) -> None:
        """Start and stop the members of these groups as the definitions say."""
        host = self._cluster.host
        for group in groups:
            queue = state.groups.get(group)
            if queue is None:
                self._gone(state, group)
                continue
            self.known[group] = queue
            client = self._cluster.client(group)
            if client is not None:
                client.members = queue.carriers
            if host.node_id in queue.carriers:
                self._begin(state, queue)
                leader = host.leader(group)
                if leader is not None and leader not in queue.carriers:
                    host.leader_denied(group, leader)
            elif host.stored(group) and self._current(state):
                log.info("%s: its member here is no longer wanted: deleting it", _name(queue))
                host.delete_group(group)

    def settle_all(self, state: MetadataState) -> None:
        """Compare all groups, after the definitions were restored or have become current."""
        self.settle(state, sorted(self.known.keys() | state.groups.keys()))
        if not self._current(state):
            return
        # Logs of queues that were declared and deleted while this node was away.
        kept = {queue.continues for queue in state.queues() if self._continues(queue)}
        for group in self._cluster.host.stored_groups():
            if group not in (METADATA_GROUP, *kept) and group not in state.groups:
                self._cluster.host.delete_group(group)

    def _current(self, state: MetadataState) -> bool:
        host = self._cluster.host
        return state.lives.get(host.node_id) == host.boot_id

    def _gone(self, state: MetadataState, group: int) -> None:
        queue = self.known.pop(group, None)
        if queue is None:
            return
        now = state.queue(queue.vhost, queue.name)
        if now is None or now.continues != group or not self._continues(now):
            self._cluster.host.delete_group(group)
        if queue.continues:
            self._cluster.host.delete_group(queue.continues)
        self._on_deleted(queue)

    def _continues(self, queue: QueueRecord) -> bool:
        """Return whether this node still has to write the queue's log from an earlier group's.

        An incomplete one has no entry: its first ones and the snapshot before them come at once.
        """
        host = self._cluster.host
        return (
            bool(queue.continues)
            and queue.founded_by(host.node_id)
            and host.stored(queue.continues)
            and host.log_end(queue.group)[1] == 0
        )

    def _continue(self, queue: QueueRecord) -> None:
        host = self._cluster.host

        def written() -> None:
            host.start_group(GroupSpec(queue.group, queue.nodes), machine)
            host.delete_group(queue.continues)
            log.warning("%s: this node's member alone continues it", _name(queue))

        # As the earlier group began: its claims are numbered from there on.
        newest, config = host.versions.newest, queue.initial or queue.config
        machine = QueueMachine(config, numbered_above(queue.continues), newest)
        host.continue_group(queue.continues, queue.group, machine, machine.end_sessions, written)

    def _begin(self, state: MetadataState, queue: QueueRecord) -> None:
        host = self._cluster.host
        if self._continues(queue):
            self._continue(queue)
            return
        stored = host.stored(queue.group)
        if not stored and not self._current(state):
            return
        own = state.nodes.get(host.node_id)
        since_group = own.since_group if own is not None else 0
        founder = queue.founded_by(host.node_id) and queue.group > since_group
        spec = GroupSpec(
            queue.group,
            tuple(sorted({*queue.carriers, host.node_id})),
            volatile=bool(queue.life),
            preferred=queue.leader,
            joining=not stored and not founder,
        )
        if spec.joining and queue.group not in host.groups():
            log.info("%s: starting an empty member on this node", _name(queue))
        newest, config = host.versions.newest, queue.initial or queue.config
        host.start_group(spec, QueueMachine(config, numbered_above(queue.group), newest))


def _name(queue: QueueRecord) -> str:
    return errors.named("queue", queue.name, queue.vhost)
