"""An AMQP 0.9.1 client: its session on one side, the broker on the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from warren_broker.access import requests
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.broker.broker import Broker
from warren_broker.broker.declaring import Declared, declare_and_count
from warren_broker.broker.kept_definitions import definition_kept, queue_kept
from warren_broker.clients.client_counts import ChannelCounts, ClientCounts
from warren_broker.clients.connection_facts import Consumed, Spoken
from warren_broker.clients.connection_faults import guarded, guarded_call
from warren_broker.clients.protocol_client import ProtocolClient
from warren_broker.clients091.connection import Connection
from warren_broker.clients091.heartbeat import hang_up_within_ms
from warren_broker.clients091.negotiation import LOGGED_IN
from warren_broker.clients091.state import Channel, ChannelConsumer
from warren_broker.clients091.unread_deliveries import UnreadDeliveries, unsent_bytes
from warren_broker.cluster.client.firehose import TracedClient
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.client.relayed import FATE_UNKNOWN, Names, taken_by, without_names
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart
from warren_broker.counting.message_stats import PUBLISH
from warren_broker.counting.pair_counts import ExchangeShare, Row, confirm
from warren_machines.metadata import commands as metadata
from warren_machines.queue import commands
from warren_machines.queue.commands import SessionId
from warren_raft.runtime.net.stream import Stream
from warren_wire import errors
from warren_wire.admin.connections import ChannelInfo
from warren_wire.block.block import Block

TICK_MS = 1000
PATIENT_AFTER = 8
PATIENT_BYTES_MAX = 4096
"""After so many reads in a row of acknowledgements alone, none larger, a socket is patient."""
DOOR_091: Final = "AMQP 0.9.1"


class Client091(ProtocolClient):
    """An AMQP 0.9.1 connection.

    Deliveries wait in `_held` while the socket's output is congested.
    _deleting  unanswered queue.delete; cancelled consumers are reported after the answer
    _acks      how often in a row only acknowledgements were read, with no consumer short of credit
    Invariant: `_held` is empty or the stream is congested.
    """

    def __init__(self, broker: Broker, config: ConnectionConfig, stream: Stream, peer: str) -> None:
        super().__init__("0.9.1", broker, stream, peer)
        self._session = Connection(config, broker, broker.ids, self._number)
        self._held = UnreadDeliveries(
            config.undelivered_bytes_max,
            partial(unsent_bytes, self._session, stream),
            broker.consuming.resume,
            self._session.state,
        )
        self._ended = False
        self._acks = 0
        self._deleting = 0
        self._cancelled_later: list[int] = []
        self._throttled = False
        self._short = False
        self._reply_names: dict[str, None] = {}
        self._tick()

    @property
    def _vhost(self) -> str:
        return self._session.state.vhost

    def _spoken(self, channels: bool) -> Spoken:
        return spoken_091(self._session, self._counts, channels)

    @property
    def logged_in(self) -> tuple[str, str] | None:
        """See `listener.Client`."""
        state = self._session.state
        return (state.user, state.vhost) if state.phase in LOGGED_IN else None

    @property
    def by_token(self) -> bool:
        """See `listener.Client`."""
        return self._session.state.rights is not None

    # ------------------------------------------------------------ for the socket

    def _gauges(self) -> tuple[int, int, bool]:
        publishers = sum([bool(row and row[PUBLISH]) for _, row in self._channels_counted()])
        blocked = self._short and self._session.has_published
        return publishers, len(self._session.state.consumers), blocked

    def _channels_counted(self) -> Any:
        return channels_counted(self._session, self._counts)

    def received(self, data: bytes) -> None:
        """Process bytes from the socket."""
        self._session.receive(data)
        self._carry_out()
        if self._session.only_acks and len(data) <= PATIENT_BYTES_MAX:
            self._acks += 1
            if self._acks == PATIENT_AFTER:
                self._stream.be_patient(True)
        elif self._acks:
            self._hurry()
        if self._session.state.keyed_bytes:
            self._read_less(self._session.state)

    def _hurry(self) -> None:
        """Read at once what comes: it is not what was expected, or a consumer waits for it."""
        if self._acks:
            self._acks = 0
            self._stream.be_patient(False)

    def closed(self, error: Exception | None) -> None:
        """Handle the end of the socket."""
        self._socket_ended(error)
        self._broker.cluster.forget_waiting(self._number)
        self._held.clear()
        for name in self._reply_names:
            self._broker.replies.close(name)
        self._give_back()
        self._counts.closed()

    @guarded
    def _give_back(self) -> None:
        self._session.disconnected()
        self._carry_out()
        self._events.closed()

    @guarded
    def shut_down(self, reason: str) -> None:
        """Close the connection: the node stops."""
        if self._ended:
            self._stream.end()
            return
        self._session.close(errors.ConnectionForced(reason))
        self._carry_out()

    @guarded
    def blocked(self, reasons: tuple[str, ...]) -> None:
        """Handle a change of the resource alarms; empty: none."""
        if reasons:
            self._session.blocked(f"low on {' & '.join(reasons)}")
        else:
            self._session.unblocked()
        self._short = bool(reasons)
        self._pace()
        self._flush_later()

    @guarded
    def _tick(self) -> None:
        if self._gone or self._ended:
            return
        loop, session = self._broker.cluster.loop, self._session
        if self._stream.paused:
            session.unread()
        session.tick(loop.now_ms)
        if session.wants_output or session.state.requests or session.closed:
            self._carry_out()
        # A heartbeat is due every half interval, as in RabbitMQ: clients with an interval of a
        # second or two close the connection when one is late.
        wait_ms = session.heartbeat_ms // 4 or TICK_MS
        if session.state.phase != "running":
            wait_ms = TICK_MS // 4  # it may be about to negotiate such an interval
        self._timer = loop.call_later(min(TICK_MS, wait_ms), self._tick)

    def _send_output(self) -> None:
        output = self._session.take_output()
        if output:
            self._stream.write(output)
            self._counts.publishing.answered(*self._session.take_answered())
        # A stream that is congested calls `drained`; else there is room for what was refused.
        if not self._stream.congested and (self._held.owes or (output and self._stream.paused)):
            self._held.ask_again()
            self._pace()
        if self._session.closed and not self._ended:
            self._ended = True
            self._log.ended(self._session.state.close_reason)
            if self._session.state.client_hangs_up:
                self._stream.await_hang_up(hang_up_within_ms(self._session.heartbeat_ms))
            else:
                self._stream.end()
        if self._session.state.requests:  # taking the output moves the windows of no_ack consumers
            self._run_requests()

    @guarded
    def drained(self) -> None:
        """Write the deliveries that were held back while the socket was congested."""
        while self._held and not self._stream.congested:
            self._session.deliver(*self._held.take())
            self._stream.write(self._session.take_output())
        self._held.ask_again()
        self._pace()
        self._flush_later()

    def _pace(self) -> None:
        """Read the socket while queues, inboxes and this node have room."""
        if self._gone or self._session.closed:
            return
        publishing_blocked = self._short and self._session.has_published
        waits = self._throttled or (self._share.busy and self._session.state.phase == "running")
        wanted = self._session.wants_input and not waits and not publishing_blocked
        # What is full is congested, once the output of this turn is written.
        wanted = wanted and not (self._stream.congested and self._held.full)
        if wanted == self._stream.paused:
            if wanted:
                self._stream.resume_reading()
            else:
                self._stream.pause_reading()

    # ------------------------------------------------------------ for the broker

    @guarded
    def deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
        """Deliver messages to one of its consumers."""
        known = self._session.state.consumers.get(consumer)
        if known is not None:
            self._counts.delivered(consumer, known.channel.session, known.no_ack, delivery)
        self._held.took(consumer, delivery, block)
        if self._held or self._stream.congested:
            self._held.add(consumer, delivery, block)
            return
        self._session.deliver(consumer, delivery, block)
        self._flush_later()

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """Handle the queue's cancellation of a consumer.

        A client that deletes a queue from which it consumes is sent delete-ok first, then
        basic.cancel, as in RabbitMQ: clients that close the channel on basic.cancel would lose the
        answer.
        """
        if reason == "deleted" and self._deleting:
            self._cancelled_later.append(consumer)
        else:
            self._tell_cancelled(consumer, reason, timeout_ms)

    @guarded
    def _tell_cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        self._hand_out_held(consumer)
        known = self._session.state.consumers.get(consumer)
        if known is not None and reason == "timeout":
            channel = known.channel.number
            self._log.consumer_timed_out(known.tag, channel, known.queue, timeout_ms)
        self._events.consumers_deleted((consumer,))
        self._session.cancelled(consumer, reason, timeout_ms)
        self._carry_out()

    def _hand_out_held(self, consumer: int) -> None:
        """Format the deliveries that wait for the socket before a consumer's cancellation.

        Otherwise they would stay checked out until the channel ends, or be lost with no_ack. They
        are at most the consumer's prefetch or window.
        """
        for held in self._held.take_of((consumer,)):
            self._session.deliver(*held)

    def _carry_out(self) -> None:
        session = self._session
        if session.state.requests or self._later:
            self._run_requests()
        if session.state.faults:
            self._log_faults()
        self._pace()
        if session.wants_output or session.closed or self._held.owes:
            self._flush_later()

    def _log_faults(self) -> None:
        for fault in self._session.take_faults():
            if not isinstance(fault.refusal, errors.LoginRefused):  # logged with its user already
                where = f"channel {fault.channel}" if fault.channel else "the connection"
                self._log.failed(where, fault.operation, fault.refusal)
                if isinstance(fault.refusal, errors.AccessRefused):
                    whose = (DOOR_091, self._session.state.user, self._peer, fault.operation)
                    self._broker.audit.refusal(*whose, fault.refusal, self._vhost)

    def _take_requests(self) -> bool:
        state = self._session.state
        self._later += state.requests
        state.requests.clear()
        return bool(self._later)

    def _run(self, request: Any) -> None:
        try:
            _HANDLERS[type(request)](self, request)
        except errors.Refusal as refusal:
            self.refused(request, refusal)

    def refused(self, request: Any, refusal: errors.Refusal) -> None:
        """Tell the client why a request is refused."""
        if isinstance(request, requests.PublishRequest):
            self._session.publish_refused(request.session, refusal)
            self._flush_later()
        else:
            self._session.answer(request.token, refusal)

    def _answer(self, request: Any) -> Callable[[requests.Result], None]:
        def answer(result: requests.Result) -> None:
            self._session.answer(request.token, result)
            self._carry_out()

        return guarded_call(self, answer)

    # ------------------------------------------------------------ requests

    def _authenticate(self, request: requests.AuthenticateRequest) -> None:
        login = (request.user, request.password, request.mechanism)
        self._log_in_turn(login, self._expiring(self._answer(request)))

    def _update_secret(self, request: requests.UpdateSecretRequest) -> None:
        logins, rights = self._broker.logins, self._session.state.rights
        if rights is not None:
            done = self._expiring(self._answer(request))
            logins.renew(rights, self._vhost, request.password, done)
            return
        # Passwords do not expire: any new one will do, as in RabbitMQ, of a user with a right.
        logins.open_vhost(self._vhost, request.user, self._answer(request))

    def _open_vhost(self, request: requests.OpenVhostRequest) -> None:
        answer = self._answer(request)

        def done(result: requests.Result) -> None:
            if not isinstance(result, errors.Refusal) and not self._gone:
                client = self._session.state.client_properties
                self._log.opened(request.user, request.vhost, client)
                self._counts.opened(request.vhost)
                self._events.opened(request.user, request.vhost, client)
            answer(result)

        self._broker.logins.enter_vhost(
            self._number,
            request.vhost,
            request.user,
            guarded_call(self, done),
            rights=self._session.state.rights,
            properties=self._session.state.client_properties,
        )

    def _check_channels(self, request: requests.CheckChannelsRequest) -> None:
        answer = self._answer(request)
        user = self._session.state.user
        self._count_channels()
        self._broker.clients.open_channel(
            self._vhost, user, lambda refusal: answer(refusal or requests.RequestDone())
        )

    def _close_connection(self, request: requests.CloseConnectionRequest) -> None:
        self._broker.connection_gone(self._number, self._answer(request))

    def _count_channels(self) -> None:
        self._broker.clients.channels(self._number, self._session.state.channels_open())

    def _session_up(self, request: requests.SessionUpRequest) -> None:
        self._count_channels()
        self._counts.channel_opened(request.session, self._number, request.channel)
        self._events.channel_created(request.session, request.channel)

    def _session_down(self, request: requests.SessionDownRequest) -> None:
        self._held.take_of(request.consumers)
        self._count_channels()
        self._counts.channel_closed(request.session)
        self._events.channel_closed(request.session)
        self._broker.consuming.session_down(request.session, request.failed)
        self._answer(request)(requests.RequestDone())

    def _recorded(
        self, method: str, name: str, kept: Callable[[], Any], answer: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        """Return an answer that records in the audit log what has become another one by then.

        kept  returns what the definitions have of it
        """
        before, audit = kept(), self._broker.audit

        def done(result: Any) -> None:
            after = kept()
            if before != after and not isinstance(result, errors.Refusal):
                whose = (DOOR_091, self._session.state.user, self._peer, method)
                told = {"vhost": self._vhost, "target": {"name": name}, "old": before}
                audit.change(*whose, **told, new=after)
            answer(result)

        return done

    def _queue_kept(self, name: str) -> Any:
        return queue_kept(self._broker.definitions.state, self._vhost, name)

    def _declare_queue(self, request: requests.QueueDeclareRequest) -> None:
        kept = partial(self._queue_kept, request.name)
        answer = self._recorded("queue.declare", request.name, kept, self._answer(request))

        def counted(found: commands.StatReply) -> requests.QueueDeclared:
            count = found.messages_ready + taken_by(request.arguments, found)
            return requests.QueueDeclared(request.name, count, found.consumers)

        told = errors.converted(answer, counted)
        if request.passive:
            queue = self._broker.queues.find(self._vhost, request.name, self._number)
            self._broker.queue_counts(queue, True, told)
            return

        def declared(result: Declared) -> None:
            told(result.counts)

        declare_and_count(
            self._broker,
            self._vhost,
            request,
            self._number,
            errors.continued(answer, declared),
            server_named=request.server_named,
        )

    def _delete_queue(self, request: requests.QueueDeleteRequest) -> None:
        kept = partial(self._queue_kept, request.name)
        answer = self._recorded("queue.delete", request.name, kept, self._answer(request))
        self._deleting += 1

        def done(result: requests.Result) -> None:
            self._deleting -= 1
            answer(result)
            if not self._deleting:
                cancelled, self._cancelled_later = self._cancelled_later, []
                for consumer in cancelled:
                    self._tell_cancelled(consumer, "deleted", None)

        try:
            given = (self._vhost, request.name, request.if_unused, request.if_empty, self._number)
            self._broker.delete_queue(*given, guarded_call(self, done))
        except errors.Refusal as refusal:
            done(refusal)

    def _purge_queue(self, request: requests.QueuePurgeRequest) -> None:
        answer = self._answer(request)

        def done(result: requests.Result) -> None:
            if isinstance(result, requests.MessageCount):
                whose = (DOOR_091, self._session.state.user, self._peer, "queue.purge")
                target = {"name": request.name, "messages": result.messages}
                self._broker.audit.change(*whose, vhost=self._vhost, target=target)
            answer(result)

        self._broker.purge_queue(self._vhost, request.name, self._number, done)

    def _define(self, request: requests.DefineRequest) -> None:
        command: metadata.MetadataCommand = request.command
        done = errors.converted(
            self._recorded(
                _METHODS[type(command)],
                getattr(command, "name", "") or getattr(command, "destination", ""),
                lambda: definition_kept(self._broker.definitions.state, command),
                self._answer(request),
            ),
            _done,
        )
        if isinstance(command, metadata.Bind):
            self._broker.bind(command, done)
            return
        if isinstance(command, metadata.DeclareExchange):
            command = self._broker.exchange_declaration(command)
        self._broker.definitions.submit(command, done)

    def _publish(self, request: requests.PublishRequest) -> None:
        self._counts.published(request)
        table, names = request.table, None
        if request.relayed:
            table, names = without_names(table, request.first, request.last)
        run = _RequestedRun(self, request, names)
        if self._broker.cluster.queue_counts.pairs is not None:
            channel = self._counts.of_channel(request.session)
            run.channel = None if channel is None else channel.key
        self._broker.publishing.publish(
            self._vhost, table, request.first, request.last, run, request.flags, self._share
        )

    def routed(
        self, request: requests.PublishRequest, parts: list[QueuePart]
    ) -> list[ExchangeShare]:
        """Record the queues of a run of publishes; return where its confirms are counted."""
        if self._vhost in self._session.state.traced_vhosts:
            client, run = self._traced_client(request.channel), (request.first, request.last)
            self._broker.firehose.published(client, request.table, *run, parts)
        session, selections = self._session, [part.selection for part in parts]
        kept, tell = sum([part.kept for part in parts]), request.confirm or request.mandatory
        before = 0 if self._broker.cluster.queue_counts.pairs is None else self._acked(request)
        returned = session.routed(request.token, selections, kept) if tell else 0
        shares = self._counts.routed(request, selections, kept, returned)
        if shares:
            confirm(shares, self._acked(request) - before)
        return shares

    def _acked(self, request: requests.PublishRequest) -> int:
        """Return how many messages the channel may be told to be confirmed."""
        channel = self._session.state.sessions.get(request.session)
        return 0 if channel is None or channel.tx is not None else channel.publishes.acked

    @guarded
    def confirmed(
        self,
        request: requests.PublishRequest,
        part: int,
        ok: bool,
        refused: list[int] | None,
        shares: list[ExchangeShare],
    ) -> None:
        """Record a queue's answer to its part of a run of publishes; shares: see `routed`."""
        before = self._acked(request) if shares else 0
        self._session.confirmed(request.token, part, ok, refused)
        if shares:
            confirm(shares, self._acked(request) - before)
        self._flush_later()

    def sent(self, touched: list[GroupClient]) -> None:
        """Stop reading while a queue that was published to is congested."""
        cluster = self._broker.cluster
        if not self._throttled and any(map(cluster.congested, touched)):
            self._throttled = True
            cluster.call_when_relieved(self._number, self._relieved)

    def _traced_client(self, channel: int) -> TracedClient:
        return TracedClient(self._vhost, self._session.state.user, self._peer, channel)

    def _trace(self, request: requests.TraceRequest) -> None:
        self._broker.firehose.delivered(self._traced_client(request.channel), request)

    @guarded
    def _relieved(self) -> None:
        self._throttled = False
        self._pace()

    def _checkout(self, request: requests.ConsumeRequest) -> None:
        queue = self._broker.queues.find(self._vhost, request.queue, self._number)
        answer = self._answer(request)

        def done(result: requests.RequestDone) -> requests.RequestDone:
            self._events.consumer_created(request)
            return result

        self._broker.consuming.checkout(
            queue,
            request.command,
            self,
            guarded_call(self, errors.converted(answer, done)),
            request.cancel_on_failover,
            has_room=self._held.has_room,
            needs_acks=self._hurry,
        )

    def _cancel(self, request: requests.CancelRequest) -> None:
        answer = self._answer(request)

        def done(result: requests.Result) -> None:
            self._events.consumers_deleted((request.consumer,))
            self._hand_out_held(request.consumer)
            answer(result)

        self._broker.cancel_consumer(request.consumer, guarded_call(self, done))

    def _credit(self, command: commands.Credit) -> None:
        self._broker.consuming.credit(command)

    def _get(self, request: requests.GetRequest) -> None:
        if request.token not in self._session.state.asked:
            return  # it waited here, and its channel was closed
        if self._held.full:
            self._held.later(guarded_call(self, partial(self._run, request)))
            return
        queue = self._broker.queues.find(self._vhost, request.queue, self._number)
        command = commands.Get(request.consumer, request.session, request.no_ack)
        answer = self._answer(request)

        def got(result: requests.Result) -> None:
            self._counts.got(request, result, queue)
            answer(result)

        self._broker.consuming.get(queue, command, got)

    def _ack(self, command: commands.Settle) -> None:
        self._counts.acknowledged(command.consumer, command.msg_ids)
        self._broker.consuming.acknowledge(command, late=True)

    def _give_up(self, command: commands.Return | commands.Discard) -> None:
        self._broker.consuming.acknowledge(command)

    def _set_aside(self, request: requests.SetAsideRequest) -> None:
        reason = f"{request.reason} ({self._peer})"
        self._broker.consuming.set_aside(request.consumer, request.index, request.msg_id, reason)

    def _forget(self, request: requests.ForgetConsumerRequest) -> None:
        self._counts.consumer_ended(request.consumer, request.session)
        self._broker.consuming.forget(request.consumer, request.session, request.getter)

    def _open_replies(self, request: requests.OpenRepliesRequest) -> None:
        session = request.session

        def take(table: Any, at: int) -> None:
            if not self._held.full:
                self._session.deliver_reply(session, table, at)
                self._flush_later()

        self._reply_names[request.name] = None
        self._broker.replies.open(request.name, guarded_call(self, take))

    def _close_replies(self, request: requests.CloseRepliesRequest) -> None:
        self._reply_names.pop(request.name, None)
        self._broker.replies.close(request.name)


