"""The commands of group 0's log, which change the cluster's definitions, with their replies.

Applying a command needs no setting and no clock: the submitter has checked arguments and decided
placement; what depends on the state (existence, equivalence, ownership) is decided when the
command is applied.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from warren_machines.metadata.records import (
    Arguments,
    BindingEnds,
    ConnectionId,
    ExchangeSettings,
    Grant,
    Limits,
    Parameter,
    Policy,
    QueueRecord,
    User,
    Vhost,
)
from warren_machines.queue.commands import UplinkId
from warren_raft.versions import FIRST, Versions
from warren_wire import errors
from warren_wire.queue_values.config import QueueConfig


class MetadataCommand(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class of all commands."""


class Bootstrap(MetadataCommand, frozen=True, array_like=True, tag="bootstrap"):
    """Create the first vhost and its all-powerful first user; a repeat changes nothing."""

    vhost: Vhost
    user: User


class NodeStarted(MetadataCommand, frozen=True, array_like=True, tag="node_started"):
    """Begin a node's new incarnation; delete exclusive and transient queues of its older ones.

    Reply: Deleted. Applied implicitly when the first submission of an unknown uplink arrives.

    disk      id of its data directory
    address   where its peers reach it
    ports     on which it listens for clients
    versions  that its program has
    """

    node: str
    uplink: UplinkId
    disk: int
    address: str
    ports: tuple[int, ...] = ()
    versions: Versions = FIRST


class JoinNode(MetadataCommand, frozen=True, array_like=True, tag="join_node"):
    """Register a new node in the cluster; a repeat changes nothing."""

    node: str
    disk: int
    address: str
    versions: Versions = FIRST


class RaiseVersion(MetadataCommand, frozen=True, array_like=True, tag="raise_version"):
    """Raise the cluster's version, if every node has it; a lower one changes nothing."""

    version: int


class SetDrained(MetadataCommand, frozen=True, array_like=True, tag="set_drained"):
    """Put a node into maintenance or end it; a restart of the node ends it, too."""

    node: str
    drained: bool


class ForgetNode(MetadataCommand, frozen=True, array_like=True, tag="forget_node"):
    """Start removing a node for good: from the members of every queue.

    A queue with its only wanted member on the node, while former members still keep their logs,
    gets those back. Reply: Deleted, the queues that had no other member.
    """

    node: str


class RemoveNode(MetadataCommand, frozen=True, array_like=True, tag="remove_node"):
    """Remove a forgotten node from the cluster once it has left all its groups."""

    node: str
    disk: int


class ChangeMembers(MetadataCommand, frozen=True, array_like=True, tag="change_members"):
    """Add members to a queue and remove others. Reply: QueueIs.

    expected  the members that the sender knew, for a change that follows from them: if the queue
              has others by now, nothing changes; None: whatever they are
    mirrored  the new value of `QueueRecord.mirrored`; None: as it is. With it a classic queue may
              get more members
    """

    group: int
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    expected: tuple[str, ...] | None = None
    mirrored: bool | None = None


class RecoverQueue(MetadataCommand, frozen=True, array_like=True, tag="recover_queue"):
    """Give up the members of a queue but one, which continues it as another group. Reply: QueueIs.

    The others have lost their disks, or will be refused: their group is not the queue's any more.
    created  in the reply: False when the queue has other members than `expected` by now
    """

    group: int
    node: str
    expected: tuple[str, ...]


class Left(MetadataCommand, frozen=True, array_like=True, tag="left"):
    """Report that the queue's group has removed that member: its node may delete its log."""

    group: int
    node: str


class Barrier(MetadataCommand, frozen=True, array_like=True, tag="barrier"):
    """Do nothing: a node that applied it has applied what was answered before its submission."""


class AddVhost(MetadataCommand, frozen=True, array_like=True, tag="add_vhost"):
    """Add a vhost with its default exchanges; a repeat changes nothing."""

    vhost: Vhost


class DeleteVhost(MetadataCommand, frozen=True, array_like=True, tag="delete_vhost"):
    """Delete a vhost with everything in it, unless it is protected. Reply: Deleted."""

    name: str


class PutVhost(MetadataCommand, frozen=True, array_like=True, tag="put_vhost"):
    """Add a vhost, or replace all of an existing one but its limits."""

    vhost: Vhost


