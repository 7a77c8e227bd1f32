"""The pair of links to `/management`: requests in, answers out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from warren_broker.admin.answers import rendered
from warren_broker.admin.rabbitmq_answers import as_rabbitmq
from warren_broker.clients10.connection_requests import AnyAnswer
from warren_broker.clients10.incoming_link import IncomingLink
from warren_broker.clients10.link import LinkFault, LinkHost, LinkPart, takes_answers_of_warren
from warren_wire.admin.requests import INT64_MAX, AdminRequest, AnyAdminRequest
from warren_wire.admin.resources import find_route
from warren_wire.amqp10.deliveries import give_back_credit, handle_of, read_message
from warren_wire.amqp10.proton import Array, Delivery, Link, Message, MessageException, ulong
from warren_wire.amqp10.request import RequestMessage
from warren_wire.errors import AccessRefused, PreconditionFailed, Refusal, SyntaxRefused

REQUESTS_MAX = 64
"""Limit of unanswered requests of one connection, and of one link; the link's credit."""
NESTING_MAX = 16
NOT_DECODED = (MessageException, ValueError, TypeError, OverflowError)


class AnswersLink(LinkPart):
    """The link for answers; those without credit or room wait."""

    def __init__(self, link: Link, host: LinkHost) -> None:
        super().__init__(link, host)
        self._waiting: deque[tuple[bytes, Callable[[], None]]] = deque()
        self._sent = 0

    def send(self, message: bytes, written: Callable[[], None]) -> None:
        """Send an encoded answer, now or when there is credit; `written` is called then."""
        self._waiting.append((message, written))
        self.host.bounds.answers_bytes += len(message)
        self.wake()

    def flow(self, *, told: bool = False) -> None:
        """Send waiting answers: the client gave credit, or wants back what is not used."""
        self.wake()
        if told and not self.ended:
            give_back_credit(self.link, self.host.lends_credit)

    def delivery(self, delivery: Delivery) -> None:
        """Ignore the outcome of an answer."""
        if delivery.settled or delivery.updated:
            delivery.settle()

    def gone(self) -> None:
        """Drop what waits: the link has ended."""
        while self._waiting:
            self._next()

    def _next(self) -> bytes:
        message, written = self._waiting.popleft()
        self.host.bounds.answers_bytes -= len(message)
        written()
        return message

    def wake(self) -> bool:
        """Send waiting answers."""
        wrote, has_room = False, self.host.ahead.has_room
        while self._waiting and not self.ended and self.link.credit > 0:
            if not has_room(self.link.session._impl):
                break
            delivery = self.link.delivery(str(self._sent))
            self._sent += 1
            self.link.stream(self._next())
            self.link.advance()
            delivery.settle()
            wrote = True
        return wrote


class RequestsLink(IncomingLink):
    """The link for requests.

    1. A client gives no credit for answers, or does not read them, and makes requests of which each
    has a large answer.  2. So a request is read while less than the send-ahead bound waits to be
    answered, over all links, and gives credit for another one when its answer was written.

    answers  the link for the answers; set by the connection when the client has attached it
    """

    what = "a request"

    def __init__(self, link: Link, host: LinkHost) -> None:
        super().__init__(link, host, host.limits.request_bytes_max)
        self.answers: AnswersLink | None = None
        self._of_warren = takes_answers_of_warren(link)
        self._credit_due = REQUESTS_MAX
        self.grant()

    def may_read(self) -> bool:
        """Return whether another request may be carried out; also while an alarm is set."""
        limit = self.host.limits.send_ahead_bytes_max
        bounds = self.host.bounds
        return bounds.answers_bytes < limit and bounds.requests < REQUESTS_MAX

    def grant(self) -> bool:
        """Give credit for as many requests as have been answered."""
        due, self._credit_due = self._credit_due, 0
        if due and not self.ended:
            self.link.flow(due)
        return due > 0

    def take(self, delivery: Delivery) -> None:
        """Carry out a request."""
        _, data, _ = read_message(handle_of(self.link), handle_of(delivery))
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        self._take(bytes(data))

    def _answered(self) -> None:
        self._credit_due += 1

    def _take(self, data: bytes) -> None:
        message = RequestMessage()
        try:
            message.decode(data)
            method, path = str(message.subject or ""), str(message.address or "")
        except NOT_DECODED as error:
            self.refuse(SyntaxRefused(f"a request that is no AMQP message: {error}"))
            return
        if self.answers is None or self.answers.ended:
            self.refuse(
                PreconditionFailed(
                    "no receiver from /management with this link's name: attach one for the answers"
                )
            )
            return
        try:
            found = find_route(method, path)
            found.route.check(self.host.must_be, len(data), message.parts)
            request = found.request(plain(message.value(), 0))
        except Refusal as refusal:
            self._answer(message.id, AdminRequest(), refusal, f"{method} {path}")
            return
        except NOT_DECODED as error:
            self.refuse(SyntaxRefused(f"a request that is no AMQP message: {error}"))
            return

        self.host.bounds.requests += 1

        def answered(answer: AnyAnswer) -> None:
            self.host.bounds.requests -= 1
            self._answer(message.id, request, answer, f"{method} {path}")

        self.host.ask(request, answered)

    def _answer(
        self, number: Any, request: AnyAdminRequest, result: AnyAnswer, operation: str
    ) -> None:
        if isinstance(result, AccessRefused):
            self.host.faults.append(LinkFault(self.link.name, result, operation))
        status, body = rendered(request, result)
        if not self._of_warren:
            status, body = as_rabbitmq(request, result, (status, body))
        message = Message(
            correlation_id=number,
            subject=str(status),
            body=body,
            properties={"http:response": "1.1"},
        )
        message.inferred = self._of_warren  # else a list is one value, too, as RabbitMQ sends it
        if self.answers is not None and not self.answers.ended:
            self.answers.send(_encoded(message), self._answered)
        else:
            self._answered()
        self.wake()


def _encoded(message: Message) -> bytes:
    try:
        return bytes(message.encode())
    except OverflowError:  # Proton writes an int as a long; a queue's argument may be more
        message.body = _unsigned(message.body)
        return bytes(message.encode())


def _unsigned(value: Any) -> Any:
    """Convert numbers that are no long to ulong, in maps and lists of any depth."""
    if type(value) is int and value > INT64_MAX:
        return ulong(value)
    if isinstance(value, dict):
        return {key: _unsigned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_unsigned(item) for item in value])
    return value


def plain(value: Any, depth: int) -> Any:
    """Convert a decoded AMQP value to Python's own types; raises ValueError for other types."""
    if depth > NESTING_MAX:
        raise ValueError(f"values nested deeper than {NESTING_MAX}")
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (list, tuple, Array)):
        items = value.elements if isinstance(value, Array) else value
        return [plain(item, depth + 1) for item in items]
    if isinstance(value, dict):
        return {plain(key, depth + 1): plain(item, depth + 1) for key, item in value.items()}
    raise ValueError(f"a value of type {type(value).__name__}")
