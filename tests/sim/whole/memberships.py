"""Memberships: one change at a time, and every intended voter votes at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.checkers import require
from warren_raft.types import Membership

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World


def identities(membership: Membership) -> dict[tuple[str, int], bool]:
    """Return the voters, each with the id of its log."""
    return {(name, membership.id_of(name)): True for name in membership.voters}


class Memberships:
    """Two memberships that follow each other differ in one voter (thesis, 4.1).

    current  process of a member -> the membership applied last
    changes  the number of changes
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.current: dict[tuple[int, int, int], Membership] = {}
        self.changes = 0

    def restored(self, process: Process, group: int) -> None:
        """Take the members as of a snapshot's end, which may cover many changes."""
        self.current.pop(self.world.checkers.states.life(process, group), None)

    def changed(self, process: Process, group: int, membership: Membership) -> None:
        """Check a committed change."""
        life = self.world.checkers.states.life(process, group)
        before, self.current[life] = self.current.get(life), membership
        self.changes += 1
        self.world.note("members", process.name, group, membership.voters, membership.learners)
        require(len(membership.voters) > 0, "a group without voters", group)
        if before is not None:
            old, new = identities(before), identities(membership)
            differ = [one for one in (*old, *new) if (one in old) != (one in new)]
            require(len(differ) <= 1, "two voters changed at once", group, before, membership)

    def everybody_votes(self, group: int) -> bool:
        """Return whether every member of the group on a present node votes, under its id."""
        members = self.world.members(group)
        for process in members:
            found = process.host._groups[group].node
            every = self.world.members(group, every=True)
            leading = [process for process in every if process.host.is_leader(group)]
            if not leading:
                return False
            membership = leading[0].host.members(group)
            learners = [name for name in membership.learners if name not in self.world.profile.bad]
            if learners or not membership.votes(process.name, found.member_id):
                return False
        return True
