"""Snapshots of groups that a backup reads, with the entries that they refer to."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren_raft.index_set import Indexes
from warren_raft.runtime.group import Group
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import Entry, Index


@dataclass(eq=False, repr=False)
class HeldSnapshot:
    """A group's state at one index; the entries that it refers to stay readable.

    released  nothing of it can be read any more
    """

    group: Group
    snapshot: Snapshot
    live: Indexes = field(init=False)
    released: bool = False

    def __post_init__(self) -> None:
        self.live = self.snapshot.live_indexes()

    def read(self, index: Index) -> Entry:
        """Read an entry that it refers to; see `GroupStore.read`."""
        return self.group.store.read(index)


class HeldSnapshots:
    """All that are held on this node.

    A group of which one is held releases no entries. 1. A snapshot of entry 60 is being written.
    2. One of the state at entry 64 is held.  3. The first is adopted, and drops entries up to 60
    that it does not refer to: none that the second needs, as an entry that a state does not refer
    to is referred to by none after it.

    Invariant: a group's `held` is the number of those of it that are not released
    """

    def __init__(self) -> None:
        self._held: list[HeldSnapshot] = []

    def hold(self, group: Group, snapshot: Snapshot) -> HeldSnapshot:
        """Hold a snapshot that was taken of the present state."""
        held = HeldSnapshot(group, snapshot)
        group.held += 1
        self._held.append(held)
        return held

    def release(self, held: HeldSnapshot) -> None:
        """Let its entries go; harmless when repeated."""
        if not held.released:
            held.released = True
            held.group.held -= 1
            self._held.remove(held)

    def release_all(self) -> None:
        """Let the entries of all go: the disk is low on space."""
        for held in list(self._held):
            self.release(held)
