"""One TCP connection to one node: Proton's engine over a non-blocking socket."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from warren.client_tls import TlsSocket, secure
from warren.errors import (
    AccessRefused,
    ConnectionLost,
    DeadlinePassed,
    PeerError,
    UsageError,
    WarrenError,
    refusal,
)
from warren.login_secrets import LoginSecrets
from warren.uri import Address
from warren_wire.admin.overview import API_OFFERED, API_PROPERTY, api_spoken
from warren_wire.amqp10.addresses import MANAGEMENT, WARREN_ANSWERS
from warren_wire.amqp10.client import CONNECTION, SESSION, TRANSPORT, ClientEngine, ClientLink
from warren_wire.amqp10.proton import (
    Condition,
    Delivery,
    Link,
    Message,
    MessageException,
    Session,
    symbol,
)

READ_BYTES = 1 << 20
STEP_S_MAX = 1.0
REPLIES_MAX = 64
Request: TypeAlias = tuple[str, str, Any]
"""Method, path and body of a management request."""


class LinkHandler(ClientLink):
    """The callbacks of one link, called by the wire while it runs.

    failure  set when the peer closed the link with an error; ended: set when it closed the link
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.ended = False
        self.failure: WarrenError | None = None

    def closed(self, condition: Condition | None) -> None:
        """Handle the close or detach of the link by the peer."""
        self.ended = True
        if condition is not None:
            self.failure = refusal_of(condition)
        self.link.close()
        self.link.free()


HandlerT = TypeVar("HandlerT", bound=LinkHandler)


