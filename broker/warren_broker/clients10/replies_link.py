"""A link on which a client gets replies, without a queue: direct reply-to over AMQP 1.0."""

from __future__ import annotations

from warren_broker.clients10.dynamic_nodes import VOLATILE_QUEUE, describe
from warren_broker.clients10.link import LinkHost, LinkPart, accept_attach
from warren_broker.clients10.link_requests import CloseReplies, OpenReplies, RepliesOpened
from warren_wire.amqp10.deliveries import give_back_credit
from warren_wire.amqp10.message.sent import encode_message
from warren_wire.amqp10.proton import Link
from warren_wire.block.layout import FORM_AMQP091
from warren_wire.errors import continued
from warren_wire.kernel import MessageTable


class RepliesLink(LinkPart):
    """The consumer of a volatile queue; its address is drawn, and ends with the link.

    A reply is sent settled, or dropped: when the client has given no credit, or reads too slowly,
    or takes no message of that size.
    """

    def __init__(self, link: Link, host: LinkHost) -> None:
        super().__init__(link, host)
        self._name = ""
        self._sent = 0
        host.ask(OpenReplies(), continued(self.refuse_opening, self._answered))

    def _answered(self, answer: RepliesOpened) -> None:
        self._name = answer.name
        if self.ended:
            self.gone()
            return
        self.host.reply_links[answer.name] = self
        accept_attach(self.link)
        describe(self.link.source, answer.name, VOLATILE_QUEUE)
        self.flow(told=True)

    def reply(self, table: MessageTable, at: int) -> None:
        """Send a message, or drop it."""
        link = self.link
        if self.ended or link.credit <= 0 or not self.host.ahead.has_room(link.session._impl):
            return
        route = table.route(at)
        pieces = encode_message(
            FORM_AMQP091,
            table.properties_of(at),
            table.body(at),
            exchange=route.exchange,
            routing_key=route.routing_key,
        )
        size_max = link.remote_max_message_size
        if size_max and sum(map(len, pieces)) > size_max:
            return
        self._sent += 1
        delivery = link.delivery(str(self._sent))
        for piece in pieces:
            link.stream(piece)
        link.advance()
        delivery.settle()

    def flow(self, *, told: bool = False) -> None:
        """Give the credit back that a drain asks for: nothing waits here."""
        if self._name and not self.ended and told:
            give_back_credit(self.link, self.host.lends_credit)

    def gone(self) -> None:
        """Forget the name: the link has ended."""
        name, self._name = self._name, ""
        if name:
            self.host.reply_links.pop(name, None)
            self.host.tell(CloseReplies(name))
