"""What every kind of 1.0 link has: a host to ask, a way to be refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from proton import Condition, Delivery, Link, Terminus, symbol

from warren_broker.amqp10.requests import AnyAnswer, AnyRequest
from warren_broker.errors import Refusal

OnAnswer: TypeAlias = Callable[[AnyAnswer], None]


@dataclass(frozen=True, slots=True)
class Limits10:
    """Bounds of one connection, in bytes.

    block_bytes_max      one block on a link; advertised as its max-message-size
    request_bytes_max    one management request
    unfinished_bytes_max blocks of which only a part has come, over all links: more ends it
    in_flight_bytes_max  blocks handed on and not answered; above it nothing more is read
    send_ahead_bytes_max what is fetched or written ahead of the client's reading
    """

    block_bytes_max: int = 32 << 20
    request_bytes_max: int = 4 << 20
    unfinished_bytes_max: int = 128 << 20
    in_flight_bytes_max: int = 32 << 20
    send_ahead_bytes_max: int = 8 << 20


class LinkFault(NamedTuple):
    """Why a link, a message on it or the connection was refused; link "": the connection."""

    link: str
    refusal: Refusal


class LinkHost(Protocol):
    """What a link may use of its connection.

    faults           what the client was refused, for the log
    in_flight_bytes  of blocks that were handed on and not answered, over all links
    unfinished_bytes of blocks that have come in part, over all links
    short            memory or disk runs short: no block is taken, no credit given for one
    """

    limits: Limits10
    faults: list[LinkFault]
    in_flight_bytes: int
    unfinished_bytes: int
    short: bool

    def ask(self, request: AnyRequest, on_answer: OnAnswer) -> None:
        """Hand a request on; `on_answer` hears the result, once, unless the connection ends
        first."""
        ...

    def overrun(self) -> None:
        """End the connection: too much has been begun and not finished."""
        ...

    def may_read(self) -> bool:
        """Whether resources, and in_flight_bytes, leave room for a block."""
        ...


class LinkPart:
    """One attached link.

    Invariant: nothing is written to `link` once `ended`
    """

    def __init__(self, link: Link, host: LinkHost) -> None:
        self.link = link
        self.host = host
        self.ended = False

    def delivery(self, delivery: Delivery) -> None:
        """Something came of a delivery."""

    def gone(self) -> None:
        """The client, or its session, has ended the link."""

    def flow(self) -> None:
        """The client's credit or window changed."""

    def wake(self) -> bool:
        """Go on with what waited for room; returns whether something was written or read."""
        return False

    def refuse(self, refusal: Refusal) -> None:
        """End the link with an error."""
        if not self.ended:
            self.ended = True
            self.host.faults.append(LinkFault(self.link.name, refusal))
            self.link.condition = condition_of(refusal)
            self.link.close()

    def finish(self) -> None:
        """End the link; all is done."""
        if not self.ended:
            self.ended = True
            self.link.close()


def accept_attach(link: Link, max_message_size: int = 0, paired: bool = False) -> None:
    """Answer an attach with what the client proposed; paired: say so, as RabbitMQ's clients
    want."""
    link.source.copy(link.remote_source)
    link.target.copy(link.remote_target)
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode
    if max_message_size:
        link.max_message_size = max_message_size
    if paired:
        link.properties = {symbol("paired"): True}
    link.open()


def refuse_attach(link: Link, refusal: Refusal) -> None:
    """Answer an attach with no terminus, then the error (specification 2.6.3)."""
    if link.is_receiver:
        link.target.type = Terminus.UNSPECIFIED
    else:
        link.source.type = Terminus.UNSPECIFIED
    link.open()
    link.condition = condition_of(refusal)
    link.close()


def condition_of(refusal: Refusal) -> Condition:
    """An AMQP error; the info carries the status that `/management` would give."""
    return Condition(refusal.condition, refusal.detail, {"status": refusal.http_status})


def drop(delivery: Delivery) -> None:
    """Forget an incoming delivery, whatever of it has come; the engine advances the link by
    itself."""
    delivery.settle()
