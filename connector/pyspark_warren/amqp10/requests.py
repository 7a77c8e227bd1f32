"""Requests over a pair of links, as brokers answer them at $cbs and $management."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyspark_warren.amqp10.links import Link10, Peer
from warren_wire.amqp10.deliveries import ACCEPTED, handle_of, read_message, settle_as
from warren_wire.amqp10.proton import Condition, Delivery, Link, Message, ProtonException

ANSWERS_CREDIT: Final = 64


class Answer(NamedTuple):
    """What was answered; status as in HTTP, 0: the links have ended."""

    status: int
    text: str
    body: Any

    @property
    def good(self) -> bool:
        """Whether it was done."""
        return 200 <= self.status < 300


class _AskingLink(Link10):
    """The link of the requests."""

    def __init__(self, owner: RequestLinks, peer: Peer, link: Any) -> None:
        self._owner = owner
        super().__init__(peer, link)

    def credited(self) -> None:
        """Send what waits."""
        self._owner.send()

    def delivered(self, delivery: Delivery) -> None:
        """Forget an outcome."""
        delivery.settle()

    def closed(self, condition: Condition | None) -> None:
        """See ClientLink."""
        self._owner.ended(condition)


class _AnswersLink(_AskingLink):
    """The link of the answers."""

    def ready(self) -> None:
        """Have answers sent."""
        self.link.flow(ANSWERS_CREDIT)
        self.peer.flush_later()

    def credited(self) -> None:
        """See ClientLink."""

    def delivered(self, delivery: Delivery) -> None:
        """Pass an answer on."""
        self._owner.answered(self.link, delivery)


class RequestLinks:
    """A sender to a node and a receiver of its answers.

    ended  called with the condition when the broker ends a link
    """

    def __init__(self, peer: Peer, node: str, ended: Callable[[Condition | None], None]) -> None:
        self._asked: dict[str, Callable[[Answer], None]] = {}
        self._waiting: list[bytes] = []
        self._peer = peer
        self.ended = ended
        name = f"{node} {uuid.uuid4()}"
        assert peer.session is not None
        receiver, sender = peer.session.receiver(name), peer.session.sender(name)
        self._reply_to = receiver.target.address = f"answers-{uuid.uuid4().hex}"
        receiver.source.address = sender.target.address = node
        sender.source.address = self._reply_to
        sender.snd_settle_mode = Link.SND_SETTLED
        self._answers = _AnswersLink(self, peer, receiver)
        self._requests = _AskingLink(self, peer, sender)
        peer.flush_later()

    def ask(
        self,
        properties: dict[str, Any],
        body: Any,
        answered: Callable[[Answer], None],
    ) -> None:
        """Send a request; `answered` is called with its answer."""
        made = Message()
        made.id = uuid.uuid4().hex
        made.reply_to = self._reply_to
        made.properties, made.body = properties, body
        self._asked[made.id] = answered
        self._waiting.append(made.encode())
        self.send()

    def send(self) -> None:
        """Send what waits, as far as there is credit."""
        link = self._requests.link
        while self._waiting and link.credit > 0:
            made = link.delivery(uuid.uuid4().hex)
            link.stream(self._waiting.pop(0))
            link.advance()
            made.settle()
        self._peer.flush_later()

    def answered(self, link: Any, delivery: Delivery) -> None:
        """Take an answer."""
        if not delivery.readable or delivery.partial:
            return
        handle, data, _ = read_message(handle_of(link), handle_of(delivery))
        settle_as(handle, ACCEPTED)
        link.flow(1)
        self._peer.flush_later()
        said = Message()
        try:
            said.decode(bytes(data))
            given = said.properties or {}
            status = int(given.get("status-code", given.get("statusCode", 0)))
            text = str(given.get("status-description", given.get("statusDescription", "")))
        except (ProtonException, TypeError, ValueError) as wrong:
            status, text = 500, f"an answer that cannot be read: {wrong}"
        told = self._asked.pop(str(said.correlation_id), None)
        if told is not None:
            told(Answer(status, text, said.body))
