"""One client's AMQP 0.9.1 connection as a state machine.

Bytes and the broker's answers go in, bytes and requests come out (`requests.py`); nothing waits.
States: `header` (the protocol header), `starting`, `securing`, `tuning`, `opening`, `asking` (the
handshake), `running`, `closing` (we sent connection.close), `ending` (the client did), `closed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from warren_broker import errors
from warren_broker.access import Access
from warren_broker.amqp091 import consume, dispatch, handshake, requests
from warren_broker.amqp091 import publish as amqp091_publish
from warren_broker.amqp091.channel import Channel, CheckedRun, Consumer, TableRun, Then
from warren_broker.amqp091.confirms import Part
from warren_broker.amqp091.handshake import ConnectionConfig
from warren_broker.amqp091.heartbeat import Liveness
from warren_broker.amqp091.publish_ledger import Publishes
from warren_broker.amqp091.wire import codec, methods
from warren_broker.amqp091.wire.methods import Method
from warren_broker.errors import Refusal
from warren_broker.kernel import (
    AckRun,
    ContentRefused,
    FrameScanner,
    Heartbeat,
    Item,
    Malformed,
    MessageTable,
    PublishRun,
)
from warren_broker.kernel import Method as RawMethod
from warren_broker.queue.commands import ConsumerId, Delivery, SessionId
from warren_broker.queue.limits import NO_ACK_WINDOW, WINDOW_BYTES

__all__ = ["Connection", "ConnectionConfig", "Fault"]

_CLOSE_OK = codec.method_frame(0, methods.ConnectionCloseOk())
_NO_LIMIT = 1 << 31
"""The scanner's frame_max when none was agreed on."""


@dataclass(slots=True)
class _Asked:
    """An unanswered request: of a channel, or (None) of the connection."""

    channel: Channel | None
    then: Then
    at: int


class Fault(NamedTuple):
    """Why a channel ends, or (0) the connection; operation: the method that caused it."""

    channel: int
    operation: str
    refusal: Refusal


