"""The node's side of its HTTP API: it listens, runs the process, and answers its requests.

The process speaks HTTP; this side checks every login and carries requests out as those of
`/management` are, with the same resources and access checks. A socket pair is between the two:
neither a slow client nor a large answer to format takes time of the node's event loop.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from warren_broker.access.requests import TokenAccepted
from warren_broker.admin.answers import rendered
from warren_broker.admin.caller import DOOR_HTTP, Asker
from warren_broker.admin.recording import carry_out
from warren_broker.broker.broker import Broker
from warren_broker.clients.connection_faults import guarded_call
from warren_broker.clients.login import check_login, name_of
from warren_broker.config import NodeConfig
from warren_broker.counting.counters import HTTP_LABEL
from warren_broker.http.doors import listening_socket
from warren_broker.http.frames import (
    HIDDEN_CONDITION,
    REPORT,
    ApiJob,
    ApiListener,
    FrameReader,
    NodeReply,
    ReceivedAsk,
    decode_frame,
    encode_frame,
)
from warren_broker.process.worker_process import WorkerProcess
from warren_broker.settings.http_settings import HttpSsl
from warren_raft.runtime.loop import Loop
from warren_wire import VERSION, errors
from warren_wire.admin.resources import ROUTES
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)
API_WORKER: Final = "warren_broker.http.worker"
API_RESTART_MS: Final = 500
API_RESTART_MS_MAX: Final = 60_000
STEADY_MS: Final = 30_000
"""After a run of that length the next restart is API_RESTART_MS later again."""
API_STOP_MS: Final = 2_000


class VhostHidden(errors.NotFound):
    """A vhost that the user may not enter, which is answered as if there were none."""

    condition = HIDDEN_CONDITION


class _Asking:
    """One request of the process, until it is answered."""

    def __init__(
        self, broker: Broker, connection: int, ask: ReceivedAsk, reply: Callable[..., None]
    ):
        self._broker = broker
        self._connection = connection
        self._ask = ask
        self._reply = reply
        self._answered = False
        self._user = ""  # until it has logged in

    def begin(self) -> None:
        """Check the login; then the request is carried out, or refused."""
        ask = self._ask
        login = (ask.user, ask.password, "PLAIN")
        counted = HTTP_LABEL if ask.login else ""
        check_login(self._broker, ask.peer, login, guarded_call(self, self._logged_in), counted)

    def failed(self, fault: Exception) -> None:
        """Answer an internal fault; it has been logged."""
        self._refuse(errors.InternalError(f"a fault of the node: {type(fault).__name__}"))

    def _logged_in(self, result: Any, why: str) -> None:
        ask = self._ask
        if isinstance(result, errors.Refusal):
            if why:
                log.error(
                    "HTTP API: login of user %s from %s refused: %s",
                    quoted(ask.user),
                    ask.peer,
                    why,
                )
                self._broker.audit.login(DOOR_HTTP, ask.user, ask.peer, "PLAIN", why)
            self._refuse(result)
            return
        rights = result.rights if isinstance(result, TokenAccepted) else None
        self._user = named = name_of(result, ask.user)
        guard = partial(guarded_call, self)
        if ask.login:
            self._broker.audit.http_login(named, ask.peer)
        asked = (self._broker, ask.vhost or "", named, self._connection, guard, rights)
        try:
            self._carry_out(Asker(*asked, in_parts=False, door=DOOR_HTTP, peer=ask.peer))
        except errors.Refusal as refusal:
            self._refuse(refusal)

    def _carry_out(self, asker: Asker) -> None:
        """Raise a Refusal unless the user may use the API, and enter the vhost.

        What an administrator may do in a vhost without permissions there is checked as for all.
        """
        ask = self._ask
        asker.access.must_be("management", "use the HTTP API")
        if ask.vhost is not None:
            asker.scope(ask.vhost)
            if not asker.sees_vhost(ask.vhost):
                raise VhostHidden(f"no vhost '{ask.vhost}' for user '{asker.user}'")
        route, kind = ROUTES[ask.route]
        route.check(asker.access.must_be, len(ask.fields))
        request = route.read(kind, decode_frame(dict, ask.fields), lenient=True)

        def shown(result: Any) -> None:
            self._send(NodeReply(ask.number, *rendered(request, result)))

        answer = guarded_call(self, errors.continued(self._refuse, shown))
        carry_out(asker, request, answer)

    def _refuse(self, refusal: errors.Refusal) -> None:
        if self._user and isinstance(refusal, errors.AccessRefused):
            where = (self._ask.peer, self._ask.route, refusal, self._ask.vhost or "")
            self._broker.audit.refusal(DOOR_HTTP, self._user, *where)
        status, condition = refusal.http_status, refusal.condition
        self._send(NodeReply(self._ask.number, status, refusal.detail, condition))

    def _send(self, reply: NodeReply) -> None:
        if not self._answered:
            self._answered = True
            self._reply(reply)


class HttpApi:
    """The ports of a node's HTTP API, and the process that serves them.

    The ports stay open while a process that has ended is started again: clients wait.

    listeners  the node's other ports, shown by the API
    amqp       where clients connect: scheme, host, port
    _process  the one that was started last; it may have ended
    """

    def __init__(
        self,
        loop: Loop,
        broker: Broker,
        settings: NodeConfig,
        listeners: list[ApiListener],
        amqp: tuple[str, str, int],
    ) -> None:
        """Listen; raises OSError with the address."""
        self._loop = loop
        self._broker = broker
        self._ports = settings.management.ports()
        self._sockets: list[socket.socket] = []
        try:
            for port in self._ports:
                self._sockets.append(listening_socket("management", port.ip, port.port))
        except OSError:
            self._close_sockets()
            raise
        own = [
            ApiListener("https", port.ip, bound, str(port.certfile), str(port.cacertfile or ""))
            if isinstance(port, HttpSsl)
            else ApiListener("http", port.ip, bound)
            for port, bound in zip(self._ports, self._bound(), strict=True)
        ]
        self._job = ApiJob(
            node=settings.node,
            version=VERSION,
            default_queue_type="quorum" if settings.queues.default_type == "quorum" else "classic",
            listeners=(*listeners, *own),
            sockets=tuple(sock.fileno() for sock in self._sockets),
            settings=settings.management.told(),
            amqp=amqp,
            timeout_ms=settings.limits.operation_timeout_ms,
            connections_max=settings.limits.connections_max,
        )
        self.address = f"{own[0].ip}:{own[0].port}"
        self._connection = broker.ids.connection()
        self._reader = FrameReader()
        self._process: WorkerProcess | None = None
        self._restart_ms = API_RESTART_MS
        self._started_ms = 0
        self._closed = False
        self._start()
        for one in own:
            log.info("HTTP API at %s://%s:%d", one.protocol, one.ip, one.port)

    def _bound(self) -> list[int]:
        return [int(sock.getsockname()[1]) for sock in self._sockets]

    # ------------------------------------------------------------ the process

    def _start(self) -> None:
        if self._closed:
            return
        self._started_ms = self._loop.clock.monotonic_ms()
        self._reader = FrameReader()
        watched = (self._received, self._lost, self._broken, API_STOP_MS)
        sockets = [sock.fileno() for sock in self._sockets]
        try:
            self._process = WorkerProcess(self._loop, API_WORKER, *watched, sockets)
        except OSError as error:
            log.error("HTTP API: its process cannot be started: %s", error)
            self._start_later()
            return
        self._process.send(encode_frame(self._job))

    def _broken(self, error: Exception) -> None:
        log.error("HTTP API: its process says what is no request", exc_info=error)
        if self._process is not None:
            self._process.cut()

    def _lost(self) -> None:
        """Handle the end of the process: the next one starts after a delay."""
        if not self._closed:
            log.error("HTTP API: its process has ended; it is started again")
            self._start_later()

    def _start_later(self) -> None:
        if self._loop.clock.monotonic_ms() - self._started_ms > STEADY_MS:
            self._restart_ms = API_RESTART_MS
        self._loop.call_later(self._restart_ms, self._start)
        self._restart_ms = min(self._restart_ms * 2, API_RESTART_MS_MAX)

    def stop(self) -> None:
        """Accept no more, and have the process end; a repeat is harmless."""
        self._closed = True
        self._close_sockets()
        if self._process is not None:
            self._process.cut()

    def kill(self) -> None:
        """End the process without waiting: the node ends."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()

    # ------------------------------------------------------------ requests

    def _received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            ask = decode_frame(ReceivedAsk, frame)
            if ask.route == REPORT:
                self._broker.strangers.reported = decode_frame(dict, ask.fields)
                continue
            _Asking(self._broker, self._connection, ask, partial(_reply, self._process)).begin()


def _reply(process: WorkerProcess | None, reply: NodeReply) -> None:
    """Send an answer to the process that has asked; another one would not know its number."""
    if process is None:
        return
    try:
        data = encode_frame(reply)
    except (OverflowError, TypeError) as error:
        log.error("HTTP API: an answer that cannot be encoded: %s", error)
        data = encode_frame(
            NodeReply(reply.number, 500, f"the answer cannot be encoded: {error}", "internal")
        )
    process.send(data)
