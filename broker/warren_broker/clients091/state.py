"""The state of a 0.9.1 connection with that of its channels.

Each of the two refers to the other, so both are in this module, below the handlers of methods,
which change them, and below `connection`, which reads bytes and calls the handlers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from warren_broker.access import requests
from warren_broker.access.access import Access
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.requests import AnyClientRequest, BrokerView, Token
from warren_broker.access.token_rights import HeldRights
from warren_broker.clients091.confirms import CheckedRun, Publishes, PublishLedger
from warren_broker.clients091.delivery_tags import DeliveryLedger, Held
from warren_broker.clients091.heartbeat import Liveness
from warren_broker.clients091.held_back import HeldBackBytes, WaitingRuns
from warren_broker.cluster.ids import Ids
from warren_machines.metadata.records import ConnectionId
from warren_machines.queue.commands import ConsumerId, Delivery, SessionId
from warren_machines.queue.ready.limits import NO_ACK_WINDOW, WINDOW_BYTES
from warren_wire import errors
from warren_wire.amqp091 import codec, methods
from warren_wire.amqp091.methods import Method
from warren_wire.arguments import ConsumeArguments
from warren_wire.errors import Refusal
from warren_wire.kernel import AckRun, FrameScanner, MessageTable, PublishRun, format_confirms

RUN_BYTES: Final = 512
"""Counted for each run that waits, beside its messages: objects that say where they are."""
ROW_BYTES: Final = 24
"""Counted for each message beside its properties and body."""


def own_table(table: MessageTable, first: int, last: int) -> tuple[MessageTable, int, int]:
    """Return messages first <= i < last where they keep at most twice their size in memory.

    A run that waits, for an answer or for the end of a transaction, points into the table of all
    messages that were read at once, up to 1 MiB, and keeps it.

    1. A client publishes a message of one octet in a transaction, and in the same read a megabyte
    on another channel.  2. It does so again and again. What waits is a few octets each time, what
    is kept a megabyte. So a run of less than half of its table gets a table of its own.
    Replayed by tests/broker/clients091/test_bounds.py
    """
    if 2 * run_bytes(table, first, last) >= run_bytes(table, 0, table.count):
        return table, first, last
    own = MessageTable()
    for i in range(first, last):
        own.append(
            table.route(i),
            table.properties_of(i),
            table.body(i),
            table.priority(i),
            table.ttl_ms(i),
            table.flags(i),
        )
    return own, 0, own.count


def run_bytes(table: MessageTable, first: int, last: int) -> int:
    """Return the memory that messages first <= i < last of a table take."""
    return table.size_bytes(first, last) + ROW_BYTES * (last - first) + RUN_BYTES


Then: TypeAlias = Callable[[Any], None]
"""Called with a result; with a Refusal only where no channel asked."""
NO_ARGUMENTS = ConsumeArguments()
_NO_LIMIT = 1 << 31
"""The scanner's frame_max when none was negotiated."""
ITEM_BYTES = 256
"""Counted for each method, run or range that waits, beside what it carries."""
GETTERS_KEPT = 64
"""Queues asked on a channel, before those are forgotten that hold nothing."""
DECODED = 32
"""Octets of memory for each octet of a method's arguments: a table of many small values."""


class TableRun(msgspec.Struct, frozen=True):
    """A run of publishes with the table it points into."""

    table: MessageTable
    run: PublishRun


ChannelItem: TypeAlias = "Method | TableRun | AckRun | Refusal"
"""A Refusal among the items: the scanner found a channel error at this position."""


