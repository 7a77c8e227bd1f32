"""The base of every kind of 1.0 link."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.clients10.connection_bounds import ConnectionBounds, FetchedAhead
from warren_broker.clients10.connection_requests import AnyRequest
from warren_wire.admin.requests import Request, Tag
from warren_wire.amqp10.addresses import BLOCKS_CAPABILITY, WARREN_ANSWERS
from warren_wire.amqp10.deliveries import Frames, Handle
from warren_wire.amqp10.fields import read_map, repeat_address
from warren_wire.amqp10.link_flows import LinkFlows
from warren_wire.amqp10.proton import (
    UNDESCRIBED,
    Array,
    Condition,
    Data,
    Delivery,
    Link,
    Terminus,
    symbol,
)
from warren_wire.amqp10.send_ahead import SendAhead
from warren_wire.errors import Answer, InvalidArgument, NotImplementedHere, Refusal

OUTCOMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)
OnAnswer: TypeAlias = Answer[Any]


class LinkFault(NamedTuple):
    """A refusal of a link, a message on it or the connection; link "": the connection."""

    link: str
    refusal: Refusal
    operation: str = ""


class LinkHost(Protocol):
    """A link's interface to its connection.

    faults            refusals, for the log
    in_flight_bytes   of blocks that were passed on and not answered, over all links
    unfinished_bytes  of incomplete blocks, over all links
    fetched           what links that fetch hold, over all of them
    bounds            what consumers hold, over all links
    keyed_bytes       of properties with further keys, since the connection was last read
    short             a resource alarm is set: no block is accepted, no credit given for one
    consumers         the links of consumers, by the consumers' numbers
    reply_links       the links that get replies, by the names to which these are published
    target_links      the links that publish to a queue, by the numbers of their targets
    lends_credit      see `deliveries.give_back_credit`
    flows             writes flows that Proton does not
    ahead             what was written and has not left, over all sessions
    frames            the connection's, made before they are asked for
    """

    limits: ConnectionConfig
    faults: list[LinkFault]
    in_flight_bytes: int
    unfinished_bytes: int
    fetched: FetchedAhead
    bounds: ConnectionBounds
    keyed_bytes: int
    short: bool
    consumers: dict[int, Any]
    reply_links: dict[str, Any]
    target_links: dict[int, Any]
    lends_credit: bool
    flows: LinkFlows
    ahead: SendAhead
    frames: Frames

    def must_be(self, tag: Tag, what: str) -> None:
        """See `Access.must_be`."""

    def tell(self, request: AnyRequest) -> None:
        """Make a request that has no answer."""

    def flush_later(self, part: LinkPart) -> None:
        """Call the link's `flush` at the end of this pass."""

    def ask(self, request: Request, on_answer: OnAnswer) -> None:
        """Make a request; `on_answer` gets the result, unless the connection ends first."""

    def overrun(self, what: str) -> None:
        """End the connection: more bytes have come and wait than it may have."""

    def discard(self, link: Link) -> None:
        """Read what has arrived for a link that has ended at this end."""

    def may_read(self) -> bool:
        """Return whether resource alarms and in_flight_bytes permit a block."""


class LinkPart:
    """One attached link.

    session_ended  the link ends because its session or connection does

    Invariant: nothing is written to `link` once `ended`
    """

    def __init__(self, link: Link, host: LinkHost) -> None:
        self.link = link
        self.host = host
        self.ended = False
        self.session_ended = False

    def arrived(self, delivery: Handle) -> bool:
        """Handle what is usual for a delivery; False: `delivery` is to be called."""
        return False

    def delivery(self, delivery: Delivery) -> None:
        """Handle new bytes or a new state of a delivery."""

    def abort_unsent(self) -> None:
        """Take back what was written and not sent: the client has ended the link or its session."""

    def gone(self) -> None:
        """Handle the end of the link by the client or its session."""

    def flow(self, *, told: bool = False) -> None:
        """Handle a change of the client's credit or window.

        told  the client has sent a flow: a drain is to be answered, even if nothing has changed
        """

    def flush(self) -> None:
        """Pass on what was gathered in this pass."""

    def wake(self) -> bool:
        """Continue what waited for room; return whether anything was written or read."""
        return False

    def refuse(self, refusal: Refusal) -> None:
        """End the link with an error."""
        if not self.ended:
            self.ended = True
            self.host.faults.append(LinkFault(self.link.name, refusal))
            self.link.condition = condition_of(refusal)
            self.link.close()

    def refuse_opening(self, refusal: Refusal) -> None:
        """Answer the attach with an error, after what it asks for was looked up."""
        if not self.ended:
            self.ended = True
            self.host.faults.append(LinkFault(self.link.name, refusal))
            refuse_attach(self.link, refusal)

    def finish(self) -> None:
        """End the link without an error."""
        if not self.ended:
            self.ended = True
            self.link.close()


