"""The memberships that may be in effect in a simulated world, and the disks they depend on.

A lost disk cannot make a group lose data or disagree: a member that lost its disk has failed under
the id it had, and a group is safe whichever members fail. But a group continues only while a
majority is up, and a member under another id is not in it until it is promoted. So a world takes a
disk only when

1. every member of every membership that may be in effect has the id named there: a member that
   lost a disk before is back under its new id, and the leader knows that id;
2. without the disk each of those memberships keeps a majority of intact disks, and so does each
   that follows by the promotion of a learner, which a leader may be about to append.

And its operator proposes no change that leaves less than an intact majority: no leader can know of
a disk that was just lost. Between a loss and its detection the group has one voter less, as between
a crash and a start; two of two, or the one of one, are always needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren_raft.core import membership as rules
from warren_raft.core.quorum import majority
from warren_raft.types import Entry, EntryKind, Index, MemberId, Membership, NodeId, Term

if TYPE_CHECKING:
    from sim.world import World


class Roster:
    """The memberships, observed from outside.

    committed  (index, membership), ascending; the founders' stands at 0
    proposed   every CONFIG that was ever written, unless another entry is committed there
    """

    def __init__(self, world: World, founders: Membership) -> None:
        self.world = world
        self.committed: list[tuple[Index, Membership]] = [(0, founders)]
        self.proposed: dict[tuple[Index, Term], Membership] = {}

    @property
    def latest(self) -> Membership:
        """Return the newest committed membership."""
        return self.committed[-1][1]

    def written(self, entry: Entry) -> None:
        """Record a CONFIG that a member writes."""
        if entry.index > len(self.world.checkers.committed.entries):
            self.proposed[entry.index, entry.term] = rules.decode(entry.data)

    def commit(self, entry: Entry) -> None:
        """Record a committed entry: other CONFIGs at its index are void."""
        if entry.kind is EntryKind.CONFIG:
            self.committed.append((entry.index, rules.decode(entry.data)))
        for place in [place for place in self.proposed if place[0] <= entry.index]:
            del self.proposed[place]

    def live(self) -> list[Membership]:
        """Return every membership that may be in effect, now or after a message arrives."""
        end = len(self.world.checkers.committed.entries)
        found = [self.latest, *self.proposed.values()]
        for member in self.world.members.values():
            if member.node is not None:
                found += [m for index, m in member.node.configs.entries if index > end]
        return found

    def mentions(self, name: NodeId) -> bool:
        """Return whether any node may believe it to be a member."""
        return any(name in membership for membership in self.live())

    def intact(self, voter: NodeId, member: MemberId) -> bool:
        """Return whether that id of that voter has its disk."""
        return self.world.members[voter].disk.member_id == member

    def survives(self, membership: Membership) -> bool:
        """Return whether a majority of its voters has its disks."""
        voters = membership.voters
        held = sum(self.intact(voter, membership.id_of(voter)) for voter in voters)
        return held >= majority(len(voters))

    def whole(self) -> bool:
        """See 1."""
        for membership in self.live():
            if not all(self.intact(v, membership.id_of(v)) for v in membership.voters):
                return False
        for member in self.world.members.values():
            node = member.node
            if node is None or node.leadership is None:
                continue
            for other, progress in node.leadership.progress.items():
                now = self.world.members[other].disk.member_id
                if other in node.membership and progress.member not in (None, now):
                    return False
        return True

    def may_lose(self, name: NodeId) -> bool:
        """Return whether 1 and 2 hold."""
        if not self.whole():
            return False
        for membership in self.live():
            count = len(membership.voters)
            left = count - (name in membership.voters)
            if left < majority(count):
                return False
            for learner in membership.learners:
                if left + (learner != name) < majority(count + 1):
                    return False
        return True
