"""From one membership to the next, one safe step at a time.

A CONFIG entry's data is an encoded Membership. Two memberships that differ in one voter have
majorities that overlap, so no two leaders can be elected by them (thesis, 4.1); that is why there
is no function here that changes two voters.
"""

from __future__ import annotations

import msgspec

from warren_raft.errors import MembershipRefused, StorageError
from warren_raft.types import Membership, NodeId


def encode(membership: Membership) -> bytes:
    """What stands in a CONFIG entry."""
    return msgspec.msgpack.encode((membership.voters, membership.learners))


def decode(data: bytes) -> Membership:
    """The inverse of `encode`."""
    try:
        voters, learners = msgspec.msgpack.decode(
            data, type=tuple[tuple[NodeId, ...], tuple[NodeId, ...]]
        )
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StorageError(
            f"a CONFIG entry of {len(data)} bytes holds no membership ({error}); "
            "restore this member from another one"
        ) from error
    return Membership(voters, learners)


def add_learner(membership: Membership, node: NodeId) -> Membership:
    """`node` receives the log and does not vote."""
    if node in membership.voters or node in membership.learners:
        raise MembershipRefused("cannot add", node, "it is a member already")
    return Membership(membership.voters, _with(membership.learners, node))


def promote(membership: Membership, node: NodeId) -> Membership:
    """The learner `node` votes; the caller has seen that it caught up."""
    if node not in membership.learners:
        raise MembershipRefused("cannot promote", node, "add it as a learner first")
    return Membership(_with(membership.voters, node), _without(membership.learners, node))


def remove(membership: Membership, node: NodeId) -> Membership:
    """`node` is a member no longer."""
    if node in membership.learners:
        return Membership(membership.voters, _without(membership.learners, node))
    if node not in membership.voters:
        raise MembershipRefused("cannot remove", node, "it is no member")
    if len(membership.voters) == 1:
        raise MembershipRefused("cannot remove", node, "it is the last voter; delete the group")
    return Membership(_without(membership.voters, node), membership.learners)


def _with(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(sorted((*nodes, node)))


def _without(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(other for other in nodes if other != node)
