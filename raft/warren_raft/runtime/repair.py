"""The repair of damaged entries from members that have them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren_raft.messages import AnyRaftMessage, EntryIs, EntryWanted
from warren_raft.runtime import log_identity
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

Key = tuple[GroupId, Index]


@dataclass(slots=True)
class _Wanted:
    """One damaged entry.

    length  of its data, as the log knows it
    asked   members that were asked in this round, one after the other
    ever    members that were asked in any round: their answer may be late
    asking  the last of `asked` has not answered yet
    at_ms   when that one was asked, or when the round ended without success; None: not asked yet
    """

    damage: EntryDamaged
    length: int
    calls: list[Callable[[], None]] = field(default_factory=list)
    asked: list[NodeId] = field(default_factory=list)
    ever: set[NodeId] = field(default_factory=set)
    asking: bool = False
    at_ms: int | None = None
    said_ms: int | None = None


class Repair:
    """Requests to other members, one after the other; answers are checked, served and rewritten.

    An entry is (group, index, term), and log matching makes it the same on every member. Where only
    the damaged record had the term, the entry is below a snapshot, so committed: its index
    identifies it, and only a member that has applied it answers. Until it arrives, what needs it
    waits: the core sends and applies nothing after it; `when` calls others back. Then the damaged
    file is rewritten. A group of one has no other member: its damage ends the node, with file and
    offset.
    """

    def __init__(
        self,
        own: NodeId,
        store: LogStore,
        groups: dict[GroupId, Group],
        send: Callable[[AnyRaftMessage], None],
        connected: Callable[[NodeId], bool],
        touch: Callable[[Group], None],
        now_ms: Callable[[], int],
        lost: Callable[[Group, Index], None],
    ) -> None:
        """Construct it without damaged entries.

        send   with this turn's messages
        touch  have the group's Ready taken
        lost   called with an entry that no reachable member has
        """
        self._own = own
        self._store = store
        self._groups = groups
        self._send = send
        self._connected = connected
        self._touch = touch
        self._now_ms = now_ms
        self._lost = lost
        self._wanted: dict[Key, _Wanted] = {}
        self._rewritten_ms = 0
        self.healed = 0

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
            store = self._store.groups[damage.group]
            length = store.log.place(damage.index).length
        except KeyError:
            return True  # released since
        if damage.group not in self._groups:
            # It is being started, or will be: what needs the entry then reads it again.
            return log_identity.has_others(damage.group, store.created)
        if store.healed(damage.index) is not None:
            return True  # found by a rewrite that began before it was repaired
        if not self._others(damage.group):
            return False
        log.error("%s: %s: requesting it from the other members", self._own, damage)
        self._wanted[key] = _Wanted(damage, length)
        self._ask_some()
        return True

    def awaits(self, group: GroupId, index: Index) -> bool:
        """Return whether that entry is damaged here and not repaired yet."""
        return (group, index) in self._wanted

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
            for call in self._wanted.pop(key).calls:
                call()

    # ------------------------------------------------------------ asking

    def _others(self, group: GroupId) -> list[NodeId]:
        found = self._groups.get(group)
        if found is None or found.volatile:
            return []
        members = found.node.membership
        leader = found.node.leader
        others = {*members.voters, *members.learners} - {self._own}
        if leader is not None and leader != self._own:
            others.add(leader)  # also when the damaged entry is the CONFIG that names it
        return sorted(others, key=lambda node: (node != leader, node))

    def beat(self) -> None:
        """Repeat requests that are due, and rewrite the files of repaired entries."""
        now = self._now_ms()
        for key, wanted in list(self._wanted.items()):
            if self._wanted.get(key) is not wanted:
                continue  # a callback for another entry has deleted its group
            if not self._still_needed(key, wanted):
                self._done(key)
            elif wanted.at_ms is not None and now - wanted.at_ms >= REPAIR_RETRY_MS:
                if wanted.asking:
                    # Connected, but silent: a new round would ask the same member again.
                    self._ask(key, wanted)
                else:
                    wanted.at_ms = None
                    wanted.asked.clear()
        self._ask_some()
        self._rewrite()

    def _still_needed(self, key: Key, wanted: _Wanted) -> bool:
        store = self._store.groups.get(key[0])
        if store is None or key[0] not in self._groups:
            return False
        try:
            place = store.log.place(key[1])
        except KeyError:
            return False
        damage = wanted.damage
        return (place.file, place.offset) == (damage.file, damage.offset)

    def _ask_some(self) -> None:
        under_way = sum(1 for wanted in self._wanted.values() if wanted.asking)
        for key, wanted in list(self._wanted.items()):
            if under_way >= REPAIRS_UNDER_WAY_MAX:
                return
            if wanted.at_ms is None:
                self._ask(key, wanted)
                under_way += wanted.asking

    def _ask(self, key: Key, wanted: _Wanted) -> None:
        """Ask the next member, or give other entries their turn when all reachable were asked."""
        wanted.at_ms = self._now_ms()
        for node in self._others(key[0]):
            if node not in wanted.asked and self._connected(node):
                wanted.asked.append(node)
                wanted.ever.add(node)
                wanted.asking = True
                term = self._groups[key[0]].node.term
                self._send(EntryWanted(key[0], self._own, node, term, key[1], wanted.damage.term))
                return
        wanted.asking = False
        self._wanted[key] = self._wanted.pop(key)
        self._in_vain(key, wanted)

    def _in_vain(self, key: Key, wanted: _Wanted) -> None:
        now = self._now_ms()
        if wanted.said_ms is None or now - wanted.said_ms >= SAY_AGAIN_MS:
            wanted.said_ms = now
            log.warning("%s: no reachable member has it: %s", self._own, wanted.damage)
        group = self._groups.get(key[0])
        if wanted.asked and group is not None:
            self._lost(group, key[1])

    # ------------------------------------------------------------ answering

    def take(self, message: EntryWanted | EntryIs) -> None:
        """Handle another member's request or answer."""
        if isinstance(message, EntryIs):
            self._heard(message)
        else:
            self._answer(self._groups.get(message.group), message)

    def _answer(self, group: Group | None, message: EntryWanted) -> None:
        entry = None if group is None else self._find(group, message.index, message.entry_term)
        head = message.group, self._own, message.sender, message.term
        if entry is None:
            self._send(EntryIs(*head, message.index, 0, EntryKind.NOOP, 0, b""))
        else:
            self._send(
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
            if wanted.asking and message.sender == wanted.asked[-1]:
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
            self._store.groups[message.group].heal(entry)
            self._store.compactor.damaged.add(damage.file)  # it may have been skipped
            self.healed += 1
            log.warning(
                "%s: entry %s of group %s received from %s; rewriting %s",
                self._own,
                message.index,
                message.group,
                message.sender,
                damage.path,
            )
        self._done(key)
        self._ask_some()

    def _done(self, key: Key) -> None:
        wanted = self._wanted.pop(key)
        self._store.compactor.left.discard(wanted.damage.file)
        found = self._groups.get(key[0])
        if found is not None:
            self._touch(found)
        for call in wanted.calls:
            call()

    def _rewrite(self) -> None:
        """Rewrite damaged files, once all known damage in them is repaired."""
        store = self._store
        damaged = store.compactor.damaged
        now = self._now_ms()
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
        open_ones = [file for file in damaged if store.wal.closed_below <= file < ID_BASE]
        if damaged - waiting - set(open_ones) or store.compactor.manifest_damaged:
            store.compactor.run([])
