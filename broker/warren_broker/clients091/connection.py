"""One client's AMQP 0.9.1 connection as a state machine.

Bytes and the broker's answers go in, bytes and requests come out (`requests.py`); nothing waits.
Phases: `header` (the protocol header), `starting`, `securing`, `tuning`, `opening`, `asking` (the
handshake), `running`, `closing` (connection.close was sent), `ending` (it was received), `closed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warren_broker.access import requests
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.clients.part_answers import ConfirmedPart
from warren_broker.clients091 import (
    consume,
    global_prefetch,
    item_order,
    negotiation,
    publish,
)
from warren_broker.clients091.state import Channel, ChannelFault, ConnectionState, TableRun
from warren_broker.cluster.ids import Ids
from warren_machines.metadata.records import ConnectionId
from warren_machines.queue import commands
from warren_machines.queue.commands import ConsumerId, Delivery, SessionId
from warren_wire import errors
from warren_wire.amqp091 import codec, methods
from warren_wire.amqp091.methods import Method
from warren_wire.errors import Refusal
from warren_wire.kernel import (
    ACK,
    AckRun,
    ContentRefused,
    Heartbeat,
    Item,
    Malformed,
    MessageTable,
    MethodItem,
    PublishRun,
)

_CLOSE_OK = codec.method_frame(0, methods.ConnectionCloseOk())


class Connection:
    """A client's connection.

    state          shared with the handlers of methods and the channels
    has_published  connection.blocked is sent only to connections that have published
    only_acks      what came last were acknowledgements, which nothing waits for here
    """

    def __init__(
        self, config: ConnectionConfig, view: requests.BrokerView, ids: Ids, number: ConnectionId
    ) -> None:
        self.state = ConnectionState(config, view, ids, number)
        self.has_published = self.only_acks = False
        self._blocked_reason = ""
        self._told_blocked = False
        self._head = bytearray()
        self._out_of_step = False

    # -------------------------------------------------------------- bytes in

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Read bytes from the socket."""
        state = self.state
        state.liveness.heard()
        if state.phase == "closed":
            return
        if state.phase == "header":
            self._head += data
            if len(self._head) < len(codec.PROTOCOL_HEADER):
                if not codec.PROTOCOL_HEADER.startswith(bytes(self._head[:4])):
                    self._wrong_header()
                return
            head, data = bytes(self._head[:8]), bytes(self._head[8:])
            self._head.clear()
            if head != codec.PROTOCOL_HEADER:
                self._wrong_header()
                return
            state.phase = "starting"
            state.send(0, negotiation.start(state.config))
        if self._out_of_step:
            self._look_for_close_ok(data)
            return
        items = state.scanner.feed(data)
        self.only_acks = False
        if items:
            table = state.scanner.take_table()
            self.only_acks = isinstance(items[0], AckRun) and self._only_acknowledge(items)
            for item in items:
                self._take(item, table)
        if state.publishes.to_commit or state.to_share:
            self._end_pass()

    def _only_acknowledge(self, items: Sequence[Item]) -> bool:
        """Return whether they do: no transaction, and no consumer of the channel waits for that."""
        for item in items:
            if not isinstance(item, AckRun) or any(each[0] != ACK for each in item.ranges):
                return False
            channel = self.state.channels.get(item.channel)
            if channel is None or channel.shares or channel.tx is not None:
                return False
        return True

    def _wrong_header(self) -> None:
        """Answer with the supported version and close, as the specification requires."""
        self.state.out += codec.PROTOCOL_HEADER
        self.state.finish("no AMQP 0.9.1 header")

    def _take(self, item: Item, table: MessageTable) -> None:
        if isinstance(item, Heartbeat) or self.state.phase == "closed":
            return
        if isinstance(item, Malformed):
            self._malformed(item)
        elif isinstance(item, MethodItem):
            self._method(item)
        elif self.state.phase == "running":
            self._content(item, table)
        elif self.state.phase not in ("closing", "ending"):
            self.state.close(
                errors.UnexpectedFrame(f"content on channel {item.channel} before connection.open")
            )

    def _content(self, item: PublishRun | AckRun | ContentRefused, table: MessageTable) -> None:
        channel = self._channel(item.channel)
        if channel is None:
            return
        if isinstance(item, PublishRun):
            if not self.has_published:
                self.has_published = True
                self._tell_blocked()
            item_order.take(channel, TableRun(table, item))
        elif isinstance(item, ContentRefused):
            item_order.take(channel, _refusal(item.code, item.text))
        else:
            item_order.take(channel, item)

    def _malformed(self, item: Malformed) -> None:
        self._out_of_step = True
        if self.state.phase in ("closing", "ending"):
            self.state.finish("bytes that are no frames")
        else:
            self.state.close(
                _refusal(item.code, item.text), at=item.class_id << 16 | item.method_id
            )

    def _look_for_close_ok(self, data: bytes | bytearray | memoryview) -> None:
        """Look for close-ok in bytes that the scanner no longer parses."""
        self._head += data
        if _CLOSE_OK in self._head:
            self.state.finish(self.state.close_reason)
        del self._head[: -len(_CLOSE_OK)]

    def _method(self, raw: MethodItem) -> None:
        code = raw.class_id << 16 | raw.method_id
        if self.state.phase in ("closing", "ending"):
            if code == methods.ConnectionClose.code:
                self.state.send(0, methods.ConnectionCloseOk())
            elif code != methods.ConnectionCloseOk.code:
                return
            self.state.finish(self.state.close_reason)
            return
        try:
            method = codec.decode_method(code.to_bytes(4, "big") + raw.args)
            if raw.channel == 0:
                self._on_connection(method)
            elif self.state.phase != "running":
                raise errors.UnexpectedFrame(
                    f"{method.name} on channel {raw.channel} before connection.open"
                )
            else:
                self._on_channel(raw.channel, method, len(raw.args))
        except Refusal as refusal:
            self.state.close(refusal, at=code)

    def _on_connection(self, method: Method) -> None:
        handler = negotiation.HANDLERS.get((self.state.phase, type(method)))
        if handler is None:
            if method.code >> 16 != 10:
                raise errors.CommandInvalid(f"{method.name} on channel 0")
            raise errors.ChannelMisused(
                f"unexpected method {method.name} in connection state {self.state.phase}"
            )
        handler(self.state, method)

    def _on_channel(self, number: int, method: Method, argument_bytes: int) -> None:
        if method.code >> 16 == 10:
            raise errors.CommandInvalid(f"{method.name} on channel {number}; it belongs on 0")
        channel = self._channel(number)
        if channel is None:
            return
        if channel.state == "closing":
            if isinstance(method, methods.ChannelClose):
                self.state.send(number, methods.ChannelCloseOk())
            elif isinstance(method, methods.ChannelCloseOk):
                self.state.free(channel)
            return
        item_order.take(channel, method, argument_bytes)

    def _channel(self, number: int) -> Channel | None:
        """Return the channel, created if it is new; None: the connection is being closed."""
        state = self.state
        channel = state.channels.get(number)
        if channel is None:
            if number == 0:
                state.close(errors.CommandInvalid("content on channel 0, the connection's own"))
                return None
            if len(state.channels) >= state.channel_max:
                # RabbitMQ limits the count, not the numbers, and clients use high numbers.
                state.close(
                    errors.NotAllowed(
                        f"number of channels opened ({len(state.channels)}) has reached the "
                        f"negotiated channel_max ({state.channel_max})"
                    )
                )
                return None
            channel = Channel(state, number, state.ids.session())
            state.channels[number] = channel
            state.sessions[channel.session] = channel
        return channel

    # -------------------------------------------------------------- answers in

    def answer(self, token: requests.Token, result: requests.Result) -> None:
        """Handle the broker's answer to a request; an answer to a closed channel is dropped."""
        self._answer(token, result)
        if self.state.publishes.to_commit or self.state.to_share:
            self._end_pass()

    def _answer(self, token: requests.Token, result: requests.Result) -> None:
        asked = self.state.asked.pop(token, None)
        if asked is None or self.state.phase == "closed":
            return
        if asked.channel is None:
            asked.then(result)
        else:
            item_order.answered(asked.channel, token, result, asked.then, asked.at)

    def routed(self, token: requests.Token, parts: Sequence[ConfirmedPart], kept: int = 0) -> int:
        """Record the queues that the messages of a Publish are routed to: one part per queue.

        kept     how many of the parts, the last ones, are for exchanges that keep messages
        returns  how many messages the publisher gets back
        """
        unroutable = self.state.publishes.routed(token, parts, kept)
        returned = 0 if unroutable is None else publish.return_unroutable(*unroutable)
        if self.state.publishes.to_commit or self.state.to_share:
            self._end_pass()
        return returned

    def confirmed(
        self, token: requests.Token, part: int, ok: bool, refused: Iterable[int] | None = None
    ) -> None:
        """Record that a queue accepted part number `part` of a Publish, or refused it (ok=False).

        refused  table positions, when only some of the part were refused
        """
        self.state.publishes.confirmed(token, part, ok, refused)
        if self.state.publishes.to_commit or self.state.to_share:
            self._end_pass()

    def _end_pass(self) -> None:
        """Do what is done once for all that has come: commits first, their channels continue."""
        self._commit()
        global_prefetch.share_out(self.state.to_share)

    def _commit(self) -> None:
        """Answer the transactions that are complete.

        One at a time: after the answer its channel continues, perhaps to its next commit.
        """
        to_commit = self.state.publishes.to_commit
        while to_commit:
            finished = publish.finished_commit(to_commit.pop())
            if finished is not None:
                self._answer(*finished)

    def publish_refused(self, session: SessionId, refusal: Refusal) -> None:
        """Close the channel of a Publish that the broker refused as a whole.

        Its exchange was deleted in the meantime (a transaction's commit comes late), or its CC
        header is not a list.
        """
        channel = self.state.sessions.get(session)
        if channel is not None:
            channel.at = methods.BasicPublish.code
            self.state.refuse(channel, refusal)

    def deliver(self, consumer: ConsumerId, delivery: Delivery, block: object) -> None:
        """Deliver a run of messages to a consumer; block: the decoded Block that holds them."""
        known = self.state.consumers.get(consumer)
        if known is not None:
            consume.deliver(known, delivery, block)
            if self.state.to_share:
                global_prefetch.share_out(self.state.to_share)

    def deliver_reply(self, session: SessionId, table: MessageTable, at: int) -> None:
        """Deliver message `at` of a table, published to the session's reply name."""
        channel = self.state.sessions.get(session)
        if channel is not None and channel.reply_name:
            consume.deliver_reply(channel, table, at)

    def cancelled(self, consumer: ConsumerId, reason: str, timeout_ms: int | None = None) -> None:
        """Handle the queue's cancellation of a consumer.

        reason  timeout, deleted, disconnected or failover
        """
        known = self.state.consumers.get(consumer)
        if known is None:
            return
        consume.remove(known)
        channel = known.channel
        if "consumer_cancel_notify" in self.state.capabilities:
            channel.send(methods.BasicCancel(consumer_tag=known.tag, no_wait=True))
        elif reason == "timeout":
            channel.at = 0
            shown = "" if timeout_ms is None else f" Timeout value used: {timeout_ms} ms."
            self.state.refuse(
                channel,
                errors.PreconditionFailed(
                    f"delivery acknowledgement on channel {channel.number} timed out.{shown} This "
                    "timeout value can be configured, see consumers doc guide to learn more"
                ),
            )

    def blocked(self, reason: str) -> None:
        """Send connection.blocked to a publishing client that supports it."""
        self._blocked_reason = reason
        self._tell_blocked()

    def unblocked(self) -> None:
        """Send connection.unblocked: the resource alarm is cleared."""
        self._blocked_reason = ""
        self._tell_blocked()

    def _tell_blocked(self) -> None:
        if self.state.phase != "running" or "connection.blocked" not in self.state.capabilities:
            return
        if self._blocked_reason and self.has_published and not self._told_blocked:
            self._told_blocked = True
            self.state.send(0, methods.ConnectionBlocked(reason=self._blocked_reason))
        elif not self._blocked_reason and self._told_blocked:
            self._told_blocked = False
            self.state.send(0, methods.ConnectionUnblocked())

    def unread(self) -> None:
        """Count the client as alive while its socket is not read.

        1. A publisher is blocked and its socket is not read.  2. It sends heartbeats.  3. They stay
        in the socket buffer for longer than two intervals: the connection must not time out.
        """
        self.state.liveness.heard()

    def tick(self, now_ms: int) -> None:
        """Send and check heartbeats and timeouts; called at least once a second."""
        verdict = self.state.liveness.tick(now_ms, self.state.phase)
        if verdict == "beat":
            self.state.out += codec.HEARTBEAT
        elif verdict == "missed":
            self.state.finish(
                f"missed heartbeats from client, timeout: {self.heartbeat_ms // 1000}s"
            )
        elif verdict == "late":
            self.state.finish(f"no progress in state {self.state.phase}")

    # -------------------------------------------------------------- out

    def take_output(self) -> list[bytes | bytearray | memoryview]:
        """Return the bytes to send now; call it when the socket is writable: it moves windows."""
        state = self.state
        to_confirm = state.publishes.to_confirm
        if to_confirm:
            for channel in to_confirm.values():
                channel.tell_confirms()
            to_confirm.clear()
        if state.to_report:
            self._report()
        pieces, state.pieces, state.pieces_bytes = state.pieces, [], 0
        if state.out:
            pieces.append(state.out)
            state.out = bytearray()
        if pieces:
            state.liveness.sent()
        return pieces

    def take_answered(self) -> tuple[int, int]:
        """Return how many messages were confirmed and returned since the last call."""
        answered = self.state.confirmed, self.state.returned
        self.state.confirmed = self.state.returned = 0
        return answered

    def _report(self) -> None:
        """Report to the queues how far the deliveries to no_ack consumers have been sent."""
        for consumer in self.state.to_report.values():
            consumer.unreported = consumer.unreported_bytes = 0
            self.state.requests.append(
                commands.Credit(consumer.number, consumer.next_msg_id, credit=0)
            )
        self.state.to_report.clear()

    def take_faults(self) -> list[ChannelFault]:
        """Return and clear the faults to be logged, in order."""
        taken, self.state.faults = self.state.faults, []
        return taken

    def take_requests(self) -> list[requests.AnyClientRequest]:
        """Return and clear the requests to be carried out, in order."""
        taken, self.state.requests = self.state.requests, []
        return taken

    @property
    def output_bytes(self) -> int:
        """The bytes of frames that `take_output` would return."""
        return len(self.state.out) + self.state.pieces_bytes

    @property
    def wants_output(self) -> bool:
        """Whether `take_output` returns anything."""
        state = self.state
        return bool(state.out or state.pieces or state.publishes.to_confirm or state.to_report)

    @property
    def wants_input(self) -> bool:
        """Whether to read the socket; not while too much waits for the broker's answers."""
        return self.state.waiting_bytes < self.state.config.waiting_bytes_max

    @property
    def heartbeat_ms(self) -> int:
        """The negotiated heartbeat interval; 0: none."""
        return self.state.liveness.heartbeat_ms

    @property
    def closed(self) -> bool:
        """Whether to close the socket once the remaining output is sent."""
        return self.state.phase == "closed"

    # -------------------------------------------------------------- the end

    def close(self, refusal: Refusal) -> None:
        """Send connection.close; `closed` once the client has answered."""
        self.state.close(refusal)

    def disconnected(self, reason: str = "the socket was closed") -> None:
        """Return all deliveries: the socket is closed."""
        state = self.state
        state.finish(reason)
        state.out.clear()
        state.pieces.clear()
        self._head.clear()
        state.scanner.close()
        state.asked.clear()


def _refusal(code: int, text: str) -> Refusal:
    """Return the refusal for an error found by the scanner."""
    return _BY_CODE.get(code, errors.InternalError)(text)


_BY_CODE: dict[int, type[Refusal]] = {
    kind.reply_code: kind
    for kind in (
        errors.ContentTooLarge,
        errors.PreconditionFailed,
        errors.FrameError,
        errors.SyntaxRefused,
        errors.CommandInvalid,
        errors.ChannelMisused,
        errors.UnexpectedFrame,
        errors.NotImplementedHere,
        errors.ResourceError,
    )
}
