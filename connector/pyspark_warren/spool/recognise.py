"""Recognition of redelivered messages that are rows of the spool already.

A broker delivers a message again when the channel that had it ends before the acknowledgement, when
a node forgets an acknowledgement in a crash, and, for quorum queues, when the consumer's node was
unreachable for a moment: then on the same channel, with no notice. Only such deliveries, marked
`redelivered`, are compared with the rows; a new message that equals another one is a new row.

A row's **holder** is the session (one consumer on one channel) that received the message last. For
a redelivered message with an identity, in this order:

1. A row that is not acknowledged, held by a session that has ended: the broker has to deliver it
   again. Each such row answers one delivery, so equal messages are counted.
2. Another row of that identity: it is acknowledged and the acknowledgement was lost, or its session
   has not ended. This is a guess, and it is made when the identity has a message id, or one row
   only. Several rows without a message id show that the publisher sends equal messages: then the
   delivery is a new row, because a message in two rows is better than one in none.
   It is not made in a session that holds the row, where a queue either counts deliveries or sends
   no message twice to a session that lives (`counting`), and no count has risen: then the delivery
   is another message, which a look at the queue has marked.

Some brokers do not mark all that they deliver again (`amqp10.session`). In sessions of those
(`compared`) an unmarked delivery is compared, too: with 1. always, and with 2. only when it has an
id and the row is held by another session, or when the broker has not said that it has the
acknowledgement of that only row. To a session that lives they send no message twice.

So with a message id or distinct content every message has one row. Without a message id, messages
that are equal to the byte cannot be told apart: after a crash one may have two rows, and one that
equals the only remembered row and was delivered before, but not spooled, has none of its own where
the counts do not tell.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Final, TypeAlias

import pyarrow as pa

from pyspark_warren.rows.blocks import area_of
from pyspark_warren.rows.identities import DELIVERY_COUNT, IDENTITY_BYTES, WITH_ID, WITHOUT_ID
from pyspark_warren.rows.properties import decode_properties
from pyspark_warren.spool.search import NONE_DECIDED, PASSED, RELEASED, DecidedRows
from warren_wire.amqp091 import fields
from warren_wire.amqp091 import properties as wire
from warren_wire.errors import SyntaxRefused

OLD: Final = 0
"""The session of rows that an earlier owner of the lane received."""
_DIGEST_BYTES: Final = IDENTITY_BYTES - 1
_HEADERS: Final = wire.flag("headers")
_MESSAGE_ID: Final = wire.flag("message_id")
_BEFORE_HEADERS: Final = (wire.flag("content_type"), wire.flag("content_encoding"))
ACQUIRED_COUNT: Final = "x-acquired-count"
Counts: TypeAlias = tuple[int, int]
"""What a broker says of a message's earlier deliveries: `ACQUIRED_COUNT`, DELIVERY_COUNT; or 0."""
_BROKERS: Final = frozenset((DELIVERY_COUNT.encode(), ACQUIRED_COUNT.encode()))
"""Headers that a broker changes from one delivery of a message to the next."""


# ------------------------------------------------------------------ identities


def identities_of(batch: pa.RecordBatch) -> bytes:
    """Return the identity of each row, one after the other.

    It is a digest of exchange, routing key, properties and body, and a byte that says whether there
    is a message id. Headers are left out when there is a message id. Otherwise those that brokers
    change are left out, and the others are sorted, because RabbitMQ sorts them where it adds one.
    """
    bodies, body_data = area_of(batch.column("body"))
    lists, list_data = area_of(batch.column("properties"))
    routes = _routes(batch)
    found: list[bytes] = []
    lasting: dict[bytes, bytes] = {}
    add, join = found.append, b"".join
    for row in range(batch.num_rows):
        properties = bytes(list_data[lists[row] : lists[row + 1]])
        flags = properties[0] << 8 | properties[1] if len(properties) >= 2 else 0
        if flags & _HEADERS:
            known = lasting.get(properties)
            if known is None:
                known = lasting[properties] = _lasting(properties, flags)
            properties = known
        body = body_data[bodies[row] : bodies[row + 1]]
        size = len(properties).to_bytes(4, "big")
        whole = join((routes[row], size, properties, body))
        add(blake2b(whole, digest_size=_DIGEST_BYTES).digest())
        add(WITH_ID if flags & _MESSAGE_ID else WITHOUT_ID)
    return join(found)


