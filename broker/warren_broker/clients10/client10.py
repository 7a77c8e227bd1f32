"""An AMQP 1.0 client: its connection on one side, the broker on the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from warren_broker.access.access import Access
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.requests import RequestDone, TokenAccepted
from warren_broker.access.token_rights import HeldRights
from warren_broker.admin.caller import PERFORMED, Answer, Asker
from warren_broker.admin.recording import carry_out
from warren_broker.admin.resources import HANDLERS
from warren_broker.broker.broker import Broker
from warren_broker.clients.connection_facts import Spoken
from warren_broker.clients.connection_faults import guarded, guarded_call
from warren_broker.clients.protocol_client import ProtocolClient
from warren_broker.clients10 import connection_requests, link_requests
from warren_broker.clients10.blocks10 import BLOCK_HANDLERS
from warren_broker.clients10.connection import Connection10
from warren_broker.clients10.consumers10 import Consumers10
from warren_broker.clients10.link import LinkFault
from warren_broker.clients10.links10 import LINK_HANDLERS
from warren_broker.clients10.views10 import VIEW_HANDLERS
from warren_machines.queue.commands import Acknowledgement
from warren_raft.runtime.net.stream import Stream
from warren_wire import errors
from warren_wire.admin.requests import AdminRequest, Tag
from warren_wire.admin.users import RenewTokenRequest
from warren_wire.amqp10.proton import compiled_engine
from warren_wire.quoting import quoted

DOOR_10: Final = "AMQP 1.0"
TICK_MS_MAX = 10_000
HANDSHAKE_TICK_MS = 500
"""Until an idle timeout is known; the client's may be shorter than TICK_MS_MAX."""
OWN_PRODUCT: Final = "Warren"
"""How the product of this project's own clients begins: they are told why with Open and Close."""
_HANDLERS: dict[type, Callable[[Asker, Any, Callable[[Any], None]], None]] = {
    **HANDLERS,
    **BLOCK_HANDLERS,
    **VIEW_HANDLERS,
    **LINK_HANDLERS,
}


class Targets10:
    """Where the links of one connection publish to.

    As in RabbitMQ, a link to a queue ends when the queue is deleted.

    carry_out  called when the connection has something to send
    """

    def __init__(self, connection: Connection10, carry_out: Callable[[], None]) -> None:
        self._connection = connection
        self._carry_out = carry_out
        self._numbers = 0
        self._watches: dict[int, Callable[[], None]] = {}

    def open(self, asker: Asker, request: link_requests.OpenTarget, answer: Answer) -> None:
        """Check that the client may publish there, and that its queue exists."""
        number = 0
        if not request.anonymous:
            asker.access.publish(request.exchange, ())
            if request.queue:
                number = self._watch(asker, request.queue)
        answer(link_requests.TargetOpened(number))

    def _watch(self, asker: Asker, name: str) -> int:
        """Raise unless there is such a queue; publishing asks no owner, as anywhere else."""
        if asker.broker.replies.exists(name):
            return 0
        queue = asker.broker.queues.find(asker.vhost, name)
        if queue.store_of:
            raise errors.store_refused(name, asker.vhost, queue.store_of)
        self._numbers += 1
        number = self._numbers

        def deleted() -> None:
            gone = errors.ResourceDeleted(f"{errors.named('queue', name, asker.vhost)} was deleted")
            self._connection.target_deleted(number, gone)
            self._carry_out()

        self._watches[number] = asker.broker.queues.watch(queue, asker.guard(deleted))
        return number

    def close(self, asker: Asker, request: link_requests.CloseTarget, answer: Answer) -> None:
        """Forget a link's target."""
        end = self._watches.pop(request.number, None)
        if end is not None:
            end()

    def closed(self) -> None:
        """Forget all: the connection is lost."""
        for end in self._watches.values():
            end()
        self._watches.clear()
        self._carry_out = _nothing

    def handlers(self) -> dict[type, Callable[[Asker, Any, Answer], None]]:
        """Return the handlers of the links' requests."""
        return {link_requests.OpenTarget: self.open, link_requests.CloseTarget: self.close}


def _nothing() -> None:
    """Do nothing: the connection is lost."""


