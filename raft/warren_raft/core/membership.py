"""From one membership to the next, one safe step at a time.

A CONFIG entry's data is an encoded Membership. Two memberships that differ in one voter have
majorities that overlap, so no two leaders can be elected by them (thesis, 4.1); that is why there
is no change here of two voters. A node that came back under another id is another voter: it is
demoted, then promoted again, in two steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from warren_raft.errors import MembershipRefused, StorageError
from warren_raft.types import MemberId, Membership, NodeId


@dataclass(frozen=True, slots=True)
class AddLearner:
    """`node` receives the log and does not vote; it is promoted when it has caught up."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Promote:
    """The learner `node` votes; a leader does this by itself, see core.membership_change."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Remove:
    """`node`, voter or learner, is a member no longer."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Demote:
    """The voter `node` becomes a learner."""

    node: NodeId


Change: TypeAlias = AddLearner | Promote | Remove | Demote

WHAT: dict[type, str] = {
    AddLearner: "cannot add",
    Promote: "cannot promote",
    Remove: "cannot remove",
    Demote: "cannot demote",
}
"""How a refusal of each begins."""


def encode(membership: Membership) -> bytes:
    """What stands in a CONFIG entry."""
    return msgspec.msgpack.encode((membership.voters, membership.learners, membership.ids))


def decode(data: bytes) -> Membership:
    """The inverse of `encode`."""
    try:
        voters, learners, ids = msgspec.msgpack.decode(
            data,
            type=tuple[tuple[NodeId, ...], tuple[NodeId, ...], tuple[tuple[NodeId, MemberId], ...]],
        )
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StorageError(
            f"a CONFIG entry of {len(data)} bytes holds no membership ({error}); "
            "restore this member from another one"
        ) from error
    return Membership(voters, learners, ids)


def changed(membership: Membership, change: Change, member: MemberId = 0) -> Membership:
    """The membership after one change; raises MembershipRefused.

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
    """`node` receives the log and does not vote."""
    if node in membership:
        raise MembershipRefused("cannot add", node, "it is a member already")
    return Membership(membership.voters, _with(membership.learners, node), membership.ids)


def promote(membership: Membership, node: NodeId, member: MemberId = 0) -> Membership:
    """The learner `node` votes under that id; the caller has seen that it caught up."""
    if node not in membership.learners:
        remedy = "it votes already" if node in membership.voters else "add it as a learner first"
        raise MembershipRefused("cannot promote", node, remedy)
    ids = membership.ids
    if member:
        ids = tuple(sorted((*ids, (node, member))))
    return Membership(_with(membership.voters, node), _without(membership.learners, node), ids)


def demote(membership: Membership, node: NodeId) -> Membership:
    """The voter `node` is a learner from here on."""
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
    """`node` is a member no longer."""
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
