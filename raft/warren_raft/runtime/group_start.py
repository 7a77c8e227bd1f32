"""The start of this node's member of a group, from a new log or the one found on disk."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from random import Random

from warren_raft.config import RaftConfig
from warren_raft.core.raft_node import RaftNode
from warren_raft.machine import GroupSpec, Machine
from warren_raft.messages import AnyRaftMessage, Append, SnapshotChunk
from warren_raft.runtime import log_identity
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.group import Group
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import METADATA_GROUP, GroupId, Membership, NodeId
from warren_raft.versions import VersionNeeded, Versions

GROUPS_MAX = 4096
GROUP_MESSAGES_MAX = 8
"""Per group; a new group's first candidate and leader send fewer."""


class EarlyMessages:
    """The first few messages per group; the oldest groups are dropped first.

    A new group's preferred member campaigns as soon as it has started, perhaps before the others
    have: without this buffer its request for votes would be lost, and the group would wait for an
    election timeout. Any of the messages may be lost: Raft repeats them.
    Bounds: GROUPS_MAX groups, GROUP_MESSAGES_MAX messages each, none with entries.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[GroupId, list[AnyRaftMessage]] = OrderedDict()

    def add(self, message: AnyRaftMessage) -> None:
        """Keep a message if there is room; those with entries are left to retransmission."""
        if type(message) is SnapshotChunk:
            return  # the offer is repeated
        if type(message) is Append and message.entries:
            message = message.without_entries()
        messages = self._groups.setdefault(message.group, [])
        if len(messages) < GROUP_MESSAGES_MAX:
            messages.append(message)
        while len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)

    def forget(self, node: NodeId) -> None:
        """Drop every message from that node."""
        for group, messages in list(self._groups.items()):
            messages[:] = [message for message in messages if message.sender != node]
            if not messages:
                del self._groups[group]

    def take(self, group: GroupId) -> list[AnyRaftMessage]:
        """Remove and return that group's messages."""
        return self._groups.pop(group, [])


def begin_group(
    spec: GroupSpec,
    machine: Machine[object],
    logs: LogStore,
    config: HostConfig,
    rng: Random,
    now_ms: int,
) -> Group:
    """Open the group's log, or create it, and construct its member and its machine's state.

    A log found on disk names its founders and its member id; a snapshot in it names the members.
    A new one gets a random member id when it joins an existing group, 0 when it founds one.
    Raises VersionNeeded.
    """
    assert not spec.volatile or (len(spec.voters) == 1 and not spec.joining), spec
    store = logs.groups.get(spec.group)
    if store is None:
        assert spec.joining or config.node in spec.voters, (spec, config.node)
        member = rng.getrandbits(64) or 1 if spec.joining else 0
        born = log_identity.Birth(tuple(sorted(spec.voters)), member)
        store = logs.create(spec.group, log_identity.encode(born), volatile=spec.volatile)
    else:
        born = log_identity.decode(spec.group, store.created)
    members = born.membership(config.node)
    if store.snapshot is not None:
        members = known_members(store.snapshot, config.versions)
    node = RaftNode(
        spec.group,
        config.node,
        members,
        store.hard_state,
        store,
        config.raft if spec.group != METADATA_GROUP else _at_once(config.raft),
        rng,
        now_ms,
        spec.preferred,
        store.snapshot_index,
        born.member,
        store.configs(),
    )
    return Group(spec.group, node, store, machine, spec.volatile, config.retained_bytes_max)


def _at_once(config: RaftConfig) -> RaftConfig:
    """Return the settings of the metadata group: every node is to know definitions soon."""
    return replace(config, commit_delay_ms=0, last_copy_delay_ms=0)


def known_members(snapshot: Snapshot, versions: Versions) -> Membership:
    """Return the members as of a snapshot; raises VersionNeeded if its state is unreadable."""
    if snapshot.version > versions.newest:
        raise VersionNeeded(f"the snapshot of group {snapshot.group}", snapshot.version, versions)
    return Membership(snapshot.voters, snapshot.learners, snapshot.ids)
