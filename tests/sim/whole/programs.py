"""Nodes with programs of two versions, which are replaced as a rolling upgrade does it, and back.

A node draws its program at each start: until the cluster's version is raised any of the two, then
the newer one. No member may be sent, or find on its disk, what its program has not: the only
processes that may end for it are those that began before the raise was known everywhere.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from sim.checkers import require
from warren_machines.metadata import codec as metadata_codec
from warren_machines.queue import codec as queue_codec
from warren_raft.types import METADATA_GROUP
from warren_raft.versions import OWN, VersionNeeded, Versions

if TYPE_CHECKING:
    from sim.whole.process import Machine, Process
    from sim.whole.world import World

OLD, NEW = Versions(1, 1), Versions(1, 2)
NEW_SHARE = 0.65
ROLLS_MS = (100, 500)
"""From one node that is stopped for another program to the next."""


class Programs:
    """Which program each node runs.

    raised  the cluster's version, as some node has applied it
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.on = world.profile.rolls
        self.rng = Random(f"programs of {world.seed}")
        self.raised = OLD.newest

    def begin(self) -> None:
        """Roll through the nodes while misfortunes strike."""
        if self.on:
            self.world.agenda.after(self.rng.randrange(*ROLLS_MS), self._roll)

    def _roll(self) -> None:
        if self.world.calm:
            return
        machine = self.world.processes[self.rng.choice(self.world.names)]
        if machine.running is not None:
            self._restart(machine)
        self.begin()

    def _restart(self, machine: Machine) -> None:
        machine.stop()
        self.world.agenda.after(self.rng.randrange(*ROLLS_MS), machine.start)

    def drawn(self) -> Versions:
        """Return the versions of the program that a node is started with."""
        if not self.on:
            return OWN
        return NEW if self.raised > 1 or self.rng.random() < NEW_SHARE else OLD

    def started(self, process: Process) -> None:
        """Watch a new process."""
        if not self.on:
            return
        transfers: Any = process.host._transfers
        refuse = transfers._refuse

        def refused(group: Any, incoming: Any, error: Exception, now_ms: int) -> None:
            require(not isinstance(error, VersionNeeded), "a snapshot", process.name, str(error))
            refuse(group, incoming, error, now_ms)

        transfers._refuse = refused

    def applied(self, process: Process, group: int, data: bytes) -> None:
        """A node has applied an entry: its directory was marked for it."""
        if not self.on:
            return
        if group == METADATA_GROUP:
            version = metadata_codec.decode_submission(data, NEW.newest).version
        else:
            version = queue_codec.decode_submission(data, NEW.newest)[0].version
        marked = version <= process.host.version or process.machine.files.kernel.refused
        require(marked, "not marked", process.name, group, version, process.host.version)

    def looked(self, process: Process) -> None:
        """A node has applied more: when the version is raised, old programs are replaced."""
        if not self.on or self.raised > 1 or process.broker.definitions.state.version == 1:
            return
        self.raised = NEW.newest
        self.world.note("raised", process.name)
        for machine in self.world.processes.values():
            if machine.running is not None and machine.running.host.versions == OLD:
                self.world.agenda.after(self.rng.randrange(*ROLLS_MS), self._replace, machine)

    def _replace(self, machine: Machine) -> None:
        if machine.running is not None and machine.running.host.versions == OLD:
            self._restart(machine)

    def needed(self, machine: Machine, error: VersionNeeded) -> None:
        """A process has ended because it has not a version: the raise came while it began."""
        require(self.raised > 1, "an old program", machine.name, str(error))
        machine.stopped(error)
