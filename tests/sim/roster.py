"""Which memberships a simulated world has to reckon with, and which disks they rely on.

No loss of disks can make a group forget or disagree: a member that lost its disk is dead under the
id it had, and a group is safe whoever is dead. But a group goes on only while some majority lives,
and a member under another id is not of it until it was promoted. So a world takes a disk only when

1. every member of every membership that anybody may act on is the one that is meant: who lost a
   disk before is back under its new id, and the leader has heard that id;
2. without the disk each of those memberships keeps a majority of intact disks, and so does each
   that follows by the promotion of a learner, which a leader may be about to append.

And its operator proposes no change that leaves less than an intact majority: no leader can know of
a disk that was lost a moment ago. Between a loss and its discovery the group has one voter less, as
between a crash and a start; two of two, or the one of one, can never be spared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren_raft.core import membership as rules
from warren_raft.core.quorum import majority
from warren_raft.types import Entry, EntryKind, Index, MemberId, Membership, NodeId, Term

if TYPE_CHECKING:
    from sim.world import World


class Roster:
    """What is known of memberships from outside.

    committed  (index, membership), ascending; the founders' stands at 0
    proposed   every CONFIG that anybody ever wrote, unless another entry is committed there
    """

    def __init__(self, world: World, founders: Membership) -> None:
        self.world = world
        self.committed: list[tuple[Index, Membership]] = [(0, founders)]
        self.proposed: dict[tuple[Index, Term], Membership] = {}

    @property
    def latest(self) -> Membership:
        """The newest one that is committed."""
        return self.committed[-1][1]

    def written(self, entry: Entry) -> None:
        """Somebody writes a CONFIG."""
        if entry.index > len(self.world.checkers.committed.entries):
            self.proposed[entry.index, entry.term] = rules.decode(entry.data)

    def commit(self, entry: Entry) -> None:
        """An entry was committed: what stood at its index elsewhere is void."""
        if entry.kind is EntryKind.CONFIG:
            self.committed.append((entry.index, rules.decode(entry.data)))
        for place in [place for place in self.proposed if place[0] <= entry.index]:
            del self.proposed[place]

    def live(self) -> list[Membership]:
        """Every membership that somebody may act on, now or after a message comes."""
        end = len(self.world.checkers.committed.entries)
        found = [self.latest, *self.proposed.values()]
        for member in self.world.members.values():
            if member.node is not None:
                found += [m for index, m in member.node.configs.entries if index > end]
        return found

    def mentions(self, name: NodeId) -> bool:
        """Somebody may believe it to be a member."""
        return any(name in membership for membership in self.live())

    def intact(self, voter: NodeId, member: MemberId) -> bool:
        """That life of that voter has its disk."""
        return self.world.members[voter].disk.member_id == member

    def survives(self, membership: Membership) -> bool:
        """A majority of its voters has its disks."""
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
        """See 1 and 2."""
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