def _done(_: object) -> requests.RequestDone:
    """Return the answer to a change of the definitions."""
    return requests.RequestDone()


_METHODS: dict[type, str] = {
    metadata.DeclareExchange: "exchange.declare",
    metadata.DeleteExchange: "exchange.delete",
    metadata.Bind: "bind",
    metadata.Unbind: "unbind",
}
_HANDLERS: dict[type, Callable[[Client091, Any], None]] = {
    requests.AuthenticateRequest: Client091._authenticate,
    requests.UpdateSecretRequest: Client091._update_secret,
    requests.OpenVhostRequest: Client091._open_vhost,
    requests.CloseConnectionRequest: Client091._close_connection,
    requests.SessionUpRequest: Client091._session_up,
    requests.CheckChannelsRequest: Client091._check_channels,
    requests.SessionDownRequest: Client091._session_down,
    requests.QueueDeclareRequest: Client091._declare_queue,
    requests.QueueDeleteRequest: Client091._delete_queue,
    requests.QueuePurgeRequest: Client091._purge_queue,
    requests.DefineRequest: Client091._define,
    requests.PublishRequest: Client091._publish,
    requests.ConsumeRequest: Client091._checkout,
    requests.CancelRequest: Client091._cancel,
    commands.Credit: Client091._credit,
    requests.GetRequest: Client091._get,
    commands.Settle: Client091._ack,
    commands.Return: Client091._give_up,
    commands.Discard: Client091._give_up,
    requests.SetAsideRequest: Client091._set_aside,
    requests.ForgetConsumerRequest: Client091._forget,
    requests.TraceRequest: Client091._trace,
    requests.OpenRepliesRequest: Client091._open_replies,
    requests.CloseRepliesRequest: Client091._close_replies,
}


