"""A group that continues another one alone: see docs/how-to/lost-majority.md.

The group has lost its majority for good. Its log on this node, to its end, becomes the beginning of
a group with another number, of which this node is the first member. It is written as a snapshot is
that another member sends; only then does that group start, and the earlier log is deleted. A crash
before that leaves the earlier log and an incomplete one, which is deleted and written again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from warren_raft.index_set import Indexes
from warren_raft.machine import Machine, Meta
from warren_raft.runtime import installing, log_identity
from warren_raft.runtime.installing import State, Step, Steps
from warren_raft.runtime.loop import Loop
from warren_raft.storage.errors import EntryDamaged, LogDamaged
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import GroupId, NodeId

log = logging.getLogger("warren.raft")
FULL_AGAIN_MS = 1_000
"""A file for which there is no space is tried again after that time."""


@dataclass(eq=False, repr=False)
class Continuing:
    """The groups that are being written, in steps, beside everything else that the node does."""

    own: NodeId
    logs: LogStore
    loop: Loop
    _sources: dict[GroupId, GroupId] = field(default_factory=dict)

    def begin(
        self,
        source: GroupId,
        target: GroupId,
        machine: Machine[State],
        end_sessions: Callable[[Meta, State], None],
        done: Callable[[], None],
    ) -> None:
        """Write the group `target` of a stopped group's log, and call `done`; a repeat is harmless.

        end_sessions  changes the state as of the last entry: no process is known to the new group
        """
        if source in self._sources:
            return
        self._sources[source] = target
        self._go_on(self._steps(source, target, machine, end_sessions), source, target, done)

    def drop(self, target: GroupId) -> None:
        """Stop writing a group that is deleted."""
        for source in [one for one, into in self._sources.items() if into == target]:
            del self._sources[source]

    def _steps(
        self,
        source: GroupId,
        target: GroupId,
        machine: Machine[State],
        end_sessions: Callable[[Meta, State], None],
    ) -> Steps[None]:
        if target in self.logs.groups:
            self.logs.delete(target)
        old = self.logs.groups[source]
        state = yield from installing.replayed(self.logs, old, machine)
        time_ms = old.last_time_ms() or 0
        meta = Meta(old.last_index() + 1, old.term(old.last_index()) + 1, time_ms)
        end_sessions(meta, state)
        live = Indexes.of(machine.live_indexes(state))
        snapshot = Snapshot(
            target,
            meta.index,
            meta.term,
            time_ms,
            (0, 0),
            machine.form(state),
            (self.own,),
            (),
            live.tobytes(),
            machine.snapshot(state),
        )
        new = self.logs.create(target, log_identity.encode(log_identity.Birth((self.own,))))
        yield from installing.install(self.logs, new, snapshot, map(old.read, live))

    def _go_on(
        self, steps: Steps[None], source: GroupId, target: GroupId, done: Callable[[], None]
    ) -> None:
        if self._sources.get(source) != target:
            return  # it was deleted: a record of it now would be one of a group without a beginning
        try:
            step = next(steps)
        except StopIteration:
            del self._sources[source]
            log.info("group %s continues group %s", target, source)
            done()
        except (EntryDamaged, LogDamaged) as damage:
            log.error("group %s cannot continue group %s: %s", target, source, damage)
        else:
            self._take(step, partial(self._go_on, steps, source, target, done))

    def _take(self, step: Step, after: Callable[[], None]) -> None:
        if step is None:
            self.logs.wal.submit(after)
            return

        def again(error: OSError) -> None:
            self.loop.call_later(FULL_AGAIN_MS, partial(self._take, step, after))

        self.logs.background_writer.run(step, lambda _: after(), again)
