"""The ledger from publish sequence numbers to confirms, as ranges.

The unit is the batch: the consecutive messages of one Publish request. Routing decides
which parts of it go to which queue; every queue answers for its part. In the usual case every part
is the whole batch and no work is done per message; otherwise a counter per message holds the number
of answers still expected.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from warren_broker.access.requests import Token
from warren_machines.queue.commands import SessionId
from warren_wire.kernel import MessageTable

Ranges: TypeAlias = list[tuple[int, int]]
"""Closed ranges (first, last), ascending, disjoint, neighbours joined."""


class ConfirmedPart(Protocol):
    """Some of the messages first <= i < last of a table; a kernel Selection is one."""

    first: int
    last: int
    indices: array[int] | None

    def __len__(self) -> int:
        """How many."""


class CheckedRun(msgspec.Struct, frozen=True):
    """Messages first <= i < last of a table that may be published; flags as in kernel.items."""

    table: MessageTable
    first: int
    last: int
    mandatory: bool
    flags: int


class PublishingChannel(Protocol):
    """A channel as the ledger sees it; tx: None unless it is transactional."""

    @property
    def session(self) -> SessionId:
        """Its session."""

    @property
    def publishes(self) -> PublishLedger:
        """Its unconfirmed publishes."""

    @property
    def tx(self) -> object | None:
        """Its transaction."""


PublisherT = TypeVar("PublisherT", bound=PublishingChannel)


@dataclass(slots=True)
class Batch:
    """Messages first … last (closed sequence numbers) that are not all confirmed.

    parts      positions relative to the batch of what each answer is for; None: all of it
    waits      answers to come; with `left`: of parts not answered
    left       answers to come per message; None: every part is the whole batch
    """

    first: int
    last: int
    routed: bool = False
    parts: list[Sequence[int] | None] = field(default_factory=list)
    waits: int = 0
    left: array[int] | None = None


class Confirms(msgspec.Struct, frozen=True):
    """The confirms to send to the publisher, in this order.

    up_to       basic.ack with multiple, 0: none
    singles     then one basic.ack for each
    nack_up_to  basic.nack with multiple, 0: none
    nacks       then one basic.nack for each
    """

    up_to: int
    singles: tuple[tuple[int, int], ...]
    nack_up_to: int
    nacks: tuple[tuple[int, int], ...]


class PublishLedger:
    """The unconfirmed publishes of one channel.

    next_seq  the next publish's sequence number, from 1
    batches   by the first sequence number, ascending, disjoint
    refused   whether any message was refused since `forget`
    acked     messages acknowledged since `take_acked`

    Invariants: a batch stays until every message of it is acknowledged or refused, so the first
    batch's unanswered message is the lowest unconfirmed one.
    """

    __slots__ = ("_acked", "_nacked", "acked", "batches", "next_seq", "refused")

    def __init__(self) -> None:
        self.next_seq = 1
        self.batches: dict[int, Batch] = {}
        self.refused = False
        self.acked = 0
        self._acked: Ranges = []
        self._nacked: Ranges = []

    @property
    def idle(self) -> bool:
        """Whether everything published has been answered."""
        return not self.batches

    @property
    def unconfirmed(self) -> int:
        """The messages that are not answered; visits each batch."""
        return sum(
            one.last - one.first + 1 if one.left is None else sum(map(bool, one.left))
            for one in self.batches.values()
        )

    @property
    def tells(self) -> bool:
        """Whether `take` returns anything."""
        return bool(self._acked or self._nacked)

    def published(self, count: int) -> int:
        """Number `count` messages; the first one's sequence number names their batch."""
        assert count > 0, count
        first = self.next_seq
        self.next_seq = first + count
        self.batches[first] = Batch(first, self.next_seq - 1)
        return first

    def routed(self, first: int, parts: Sequence[ConfirmedPart], table_first: int) -> list[int]:
        """Record the parts of a batch, one per queue; return the positions of unroutable messages.

        table_first  the position in the table of the batch's first message
        """
        batch = self.batches[first]
        assert not batch.routed, first
        batch.routed = True
        count = batch.last - batch.first + 1
        batch.waits = len(parts)
        if [len(part) for part in parts].count(count) == len(parts):
            batch.parts = [None] * len(parts)
            if parts:
                return []
            self._ack(batch.first, batch.last)
            del self.batches[first]
            return list(range(count))
        batch.left = array("I", bytes(4 * count))
        batch.parts = [_positions(part, table_first) for part in parts]
        for positions in batch.parts:
            assert positions is not None
            for at in positions:
                batch.left[at] += 1
        nowhere = [at for at, left in enumerate(batch.left) if not left]
        for at in nowhere:
            self._ack(first + at, first + at)
        return nowhere

    def answered(
        self, first: int, part: int, ok: bool, refused: Iterable[int] | None = None
    ) -> None:
        """Record that one queue has accepted its part, or has refused it.

        refused  with ok=False: only these positions of the batch; None: all of the part
        """
        batch = self.batches.get(first)
        if batch is None:
            return  # refused by another queue before
        batch.waits -= 1
        assert batch.waits >= 0, (first, part)
        positions = batch.parts[part]
        if batch.left is None:
            if ok or refused is None:
                self._answered_whole(batch, ok)
                return
            count = batch.last - batch.first + 1
            batch.left = array("I", [batch.waits + 1]) * count
            batch.parts = [range(count)] * len(batch.parts)
            positions = range(count)
        assert positions is not None
        self._answered_each(
            batch, positions, set(positions if refused is None else refused) if not ok else set()
        )
        if not batch.waits:
            del self.batches[first]

    def _answered_whole(self, batch: Batch, ok: bool) -> None:
        if not ok:
            self._nack(batch.first, batch.last)
        elif not batch.waits:
            self._ack(batch.first, batch.last)
        else:
            return
        del self.batches[batch.first]

    def _answered_each(self, batch: Batch, positions: Sequence[int], refused: set[int]) -> None:
        left = batch.left
        assert left is not None
        first = batch.first
        for at in positions:
            if at in refused:
                if left[at]:
                    self._nack(first + at, first + at)
                left[at] = 0
            elif left[at]:
                left[at] -= 1
                if not left[at]:
                    self._ack(first + at, first + at)

    def _ack(self, first: int, last: int) -> None:
        self.acked += last - first + 1
        _join(self._acked, first, last)

    def _nack(self, first: int, last: int) -> None:
        self.refused = True
        _join(self._nacked, first, last)

    def _lowest_unconfirmed(self) -> int:
        for batch in self.batches.values():
            if batch.left is None or not batch.routed:
                return batch.first
            for at, left in enumerate(batch.left):
                if left:
                    return batch.first + at
        return self.next_seq

    def take(self) -> Confirms | None:
        """Return what has been answered since the last call; None: nothing.

        `multiple` covers everything at or below its number that the publisher still waits for:
        so an ack with it must stay below the lowest unconfirmed and the lowest refused message; a
        nack with it comes after all acks and must stay below the lowest unconfirmed one.
        """
        if not self.tells:
            return None
        acked, nacked = _normal(self._acked), _normal(self._nacked)
        self._acked, self._nacked = [], []
        if not nacked and acked[0][0] == acked[-1][1]:
            return Confirms(0, tuple(acked), 0, ())  # one message: RabbitMQ does not set `multiple`
        low = self._lowest_unconfirmed()
        cut = min(low, nacked[0][0]) if nacked else low
        up_to, singles = _split(acked, cut)
        nack_up_to, nacks = _split(nacked, low)
        return Confirms(up_to, singles, nack_up_to, nacks)

    def take_acked(self) -> int:
        """Return how many messages were acknowledged since the last call."""
        acked, self.acked = self.acked, 0
        return acked

    def forget(self) -> bool:
        """Drop the confirms to be sent (in a transaction, tx.commit-ok stands for them).

        returns  whether anything was refused since the last call
        """
        self._acked, self._nacked = [], []
        self.acked = 0
        refused, self.refused = self.refused, False
        return refused


