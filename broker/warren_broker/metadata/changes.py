"""What came of a metadata command, for every node to act upon.

These are the effects of `MetadataMachine.apply`. They concern every member, not only the leader:
each node starts and stops its members of queues' groups by them. A node that was restored from a
snapshot sees none; it compares with the state instead. Each may be seen twice or never.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from warren_broker.metadata.records import QueueRecord
from warren_broker.queue.commands import UplinkId


class QueueCreated(msgspec.Struct, frozen=True):
    """Start its group on queue.nodes."""

    queue: QueueRecord


class QueueDeleted(msgspec.Struct, frozen=True):
    """Stop its group; its consumers are cancelled."""

    queue: QueueRecord


class MembersSet(msgspec.Struct, frozen=True):
    """The queue is to have other members than before, or one has left."""

    queue: QueueRecord


class NodesChanged(msgspec.Struct, frozen=True):
    """A node joined, moved, was drained or revived, is leaving or has left.

    joined, left  its name, when it is new or gone; "": neither
    """

    joined: str = ""
    left: str = ""


class TopologyChanged(msgspec.Struct, frozen=True):
    """Exchanges, bindings or queues of that vhost are others now."""

    vhost: str


class VhostDeleted(msgspec.Struct, frozen=True):
    """Close its connections."""

    name: str


class UserChanged(msgspec.Struct, frozen=True):
    """Password, tags or permissions changed, or the user is gone (`deleted`): look again."""

    name: str
    deleted: bool = False


class NodeRenewed(msgspec.Struct, frozen=True):
    """A node began a new life; `previous` (0: none) is over and every queue is to be told.

    uplink  0: it has left the cluster, there is no new one
    """

    node: str
    uplink: UplinkId
    previous: UplinkId


class BootstrapWanted(msgspec.Struct, frozen=True):
    """There is nothing at all: the leader proposes `Bootstrap` with its settings' vhost and
    user."""


Change: TypeAlias = (
    QueueCreated
    | QueueDeleted
    | TopologyChanged
    | VhostDeleted
    | UserChanged
    | NodeRenewed
    | BootstrapWanted
    | MembersSet
    | NodesChanged
)
