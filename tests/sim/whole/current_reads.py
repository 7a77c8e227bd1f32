"""Whether a read that is called current sees everything that was committed before it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sim.checkers import require
from warren_raft.runtime.host import UnknownGroup
from warren_raft.runtime.linearizable_reads import ReadDone

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World


class CurrentReads:
    """Compares the reader's state with what any node had applied at the moment of the question.

    answers  how often a read was called current (True) or given up (False)
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: Counter[bool] = Counter()

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
