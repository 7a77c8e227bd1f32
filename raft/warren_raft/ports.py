"""The interfaces that a host provides to the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from warren_raft.types import Entry, Index, Term


class LogReader(Protocol):
    """A group's log in storage; the core reads it and never writes it.

    Writing goes through `Ready.entries`: the host appends them here (replacing everything from
    entries[0].index on) when it takes the Ready. The core keeps every entry itself until it is
    durable here *and* handed out for applying, so it asks only for indexes at or below what
    `Node.durable` has reported (or what was there when the node was made): a store may serve
    those from memory or from disk.
    """

    def first_index(self) -> Index:
        """Return the lowest index that can be read; last_index() + 1 when the log is empty."""

    def last_index(self) -> Index:
        """Return the highest index held; 0: nothing was ever written. Read once per node."""

    def last_time_ms(self) -> int | None:
        """Return the time stamp of the entry at last_index(); None: its bytes are damaged.

        Read when a node is made; if None, again until the entry is repaired (`unread`).
        """

    def term(self, index: Index) -> Term:
        """Return the term of an entry; only first_index() - 1 … last_index() are asked for."""

    def live_entry(self, index: Index, term: Term) -> Entry | None:
        """Return that entry below first_index() if a snapshot still refers to it; else None."""

    def entries(self, first: Index, last: Index, bytes_max: int) -> Sequence[Entry]:
        """Return entries first … last, cut after `bytes_max` bytes of data, but at least one.

        Neither copied nor changed by the core; the same Entry objects may be returned again.
        Cut before one with damaged bytes, empty when that is the first: another member is
        asked for it. The host calls `Node.ready` again when it is repaired.
        """

    def configs(self) -> Sequence[tuple[Index, bytes | None]]:
        """Return (index, data) of the CONFIG entries above the snapshot, ascending.

        Passed to a Node as `configs` when it is made. They are few: finding them must not require
        reading every entry. Data None: its bytes are damaged; read again like `last_time_ms`.
        """
