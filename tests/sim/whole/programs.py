"""Nodes with programs of two versions, which are replaced as a rolling upgrade does it, and back.

A node draws its program at each start: until the cluster's version is raised any of the two, then
the newer one. No member may be sent, or find on its disk, what its program has not: the only
processes that may end for it are those that began before the raise was known everywhere.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.windows import AHEAD
from warren_machines.metadata import codec as metadata_codec
from warren_machines.metadata.state import MetadataState
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
        """Return the versions of the program that a node is started with.

        Without a roll the cluster stays at version 1, as one that waits for its operator, unless it
        reads ahead: a world in which a planted bug is known to be found stays the same when a
        version is added.
        """
        if not self.on:
            return OWN if any(one[0] == AHEAD for one in self.world.profile.windows) else OLD
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
        if self.on and process.broker.definitions.state.version > 1:
            self._is_raised(process.name)

    def _is_raised(self, by: str) -> None:
        if self.raised > 1:
            return
        self.raised = NEW.newest
        self.world.note("raised", by)
        for machine in self.world.processes.values():
            if machine.running is not None and machine.running.host.versions == OLD:
                self.world.agenda.after(self.rng.randrange(*ROLLS_MS), self._replace, machine)

    def _replace(self, machine: Machine) -> None:
        if machine.running is not None and machine.running.host.versions == OLD:
            self._restart(machine)

    def needed(self, machine: Machine, error: VersionNeeded) -> None:
        """A process has ended because it has not a version: the raise came while it began.

        1. All have the newer program, and a leader proposes the raise.  2. It is cut off, and
        another node starts with the old program.  3. That one leads, commits what its log has, and
        is the first to know of the raise.
        """
        state = machine.running.broker.definitions.state if machine.running else MetadataState()
        told = [one for one in state.nodes.values() if one.name == machine.name]
        counts = any(one.versions == OLD and not one.forgetting for one in told)
        raised = self.raised > 1 or (state.version > 1 and not counts)
        require(raised, "an old program", machine.name, str(error))
        self._is_raised(machine.name)
        machine.stopped(error)
