"""Data directories: whenever the power goes, a node can be started from what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.checkers import require
from sim.whole.process import DATA_DIR, Machine
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.identity import open_directory
from warren_raft.storage.memtable import Memtable
from warren_raft.storage.recovery import Recovered, recover
from warren_raft.types import HardState

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

REWRITTEN_EVERY = 3
"""Of rewritings, every so manieth is looked at."""


class Directories:
    """Starts every now and then, beside the node, from what its disk surely holds."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rewritings = 0

    def found(self, machine: Machine) -> Recovered:
        """What a start would find on the machine's disk, were the power to go now.

        Recovery itself refuses when something is missing that a snapshot refers to.
        """
        files = machine.files.as_after_power_loss()
        directory = open_directory(files, DATA_DIR, "sim", machine.name, lambda: 1)
        return recover(files, directory, Memtable(1 << 20))

    def recovered(self, process: Process, group: int) -> tuple[HardState, GroupLog | None]:
        """A group as the process would find it if it were started anew."""
        found = self.found(process.machine).groups.get(group)
        return (HardState(), None) if found is None else (found.hard_state, found.log)

    def holds(self, machine: Machine, group: int, index: int) -> bool:
        """The entry, or a snapshot after it, is on the machine's disk."""
        found = self.found(machine).groups.get(group)
        return found is not None and found.log.last >= index

    def rewritten(self, process: Process) -> None:
        """After files were rewritten: nothing that was durable is missing."""
        self.rewritings += 1
        if self.rewritings % REWRITTEN_EVERY or process.machine.damaged:
            return
        recovered = self.found(process.machine).groups
        for group, found in sorted(process.host._groups.items()):
            if group in process.host._transfers._installing or found.volatile:
                continue  # what is on the disk is ahead of what is in memory
            durable, held = found.node.log.durable, recovered.get(group)
            require(
                durable == 0 or (held is not None and held.log.last >= durable),
                "rewriting lost entries",
                process.name,
                group,
                durable,
            )

    def finished(self) -> None:
        """Every disk can be started from at the end."""
        for machine in self.world.processes.values():
            if not machine.damaged:
                self.found(machine)
