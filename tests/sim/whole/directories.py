"""Data directories: after a power failure at any time, a node can start from its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.checkers import Violation, require
from sim.whole.process import DATA_DIR, Machine
from sim.whole.programs import NEW
from warren_raft.errors import StorageError
from warren_raft.storage.group_log import GroupLog, Memtable
from warren_raft.storage.identity import open_directory
from warren_raft.storage.recovery import Recovered, recover
from warren_raft.types import HardState

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

REWRITTEN_EVERY = 3
"""Every n-th rewrite is checked."""
NAMED_EVERY = 25
"""Of the changes of names, and of the syncs of directories, every n-th is checked; and each rename
of a file that has unsynced bytes."""
AHEAD = (("names", True, False), ("data", False, True))
"""What has reached the disk without a sync: all names and no bytes, or all bytes and no names."""


class Directories:
    """A checker that now and then recovers, beside the node, from the synced data of its disk."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rewritings = 0
        self.names = 0

    def found(self, machine: Machine, names: bool = False, data: bool = False) -> Recovered:
        """Return what a start would find on the machine's disk if the power failed now.

        Recovery itself refuses when something is missing that a snapshot refers to.

        names  all changes of names have reached the disk, without a sync; data: all bytes have
        """
        files = machine.files.as_after_power_loss(names, data)
        directory = open_directory(files, DATA_DIR, "sim", machine.name, lambda: 1, NEW)
        return recover(files, directory, Memtable(1 << 20))

    def recovered(self, process: Process, group: int) -> tuple[HardState, GroupLog | None]:
        """Return a group as the process would recover it."""
        found = self.found(process.machine).groups.get(group)
        return (HardState(), None) if found is None else (found.hard_state, found.log)

    def holds(self, machine: Machine, group: int, index: int) -> bool:
        """Return whether the entry, or a snapshot that covers it, is on the machine's disk."""
        found = self.found(machine).groups.get(group)
        return found is not None and found.log.last >= index

    def named(self, machine: Machine, unsynced: bool) -> None:
        """Check, amid what changes names, that a start succeeds after a power failure just now.

        1. A file gets the name of another one, and its new content.  2. The file system writes the
        name, or the content, and the other one later.  3. The power fails between the two.
        """
        self.names += 1
        if machine.damaged or machine.aged or machine.noticed:
            return
        if not unsynced and self.names % NAMED_EVERY:
            return
        ahead, names, data = AHEAD[0 if unsynced else self.names // NAMED_EVERY % len(AHEAD)]
        try:
            found = self.found(machine, names, data)
        except StorageError as error:
            what = f"no start if the power fails when only {ahead} are ahead"
            raise Violation(f"{what}: {machine.name}, {error}") from error
        self.world.checkers.durability.vouched(machine.name, found.groups, ahead)

    def rewritten(self, process: Process) -> None:
        """Check after a rewrite that nothing durable is missing."""
        self.rewritings += 1
        if self.rewritings % REWRITTEN_EVERY or process.machine.damaged:
            return
        recovered = self.found(process.machine).groups
        for group, found in sorted(process.host._groups.items()):
            if group in process.host._transfers._installing or found.volatile:
                continue  # the disk is ahead of memory
            durable, held = found.node.log.durable, recovered.get(group)
            require(
                durable == 0 or (held is not None and held.log.last >= durable),
                "rewriting lost entries",
                process.name,
                group,
                durable,
            )

    def finished(self) -> None:
        """Check that a start succeeds from every disk at the end."""
        for machine in self.world.processes.values():
            if not machine.damaged:
                self.found(machine)