class Client10(ProtocolClient):
    """An AMQP 1.0 connection."""

    def __init__(self, broker: Broker, config: ConnectionConfig, stream: Stream, peer: str) -> None:
        super().__init__("1.0", broker, stream, peer)
        self._connection = Connection10(
            container=broker.settings.node,
            config=config,
            must_be=self._must_be,
            lends_credit=not has_assertions(),
        )
        self._consumers = Consumers10(
            broker,
            self._connection,
            self._log,
            self._counts,
            self._carry_out,
            partial(guarded_call, self),
        )
        self._targets = Targets10(self._connection, self._carry_out)
        self._ended = False
        self._rights: HeldRights | None = None
        self._paused_ms = self._unread_ms = 0  # since when, and how long, nothing was read
        self._handlers = {
            **_HANDLERS,
            **self._consumers.handlers(),
            **self._targets.handlers(),
        }

    def _spoken(self, channels: bool) -> Spoken:
        idle_s = self._broker.settings.limits.heartbeat_s
        consumers = self._consumers.consumed() if channels else ()
        connection = self._connection
        return Spoken(connection.client, *connection.tuned, idle_s, consumers=consumers)

    def _gauges(self) -> tuple[int, int, bool]:
        publishers = self._connection.publishers
        return publishers, len(self._consumers), self._connection.short and publishers > 0

    @property
    def logged_in(self) -> tuple[str, str] | None:
        """See `listener.Client`."""
        connection = self._connection
        vhost = connection.vhost if connection.opened else ""
        return (connection.user, vhost) if connection.user else None

    @property
    def by_token(self) -> bool:
        """See `listener.Client`."""
        return self._rights is not None

    # ------------------------------------------------------------ for the socket

    def received(self, data: bytes) -> None:
        """Process bytes from the socket, in turns where they are much work."""
        work = self._connection.reading(data, self._share.steps)
        self._share.run(work, self._read, self.failed)
        self._carry_out()
        if self._timer is None:
            self._tick()

    def _read(self, nothing: None) -> None:
        if self._connection.keyed_bytes:
            self._read_less(self._connection)

    def drained(self) -> None:
        """Write what was held back while the socket was congested."""
        self._flush_later()

    @guarded
    def closed(self, error: Exception | None) -> None:
        """Handle the end of the socket."""
        self._socket_ended(error)
        self._connection.end_of_input()
        self._run_requests()  # outcomes that were gathered
        self._consumers.closed()
        self._targets.closed()
        self._handlers = {}
        self._connection.free()
        self._events.closed()
        self._counts.closed()
        self._broker.connection_gone(self._number, lambda result: None)

    @guarded
    def shut_down(self, reason: str) -> None:
        """Close the connection: the node stops."""
        self._connection.close(errors.ConnectionForced(reason))
        self._carry_out()

    def blocked(self, reasons: tuple[str, ...]) -> None:
        """Handle a change of the resource alarms: links for blocks get no credit meanwhile.

        The connection is still read: heartbeats, management and readers' requests continue.
        """
        self._connection.short = bool(reasons)
        self._flush_later()

    @guarded
    def _tick(self) -> None:
        if self._gone or self._ended:
            return
        loop = self._broker.cluster.loop
        now_ms = loop.clock.monotonic_ms() - self._unread_ms
        next_ms = None if self._stream.paused else self._connection.tick(now_ms)
        if next_ms is None:
            delay = HANDSHAKE_TICK_MS
        else:
            delay = min(max(next_ms - now_ms, 100), TICK_MS_MAX)
        self._timer = loop.call_later(delay, self._tick)
        self._flush_later()

    def _pace(self) -> None:
        """Read the socket while the client takes its answers.

        Meanwhile time stands still for the engine, which would find the client silent.
        """
        wanted = self._connection.wants_input and not self._share.busy
        if self._gone or self._ended or wanted != self._stream.paused:
            return
        now_ms = self._broker.cluster.loop.clock.monotonic_ms()
        if wanted:
            self._unread_ms += now_ms - self._paused_ms
            self._stream.resume_reading()
        else:
            self._paused_ms = now_ms
            self._stream.pause_reading()

    def _send_output(self) -> None:
        if not self._stream.congested:
            output = self._connection.take_output()
            if output:
                self._stream.write(output)
                self._pace()
            self._run_requests()  # links with room again fetch more
            self._consumers.ask_again()
            if output and not self._stream.congested:
                self._flush_later()
                return
        if self._connection.done and not self._ended:
            self._ended = True
            self._log.ended(self._connection.failure)
            self._stream.end()  # the client may still be sending: it is to read why

    def _carry_out(self) -> None:
        self._run_requests()
        for fault in self._connection.take_faults():
            where = f"link {quoted(fault.link)}" if fault.link else "the connection"
            self._log.failed(where, fault.operation, fault.refusal)
            if isinstance(fault.refusal, errors.AccessRefused):
                self._refused(fault)
        self._pace()
        self._flush_later()

    # ------------------------------------------------------------ requests

    def _take_requests(self) -> bool:
        self._later += self._connection.take_requests()
        return bool(self._later)

    def _run(self, request: Any) -> None:
        if isinstance(request, Acknowledgement):
            self._consumers.acknowledge(request)
            return
        handler = self._handlers.get(type(request))
        answer = self._answerer(request)
        if isinstance(request, connection_requests.Login):
            self._log_in(request, answer)
            return
        if isinstance(request, connection_requests.OpenVhost):
            self._open_vhost(request, answer)
            return
        if isinstance(request, RenewTokenRequest) and self._rights is not None:
            self._renew(self._rights, request, answer)
            return
        if handler is None:
            answer(errors.NotImplementedHere(type(request).__name__))
            return
        asker = Asker(
            self._broker,
            self._connection.vhost,
            self._connection.user,
            self._number,
            partial(guarded_call, self),
            self._rights,
            door=DOOR_10,
            peer=self._peer,
        )
        of_admin = isinstance(request, AdminRequest)
        act = carry_out if of_admin and request.changes() else handler

        def run() -> None:
            try:
                act(asker, request, answer)
            except errors.Refusal as refusal:
                answer(refusal)

        if of_admin and request.reads_many():
            self._share.run_alone(run)
        else:
            run()

    def _refused(self, fault: LinkFault) -> None:
        made, action = self._connection, fault.operation or f"link {fault.link}"
        whose = (DOOR_10, made.user, self._peer, action)
        self._broker.audit.refusal(*whose, fault.refusal, made.vhost)

    def _log_in(self, request: connection_requests.Login, answer: Answer) -> None:
        def done(result: RequestDone | TokenAccepted) -> connection_requests.LoggedIn:
            if not isinstance(result, TokenAccepted):
                return connection_requests.LoggedIn()
            self._rights = result.rights
            return connection_requests.LoggedIn(result.rights.user)

        login = (request.user, request.password, request.mechanism)
        logged_in = errors.converted(answer, done)
        self._log_in_turn(login, self._expiring(logged_in))

    def _renew(self, held: HeldRights, request: RenewTokenRequest, answer: Answer) -> None:
        vhost, user = self._connection.vhost, self._connection.user

        def done(result: Any) -> None:
            if not isinstance(result, TokenAccepted) or self._gone:
                answer(result)
                return
            self._rights = result.rights
            answer(PERFORMED)
            self._consumers.rights_changed(Access(self._broker, vhost, user, self._rights))

        secret = request.secret.decode("utf-8", "surrogateescape")
        self._broker.logins.renew(held, vhost, secret, self._expiring(done))

    def _open_vhost(self, request: connection_requests.OpenVhost, answer: Answer) -> None:
        settings = self._broker.settings

        def done(result: Any) -> None:
            client = self._connection.client
            if isinstance(result, errors.NotAllowed) and not self._gone:
                # Clients of RabbitMQ connect again and again where they get Open and then Close.
                if not client.get("product", "").startswith(OWN_PRODUCT):
                    self._connection.hang_up(result)
                    self._carry_out()
                    return
            if isinstance(result, errors.Refusal) or self._gone:
                answer(result)
                return
            self._counts.opened(request.vhost)
            self._log.opened(request.user, request.vhost, client, client.get("container", ""))
            self._events.opened(request.user, request.vhost, client)
            answer(connection_requests.VhostOpened(settings.node, settings.cluster))

        self._broker.logins.enter_vhost(
            self._number,
            request.vhost,
            request.user,
            guarded_call(self, done),
            manages=True,
            rights=self._rights,
            properties=self._connection.client,
        )

    def _must_be(self, tag: Tag, what: str) -> None:
        own = self._connection
        Access(self._broker, own.vhost, own.user, self._rights).must_be(tag, what)

    def _answerer(self, request: Any) -> Answer:
        token = request.token

        def answer(result: Any) -> None:
            if not self._gone:
                self._connection.answer(token, result)
                self._carry_out()

        return guarded_call(self, answer)


@cache
def has_assertions() -> bool:
    """Return whether an assertion of the engine would end the process.

    Python's own flags compile extensions without; then nothing in the engine refers to the C
    library's function for an assertion that fails.
    """
    return b"__assert" in Path(compiled_engine).read_bytes()
