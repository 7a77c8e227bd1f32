"""An operator that changes the membership now and then."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from sim.planned import Planned
from warren_raft.core.membership import AddLearner, Change, Demote, Promote, Remove, changed
from warren_raft.core.ready import Role
from warren_raft.errors import MembershipRefused

if TYPE_CHECKING:
    from sim.member import Member
    from sim.world import World


class Operator(Planned):
    """An operator: adds, removes, promotes and demotes; deletes the logs of removed members."""

    setting = "change_every_ms"

    def __init__(self, world: World) -> None:
        super().__init__(world, Random(world.rng.randrange(1 << 48)))
        self.changes = 0

    def act(self) -> None:
        """Request one change from each leader: two at once when there are two."""
        if self.stopped:
            return
        self.tidy()
        for member in self.world.members.values():
            node = member.node
            if node is not None and node.role is Role.LEADER and not member.is_paused():
                self.change(member)
        self.plan()

    def change(self, member: Member) -> None:
        """Request a change, which the leader may refuse."""
        node = member.node
        assert node is not None
        change = self.choose(member)
        try:
            after = changed(node.membership, change)
            if isinstance(change, Remove | Demote) and not self.world.roster.survives(after):
                return
            node.propose_change(change, member.now())
        except MembershipRefused:
            return
        self.changes += 1
        self.world.note("change", member.name, repr(change))
        member.touch()

    def choose(self, member: Member) -> Change:
        """Choose a change; grow a small group, shrink a large one."""
        assert member.node is not None
        members = member.node.membership
        absent = [name for name in self.world.names if name not in members]
        grow = len(members.voters) < 3 or self.rng.random() < 0.5
        if absent and grow:
            name = self.rng.choice(absent)
            if self.rng.random() < 0.8:
                self.world.faults.revive(self.world.members[name])
            return AddLearner(name)
        present = members.voters + members.learners
        name = self.rng.choice(present)
        if self.rng.random() < 0.2:
            name = member.name
        kind = self.rng.choice((Remove, Remove, Remove, Demote, Promote))
        return kind(name)

    def tidy(self) -> None:
        """Delete the logs of nodes that no member can believe to be members."""
        for name, member in self.world.members.items():
            if self.world.roster.mentions(name):
                continue
            if self.stopped:
                member.crash()
            elif member.disk.safe.last_index() and self.rng.random() < 0.5:
                self.world.note("leaves", name)
                member.lose_disk()

    def stop(self) -> None:
        """Stop changing; nodes that are not members stay down."""
        self.stopped = True
        self.tidy()
