"""A disk that loses what was not synced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from sim.agenda import Agenda
from warren_raft.types import Entry, EntryKind, HardState, Index, MemberId, Membership, Term


class Log:
    """A LogStore in a list; entry i stands at i - base - 1.

    base  the last entry of the snapshot after which the log begins; 0: none
    """

    __slots__ = ("base", "base_term", "base_time_ms", "held")

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.held: list[Entry] = list(entries)
        self.base: Index = 0
        self.base_term: Term = 0
        self.base_time_ms = 0

    def first_index(self) -> Index:
        """The lowest index held."""
        return self.base + 1

    def last_index(self) -> Index:
        """The highest index held."""
        return self.base + len(self.held)

    def last_time_ms(self) -> int:
        """The stamp of the last entry."""
        return self.held[-1].time_ms if self.held else self.base_time_ms

    def term(self, index: Index) -> Term:
        """The term of an entry that is held, or of the last one that is not."""
        if index == self.base:
            return self.base_term
        assert self.base < index <= self.last_index(), (self.base, index, len(self.held))
        return self.held[index - self.base - 1].term

    def live_entry(self, index: Index, term: Term) -> Entry | None:
        """Return None: no entries below the log are retained."""
        return None

    def entries(self, first: Index, last: Index, bytes_max: int) -> Sequence[Entry]:
        """A run of entries, bounded."""
        assert self.base < first <= last <= self.last_index(), (self.base, first, last)
        start, end = first - self.base - 1, last - self.base
        stop, size = start + 1, len(self.held[start].data)
        while stop < end and size + len(self.held[stop].data) <= bytes_max:
            size += len(self.held[stop].data)
            stop += 1
        return self.held[start:stop]

    def configs(self) -> Sequence[tuple[Index, bytes]]:
        """CONFIG entries."""
        return [(e.index, e.data) for e in self.held if e.kind is EntryKind.CONFIG]

    def holds(self, index: Index, term: Term) -> bool:
        """Return whether the entry is here, or covered by a snapshot."""
        return index <= self.base or (index <= self.last_index() and self.term(index) == term)

    def put(self, entries: Sequence[Entry]) -> None:
        """Append, replacing everything from entries[0].index on."""
        at = entries[0].index - self.base - 1
        assert 0 <= at <= len(self.held), (at, len(self.held))
        del self.held[at:]
        self.held.extend(entries)

    def drop_to(self, index: Index) -> None:
        """Drop everything up to `index`, which a snapshot covers."""
        end = self.held[index - self.base - 1]
        del self.held[: index - self.base]
        self.base, self.base_term, self.base_time_ms = index, end.term, end.time_ms

    def begin_after(self, index: Index, term: Term, time_ms: int) -> None:
        """Replace everything by another member's snapshot."""
        self.held = []
        self.base, self.base_term, self.base_time_ms = index, term, time_ms


@dataclass(frozen=True, slots=True)
class Kept:
    """A snapshot on a disk."""

    index: Index
    term: Term
    time_ms: int
    membership: Membership
    state: bytes


class Write:
    """One Ready's share of the log file."""

    __slots__ = ("entries", "hard_state", "sequence")

    def __init__(
        self, sequence: int, hard_state: HardState | None, entries: Sequence[Entry]
    ) -> None:
        self.sequence = sequence
        self.hard_state = hard_state
        self.entries = entries


class Disk:
    """The disk of one member: synced data, and data written but not yet synced.

    member_id  the id with which the log on it was created
    graves     synced data of earlier member ids, which they had acknowledged rightly

    One sync runs at a time and covers what was written before it began. A crash keeps synced data
    and, of the rest, a random number of whole writes, the oldest first: a file system may have
    written them back early; the first torn one is cut at recovery, with all after it.
    """

    def __init__(self, agenda: Agenda, rng: Random, sync_ms: Callable[[], int]) -> None:
        self.agenda = agenda
        self.rng = rng
        self.sync_ms = sync_ms
        self.hard_state = HardState()
        self.safe = Log()
        self.unsynced: list[Write] = []
        self.syncing = False
        self.life = 0
        self.member_id: MemberId = 0
        self.snapshot: Kept | None = None
        self.graves: dict[MemberId, Log] = {}
        self.on_synced: Callable[[int], None] = lambda sequence: None

    def write(self, sequence: int, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Begin a write; `on_synced(sequence)` follows."""
        self.unsynced.append(Write(sequence, hard_state, entries))
        if not self.syncing:
            self.sync()

    def sync(self) -> None:
        """Sync what is written by now."""
        self.syncing = True
        self.agenda.after(self.sync_ms(), self.synced, self.life, len(self.unsynced))

    def synced(self, life: int, count: int) -> None:
        """Handle the completion of a sync."""
        if life != self.life:
            return
        done = self.unsynced[:count]
        del self.unsynced[:count]
        self.keep(done)
        self.syncing = False
        if self.unsynced:
            self.sync()
        self.on_synced(done[-1].sequence)

    def keep(self, writes: Sequence[Write]) -> None:
        """Mark these writes synced."""
        for write in writes:
            if write.hard_state is not None:
                self.hard_state = write.hard_state
            if write.entries:
                self.safe.put(write.entries)

    def crash(self) -> None:
        """Lose the unsynced data, or a part of it."""
        self.life += 1
        self.syncing = False
        if self.rng.random() < 0.5:
            self.keep(self.unsynced[: self.rng.randrange(len(self.unsynced) + 1)])
        self.unsynced.clear()

    def lose(self) -> None:
        """Replace the disk: an empty log, created as joining."""
        self.life += 1
        self.syncing = False
        self.unsynced.clear()
        self.snapshot = None
        self.graves[self.member_id] = self.safe
        self.safe = Log()
        self.hard_state = HardState()
        self.member_id = self.rng.randrange(1, 1 << 64)

    def install(self, kept: Kept) -> None:
        """Install another member's snapshot; writes in flight are void."""
        self.snapshot = kept
        self.safe.begin_after(kept.index, kept.term, kept.time_ms)
        for write in self.unsynced:
            write.entries = ()

    def held_as(self, member: MemberId) -> Log:
        """Return what is, or was, synced under that member id."""
        return self.safe if member == self.member_id else self.graves.get(member, Log())
