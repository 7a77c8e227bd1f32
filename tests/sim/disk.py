"""A disk that loses what was not synced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from sim.agenda import Agenda
from warren_raft.types import Entry, EntryKind, HardState, Index, Term


class Log:
    """A LogStore in a list; entry i stands at i - 1."""

    __slots__ = ("held",)

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.held: list[Entry] = list(entries)

    def first_index(self) -> Index:
        """The lowest index held."""
        return 1

    def last_index(self) -> Index:
        """The highest index held."""
        return len(self.held)

    def last_time_ms(self) -> int:
        """The stamp of the last entry."""
        return self.held[-1].time_ms

    def term(self, index: Index) -> Term:
        """The term of an entry that is held."""
        assert 0 < index <= len(self.held), (index, len(self.held))
        return self.held[index - 1].term

    def entries(self, first: Index, last: Index, bytes_max: int) -> Sequence[Entry]:
        """A run of entries, bounded."""
        assert 0 < first <= last <= len(self.held), (first, last, len(self.held))
        stop, size = first, len(self.held[first - 1].data)
        while stop < last and size + len(self.held[stop].data) <= bytes_max:
            size += len(self.held[stop].data)
            stop += 1
        return self.held[first - 1 : stop]

    def configs(self) -> Sequence[tuple[Index, bytes]]:
        """CONFIG entries."""
        return [(e.index, e.data) for e in self.held if e.kind is EntryKind.CONFIG]

    def put(self, entries: Sequence[Entry]) -> None:
        """Append, replacing everything from entries[0].index on."""
        first = entries[0].index
        assert first <= len(self.held) + 1, (first, len(self.held))
        del self.held[first - 1 :]
        self.held.extend(entries)


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
    """The disk of one member: what is safe, what is written and not yet safe.

    One sync runs at a time and covers what was written before it began. A crash keeps what is safe
    and, of the rest, as many whole writes as chance leaves, from the oldest on: a file system may
    have written them back early; the first torn one is cut at recovery, with all after it.
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
        self.on_synced: Callable[[int], None] = lambda sequence: None

    def write(
        self, sequence: int, hard_state: HardState | None, entries: Sequence[Entry]
    ) -> None:
        """Begin a write; `on_synced(sequence)` follows."""
        self.unsynced.append(Write(sequence, hard_state, entries))
        if not self.syncing:
            self.sync()

    def sync(self) -> None:
        """Make safe what is written by now."""
        self.syncing = True
        self.agenda.after(self.sync_ms(), self.synced, self.life, len(self.unsynced))

    def synced(self, life: int, count: int) -> None:
        """A sync came back."""
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
        """These are safe from here on."""
        for write in writes:
            if write.hard_state is not None:
                self.hard_state = write.hard_state
            if write.entries:
                self.safe.put(write.entries)

    def crash(self) -> None:
        """Lose what is not safe, or a part of it."""
        self.life += 1
        self.syncing = False
        if self.rng.random() < 0.5:
            self.keep(self.unsynced[: self.rng.randrange(len(self.unsynced) + 1)])
        self.unsynced.clear()
