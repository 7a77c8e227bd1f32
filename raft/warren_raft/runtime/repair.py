"""The repair of damaged entries from members that have them."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren_raft.messages import AnyRaftMessage, EntryIs, EntryWanted
from warren_raft.runtime import log_identity
from warren_raft.runtime.snapshots import Transfers
from warren_raft.storage.errors import EntryDamaged
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.segment import ID_BASE
from warren_raft.types import Entry, EntryKind, GroupId, Index, NodeId, Term

if TYPE_CHECKING:
    from warren_raft.runtime.group import Group

log = logging.getLogger("warren.raft")
REPAIR_RETRY_MS = 1_000
"""When the next member is asked: the one asked may be down, or one may have the entry by now."""
REWRITE_AGAIN_MS = 1_000
REPAIRS_UNDER_WAY_MAX = 32
"""Entries requested at a time; the others wait."""
SAY_AGAIN_MS = 60_000
"""How often the log names an entry that no member could send."""
LINES_PER_FILE_MAX = 16
"""Entries of one damaged file that the log names: a file that is missing has thousands."""
Key = tuple[GroupId, Index]


@dataclass(slots=True)
class _Wanted:
    """One damaged entry.

    length  of its data, as the log knows it
    asked   members that were asked in this round, one after the other
    ever    members that were asked in any round: their answer may be late
    named   the log names it
    at_ms   when the last one was asked, or when the round ended without success
    """

    damage: EntryDamaged
    length: int
    named: bool
    calls: list[Callable[[], None]] = field(default_factory=list)
    asked: list[NodeId] = field(default_factory=list)
    ever: set[NodeId] = field(default_factory=set)
    at_ms: int = 0
    said_ms: int | None = None


@dataclass(eq=False, repr=False)
class Repair:
    """Requests to other members, one after the other; answers are checked, served and rewritten.

    An entry is (group, index, term), and log matching makes it the same on every member. Where only
    the damaged record had the term, the entry is below a snapshot, so committed: its index
    identifies it, and only a member that has applied it answers. Until it arrives, what needs it
    waits: the core sends and applies nothing after it; `when` calls others back. Then the damaged
    file is rewritten. A group of one has no other member: its damage ends the node, with file and
    offset.

    Invariant: an entry that is wanted is in `_unasked`, its turn in this round has not come; or in
    `_asking`, the last member asked has not answered; or its round has ended without success

    send       with this turn's messages
    touch      have the group's Ready taken
    not_found  called with an entry that no reachable member has
    """

    own: NodeId
    store: LogStore
    groups: dict[GroupId, Group]
    send: Callable[[AnyRaftMessage], None]
    is_connected: Callable[[NodeId], bool]
    touch: Callable[[Group], None]
    monotonic_ms: Callable[[], int]
    not_found: Callable[[Group, Index], None]
    _wanted: dict[Key, _Wanted] = field(default_factory=dict)
    _unasked: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    _asking: set[Key] = field(default_factory=set)
    _lines: dict[int, int] = field(default_factory=dict)
    _rewritten_ms: int = 0
    healed: int = 0

    @property
    def wanted(self) -> int:
        """Return the number of damaged entries that are not repaired yet."""
        return len(self._wanted)

    def is_damaged(self, damage: EntryDamaged) -> bool:
        """Start the repair of an entry; return False when there is no other member."""
        key = damage.group, damage.index
        if key in self._wanted:
            return True
        try:
            store = self.store.groups[damage.group]
            length = store.log.place(damage.index).length
        except KeyError:
            return True  # released since
        if damage.group not in self.groups:
            # It is being started, or will be: what needs the entry then reads it again.
            return log_identity.has_others(damage.group, store.created)
        if store.healed(damage.index) is not None:
            return True  # found by a rewrite that began before it was repaired
        if not self._others(damage.group):
            return False
        named = self._names(damage.file)
        if named:
            log.error("%s: %s: requesting it from the other members", self.own, damage)
        self._wanted[key] = _Wanted(damage, length, named)
        self._unasked[key] = None
        self._ask_some()
        return True

    def _names(self, file: int) -> bool:
        """Return whether the log is to name one more damaged entry of that file."""
        lines = self._lines[file] = self._lines.get(file, 0) + 1
        if lines == LINES_PER_FILE_MAX + 1:
            path = self.store.log_files.path_of(file)
            log.error("%s: more entries of %s are damaged: not all are named", self.own, path)
        return lines <= LINES_PER_FILE_MAX

    def awaits(self, group: GroupId, index: Index) -> bool:
        """Return whether that entry is damaged here and not repaired yet."""
        return (group, index) in self._wanted

    def lacks(self, group: GroupId, index: Index) -> bool:
        """Return whether that entry is awaited, and what the log would read now is damaged."""
        wanted = self._wanted.get((group, index))
        return wanted is not None and self._still_needed((group, index), wanted)

    def when(self, group: GroupId, index: Index, call: Callable[[], None]) -> None:
        """Call once the entry is repaired or no longer needed; at once if it is not awaited."""
        wanted = self._wanted.get((group, index))
        if wanted is None:
            call()
        else:
            wanted.calls.append(call)

    def drop(self, group: GroupId) -> None:
        """Forget a group that is deleted here."""
        for key in [key for key in self._wanted if key[0] == group]:
            for call in self._forget(key).calls:
                call()

    def _forget(self, key: Key) -> _Wanted:
        self._unasked.pop(key, None)
        self._asking.discard(key)
        return self._wanted.pop(key)

    # ------------------------------------------------------------ asking

    def _others(self, group: GroupId) -> list[NodeId]:
        found = self.groups.get(group)
        if found is None or found.volatile:
            return []
        members = found.node.membership
        leader = found.node.leader
        others = {*members.voters, *members.learners} - {self.own}
        if leader is not None and leader != self.own:
            others.add(leader)  # also when the damaged entry is the CONFIG that names it
        return sorted(others, key=lambda node: (node != leader, node))

    def beat(self) -> None:
        """Repeat requests that are due, and rewrite the files of repaired entries."""
        now = self.monotonic_ms()
        due = [key for key in self._wanted if key not in self._unasked]
        for key in due:
            wanted = self._wanted.get(key)
            if wanted is None:
                continue  # a callback for another entry has deleted its group
            if not self._still_needed(key, wanted):
                self._done(key)
            elif now - wanted.at_ms >= REPAIR_RETRY_MS:
                if key in self._asking:
                    # Connected, but silent: a new round would ask the same member again.
                    self._ask(key, wanted)
                else:
                    wanted.asked.clear()
                    self._unasked[key] = None
        self._ask_some()
        self._rewrite()

    def _still_needed(self, key: Key, wanted: _Wanted) -> bool:
        store = self.store.groups.get(key[0])
        if store is None or key[0] not in self.groups:
            return False
        try:
            place = store.log.place(key[1])
        except KeyError:
            return False
        damage = wanted.damage
        return (place.file, place.offset) == (damage.file, damage.offset)

    def _ask_some(self) -> None:
        while self._unasked and len(self._asking) < REPAIRS_UNDER_WAY_MAX:
            key = next(iter(self._unasked))
            wanted = self._wanted[key]
            if self._still_needed(key, wanted):
                self._ask(key, wanted)
            else:
                del self._unasked[key]  # the next beat ends it: this may be amid a read

    def _ask(self, key: Key, wanted: _Wanted) -> None:
        """Ask the next member, or give other entries their turn when all reachable were asked."""
        self._unasked.pop(key, None)
        wanted.at_ms = self.monotonic_ms()
        for node in self._others(key[0]):
            if node not in wanted.asked and self.is_connected(node):
                wanted.asked.append(node)
                wanted.ever.add(node)
                self._asking.add(key)
                term = self.groups[key[0]].node.term
                self.send(EntryWanted(key[0], self.own, node, term, key[1], wanted.damage.term))
                return
        self._asking.discard(key)
        self._in_vain(key, wanted)

    def _in_vain(self, key: Key, wanted: _Wanted) -> None:
        now = self.monotonic_ms()
        if wanted.said_ms is None or now - wanted.said_ms >= SAY_AGAIN_MS:
            wanted.said_ms = now
            if wanted.named:
                log.warning("%s: no reachable member has it: %s", self.own, wanted.damage)
        group = self.groups.get(key[0])
        if wanted.asked and group is not None:
            self.not_found(group, key[1])

    # ------------------------------------------------------------ answering

    def take(self, message: EntryWanted | EntryIs) -> None:
        """Handle another member's request or answer."""
        if isinstance(message, EntryIs):
            self._heard(message)
        else:
            self._answer(self.groups.get(message.group), message)

    def _answer(self, group: Group | None, message: EntryWanted) -> None:
        entry = None if group is None else self._find(group, message.index, message.entry_term)
        head = message.group, self.own, message.sender, message.term
        if entry is None:
            self.send(EntryIs(*head, message.index, 0, EntryKind.NOOP, 0, b""))
        else:
            self.send(
                EntryIs(*head, entry.index, entry.term, entry.kind, entry.time_ms, entry.data)
            )

    def _find(self, group: Group, index: Index, term: Term) -> Entry | None:
        if term:
            return group.node.entry(index, term)
        if index > group.applied:
            return None  # an uncommitted entry may be another one
        try:
            return group.store.read(index)
        except (KeyError, EntryDamaged):
            return None

    # ------------------------------------------------------------ receiving

    def _heard(self, message: EntryIs) -> None:
        """Take an answer if it matches the log."""
        key = message.group, message.index
        wanted = self._wanted.get(key)
        if wanted is None or message.sender not in wanted.ever:
            return
        damage = wanted.damage
        fits = message.entry_term and damage.term in (0, message.entry_term)
        if not fits or len(message.data) != wanted.length:
            if key in self._asking and message.sender == wanted.asked[-1]:
                self._ask(key, wanted)
                self._ask_some()
            return
        if self._still_needed(key, wanted):
            entry = Entry(
                message.index,
                message.entry_term,
                EntryKind(message.kind),
                message.time_ms,
                message.data,
            )
            self.store.groups[message.group].heal(entry)
            self.store.compactor.damaged.add(damage.file)  # it may have been skipped
            self.healed += 1
            if wanted.named:
                log.warning(
                    "%s: entry %s of group %s received from %s; rewriting %s",
                    self.own,
                    message.index,
                    message.group,
                    message.sender,
                    damage.path,
                )
        self._done(key)
        self._ask_some()

    def _done(self, key: Key) -> None:
        wanted = self._forget(key)
        self.store.compactor.left.discard(wanted.damage.file)
        found = self.groups.get(key[0])
        if found is not None:
            self.touch(found)
        for call in wanted.calls:
            call()

    def _rewrite(self) -> None:
        """Rewrite damaged files, once all known damage in them is repaired."""
        store = self.store
        damaged = store.compactor.damaged
        now = self.monotonic_ms()
        pressing = damaged or store.compactor.manifest_damaged
        if not pressing or store.compactor.busy or now - self._rewritten_ms < REWRITE_AGAIN_MS:
            return
        self._rewritten_ms = now
        damaged &= {
            *store.log_files.use.live,
            *(segment.id for segment in store.log_files.segments),
        }
        if store.wal.current_file in damaged:
            store.wal.roll()  # so that it is retired like the others
        waiting = {wanted.damage.file for wanted in self._wanted.values()}
        self._lines = {file: n for file, n in self._lines.items() if file in damaged | waiting}
        open_ones = [file for file in damaged if store.wal.closed_below <= file < ID_BASE]
        if damaged - waiting - set(open_ones) or store.compactor.manifest_damaged:
            store.compactor.run([])


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