def nowhere(parts: Sequence[ConfirmedPart], first: int, last: int) -> list[int]:
    """Return the table positions first <= i < last that are in no part."""
    left = set(range(first, last))
    for part in parts:
        left.difference_update(
            range(part.first, part.last) if part.indices is None else part.indices
        )
    return sorted(left)


def _positions(part: ConfirmedPart, table_first: int) -> Sequence[int]:
    if part.indices is None:
        return range(part.first - table_first, part.last - table_first)
    return array("I", [at - table_first for at in part.indices])


def _join(ranges: Ranges, first: int, last: int) -> None:
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))


def _normal(ranges: Ranges) -> Ranges:
    if len(ranges) < 2:
        return ranges
    joined: Ranges = []
    for first, last in sorted(ranges):
        _join(joined, first, last)
    return joined


def _split(ranges: Ranges, cut: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the highest number below `cut`, and the ranges from `cut` on."""
    up_to = 0
    rest: Ranges = []
    for first, last in ranges:
        if first < cut:
            up_to = min(last, cut - 1)
            first = cut
        if first <= last:
            rest.append((first, last))
    return up_to, tuple(rest)


# ------------------------------------------------------------------ of a connection


@dataclass(slots=True)
class _Published(Generic[PublisherT]):
    """An unanswered Publish; table: until it is routed; number: its first sequence number, or 0."""

    channel: PublisherT
    table: MessageTable | None
    first: int
    last: int
    number: int
    mandatory: bool


class Publishes(Generic[PublisherT]):
    """A connection's publishes that the broker has not answered, by token.

    to_confirm  channels with confirms to send, by session, until the output is taken
    to_commit   channels with a transaction that may be complete
    """

    __slots__ = ("_published", "to_commit", "to_confirm")

    def __init__(self) -> None:
        self._published: dict[Token, _Published[PublisherT]] = {}
        self.to_confirm: dict[SessionId, PublisherT] = {}
        self.to_commit: list[PublisherT] = []

    def add(self, token: Token, channel: PublisherT, run: CheckedRun, number: int) -> None:
        """Record a Publish request; number: its first sequence number, 0: no confirms."""
        if number or run.mandatory:
            self._published[token] = _Published(
                channel, run.table, run.first, run.last, number, run.mandatory
            )

    def routed(
        self, token: Token, parts: Sequence[ConfirmedPart], kept: int
    ) -> tuple[PublisherT, MessageTable, list[int]] | None:
        """Record the queues that the messages are routed to, one part per queue.

        kept     how many of the parts, the last ones, are for exchanges that keep messages: they
                 are confirmed like the others, but their messages count as unroutable
        returns  when mandatory messages may be among the unroutable ones: the channel, the table
                 and the positions of all unroutable messages
        """
        published = self._published.get(token)
        if published is None:
            return None
        channel, table = published.channel, published.table
        assert table is not None, token
        published.table = None
        if published.number:
            relative = channel.publishes.routed(published.number, parts, published.first)
            lost = [published.first + at for at in relative]
        if kept or not published.number:
            lost = nowhere(parts[: len(parts) - kept], published.first, published.last)
        if not published.number:
            del self._published[token]
        if published.number:
            self._answered(token, published)
        return (channel, table, lost) if published.mandatory and lost else None

    def confirmed(self, token: Token, part: int, ok: bool, refused: Iterable[int] | None) -> None:
        """Record that a queue accepted its part, or refused it or (table positions) some of it."""
        published = self._published.get(token)
        if published is None:
            return
        positions = None if refused is None else [at - published.first for at in refused]
        published.channel.publishes.answered(published.number, part, ok, positions)
        self._answered(token, published)

    def _answered(self, token: Token, published: _Published[PublisherT]) -> None:
        channel = published.channel
        if published.number not in channel.publishes.batches:
            del self._published[token]
        if channel.tx is None:
            if channel.publishes.tells:
                self.to_confirm[channel.session] = channel
        else:
            self.to_commit.append(channel)

    def forget(self, channel: PublisherT) -> None:
        """Drop the publishes of a channel that has ended."""
        self.to_confirm.pop(channel.session, None)
        for token in [
            token for token, published in self._published.items() if published.channel is channel
        ]:
            del self._published[token]
