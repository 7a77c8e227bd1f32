"""The log as the core sees it: a part in the store, and a tail that is being written."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from warren_raft.config import RaftConfig
from warren_raft.ports import LogReader
from warren_raft.types import Entry, EntryKind, Index, Term


class LogView:
    """Every cursor into a group's log.

    committed   on a majority's disks, as far as this member knows
    applying    taken by the host for applying
    applied     applied to the machine
    writing     taken by the host for writing
    durable     on this member's disk
    last        the last index
    lost        an entry that this member cannot read and no member could send (core.lost); 0: none;
                it counts until it is applied
    ahead_ms    of a leader: how far the log's time is ahead of its clock
    dated       whether last_time_ms is known; it is not while the last entry's bytes are damaged

    Invariants: applied <= applying <= committed <= last;  durable <= writing <= last;
    the tail holds everything above min(durable, applying), so the store is asked only for what
    it has on disk; `writes` ascends in sequence, and no index in it is above `writing`.
    """

    __slots__ = (
        "ahead_ms",
        "applied",
        "applying",
        "committed",
        "dated",
        "durable",
        "last",
        "last_term",
        "last_time_ms",
        "lost",
        "sequence",
        "store",
        "synced",
        "tail",
        "tail_first",
        "writes",
        "writing",
    )

    def __init__(self, store: LogReader, applied: Index = 0) -> None:
        """Begin with a `store` that is all durable, committed and applied up to `applied`."""
        last = store.last_index()
        assert applied <= last, (applied, last)
        self.store = store
        self.tail: list[Entry] = []
        self.tail_first = last + 1
        self.last = self.writing = self.durable = last
        self.committed = self.applying = self.applied = applied
        self.last_term = store.term(last) if last else 0
        self.last_time_ms = 0
        self.dated = not last
        self.date()
        self.ahead_ms = 0
        self.lost: Index = 0
        self.sequence = 0
        self.synced = 0
        self.writes: deque[list[int]] = deque()
        """Writes in flight: [sequence, the highest index that the write will make durable]."""

    # ------------------------------------------------------------------ reading

    def term(self, index: Index) -> Term:
        """Return the term of an entry that is in this log; 0 for index 0."""
        if index >= self.tail_first:
            return self.tail[index - self.tail_first].term
        if index == self.last:
            return self.last_term
        return self.store.term(index) if index else 0

    def has(self, index: Index, term: Term) -> bool:
        """Return whether the entry at `index` is of `term`; true for index 0 with term 0."""
        return index <= self.last and self.term(index) == term

    def newer_than(self, last_index: Index, last_term: Term) -> bool:
        """Return whether this log is more up to date than one with that end (paper, 5.4.1)."""
        return (self.last_term, self.last) > (last_term, last_index)

    def slice(self, first: Index, last: Index, bytes_max: int) -> Sequence[Entry]:
        """Return entries from `first` to at most `last`, at least one, cut after bytes_max of data.

        May stop early where the store ends and the tail begins; empty: see `LogReader.entries`.
        """
        assert 0 < first <= last <= self.last, (first, last, self.last)
        if first < self.tail_first:
            return self.store.entries(first, min(last, self.tail_first - 1), bytes_max)
        start = first - self.tail_first
        stop = last + 1 - self.tail_first
        size = 0
        for at in range(start, stop):
            size += len(self.tail[at].data)
            if size > bytes_max:
                stop = max(at, start + 1)
                break
        return self.tail[start:stop]

    def hint(self, index: Index, term: Term) -> tuple[Index, Term]:
        """Return the highest index at or below `index` with a term of at most `term`, and its term.

        Above it two logs that differ at (index, term) cannot agree: one step skips a whole term.
        """
        index = min(index, self.last)
        lowest = self.store.first_index()
        while index >= lowest:
            found = self.term(index)
            if found <= term:
                return index, found
            index -= 1
        return index, 0

    # ------------------------------------------------------------------ growing

    def date(self) -> None:
        """Ask the store for the last entry's time stamp if it is not known yet."""
        if not self.dated:
            found = self.store.last_time_ms()
            if found is not None:
                self.last_time_ms, self.dated = found, True

    def lead_from(self, now_ms: int) -> None:
        """Begin to lead: the log's time continues from where it is, at the pace of this clock.

        1. A leader's clock is three hours ahead; it stamps entries.  2. Another member leads, whose
        clock is right.  3. If its entries were stamped with the last entry's time until its clock
        has caught up, nothing would expire, and no timer come due, for three hours.
        """
        assert self.dated, self.last
        self.ahead_ms = max(0, self.last_time_ms - now_ms)

    def append_new(self, term: Term, kind: EntryKind, data: bytes, now_ms: int) -> Index:
        """Append a leader's new entry; its time is never below that of the one before it."""
        index = self.last + 1
        now_ms += self.ahead_ms
        time_ms = self.last_time_ms
        if now_ms > time_ms:
            self.last_time_ms = time_ms = now_ms
        self.tail.append(Entry(index, term, kind, time_ms, data))
        self.last = index
        self.last_term = term
        return index

    def append(self, entries: Sequence[Entry]) -> None:
        """Append a follower's new entries, right after the last one."""
        assert entries[0].index == self.last + 1, (entries[0].index, self.last)
        self.tail.extend(entries)
        end = entries[-1]
        self.last = end.index
        self.last_term = end.term
        self.last_time_ms, self.dated = end.time_ms, True

    def truncate_from(self, index: Index) -> None:
        """Drop everything from `index` on; entries that replace it follow at once.

        1. We hold 5, 6, 7; the write of 7 is in flight.  2. A new leader replaces 6.
        3. The old write completes.  If it made `durable` 7 we would acknowledge entries we dropped,
        and the leader could commit them. Comparing terms at 3 is not enough: the same 6 and 7 may
        have been put back by then, while the disk holds what replaced them. So the pending write
        itself is limited to what is below the cut. Every cursor above the cut comes down.
        Replayed by tests/raft/transcripts/late_sync_after_truncation.txt
        """
        assert self.committed < index <= self.last, (index, self.committed, self.last)
        self.tail_first = min(self.tail_first, index)
        del self.tail[index - self.tail_first :]
        self.last_term = self.term_before(index)
        self.last = index - 1
        self.writing = min(self.writing, index - 1)
        self.durable = min(self.durable, index - 1)
        for write in self.writes:
            write[1] = min(write[1], index - 1)

    def reset_to(self, index: Index, term: Term, time_ms: int) -> None:
        """Begin after a snapshot up to `index` that is durable and has replaced the whole log.

        Writes in flight make nothing above it durable: what they hold was dropped.
        """
        assert index > self.committed, (index, self.committed)
        self.tail.clear()
        self.tail_first = index + 1
        self.last = self.writing = self.durable = index
        self.committed = self.applying = self.applied = index
        self.last_term, self.last_time_ms, self.dated = term, time_ms, True
        for write in self.writes:
            write[1] = min(write[1], index)

    def skip_to(self, index: Index) -> None:
        """Take a snapshot up to `index`, which is in this log, as applied; later entries stay."""
        assert self.applied == self.applying < index <= self.last, (self.applied, index, self.last)
        self.commit_to(index)
        self.applying = self.applied = index
        self.trim()

    def term_before(self, index: Index) -> Term:
        """Return the term of the entry before `index`, while the cursors are being moved."""
        before = index - 1
        if before >= self.tail_first:
            return self.tail[before - self.tail_first].term
        return self.store.term(before) if before else 0

    def commit_to(self, index: Index) -> None:
        """Mark everything up to `index` committed; never moves back."""
        assert index <= self.last, (index, self.last)
        if index > self.committed:
            self.committed = index

    # ------------------------------------------------------------------ work for the host

    def take_writes(self, with_hard_state: bool) -> Sequence[Entry]:
        """Take the entries to be written, numbered by `sequence` if there is anything to write."""
        entries: Sequence[Entry] = ()
        if self.writing < self.last:
            start = self.writing + 1 - self.tail_first
            entries = self.tail[start:] if start else self.tail[:]
            self.writing = self.last
        elif not with_hard_state:
            return entries
        self.sequence += 1
        self.writes.append([self.sequence, self.writing])
        return entries

    def take_committed(self, config: RaftConfig) -> Sequence[Entry]:
        """Take the entries to be applied next, about apply_bytes_max, at most apply_entries_max."""
        if self.applying == self.committed:
            return ()
        last = min(self.committed, self.applying + config.apply_entries_max)
        entries = self.slice(self.applying + 1, last, config.apply_bytes_max)
        if not entries:
            return ()
        self.applying = entries[-1].index
        self.trim()
        return entries

    # ------------------------------------------------------------------ completions

    def on_durable(self, sequence: int) -> None:
        """Mark the writes up to `sequence` done."""
        assert self.synced <= sequence <= self.sequence, (self.synced, sequence, self.sequence)
        self.synced = sequence
        while self.writes and self.writes[0][0] <= sequence:
            index = self.writes.popleft()[1]
            if index > self.durable:
                self.durable = index
        self.trim()

    def on_applied(self, index: Index) -> None:
        """Mark everything up to `index` applied."""
        assert self.applied <= index <= self.applying, (self.applied, index, self.applying)
        self.applied = index

    def trim(self) -> None:
        """Release the part of the tail that is durable and taken for applying."""
        keep = min(self.durable, self.applying) + 1
        if keep > self.tail_first:
            del self.tail[: keep - self.tail_first]
            self.tail_first = keep

    def check(self) -> None:
        """Assert the class's invariants."""
        assert self.applied <= self.applying, (self.applied, self.applying)
        assert self.applying <= self.committed, (self.applying, self.committed)
        assert self.committed <= self.last, (self.committed, self.last)
        assert self.durable <= self.writing, (self.durable, self.writing)
        assert self.writing <= self.last, (self.writing, self.last)
        assert self.tail_first + len(self.tail) == self.last + 1, (self.tail_first, self.last)
        assert self.tail_first <= self.durable + 1, (self.tail_first, self.durable)
        assert not self.tail or self.tail[0].index == self.tail_first, self.tail_first
        assert not self.tail or self.tail[-1].term == self.last_term, self.last_term
        assert self.synced <= self.sequence, (self.synced, self.sequence)
        assert all(write[1] <= self.writing for write in self.writes), self.writing
