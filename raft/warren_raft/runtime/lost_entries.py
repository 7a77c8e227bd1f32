"""Entries that are damaged here, and that no reachable member can give."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from warren_raft.runtime.snapshots import Transfers
from warren_raft.storage.log_store import LogStore
from warren_raft.types import GroupId, Index, NodeId

if TYPE_CHECKING:
    from warren_raft.runtime.group import Group

log = logging.getLogger("warren.raft")


class LostEntries:
    """Does without them, where that is possible. Repair continues to ask, and reports again.

    Not applied here: the core asks the leader for its snapshot (core.lost).

    Applied, and nothing in the state refers to it: it is only kept for members that are behind, and
    these are helped by a snapshot as well. 1. c was away and needs 5; a leads, keeps 5 for c, and b
    has released it.  2. 5 rots on a.  3. As long as a holds its place c is sent no snapshot, and
    no member can give 5: c would never catch up. So a takes a snapshot, and releases its log up to
    there.

    Applied, and the state refers to it: nothing helps. It is said once; its file is left alone, so
    that the others are rewritten; and a snapshot that refers to it is put off, for a group that
    sends one takes no other, and would release nothing any more.
    """

    def __init__(
        self,
        own: NodeId,
        store: LogStore,
        groups: dict[GroupId, Group],
        transfers: Transfers,
        epoch_ms: Callable[[], int],
        touch: Callable[[Group], None],
    ) -> None:
        """touch: take the group's outbox."""
        self._own = own
        self._store = store
        self._groups = groups
        self._transfers = transfers
        self._epoch_ms = epoch_ms
        self._touch = touch
        self._reported: dict[GroupId, list[Index]] = {}
        self._said: dict[GroupId, set[Index]] = {}

    def report(self, group: Group, index: Index) -> None:
        """Every member that is heard was asked in vain."""
        if index > group.applied:
            group.node.entry_lost(index, self._epoch_ms())
            self._touch(group)
        else:
            self._reported.setdefault(group.id, []).append(index)

    def drop(self, group: GroupId) -> None:
        """The group is deleted here."""
        self._said.pop(group, None)

    def beat(self) -> None:
        """Some time has passed: look at what was reported, the state's entries once per group."""
        reported, self._reported = self._reported, {}
        for number, indexes in reported.items():
            group = self._groups.get(number)
            if group is not None:
                live = group.machine.live_indexes(group.state)
                for index in indexes:
                    self._transfers.put_off(group, index)
                    self._decide(group, index, live)

    def _decide(self, group: Group, index: Index, live: Sequence[Index]) -> None:
        at = bisect_left(live, index)
        if at == len(live) or live[at] != index:
            group.lost = max(group.lost, index)
            self._store.compactor.snapshots_damaged.add(group.id)
            return
        try:
            file = group.store.log.place(index).file
        except KeyError:
            return  # released since it was reported
        self._store.compactor.left.add(file)
        said = self._said.setdefault(group.id, set())
        if index not in said:
            said.add(index)
            log.critical(
                "%s: entry %s of group %s is lost: its bytes in %s are damaged, the group still "
                "needs it, and no member that is heard of has it. What waits for it in that group "
                "waits on; the rest goes on. Start the members that are down, or restore the file "
                "from a copy while this node is stopped; else purge or delete the queue",
                self._own,
                index,
                group.id,
                self._store.log_files.path_of(file),
            )
