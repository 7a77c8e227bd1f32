"""Whether a read that is called current sees everything that was committed before it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from sim.checkers import require
from warren_raft.errors import NotLeader, TooManyReads
from warren_raft.runtime.group import ReadDone
from warren_raft.runtime.host import UnknownGroup

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

ASKED_EVERY_MS = 100
WITHIN_MS = 1_000


class CurrentReads:
    """Compares the reader's state with what any node had applied at the moment of the question.

    answers  how often a read was called current (True) or given up (False)
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: Counter[bool] = Counter()

    def ask_everywhere(self) -> None:
        """Have every node read every group that it has, again and again until all is calm.

        Clients alone ask too seldom in the moment in which an old leader does not know yet.
        """
        if self.world.calm:
            return
        for machine in self.world.processes.values():
            if machine.running is not None:
                machine.running.inject(partial(self._ask, machine.running))
        self.world.agenda.after(ASKED_EVERY_MS, self.ask_everywhere)

    def _ask(self, process: Process) -> None:
        for group in process.host.groups():
            try:
                process.host.read_index(group, WITHIN_MS, lambda current: None)
            except (NotLeader, TooManyReads):
                continue

    def watch(self, process: Process) -> None:
        """Check the reads of a process that was just made."""
        host = process.host
        read_index = host.read_index

        def watched(group: int, within_ms: int, done: ReadDone) -> None:
            committed = self._applied_anywhere(group)

            def answered(current: bool) -> None:
                self.answers[current] += 1
                if current:
                    seen = host.applied_index(group)
                    require(seen >= committed, "a stale read", process.name, group, seen, committed)
                done(current)

            read_index(group, within_ms, answered)

        host.read_index = watched  # type: ignore[method-assign]

    def _applied_anywhere(self, group: int) -> int:
        found = 0
        for machine in self.world.processes.values():
            if machine.running is not None:
                try:
                    found = max(found, machine.running.host.applied_index(group))
                except UnknownGroup:
                    continue
        return found