class Connection:
    """A client's connection.

    user, vhost         once authenticated, opened
    client_properties, capabilities   as start-ok had them
    channels            open and half-closed ones by number
    consumers           of all channels, by number
    out                 bytes to be sent
    requests            to be carried out
    publishes           those that the broker has not answered for
    faults              what the client was refused with a channel or the connection, for the log
    has_published       only such connections are told of `blocked`
    waiting_bytes       in the inboxes of its channels

    Invariants: every consumer in `consumers` belongs to an open channel; a channel's `waiting` is
    0 or a key of the unanswered requests.
    """

    def __init__(
        self, config: ConnectionConfig, view: requests.BrokerView, ids: requests.Ids
    ) -> None:
        self.config = config
        self.view = view
        self.ids = ids
        self.state = "header"
        self.user = ""
        self.vhost = ""
        self.client_properties: dict[str, Any] = {}
        self.capabilities: frozenset[str] = frozenset()
        self.close_reason = ""
        self.frame_max = codec.FRAME_BYTES_MIN if config.frame_max else 0
        self.channel_max = config.channel_max or 65535
        self.channels: dict[int, Channel] = {}
        self.sessions: dict[SessionId, Channel] = {}
        self.consumers: dict[ConsumerId, Consumer] = {}
        self.out = bytearray()
        self.requests: list[requests.Request] = []
        self.faults: list[Fault] = []
        self.has_published = False
        self.waiting_bytes = 0
        self._blocked_reason = ""
        self._told_blocked = False
        self._head = bytearray()
        self._out_of_step = False
        first = handshake.FRAME_BYTES_MAX_FIRST
        self._scanner = FrameScanner(
            min(config.frame_max or first, first),
            config.message_bytes_max,
            config.unfinished_bytes_max,
        )
        self._last_token = 0
        self._asked: dict[requests.Token, _Asked] = {}
        self.publishes = Publishes()
        self._to_report: dict[ConsumerId, Consumer] = {}
        self._liveness = Liveness(config.handshake_ms, config.closing_ms)

    @property
    def access(self) -> Access:
        """What the user may do; for a connection that is open."""
        return Access(self.view, self.vhost, self.user)

    # -------------------------------------------------------------- bytes in

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes from the socket."""
        self._liveness.heard()
        if self.state == "closed":
            return
        if self.state == "header":
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
            self.state = "starting"
            self.send(0, handshake.start(self.config))
        if self._out_of_step:
            self._look_for_close_ok(data)
            return
        items = self._scanner.feed(data)
        if items:
            table = self._scanner.take_table()
            for item in items:
                self._take(item, table)
        self._commit()

    def _wrong_header(self) -> None:
        """We answer with what we speak, and that is all."""
        self.out += codec.PROTOCOL_HEADER
        self.finish("no AMQP 0.9.1 header")

    def _take(self, item: Item, table: MessageTable) -> None:
        if isinstance(item, Heartbeat) or self.state == "closed":
            return
        if isinstance(item, Malformed):
            self._malformed(item)
        elif isinstance(item, RawMethod):
            self._method(item)
        elif self.state == "running":
            self._content(item, table)
        elif self.state not in ("closing", "ending"):
            self.close(
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
            dispatch.take(channel, TableRun(table, item))
        elif isinstance(item, ContentRefused):
            dispatch.take(channel, _refusal(item.code, item.text))
        else:
            dispatch.take(channel, item)

    def _malformed(self, item: Malformed) -> None:
        self._out_of_step = True
        if self.state in ("closing", "ending"):
            self.finish("bytes that are no frames")
        else:
            self.close(_refusal(item.code, item.text), at=item.class_id << 16 | item.method_id)

    def _look_for_close_ok(self, data: bytes | bytearray | memoryview) -> None:
        """The scanner has given up; the client's answer to our close can still be found."""
        self._head += data
        if _CLOSE_OK in self._head:
            self.finish(self.close_reason)
        del self._head[: -len(_CLOSE_OK)]

    def _method(self, raw: RawMethod) -> None:
        code = raw.class_id << 16 | raw.method_id
        if self.state in ("closing", "ending"):
            if code == methods.ConnectionClose.code:
                self.send(0, methods.ConnectionCloseOk())
            elif code != methods.ConnectionCloseOk.code:
                return
            self.finish(self.close_reason)
            return
        try:
            method = codec.decode_method(code.to_bytes(4, "big") + raw.args)
            if raw.channel == 0:
                self._on_connection(method)
            elif self.state != "running":
                raise errors.UnexpectedFrame(
                    f"{method.name} on channel {raw.channel} before connection.open"
                )
            else:
                self._on_channel(raw.channel, method)
        except Refusal as refusal:
            self.close(refusal, at=code)

    def _on_connection(self, method: Method) -> None:
        handler = handshake.HANDLERS.get((self.state, type(method)))
        if handler is None:
            if method.code >> 16 != 10:
                raise errors.CommandInvalid(f"{method.name} on channel 0")
            raise errors.ChannelMisused(
                f"unexpected method {method.name} in connection state {self.state}"
            )
        handler(self, method)

    def _on_channel(self, number: int, method: Method) -> None:
        if method.code >> 16 == 10:
            raise errors.CommandInvalid(f"{method.name} on channel {number}; it belongs on 0")
        channel = self._channel(number)
        if channel is None:
            return
        if channel.state == "closing":
            if isinstance(method, methods.ChannelClose):
                self.send(number, methods.ChannelCloseOk())
            elif isinstance(method, methods.ChannelCloseOk):
                self.free(channel)
            return
        dispatch.take(channel, method)

    def _channel(self, number: int) -> Channel | None:
        """The channel of that number, made when it is new; None: the connection is being closed."""
        channel = self.channels.get(number)
        if channel is None:
            if number == 0:
                self.close(errors.CommandInvalid("content on channel 0, the connection's own"))
                return None
            if len(self.channels) >= self.channel_max:
                # RabbitMQ counts them and lets them have any number; so clients use high ones.
                self.close(
                    errors.NotAllowed(
                        f"number of channels opened ({len(self.channels)}) has reached the "
                        f"negotiated channel_max ({self.channel_max})"
                    )
                )
                return None
            channel = Channel(self, number, self.ids.session())
            self.channels[number] = channel
            self.sessions[channel.session] = channel
        return channel

    # -------------------------------------------------------------- answers in

    def answer(self, token: requests.Token, result: requests.Result) -> None:
        """The broker's answer to a request; one that nobody waits for any more is dropped."""
        self._answer(token, result)
        self._commit()

    def _answer(self, token: requests.Token, result: requests.Result) -> None:
        asked = self._asked.pop(token, None)
        if asked is None or self.state == "closed":
            return
        if asked.channel is None:
            asked.then(result)
        else:
            dispatch.answered(asked.channel, token, result, asked.then, asked.at)

    def routed(self, token: requests.Token, parts: Sequence[Part]) -> None:
        """Where the messages of a Publish go: one part per queue."""
        self.publishes.routed(token, parts)
        self._commit()

    def confirmed(
        self, token: requests.Token, part: int, ok: bool, refused: Iterable[int] | None = None
    ) -> None:
        """A queue has part number `part` of a Publish, or has refused it (ok=False).

        refused  table positions, when only some of the part were refused
        """
        self.publishes.confirmed(token, part, ok, refused)
        self._commit()

    def publish_refused(self, session: SessionId, refusal: Refusal) -> None:
        """A whole Publish was refused after it had been handed over: its channel ends.

        Its exchange is gone since (a transaction's commit comes late), or its CC header is no list.
        """
        channel = self.sessions.get(session)
        if channel is not None:
            channel.at = methods.BasicPublish.code
            self.refuse(channel, refusal)

    def deliver(self, consumer: ConsumerId, delivery: Delivery, block: Any) -> None:
        """A run of messages for a consumer; block: the decoded Block that it speaks of."""
        known = self.consumers.get(consumer)
        if known is not None:
            consume.deliver(known, delivery, block)

    def deliver_reply(self, session: SessionId, table: MessageTable, at: int) -> None:
        """A direct reply: message `at` of a table, published with the session's reply name."""
        channel = self.sessions.get(session)
        if channel is not None and channel.reply_name:
            consume.deliver_reply(channel, table, at)

    def cancelled(self, consumer: ConsumerId, reason: str, timeout_ms: int | None = None) -> None:
        """The queue has taken a consumer off: `timeout`, `deleted` or `disconnected`."""
        known = self.consumers.get(consumer)
        if known is None:
            return
        consume.remove(known)
        channel = known.channel
        if "consumer_cancel_notify" in self.capabilities:
            channel.send(methods.BasicCancel(consumer_tag=known.tag, no_wait=True))
        elif reason == "timeout":
            channel.at = 0
            shown = "" if timeout_ms is None else f" Timeout value used: {timeout_ms} ms."
            self.refuse(
                channel,
                errors.PreconditionFailed(
                    f"delivery acknowledgement on channel {channel.number} timed out.{shown} This "
                    "timeout value can be configured, see consumers doc guide to learn more"
                ),
            )

    def blocked(self, reason: str) -> None:
        """A resource is low: tell a client that publishes and wants to know."""
        self._blocked_reason = reason
        self._tell_blocked()

    def unblocked(self) -> None:
        """It is not any more."""
        self._blocked_reason = ""
        self._tell_blocked()

    def _tell_blocked(self) -> None:
        if self.state != "running" or "connection.blocked" not in self.capabilities:
            return
        if self._blocked_reason and self.has_published and not self._told_blocked:
            self._told_blocked = True
            self.send(0, methods.ConnectionBlocked(reason=self._blocked_reason))
        elif not self._blocked_reason and self._told_blocked:
            self._told_blocked = False
            self.send(0, methods.ConnectionUnblocked())

    def unread(self) -> None:
        """The socket is not being read: the client may speak all the time, for all we know.

        1. A publisher is blocked, its socket unread.  2. It sends its heartbeats.  3. They lie in
        the socket for longer than two intervals: it must not be given up for that.
        """
        self._liveness.heard()

    def tick(self, now_ms: int) -> None:
        """The time, at least once a second: heartbeats, and the ends of patience."""
        verdict = self._liveness.tick(now_ms, self.state)
        if verdict == "beat":
            self.out += codec.HEARTBEAT
        elif verdict == "missed":
            self.finish(f"missed heartbeats from client, timeout: {self.heartbeat_ms // 1000}s")
        elif verdict == "late":
            self.finish(f"no progress in state {self.state}")

    # -------------------------------------------------------------- out

    def take_output(self) -> list[bytearray]:
        """What is to be sent now; ask when the socket can take it: windows move on it."""
        self.publishes.tell()
        if self._to_report:
            self._report()
        if not self.out:
            return []
        self._liveness.sent()
        out, self.out = self.out, bytearray()
        return [out]

    def _report(self) -> None:
        """Tell the queues what has left for no_ack consumers."""
        for consumer in self._to_report.values():
            consumer.unreported = consumer.unreported_bytes = 0
            self.requests.append(
                requests.SetCredit(
                    consumer=consumer.number,
                    queue=consumer.queue,
                    delivered=consumer.next_msg_id,
                    credit=0,
                )
            )
        self._to_report.clear()

    def take_faults(self) -> list[Fault]:
        """What is to be logged, in order."""
        taken, self.faults = self.faults, []
        return taken

    def take_requests(self) -> list[requests.Request]:
        """What is to be carried out, in order."""
        taken, self.requests = self.requests, []
        return taken

    @property
    def wants_output(self) -> bool:
        """`take_output` has something."""
        return bool(self.out or self.publishes.to_confirm or self._to_report)

    @property
    def wants_input(self) -> bool:
        """False while too much waits for the broker's answers: leave the socket unread."""
        return self.waiting_bytes < self.config.waiting_bytes_max

    @property
    def heartbeat_ms(self) -> int:
        """Agreed on; 0: none."""
        return self._liveness.heartbeat_ms

    @property
    def closed(self) -> bool:
        """Send what is left of the output, then close the socket."""
        return self.state == "closed"

    # -------------------------------------------------------------- for its channels

    def send(self, channel: int, method: Method) -> None:
        """A method to the client."""
        self.out += codec.method_frame(channel, method)

    def new_token(self, channel: Channel | None, then: Then) -> requests.Token:
        """A token; `then` gets its result (a channel's only when that is no Refusal)."""
        self._last_token += 1
        self._asked[self._last_token] = _Asked(channel, then, channel.at if channel else 0)
        return self._last_token

    def publish(self, channel: Channel, run: CheckedRun, number: int) -> None:
        """Ask for a publish; number: the first sequence number, 0: nobody waits for confirms."""
        self._last_token += 1
        self.publishes.add(self._last_token, channel, run, number)
        self.requests.append(
            requests.Publish(
                token=self._last_token,
                session=channel.session,
                table=run.table,
                first=run.first,
                last=run.last,
                confirm=bool(number),
                mandatory=run.mandatory,
                flags=run.flags,
            )
        )

    def delivered_no_ack(self, consumer: Consumer) -> None:
        """Its window moves when this output is taken."""
        if (
            consumer.unreported >= NO_ACK_WINDOW // 2
            or consumer.unreported_bytes >= WINDOW_BYTES // 2
        ):
            self._to_report[consumer.number] = consumer

    def _commit(self) -> None:
        while (finished := self.publishes.next_commit()) is not None:
            self._answer(*finished)

    def refuse(self, channel: Channel, refusal: Refusal) -> None:
        """The channel, or the connection, ends with it."""
        if refusal.ends == "connection":
            self.close(refusal, at=channel.at)
            return
        if self.state != "running" or channel.state not in ("new", "open"):
            return
        amqp091_publish.tell_confirms(channel)
        self.faults.append(Fault(channel.number, codec.method_name(channel.at), refusal))
        self.send(
            channel.number,
            methods.ChannelClose(
                reply_code=refusal.reply_code,
                reply_text=refusal.reply_text,
                class_id=channel.at >> 16,
                method_id=channel.at & 0xFFFF,
            ),
        )
        self._scanner.discard_channel(channel.number)
        channel.state = "closing"
        channel.end(lambda _: None)
        channel.waiting = 0

    def forget(self, channel: Channel) -> None:
        """Nothing can be told to it any more."""
        for consumer in channel.consumers.values():
            self.consumers.pop(consumer.number, None)
            self._to_report.pop(consumer.number, None)
        self.publishes.forget(channel)
        for token in [token for token, asked in self._asked.items() if asked.channel is channel]:
            del self._asked[token]

    def free(self, channel: Channel) -> None:
        """Its number may be used again."""
        if self.channels.get(channel.number) is channel:
            del self.channels[channel.number]
        self.sessions.pop(channel.session, None)

    # -------------------------------------------------------------- its end

    def negotiated(self, frame_max: int, channel_max: int, heartbeat_s: int) -> None:
        """What tune-ok said."""
        self.frame_max = frame_max
        self._scanner.frame_max = frame_max or _NO_LIMIT
        self.channel_max = channel_max
        self._liveness.heartbeat_ms = heartbeat_s * 1000

    def close(self, refusal: Refusal, at: int = 0) -> None:
        """Send connection.close, give everything back; `closed` when the client has answered.

        at  the code of the method that caused it
        """
        if self.state in ("closing", "ending", "closed"):
            return
        began = self.state not in ("header", "starting", "securing")
        self.close_reason = refusal.reply_text
        if not isinstance(refusal, errors.ConnectionForced):
            self.faults.append(Fault(0, codec.method_name(at), refusal))
        self._end_channels()
        if not began and not isinstance(refusal, errors.LoginRefused):
            self.finish(refusal.reply_text)  # a stranger is not answered
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
        self.state = "closing"
        self._liveness.begin()
        self._leave(lambda _: None)

    def client_closes(self, reason: str) -> None:
        """connection.close: close-ok follows when all it had is given back."""
        self.close_reason = reason or "closed by the client"
        self._end_channels()
        self.state = "ending"
        self._liveness.begin()

        def left(_: Any) -> None:
            self.send(0, methods.ConnectionCloseOk())
            self.finish(self.close_reason)

        self._leave(left)

    def disconnected(self, reason: str = "the socket was closed") -> None:
        """The socket is gone: give everything back."""
        self.finish(reason)
        self.out.clear()
        self._head.clear()
        self._scanner.close()
        self._asked.clear()

    def finish(self, reason: str) -> None:
        """Nothing more is expected of the client."""
        self.close_reason = self.close_reason or reason
        if self.state not in ("closing", "ending", "closed"):
            self._end_channels()
            self._leave(lambda _: None)
        self.state = "closed"

    def _end_channels(self) -> None:
        for channel in list(self.channels.values()):
            self._scanner.discard_channel(channel.number)  # an unfinished message takes memory
            if channel.state in ("new", "open"):
                channel.state = "ending"
                channel.end(lambda _: None)
            self.free(channel)

    def _leave(self, then: Then) -> None:
        token = self.new_token(None, then)
        self.requests.append(requests.CloseConnection(token=token, reason=self.close_reason))


def _refusal(code: int, text: str) -> Refusal:
    """The scanner's finding as a refusal."""
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
