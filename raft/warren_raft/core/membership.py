"""Membership changes, one safe step at a time.

A CONFIG entry's data is an encoded Membership. Two memberships that differ in one voter have
majorities that overlap, so no two leaders can be elected by them (thesis, 4.1); that is why no
change here replaces two voters. A node that returned under another id is another voter: it is
demoted, then promoted again, in two steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from warren_raft.errors import MembershipRefused, StorageError
from warren_raft.types import MemberId, Membership, NodeId
from warren_wire.undecodable import UNDECODABLE


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of one member."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class AddLearner(NodeChange):
    """Make `node` a learner: it receives the log without a vote until it has caught up."""


@dataclass(frozen=True, slots=True)
class Promote(NodeChange):
    """Make the learner `node` a voter; the leader proposes it, see core.membership_change."""


@dataclass(frozen=True, slots=True)
class Remove(NodeChange):
    """Remove `node`, voter or learner, from the group."""


@dataclass(frozen=True, slots=True)
class Demote(NodeChange):
    """Make the voter `node` a learner."""


Change: TypeAlias = AddLearner | Promote | Remove | Demote

WHAT: dict[type, str] = {
    AddLearner: "cannot add",
    Promote: "cannot promote",
    Remove: "cannot remove",
    Demote: "cannot demote",
}
"""The first words of a refusal of each change."""


def encode(membership: Membership) -> bytes:
    """Encode a membership as the data of a CONFIG entry."""
    return msgspec.msgpack.encode((membership.voters, membership.learners, membership.ids))


def decode(data: bytes) -> Membership:
    """Invert `encode`; raises StorageError, also for what breaks an invariant of Membership."""
    try:
        voters, learners, ids = msgspec.msgpack.decode(
            data,
            type=tuple[tuple[NodeId, ...], tuple[NodeId, ...], tuple[tuple[NodeId, MemberId], ...]],
        )
        return Membership(voters, learners, ids)
    except (*UNDECODABLE, AssertionError) as error:
        raise StorageError(
            f"a CONFIG entry of {len(data)} bytes holds no membership ({error}); "
            "restore this member from another one"
        ) from error


def changed(membership: Membership, change: Change, member: MemberId = 0) -> Membership:
    """Return the membership after one change; raises MembershipRefused.

    member  the id under which a node that is promoted votes
    """
    match change:
        case AddLearner(node):
            return add_learner(membership, node)
        case Promote(node):
            return promote(membership, node, member)
        case Remove(node):
            return remove(membership, node)
        case Demote(node):
            return demote(membership, node)


def add_learner(membership: Membership, node: NodeId) -> Membership:
    """Return the membership with `node` as a learner."""
    if node in membership:
        raise MembershipRefused("cannot add", node, "it is a member already")
    return Membership(membership.voters, _with(membership.learners, node), membership.ids)


def promote(membership: Membership, node: NodeId, member: MemberId = 0) -> Membership:
    """Return it with the learner `node` as a voter under that id; it has caught up already."""
    if node not in membership.learners:
        remedy = "it votes already" if node in membership.voters else "add it as a learner first"
        raise MembershipRefused("cannot promote", node, remedy)
    ids = membership.ids
    if member:
        ids = tuple(sorted((*ids, (node, member))))
    return Membership(_with(membership.voters, node), _without(membership.learners, node), ids)


def demote(membership: Membership, node: NodeId) -> Membership:
    """Return the membership with the voter `node` as a learner."""
    if node not in membership.voters:
        remedy = "it is a learner already" if node in membership else "it is no member"
        raise MembershipRefused("cannot demote", node, remedy)
    if len(membership.voters) == 1:
        raise MembershipRefused("cannot demote", node, "it is the last voter; add another first")
    return Membership(
        _without(membership.voters, node),
        _with(membership.learners, node),
        _unnamed(membership.ids, node),
    )


def remove(membership: Membership, node: NodeId) -> Membership:
    """Return the membership without `node`."""
    if node in membership.learners:
        return Membership(membership.voters, _without(membership.learners, node), membership.ids)
    if node not in membership.voters:
        raise MembershipRefused("cannot remove", node, "it is no member")
    if len(membership.voters) == 1:
        raise MembershipRefused("cannot remove", node, "it is the last voter; delete the group")
    return Membership(
        _without(membership.voters, node), membership.learners, _unnamed(membership.ids, node)
    )


def _with(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(sorted((*nodes, node)))


def _without(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(other for other in nodes if other != node)


def _unnamed(
    ids: tuple[tuple[NodeId, MemberId], ...], node: NodeId
) -> tuple[tuple[NodeId, MemberId], ...]:
    return tuple((other, member) for other, member in ids if other != node)