class PutUser(MetadataCommand, frozen=True, array_like=True, tag="put_user"):
    """Add a user, or replace all of an existing one but its limits.

    Refused when no user would have the tag `administrator` afterwards; an import of definitions
    checks that at its end.
    """

    user: User


class DeleteUser(MetadataCommand, frozen=True, array_like=True, tag="delete_user"):
    """Delete a user with all grants, unless it is the last one with the tag `administrator`."""

    name: str


class PutGrant(MetadataCommand, frozen=True, array_like=True, tag="put_grant"):
    """Set a user's permissions (or topic permissions); see `check_patterns`."""

    grant: Grant


class DeleteGrant(MetadataCommand, frozen=True, array_like=True, tag="delete_grant"):
    """Clear permissions.

    exchange  None: the permissions; "": all topic permissions; else those of that exchange
    """

    vhost: str
    user: str
    exchange: str | None = None


class SetPolicy(MetadataCommand, frozen=True, array_like=True, tag="set_policy"):
    """Set a policy; see `policy_keys.check_policy`."""

    policy: Policy


class ClearPolicy(MetadataCommand, frozen=True, array_like=True, tag="clear_policy"):
    """Remove a policy; an unknown name is refused."""

    vhost: str
    name: str
    operator: bool = False


class ChangeLimits(MetadataCommand, frozen=True, array_like=True, tag="change_limits"):
    """Change the limits of a vhost or of a user; see `limits.check_limits`.

    limits   to be set; the others stay as they are
    replace  the others are cleared
    cleared  limits to be cleared; unknown ones are not an error
    """

    of: Literal["vhost", "user"]
    name: str
    limits: Limits = {}
    replace: bool = False
    cleared: tuple[str, ...] = ()


class PutParameter(MetadataCommand, frozen=True, array_like=True, tag="put_parameter"):
    """Set a runtime parameter, or a global one; see `parameter_values`."""

    parameter: Parameter


class DeleteParameter(MetadataCommand, frozen=True, array_like=True, tag="delete_parameter"):
    """Remove a runtime parameter; an unknown one is refused.

    vhost  "": a global parameter
    """

    vhost: str
    component: str
    name: str


class DeclareExchange(
    MetadataCommand, ExchangeSettings, frozen=True, array_like=True, tag="declare_exchange"
):
    """Declare an exchange; an existing equivalent one is not an error.

    store_nodes, store_leader  placement of the store of a new exchange that keeps messages
              (`exchange_types.KEEPING_KINDS`)
    own       the broker declares it for itself: its name may begin with `amq.`
    """

    store_nodes: tuple[str, ...] = ()
    store_leader: str = ""
    own: bool = False


class DeleteExchange(MetadataCommand, frozen=True, array_like=True, tag="delete_exchange"):
    """Delete an exchange with its bindings; an unknown name is not an error."""

    vhost: str
    name: str
    if_unused: bool = False


class BindingCommand(MetadataCommand, BindingEnds, frozen=True, array_like=True):
    """A binding's source, destination and key.

    connection  of the requester, for exclusive queues; 0: the broker itself
    """

    connection: ConnectionId = 0


class Bind(BindingCommand, frozen=True, array_like=True, tag="bind"):
    """Add a binding; a repeat changes nothing. Reply: BindingIs."""


class Unbind(BindingCommand, frozen=True, array_like=True, tag="unbind"):
    """Remove a binding; an unknown one is not an error."""


class DeclareQueue(MetadataCommand, frozen=True, array_like=True, tag="declare_queue"):
    """Declare a queue. Reply: QueueIs.

    config, arguments  from `arguments.queue_declaration`
    nodes, leader      placement of a new queue
    connection         of the requester: the owner when the queue is exclusive
    server_named       its `amq.` prefix is allowed
    relaxed            a classic queue is asked for: a quorum queue of that name will do
    initial            settings that a new queue begins with (`QueueRecord.initial`)
    mirrored           `nodes` of a new queue are those of a policy (`QueueRecord.mirrored`)
    by_default         `QueueDeclaration.by_default`: a new queue has it among its arguments
    """

    config: QueueConfig
    arguments: Arguments
    nodes: tuple[str, ...]
    leader: str
    connection: ConnectionId = 0
    server_named: bool = False
    relaxed: bool = False
    initial: QueueConfig | None = None
    mirrored: bool = False
    by_default: str = ""