class Wire:
    """A connection that is open, or permanently lost.

    All work is done inside `run`: the thread that waits drives the socket. Not thread-safe.
    """

    def __init__(
        self,
        host: tuple[str, int],
        address: Address,
        name: str,
        deadline: float,
        secrets: LoginSecrets | None = None,
    ) -> None:
        """secrets: of which the address has the current one; the node is given those after it."""
        self.host = host
        self._lost: WarrenError | None = None
        self._names = 0
        self._pairs = 0
        self._outgoing: deque[memoryview] = deque()
        self._read_buffer = bytearray(READ_BYTES)
        self._requests: _Requests | None = None
        self._renewal: _SecretRenewal | None = None
        self._open = False
        self._socket = _connect(host, address, deadline)
        self._client = ClientEngine(
            name,
            f"vhost:{address.vhost}",
            {"product": "Warren client"},
            address.heartbeat_s,
            address.sasl_mechanism,
            address.user,
            address.password,
            self._opened,
            self._over,
        )
        self._control = self._client.session()
        self._bulk = self._client.session()
        try:
            self.run(lambda: self._open, deadline)
        except BaseException:
            self.abandon()
            raise
        if secrets is not None:
            self._renewal = _SecretRenewal(self, self._control, secrets, address.password)

    @property
    def lost(self) -> WarrenError | None:
        """Why the connection is lost; None: it is usable."""
        return self._lost

    # -------------------------------------------------------------- for the layers above

    def request_all(self, asked: Sequence[Request], deadline: float) -> list[tuple[int, object]]:
        """Make management requests at once; return status and body of each answer."""
        if self._requests is not None and self._requests.ended:
            self._requests.close()
            self._requests = None
        if self._requests is None:
            self._pairs += 1
            self._requests = _Requests(self, self._control, f"management-{self._pairs}")
        return self._requests.request_all(asked, deadline)

    def attach(
        self, make: Callable[[Session, str], HandlerT], session: Session | None = None
    ) -> HandlerT:
        """Attach a link; `make` gets a new name and a session, by default that for bulk data."""
        self._names += 1
        handler = make(self._bulk if session is None else session, f"link-{self._names}")
        self._client.attach(handler)
        return handler

    def detach(self, handler: LinkHandler) -> None:
        """Close a link; later deliveries on it are dropped."""
        if self._lost is None and not handler.ended:
            handler.link.close()

    def run(self, done: Callable[[], bool], deadline: float) -> None:
        """Drive the connection until `done`.

        Raises the reason when the connection is lost (ConnectionLost, AccessRefused …), or
        Unavailable when the deadline (time.monotonic) passes; then the connection is still usable.
        """
        while True:
            self._client.handle()
            if done():
                self._send()
                return
            if self._lost is not None:
                raise self._lost
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlinePassed(f"no answer from {_text(self.host)} before the deadline")
            self.step(min(left, STEP_S_MAX))

    def step(self, timeout_s: float) -> None:
        """Send and receive; wait at most that long for either."""
        if self._renewal is not None and self._lost is None:
            refused = self._renewal.step()
            if refused:
                self._lose(refused)
        self._send()
        if self._lost is not None:
            return
        writing = [self._socket] if self._outgoing else []
        try:
            readable, writable, _ = select.select([self._socket], writing, [], timeout_s)
            if timeout_s and not (readable or writable):
                # A process that was stopped and continued returns from the wait without a look at
                # the socket: what has come meanwhile counts before the idle timeout.
                readable, writable, _ = select.select([self._socket], writing, [], 0)
        except (OSError, ValueError) as error:
            self._lose(f"waiting failed: {error}")
            return
        if readable:
            self._receive()
        if writable:
            self._send()
        self._client.engine.tick(int(time.monotonic() * 1000))

    def poll(self) -> None:
        """Process pending input without waiting; sets `lost` when the connection has ended."""
        if self._lost is None:
            self.step(0.0)
            self._client.handle()

    def close(self, deadline: float) -> None:
        """Close the connection, then the socket; never raises."""
        if self._lost is None:
            self._client.close()
            engine = self._client.engine
            try:
                self.run(lambda: engine.output_ended and not self._outgoing, deadline)
            except WarrenError:
                pass  # the peer has closed already, or is slow: nothing depends on its answer
        self.abandon()

    def abandon(self) -> None:
        """Close the socket at once."""
        if self._lost is None:
            self._lost = ConnectionLost("the connection was closed by this program")
        self._socket.close()

    # -------------------------------------------------------------- socket

    def _send(self) -> None:
        while self._lost is None:
            if not self._outgoing:
                self._outgoing.extend(memoryview(piece) for piece in self._client.engine.output())
                if not self._outgoing:
                    return
            try:
                sent = self._socket.sendmsg(list(self._outgoing)[:64])
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(f"sending failed: {error.strerror or error}")
                return
            except WarrenError as error:  # of TLS
                self._lost = error
                return
            self._drop_sent(sent)

    def _drop_sent(self, sent: int) -> None:
        while sent:
            head = self._outgoing[0]
            if sent < len(head):
                self._outgoing[0] = head[sent:]
                return
            sent -= len(head)
            self._outgoing.popleft()

    def _receive(self) -> None:
        # What TLS has decrypted does not make the socket readable: a full buffer may not be all.
        while self._lost is None and self._receive_once() == READ_BYTES:
            pass

    def _receive_once(self) -> int:
        """Read what is there, at most READ_BYTES, and process it; return how much it was."""
        try:
            size = self._socket.recv_into(self._read_buffer)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._lose(f"receiving failed: {error.strerror or error}")
            return 0
        except WarrenError as error:  # of TLS
            self._lost = error
            return 0
        if size == 0:
            self._client.end_of_input()
            self._lose("the node closed it")
            return 0
        with memoryview(self._read_buffer) as view:
            self._client.receive(view[:size])
        return size

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = ConnectionLost(f"connection to {_text(self.host)} lost: {why}")

    # -------------------------------------------------------------- events

    def _opened(self) -> None:
        told = self._client.engine.connection.remote_properties or {}
        offered = {str(key): str(value) for key, value in told.items()}.get(API_PROPERTY)
        # A broker that does not say it is none of this product: what it has is seen when it is
        # asked.
        self._open = offered is None or api_spoken(offered) > 0
        if not self._open:
            self._lost = PeerError(
                f"the node at {_text(self.host)} speaks versions {offered} of the client's "
                f"requests, this client {API_OFFERED}: install a client of the broker's release, "
                "or of the one before or after it"
            )

    def _over(self, what: str, condition: Any) -> None:
        """End the connection; the first reason is kept."""
        if self._lost is not None:
            return
        if condition is None:
            self._lose(_OVER[what])
            return
        error = refusal_of(condition)
        where = _text(self.host)
        if isinstance(error, AccessRefused) and not self._open:
            self._lost = AccessRefused(
                f"{where} refused the login: {error.detail}", status=401, condition=error.condition
            )
        elif isinstance(error, PeerError) and condition.name in _FINAL:
            self._lost = error
        else:
            self._lost = ConnectionLost(f"connection to {where} lost: {error}")


