"""What may happen to a cluster's definitions: the commands of group 0's log, with their replies.

Nothing in a command needs judging by a setting or a clock: arguments have been checked and
placement decided by whoever submits it; what depends on the state (does it exist, is it equivalent,
whose is it) is decided when it is applied.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from warren_broker import errors
from warren_broker.metadata.records import (
    Arguments,
    ConnectionId,
    Grant,
    QueueRecord,
    User,
    Vhost,
)
from warren_broker.queue.commands import UplinkId
from warren_broker.queue.config import QueueConfig


class MetadataCommand(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The parent of all commands."""


class Bootstrap(MetadataCommand, frozen=True, array_like=True, tag="bootstrap"):
    """The first vhost with the first user, who may do everything; a repeat changes nothing."""

    vhost: Vhost
    user: User


class NodeStarted(MetadataCommand, frozen=True, array_like=True, tag="node_started"):
    """A node's new life: exclusive and transient queues of its older ones go.

    Reply: Deleted. Applied by itself when the first submission of an unknown uplink arrives.

    disk      of its data directory; 0: a node of an older version, which is not registered
    address   where its peers reach it
    numbered  the life gets a number, the log index of this entry (`MetadataState.numbers`); False:
              written by a node of version 2, whose lives have none
    """

    node: str
    uplink: UplinkId
    disk: int = 0
    address: str = ""
    numbered: bool = False


class JoinNode(MetadataCommand, frozen=True, array_like=True, tag="join_node"):
    """A node that knows nothing yet asks to be one of the cluster's; a repeat changes nothing."""

    node: str
    disk: int
    address: str


class SetDrained(MetadataCommand, frozen=True, array_like=True, tag="set_drained"):
    """Into maintenance, or out of it; a node's new life ends it, too."""

    node: str
    drained: bool


class ForgetNode(MetadataCommand, frozen=True, array_like=True, tag="forget_node"):
    """A node is to leave for good: it is taken out of every queue's members. Reply: Deleted, the
    queues that had no other."""

    node: str


class RemoveNode(MetadataCommand, frozen=True, array_like=True, tag="remove_node"):
    """A node whose members have all been let go is one of the cluster's no longer."""

    node: str
    disk: int


class ChangeMembers(MetadataCommand, frozen=True, array_like=True, tag="change_members"):
    """A queue is to have these members in addition, and those no longer. Reply: QueueIs."""

    group: int
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class Left(MetadataCommand, frozen=True, array_like=True, tag="left"):
    """The queue's group has let that member go: its node may forget what it has of it."""

    group: int
    node: str


class Barrier(MetadataCommand, frozen=True, array_like=True, tag="barrier"):
    """Nothing; who has applied it has applied all that was answered before it was asked for."""


class AddVhost(MetadataCommand, frozen=True, array_like=True, tag="add_vhost"):
    """With its default exchanges; a repeat changes nothing."""

    vhost: Vhost


class DeleteVhost(MetadataCommand, frozen=True, array_like=True, tag="delete_vhost"):
    """With everything in it. Reply: Deleted."""

    name: str


class PutVhost(MetadataCommand, frozen=True, array_like=True, tag="put_vhost"):
    """Add, or replace the description and the tags of the one that is there. Since version 3."""

    vhost: Vhost


class PutUser(MetadataCommand, frozen=True, array_like=True, tag="put_user"):
    """Add or replace.

    keep_administrator  refused when nobody would have the tag `administrator` afterwards. False: as
                        before version 3, nobody looks
    """

    user: User
    keep_administrator: bool = False


class DeleteUser(MetadataCommand, frozen=True, array_like=True, tag="delete_user"):
    """With all grants; keep_administrator as in PutUser."""

    name: str
    keep_administrator: bool = False


class PutGrant(MetadataCommand, frozen=True, array_like=True, tag="put_grant"):
    """Set a user's permissions (or topic permissions); see `check_patterns`."""

    grant: Grant


class DeleteGrant(MetadataCommand, frozen=True, array_like=True, tag="delete_grant"):
    """exchange None: the permissions; "": all topic permissions; else those of that exchange."""

    vhost: str
    user: str
    exchange: str | None = None


class DeclareExchange(MetadataCommand, frozen=True, array_like=True, tag="declare_exchange"):
    """There already and equivalent is fine."""

    vhost: str
    name: str
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = {}


class DeleteExchange(MetadataCommand, frozen=True, array_like=True, tag="delete_exchange"):
    """With its bindings; when there is none, that is fine."""

    vhost: str
    name: str
    if_unused: bool = False