def spoken_091(session: Connection, counts: ClientCounts, channels: bool) -> Spoken:
    """Return what was said on an AMQP 0.9.1 connection.

    channels  with its open channels and its consumers
    """
    state = session.state
    return Spoken(
        state.client_properties,
        state.channels_open(),
        state.channel_max,
        state.frame_max,
        session.heartbeat_ms // 1000,
        tuple(
            _channel_info(state.channels[number], counts)
            for number in sorted(state.channels)
            if channels and state.channels[number].state in ("new", "open")
        ),
        tuple(map(_consumed, state.consumers.values())) if channels else (),
    )


def _consumed(one: ChannelConsumer) -> Consumed:
    return Consumed(
        one.number,
        one.channel.number,
        one.queue,
        one.tag,
        one.no_ack,
        one.exclusive,
        one.prefetch,
        one.asked.shown(),
    )


def _channel_info(channel: Channel, counts: ClientCounts) -> ChannelInfo:
    counted = counts.of_channel(channel.session) or ChannelCounts()
    return ChannelInfo(
        channel.number,
        channel.prefetch,
        channel.global_prefetch,
        len(channel.deliveries),
        channel.tx is not None,
        channel.confirm,
        tuple(sorted((one.tag, one.queue) for one in channel.consumers.values())),
        channel.session,
        counted.total[PUBLISH],
        channel.confirmed,
        channel.returned,
        tuple(sorted((name, tuple(row)) for (_, name), row in counted.rows.items())),
        counted.dropped,
        messages_unconfirmed=channel.publishes.unconfirmed if channel.confirm else 0,
        messages_uncommitted=sum(one.last - one.first for one in channel.tx.publishes)
        if channel.tx is not None
        else 0,
        acks_uncommitted=len(channel.tx.acks) if channel.tx is not None else 0,
    )


