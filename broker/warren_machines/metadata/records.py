"""The objects declared in a cluster, as values.

They are arrays in the log of the metadata group and in its snapshots, on every member: **their
fields, and the order of these, are replicated state**. A new field goes to the end, has a default
that keeps the meaning of what was written without it, and comes with a new version
(`warren_raft.versions`).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from warren_machines.queue.commands import UplinkId
from warren_raft.versions import FIRST, Versions
from warren_wire.queue_values.config import QueueConfig

Arguments: TypeAlias = dict[str, Any]
"""Plain values (`warren_wire.arguments.plain`)."""
ConnectionId: TypeAlias = int
"""A client's connection, numbered by its node from 1, unique in an incarnation; 0: none."""
Limits: TypeAlias = dict[str, int]
"""The limits of a vhost or of a user by name (`metadata.limits`); below 0: none."""

_CANONICAL = msgspec.msgpack.Encoder(order="deterministic")


class Vhost(msgspec.Struct, frozen=True, array_like=True):
    """A namespace of queues and exchanges.

    default_queue_type  of durable queues that name none; "": the declaring node's default
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str = ""
    limits: Limits = {}


class User(msgspec.Struct, frozen=True, array_like=True):
    """A user that may log in.

    password_hash  base64 of salt and hash (`metadata.passwords`); "": no password matches
    """

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()
    limits: Limits = {}

    def __repr__(self) -> str:
        return f"User(name={self.name!r}, tags={self.tags!r})"


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """A user's patterns in a vhost; with `exchange`, for routing keys of that topic exchange."""

    vhost: str
    user: str
    configure: str
    write: str
    read: str
    exchange: str | None = None


class Policy(msgspec.Struct, frozen=True, array_like=True):
    """A policy, or operator policy (`operator`), of a vhost; see `policy_keys`.

    pattern   found in the names of the objects it applies to (`name_patterns`)
    priority  of the policies that match an object, the one of the highest priority applies; among
              equals the first by name
    """

    vhost: str
    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"
    operator: bool = False


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """A runtime parameter; see `parameter_values`.

    vhost      "": a global parameter, which has no component
    component  such as `shovel`: what the parameter is for
    value      of JSON; URIs with a password are sealed by `shovel.sealed_uris`
    user       the user that has set it, as which a link runs; "": the operator, by definitions that
               are loaded at a start; None: a login by token
    """

    vhost: str
    component: str
    name: str
    value: Any
    user: str | None = None


class ExchangeSettings(msgspec.Struct, frozen=True, array_like=True):
    """What an exchange and the command that declares it begin with.

    A new field goes to the end of one of them, not here. The same holds for `BindingEnds`.
    """

    vhost: str
    name: str
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = {}


class Exchange(ExchangeSettings, frozen=True, array_like=True):
    """An exchange, to which messages are published."""

    @property
    def alternate(self) -> str | None:
        """The exchange that gets what this one cannot route."""
        value = self.arguments.get("alternate-exchange")
        return value if isinstance(value, str) else None


class BindingEnds(msgspec.Struct, frozen=True, array_like=True):
    """What a binding and the commands that add and remove it begin with."""

    vhost: str
    source: str
    destination: str
    to_queue: bool
    routing_key: str = ""
    arguments: Arguments = {}


class Binding(BindingEnds, frozen=True, array_like=True):
    """A binding from an exchange to a queue (to_queue) or to another exchange."""

    @property
    def key(self) -> BindingKey:
        """Its identity among the bindings of its source; equal arguments in any order."""
        canonical = _CANONICAL.encode(self.arguments) if self.arguments else b""
        return (self.to_queue, self.destination, self.routing_key, canonical)


BindingKey: TypeAlias = tuple[bool, str, str, bytes]
BindingChange: TypeAlias = tuple[int, BindingKey, Binding, bool]
"""(version of the vhost, key, binding, True: added, False: removed)."""


NUMBERS_PER_GROUP: Final = 1 << 32
"""Claims, or epochs, that a queue can number before it reaches those of the next group: one every
millisecond for 49 days."""