class BindingCommand(MetadataCommand, frozen=True, array_like=True):
    """A binding's source, destination and key.

    connection  who asks, for exclusive queues; 0: the broker itself
    """

    vhost: str
    source: str
    destination: str
    to_queue: bool
    routing_key: str = ""
    arguments: Arguments = {}
    connection: ConnectionId = 0


class Bind(BindingCommand, frozen=True, array_like=True, tag="bind"):
    """A repeat changes nothing."""


class Unbind(BindingCommand, frozen=True, array_like=True, tag="unbind"):
    """When there is no such binding, that is fine."""


class DeclareQueue(MetadataCommand, frozen=True, array_like=True, tag="declare_queue"):
    """Reply: QueueIs.

    config, arguments  from `arguments.queue_declaration`
    nodes, leader      where it is to live when it is new
    connection         who asks: the owner when it is exclusive
    server_named       its `amq.` prefix is no offence
    numbered           a new queue's claims and epochs are numbered above those of every queue
                       before it (`QueueRecord.numbered_above`); False: written by a node of
                       version 2
    """

    config: QueueConfig
    arguments: Arguments
    nodes: tuple[str, ...]
    leader: str
    connection: ConnectionId = 0
    server_named: bool = False
    numbered: bool = False


class DeleteQueue(MetadataCommand, frozen=True, array_like=True, tag="delete_queue"):
    """With its bindings. Reply: Deleted, empty when there is none.

    group  only if it is still this one; 0: whichever has the name
    """

    vhost: str
    name: str
    group: int = 0
    connection: ConnectionId = 0


class OwnerGone(MetadataCommand, frozen=True, array_like=True, tag="owner_gone"):
    """A connection has ended: its exclusive queues go. Reply: Deleted."""

    uplink: UplinkId
    connection: ConnectionId


AnyCommand: TypeAlias = (
    Bootstrap
    | NodeStarted
    | Barrier
    | AddVhost
    | DeleteVhost
    | PutUser
    | DeleteUser
    | PutGrant
    | DeleteGrant
    | DeclareExchange
    | DeleteExchange
    | Bind
    | Unbind
    | DeclareQueue
    | DeleteQueue
    | PutVhost
    | OwnerGone
    | JoinNode
    | SetDrained
    | ForgetNode
    | RemoveNode
    | ChangeMembers
    | Left
)


class MetadataSubmission(msgspec.Struct, frozen=True, array_like=True):
    """What one node hands to the metadata group in one turn; applied whole, once, in order.

    uplink  whose life; 0: not counted, not de-duplicated (the leader's own, an operator's tool)
    seq     1, 2, 3 … per uplink; a repeat is answered as the first time, a gap is refused
    """

    uplink: UplinkId
    node: str
    seq: int
    commands: tuple[AnyCommand, ...]


# ------------------------------------------------------------------ replies


class MetadataReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The parent of all replies."""


class MetadataDone(MetadataReply, frozen=True, array_like=True, tag="done"):
    """Carried out, or already so."""


class QueueIs(MetadataReply, frozen=True, array_like=True, tag="queue"):
    """The queue that a declaration made (`created`) or found."""

    queue: QueueRecord
    created: bool


class Deleted(MetadataReply, frozen=True, array_like=True, tag="deleted"):
    """The queues that went; their groups are to be stopped."""

    queues: tuple[QueueRecord, ...]


class MetadataRefused(MetadataReply, frozen=True, array_like=True, tag="refused"):
    """A command that could not be carried out: the name of a class of `errors`, its text."""

    error: str
    detail: str


AnyReply: TypeAlias = MetadataDone | QueueIs | Deleted | MetadataRefused


class MetadataSubmissionReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a submission: one reply per command.

    replies       empty for a repeat so old that its answer is forgotten
    expected_seq  set when there was a gap: nothing was applied, send again from there
    retired       the uplink's node has begun a newer life: nothing was applied, nor will be
    """

    uplink: UplinkId
    seq: int
    replies: tuple[AnyReply, ...]
    expected_seq: int = 0
    retired: bool = False


def to_refused(refusal: errors.Refusal) -> MetadataRefused:
    """An exception as a reply."""
    return MetadataRefused(type(refusal).__name__, refusal.detail)


def to_refusal(reply: MetadataRefused) -> errors.Refusal:
    """The exception that a reply speaks of; one of a newer version is an InternalError."""
    kind = getattr(errors, reply.error, None)
    if isinstance(kind, type) and issubclass(kind, errors.Refusal):
        return kind(reply.detail)
    return errors.InternalError(f"{reply.error}: {reply.detail}")
