"""One AMQP 1.0 connection of a client: bytes in, requests out; answers in, bytes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.sasl10 import SaslFailed, SaslServer, SaslState
from warren_broker.clients10.connection_bounds import (
    DISCARDED_MAX,
    LINKS_MAX,
    ConnectionBounds,
    FetchedAhead,
)
from warren_broker.clients10.connection_requests import (
    AnyAnswer,
    AnyRequest,
    LoggedIn,
    Login,
    OpenVhost,
    VhostOpened,
)
from warren_broker.clients10.consuming_link import ConsumingLink, RetiredConsumer
from warren_broker.clients10.dynamic_nodes import VOLATILE_QUEUE, dynamic_source, dynamic_target
from warren_broker.clients10.link import (
    LinkFault,
    LinkPart,
    OnAnswer,
    accept_attach,
    announces_blocks,
    condition_of,
    refuse_attach,
    source_address,
    target_address,
)
from warren_broker.clients10.link_requests import PublishOutcomes, Ranges
from warren_broker.clients10.management_link import AnswersLink, RequestsLink
from warren_broker.clients10.publishing_link import PublishingLink
from warren_broker.clients10.receiver import BlocksLink
from warren_broker.clients10.replies_link import RepliesLink
from warren_broker.clients10.sender import PiecesLink
from warren_machines.queue import commands
from warren_machines.steps import STEPS_UNBOUNDED, Steps, Work, whole
from warren_wire.admin.overview import API_OFFERED, API_PROPERTY
from warren_wire.admin.requests import Request, Tag, Token
from warren_wire.amqp10.addresses import (
    AnonymousTarget,
    ExchangeTarget,
    ManagementNode,
    QueueSource,
    QueueTarget,
    parse_source,
    parse_target,
)
from warren_wire.amqp10.deliveries import Frames, Handle, handle_of, holds_transfer, session_of
from warren_wire.amqp10.engine import CHANNEL_MAX, OUTPUT_BYTES, Engine
from warren_wire.amqp10.fields import check_attach, check_open, link_name, read_map
from warren_wire.amqp10.link_flows import LinkFlows
from warren_wire.amqp10.proton import Condition, Event, Link, ProtonException, Session, symbol
from warren_wire.amqp10.send_ahead import SendAhead
from warren_wire.block.block import Block
from warren_wire.errors import (
    AccessRefused,
    ConnectionForced,
    NotAllowed,
    Refusal,
    ResourceError,
    SyntaxRefused,
    Unavailable,
    continued,
    login_refused,
)
from warren_wire.kernel import MessageTable
from warren_wire.links.uris import OWN_CLUSTER

VHOST_PREFIX = "vhost:"
DEFAULT_VHOST = "/"
FRAME_UNLIMITED = 0xFFFF_FFFF
"""Bytes of a frame for a client that says no limit."""
EVENTS_PER_STEP = 2
"""Events of the engine that are one of the steps of a turn."""
REQUESTS_HELD_MAX = 256
"""Pending requests of a client that does not wait for Open's answer."""


