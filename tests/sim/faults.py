"""The faults of a simulated world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.member import SUSPECT_MS
from sim.planned import Striking
from warren_raft.core.ready import Role
from warren_raft.errors import NotLeader

if TYPE_CHECKING:
    from sim.member import Member
    from sim.world import World


class Faults(Striking):
    """A stream of faults until `stop`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.kinds = [kind for kind, weight in world.profile.kinds for _ in range(weight)]

    def act(self) -> None:
        """Let one fault happen."""
        if self.stopped:
            return
        self.strike(self.rng.choice(self.kinds))
        self.plan()

    def stop(self) -> None:
        """Stop the faults and repair everything."""
        self.stopped = True
        world = self.world
        world.network.calm = True
        world.network.heal()
        for member in world.members.values():
            member.paused_until = 0
            member.slow_disk_until = 0
            self.revive(member)

    # ------------------------------------------------------------------ the kinds

    def anybody(self) -> Member:
        """A member."""
        return self.world.members[self.rng.choice(self.world.names)]

    def leader(self) -> Member:
        """Return a leader, or else any member."""
        for member in self.world.members.values():
            if member.node is not None and member.node.role is Role.LEADER:
                return member
        return self.anybody()

    def revive(self, member: Member) -> None:
        """Start it if it is down; at the end only members."""
        if member.node is None and not (
            self.stopped and not self.world.roster.mentions(member.name)
        ):
            member.start()

    def crash(self, member: Member | None = None) -> None:
        """Crash a process, which is restarted some time later."""
        member = member or self.anybody()
        member.crash()
        self.world.agenda.after(self.rng.choice((1, 50, 400, 2_000)), self.revive, member)

    def crash_all(self) -> None:
        """Cut the power of all nodes."""
        for member in self.world.members.values():
            self.crash(member)

    def pause(self) -> None:
        """Pause a process."""
        until = self.world.agenda.now_ms + self.rng.choice((50, 300, 900, 2_500))
        self.anybody().pause(until)

    def split(self) -> None:
        """Partition the network into two halves."""
        names = self.world.names
        inside = [name for name in names if self.rng.random() < 0.5]
        self.cut([(a, b) for a in inside for b in names if b not in inside], both=True)

    def isolate(self) -> None:
        """Isolate one member, often the leader."""
        name = (self.leader() if self.rng.random() < 0.5 else self.anybody()).name
        self.cut([(name, other) for other in self.world.names if other != name], both=True)

    def strand(self) -> None:
        """Cut off the leader, and sometimes one more, while clients continue to use it.

        It notices last: until then it leads, and perhaps another one does, too.
        """
        world, leader = self.world, self.leader().name
        world.members[leader].suspect_ms = max(SUSPECT_MS)
        inside = [leader]
        if self.rng.random() < 0.5:
            inside.append(self.anybody().name)
        for client in world.clients:
            client.leader = leader
            client.next()
        for later_ms in range(500, 1_800, 150):
            world.agenda.after(later_ms, self.read, world.members[leader])
        outside = [name for name in world.names if name not in inside]
        both = self.rng.random() < 0.7
        self.cut([(a, b) for a in inside for b in outside], both, self.rng.choice((1_500, 3_000)))

    def read(self, member: Member) -> None:
        """Read from a member that may no longer lead."""
        if member.node is not None and not member.is_paused():
            self.world.clients[0].read(member)

    def half_cut(self) -> None:
        """Cut some links in one direction only."""
        names = self.world.names
        self.cut(
            [(a, b) for a in names for b in names if a != b and self.rng.random() < 0.3],
            both=False,
        )

    def cut(self, links: list[tuple[str, str]], both: bool, for_ms: int = 0) -> None:
        """Cut links for a while; 0: for a random time."""
        network = self.world.network
        for one, other in links:
            network.cut[one, other] = True
            if both:
                network.cut[other, one] = True
        for_ms = for_ms or self.rng.choice((100, 700, 1_500, 3_000))
        self.world.agenda.after(for_ms, network.heal)

    def reset(self) -> None:
        """Break a connection, which is established again."""
        one = self.anybody()
        other = self.world.members[self.rng.choice(one.others)]
        self.world.network.reset(one.name, other.name)
        one.reconnected(other.name)
        other.reconnected(one.name)

    def doubt(self) -> None:
        """Make a member suspect another one wrongly."""
        one = self.anybody()
        if one.node is not None:
            one.suspect(self.rng.choice(one.others))

    def transfer(self) -> None:
        """Transfer leadership on an operator's request."""
        member = self.leader()
        if member.node is not None:
            try:
                member.node.transfer_leader(
                    self.rng.choice(member.node.membership.voters), member.now()
                )
            except NotLeader:
                return
            member.touch()

    def campaign(self) -> None:
        """Make a member campaign without a reason."""
        member = self.anybody()
        if member.node is not None:
            member.node.campaign(member.now())
            member.touch()

    def wipe(self) -> None:
        """Replace a disk by an empty one, if the group can continue without it."""
        member = self.leader() if self.rng.random() < 0.3 else self.anybody()
        if self.world.roster.may_lose(member.name):
            member.lose_disk()
            self.world.agenda.after(self.rng.choice((1, 50, 400, 2_000)), self.revive, member)

    def slow_disk(self) -> None:
        """Slow a disk down by a factor of twenty."""
        self.anybody().slow_disk_until = self.world.agenda.now_ms + self.rng.choice((200, 1_500))
