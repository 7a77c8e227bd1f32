"""What must hold in whole nodes: one small checker per property.

They stand outside the code under test and see what no member can: all disks, all members at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.whole.directories import Directories
from sim.whole.durability import Durability
from sim.whole.elections import Elections
from sim.whole.memberships import Memberships
from sim.whole.order import Order
from sim.whole.states import States
from warren_raft.machine import Applied, Meta
from warren_raft.messages import AnyRaftMessage
from warren_raft.types import Membership

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World


class Checkers:
    """Hands out what happens to who judges it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.elections = Elections(world)
        self.memberships = Memberships(world)
        self.states = States(world)
        self.durability = Durability(world)
        self.directories = Directories(world)
        self.order = Order(world)

    @property
    def bodies(self) -> dict[tuple[int, int], list[bytes]]:
        """(group, index) -> the messages of that entry, in block order."""
        return self.states.bodies

    def leader(self, process: Process, group: int, term: int, leading: bool) -> None:
        """A member hears of a leader, or is one."""
        if leading:
            self.world.note("leads", process.name, group, term)
            self.elections.leads(process, group, term)

    def started(self, process: Process) -> None:
        """A process has read its disk."""
        self.durability.started(process)

    def applied(
        self, process: Process, group: int, meta: Meta, data: bytes, applied: Applied
    ) -> None:
        """A member has applied an entry."""
        self.elections.applied(group, meta)
        self.states.applied(process, group, meta, data, applied)

    def restored(self, process: Process, group: int) -> None:
        """A member's state is another one's snapshot now."""
        self.states.restored(process, group)
        self.memberships.restored(process, group)

    def members_changed(self, process: Process, group: int, membership: Membership) -> None:
        """A member has applied a change of members."""
        self.memberships.changed(process, group, membership)

    def buried(self, reason: str, index: int, first: int, last: int, now: int) -> None:
        """A machine gives messages up, in the entry that it is applying."""
        self.states.buried(reason, index, first, last, now)

    def sent(self, process: Process, message: AnyRaftMessage) -> None:
        """A message leaves a member."""
        self.elections.sent(process, message)
        self.durability.sent(process, message)

    def rewritten(self, process: Process) -> None:
        """Files were rewritten."""
        self.directories.rewritten(process)

    def looked_at(self) -> None:
        """Now and then, whatever happens."""
        self.elections.logs_match()

    def finished(self, groups: list[int]) -> None:
        """Everything is calm."""
        self.elections.logs_match()
        for group in groups:
            self.states.finished(group)
        self.directories.finished()

    def evidence(self) -> Any:
        """What goes into the digest."""
        return self.states.digests()
