"""What a host must give the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from warren_raft.types import Entry, Index, Term


class LogReader(Protocol):
    """A group's log as storage holds it; the core reads it and never writes it.

    Writing goes through `Ready.entries`: the host appends them here (replacing everything from
    entries[0].index on) when it takes the Ready. The core keeps every entry itself until it is
    durable here *and* handed out for applying, so it asks only for indexes at or below what
    `Node.durable` has vouched for (or what was there when the node was made): a store may serve
    those from memory or from disk.
    """

    def first_index(self) -> Index:
        """The lowest index that can be read; last_index() + 1 when the log is empty."""
        ...

    def last_index(self) -> Index:
        """The highest index held; 0: nothing was ever written. Read once, when a node is made."""
        ...

    def last_time_ms(self) -> int | None:
        """The stamp of the entry at last_index(); None: its bytes are damaged.

        Read when a node is made; if it is None then, again until the entry is here (`unread`).
        """
        ...

    def term(self, index: Index) -> Term:
        """The term of the entry at first_index() - 1 … last_index(), which alone are asked for."""
        ...

    def live_entry(self, index: Index, term: Term) -> Entry | None:
        """That very entry, below first_index(), if a snapshot still refers to it; else None."""
        ...

    def entries(self, first: Index, last: Index, bytes_max: int) -> Sequence[Entry]:
        """Entries first … last, cut after `bytes_max` bytes of data, but never less than one.

        Neither copied nor changed by the core; the same Entry objects may be given out again.
        Cut before one with damaged bytes, none when that is the first: another member is
        asked for it. The host takes the node's outbox again when it is here.
        """
        ...

    def configs(self) -> Sequence[tuple[Index, bytes | None]]:
        """(index, data) of the CONFIG entries in the log above the snapshot, ascending.

        What a Node is given as `configs` when it is made. Few: finding them must not cost a look
        at every entry. Data None: its bytes are damaged; read again like `last_time_ms`.
        """
        ...
