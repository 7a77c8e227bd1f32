"""A stand-in for Azure Service Bus, from Microsoft's documents of its protocol; not the service.

What it does as they describe: CBS at `$cbs` (`put-token`, no link before a token for its audience);
peek-lock with delivery tags that are lock tokens, `x-opt-sequence-number` and `x-opt-locked-until`;
locks that end, after which a message comes again with a higher delivery count; `renew-lock` and
`renew-session-lock` at `ENTITY/$management`; sessions by the filter `com.microsoft:session-filter`,
with group-id as the session; dead letters by `rejected` with their reason; redirects.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from proton import Array, Condition, Data, Delivery, Endpoint, Message, Terminus, symbol, timestamp
from proton.handlers import MessagingHandler
from proton.reactor import Container

from bench.ports import free_ports
from tests.patience import PATIENCE_S
from warren_wire.amqp10.deliveries import begin, handle_of, wrapped

CBS, MANAGEMENT = "$cbs", "$management"
FILTER = symbol("com.microsoft:session-filter")
TICKS_1970 = 621_355_968_000_000_000


@dataclass
class Held:
    """A message in the entity."""

    number: int
    message: Message
    deliveries: int = 0
    until_s: float = 0.0
    token: uuid.UUID | None = None
    delivery: Any = None

    @property
    def session(self) -> str:
        """The session that it is of."""
        return self.message.group_id or ""


@dataclass
class Seen:
    """What clients did."""

    tokens: list[tuple[str, str, str]] = field(default_factory=list)
    renewed: int = 0
    sessions_renewed: int = 0
    expired: int = 0
    dead: list[tuple[bytes, str, dict[str, Any]]] = field(default_factory=list)
    accepted: list[bytes] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    connections: int = 0


class ServiceBus(MessagingHandler):
    """One namespace with one entity, on loopback; a context manager.

    lock_s       how long a message, or a session, is locked
    token        what put-token must give; "": anything
    redirect_to  port that a receiver is sent to; 0: none
    """

    def __init__(
        self, lock_s: float = 30.0, token: str = "", redirect_to: int = 0, cbs: bool = True
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.port = free_ports(1)
        self.hosts = f"127.0.0.1:{self.port}"
        self.lock_s, self.token, self.redirect_to, self.cbs = lock_s, token, redirect_to, cbs
        self.seen = Seen()
        self._lock = threading.RLock()
        self._ready: deque[Held] = deque()
        self._locked: dict[Any, Held] = {}
        self._known: set[Any] = set()
        self._receivers: dict[Any, str | None] = {}
        self._session_until: dict[str, float] = {}
        self._answers: dict[str, Any] = {}
        self._refused: list[Any] = []
        self._numbers = 0
        self._over = False
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ServiceBus:
        self._thread.start()
        assert self._listens.wait(PATIENCE_S)
        return self

    def __exit__(self, *failure: object) -> None:
        self._over = True
        self._thread.join(10)

    def publish(self, bodies: list[bytes], session: str | None = None, ids: bool = False) -> None:
        """Put messages into the entity."""
        with self._lock:
            for body in bodies:
                self._numbers += 1
                named = f"id-{self._numbers}" if ids else None
                made = Message(body=body, inferred=True, group_id=session, id=named)
                self._ready.append(Held(self._numbers, made))

    def left(self) -> int:
        """Return how many messages are not settled."""
        with self._lock:
            return len(self._ready) + len(self._locked)

    # ------------------------------------------------------------ events

    def _run(self) -> None:
        container = Container(self)
        container.container_id = "service-bus"
        container.run()

    def on_start(self, event: Any) -> None:
        self._listener = event.container.listen(self.hosts)
        self._listens.set()
        event.container.schedule(0.02, self)

    def on_timer_task(self, event: Any) -> None:
        with self._lock:
            now = time.time()
            for delivery, held in list(self._locked.items()):
                until = self._session_until.get(held.session, 0.0) if held.session else held.until_s
                if until < now:
                    self.seen.expired += 1
                    del self._locked[delivery]
                    self._ready.appendleft(held)
            for link in list(self._receivers):
                self._give(link)
        while self._refused:
            self._refused.pop().close()
        if self._over:
            event.container.stop()
        else:
            event.container.schedule(0.02, self)

    def on_connection_opening(self, event: Any) -> None:
        self.seen.connections += 1
        event.connection.properties = {symbol("product"): "stand-in"}

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        address = link.remote_target.address if link.is_receiver else link.remote_source.address
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if address in (CBS,) or str(address).endswith(MANAGEMENT):
            if link.is_sender:
                self._answers[link.remote_target.address] = link
            else:
                link.flow(100)
        elif self.cbs and link.connection not in self._known:
            self._refuse(link, "amqp:unauthorized-access", "no token was put")
        elif self.redirect_to:
            info: dict[symbol, Any] = {symbol("hostname"): "127.0.0.1"}
            info |= {symbol("network-host"): "127.0.0.1"}
            info |= {symbol("port"): self.redirect_to, symbol("address"): "moved"}
            self._refuse(link, "amqp:link:redirect", "it has moved", info)
        elif link.is_sender:
            self._opened(link)

    def _refuse(self, link: Any, name: str, text: str, info: Any = None) -> None:
        link.condition = Condition(name, text, info)
        link.source.type = link.target.type = Terminus.UNSPECIFIED
        self._refused.append(link)  # it is opened now, by the handler

    def _opened(self, link: Any) -> None:
        wanted: Any = {}
        found = link.remote_source.filter
        if found.next():
            wanted = found.get_object() or {}
        session = None
        if FILTER in wanted:
            with self._lock:
                taken = set(self._receivers.values())
                free = [h.session for h in self._ready if h.session not in taken]
                session = wanted[FILTER] or next(iter(free), None)
            if session is None:
                self._refuse(link, "com.microsoft:timeout", "no session is free")
                return
            self.seen.sessions.append(session)
            until = self._session_until[session] = time.time() + self.lock_s
            link.source.filter.clear()
            link.source.filter.put_object({FILTER: session})
            ticks = int(until * 10_000_000) + TICKS_1970
            link.properties = {symbol("com.microsoft:locked-until-utc"): ticks}
        self._receivers[link] = session

    def on_link_flow(self, event: Any) -> None:
        if event.link in self._receivers:
            with self._lock:
                self._give(event.link)

    def on_sendable(self, event: Any) -> None:
        """See MessagingHandler."""

    def _give(self, link: Any) -> None:
        session = self._receivers[link]
        if not link.state & Endpoint.REMOTE_ACTIVE:
            return
        while link.credit > 0:
            held = next((h for h in self._ready if session in (None, h.session)), None)
            if held is None:
                break
            self._ready.remove(held)
            held.token = uuid.uuid4()
            held.until_s = time.time() + self.lock_s
            held.message.delivery_count = held.deliveries
            held.message.annotations = {
                symbol("x-opt-sequence-number"): held.number,
                symbol("x-opt-locked-until"): timestamp(int(held.until_s * 1000)),
            }
            held.deliveries += 1
            made = wrapped(begin(handle_of(link), held.token.bytes_le))
            link.stream(held.message.encode())
            link.advance()
            held.delivery = made
            self._locked[made] = held
        if link.drain_mode:
            link.drained()

    def on_delivery(self, event: Any) -> None:
        link, delivery = event.link, event.delivery
        if link.is_receiver:
            if delivery.readable and not delivery.partial:
                data = link.recv(delivery.pending)
                link.advance()
                asked = Message()
                asked.decode(data)
                delivery.update(Delivery.ACCEPTED)
                delivery.settle()
                self._asked(link, asked)
            return
        state = delivery.remote_state
        if not delivery.updated or state == 0:
            return
        with self._lock:
            held = self._locked.pop(delivery, None)
            if held is not None and state == Delivery.ACCEPTED:
                self.seen.accepted.append(bytes(held.message.body))
            elif held is not None and state == Delivery.REJECTED:
                found = delivery.remote.condition
                info = {str(name): value for name, value in (found.info or {}).items()}
                self.seen.dead.append((bytes(held.message.body), found.name, info))
            elif held is not None:
                held.deliveries -= state == Delivery.RELEASED
                self._ready.appendleft(held)
        delivery.settle()

    def on_link_closing(self, event: Any) -> None:
        self._gone(event.link)
        event.link.close()

    def on_disconnected(self, event: Any) -> None:
        for link in [each for each in self._receivers if each.connection == event.connection]:
            self._gone(link)

    def _gone(self, link: Any) -> None:
        """What a lost receiver has locked stays locked until its time."""
        self._receivers.pop(link, None)

    # ------------------------------------------------------------ requests

    def _asked(self, link: Any, asked: Message) -> None:
        operation = asked.properties["operation"]
        status = 200
        body: Any = None
        wanted: Any = asked.body
        if operation == "put-token":
            given = asked.properties
            self.seen.tokens.append((given["type"], given["name"], asked.body))
            if self.token and asked.body != self.token:
                status = 401
            else:
                status = 202
                self._known.add(link.connection)
        elif operation == "com.microsoft:renew-lock":
            tokens = list(wanted["lock-tokens"].elements)
            until = time.time() + self.lock_s
            with self._lock:
                held = {each.token: each for each in self._locked.values()}
                if all(token in held for token in tokens):
                    self.seen.renewed += len(tokens)
                    for token in tokens:
                        held[token].until_s = until
                    times = [timestamp(int(until * 1000))] * len(tokens)
                    body = {"expirations": Array(None, Data.TIMESTAMP, *times)}
                else:
                    status = 410
        elif operation == "com.microsoft:renew-session-lock":
            session = wanted["session-id"]
            until = self._session_until[session] = time.time() + self.lock_s
            self.seen.sessions_renewed += 1
            body = {"expiration": timestamp(int(until * 1000))}
        told = {"status-code": status, "status-description": f"{status}"}
        answer = Message(properties=told, body=body, correlation_id=asked.id)
        sender = self._answers[asked.reply_to]
        made = sender.delivery(uuid.uuid4().hex)
        sender.stream(answer.encode())
        sender.advance()
        made.settle()
