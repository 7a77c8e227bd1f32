"""The next step from the members that a group has towards the wanted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from warren_raft.types import MemberState


@dataclass(frozen=True, slots=True)
class MemberStep:
    """A step that concerns one member."""

    node: str


@dataclass(frozen=True, slots=True)
class AddMember(MemberStep):
    """Add the node as a learner; the group promotes it when it has caught up."""


@dataclass(frozen=True, slots=True)
class RemoveMember(MemberStep):
    """Remove the node from the group."""


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Transfer the leadership from this node, which is to leave, to one that then removes it."""

    to: str


@dataclass(frozen=True, slots=True)
class CatchingUp(MemberStep):
    """Wait for a learner to catch up; voters are removed after that."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done now; `why` is logged."""

    why: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The voters are exactly the wanted ones."""


Step: TypeAlias = AddMember | RemoveMember | TransferLeadership | CatchingUp | Wait | Complete


def next_step(
    own: str,
    wanted: Iterable[str],
    members: Sequence[MemberState],
    reachable: Callable[[str], bool],
) -> Step:
    """Return the next step, which changes at most one member; additions come before removals.

    own        this node, which leads
    members    as this leader sees them
    reachable  whether a node that is not a member could become one now

    A learner that catches up does not hold up the next one:
    1. n3 comes back with a disk that hangs; its heartbeats are fine.  2. n4 joins. If it were added
    only after n3 had caught up, it would never be added.

    A live voter is removed only when enough others remain: before the new ones have joined, the
    group would temporarily have fewer copies than it had, or should have.
    """
    wanted = tuple(wanted)
    here = {member.node: member for member in members}
    if any(member.changing for member in members):
        return Wait("a change is under way")
    coming = [one for one in members if one.node in wanted and not one.voter]
    missing = [node for node in wanted if node not in here]
    for node in missing:
        if reachable(node):
            return AddMember(node)
    for one in coming:
        if not one.suspected:
            return CatchingUp(one.node)
    going = _removable(own, wanted, members)
    if going is not None:
        return going
    if missing or coming:
        names = ", ".join([*missing, *(one.node for one in coming)])
        return Wait(f"{names} cannot be reached")
    if any(one.node not in wanted for one in members):
        return Wait("no remaining member can take over")
    return Complete()


def _removable(own: str, wanted: tuple[str, ...], members: Sequence[MemberState]) -> Step | None:
    voters = [one for one in members if one.voter]
    staying = [one for one in voters if one.node in wanted and _sound(one)]
    if not staying:
        return None
    for one in sorted(members, key=lambda one: (one.voter, _sound(one), one.node)):
        if one.node in wanted or one.node == own:
            continue
        if not one.voter or not _sound(one) or len(voters) > len(wanted):
            return RemoveMember(one.node)
    if own in wanted or len(voters) <= len(wanted):
        return None
    return TransferLeadership(max(staying, key=lambda one: one.match).node)


def _sound(member: MemberState) -> bool:
    return not member.suspected and not member.lost
