"""The transfer of a snapshot from a leader to a member that needs entries its log has dropped.

The live entries that the receiver does not hold are sent first, ascending; then the snapshot's
payload. Every answer says what is wanted next, and only the answers steer the sender: it treats a
lost chunk, a lost answer, a repeat and a new connection alike.

1. the leader offers: an empty chunk      2. the member answers what it has
3. chunks, a few in flight at a time         4. each is answered with what is wanted next
5. the payload is complete: the host makes all of it durable, then calls `Node.installed`
6. the append reply that follows ends it: the leader appends after the snapshot's index
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence

from warren_raft.messages import SnapshotChunk, SnapshotWanted, WireLive
from warren_raft.types import Entry, GroupId, Index, NodeId, Term

CHUNK_BYTES_MAX = 1 << 20
"""Bytes of live entries or payload in one chunk; a larger entry is sent alone."""
CHUNKS_UNDER_WAY_MAX = 4


class OutgoingSnapshot:
    """The leader's side of a transfer.

    live                     the entries that the snapshot refers to, ascending
    live_sent, payload_sent  sent so far: an index, a number of bytes
    under_way                chunks since the last answer that was news
    _offered                 the offer, which is sent first, is not answered yet
    heard_ms                 when the last answer came, or the transfer began
    stuck                    a live entry that could not be read when it was to be sent; 0: none
    """

    __slots__ = (
        "_offered",
        "_turned_at",
        "group",
        "heard_ms",
        "index",
        "live",
        "live_sent",
        "own",
        "payload",
        "payload_sent",
        "read",
        "stuck",
        "term",
        "to",
        "under_way",
    )

    def __init__(
        self,
        group: GroupId,
        own: NodeId,
        to: NodeId,
        index: Index,
        term: Term,
        live: Sequence[Index],
        payload: bytes,
        read: Callable[[Index], Entry],
        now_ms: int,
    ) -> None:
        """term: of the snapshot's last entry; payload: not empty; read: returns a live entry."""
        assert payload, "a receiver is complete when it has the payload, which comes last"
        self.group, self.own, self.to = group, own, to
        self.index, self.term = index, term
        self.live = live
        self.payload = payload
        self.read = read
        self.live_sent: Index = 0
        self.payload_sent = 0
        self.under_way = 0
        self.heard_ms = now_ms
        self.stuck: Index = 0
        self._offered = True
        self._turned_at: tuple[Index, int] | None = None

    def offer(self, leader_term: Term) -> SnapshotChunk:
        """Return the offer, which asks what the receiver has: sent first, and without an answer."""
        self._offered = True
        return self._chunk(leader_term, (), -1, b"")

    def heard(self, wanted: SnapshotWanted, now_ms: int) -> None:
        """Continue from what the receiver wants; an answer about another snapshot is ignored."""
        if (wanted.index, wanted.last_term) != (self.index, self.term):
            return
        self.heard_ms = now_ms
        self.under_way = max(0, self.under_way - 1)
        place = (wanted.live_after, wanted.payload_from)
        if not wanted.repeat:
            self._turned_at = None
        elif self._offered or place != self._turned_at:
            # Once per place: if the first of four chunks in flight is lost, three answers say so.
            # The answer to an offer reports no loss: if the first chunk after it is lost, the
            # sender does turn back to it. Replayed by test_a_loss_turns_the_sender_back_once.
            self._turned_at = None if self._offered else place
            self._offered = False
            self.live_sent, self.payload_sent = place
            self.under_way = 0

    def next(self, leader_term: Term) -> SnapshotChunk | None:
        """Return the next chunk; None: wait for an answer, or all was sent.

        raises  what `read` raises for an entry that is no longer available
        """
        if self._offered or self.under_way >= CHUNKS_UNDER_WAY_MAX:
            return None
        at = bisect_right(self.live, self.live_sent)
        if at < len(self.live):
            entries: list[WireLive] = []
            size = 0
            while at < len(self.live) and (not entries or size < CHUNK_BYTES_MAX):
                entry = self.read(self.live[at])
                entries.append((entry.index, entry.term, entry.kind, entry.time_ms, entry.data))
                size += len(entry.data)
                at += 1
            chunk = self._chunk(leader_term, tuple(entries), -1, b"")
            self.live_sent = entries[-1][0]
        elif self.payload_sent < len(self.payload):
            start = self.payload_sent
            part = self.payload[start : start + CHUNK_BYTES_MAX]
            chunk = self._chunk(leader_term, (), start, part)
            self.payload_sent = start + len(part)
        else:
            return None
        self.under_way += 1
        return chunk

    def _chunk(
        self, leader_term: Term, entries: tuple[WireLive, ...], start: int, part: bytes
    ) -> SnapshotChunk:
        return SnapshotChunk(
            self.group,
            self.own,
            self.to,
            leader_term,
            self.index,
            self.term,
            self.live_sent,
            entries,
            start,
            part,
            len(self.payload),
        )


class Incoming:
    """The receiver's side: one snapshot at a time; another one begins from its start.

    base        what this member had applied when it began: it has the live entries up to there
    live_after  the last live entry received; payload: the part received
    Invariant: entries come in ascending order, payload comes after them
    """

    __slots__ = ("base", "index", "live_after", "payload", "sender", "term", "wanted_bytes")

    def __init__(self, chunk: SnapshotChunk, applied: Index) -> None:
        self.sender = chunk.sender
        self.index, self.term = chunk.index, chunk.last_term
        self.base = applied
        self.live_after = applied
        self.payload = bytearray()
        self.wanted_bytes = chunk.payload_bytes

    def is_of(self, chunk: SnapshotChunk) -> bool:
        """Return whether the chunk belongs to this snapshot, of this sender."""
        return (chunk.sender, chunk.index, chunk.last_term, chunk.payload_bytes) == (
            self.sender,
            self.index,
            self.term,
            self.wanted_bytes,
        )

    def take(self, chunk: SnapshotChunk) -> tuple[tuple[Entry, ...], bool]:
        """Take a chunk if it is the one that is wanted.

        returns  the live entries that are new, to be written; and whether the sender must continue
                 from what is wanted instead of from what it sent last
        """
        if chunk.entries:
            if chunk.live_after != self.live_after or self.payload:
                return (), True
            indexes = [self.live_after, *(entry[0] for entry in chunk.entries)]
            if any(after <= before for before, after in itertools.pairwise(indexes)):
                return (), True
            entries = tuple(Entry(i, t, k, ms, d) for i, t, k, ms, d in chunk.entries)
            self.live_after = entries[-1].index
            return entries, False
        if chunk.payload_from >= 0:
            if chunk.payload_from != len(self.payload) or chunk.live_after != self.live_after:
                return (), True
            self.payload += chunk.payload
            return (), False
        return (), True

    @property
    def complete(self) -> bool:
        """Whether everything was received."""
        return len(self.payload) >= self.wanted_bytes