@dataclass(slots=True)
class ChannelConsumer:
    """A consumer of this channel, as the session sees it.

    next_msg_id       deliveries below it have been received
    prefetch       basic.qos when it was made; 0: none
    explicit       its credit is given by `SetCredit` (channel-wide prefetch)
    granted        with explicit: deliveries below it are allowed
    settled        with explicit: how many of those have been settled
    early             deliveries that arrived before consume-ok was sent
    unreported     with no_ack: deliveries formatted since the last SetCredit
    unreported_bytes  their frames
    asked          its arguments
    exclusive      it is to be the queue's only one
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
    asked: ConsumeArguments = NO_ARGUMENTS
    exclusive: bool = False


@dataclass(slots=True)
class Transaction:
    """The publishes and acknowledgements that wait for tx.commit.

    publishes  not yet numbered
    size_bytes the memory that these take, see `ConnectionState.transaction_bytes`
    acks       (kind of kernel.items, what it settles): at most what the client was delivered
    commit     the commit's token: it is answered when all publishes are; 0: no commit in progress
    """

    publishes: list[CheckedRun] = field(default_factory=list)
    size_bytes: int = 0
    acks: list[tuple[int, Held]] = field(default_factory=list)
    commit: Token = 0


@dataclass(slots=True, eq=False, repr=False)
class Channel:
    """One channel of a connection.

    state     `new`: before channel.open; `open`; `closing`: channel.close was sent, everything but
              the client's close or close-ok is dropped; `ending`: the client closed it
    waiting   token of the answer that everything in `inbox` waits for; 0: none
    inbox     items with the memory that each takes; inbox_bytes is the sum
    at        code of the method being handled, for a close's class and method id
    past      cancelled consumers that may still hold deliveries, by number
    getters   queue to the number that basic.get uses there
    confirmed messages confirmed to the client; returned: messages returned as unroutable
    held_back deliveries beyond the channel-wide prefetch, in order
    shares    it had a channel-wide prefetch once: consumers may have credit that is shared out
    """

    connection: ConnectionState
    number: int
    session: SessionId
    state: Literal["new", "open", "closing", "ending"] = "new"
    waiting: Token = 0
    at: int = 0
    inbox: deque[tuple[ChannelItem, int]] = field(default_factory=deque)
    inbox_bytes: int = 0
    last_queue: str = ""
    prefetch: int = 0
    global_prefetch: int = 0
    consumers: dict[str, ChannelConsumer] = field(default_factory=dict)
    past: dict[ConsumerId, None] = field(default_factory=dict)
    getters: dict[str, ConsumerId] = field(default_factory=dict)
    deliveries: DeliveryLedger = field(default_factory=DeliveryLedger)
    held_back: WaitingRuns[ChannelConsumer] = field(init=False)
    shares: bool = False
    confirm: bool = False
    confirmed: int = 0
    returned: int = 0
    publishes: PublishLedger = field(default_factory=PublishLedger)
    tx: Transaction | None = None
    reply_consumer: str = ""
    reply_name: str = ""

    def __post_init__(self) -> None:
        self.held_back = WaitingRuns(self.connection.held_back)

    def half_close(self, state: Literal["closing", "ending"]) -> None:
        """Note which side has closed it; its number is taken until the other one has answered."""
        connection = self.connection
        if self.state in ("new", "open") and connection.channels.get(self.number) is self:
            connection.half_closed += 1
        self.state = state

    # -------------------------------------------------------------- output

    def send(self, method: Method) -> None:
        """Send a method to the client."""
        self.connection.send(self.number, method)

    def request(self, request: AnyClientRequest) -> None:
        """Make a request to the broker that has no answer."""
        self.connection.requests.append(request)

    def hold(self, then: Then) -> Token:
        """Return a token for the answer that the channel's later items wait for."""
        assert not self.waiting, (self.number, self.waiting)
        self.waiting = self.connection.expect(self, then)
        return self.waiting

    def ask(self, request: type[Any], then: Then, /, **values: Any) -> None:
        """Make a request to the broker; the channel's later items wait for the answer."""
        token = self.hold(then)
        self.connection.requests.append(request(token=token, session=self.session, **values))

    def tell_confirms(self) -> None:
        """Send basic.ack and basic.nack for what has been answered since the last call."""
        confirms = self.publishes.take()
        if confirms is None or self.state != "open":
            return
        acked = self.publishes.take_acked()
        self.confirmed += acked
        self.connection.confirmed += acked
        out = self.connection.out
        if confirms.up_to or confirms.singles:
            format_confirms(out, self.number, confirms.up_to, confirms.singles)
        if confirms.nack_up_to or confirms.nacks:
            format_confirms(out, self.number, confirms.nack_up_to, confirms.nacks, True)

    def waits(self, size_bytes: int) -> None:
        """Count bytes added to the inbox, or (negative) removed."""
        self.inbox_bytes += size_bytes
        self.connection.waiting_bytes += size_bytes

    # -------------------------------------------------------------- transactions

    def publish_later(self, tx: Transaction, run: CheckedRun) -> None:
        """Keep a run for the commit; raises PreconditionFailed when the bound is exceeded."""
        table, first, last = own_table(run.table, run.first, run.last)
        size, connection = run_bytes(table, first, last), self.connection
        limit = connection.config.transaction_bytes_max
        if connection.transaction_bytes + size > limit:
            raise errors.PreconditionFailed(
                f"transactions of this connection hold {connection.transaction_bytes} bytes, and "
                f"{size} more were published; {limit} is the limit "
                "(limits.transaction_bytes_max): commit more often"
            )
        connection.transaction_bytes += size
        tx.size_bytes += size
        tx.publishes.append(CheckedRun(table, first, last, run.mandatory, run.flags))

    def take_publishes(self, tx: Transaction) -> list[CheckedRun]:
        """Return and forget what a transaction has kept."""
        self.connection.transaction_bytes -= tx.size_bytes
        taken, tx.publishes, tx.size_bytes = tx.publishes, [], 0
        return taken

    # -------------------------------------------------------------- its end

    def all_consumers(self) -> tuple[ConsumerId, ...]:
        """Return all consumers that may hold deliveries of this channel."""
        mine = [consumer.number for consumer in self.consumers.values()]
        return tuple(sorted({*mine, *self.past, *self.getters.values()}))

    def end(self, then: Then) -> None:
        """End the session: return its deliveries, cancel its consumers, then call `then`."""
        consumers = self.all_consumers()
        self.drop()
        self.ask(requests.SessionDownRequest, then, consumers=consumers)

    def drop(self) -> None:
        """Drop everything pending; only the channel's number stays in use."""
        self.inbox.clear()
        self.waits(-self.inbox_bytes)
        self.connection.forget(self)
        self.waiting = 0
        self.close_replies()
        self.held_back.clear()
        if self.tx is not None:
            self.take_publishes(self.tx)

    def close_replies(self) -> None:
        """Cancel the direct reply-to consumer, if there is one."""
        if self.reply_name:
            self.request(requests.CloseRepliesRequest(session=self.session, name=self.reply_name))
        self.reply_name = self.reply_consumer = ""

    def forget_past(self, number: ConsumerId) -> None:
        """Forget a consumer if it is cancelled and holds no deliveries."""
        if number in self.past and number not in self.deliveries.holding:
            del self.past[number]
            self._forget(number, getter=False)

    def getter(self, queue: str) -> ConsumerId:
        """Return the number that gets messages of a queue; forget some that hold nothing."""
        number = self.getters.get(queue)
        if number is None:
            if len(self.getters) >= GETTERS_KEPT:
                for name, known in list(self.getters.items()):
                    if known not in self.deliveries.holding:
                        del self.getters[name]
                        self._forget(known, getter=True)
            number = self.getters[queue] = self.connection.ids.consumer()
        return number

    def _forget(self, number: ConsumerId, getter: bool) -> None:
        self.request(
            requests.ForgetConsumerRequest(session=self.session, consumer=number, getter=getter)
        )


