"""The changes caused by a metadata command, for every node to act upon.

These are the effects of `MetadataMachine.apply`. They concern every member, not only the leader:
each node starts and stops its members of queues' groups by them. A node restored from a snapshot
gets none; it compares with the state instead. Each may arrive twice or never.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from warren_machines.metadata import records
from warren_machines.queue.commands import UplinkId


class QueueChanged(msgspec.Struct, frozen=True):
    """A queue was created or deleted, its members were set, or one that was removed has left.

    A node starts or stops its member by what the definitions say then.
    """

    queue: records.QueueRecord


class NodesChanged(msgspec.Struct, frozen=True):
    """A node joined, moved, was drained or revived, is leaving or has left.

    joined, left  the node's name, when it joined or left the cluster; "": neither
    """

    joined: str = ""
    left: str = ""


class PoliciesChanged(msgspec.Struct, frozen=True):
    """A policy or operator policy of that vhost was set or cleared."""

    vhost: str


class VhostDeleted(msgspec.Struct, frozen=True):
    """A vhost was deleted: close its connections."""

    name: str


class UserDeleted(msgspec.Struct, frozen=True):
    """A user was deleted: close its connections."""

    name: str


class NodeRenewed(msgspec.Struct, frozen=True):
    """A node started again; its incarnation `previous` (0: none) has ended, as every queue is told.

    uplink  of the new incarnation; 0: there is none, the node has left the cluster
    """

    node: str
    uplink: UplinkId
    previous: UplinkId


Definition: TypeAlias = (
    records.QueueRecord
    | records.Exchange
    | records.Binding
    | records.Vhost
    | records.User
    | records.Grant
    | records.Policy
    | records.Parameter
)


class DefinitionEvent(msgspec.Struct, frozen=True):
    """An object was created, changed or deleted, for the event exchange (`cluster.client.events`).

    key         routing key of the event, such as "exchange.created"
    definition  the object as it is now, or as it was before it was deleted
    """

    key: str
    definition: Definition


Change: TypeAlias = (
    QueueChanged
    | VhostDeleted
    | UserDeleted
    | NodeRenewed
    | NodesChanged
    | PoliciesChanged
    | DefinitionEvent
)
