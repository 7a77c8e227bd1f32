"""A connection's publishes that the broker has not answered for yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warren_broker.amqp091 import publish, requests
from warren_broker.amqp091.channel import Channel, CheckedRun
from warren_broker.amqp091.confirms import Part
from warren_broker.errors import Refusal
from warren_broker.kernel import MessageTable


@dataclass(slots=True)
class _Published:
    """An unanswered Publish; table: until it is routed; number: its first sequence number, or 0."""

    channel: Channel
    table: MessageTable | None
    first: int
    last: int
    number: int
    mandatory: bool


class Publishes:
    """By token: where their answers belong.

    to_confirm  channels with something to tell, by session, until the output is taken
    to_commit   channels whose transaction may be complete
    """

    __slots__ = ("_published", "to_commit", "to_confirm")

    def __init__(self) -> None:
        self._published: dict[requests.Token, _Published] = {}
        self.to_confirm: dict[int, Channel] = {}
        self.to_commit: list[Channel] = []

    def add(self, token: requests.Token, channel: Channel, run: CheckedRun, number: int) -> None:
        """A Publish was asked for; number: its first sequence number, 0: no confirms."""
        if number or run.mandatory:
            self._published[token] = _Published(
                channel, run.table, run.first, run.last, number, run.mandatory
            )

    def routed(self, token: requests.Token, parts: Sequence[Part]) -> None:
        """Where its messages go; what goes nowhere and is mandatory comes back at once."""
        published = self._published.get(token)
        if published is None:
            return
        channel, table = published.channel, published.table
        assert table is not None, token
        published.table = None
        if published.number:
            relative = channel.publishes.routed(published.number, parts, published.first)
            lost = [published.first + at for at in relative]
        else:
            lost = publish.nowhere(parts, published.first, published.last)
            del self._published[token]
        if published.mandatory and lost:
            publish.return_unroutable(channel, table, lost)
        if published.number:
            self._answered(token, published)

    def confirmed(
        self, token: requests.Token, part: int, ok: bool, refused: Iterable[int] | None
    ) -> None:
        """A queue has its part, or refused it, or (table positions) some of it."""
        published = self._published.get(token)
        if published is None:
            return
        positions = None if refused is None else [at - published.first for at in refused]
        published.channel.publishes.answered(published.number, part, ok, positions)
        self._answered(token, published)

    def _answered(self, token: requests.Token, published: _Published) -> None:
        channel = published.channel
        if published.number not in channel.publishes.batches:
            del self._published[token]
        if channel.tx is None:
            self.to_confirm[channel.session] = channel
        else:
            self.to_commit.append(channel)

    def tell(self) -> None:
        """Write what has been confirmed or refused."""
        for channel in self.to_confirm.values():
            publish.tell_confirms(channel)
        self.to_confirm.clear()

    def next_commit(self) -> tuple[requests.Token, requests.Done | Refusal] | None:
        """One commit that is complete, with its result.

        One at a time: the answer lets its channel go on, maybe to its next commit.
        """
        while self.to_commit:
            finished = publish.finished_commit(self.to_commit.pop())
            if finished is not None:
                return finished
        return None

    def forget(self, channel: Channel) -> None:
        """Nothing can be told to it any more."""
        self.to_confirm.pop(channel.session, None)
        for token in [
            token for token, published in self._published.items() if published.channel is channel
        ]:
            del self._published[token]
