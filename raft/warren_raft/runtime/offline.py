"""The logs of a node that does not run: rewritten for another cluster.

The directory is locked, as by a running node, and written by the same classes. Nothing here is
undone by a crash, and each operation may be repeated: see the caller for their order.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from warren_raft.core.membership import decode, encode
from warren_raft.machine import Machine
from warren_raft.runtime import installing, log_identity
from warren_raft.runtime.group_start import known_members
from warren_raft.runtime.installing import Result, State, Steps
from warren_raft.storage.files import Files
from warren_raft.storage.identity import draw_disk
from warren_raft.storage.log_store import LogCallbacks, LogStore
from warren_raft.storage.opened_log import open_log
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import (
    Entry,
    EntryKind,
    GroupId,
    HardState,
    Membership,
    NodeId,
    Term,
)
from warren_raft.versions import OWN

LOG_FILE_BYTES = 64 << 20
MEMTABLE_BYTES = 64 << 20


class OfflineLogs:
    """The logs of one directory, open while no process serves them; `with` closes them."""

    def __init__(
        self,
        files: Files,
        path: Path,
        cluster: str,
        node: NodeId,
        draw: Callable[[], int] = draw_disk,
    ) -> None:
        """Lock the directory and read its log; raises StorageError, also for damage.

        draw  draws the disk id of a new directory
        """
        opened = open_log(files, path, cluster, node, MEMTABLE_BYTES, draw)
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.node = node
        self.store = LogStore(
            opened,
            self._posted.put,
            LOG_FILE_BYTES,
            LogCallbacks(full=_refuse, closed=lambda: None, damaged=lambda damage: False),
            recycle=False,
        )
        self.directory = self.store.directory
        self.groups = self.store.groups

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.store.close()

    def sync(self) -> None:
        """Return when everything added so far is on disk; raises OSError without space."""
        done: list[bool] = []
        self.store.wal.submit(lambda: done.append(True))
        while not done:
            self._posted.get()()

    # ------------------------------------------------------------ reading

    def members(self, group: GroupId) -> Membership:
        """Return the members of a group as its newest entry here has them, committed or not."""
        store = self.groups[group]
        found = [data for _, data in store.configs() if data is not None]
        if found:
            return decode(found[-1])
        if store.snapshot is not None:
            return known_members(store.snapshot, OWN)
        return log_identity.decode(group, store.created).membership(self.node)

    def replay(self, group: GroupId, machine: Machine[State]) -> State:
        """Return the machine's state after every entry that is here, committed or not."""
        return self._all(installing.replayed(self.store, self.groups[group], machine))

    def next_term(self, group: GroupId) -> Term:
        """Return a term in which no member known here has voted or led."""
        store = self.groups[group]
        return max(store.hard_state.term, store.term(store.last_index())) + 1

    def alone(self, group: GroupId) -> Membership:
        """Return the members of a group of which this node's is the only one."""
        member = log_identity.decode(group, self.groups[group].created).member
        return Membership((self.node,), (), ((self.node, member),) if member else ())

    # ------------------------------------------------------------ writing

    def make_only_member(self, group: GroupId) -> None:
        """Append a CONFIG with this node alone, as if it led a term of its own; `sync` follows.

        What the log holds becomes committed when the node starts: no other node decides any more.
        """
        store, term = self.groups[group], self.next_term(group)
        index, time_ms = store.last_index() + 1, store.last_time_ms() or 0
        data = encode(self.alone(group))
        store.append(
            HardState(term, self.node), [Entry(index, term, EntryKind.CONFIG, time_ms, data)]
        )

    def create(self, group: GroupId, voters: tuple[NodeId, ...]) -> None:
        """Create the log of a founder of a group with those voters."""
        self.store.create(group, log_identity.encode(log_identity.Birth(voters)))

    def install(self, snapshot: Snapshot, entries: Iterable[Entry]) -> None:
        """Replace a group's log by a snapshot; see `installing.install`."""
        store = self.groups[snapshot.group]
        self._all(installing.install(self.store, store, snapshot, entries))

    def _all(self, steps: Steps[Result]) -> Result:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if step is None:
                self.sync()
            else:
                step()


def _refuse(error: OSError | None) -> None:
    if error is not None:
        raise error