def _routes(batch: pa.RecordBatch) -> Sequence[bytes]:
    """Return exchange and routing key of each row, with their sizes."""
    coded = [batch.column(name).dictionary_encode() for name in ("exchange", "routing_key")]
    words = [[_sized(word) for word in each.dictionary.to_pylist()] for each in coded]
    if len(words[0]) == len(words[1]) == 1:
        return [words[0][0] + words[1][0]] * batch.num_rows
    rows = zip(*(each.indices.to_pylist() for each in coded), strict=True)
    return [words[0][exchange] + words[1][key] for exchange, key in rows]


def _sized(word: bytes) -> bytes:
    return len(word).to_bytes(4, "big") + word


def _lasting(properties: bytes, flags: int) -> bytes:
    """Return the property list without what may differ between deliveries of one message.

    A list that is malformed is compared as it is.
    """
    start = 2
    for bit in _BEFORE_HEADERS:
        if flags & bit:
            if start >= len(properties):
                return properties
            start += 1 + properties[start]
    table = start + 4
    end = table + int.from_bytes(properties[start:table], "big")
    if end > len(properties):
        return properties
    kept = b""
    if not flags & _MESSAGE_ID:
        try:
            found = fields.entries(properties[table:end])
        except SyntaxRefused:
            return properties
        kept = b"".join(sorted(entry for name, entry in found if name not in _BROKERS))
    # Without its flag, a table of which nothing is left equals one that was never there.
    bits = (flags if kept else flags & ~_HEADERS).to_bytes(2, "big")
    size = len(kept).to_bytes(4, "big") if kept else b""
    return b"".join((bits, properties[2:start], size, kept, properties[end:]))


def delivery_counts(properties: bytes) -> Counts | None:
    """Return what a message's headers say of its earlier deliveries; None: they are malformed."""
    try:
        headers = decode_properties(properties, frozenset({"headers"})).get("headers", ())
    except SyntaxRefused:
        return None
    found = {name: int(typed.get("long") or 0) for name, typed in headers}
    return found.get(ACQUIRED_COUNT, 0), found.get(DELIVERY_COUNT, 0)


# ------------------------------------------------------------------ rows

_RUN_ROWS_MAX: Final = 4096
_PINNED_PER_KEPT: Final = 4
_RETURNED_MAX: Final = 65_536


@dataclass(slots=True)
class RowRun:
    """Rows that follow each other and were received in one session."""

    first: int
    session: int
    identities: bytearray

    @property
    def end(self) -> int:
        """The position after its last row."""
        return self.first + len(self.identities) // IDENTITY_BYTES


def _end(run: RowRun) -> int:
    return run.end