_OVER = {
    SESSION: "the node ended a session",
    CONNECTION: "the node closed it",
    TRANSPORT: "the protocol was violated",
}
_FINAL = frozenset(
    {
        "amqp:not-allowed",
        "amqp:not-found",
        "amqp:unauthorized-access",
        "amqp:invalid-field",
        "amqp:precondition-failed",
    }
)
"""Conditions of a close by one node that every other node would repeat."""


def _encoded(number: int, asked: Request) -> bytes:
    """Return a request as a message; raises UsageError for a body that AMQP 1.0 cannot carry."""
    method, path, body = asked
    message = Message(id=number, address=path, subject=method, reply_to="$me", body=body)
    message.inferred = True
    try:
        encoded: bytes = message.encode()
    except (ArithmeticError, LookupError, ValueError) as problem:
        raise UsageError(
            f"{method} {path}: a value cannot be sent ({problem}); numbers have at most 64 bits, "
            "text is Unicode without lone surrogates, and there are no types but those of JSON"
        ) from problem
    return encoded


class _Requests:
    """The pair of links to `/management`: requests out, answers in."""

    def __init__(self, wire: Wire, session: Session, name: str) -> None:
        self._wire = wire
        self._name = name
        self._answers: dict[int, Message] = {}
        self._next = 0
        self._sender = wire.attach(self._make_sender, session)
        self._receiver = wire.attach(self._make_receiver, session)

    def request_all(self, asked: Sequence[Request], deadline: float) -> list[tuple[int, object]]:
        """Send the requests, in this order, and wait for all answers.

        At most REPLIES_MAX are without an answer at a time: so many are stored.
        """
        found: list[tuple[int, Any]] = []
        for first in range(0, len(asked), REPLIES_MAX):
            found += self._request_some(asked[first : first + REPLIES_MAX], deadline)
        return found

    def _request_some(self, asked: Sequence[Request], deadline: float) -> list[tuple[int, object]]:
        numbers = [self._send(each, deadline) for each in asked]
        self._wire.run(lambda: self.ended or self._answers.keys() >= set(numbers), deadline)
        answers = [self._answers.pop(number, None) for number in numbers]
        found = [(int(each.subject or 0), plain(each.body)) for each in answers if each is not None]
        if len(found) < len(asked):
            raise (
                self._sender.failure
                or self._receiver.failure
                or ConnectionLost("management link was closed")
            )
        return found

    def _send(self, asked: Request, deadline: float) -> int:
        """Hand a request to the engine unless the links have ended; return its number.

        What was handed over before leaves with it: a run of the wire would send that alone. It is
        encoded before the link knows of it: a delivery that is begun and has no message would be
        the beginning of the next one, and that be answered without its number.
        """
        self._next += 1
        number = self._next
        encoded = _encoded(number, asked)
        if self._sender.link.credit <= 0:
            self._wire.run(lambda: self._sender.link.credit > 0 or self.ended, deadline)
        if not self.ended:
            delivery = self._sender.link.delivery(str(number))
            self._sender.link.stream(encoded)
            self._sender.link.advance()
            delivery.settle()
        return number

    def ask(self, asked: Request) -> int:
        """Hand a request to the engine without waiting; return its number, 0: not now."""
        if self.ended or self._sender.link.credit <= 0:
            return 0
        return self._send(asked, 0.0)

    def answer(self, number: int) -> tuple[int, Any] | None:
        """Take the answer to a request; None: it is not there yet."""
        found = self._answers.pop(number, None)
        return None if found is None else (int(found.subject or 0), plain(found.body))

    def close(self) -> None:
        """Detach the links that are still attached."""
        for handler in (self._sender, self._receiver):
            self._wire.detach(handler)

    @property
    def ended(self) -> bool:
        """Whether either link has ended, so that neither is usable."""
        return self._sender.ended or self._receiver.ended

    def _make_sender(self, session: Session, name: str) -> LinkHandler:
        link = session.sender(self._name)
        link.target.address = MANAGEMENT
        link.source.address = MANAGEMENT
        link.snd_settle_mode = link.SND_SETTLED
        link.properties = {symbol("paired"): True, symbol(WARREN_ANSWERS): True}
        return _ManagementSender(link)

    def _make_receiver(self, session: Session, name: str) -> LinkHandler:
        link = session.receiver(self._name)
        link.source.address = MANAGEMENT
        link.target.address = MANAGEMENT
        link.properties = {symbol("paired"): True}
        link.flow(REPLIES_MAX)
        return _ManagementReceiver(link, self._answers)