def channels_counted(session: Connection, counts: ClientCounts) -> list[tuple[SessionId, Row]]:
    """Return the sessions of an AMQP 0.9.1 connection's channels, and what each has counted."""
    return [
        (one.session, counts.row_of(one.session, one.confirmed, one.returned))
        for one in session.state.channels.values()
    ]


class _RequestedRun(PublishedRun):
    """A run of a client's publishes on its way."""

    counted = True

    def __init__(
        self, client: Client091, request: requests.PublishRequest, names: Names | None
    ) -> None:
        self._client, self._request, self.confirms = client, request, request.confirm
        self._shares: list[ExchangeShare] = []
        if names:
            self.names = names

    def routed(self, parts: list[QueuePart]) -> list[QueuePart]:
        """See `PublishedRun`."""
        self._shares = self._client.routed(self._request, parts)
        return parts

    def refused(self, refusal: errors.Refusal) -> None:
        """See `PublishedRun`."""
        self._client.refused(self._request, refusal)

    def sent(self, touched: list[GroupClient]) -> None:
        """See `PublishedRun`."""
        self._client.sent(touched)

    def confirmed(self, number: int, part: QueuePart, ok: bool, refused: list[int] | None) -> None:
        """See `PublishedRun`."""
        self._client.confirmed(self._request, number, ok, refused, self._shares)

    def unknown(self) -> bool:
        """See `PublishedRun`; the relay publishes again."""
        self._client.shut_down(FATE_UNKNOWN)
        return True
