"""The ledger from publish sequence numbers to confirms, as ranges.

The unit is the batch: the consecutive messages of one Publish request (`PartAnswers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from warren_broker.access.requests import Token
from warren_broker.clients.part_answers import ConfirmedPart, PartAnswers, nowhere
from warren_machines.queue.commands import SessionId
from warren_wire.kernel import MessageTable

Ranges: TypeAlias = list[tuple[int, int]]
"""Closed ranges (first, last), ascending, disjoint, neighbours joined."""


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
        self.batches: dict[int, PartAnswers] = {}
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
        return sum(one.open for one in self.batches.values())

    @property
    def tells(self) -> bool:
        """Whether `take` returns anything."""
        return bool(self._acked or self._nacked)

    def published(self, count: int) -> int:
        """Number `count` messages; the first one's sequence number names their batch."""
        first = self.next_seq
        self.next_seq = first + count
        self.batches[first] = PartAnswers(count)
        return first

    def routed(self, first: int, parts: Sequence[ConfirmedPart], table_first: int) -> list[int]:
        """Record the parts of a batch, one per queue; return the positions of unroutable messages.

        table_first  the position in the table of the batch's first message
        """
        batch = self.batches[first]
        nowhere = batch.route(parts, table_first)
        for at in nowhere:
            self._ack(first + at, first + at)
        if batch.done:
            del self.batches[first]
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
        accepted, denied = batch.answer(part, ok, refused)
        if batch.done:
            del self.batches[first]
        if accepted is batch.whole:
            self._ack(first, first + batch.count - 1)
        elif denied is batch.whole:
            self._nack(first, first + batch.count - 1)
        else:
            for at in accepted:
                self._ack(first + at, first + at)
            for at in denied:
                self._nack(first + at, first + at)

    def _ack(self, first: int, last: int) -> None:
        self.acked += last - first + 1
        _join(self._acked, first, last)

    def _nack(self, first: int, last: int) -> None:
        self.refused = True
        _join(self._nacked, first, last)

    def _lowest_unconfirmed(self) -> int:
        for first, batch in self.batches.items():
            at = batch.lowest_open()
            if at is not None:
                return first + at
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

    Invariant: `_of` has every token of `_published`, by the session of its channel, until it ends:
    2,047 channels may end at once, and as many publishes of each be unanswered
    """

    __slots__ = ("_of", "_published", "to_commit", "to_confirm")

    def __init__(self) -> None:
        self._published: dict[Token, _Published[PublisherT]] = {}
        self._of: dict[SessionId, dict[Token, None]] = {}
        self.to_confirm: dict[SessionId, PublisherT] = {}
        self.to_commit: list[PublisherT] = []

    def add(self, token: Token, channel: PublisherT, run: CheckedRun, number: int) -> None:
        """Record a Publish request; number: its first sequence number, 0: no confirms."""
        if number or run.mandatory:
            self._published[token] = _Published(
                channel, run.table, run.first, run.last, number, run.mandatory
            )
            self._of.setdefault(channel.session, {})[token] = None

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
        if published.number:
            self._answered(token, published)
        else:
            del self._published[token], self._of[channel.session][token]
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
            del self._published[token], self._of[channel.session][token]
        if channel.tx is None:
            if channel.publishes.tells:
                self.to_confirm[channel.session] = channel
        else:
            self.to_commit.append(channel)

    def forget(self, channel: PublisherT) -> None:
        """Drop the publishes of a channel that has ended."""
        self.to_confirm.pop(channel.session, None)
        for token in self._of.pop(channel.session, ()):
            del self._published[token]
