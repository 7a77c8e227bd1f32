"""Entries that are damaged here and that no reachable member has."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren_raft.runtime.snapshots import Transfers
from warren_raft.storage.log_store import LogStore
from warren_raft.types import GroupId, Index, NodeId

if TYPE_CHECKING:
    from warren_raft.runtime.group import Group

log = logging.getLogger("warren.raft")


@dataclass(eq=False, repr=False)
class LostEntries:
    """The handling of lost entries: do without them where possible; repair continues to ask.

    Not applied here: the core asks the leader for its snapshot (core.lost).

    Applied, and nothing in the state refers to it: it is only retained for members that are behind,
    and a snapshot serves them as well. 1. c was down and needs 5; a leads, retains 5 for c, and b
    has released it.  2. 5 is damaged on a.  3. While a retains 5, c is sent no snapshot, and no
    member can send 5: c would never catch up. So a takes a snapshot, and releases its log up to
    there.

    Applied, and the state refers to it: this cannot be repaired. It is logged once; its file is
    skipped, so that the other files are rewritten; and the transfer of a snapshot that refers to it
    is postponed, because a group that sends one takes no other, and would never release anything.

    touch       have the group's Ready taken
    is_damaged  whether an entry is still damaged: a rewrite that began before may have moved it
    """

    own: NodeId
    store: LogStore
    groups: dict[GroupId, Group]
    transfers: Transfers
    epoch_ms: Callable[[], int]
    touch: Callable[[Group], None]
    is_damaged: Callable[[GroupId, Index], bool]
    _reported: dict[GroupId, list[Index]] = field(default_factory=dict)
    _said: dict[GroupId, set[Index]] = field(default_factory=dict)

    def report(self, group: Group, index: Index) -> None:
        """Handle an entry that no reachable member has."""
        if index > group.applied:
            group.node.entry_lost(index, self.epoch_ms())
            self.touch(group)
        else:
            self._reported.setdefault(group.id, []).append(index)

    def drop(self, group: GroupId) -> None:
        """Forget a group that is deleted here."""
        self._said.pop(group, None)

    def beat(self) -> None:
        """Decide about the reported entries; the live entries are computed once per group."""
        reported, self._reported = self._reported, {}
        for number, indexes in reported.items():
            group = self.groups.get(number)
            if group is not None:
                live = group.machine.live_indexes(group.state)
                for index in indexes:
                    # 1. A rewrite has read the entry.  2. Its old place is damaged, and no other
                    # member has it.  3. The rewrite ends: it lies whole in the new file.
                    # Replayed by tests/raft/runtime/test_lost_entries.py
                    if not self.is_damaged(number, index):
                        continue
                    self.transfers.put_off(group, index)
                    self._decide(group, index, live)

    def _decide(self, group: Group, index: Index, live: Sequence[Index]) -> None:
        at = bisect_left(live, index)
        if at == len(live) or live[at] != index:
            group.lost = max(group.lost, index)
            self.store.compactor.snapshots_damaged.add(group.id)
            return
        file = group.store.log.place(index).file
        self.store.compactor.left.add(file)
        said = self._said.setdefault(group.id, set())
        if index not in said:
            said.add(index)
            log.critical(
                "%s: entry %s of group %s is lost: its bytes in %s are damaged, the group still "
                "needs it, and no reachable member has it. Reads of it in that group keep waiting; "
                "everything else continues. Start the members that are down, or restore the file "
                "from a copy while this node is stopped; else purge or delete the queue",
                self.own,
                index,
                group.id,
                self.store.log_files.path_of(file),
            )