def to_wait(item: ChannelItem, argument_bytes: int) -> tuple[ChannelItem, int]:
    """Return an item as it waits, and the memory that it takes.

    argument_bytes  of a method
    """
    if isinstance(item, TableRun):
        run = item.run
        table, first, last = own_table(item.table, run.first, run.last)
        if table is not item.table:
            route = 0 if run.route >= 0 else run.route
            item = TableRun(table, PublishRun(run.channel, first, last, route, run.flags))
        return item, run_bytes(table, first, last)
    if isinstance(item, AckRun):
        return item, ITEM_BYTES * len(item.ranges)
    return item, ITEM_BYTES + DECODED * argument_bytes


@dataclass(slots=True)
class Asked:
    """An unanswered request of a channel, or (channel None) of the connection.

    at  code of the method that made it, for the class and method id of a close
    """

    channel: Channel | None
    then: Then
    at: int


class ChannelFault(NamedTuple):
    """A refusal that closed a channel, or (channel 0) the connection.

    operation  name of the method that caused it
    """

    channel: int
    operation: str
    refusal: Refusal


@dataclass(slots=True, eq=False, repr=False)
class ConnectionState:
    """The state of a connection that its handlers and channels share.

    number              of the connection on its node
    phase               see `connection`
    user, vhost         once authenticated, opened
    rights              of a login with a token; None: those of the user
    client_properties, capabilities   as in start-ok
    client_hangs_up   the client closed and was answered: it closes the socket, too
    channels            open and half-closed channels by number; `sessions` has the same by session
    half_closed         of these
    consumers           of all channels, by number
    out                 bytes to be sent
    requests            to be carried out by the broker
    asked               unanswered requests by token
    publishes           publishes that the broker has not answered
    to_report           no_ack consumers to report to their queues when the output is taken
    to_share            channels of which the consumers' credit is given out when a read has been
                        handled
    faults              refusals that closed a channel or the connection, for the log
    waiting_bytes       in the inboxes of its channels
    transaction_bytes   kept for the commits of its channels
    keyed_bytes         of properties with further keys, since the connection was last read
    confirmed, returned messages, to the client, since `Connection.take_answered`
    traced_vhosts       the view's; looked at for each run of deliveries

    Invariants: every consumer in `consumers` belongs to an open channel; a channel's `waiting` is
    0 or a key of `asked`, which has no other of a channel that is open.
    """

    config: ConnectionConfig
    view: BrokerView
    ids: Ids
    number: ConnectionId
    traced_vhosts: Set[str] = field(init=False)
    phase: str = "header"
    user: str = ""
    rights: HeldRights | None = None
    vhost: str = ""
    client_properties: dict[str, Any] = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    close_reason: str = ""
    client_hangs_up: bool = False
    frame_max: int = 0
    channel_max: int = 65535
    channels: dict[int, Channel] = field(default_factory=dict)
    half_closed: int = 0
    sessions: dict[SessionId, Channel] = field(default_factory=dict)
    consumers: dict[ConsumerId, ChannelConsumer] = field(default_factory=dict)
    out: bytearray = field(default_factory=bytearray)
    pieces: list[bytes | bytearray | memoryview] = field(default_factory=list)  # before `out`
    pieces_bytes: int = 0
    requests: list[AnyClientRequest] = field(default_factory=list)
    asked: dict[Token, Asked] = field(default_factory=dict)
    _last_token: int = 0
    publishes: Publishes[Channel] = field(default_factory=Publishes)
    to_report: dict[ConsumerId, ChannelConsumer] = field(default_factory=dict)
    to_share: dict[SessionId, Channel] = field(default_factory=dict)
    faults: list[ChannelFault] = field(default_factory=list)
    waiting_bytes: int = 0
    transaction_bytes: int = 0
    confirmed: int = 0
    returned: int = 0
    keyed_bytes: int = 0
    held_back: HeldBackBytes = field(default_factory=HeldBackBytes)
    scanner: FrameScanner = field(init=False)
    liveness: Liveness = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        self.traced_vhosts = self.view.traced_vhosts
        self.frame_max = codec.FRAME_BYTES_MIN if config.frame_max else 0
        self.channel_max = config.channel_max or 65535
        self.scanner = FrameScanner(
            min(config.frame_max or config.login_frame_max, config.login_frame_max),
            config.message_bytes_max,
            config.unfinished_bytes_max,
        )
        self.liveness = Liveness(config.handshake_ms, config.closing_ms)

    @property
    def access(self) -> Access:
        """Return the user's access checks; only for an open connection."""
        return Access(self.view, self.vhost, self.user, self.rights)

    def channels_open(self) -> int:
        """Return how many channels are open, or about to be."""
        return len(self.channels) - self.half_closed

    def negotiated(self, frame_max: int, channel_max: int, heartbeat_s: int) -> None:
        """Apply the limits of tune-ok."""
        self.frame_max = frame_max
        self.scanner.frame_max = frame_max or _NO_LIMIT
        self.channel_max = channel_max
        self.liveness.heartbeat_ms = heartbeat_s * 1000

    # -------------------------------------------------------------- client and broker

    def send(self, channel: int, method: Method) -> None:
        """Send a method to the client."""
        self.out += codec.method_frame(channel, method)

    def send_pieces(self, pieces: list[bytes | memoryview]) -> int:
        """Send frames in pieces, of which the views stay as they are; return their bytes."""
        if self.out:
            self.pieces_bytes += len(self.out)
            self.pieces.append(self.out)
            self.out = bytearray()
        self.pieces += pieces
        size_bytes = sum(map(len, pieces))
        self.pieces_bytes += size_bytes
        return size_bytes

    def new_token(self) -> Token:
        """Return a token that this connection has never used."""
        self._last_token += 1
        return self._last_token

    def expect(self, channel: Channel | None, then: Then) -> Token:
        """Return a new token and register `then` for its result.

        The `then` of a channel is not called with a Refusal: that closes the channel.
        """
        token = self.new_token()
        self.asked[token] = Asked(channel, then, channel.at if channel else 0)
        return token

    def delivered_no_ack(self, consumer: ChannelConsumer) -> None:
        """Report the consumer's progress with the next output once half its window is used."""
        if (
            consumer.unreported >= NO_ACK_WINDOW // 2
            or consumer.unreported_bytes >= WINDOW_BYTES // 2
        ):
            self.to_report[consumer.number] = consumer

    # -------------------------------------------------------------- the end of a channel

    def refuse(self, channel: Channel, refusal: Refusal) -> None:
        """Close the channel, or the connection, with the refusal."""
        if refusal.ends == "connection":
            self.close(refusal, at=channel.at)
            return
        if self.phase != "running" or channel.state not in ("new", "open"):
            return
        channel.tell_confirms()
        self.faults.append(ChannelFault(channel.number, codec.method_name(channel.at), refusal))
        self.send(
            channel.number,
            methods.ChannelClose(
                reply_code=refusal.reply_code,
                reply_text=refusal.reply_text,
                class_id=channel.at >> 16,
                method_id=channel.at & 0xFFFF,
            ),
        )
        self.scanner.discard_channel(channel.number)
        channel.half_close("closing")
        channel.end(lambda _: None)
        channel.waiting = 0

    def forget(self, channel: Channel) -> None:
        """Drop the channel's consumers, publishes and unanswered requests."""
        for consumer in channel.consumers.values():
            self.consumers.pop(consumer.number, None)
            self.to_report.pop(consumer.number, None)
        self.publishes.forget(channel)
        self.asked.pop(channel.waiting, None)

    def free(self, channel: Channel) -> None:
        """Make the channel's number available again."""
        if self.channels.get(channel.number) is channel:
            del self.channels[channel.number]
            self.half_closed -= channel.state in ("closing", "ending")
        self.sessions.pop(channel.session, None)

    # -------------------------------------------------------------- the end of the connection

    def close(self, refusal: Refusal, at: int = 0) -> None:
        """Send connection.close and return all deliveries; `closed` once the client has answered.

        at  the code of the method that caused it
        """
        if self.phase in ("closing", "ending", "closed"):
            return
        began = self.phase not in ("header", "starting", "securing")
        self.close_reason = refusal.reply_text
        if not isinstance(refusal, errors.ConnectionForced):
            self.faults.append(ChannelFault(0, codec.method_name(at), refusal))
        self._end_channels()
        told = isinstance(refusal, (errors.LoginRefused, errors.Unavailable))
        if not began and not told:
            self.finish(refusal.reply_text)  # an unauthenticated client gets no answer
            return
        self.send(
            0,
            methods.ConnectionClose(
                reply_code=refusal.reply_code,
                reply_text=refusal.reply_text,
                class_id=at >> 16,
                method_id=at & 0xFFFF,
            ),
        )
        self.phase = "closing"
        self.liveness.begin()
        self._leave(lambda _: None)

    def client_closes(self, reason: str) -> None:
        """Handle connection.close: send close-ok once all deliveries are returned."""
        self.close_reason = reason or "closed by the client"
        self._end_channels()
        self.phase = "ending"
        self.liveness.begin()

        def left(_: Any) -> None:
            self.send(0, methods.ConnectionCloseOk())
            self.client_hangs_up = True
            self.finish(self.close_reason)

        self._leave(left)

    def finish(self, reason: str) -> None:
        """Close without waiting for the client any further."""
        self.close_reason = self.close_reason or reason
        if self.phase not in ("closing", "ending", "closed"):
            self._end_channels()
            self._leave(lambda _: None)
        self.phase = "closed"

    def _end_channels(self) -> None:
        for channel in list(self.channels.values()):
            self.scanner.discard_channel(channel.number)  # an unfinished message takes memory
            if channel.state in ("new", "open"):
                channel.half_close("ending")
                channel.end(lambda _: None)
            self.free(channel)

    def _leave(self, then: Then) -> None:
        token = self.expect(None, then)
        self.requests.append(requests.CloseConnectionRequest(token=token, reason=self.close_reason))
