"""The cluster's definitions as a replicated machine (`warren_raft.machine`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warren_machines.metadata import (
    cluster_version,
    commands,
    exchanges,
    image,
    imports,
    limits,
    node_registry,
    queues,
    runtime_parameters,
    vhosts_and_users,
)
from warren_machines.metadata.codec import MalformedMetadata, decode_submission
from warren_machines.metadata.commands import AnyReply, MetadataSubmission, MetadataSubmissionReply
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.node_registry import begin_life, is_retired
from warren_machines.metadata.state import MetadataState
from warren_raft.machine import Applied, Meta
from warren_raft.types import Index
from warren_raft.versions import NEWEST
from warren_wire.errors import Refusal


def barrier(context: MetadataContext, command: commands.Barrier) -> AnyReply:
    """Do nothing; see `commands.Barrier`."""
    return commands.MetadataDone()


HANDLERS: Final[dict[type, Callable[[MetadataContext, Any], AnyReply]]] = {
    commands.Bootstrap: vhosts_and_users.bootstrap,
    commands.NodeStarted: node_registry.node_started,
    commands.Barrier: barrier,
    commands.AddVhost: vhosts_and_users.add_vhost,
    commands.DeleteVhost: vhosts_and_users.delete_vhost,
    commands.PutVhost: vhosts_and_users.put_vhost,
    commands.PutUser: vhosts_and_users.put_user,
    commands.DeleteUser: vhosts_and_users.delete_user,
    commands.PutGrant: vhosts_and_users.put_grant,
    commands.DeleteGrant: vhosts_and_users.delete_grant,
    commands.DeclareExchange: exchanges.declare_exchange,
    commands.DeleteExchange: exchanges.delete_exchange,
    commands.Bind: exchanges.bind,
    commands.Unbind: exchanges.unbind,
    commands.DeclareQueue: queues.declare_queue,
    commands.DeleteQueue: queues.delete_queue,
    commands.OwnerGone: queues.owner_gone,
    commands.JoinNode: node_registry.join_node,
    commands.RaiseVersion: cluster_version.raise_version,
    commands.SetDrained: node_registry.set_drained,
    commands.ForgetNode: node_registry.forget_node,
    commands.RemoveNode: node_registry.remove_node,
    commands.ChangeMembers: node_registry.change_members,
    commands.Left: node_registry.left,
    commands.RecoverQueue: node_registry.recover_queue,
    commands.SetPolicy: runtime_parameters.set_policy,
    commands.ClearPolicy: runtime_parameters.clear_policy,
    commands.ChangeLimits: limits.change_limits,
    commands.PutParameter: runtime_parameters.put_parameter,
    commands.DeleteParameter: runtime_parameters.delete_parameter,
    commands.ImportDefinitions: imports.import_definitions,
}


class MetadataMachine:
    """The metadata state machine; see `metadata.commands` and `metadata.changes`.

    A handler checks everything before it changes anything, so a refused command has changed
    nothing. A change of what a submission does is a new version of the cluster, and what older ones
    do stays.
    """

    def __init__(self, newest: int = NEWEST) -> None:
        """newest: the version that it has; others are for tests."""
        self.newest = newest

    def init(self) -> MetadataState:
        """Return an empty state; the first leader proposes `Bootstrap`."""
        return MetadataState()

    def apply(self, meta: Meta, command: bytes, state: MetadataState) -> Applied:
        """Apply one submission; the reply is a MetadataSubmissionReply, effects are `Change`s."""
        try:
            submission = decode_submission(command, self.newest)
        except MalformedMetadata:
            return Applied()
        context = MetadataContext(meta, state, submission.uplink, submission.node)
        if not submission.uplink:
            replies = _carry_out(context, submission)
            return Applied(
                MetadataSubmissionReply(0, submission.seq, replies), tuple(context.changes)
            )
        return self._apply_numbered(context, submission)

    def _apply_numbered(self, context: MetadataContext, submission: MetadataSubmission) -> Applied:
        state, uplink, seq = context.state, submission.uplink, submission.seq
        if uplink not in state.uplinks:
            # 1. A submission of a node's old incarnation is on its way.  2. The new one has begun.
            # 3. The submission arrives: it must not be taken for the start of yet another
            # incarnation.
            # Replayed by test_a_late_submission_of_an_older_life_is_refused.
            if is_retired(state, submission.node, uplink):
                return Applied(MetadataSubmissionReply(uplink, seq, (), retired=True))
            if seq != 1:
                return Applied(MetadataSubmissionReply(uplink, seq, (), expected_seq=1))
            begin_life(context, submission.node, uplink)
        own = state.uplinks[uplink]
        if seq > own.last_seq + 1:
            return Applied(MetadataSubmissionReply(uplink, seq, (), expected_seq=own.last_seq + 1))
        if seq <= own.last_seq:
            return Applied(MetadataSubmissionReply(uplink, seq, own.answer(seq)))
        replies = _carry_out(context, submission)
        own.remember(seq, replies)
        return Applied(MetadataSubmissionReply(uplink, seq, replies), tuple(context.changes))

    def leader_effects(self, state: MetadataState) -> tuple[Any, ...]:
        """Return none: a leader sees in the state whether to propose `Bootstrap`."""
        return ()

    def form(self, state: MetadataState) -> int:
        """Return the cluster's version: the raise is in the log before what follows from it."""
        return state.version

    def snapshot(self, state: MetadataState) -> bytes:
        """Encode the whole state."""
        return image.to_bytes(state)

    def restore(self, data: bytes) -> MetadataState:
        """Restore a state from `snapshot`."""
        return image.from_bytes(data)

    def live_indexes(self, state: MetadataState) -> tuple[Index, ...]:
        """Return no indexes: the state holds everything, no entry's bytes are needed again."""
        return ()


def _carry_out(context: MetadataContext, submission: MetadataSubmission) -> tuple[AnyReply, ...]:
    replies: list[AnyReply] = []
    for command in submission.commands:
        try:
            replies.append(HANDLERS[type(command)](context, command))
        except Refusal as refusal:
            replies.append(commands.to_refused(refusal))
    return tuple(replies)
