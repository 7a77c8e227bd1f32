"""The properties of whole nodes: one small checker each.

The checkers are outside the code under test and see all disks and all members at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.whole.current_reads import CurrentReads
from sim.whole.directories import Directories
from sim.whole.durability import Durability
from sim.whole.elections import Elections
from sim.whole.importers import Imports
from sim.whole.memberships import Memberships
from sim.whole.order import Order
from sim.whole.policymakers import check_intents
from sim.whole.states import States
from warren_raft.machine import Applied, Meta
from warren_raft.messages import AnyRaftMessage
from warren_raft.types import METADATA_GROUP, Membership

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World


class Checkers:
    """All checkers: passes each event to those that check it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.elections = Elections(world)
        self.memberships = Memberships(world)
        self.states = States(world)
        self.durability = Durability(world)
        self.directories = Directories(world)
        self.order = Order(world)
        self.imports = Imports()
        self.reads = CurrentReads(world)

    @property
    def bodies(self) -> dict[tuple[int, int], list[bytes]]:
        """Return (group, index) -> the messages of that entry, in block order."""
        return self.states.bodies

    def leader(self, process: Process, group: int, term: int, leading: bool) -> None:
        """Check a leader that a member learns of, or becomes."""
        if leading:
            self.world.note("leads", process.name, group, term)
            self.elections.leads(process, group, term)

    def started(self, process: Process) -> None:
        """Check a process that has recovered from its disk."""
        self.durability.started(process)
        self.reads.watch(process)

    def applied(
        self, process: Process, group: int, meta: Meta, data: bytes, applied: Applied
    ) -> None:
        """Check an entry that a member applied."""
        self.elections.applied(group, meta)
        self.states.applied(process, group, meta, data, applied)
        if group == METADATA_GROUP:
            self.imports.look(process)
        if group == METADATA_GROUP and self.world.profile.policies:
            check_intents(self.world)

    def restored(self, process: Process, group: int) -> None:
        """Take note of a member's state that was replaced by a snapshot."""
        self.states.restored(process, group)
        self.memberships.restored(process, group)
        if group == METADATA_GROUP:
            self.imports.look(process)

    def members_changed(self, process: Process, group: int, membership: Membership) -> None:
        """Check a membership change that a member applied."""
        self.memberships.changed(process, group, membership)

    def buried(self, reason: str, index: int, first: int, last: int, now: int) -> None:
        """Record messages that a machine dead-letters or drops, in the entry being applied."""
        self.states.buried(reason, index, first, last, now)

    def sent(self, process: Process, message: AnyRaftMessage) -> None:
        """Check a message that a member sends."""
        self.elections.sent(process, message)
        self.durability.sent(process, message)

    def rewritten(self, process: Process) -> None:
        """Check a disk after files were rewritten."""
        self.directories.rewritten(process)

    def looked_at(self) -> None:
        """Run the periodic checks."""
        self.elections.logs_match()

    def finished(self, groups: list[int]) -> None:
        """Run the checks at the end."""
        self.elections.logs_match()
        for group in groups:
            self.states.finished(group)
        self.directories.finished()
        for machine in self.world.present().values():
            if machine.running is not None:
                self.imports.look(machine.running, last=True)

    def evidence(self) -> Any:
        """Return the input of the world's digest."""
        return self.states.digests()