class DeleteQueue(MetadataCommand, frozen=True, array_like=True, tag="delete_queue"):
    """Delete a queue with its bindings. Reply: Deleted, empty when there is none.

    group  only if the queue still has this group; 0: whichever queue has the name
    """

    vhost: str
    name: str
    group: int = 0
    connection: ConnectionId = 0


class OwnerGone(MetadataCommand, frozen=True, array_like=True, tag="owner_gone"):
    """Delete the exclusive queues of a connection that has ended. Reply: Deleted."""

    uplink: UplinkId
    connection: ConnectionId


AnyImported: TypeAlias = (
    PutVhost
    | PutUser
    | PutGrant
    | ChangeLimits
    | SetPolicy
    | PutParameter
    | DeclareExchange
    | DeclareQueue
    | Bind
)
"""The commands that an import is made of."""


class ImportDefinitions(MetadataCommand, frozen=True, array_like=True, tag="import_definitions"):
    """Carry out commands in order, all or none; what is in effect already is left alone.

    Refused with the text of the command that is refused, or when no administrator would be left.

    source  digest of a file of definitions that nodes load at their start; a file that was loaded
            last is not loaded again. "": none, the commands are carried out in any case
    first   the cluster has no vhost and no user yet, and gets those of the import: there will be
            no `Bootstrap`
    """

    commands: tuple[AnyImported, ...]
    source: str = ""
    first: bool = False


if TYPE_CHECKING:
    AnyCommand: TypeAlias = MetadataCommand
else:  # what a submission is decoded as: every command that is no base of others
    AnyCommand = reduce(
        or_,
        (
            kind
            for kind in list(vars().values())
            if isinstance(kind, type)
            and issubclass(kind, MetadataCommand)
            and not kind.__subclasses__()
        ),
    )


class MetadataSubmission(msgspec.Struct, frozen=True, array_like=True):
    """What one node submits to the metadata group at once; applied whole, once, in order.

    uplink  of the node; 0: not counted, not de-duplicated (the leader's own, an operator's tool)
    seq     1, 2, 3 … per uplink; a repeat is answered as the first time, a gap is refused
    version  of the cluster, as the process that submits knew it: applied as in that version
    """

    uplink: UplinkId
    node: str
    seq: int
    commands: tuple[AnyCommand, ...]
    version: int


# ------------------------------------------------------------------ replies


class MetadataReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class of all replies."""


class MetadataDone(MetadataReply, frozen=True, array_like=True, tag="done"):
    """Carried out, or already in effect."""


class BindingIs(MetadataReply, frozen=True, array_like=True, tag="binding"):
    """The binding exists: it was added (`created`), or was there before."""

    created: bool


class QueueIs(MetadataReply, frozen=True, array_like=True, tag="queue"):
    """The queue that a declaration created (`created`) or found."""

    queue: QueueRecord
    created: bool


class Deleted(MetadataReply, frozen=True, array_like=True, tag="deleted"):
    """The queues that were deleted; their groups are to be stopped."""

    queues: tuple[QueueRecord, ...]


class MetadataRefused(MetadataReply, frozen=True, array_like=True, tag="refused"):
    """A refused command: the name of a class of `errors`, and its text."""

    error: str
    detail: str


AnyReply: TypeAlias = MetadataDone | BindingIs | QueueIs | Deleted | MetadataRefused


class MetadataSubmissionReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a submission: one reply per command.

    replies       empty for a repeat so old that its answer is forgotten
    expected_seq  set when there was a gap: nothing was applied, send again from there
    retired       the uplink's node has begun a newer incarnation: nothing was or will be applied
    """

    uplink: UplinkId
    seq: int
    replies: tuple[AnyReply, ...]
    expected_seq: int = 0
    retired: bool = False


def to_refused(refusal: errors.Refusal) -> MetadataRefused:
    """Return an exception as a reply."""
    return MetadataRefused(type(refusal).__name__, refusal.detail)


def to_refusal(reply: MetadataRefused) -> errors.Refusal:
    """Return the exception that a reply names; InternalError for one of a newer version."""
    kind = getattr(errors, reply.error, None)
    if isinstance(kind, type) and issubclass(kind, errors.Refusal):
        return kind(reply.detail)
    return errors.InternalError(f"{reply.error}: {reply.detail}")