class Connection10:
    """A connection from its protocol header on, without a socket and a clock.

    user, vhost  set once `opened`
    opened       the vhost was opened; before that only Login and OpenVhost are requested
    client      the client's own description: container id, product, version
    faults      refusals, for the log
    failure     why the connection ends, for the log; "" while it is open
    limits      of the connection, and this node's description of itself
    done        nothing more will be sent: when `take_output` is empty, the socket is to be closed

    Invariant: every token in `_waiting` was returned once by `take_requests` (or is held until
    `opened`) and is answered at most once
    """

    def __init__(
        self,
        *,
        container: str,
        config: ConnectionConfig | None = None,
        lends_credit: bool = True,
        must_be: Callable[[Tag, str], None] | None = None,
    ) -> None:
        self.lends_credit = lends_credit
        self._must_be = must_be
        self.limits = config or ConnectionConfig()
        self.in_flight_bytes = 0
        self.unfinished_bytes = 0
        self.keyed_bytes = 0
        self.fetched = FetchedAhead(self.limits.send_ahead_bytes_max)
        self.bounds = ConnectionBounds(self.limits.undelivered_bytes_max, self.limits.unsettled_max)
        self.short = False
        self.consumers: dict[int, ConsumingLink | RetiredConsumer] = {}
        self.reply_links: dict[str, RepliesLink] = {}
        self.target_links: dict[int, PublishingLink] = {}
        self.user = ""
        self._unavailable: Unavailable | None = None
        self.vhost = ""
        self.client: dict[str, str] = {}
        self.faults: list[LinkFault] = []
        self.opened = False
        self.failure = ""
        self._sasl: SaslServer | None = SaslServer(self.limits)
        idle_timeout_s = float(self.limits.heartbeat_s)
        self._engine = Engine(server=True, container=container, idle_timeout_s=idle_timeout_s)
        self._engine.bind()
        self.flows = LinkFlows(self._engine)
        self.ahead = SendAhead(self.limits.send_ahead_bytes_max, self._engine.bytes_ahead)
        self.frames: Frames = self._engine
        self._links: dict[Link, LinkPart] = {}
        self._of_session: dict[Handle, dict[Link, None]] = {}
        self._management: dict[tuple[Handle, str], dict[Link, AnswersLink | RequestsLink]] = {}
        self._to_flush: dict[LinkPart, None] = {}
        self._requests: list[AnyRequest] = []
        self._held: list[AnyRequest] = []
        self._waiting: dict[Token, OnAnswer] = {}
        self._next_token: Token = 1
        self._early = bytearray()
        self._ended = False
        self._receiving = False

    # -------------------------------------------------------------- for the socket

    @property
    def done(self) -> bool:
        """Whether nothing more will be sent."""
        return self._ended or self._engine.output_ended

    @property
    def wants_input(self) -> bool:
        """Whether the client takes what it is answered: else nothing more is to be read."""
        return self._is_closing() or self._engine.has_room

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Process received bytes at once."""
        whole(self.reading(data, Steps(STEPS_UNBOUNDED)))

    def reading(self, data: bytes | bytearray | memoryview, steps: Steps) -> Work[None]:
        """Process received bytes; those after this end's close are discarded, as 2.4.6 has it.

        Some events are a step. One frame makes one for each of the deliveries that it names, and
        one read may have thousands of such frames.
        """
        if self._is_closing():
            return
        if self._sasl is not None:
            self._receive_sasl(data)
            return
        self._handle_events()  # of what was sent: those that follow are of what the client sent
        self._receiving = True
        taken = self._engine.events_taken
        for _ in self._engine.receive(data, self.bounds.unsettled):
            self._handle_events()
            if self._is_closing():
                break
            steps_taken = (self._engine.events_taken - taken) // EVENTS_PER_STEP
            taken += steps_taken * EVENTS_PER_STEP
            if steps_taken and steps.take(steps_taken):
                self._receiving = False
                self._flush_links()
                yield
                self._receiving = True
        self._receiving = False
        self._flush_links()

    def _is_closing(self) -> bool:
        return self.failure != ""

    def end_of_input(self) -> None:
        """Handle the end of input: the connection is lost unless it was closed."""
        if self._sasl is None and not self._ended:
            self._engine.end_of_input()
            self._handle_events()
        self._end("the client closed the connection")

    def take_output(self, limit: int = OUTPUT_BYTES) -> list[bytes | bytearray]:
        """Return bytes to send, about `limit` at most; call again when they have been sent."""
        out: list[bytes | bytearray] = []
        if self._sasl is not None:
            self._early, self._sasl.output = self._sasl.output, bytearray()
        if self._early:  # the outcome of the login precedes the connection's own bytes
            out.append(bytes(self._early))
            self._early.clear()
        if self._sasl is not None:
            return out
        size = 0
        while size < limit and not self._ended:
            pieces = self._engine.output(limit - size)
            out.extend(pieces)
            size += sum(len(piece) for piece in pieces)
            if not self._wake_links() and not pieces:
                break
        if self._engine.failure and not self.failure:
            self._forget(self._engine.failure)
        self._flush_links()
        return out

    def take_faults(self) -> list[LinkFault]:
        """Return and clear the faults to be logged, in order."""
        taken, self.faults = self.faults, []
        return taken

    def take_requests(self) -> list[AnyRequest]:
        """Return and clear the requests to carry out, in order; each is answered by its token."""
        requests, self._requests = self._requests, []
        return requests

    def answer(self, token: Token, result: AnyAnswer) -> None:
        """Handle a request's result; dropped after the end of the connection."""
        if isinstance(result, PublishOutcomes) and not result.last:
            on_answer = self._waiting.get(token)
        else:
            on_answer = self._waiting.pop(token, None)
        if on_answer is not None and not self._ended:
            on_answer(result)
            self._handle_events()
            self._flush_links()

    def deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
        """Take a queue's messages for one of the consumers."""
        part = self.consumers.get(consumer)
        if part is not None:
            part.deliver(delivery, block)
            self._flush_links()

    def missed(self, consumer: int, msg_id: int) -> None:
        """Note that a consumer's deliveries below this one which are missing never come."""
        part = self.consumers.get(consumer)
        if part is not None:
            part.missed(msg_id)
            self._flush_links()

    def timed_out(self, consumer: int, msg_ids: Ranges) -> bool:
        """Release deliveries that a consumer held for too long; none: all that it holds.

        Return whether it is the first time on its link.
        """
        part = self.consumers.get(consumer)
        if part is None:
            return False
        first = part.timed_out(msg_ids)
        self._flush_links()
        return first

    def cancelled(self, consumer: int, refusal: Refusal) -> None:
        """End the link of a consumer that its queue has cancelled."""
        part = self.consumers.get(consumer)
        if part is not None:
            part.cancelled(refusal)

    def tell_active(self, consumer: int, active: bool) -> None:
        """Note whether a consumer is the single active one of its queue."""
        part = self.consumers.get(consumer)
        if part is not None:
            part.tell_active(active)
            self._flush_links()

    def target_deleted(self, number: int, refusal: Refusal) -> None:
        """End a publisher's link: its queue was deleted."""
        part = self.target_links.get(number)
        if part is not None:
            part.refuse(refusal)

    def reply(self, name: str, table: MessageTable, at: int) -> None:
        """Take a reply, message `at` of a table, for one of the names."""
        part = self.reply_links.get(name)
        if part is not None:
            part.reply(table, at)

    def tick(self, now_ms: int) -> int | None:
        """Send heartbeats and check the idle timeout; return when to call again at the latest."""
        if self._sasl is not None or self._ended:
            return None
        deadline = self._engine.tick(now_ms)
        self._handle_events()
        return deadline

    def close(self, refusal: Refusal) -> None:
        """End the connection with an error: the node stops, or an operator closes it."""
        if self._sasl is not None:
            self._end(refusal.detail)
        elif not self._ended:
            self._close_with(refusal)

    def hang_up(self, refusal: Refusal) -> None:
        """End the connection without a frame, as RabbitMQ does before it has sent Open."""
        self.faults.append(LinkFault("", refusal))
        self._end(refusal.detail)

    def free(self) -> None:
        """Drop everything: the socket is closed."""
        self._end("the socket was closed")
        self._links.clear()
        self._of_session.clear()
        self._management.clear()
        self.ahead.clear()
        self.bounds.clear()
        self.consumers.clear()
        self.reply_links.clear()
        self.target_links.clear()
        self._to_flush.clear()
        self._requests.clear()
        self._waiting.clear()
        self._must_be = _ended  # the client holds this connection, and is held by its method
        self._early.clear()
        self._engine.free()

    @property
    def publishers(self) -> int:
        """The number of its links that publish."""
        return sum([isinstance(part, PublishingLink) for part in self._links.values()])

    # -------------------------------------------------------------- for the links

    def ask(self, request: Request, on_answer: OnAnswer) -> None:
        """Make a request under a new token."""
        token, self._next_token = self._next_token, self._next_token + 1
        self._waiting[token] = on_answer
        request = msgspec.structs.replace(request, token=token)
        if self.opened or isinstance(request, (Login, OpenVhost)):
            self._requests.append(request)
        elif len(self._held) < REQUESTS_HELD_MAX:
            self._held.append(request)
        else:
            self._close_with(
                NotAllowed(f"more than {REQUESTS_HELD_MAX} requests before Open was answered")
            )

    def must_be(self, tag: Tag, what: str) -> None:
        """Raise AccessRefused unless the user has the tag; see `Access.must_be`."""
        if self._must_be is not None:
            self._must_be(tag, what)

    def tell(self, request: AnyRequest) -> None:
        """Make a request that has no answer."""
        self._requests.append(request)

    def flush_later(self, part: LinkPart) -> None:
        """Call the link's `flush` at the end of this pass."""
        self._to_flush[part] = None

    def _flush_links(self) -> None:
        while self._to_flush:
            parts, self._to_flush = self._to_flush, {}
            for part in parts:
                part.flush()

    def overrun(self, what: str) -> None:
        """End the connection: more bytes have come and wait than it may have."""
        self._close_with(ResourceError(what))

    def discard(self, link: Link) -> None:
        """Read what has arrived for a link that has ended at this end."""
        if self._engine.endings.discard(handle_of(link)) > DISCARDED_MAX and not self.failure:
            self._close_with(
                NotAllowed(
                    f"more than {DISCARDED_MAX} messages to link {link.name!r}, which has ended"
                )
            )

    def may_read(self) -> bool:
        """Return whether resource alarms and blocks in flight permit another block."""
        return not self.short and self.in_flight_bytes < self.limits.in_flight_bytes_max

    def _wake_links(self) -> bool:
        moved = False
        for part in list(self._links.values()):
            moved = part.wake() or moved
        return moved

    @property
    def tuned(self) -> tuple[int, int, int]:
        """The sessions, the highest channel, and the bytes that the client takes in a frame."""
        transport, sessions = self._engine.transport, self._engine.endings.begun
        frame_max = transport.remote_max_frame_size or FRAME_UNLIMITED
        return sessions, int(transport.channel_max), int(frame_max)

    # -------------------------------------------------------------- login

    def _receive_sasl(self, data: bytes | bytearray | memoryview) -> None:
        sasl = self._sasl
        assert sasl is not None
        before = sasl.state
        try:
            sasl.receive(data)
        except SaslFailed as error:
            self._end(str(error))
            return
        if before is not SaslState.DECIDING and sasl.state is SaslState.DECIDING:
            self.ask(Login(sasl.user, sasl.password, sasl.mechanism), self._login_answered)

    def _login_answered(self, answer: AnyAnswer) -> None:
        sasl = self._sasl
        assert sasl is not None
        if isinstance(answer, Unavailable):
            # SASL has no words: the client is let in as far as its open, and told in a close.
            self._unavailable = answer
        elif not isinstance(answer, LoggedIn):
            sasl.refuse()
            self._end(f"user {sasl.user!r}: {login_refused(sasl.mechanism).detail}")
            return
        early = sasl.accept()
        if isinstance(answer, LoggedIn):
            self.user = answer.user or sasl.user
        self._early = sasl.output
        self._sasl = None
        if early:
            self.receive(early)

    def _opened_by_client(self) -> None:
        if self._unavailable is not None:
            raise self._unavailable
        connection = self._engine.connection
        check_open(connection)
        hostname = connection.remote_hostname or ""
        self.client = {"container": str(connection.remote_container or "")}
        told = read_map("properties of open", lambda: connection.remote_properties)
        shown = ("product", "version", "platform", "information", "connection_name", OWN_CLUSTER)
        self.client |= {str(key): str(told[key]) for key in told if str(key) in shown}
        named = hostname.startswith(VHOST_PREFIX)
        self.vhost = hostname.removeprefix(VHOST_PREFIX) if named else DEFAULT_VHOST
        answered = continued(self._close_with, self._vhost_answered)
        self.ask(OpenVhost(self.user, self.vhost), answered)

    def _vhost_answered(self, answer: VhostOpened) -> None:
        node = {"node": answer.node, "cluster_name": answer.cluster, API_PROPERTY: API_OFFERED}
        told = {**self.limits.properties, **node}
        self._engine.open({symbol(key): value for key, value in told.items()})
        self.opened = True
        self._requests.extend(self._held)
        self._held.clear()

    # -------------------------------------------------------------- events

    def _handle_events(self) -> None:
        for event in self._engine.events(_KINDS):
            self._handle(partial(_HANDLERS[event.type], self, event))

    def _handle(self, handler: Callable[[], None]) -> None:
        try:
            handler()
        except Refusal as refusal:
            self._close_with(refusal)
        except (UnicodeDecodeError, ProtonException) as error:
            # names that are not UTF-8, maps that are not maps: the engine decodes them late
            self._close_with(SyntaxRefused(f"a field that cannot be read: {error}"))

    def _session_opened(self, event: Event) -> None:
        session: Session = event.session
        if not self._engine.may_begin_session():
            raise ResourceError(
                f"more than {CHANNEL_MAX + 1} sessions, channel-max is {CHANNEL_MAX}: end some "
                "before beginning others"
            )
        self._engine.endings.begun += 1
        session.incoming_capacity = self._engine.session_window_bytes
        session.open()
        self.ahead.begun(session)

    def _session_closed(self, event: Event) -> None:
        for link in list(self._of_session.get(handle_of(event.session), ())):
            part = self._remove(link)
            assert part is not None
            part.session_ended = True
            part.abort_unsent()
            _end_part(part)
        self.ahead.ended(event.session)
        self._engine.endings.end_session(event.session)

    def _link_opened(self, event: Event) -> None:
        link: Link = event.link
        self._engine.endings.opened(link)
        name = link_name(link)  # what is no name ends the connection now, and no use of it later
        try:
            if len(self._links) >= LINKS_MAX:
                raise ResourceError(f"{LINKS_MAX} links are open on this connection; detach some")
            check_attach(link)
            if link.is_receiver:
                self._attach_target(link)
            else:
                self._attach_source(link)
        except Refusal as refusal:
            self.faults.append(LinkFault(name, refusal))
            refuse_attach(link, refusal)

    def _attach_target(self, link: Link) -> None:
        if dynamic_target(link) is not None:
            self._add(PublishingLink(link, self, None, temporary_of=self.client["container"]))
            return
        target = parse_target(target_address(link), blocks=announces_blocks(link))
        if isinstance(target, ManagementNode):
            accept_attach(link, self.limits.request_bytes_max, paired=True)
            self._add_management(RequestsLink(link, self))
        elif isinstance(target, (QueueTarget, ExchangeTarget, AnonymousTarget)):
            self._add(PublishingLink(link, self, target))
        else:
            accept_attach(link, self.limits.block_bytes_max)
            self._add(BlocksLink(link, self, target))

    def _attach_source(self, link: Link) -> None:
        dynamic = dynamic_source(link)
        if dynamic == VOLATILE_QUEUE:
            self._add(RepliesLink(link, self))
            return
        if dynamic is not None:
            self._add(ConsumingLink(link, self, None, temporary_of=self.client["container"]))
            return
        source = parse_source(source_address(link))
        if isinstance(source, ManagementNode):
            accept_attach(link, paired=True)
            self._add_management(AnswersLink(link, self))
        elif isinstance(source, QueueSource):
            self._add(ConsumingLink(link, self, source))
        else:
            accept_attach(link)
            self._add(PiecesLink(link, self, source))

    def _add(self, part: LinkPart) -> None:
        self._links[part.link] = part
        self._of_session.setdefault(session_of(part.link), {})[part.link] = None
        self._engine.on_delivery[handle_of(part.link)] = part.arrived
        self._engine.on_flow[handle_of(part.link)] = partial(self._flowed, part)
        if isinstance(part, PublishingLink):
            self._engine.reading.add(handle_of(part.link))

    def _remove(self, link: Link) -> LinkPart | None:
        self._engine.forget(handle_of(link))
        part = self._links.pop(link, None)
        if part is not None:
            session = session_of(link)
            _take_out(self._of_session, session, link)
            if isinstance(part, AnswersLink | RequestsLink):
                _take_out(self._management, (session, link.name), link)
        return part

    def _add_management(self, part: AnswersLink | RequestsLink) -> None:
        """Add a link, and connect those for requests to that for answers of its name and session.

        A client may attach and detach any number in one read: the others are not visited.
        """
        self._add(part)
        pair = self._management.setdefault((session_of(part.link), part.link.name), {})
        pair[part.link] = part
        answers = [each for each in pair.values() if isinstance(each, AnswersLink)]
        for each in pair.values():
            if isinstance(each, RequestsLink):
                each.answers = answers[-1] if answers else None

    def _link_closed(self, event: Event) -> None:
        part = self._remove(event.link)
        if part is not None:
            part.abort_unsent()
            _end_part(part)
        ended_here = bool(event.link.state & Link.LOCAL_CLOSED)
        if event.type == Event.LINK_REMOTE_DETACH:
            event.link.detach()
        else:
            event.link.close()
        self._engine.endings.free_link(event.link, ended_here=ended_here)

    def _flowed(self, part: LinkPart) -> None:
        self._handle(partial(part.flow, told=self._receiving))

    def _delivered(self, event: Event) -> None:
        if holds_transfer(event.link):
            raise NotAllowed(
                f"a transfer on link {event.link.name!r}, on which the client receives"
            )
        part = self._links.get(event.link)
        if part is not None and not part.ended:
            part.delivery(event.delivery)
        elif event.link.is_receiver:
            self.discard(event.link)

    def _closed_by_client(self, event: Event) -> None:
        event.connection.close()
        self._forget("the client closed the connection")

    def _violated(self, event: Event) -> None:
        condition: Condition | None = event.transport.condition
        self._forget(
            f"{condition.name}: {condition.description}" if condition else "protocol error"
        )

    # -------------------------------------------------------------- the end

    def _close_with(self, refusal: Refusal) -> None:
        connection = self._engine.connection
        if not isinstance(refusal, ConnectionForced):
            self.faults.append(LinkFault("", refusal))
        connection.condition = condition_of(refusal)
        connection.open()
        connection.close()
        self._forget(refusal.detail)

    def _forget(self, why: str) -> None:
        """Stop all links; pending output may still be sent."""
        self.failure = self.failure or why
        self._held.clear()
        for part in self._links.values():
            part.session_ended = True
            _end_part(part)

    def _end(self, why: str) -> None:
        self._forget(why)
        self._ended = True


