"""Somebody who changes who is in the group, now and then."""

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
    """Adds, removes, promotes and demotes; takes the log from whoever is no member any more."""

    setting = "change_every_ms"

    def __init__(self, world: World) -> None:
        super().__init__(world, Random(world.rng.randrange(1 << 48)))
        self.changes = 0

    def act(self) -> None:
        """One change, of whatever leader there is; two at once when there are two."""
        if self.stopped:
            return
        self.tidy()
        for member in self.world.members.values():
            node = member.node
            if node is not None and node.role is Role.LEADER and not member.is_paused():
                self.change(member)
        self.plan()

    def change(self, member: Member) -> None:
        """Ask a leader for something that it may do or refuse."""
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
        """What to ask for; grows a small group, shrinks a large one."""
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
        """Whoever is no member any more, as far as anybody may believe, loses its log."""
        for name, member in self.world.members.items():
            if self.world.roster.mentions(name):
                continue
            if self.stopped:
                member.crash()
            elif member.disk.safe.last_index() and self.rng.random() < 0.5:
                self.world.note("leaves", name)
                member.lose_disk()

    def stop(self) -> None:
        """No more changes: whoever is no member stays away."""
        self.stopped = True
        self.tidy()
