"""One run of a shovel: from the connections to both ends until one of them fails.

A delivery is acknowledged to the source after the destination's confirm. A message that comes back
from a queue that does not exist any more ends the run, without an acknowledgement; one that the
destination refuses (basic.nack) is kept and published again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from warren_broker.errors import InvalidArgument
from warren_broker.federation.exchange_rules import Bound, ExchangeLink, entered, may_enter
from warren_broker.federation.journey import RECEIVED_FROM, travelled
from warren_broker.federation.upstream_exchange import UpstreamExchange
from warren_broker.shovel.definition import (
    ON_CONFIRM,
    QUEUE_LENGTH,
    ShovelDefinition,
    self_feeding,
)
from warren_broker.shovel.endpoint import ACCESS_REFUSED, RESOURCE_LOCKED, Endpoint, OwnNode
from warren_broker.shovel.ledger import ShovelLedger
from warren_broker.shovel.source_consumer import SourceConsumer
from warren_broker.shovel.uris import ShovelUri

REFUSED_AGAIN_S: Final = 1.0
"""Delay until messages that the destination has refused are published again."""
UNSENT_POLL_S: Final = 0.005
FORWARD_HEADER: Final = "x-shovelled"
TIMESTAMP_HEADER: Final = "x-shovelled-timestamp"


@dataclass(slots=True)
class ShovelProgress:
    """What a shovel has done since its process began.

    forwarded  messages acknowledged to the source
    remaining  until it deletes itself; None: not known yet, or never
    """

    forwarded: int = 0
    remaining: int | None = None


class TransferObserver(Protocol):
    """What a run reports."""

    def running(self) -> None:
        """Messages move."""

    def failed(self, words: str, final: bool) -> None:
        """Take note that the run has ended; final: another one would fail in the same way."""

    def done(self) -> None:
        """Take note that everything that was to be moved has been moved."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """What makes a run a federation link; that of a queue fetches only on demand.

    trust_user_id  the messages keep the user that has published them upstream
    consumer_tag   at the upstream, with a number
    exchange       of a link between exchanges; None: it is between queues
    """

    trust_user_id: bool
    consumer_tag: str
    exchange: ExchangeLink | None = None


@dataclass(frozen=True, slots=True)
class _Forwarded:
    exchange: str
    routing_key: str
    properties: Any
    body: bytes

    def described(self) -> str:
        """Return which message it is, in words."""
        named = f", message_id '{self.properties.message_id}'" * bool(self.properties.message_id)
        return (
            f"the message of {len(self.body):,} bytes with routing key '{self.routing_key}'{named}"
        )


class Transfer:
    """Moves messages from one end to the other.

    Invariant: what is acknowledged to the source has been confirmed by the destination, unless
    ack-mode is on-publish or no-ack
    """

    def __init__(
        self,
        shovel: ShovelDefinition,
        source: ShovelUri,
        destination: ShovelUri,
        own: OwnNode,
        ioloop: Any,
        progress: ShovelProgress,
        observer: TransferObserver,
        cluster: str = "",
        link: LinkOptions | None = None,
        wanted: bool = True,
        one_by_one: int = 0,
    ) -> None:
        """one_by_one: messages to begin with, among which the destination has refused one."""
        self._shovel = shovel
        self._link = link
        self._wanted = wanted
        self._one_by_one = one_by_one
        self._ioloop = ioloop
        self._progress = progress
        self._observer = observer
        self._cluster = cluster
        name = f"{'shovel' if link is None else 'federation link'} {shovel.name}"
        self._source = Endpoint("src-uri", source, own, name, self._failed)
        self._target = Endpoint("dest-uri", destination, own, name, self._failed)
        self._ledger: ShovelLedger[_Forwarded] = ShovelLedger()
        self._refused: list[int] = []
        self._written = 0
        self._begun = 0
        self._over = self._stopping = False
        self._consumer: SourceConsumer | None = None
        self._upstream: UpstreamExchange | None = None
        self._bindings: list[Bound] | None = None
        self._removing = False
        self._on_idle: Callable[[], None] | None = None
        self.blocked = False

    @property
    def pending(self) -> int:
        """Messages received and not acknowledged."""
        return len(self._ledger)

    @property
    def refused(self) -> bool:
        """Whether the destination refuses messages at the moment."""
        return bool(self._refused)

    @property
    def suspects(self) -> int:
        """How many messages the next run is to move one by one.

        1. The destination closes the channel for one message of many that are under way.  2. Each
        of them counts a delivery at the source.  3. With the same messages under way again and
        again, the source's delivery limit dead-letters all of them.  Alone, it is the only one.
        """
        return max(self._one_by_one, len(self._ledger) if self._target.refuses else 0)

    # ------------------------------------------------------------ beginning

    def begin(self) -> None:
        """Connect; the destination first, so that nothing is taken that could not be passed on."""
        try:
            self._target.open(self._ioloop, self._target_opened)
        except InvalidArgument as refusal:
            self._failed(refusal.detail)

    def _target_opened(self) -> None:
        target, end = self._target, self._shovel.destination
        target.channel.add_on_return_callback(self._returned)
        target.connection.add_on_connection_blocked_callback(lambda *_: self._set_blocked(True))
        target.connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(False))

        def checked(*_: Any) -> None:
            if self._shovel.ack_mode == ON_CONFIRM:
                target.channel.confirm_delivery(self._answered, lambda frame: self._open_source())
            else:
                self._open_source()

        if self._link is not None:
            checked()  # it runs beside the queue, and its user may see no definition
        elif end.queue is not None:
            target.ensure_queue(end, checked)
        elif end.exchange:
            target.channel.exchange_declare(end.exchange, passive=True, callback=checked)
        else:
            checked()

    def _open_source(self) -> None:
        if self._over:
            return
        try:
            self._source.open(self._ioloop, self._source_opened)
        except InvalidArgument as refusal:
            self._failed(refusal.detail)

    def _source_opened(self) -> None:
        source, end = self._source, self._shovel.source
        source.channel.add_on_cancel_callback(
            lambda frame: source.fail(f"{end.described()} was deleted")
        )
        if self._exchange is not None:
            self._open_upstream(self._exchange)
            return
        if end.queue is not None:
            source.ensure_queue(end, lambda count: self._check_ends(end.queue, count))
            return

        def declared(made: Any) -> None:
            queue = made.method.queue
            source.channel.queue_bind(
                queue,
                end.exchange,
                routing_key=end.exchange_key,
                callback=lambda bound: self._check_ends(queue, 0),
            )

        source.channel.queue_declare("", exclusive=True, callback=declared)

    @property
    def _exchange(self) -> ExchangeLink | None:
        return None if self._link is None else self._link.exchange

    def _open_upstream(self, exchange: ExchangeLink) -> None:
        end = self._shovel.source
        made = UpstreamExchange(self._source, end, exchange, lambda: self._measured(end.queue, 0))
        if made.is_itself:
            self._failed(
                f"the upstream is exchange '{exchange.exchange}' itself, or another cluster with "
                f"the name '{exchange.here.cluster}', too: clusters that federate exchanges need "
                "different names, see `cluster` in the configuration",
                final=True,
            )
            return
        self._upstream = made
        if self._bindings is not None:
            made.bind(self._bindings)
        made.begin()

    def bind(self, bindings: list[Bound]) -> None:
        """Take the bindings of the federated exchange."""
        self._bindings = bindings
        if self._upstream is not None and not self._over and not self._stopping:
            self._upstream.bind(bindings)

    def _check_ends(self, queue: Any, count: int) -> None:
        """Refuse a shovel to itself, whatever the two URIs are: a queue made here is seen there."""
        if not self._shovel.may_feed_itself:
            self._measured(queue, count)
            return

        def same(*_: Any) -> None:
            self._failed(self_feeding(self._shovel), final=True)

        def made(frame: Any) -> None:
            probe = frame.method.queue

            def not_seen(code: int, text: str) -> None:
                if code == RESOURCE_LOCKED:  # it is there, and exclusive to the other connection
                    same()
                elif not self._over:
                    self._target.channel.queue_delete(probe)
                    self._measured(queue, count)

            self._source.declare(same, not_seen, queue=probe, passive=True)

        def not_made(code: int, text: str) -> None:
            if code == ACCESS_REFUSED:
                self._measured(queue, count)  # this user may not declare: nothing can be known
            else:
                self._target.fail(f"{code} {text}")

        self._target.declare(made, not_made, queue="", exclusive=True)

    def _measured(self, queue: Any, count: int) -> None:
        if self._over:
            return
        shovel, progress = self._shovel, self._progress
        if progress.remaining is None and isinstance(shovel.delete_after, int):
            progress.remaining = shovel.delete_after
        elif progress.remaining is None and shovel.delete_after == QUEUE_LENGTH:
            progress.remaining = count
        if progress.remaining == 0:
            self._finish()
            return
        prefetch = 1 if self._one_by_one else self._prefetch()

        def ready(frame: Any) -> None:
            if self._over or self._stopping:
                return
            self._consumer = SourceConsumer(
                self._source.channel,
                queue,
                shovel.consumer_args,
                None if self._link is None else self._link.consumer_tag,
                self._delivered,
                self._observer.running,
                self._source.fail,
                exclusive=self._exchange is not None,
            )
            if self._wanted:
                self._consumer.want(True)
            else:
                self._observer.running()

        self._source.channel.basic_qos(prefetch_count=prefetch, callback=ready)

    def _prefetch(self) -> int:
        remaining = self._progress.remaining
        return self._shovel.prefetch if remaining is None else min(self._shovel.prefetch, remaining)

    # ------------------------------------------------------------ consuming

    def fetch(self, wanted: bool) -> None:
        """Consume from the source or not, as the demand is."""
        self._wanted = wanted
        if self._consumer is not None and not self._over:
            self._consumer.want(wanted)

    def _count_suspects(self, moved: int) -> None:
        """After the last of them consume as before."""
        if not self._one_by_one:
            return
        self._one_by_one = max(0, self._one_by_one - moved)
        if not self._one_by_one and not self._stopping and self._consumer is not None:
            self._consumer.limit(self._prefetch())

    # ------------------------------------------------------------ moving

    def _delivered(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if self._over or self._stopping:
            return
        remaining = self._progress.remaining
        if remaining is not None and self._begun >= remaining:
            return  # it goes back when the connection is closed
        if remaining is not None:
            self._begun += 1
        if not self._may_enter(properties):
            channel.basic_ack(method.delivery_tag)
            return
        end = self._shovel.destination
        if end.queue is not None:
            exchange, key = "", end.queue
        else:
            exchange = method.exchange if end.exchange is None else end.exchange
            key = method.routing_key if end.exchange_key is None else end.exchange_key
        message = _Forwarded(exchange, key, self._stamped(method, properties), body)
        self._ledger.delivered(method.delivery_tag, message)
        self._publish(method.delivery_tag, message)

    def _may_enter(self, properties: Any) -> bool:
        """Return whether a message has not been here, nor come too far, between exchanges."""
        exchange = self._exchange
        if exchange is None:
            return True
        before = (properties.headers or {}).get(RECEIVED_FROM)
        return may_enter(before, exchange.here, exchange.max_hops)

    def _publish(self, tag: int, message: _Forwarded) -> None:
        number = self._ledger.published(tag)
        self._target.channel.basic_publish(
            message.exchange,
            message.routing_key,
            message.body,
            message.properties,
            mandatory=self._shovel.destination.only_queue is not None,
        )
        if self._shovel.ack_mode != ON_CONFIRM:
            if not self._written:
                self._ioloop.call_later(0, self._look_unsent)
            self._written = number

    def _look_unsent(self) -> None:
        """Acknowledge what was published without confirms, once the socket has taken it."""
        if self._over or not self._written:
            return
        if self._target.unsent_bytes():
            self._ioloop.call_later(UNSENT_POLL_S, self._look_unsent)
            return
        number, self._written = self._written, 0
        self._acknowledge(self._ledger.confirmed(number, True))

    def _answered(self, frame: Any) -> None:
        """Take a confirm of the destination's."""
        if self._over:
            return
        method = frame.method
        if method.NAME == "Basic.Ack":
            self._acknowledge(self._ledger.confirmed(method.delivery_tag, method.multiple))
            return
        if not self._refused:
            self._ioloop.call_later(REFUSED_AGAIN_S, self._publish_again)
        self._refused += self._ledger.refused(method.delivery_tag, method.multiple)

    def _publish_again(self) -> None:
        tags, self._refused = self._refused, []
        for tag in tags:
            if not self._over:
                self._publish(tag, self._ledger.held(tag))

    def _acknowledge(self, tags: list[int]) -> None:
        for tag, multiple in self._ledger.acknowledgements(tags):
            self._source.channel.basic_ack(tag, multiple)
        progress = self._progress
        progress.forwarded += len(tags)
        if progress.remaining is not None:
            progress.remaining -= len(tags)
            self._begun -= len(tags)
            if progress.remaining == 0:
                self._finish()
                return
        self._count_suspects(len(tags))
        if self._stopping and not len(self._ledger):
            self._idle()

    def _returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        # Its confirm comes next: by then nothing is acknowledged any more.
        self._target.fail(
            f"{method.reply_code} {method.reply_text}: {self._shovel.destination.described()} does "
            "not exist any more; nothing is lost, the message is still in the source"
        )

    def _set_blocked(self, blocked: bool) -> None:
        self.blocked = blocked

    def _stamped(self, method: Any, properties: Any) -> Any:
        """Return a message's properties as they are to be published."""
        shovel, link = self._shovel, self._link
        if link is not None:
            headers = dict(properties.headers or {})
            before, uri = headers.get(RECEIVED_FROM), self._source.uri.shown()
            if self._upstream is not None:
                there = self._upstream.there
                headers[RECEIVED_FROM] = entered(before, uri, there, method.redelivered)
            else:
                queue = shovel.source.queue or ""
                headers[RECEIVED_FROM] = travelled(before, uri, queue, method.redelivered)
            properties.headers = headers
            if not link.trust_user_id:
                properties.user_id = None
        for key, value in shovel.properties.items():
            setattr(properties, key, value)
        if shovel.forward_headers or shovel.timestamp_header:
            headers = dict(properties.headers or {})
            if shovel.forward_headers:
                before = headers.get(FORWARD_HEADER)
                more = before if isinstance(before, list) else []
                headers[FORWARD_HEADER] = [self._journey(), *more]
            if shovel.timestamp_header:
                headers[TIMESTAMP_HEADER] = int(time.time())
            properties.headers = headers
        return properties

    def _journey(self) -> dict[str, Any]:
        shovel, source, target = self._shovel, self._shovel.source, self._shovel.destination
        told = {
            "shovelled-by": self._cluster,
            "shovel-type": "dynamic",
            "shovel-name": shovel.name,
            "shovel-vhost": shovel.vhost,
            "src-uri": self._source.uri.shown(),
            "dest-uri": self._target.uri.shown(),
            "src-queue": source.queue,
            "src-exchange": source.exchange,
            "src-exchange-key": source.exchange_key if source.exchange is not None else None,
            "dest-queue": target.queue,
            "dest-exchange": target.exchange,
            "dest-exchange-key": target.exchange_key,
        }
        return {key: value for key, value in told.items() if value is not None}

    # ------------------------------------------------------------ ending

    def _failed(self, words: str, final: bool = False) -> None:
        if not self._over:
            if self._target.refuses and len(self._ledger) == 1:
                words += f"; it refuses {self._ledger.only().described()}"
            self._close()
            self._observer.failed(words, final)

    def _close(self) -> None:
        self._over = True
        self._source.close()
        self._target.close()

    def _finish(self) -> None:
        """Close both connections: the acknowledgements are with the source before that is over."""
        self._over = True
        self._source.close(lambda: self._target.close(self._observer.done))

    def stop(self, idle: Callable[[], None], removing: bool = False) -> None:
        """Take no more messages; `idle` is called when none is under way.

        removing  a link's queue upstream is deleted then
        """
        self._on_idle, self._stopping, self._removing = idle, True, removing
        if self._over or not len(self._ledger):
            self._idle()
        elif self._consumer is not None:
            self._consumer.stop()

    def _idle(self) -> None:
        idle, self._on_idle = self._on_idle, None
        if idle is None:
            return

        def close() -> None:
            self._over = True
            self._source.close(lambda: self._target.close(idle))

        if self._removing and self._upstream is not None and not self._over:
            self._upstream.remove(close)
        else:
            close()