def check_received(host: LinkHost) -> None:
    """End the connection when more waits to be read than it may have.

    1. Queues do not answer, or a resource alarm is set: whole messages wait in the engine.  2. A
    client has 64 sessions, each with a window of some ten megabytes, and fills them.
    """
    received, limit = host.ahead.bytes_received, host.limits.received_bytes_max
    if received > limit:
        host.overrun(
            f"{received} bytes of messages wait to be read; a connection may have {limit} "
            "(limits.received_bytes_max): publish with fewer sessions, or less at a time"
        )


def accept_attach(link: Link, max_message_size: int = 0, paired: bool = False) -> None:
    """Answer an attach with what the client proposed.

    paired  announce the link as paired, which RabbitMQ's clients require
    """
    link.source.copy(link.remote_source)
    link.source.filter.clear()  # a filter in the answer is one that is applied
    link.target.copy(link.remote_target)
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode
    if max_message_size:
        link.max_message_size = max_message_size
    if paired:
        link.properties = {symbol("paired"): True}
    link.open()


def tell_outcomes(link: Link) -> None:
    """Say in the answer to a consumer's attach how its source hands out messages."""
    link.source.distribution_mode = Terminus.DIST_MODE_MOVE
    link.source.outcomes.clear()
    link.source.outcomes.put_object(Array(UNDESCRIBED, Data.SYMBOL, *map(symbol, OUTCOMES)))


def announces_blocks(link: Link) -> bool:
    """Return whether the client's attach says, by a capability, that the link carries blocks."""
    return BLOCKS_CAPABILITY in symbols(link.remote_target.capabilities)


def takes_answers_of_warren(link: Link) -> bool:
    """Return whether the client of a link to `/management` reads answers in Warren's form."""
    told = read_map("link properties", lambda: link.remote_properties)
    return any(str(key) == WARREN_ANSWERS for key in told)


def symbols(data: Data) -> list[str]:
    """Return the symbols of a field that is one symbol or an array of them; others are ignored."""
    data.rewind()
    kind = data.next()
    if kind == Data.ARRAY:
        data.enter()
        kind = data.next()
    found: list[str] = []
    while kind == Data.SYMBOL:
        found.append(str(data.get_symbol()))
        kind = data.next()
    return found


def target_address(link: Link) -> str | None:
    """Return the address of the client's target; None: the null target; raises Refusal."""
    kind = link.remote_target.type
    if kind == Terminus.COORDINATOR:
        raise NotImplementedHere("Attach refused: transactions are not implemented")
    if kind == Terminus.UNSPECIFIED:
        raise InvalidArgument("Attach refused: target_required: the attach has no target")
    address: str | None = link.remote_target.address
    return address


def source_address(link: Link) -> str | None:
    """Return the address of the client's source, which may be None; raises Refusal."""
    if link.remote_source.type == Terminus.UNSPECIFIED:
        raise InvalidArgument("Attach refused: source_required: the attach has no source")
    address: str | None = link.remote_source.address
    return address


def refuse_attach(link: Link, refusal: Refusal) -> None:
    """Answer an attach without the terminus of this end, then the error (specification 2.6.3)."""
    if link.is_receiver:
        link.target.type = Terminus.UNSPECIFIED
        repeat_address(link.source, link.remote_source)
    else:
        link.source.type = Terminus.UNSPECIFIED
        repeat_address(link.target, link.remote_target)
    link.open()
    link.condition = condition_of(refusal)
    link.close()


def condition_of(refusal: Refusal) -> Condition:
    """Return an AMQP error; its info has the status that `/management` would answer."""
    shown = refusal.detail.encode("utf-8", "backslashreplace").decode()  # it may quote the client
    return Condition(refusal.condition, shown, {"status": refusal.http_status})


def drop(delivery: Delivery) -> None:
    """Forget an incoming delivery, complete or not; the engine advances the link."""
    delivery.settle()