class _SecretRenewal:
    """The passwords that follow each other on a connection: `PUT /auth/tokens`, one at a time.

    The node's answer is not waited for: it is looked at when the connection is driven.

    _number  of the request without an answer; 0: there is none
    """

    def __init__(self, wire: Wire, session: Session, secrets: LoginSecrets, password: str) -> None:
        self._requests = _Requests(wire, session, "renewal")
        self._secrets = secrets
        self._password = password
        self._number = 0

    def step(self) -> str:
        """Send what is due; return why the connection cannot continue, "" while it can."""
        if self._number:
            answer = self._requests.answer(self._number)
            if answer is None:
                return "the node ended the link of renewals" if self._requests.ended else ""
            self._number = 0
            if answer[0] >= 400:
                return f"the node refused the next token: {answer[0]} {answer[1]}"
        following = self._secrets.following(self._password)
        if following is not None:
            self._number = self._requests.ask(("PUT", "/auth/tokens", following.encode()))
            if self._number:
                self._password = following
        return ""


class _ManagementSender(LinkHandler):
    """The link for requests, which are sent settled: only the answer matters."""

    def delivered(self, delivery: Delivery) -> None:
        delivery.settle()


class _ManagementReceiver(LinkHandler):
    """The link for answers, which are stored by correlation id."""

    def __init__(self, link: Link, answers: dict[int, Message]) -> None:
        super().__init__(link)
        self._answers = answers

    def delivered(self, delivery: Delivery) -> None:
        """Store an answer; one that no request waits for is dropped with the oldest."""
        if delivery.partial or not delivery.readable:
            return
        message = Message()
        try:
            message.decode(self.link.recv(delivery.pending))
        except MessageException as error:
            self.failure = PeerError(f"an answer from /management cannot be read: {error}")
            self.ended = True
            return
        delivery.settle()  # which advances the link
        self.link.flow(1)
        while len(self._answers) >= REPLIES_MAX:
            del self._answers[next(iter(self._answers))]
        self._answers[int(message.correlation_id)] = message


def plain(value: Any) -> Any:
    """Convert a decoded AMQP value to Python's own numbers, texts and bytes.

    Proton returns binary values as views of the message's memory, which ends with the message.
    """
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, memoryview):
        return bytes(value)
    return str(value) if isinstance(value, str) else value


def refusal_of(condition: Any) -> WarrenError:
    """Return the error for an AMQP error that the peer sent."""
    info = condition.info if isinstance(condition.info, dict) else {}
    status = info.get("status", 0)
    return refusal(
        int(status) if isinstance(status, int) else 0,
        str(condition.name),
        str(condition.description or condition.name),
    )


def _connect(host: tuple[str, int], address: Address, deadline: float) -> socket.socket | TlsSocket:
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlinePassed(f"no time left to connect to {_text(host)}")
    try:
        made = socket.create_connection(host, timeout=left)
    except OSError as error:
        raise ConnectionLost(
            f"cannot connect to {_text(host)}: {error.strerror or error}"
        ) from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.tls is not None:
        return secure(made, host, address.tls, deadline)
    made.setblocking(False)
    return made


def _text(host: tuple[str, int]) -> str:
    return f"{host[0]}:{host[1]}"