@dataclass(slots=True)
class RowMemory:
    """Identities of the lane's rows, and which session holds each.

    settled              rows before it are committed
    keep                 settled rows that are remembered of each session that lives
    acked_when_spooled   every row counts as acknowledged (ackMode=spool)
    decided              rows that passed count as acknowledged; one that was released is none any
                         more: when its message comes back, it is a new row
    counting             sessions to which a message comes again only with a higher count, or not
    compared             sessions to which a message comes again, perhaps unmarked, when another
                         session had it

    Rows of sessions that have ended are remembered until there are too many, whatever was settled
    since: 1. a machine is lost with its receiver; 2. its successor settles the rows, and a million
    others; 3. the broker misses the heartbeats of the first connection, and delivers its messages
    again.

    Invariant: runs are ascending and do not overlap; sessions that are not in `live` have ended;
    all rows from `settled` on are remembered.
    """

    settled: int
    keep: int
    acked_when_spooled: bool = False
    decided: DecidedRows = NONE_DECIDED
    live: set[int] = field(default_factory=set)
    counting: set[int] = field(default_factory=set)
    compared: set[int] = field(default_factory=set)
    _runs: list[RowRun] = field(default_factory=list)
    _held: dict[int, int] = field(default_factory=dict)
    _counts: dict[int, tuple[int, Counts]] = field(default_factory=dict)
    _index: dict[bytes, list[int]] | None = None
    _indexed: int = 0
    _forgotten: int = 0
    _unsure: Counter[bytes] = field(default_factory=Counter)
    _searched: dict[bytes, int] = field(default_factory=dict)
    _returned: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    _sessions: int = OLD

    @property
    def pinned_max(self) -> int:
        """How many settled rows of ended sessions are remembered."""
        return _PINNED_PER_KEPT * self.keep

    # -------------------------------------------------------------- sessions and rows

    def begin_session(self, counting: bool = False, compared: bool = False) -> int:
        """Return the number of a new session."""
        self._sessions += 1
        self.live.add(self._sessions)
        if compared:
            self.compared.add(self._sessions)
        if counting:
            self.counting.add(self._sessions)
        return self._sessions

    def end_session(self, session: int, unsure: Sequence[bytes] = ()) -> None:
        """Rows that the session holds may be delivered again, to any session.

        unsure  see `LaneWriter.end_session`
        """
        self._unsure.update(unsure)
        self.live.discard(session)
        self.compared.discard(session)
        if session in self.counting:
            self.counting.discard(session)
            self._counts = {row: of for row, of in self._counts.items() if of[0] != session}
        self._searched.clear()
        self._returned = {
            identity: (row, holder, last)
            for identity, (row, holder, last) in self._returned.items()
            if any(one != holder and one <= last for one in self.live)
        }

    def add(self, first: int, identities: bytes | memoryview, session: int) -> None:
        """Remember rows from position `first` on."""
        last = self._runs[-1] if self._runs else None
        assert last is None or last.end <= first, (last, first)
        if (
            last is not None
            and (last.end, last.session) == (first, session)
            and last.end - last.first < _RUN_ROWS_MAX
        ):
            last.identities += identities
        else:
            self._runs.append(RowRun(first, session, bytearray(identities)))

    def settle(self, position: int) -> None:
        """Rows before the position are committed: forget those that will not come again."""
        self.settled = max(self.settled, position)
        rows: dict[int, int] = {}
        kept = []
        for run in reversed(self._runs):
            # One count for all sessions that have ended.
            session = run.session if run.session in self.live else OLD
            most = self.pinned_max if session == OLD else self.keep
            if run.end > self.settled or rows.get(session, 0) < most:
                kept.append(run)
                if session != OLD or run.end <= self.settled:
                    rows[session] = rows.get(session, 0) + run.end - run.first
        if len(kept) < len(self._runs):
            self._forgotten += sum(run.end - run.first for run in self._runs)
            self._runs = kept[::-1]
            self._forgotten -= sum(run.end - run.first for run in self._runs)
            self._held = {row: s for row, s in self._held.items() if self._run(row) is not None}
            self._counts = {row: c for row, c in self._counts.items() if self._run(row) is not None}
            if self._forgotten >= self.keep:  # else the index is made again at each settle
                self._index = None

    def remembers(self, first: int, end: int) -> bool:
        """Return whether any row of first <= position < end is remembered."""
        at = bisect_right(self._runs, first, key=_end)
        return at < len(self._runs) and self._runs[at].first < end

    def identities(self, first: int, end: int) -> tuple[int, bytes]:
        """Return the identities of the last rows before `end`, and where they begin.

        They begin at `first` or, where rows are not remembered, after it.
        """
        pieces = []
        for run in reversed(self._runs):
            if run.first >= end:
                continue
            start = max(first, run.first)
            if run.end < end or start >= end:
                break
            cut = slice((start - run.first) * IDENTITY_BYTES, (end - run.first) * IDENTITY_BYTES)
            pieces.append(bytes(run.identities[cut]))
            end = start
        return end, b"".join(reversed(pieces))

    # -------------------------------------------------------------- repeats

    def match(self, identity: bytes, session: int, counts: Counts | None = None) -> int | None:
        """Return the row that a redelivered message is, which the session now holds, or None.

        counts  `delivery_counts` of the message; None: not known
        """
        rows = self._rows_of(identity)
        found = self._due(identity, rows)
        if found is None:
            # The newest row: it is acknowledged last, so never before its batch is committed.
            named = identity.endswith(WITH_ID)
            if len(rows) != 1 and not (named and rows):
                return None
            found = rows[-1]
            if not named and session in self.compared and self._holder(found) == session:
                return None
            if not named and counts is not None and self._is_another(found, session, counts):
                return None
        self._held[found] = session
        self.note_counts(found, session, counts)
        return found

    def _is_another(self, row: int, session: int, counts: Counts) -> bool:
        """Return whether a delivery without a message id is not the message that is that row.

        1. A message is a row, acknowledged or not.  2. Another one, equal to the byte, was looked
        at by an operator.  3. It comes, marked, in the same session. If it were the first one, a
        queue that counts would have counted the return.
        """
        if session not in self.counting or self._holder(row) != session:
            return False
        _, (acquired, delivered) = self._counts.get(row, (session, (0, 0)))
        return counts[0] <= acquired and counts[1] <= delivered

    def needs_counts(self, identity: bytes, session: int) -> bool:
        """Return whether the counts of a redelivered message with that identity tell anything."""
        return session in self.counting and identity.endswith(WITHOUT_ID)

    def note_counts(self, row: int, session: int, counts: Counts | None) -> None:
        """Note the counts of a redelivered message that is that row.

        Those of one that is not redelivered are a publisher's, and none of the broker's.
        """
        if counts is not None and session in self.counting:
            self._counts[row] = session, counts

    def note_returned(self, identity: bytes, row: int, session: int) -> None:
        """Note a new row with a message that another session may have received first.

        1. Connection A stands still; the broker gives it up and delivers its message to B.
        2. B's delivery is read first and becomes a row.  3. A's delivery is read: the first one of
        that message, so it is not marked. Only a message id tells that from a new, equal message.
        """
        if identity.endswith(WITH_ID) and len(self.live) > 1:
            self._returned[identity] = (row, session, self._sessions)
            if len(self._returned) > _RETURNED_MAX:
                del self._returned[next(iter(self._returned))]

    def match_first(self, identity: bytes, session: int) -> int | None:
        """Return the row that an unmarked delivery is, or None: see `note_returned`."""
        if session in self.compared:
            return self._match_unmarked(identity, session)
        found = self._returned.get(identity)
        if found is None or session == found[1] or session > found[2]:
            return None
        return found[0]

    def _match_unmarked(self, identity: bytes, session: int) -> int | None:
        rows = self._rows_of(identity)
        found = self._due(identity, rows)
        if found is None and rows and identity.endswith(WITH_ID):
            found = rows[-1] if self._holder(rows[-1]) != session else None
        elif found is None and len(rows) == 1 and self._unsure[identity] > 0:
            self._unsure[identity] -= 1
            found = rows[0]
        if found is not None:
            self._held[found] = session
        return found

    def compares(self, session: int) -> bool:
        """Return whether unmarked deliveries to the session must be compared.

        Not as long as it has received every row that is remembered: then nothing comes again.
        """
        if session not in self.compared:
            return bool(self._returned)
        return any(run.session != session for run in self._runs)

    def _due(self, identity: bytes, rows: list[int]) -> int | None:
        """Return the first row that the broker has to deliver again, or None.

        The search continues where the last one for this identity ended: rows before are settled
        or held by a live session, until a session ends.
        """
        if self.acked_when_spooled:
            return None
        at = bisect_left(rows, max(self.settled, self._searched.get(identity, 0)))
        while at < len(rows) and not self._comes_again(rows[at]):
            at += 1
        if at < len(rows):
            self._searched[identity] = rows[at]
            return rows[at]
        self._searched[identity] = rows[-1] + 1 if rows else 0
        return None

    def _comes_again(self, row: int) -> bool:
        return self._holder(row) not in self.live and self.decided.of(row) != PASSED

    def _rows_of(self, identity: bytes) -> list[int]:
        """Return the rows with that identity which its message may be, ascending."""
        rows = self._indexed_rows().get(identity, [])
        if self._forgotten:
            rows = [row for row in rows if row >= self.settled or self._run(row) is not None]
        if self.decided:
            rows = [row for row in rows if self.decided.of(row) != RELEASED]
        return rows

    def _indexed_rows(self) -> dict[bytes, list[int]]:
        """Return the rows by identity, ascending; made when a redelivered message comes."""
        if self._index is None:
            self._index, self._indexed, self._forgotten = {}, 0, 0
            self._searched.clear()
        index = self._index
        for run in self._runs[bisect_right(self._runs, self._indexed, key=_end) :]:
            for row in range(max(run.first, self._indexed), run.end):
                at = (row - run.first) * IDENTITY_BYTES
                index.setdefault(bytes(run.identities[at : at + IDENTITY_BYTES]), []).append(row)
            self._indexed = run.end
        return index

    def _holder(self, row: int) -> int:
        held = self._held.get(row)
        if held is not None:
            return held
        run = self._run(row)
        assert run is not None, row
        return run.session

    def _run(self, row: int) -> RowRun | None:
        at = bisect_right(self._runs, row, key=_end)
        found = self._runs[at] if at < len(self._runs) else None
        return found if found is not None and found.first <= row else None

    def check(self) -> None:
        """Assert the invariants."""
        for before, after in pairwise(self._runs):
            assert before.end <= after.first, (before.first, before.end, after.first)
        assert all(OLD < session <= self._sessions for session in self.live), self.live
        assert self.counting | self.compared <= self.live, (self.counting, self.live)
        assert all(session in self.counting for session, _ in self._counts.values())