def numbered_above(group: int) -> int:
    """Return the number above which a queue of that group numbers its claims and epochs.

    Groups are given out once and ascend, so a queue that is deleted and declared again shares no
    number with the one before:
    1. A driver holds claim 1 of queue q.  2. q is deleted and declared again; another driver opens
    claim 1 of the new one.  3. The first driver settles claim 1. If both had epoch 1, messages that
    it has never seen would be settled, and lost.
    """
    return group * NUMBERS_PER_GROUP


class QueueRecord(msgspec.Struct, frozen=True, array_like=True):
    """A queue and its placement.

    group             id of its Raft group: given out once, never again
    nodes             its members; one for a queue that is classic by name
    leader            preferred first leader
    founders          members that may begin with an empty log and vote; None: all of `nodes`
    leaving           former members; they keep their logs until the group has removed them
    owner_uplink      the uplink of the node with the connection that owns it; 0: not exclusive
    owner_connection  that connection
    life              the uplink of the node to which it is bound; 0: it outlives that (durable)
    initial           the settings that its machine begins with, under the policies known to the
                      node that declared it; None: `config`
    store_of          the exchange of which it keeps messages (`metadata.stores`), "" of none:
                      clients do not use such a queue, and no policy applies to it
    mirrored          its members follow a policy with `ha-mode`, or did and have not returned to
                      what they are without one (`cluster.membership.mirror_follower`)
    continues         the group of which its founder takes the log over, alone: that one had lost
                      its majority for good (`RecoverQueue`); 0: none
    """

    vhost: str
    name: str
    group: int
    config: QueueConfig
    arguments: Arguments
    nodes: tuple[str, ...]
    leader: str
    owner_uplink: UplinkId = 0
    owner_connection: ConnectionId = 0
    life: UplinkId = 0
    founders: tuple[str, ...] | None = None
    leaving: tuple[str, ...] = ()
    initial: QueueConfig | None = None
    store_of: str = ""
    mirrored: bool = False
    continues: int = 0

    @property
    def replicable(self) -> bool:
        """Whether it may have several members: durable, and no connection's own."""
        return not self.life and not self.owner_uplink

    @property
    def replicated(self) -> bool:
        """Whether its members may be changed; other queues exist only on their node.

        A queue that is classic by name is replicated while a policy mirrors it, and until the last
        member that it had by the policy has left.
        """
        several = self.config.several or self.mirrored or len(self.carriers) > 1
        return several and self.replicable

    @property
    def home(self) -> str:
        """The only node that has it; "": its members may be changed."""
        return "" if self.replicated else self.nodes[0]

    @property
    def passing(self) -> bool:
        """Whether it does not outlive an absent node: exclusive or transient.

        A durable auto-delete queue does: it has a disk, and messages confirmed as durable.
        """
        return not self.replicated and (self.config.exclusive or not self.config.durable)

    @property
    def carriers(self) -> tuple[str, ...]:
        """Every node that has, or may have, a part of it."""
        return (*self.nodes, *self.leaving)

    def founded_by(self, node: str) -> bool:
        """Return whether that node has been a member from the beginning without a break."""
        return node in (self.nodes if self.founders is None else self.founders)

    def owned_by(self, uplink: UplinkId, connection: ConnectionId) -> bool:
        """Return whether that connection may use it; any may unless it is exclusive."""
        return not self.owner_uplink or (uplink, connection) == (
            self.owner_uplink,
            self.owner_connection,
        )


class ClusterNode(msgspec.Struct, frozen=True, array_like=True):
    """A node of the cluster.

    address      where its peers reach it, `host:port`
    disk         id of its data directory: another id means other contents
    since_group  queues up to this group are older than that disk: it holds nothing of them but
                 what their leaders send it
    drained      in maintenance: no leaders or new members are placed there
    forgetting   being removed from the cluster for good
    ports        on which it listens for clients
    versions     that its program has
    """

    name: str
    address: str
    disk: int
    since_group: int = 0
    drained: bool = False
    forgetting: bool = False
    ports: tuple[int, ...] = ()
    versions: Versions = FIRST
