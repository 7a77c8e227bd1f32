"""`warren-broker recover --as-only-member`: a stopped node becomes a cluster of its own.

For a cluster of which most nodes are lost for good. What this directory holds is all there is then:
each group's log to its end, committed or not, because the members that could have decided otherwise
are gone. What only they held is lost.

The steps, each of them durable before the next:

1. `node.json` gets another cluster id: from here on no node of the earlier cluster is a peer.
2. Every queue's log gets a CONFIG of a later term with this node as the only voter.
3. The definitions get this node as the only one, in a snapshot that is the log's new beginning.

After a crash the command is repeated, from the start: each step may be made twice. A node that is
started in between serves nothing, as it still lacks the majority of the definitions: it takes no
harm, and does none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from warren_broker.backup.reform import NewCluster, draw_cluster_id, move_definitions
from warren_broker.config import NodeConfig
from warren_machines.metadata.machine import MetadataMachine
from warren_machines.metadata.records import QueueRecord, numbered_above
from warren_machines.metadata.state import MetadataState
from warren_machines.queue.machine import QueueMachine
from warren_machines.queue.state import QueueState
from warren_raft.runtime.offline import OfflineLogs
from warren_raft.storage.files import Files
from warren_raft.storage.identity import IDENTITY
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import METADATA_GROUP, GroupId, Index, NodeId
from warren_wire import errors

MACHINE: Final = MetadataMachine()


class RecoveryRefused(Exception):
    """A directory that cannot become a cluster of its own; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class GroupFound:
    """A queue's group as this directory holds it.

    last       the last entry here
    committed  known to be committed: what the newest snapshot covers. More may be
    others     members on other nodes, which may hold more
    complete   this node's member votes; else it may lack much of what the others had
    """

    queue: QueueRecord
    last: Index
    committed: Index
    others: tuple[NodeId, ...]
    complete: bool
    messages: int
    claims: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a directory holds, and what is lost with the other nodes.

    lost  queues without a member here; those of ended processes do not count
    """

    state: MetadataState
    definitions: Index
    groups: tuple[GroupFound, ...]
    lost: tuple[QueueRecord, ...]


@dataclass(eq=False)
class Recovery:
    """The directory of one stopped node, which becomes the only one of its cluster."""

    logs: OfflineLogs
    found: Holdings = field(init=False)

    def __post_init__(self) -> None:
        if METADATA_GROUP not in self.logs.groups:
            raise RecoveryRefused(
                f"{self.logs.directory.path} has no definitions: this node had not joined its "
                "cluster; recover another one"
            )
        state = self.logs.replay(METADATA_GROUP, MACHINE)
        if self.logs.node not in state.nodes:
            raise RecoveryRefused(
                f"by its definitions node {self.logs.node!r} is not in the cluster (known: "
                f"{', '.join(sorted(state.nodes)) or 'none'}); recover another one"
            )
        self.found = Holdings(
            state,
            self.logs.groups[METADATA_GROUP].last_index(),
            tuple(self._groups(state)),
            tuple(
                queue
                for queue in state.queues()
                if queue.replicable and self._log_of(queue) not in self.logs.groups
            ),
        )

    def _log_of(self, queue: QueueRecord) -> GroupId:
        """Return the group with the queue's messages: the earlier one until it is continued.

        1. `queues recover` makes a queue continue as another group on this node.  2. The node stops
        before the new log is written.  3. If that one, empty, were taken for the queue's, nothing
        would be left of it. As it is, the node continues the earlier one when it starts.
        """
        groups, earlier = self.logs.groups, queue.continues
        unwritten = queue.group not in groups or not groups[queue.group].last_index()
        if earlier and earlier in groups and queue.founded_by(self.logs.node) and unwritten:
            return earlier
        return queue.group

    def _groups(self, state: MetadataState) -> Iterator[GroupFound]:
        for queue in state.queues():
            group = self._log_of(queue)
            if group not in self.logs.groups:
                continue
            store = self.logs.groups[group]
            members = self.logs.members(group)
            own = self.logs.alone(group).id_of(self.logs.node)
            machine = QueueMachine(queue.initial or queue.config, numbered_above(group))
            held = self.logs.replay(group, machine)
            yield GroupFound(
                queue,
                store.last_index(),
                store.snapshot_index,
                tuple(one for one in (*members.voters, *members.learners) if one != self.logs.node),
                members.votes(self.logs.node, own),
                _messages(held),
                sum(1 for reader in held.readers.values() for _ in reader.all_claims()),
            )

    def carry_out(self) -> str:
        """Make this node the only one; return the cluster id."""
        logs, cluster_id = self.logs, draw_cluster_id()
        logs.directory.change(formed=True, cluster_id=cluster_id, founders={}, peers={}, vouched={})
        kept: dict[GroupId, tuple[NodeId, ...]] = {}
        for one in self.found.groups:
            if self._log_of(one.queue) == one.queue.group:
                logs.make_only_member(one.queue.group)
            kept[one.queue.group] = (logs.node,)
        logs.sync()
        own = replace(self.found.state.nodes[logs.node], forgetting=False)
        cluster = NewCluster(logs.directory.identity.cluster, cluster_id, (own,))
        moved = move_definitions(
            self._definitions(), cluster, lambda queue: kept.get(queue.group, ())
        )
        logs.install(replace(moved.snapshot, ids=logs.alone(METADATA_GROUP).ids), ())
        return cluster_id

    def _definitions(self) -> Snapshot:
        store = self.logs.groups[METADATA_GROUP]
        return Snapshot(
            METADATA_GROUP,
            store.last_index(),
            self.logs.next_term(METADATA_GROUP),
            store.last_time_ms() or 0,
            store.born,
            MACHINE.form(self.found.state),
            (),
            (),
            b"",
            MACHINE.snapshot(self.found.state),
        )


def _messages(state: QueueState) -> int:
    held = state.order.count + state.unacknowledged + state.claimed
    return held + state.delayed.count + state.letters.count


def recover(settings: NodeConfig, confirmed: str | None, ask: Callable[[str], str]) -> int:
    """Print what is given up, have it confirmed, and make the node the only one of a cluster.

    confirmed  the node's name as given with the command; None: `ask` for it
    raises     RecoveryRefused, StorageError, OSError
    """
    files = Files()
    if not files.exists(settings.data_dir / IDENTITY):
        raise RecoveryRefused(f"{settings.data_dir} is not the data directory of a node")
    with OfflineLogs(files, settings.data_dir, settings.cluster, settings.node) as logs:
        recovery = Recovery(logs)
        for line in described(recovery.found, settings.node):
            print(line)
        sys.stdout.flush()
        typed = confirmed if confirmed is not None else ask(f"Type {settings.node} to go on: ")
        if typed.strip() != settings.node:
            raise RecoveryRefused(f"{typed!r} is not this node's name: nothing was changed")
        cluster_id = recovery.carry_out()
    print(
        f"node {settings.node} is the only one of cluster {settings.cluster} {cluster_id}. Start "
        "it, and let new nodes join with empty directories"
    )
    return 0


def described(found: Holdings, node: NodeId) -> Iterator[str]:
    """Yield the lines that say what is given up."""
    others = sorted(name for name in found.state.nodes if name != node)
    yield f"Of the cluster of {', '.join([node, *others])}, {node} alone is left."
    yield f"Refused for good with the directories that they have: {', '.join(others) or 'none'}."
    yield f"Definitions: up to entry {found.definitions}, {len(found.groups)} queues here."
    for one in found.groups:
        name = errors.named("queue", one.queue.name, one.queue.vhost)
        claims = f", {one.claims} claims open" if one.claims else ""
        more = f"; {', '.join(one.others)} may hold more" if one.others else ""
        part = "" if one.complete else "; this member was still catching up, and may lack much"
        yield (
            f"  {name}: {one.messages} messages{claims}, up to entry {one.last} (committed up to "
            f"{one.committed} at least){more}{part}"
        )
    for queue in found.lost:
        yield (
            f"  {errors.named('queue', queue.name, queue.vhost)}: LOST, its members were on "
            f"{', '.join(queue.carriers)}: it is deleted"
        )
