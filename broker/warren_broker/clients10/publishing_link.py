"""A link on which a client publishes messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from warren_broker.clients10.connection_requests import AnyAnswer
from warren_broker.clients10.dynamic_nodes import TEMPORARY_QUEUE, TemporaryQueue, describe
from warren_broker.clients10.incoming_link import IncomingLink
from warren_broker.clients10.link import LinkFault, LinkHost, accept_attach, condition_of
from warren_broker.clients10.link_requests import (
    CloseTarget,
    OpenTarget,
    PublishMessages,
    PublishOutcomes,
    RejectedBy,
    TargetOpened,
)
from warren_wire.amqp10 import deliveries
from warren_wire.amqp10.addresses import (
    AnonymousTarget,
    ExchangeTarget,
    MessageTarget,
    QueueTarget,
    parse_to,
)
from warren_wire.amqp10.deliveries import (
    ACCEPTED,
    RELEASED,
    Address,
    Handle,
    address_of,
    delivery_at,
    handle_of,
)
from warren_wire.amqp10.fields import read_map
from warren_wire.amqp10.message.received import MessageReader, ReceivedMessage
from warren_wire.amqp10.proton import Condition, Delivery, Link, symbol
from warren_wire.block.layout import PRIORITY_DEFAULT, TTL_NONE
from warren_wire.errors import ContentTooLarge, CreditExceeded, NotFound, Refusal, SyntaxRefused
from warren_wire.kernel import CC, Gathered, MessageTable, Route, split_sections
from warren_wire.kernel.section_types import MalformedSections
from warren_wire.relay_names import ARGUMENT, RelayedName, name_in_relayed_tag

MESSAGES_CREDIT: Final = 2_000
"""Messages that the client may send, and those that wait for their queues, together."""
RENEWED_AFTER: Final = 50
"""Messages after which a flow renews the session's window, too, of which 64 or 400 frames are left.