def _take_out(of: dict[Any, dict[Link, Any]], key: Any, link: Link) -> None:
    """Remove a link from those of its session, or its pair."""
    links = of[key]
    del links[link]
    if not links:
        del of[key]


def _end_part(part: LinkPart) -> None:
    if not part.ended:
        part.flush()  # what the client has sent before it ended the link
    part.ended = True
    part.gone()


_Handler = Callable[[Connection10, Event], None]
_HANDLERS: dict[Any, _Handler] = {
    Event.CONNECTION_REMOTE_OPEN: lambda connection, event: connection._opened_by_client(),
    Event.CONNECTION_REMOTE_CLOSE: Connection10._closed_by_client,
    Event.SESSION_REMOTE_OPEN: Connection10._session_opened,
    Event.SESSION_REMOTE_CLOSE: Connection10._session_closed,
    Event.LINK_REMOTE_OPEN: Connection10._link_opened,
    Event.LINK_REMOTE_CLOSE: Connection10._link_closed,
    Event.LINK_REMOTE_DETACH: Connection10._link_closed,
    Event.DELIVERY: Connection10._delivered,
    Event.TRANSPORT_ERROR: Connection10._violated,
}
_KINDS = frozenset(kind.number for kind in _HANDLERS)
"""Others, half of them, are not even made into objects."""


def _ended(tag: Tag, what: str) -> None:
    """Refuse: no request comes after the end of the socket."""
    raise AccessRefused(f"the connection has ended: nothing may {what}")
