"""What one 0.9.1 channel holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from warren_broker.amqp091 import requests
from warren_broker.amqp091.confirms import PublishLedger
from warren_broker.amqp091.delivery_tags import DeliveryLedger, Held
from warren_broker.amqp091.wire.methods import Method
from warren_broker.errors import Refusal
from warren_broker.kernel import AckRun, MessageTable, PublishRun
from warren_broker.queue.commands import ConsumerId, Delivery, SessionId

if TYPE_CHECKING:
    from warren_broker.amqp091.connection import Connection

Then: TypeAlias = Callable[[Any], None]
"""What to do with a result that is no Refusal."""


@dataclass(frozen=True, slots=True)
class TableRun:
    """A run of publishes with the table it points into."""

    table: MessageTable
    run: PublishRun


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """Messages first <= i < last of a table that may be published; flags as in kernel.items."""

    table: MessageTable
    first: int
    last: int
    mandatory: bool
    flags: int


ChannelItem: TypeAlias = "Method | TableRun | AckRun | Refusal"
"""A Refusal among the items: the scanner found a channel error at that place."""


@dataclass(slots=True)
class Consumer:
    """A consumer of this channel, as the session sees it.

    next_msg_id    deliveries below have been seen
    prefetch       basic.qos when it was made; 0: none
    explicit       its credit is given by `SetCredit` (channel-wide prefetch)
    granted        with explicit: deliveries below may come
    settled        with explicit: how many of those have been settled
    early          deliveries that came before consume-ok was sent
    unreported     with no_ack: deliveries formatted since the last SetCredit
    unreported_bytes  their frames
    """

    number: ConsumerId
    tag: str
    queue: str
    channel: Channel
    no_ack: bool
    prefetch: int = 0
    explicit: bool = False
    started: bool = False
    next_msg_id: int = 0
    granted: int = 0
    settled: int = 0
    early: list[tuple[Delivery, Any]] = field(default_factory=list)
    unreported: int = 0
    unreported_bytes: int = 0


@dataclass(slots=True)
class Transaction:
    """What waits for tx.commit.

    publishes  not yet numbered
    acks       (kind of kernel.items, what it settles)
    commit     the commit's token: it is answered when all publishes are; 0: none under way
    """

    publishes: list[CheckedRun] = field(default_factory=list)
    acks: list[tuple[int, Held]] = field(default_factory=list)
    commit: requests.Token = 0


class Channel:
    """One channel of a connection.

    state     `new`: channel.open has not come; `open`; `closing`: we sent channel.close and drop
              everything but the client's close or close-ok; `ending`: the client closed it
    waiting   the token whose answer everything in `inbox` waits for; 0: none
    at        code of the method being dealt with, for a close's class and method id
    past      consumers that are gone but may still hold messages: number to queue
    getters   queue to the number that basic.get uses there
    held_back deliveries beyond the channel-wide prefetch, in order
    """

    __slots__ = (
        "at",
        "confirm",
        "connection",
        "consumers",
        "deliveries",
        "getters",
        "global_prefetch",
        "held_back",
        "inbox",
        "inbox_bytes",
        "last_queue",
        "number",
        "past",
        "prefetch",
        "publishes",
        "reply_consumer",
        "reply_name",
        "session",
        "state",
        "tx",
        "waiting",
    )

    def __init__(self, connection: Connection, number: int, session: SessionId) -> None:
        self.connection = connection
        self.number = number
        self.session = session
        self.state: Literal["new", "open", "closing", "ending"] = "new"
        self.waiting: requests.Token = 0
        self.at = 0
        self.inbox: deque[ChannelItem] = deque()
        self.inbox_bytes = 0
        self.last_queue = ""
        self.prefetch = 0
        self.global_prefetch = 0
        self.consumers: dict[str, Consumer] = {}
        self.past: dict[ConsumerId, str] = {}
        self.getters: dict[str, ConsumerId] = {}
        self.deliveries = DeliveryLedger()
        self.held_back: deque[tuple[Consumer, Delivery, Any]] = deque()
        self.confirm = False
        self.publishes = PublishLedger()
        self.tx: Transaction | None = None
        self.reply_consumer = ""
        self.reply_name = ""

    # -------------------------------------------------------------- what it tells

    def send(self, method: Method) -> None:
        """To the client."""
        self.connection.send(self.number, method)

    def request(self, request: requests.Request) -> None:
        """To the broker, without an answer."""
        self.connection.requests.append(request)

    def hold(self, then: Then) -> requests.Token:
        """What follows on this channel waits for the answer to that token."""
        assert not self.waiting, (self.number, self.waiting)
        self.waiting = self.connection.new_token(self, then)
        return self.waiting

    def ask(self, request: type[Any], then: Then, /, **values: Any) -> None:
        """To the broker; what follows on this channel waits for the answer."""
        token = self.hold(then)
        self.connection.requests.append(request(token=token, session=self.session, **values))

    def waits(self, size_bytes: int) -> None:
        """The inbox grew (or, negative, shrank) by so much."""
        self.inbox_bytes += size_bytes
        self.connection.waiting_bytes += size_bytes

    # -------------------------------------------------------------- its end

    def all_consumers(self) -> tuple[tuple[ConsumerId, str], ...]:
        """All numbers under which this channel may hold something, with their queues."""
        mine = {consumer.number: consumer.queue for consumer in self.consumers.values()}
        mine.update(self.past)
        mine.update((number, queue) for queue, number in self.getters.items())
        return tuple(sorted(mine.items()))

    def end(self, then: Then) -> None:
        """Give back what it holds; its consumers go; `then` when that is done."""
        consumers = self.all_consumers()
        self.drop()
        self.ask(requests.SessionDown, then, consumers=consumers)

    def drop(self) -> None:
        """Forget everything that could still be told or done; only the number lives on."""
        self.waiting = 0
        self.inbox.clear()
        self.waits(-self.inbox_bytes)
        self.connection.forget(self)
        self.close_replies()
        self.held_back.clear()

    def close_replies(self) -> None:
        """Its direct reply-to consumer goes, if there is one."""
        if self.reply_name:
            self.request(requests.CloseReplies(session=self.session, name=self.reply_name))
        self.reply_name = self.reply_consumer = ""

    def forget_past(self) -> None:
        """Drop gone consumers that hold nothing any more."""
        holding = {run.consumer for run in self.deliveries.runs}
        if self.tx is not None:
            holding.update(run.consumer for _, held in self.tx.acks for run in held)
        self.past = {number: queue for number, queue in self.past.items() if number in holding}


def size_bytes(item: ChannelItem) -> int:
    """What it costs to keep it waiting."""
    if isinstance(item, TableRun):
        return item.table.size_bytes(item.run.first, item.run.last)
    return 64