Proton does so only when nothing is left: the client then waits for as long as the flow takes.
"""


class PublishingLink(IncomingLink):
    """A publisher's link; the messages of one pass are published together.

    A refused message ends the link, as in RabbitMQ; where each message says its own address, it is
    rejected instead.

    target        None: a temporary queue is made
    temporary_of  the client's container, of which a temporary queue has its name
    """

    def __init__(
        self, link: Link, host: LinkHost, target: MessageTarget | None, temporary_of: str = ""
    ) -> None:
        super().__init__(link, host, host.limits.message_bytes_max)
        self._target: MessageTarget = target or AnonymousTarget()
        self._temporary: TemporaryQueue | None = None
        self._anonymous = isinstance(target, AnonymousTarget)
        self._settled = link.remote_snd_settle_mode == Link.SND_SETTLED
        self._is_relays = is_relays(link)
        self._names: dict[int, RelayedName] = {}
        self._opened = False
        self._number = 0
        self._unanswered = self._since_flow = 0
        self._handle = handle_of(link)
        self._reader = MessageReader()
        # what the gathered bodies have in common: the message but for its properties, which come
        # after it
        self._run: tuple[Route, ReceivedMessage] | None = None
        self._properties = b""
        self._table = MessageTable()
        self._flags = 0
        self._gathered = Gathered()
        if target is None:
            self._temporary = TemporaryQueue(self, temporary_of, self._declared)
        else:
            self._open()

    def _declared(self, queue: str) -> None:
        self._target = QueueTarget(queue)
        self._open()

    def _open(self) -> None:
        target = self._target
        queue = target.queue if isinstance(target, QueueTarget) else ""
        exchange = target.exchange if isinstance(target, ExchangeTarget) else ""
        self.host.ask(OpenTarget(queue, exchange, self._anonymous), self._answered)

    def _answered(self, answer: AnyAnswer) -> None:
        if self.ended:
            if isinstance(answer, TargetOpened) and answer.number:
                self.host.tell(CloseTarget(answer.number))
            return
        if isinstance(answer, Refusal):
            self.refuse_opening(answer)
            self._delete_temporary()
            return
        assert isinstance(answer, TargetOpened), answer
        if answer.number:
            self._number = answer.number
            self.host.target_links[answer.number] = self
        accept_attach(self.link, self.bytes_max)
        if self._temporary is not None:
            describe(self.link.target, self._temporary.name, TEMPORARY_QUEUE)
        self.link.rcv_settle_mode = Link.RCV_FIRST
        self._opened = True
        self.wake()

    def grant(self) -> bool:
        """Give credit when half of it is used, or the window is, unless a resource alarm is set.

        The link of a client that has used more than it was given ends; what was read is published.
        """
        if not self._opened or self.ended:
            return False
        credit = self.link.credit
        if credit < 0:
            self.refuse(
                CreditExceeded(f"{-credit} messages more than the link had credit for: wait for it")
            )
        if self.host.short or self.ended:
            return False
        wanted = MESSAGES_CREDIT - self._unanswered - len(self._gathered) - credit
        renewed = wanted > 0 and self._since_flow >= RENEWED_AFTER
        if wanted < MESSAGES_CREDIT // 2 and not renewed:
            return False
        self._since_flow = 0
        self.link.flow(wanted)
        return True

    def gone(self) -> None:
        """Delete the link's own queue, if there is one: the link has ended."""
        super().gone()
        self._close_target()

    def refuse(self, refusal: Refusal) -> None:
        """End the link with an error."""
        super().refuse(refusal)
        self._close_target()

    def _close_target(self) -> None:
        number, self._number = self._number, 0
        if number:
            self.host.target_links.pop(number, None)
            self.host.tell(CloseTarget(number))
        self._delete_temporary()

    def _delete_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.delete()

    # ------------------------------------------------------------ messages

    def arrived(self, delivery: Handle) -> bool:
        """Read all messages that are whole; False: this one is not, or nothing may be read now."""
        if self.ended or self._waiting or self._unfinished:
            return False
        self._read_all()
        return not deliveries.is_current(self._handle, delivery)

    def _read_all(self) -> None:
        host = self.host
        while host.may_read() and not self.ended:
            gathered = self._gathered
            before, room = gathered.size, host.limits.in_flight_bytes_max - host.in_flight_bytes
            head = b"" if self._is_relays else self._reader.head  # their tags are read one by one
            other = deliveries.CALLS.read(
                address_of(self._handle), head, self.bytes_max, room, gathered
            )
            self._count_gathered(before)
            if other is None:
                return
            self._read(*other)

    def _count_gathered(self, before: int) -> None:
        """Count what was gathered since `before`, the size of all; it is published in this pass."""
        more = self._gathered.size - before
        if more:
            self.host.in_flight_bytes += more
            self.host.flush_later(self)

    def take(self, delivery: Delivery) -> None:
        """Read a message; it is published with the others of this pass."""
        handle, data, settled = deliveries.read_message(self._handle, handle_of(delivery))
        self._read(address_of(handle), data, settled)

    def _read(self, delivery: Address, data: bytes | bytearray, settled: bool) -> None:
        body = self._reader.body_like_last(data)
        if body is None:
            self._end_run()
            try:
                body = self._read_other(data)
            except MalformedSections as error:
                self.refuse(SyntaxRefused(f"failed to parse message: {error}"))
                return
            except Refusal as refusal:
                self._refused(0 if settled else delivery, refusal)
                return
        gathered = self._gathered
        before = gathered.size
        gathered.bodies.append(body)
        if self._is_relays:
            name = name_in_relayed_tag(deliveries.tag_of(delivery_at(delivery)))
            if name is not None:
                self._names[len(gathered)] = name
        if settled:
            deliveries.settle(delivery_at(delivery))
        gathered.add(0 if settled else delivery, len(data))
        self._count_gathered(before)

    def _read_other(self, data: bytes | bytearray) -> bytes | bytearray:
        """Read a message that is not like the last one; return its body."""
        found = self._reader.like_last_but_id(data)
        if found is not None and self._run is not None:
            properties, body = found
            if len(properties) <= self.host.limits.properties_bytes_max:
                self._properties = properties
                return body
        message = self._reader.read(data)
        self._check_properties(message)
        whole = bytes(message.body)
        # without the body: the link keeps this for as long as messages are like it
        self._run = (self._route(message), message._replace(body=b""))
        self._properties = message.properties
        self._reader.remember()
        return whole

    def _end_run(self) -> None:
        """Append the messages so far that differ in their bodies alone to the table."""
        if self._gathered.bodies:
            assert self._run is not None
            route, message = self._run
            count = self._gathered.append_to(
                self._table,
                route,
                self._properties,
                PRIORITY_DEFAULT if message.priority is None else message.priority,
                TTL_NONE if message.ttl_ms is None else message.ttl_ms,
                message.flags,
            )
            self._flags |= message.flags
            if message.flags & CC:
                self.host.keyed_bytes += len(self._properties) * count

    def _check_properties(self, message: ReceivedMessage) -> None:
        """Refuse what no consumer over AMQP 0.9.1 could be sent: properties are one frame there."""
        limit = self.host.limits.properties_bytes_max
        if len(message.properties) <= limit:
            return
        size = len(split_sections(message.properties)[0])  # what is kept for 1.0 stays here
        if size > limit:
            raise ContentTooLarge(
                f"properties and annotations of {size} bytes; {limit} is the limit: put more of it "
                "into the body"
            )

    def _route(self, message: ReceivedMessage) -> Route:
        target = self._target
        if isinstance(target, AnonymousTarget):
            target = parse_to(message.to)
        if isinstance(target, ExchangeTarget):
            return Route(encoded(target.exchange), encoded(target.key), False)
        return Route(b"", encoded(target.queue), False)

    def flush(self) -> None:
        """Publish what was gathered in this pass."""
        gathered = self._gathered
        if not len(gathered):
            return
        self._end_run()
        if not self._reader.remembers:
            self._run, self._properties = None, b""
        self._gathered = Gathered()
        table, self._table = self._table, MessageTable()
        flags, self._flags = self._flags, 0
        names, self._names = self._names, {}
        self._unanswered += len(gathered)
        self._since_flow += len(gathered)

        def outcomes(answer: AnyAnswer) -> None:
            if isinstance(answer, Refusal):
                answer = PublishOutcomes(refused=[(at, answer) for at in range(len(gathered))])
            assert isinstance(answer, PublishOutcomes), answer
            self._tell(gathered, answer)
            if answer.last:  # what comes after the message that ended the link has no outcome
                self._done(*gathered.settle(range(len(gathered)), RELEASED, False))
            self.wake()

        request = PublishMessages(table, flags, gathered.settled, self._anonymous, names)
        self.host.ask(request, outcomes)
        self.grant()

    # ------------------------------------------------------------ outcomes

    def _tell(self, gathered: Gathered, said: PublishOutcomes) -> None:
        """Tell the client outcomes, one of each message.

        What is said of a message later is passed over: its delivery may be another one by now.
        """
        self._settle(gathered, said.accepted, ACCEPTED)
        self._settle(gathered, said.released, RELEASED)
        for at, rejected in said.rejected:
            size = gathered.done(at)
            if not size:
                continue
            self._done(1, size)
            if gathered.delivery(at) and not self.ended:
                self._reject(gathered.delivery(at), rejection(rejected))
        for at, refusal in said.refused:
            if gathered.is_done(at):
                continue
            if isinstance(refusal, NotFound) and not self._anonymous:
                # As in RabbitMQ. Without an outcome a client cannot tell whether what it sent
                # between the exchange's deletion and the detach was published.
                self._settle(gathered, range(at, len(gathered)), RELEASED)
                self._refused(0, refusal)
                continue
            self._done(1, gathered.done(at))
            self._refused(gathered.delivery(at), refusal)

    def _settle(self, gathered: Gathered, positions: Sequence[int], outcome: int) -> None:
        self._done(*gathered.settle(positions, outcome, not self.ended))

    def _reject(self, address: Address, condition: Condition) -> None:
        delivery = deliveries.wrapped(delivery_at(address))
        delivery.local.condition = condition
        delivery.update(Delivery.REJECTED)
        delivery.settle()

    def _done(self, count: int, size: int) -> None:
        self._unanswered -= count
        self.host.in_flight_bytes -= size

    def _refused(self, delivery: Address, refusal: Refusal) -> None:
        """Reject a message; end the link where the client could not know which one it was."""
        if self.ended:
            return
        if not self._anonymous or not delivery:
            self.flush()
            self.refuse(refusal)
            return
        self.host.faults.append(LinkFault(self.link.name, refusal))
        self._reject(delivery, condition_of(refusal))


def is_relays(link: Link) -> bool:
    """Return whether an attach says that the link is of a relay (`relay_names`)."""
    said = read_map("link properties", lambda: link.remote_properties)
    return bool(said.get(symbol(ARGUMENT)))


def rejection(by: RejectedBy) -> Condition:
    """Return the error of a rejected message, in RabbitMQ's words."""
    if by.unavailable:
        name, text, reason = "precondition-failed", "is unavailable", "unavailable"
    else:
        name, text, reason = "resource-limit-exceeded", "exceeded maximum length", "maxlen"
    info = {symbol("queue"): by.queue, symbol("reason"): symbol(reason)}
    return Condition(f"amqp:{name}", f"queue '{by.queue}' {text}", info)


def encoded(name: str) -> bytes:
    """Return a name or routing key as routes have it; an address bounds its length."""
    return name.encode("utf-8", "surrogateescape")
