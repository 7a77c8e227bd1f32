"""One run of a shovel: from the connections to both ends until one of them fails.

Between two brokers that know relays (`relay_names`) each message carries its name, so that the
destination drops a repeat; what is not settled when the run ends stays with the relay.

A delivery is acknowledged to the source after the destination's confirm. A message that comes back
from a queue that does not exist any more ends the run, without an acknowledgement; one that the
destination refuses (basic.nack) is kept and published again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from warren_broker.transfers.federation.exchange_rules import (
    RECEIVED_FROM,
    Bound,
    ExchangeLink,
    entered,
    may_enter,
    travelled,
)
from warren_broker.transfers.federation.upstream_exchange import UpstreamExchange
from warren_broker.transfers.shovel.end091 import Source091, Target091
from warren_broker.transfers.shovel.ends import Answers, Prepared, SourceEnd, TargetEnd
from warren_broker.transfers.shovel.ledger import ShovelLedger
from warren_broker.transfers.shovel.received import Overrun, Received, Received091
from warren_broker.transfers.shovel.sections import Stamps
from warren_wire.errors import InvalidArgument
from warren_wire.kernel.section_types import MalformedSections
from warren_wire.links.definition import ON_CONFIRM, QUEUE_LENGTH, ShovelDefinition, self_feeding
from warren_wire.links.uris import AMQP10, ShovelUri
from warren_wire.relay_names import RelayedName
from warren_wire.sessions.locate import OwnNode

REFUSED_AGAIN_S: Final = 1.0
"""Delay until messages that the destination has refused are published again."""
UNSENT_POLL_S: Final = 0.005
LINK_PREFETCHES: Final = 3
"""What a link may be sent: to a consumer cancelled while there was room, what was on its way to
that one then, and to the next one, of which each has a prefetch of its own."""


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

    def failed(self, words: str, final: bool, access_refused: bool) -> None:
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
    prepared: Prepared
    origin: int
    number: int
    fresh: bool = False
    """Whether no earlier run can have published it."""


class Transfer:
    """Moves messages from one end to the other, whatever protocols they speak.

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
        relay: str = "",
    ) -> None:
        """Begin nothing yet.

        one_by_one  messages to begin with, among which the destination has refused one
        relay       the name under which the source keeps what is under way; "": none
        """
        self._relay = relay if shovel.ack_mode == ON_CONFIRM else ""
        self._surplus: list[Received] = []
        self._uncounted: list[Received] | None = None
        self._last_came = False
        self._shovel = shovel
        self._link = link
        self._wanted = wanted
        self._one_by_one = one_by_one
        self._ioloop = ioloop
        self._progress = progress
        self._observer = observer
        name = f"{'shovel' if link is None else 'federation link'} {shovel.name}"
        self._source = self._make_source(source, own, name)
        self._target = self._make_target(Stamps(shovel, cluster, source, destination), own, name)
        self._ledger: ShovelLedger[_Forwarded] = ShovelLedger()
        self._overrun = Overrun()
        self._consuming = False
        self._unreadable = False
        self._refused: list[int] = []
        self._written = 0
        self._begun = 0
        self._over = self._stopping = False
        self._upstream: UpstreamExchange | None = None
        self._bindings: list[Bound] | None = None
        self._removing = False
        self._on_idle: Callable[[], None] | None = None

    def _make_source(self, uri: ShovelUri, own: OwnNode, name: str) -> SourceEnd:
        shovel, link = self._shovel, self._link
        if shovel.source.protocol == AMQP10:
            # Only here: loading Proton takes 0.1 s.
            from warren_broker.transfers.shovel.end10 import Source10

            made: SourceEnd = Source10(shovel.source, uri, own, name, self._failed)
            return made
        tag = None if link is None else link.consumer_tag
        exclusive = self._exchange is not None
        return Source091(shovel, uri, own, name, self._failed, tag, exclusive)

    def _make_target(self, stamps: Stamps, own: OwnNode, name: str) -> TargetEnd:
        kind: Any = Target091
        if self._shovel.destination.protocol == AMQP10:
            from warren_broker.transfers.shovel.end10 import Target10

            kind = Target10
        confirms = self._shovel.ack_mode == ON_CONFIRM
        made: TargetEnd = kind(
            stamps, own, name, self._failed, confirms, self._confirmed, self._not_taken
        )
        return made

    @property
    def pending(self) -> int:
        """Messages received and not acknowledged."""
        return len(self._ledger)

    @property
    def refused(self) -> bool:
        """Whether the destination refuses messages at the moment."""
        return bool(self._refused)

    @property
    def blocked(self) -> bool:
        """Whether the destination accepts no publishes at the moment."""
        return self._target.blocked

    @property
    def suspects(self) -> int:
        """How many messages the next run is to move one by one.

        1. The destination closes the channel for one message of many that are under way.  2. Each
        of them counts a delivery at the source.  3. With the same messages under way again and
        again, the source's delivery limit dead-letters all of them.  Alone, it is the only one.
        """
        return max(self._one_by_one, self._blamed)

    @property
    def _blamed(self) -> int:
        """How many messages are under way, one of which cannot be passed on; 0: there is none."""
        if self._unreadable:
            return len(self._ledger) + 1
        return len(self._ledger) if self._target.refuses else 0

    # ------------------------------------------------------------ beginning

    def begin(self) -> None:
        """Connect; the destination first, so that nothing is taken that could not be passed on."""
        self._target.open(self._ioloop, self._target_opened)

    def _target_opened(self) -> None:
        if self._link is not None:
            self._open_source()  # it runs beside the queue, and its user may see no definition
        else:
            self._target.find(self._open_source)

    def _open_source(self) -> None:
        if self._over:
            return
        self._source.open(self._ioloop, self._source_opened)

    def _source_opened(self) -> None:
        if not (self._source.knows_relays and self._target.knows_relays):
            self._relay = ""
        self._ledger = ShovelLedger(in_order=bool(self._relay))
        if self._exchange is not None:
            self._open_upstream(self._exchange)
        else:
            self._source.find(self._check_ends)

    @property
    def _exchange(self) -> ExchangeLink | None:
        return None if self._link is None else self._link.exchange

    def _open_upstream(self, exchange: ExchangeLink) -> None:
        end = self._shovel.source
        assert isinstance(self._source, Source091)
        made = UpstreamExchange(self._source, end, exchange, lambda: self._measured(0))
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

    def _check_ends(self, count: int) -> None:
        """Refuse a shovel to itself, whatever the two URIs are: a queue made here is seen there."""
        if not self._shovel.may_feed_itself:
            self._measured(count)
            return

        def made(probe: str | None) -> None:
            if probe is None:
                self._measured(count)  # nothing can be known
            else:
                self._source.sees(probe, lambda seen: answered(probe, seen))

        def answered(probe: str, seen: bool) -> None:
            if seen:
                self._failed(self_feeding(self._shovel), final=True)
            elif not self._over:
                self._target.forget_probe(probe)
                self._measured(count)

        self._target.probe(made)

    def _measured(self, count: int) -> None:
        if self._over:
            return
        shovel, progress = self._shovel, self._progress
        if progress.remaining is None and isinstance(shovel.delete_after, int):
            progress.remaining = shovel.delete_after
        elif progress.remaining is None and shovel.delete_after == QUEUE_LENGTH:
            if self._relay and not self._stopping:
                self._source.count(self._relay, lambda known: self._take_over(count, known))
                return
            progress.remaining = count
        if progress.remaining == 0:
            self._finish()
            return
        if self._stopping:
            return
        limit = 1 if self._one_by_one else self._prefetch()
        self._demand()
        self._source.consume(limit, self._delivered, self._observer.running, self._relay)

    def _take_over(self, ready: int, known: int) -> None:
        """Consume, then ask how many messages there are, and only then move any.

        1. An earlier process of the shovel ends; what it held is kept for it, and is not ready.
        2. This one counts the ready messages, and takes the kept ones first.  3. It would end when
        it has moved as many as were ready, or at once where none was.  The rest would wait for a
        shovel of that name.  So it takes over what is kept, which the source then counts, too.
        No consumer with a higher prefetch takes its place then: with the last consumer an
        auto-delete queue is deleted, and what has not been moved with it.

        ready  messages that were ready before
        known  these and the kept ones, of which an earlier process may settle some yet
        """
        if self._over or self._stopping:
            return
        self._uncounted = []

        def counted(count: int) -> None:
            early, self._uncounted = self._uncounted or [], None
            if self._over:
                return
            if not self._stopping:
                self._progress.remaining = max(count, ready)
            for received in early:
                self._delivered(received)
            if self._over or self._stopping:
                return
            if not self._progress.remaining:
                self._finish()
            else:
                self._observer.running()

        def begun() -> None:
            if self._uncounted is None:
                self._observer.running()
            else:
                self._source.count(self._relay, counted)

        self._demand()
        limit = 1 if self._one_by_one else max(1, min(self._shovel.prefetch, known))
        self._source.consume(limit, self._delivered, begun, self._relay)

    def _prefetch(self) -> int:
        remaining = self._progress.remaining
        return self._shovel.prefetch if remaining is None else min(self._shovel.prefetch, remaining)

    # ------------------------------------------------------------ consuming

    def fetch(self, wanted: bool) -> None:
        """Consume from the source or not, as the demand is."""
        self._wanted = wanted
        self._demand()

    def _demand(self) -> None:
        """Consume while messages are wanted; begin again only when there is room for some.

        1. An alarm stops publishers, and nothing is confirmed.  2. Demand ends and begins, again
        and again.  3. Each consumer of a link has a prefetch of its own: all would be held here.
        """
        if self._over:
            return
        if not self._wanted:
            self._consuming = False
        elif not self._consuming:
            self._consuming = len(self._ledger) < self._shovel.prefetch
        self._source.want(self._consuming)

    def _is_flooded(self, received: Received) -> bool:
        """Fail when a source over AMQP 0.9.1 sends what its consumer's prefetch does not allow."""
        if not isinstance(received, Received091):
            return False  # by its credit the end itself knows
        held = len(self._ledger) + len(self._surplus) + len(self._uncounted or ())
        beyond = held >= self._shovel.prefetch * (1 if self._link is None else LINK_PREFETCHES)
        if too_many := self._overrun.counted(len(received.body), beyond):
            self._source.fail(f"it sent {too_many:,} bytes more than the prefetch allows")
        return bool(too_many)

    def _count_suspects(self, moved: int) -> None:
        """After the last of them consume as before."""
        if not self._one_by_one:
            return
        self._one_by_one = max(0, self._one_by_one - moved)
        if not self._one_by_one and not self._stopping:
            self._source.limit(self._prefetch())

    # ------------------------------------------------------------ moving

    def _delivered(self, received: Received) -> None:
        if not self._over and self._is_flooded(received):
            return
        if self._uncounted is not None:
            self._uncounted.append(received)
            return
        if self._over or self._stopping:
            self._give_back(received)
            return
        remaining = self._progress.remaining
        if remaining is not None and self._begun >= remaining:
            self._surplus.append(received)
            return  # it goes back when the run ends
        if remaining is not None:
            self._begun += 1
        if self._link is not None:
            assert isinstance(received, Received091)
            if not self._may_enter(received.properties):
                self._source.acknowledge(received.tag, False)
                return
            self._mark(self._link, received)
        try:
            prepared = self._target.prepare(received)
        except (InvalidArgument, MalformedSections) as error:
            self._unreadable = True
            self._source.fail(getattr(error, "detail", str(error)))
            return
        fresh = not received.redelivered
        message = _Forwarded(prepared, received.origin, received.number, fresh)
        self._ledger.delivered(received.tag, message)
        self._publish(received.tag, message)

    def _give_back(self, received: Received) -> None:
        """Have the source give a message to any consumer, unless it may have been published before.

        Without a relay it goes back when the connection is closed.
        """
        if self._relay and not received.redelivered:
            self._source.return_(received.tag)

    def _may_enter(self, properties: Any) -> bool:
        """Return whether a message has not been here, nor come too far, between exchanges."""
        exchange = self._exchange
        if exchange is None:
            return True
        before = (properties.headers or {}).get(RECEIVED_FROM)
        return may_enter(before, exchange.here, exchange.max_hops)

    def _publish(self, tag: int, message: _Forwarded) -> None:
        number = self._ledger.published(tag)
        name = None
        if message.number:
            # No lower one is under way, nor will come: the source gives them in order, the lowest
            # that is not settled first, and they are acknowledged in order.
            name = RelayedName(message.origin, message.number, self._ledger.first().number)
        self._target.publish(number, message.prepared, name)
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

    def _confirmed(self, answers: Answers) -> None:
        """Acknowledge what the destination has confirmed."""
        if not self._over:
            found = [self._ledger.confirmed(number, multiple) for number, multiple in answers]
            self._acknowledge(sorted(tag for tags in found for tag in tags))

    def _not_taken(self, answers: Answers) -> None:
        """Keep what the destination has refused, to publish it again."""
        if self._over:
            return
        if not self._refused:
            self._ioloop.call_later(REFUSED_AGAIN_S, self._publish_again)
        for number, multiple in answers:
            self._refused += self._ledger.refused(number, multiple)
        if self._stopping:
            self._return_refused()

    def _return_refused(self) -> None:
        """Have the source give to any consumer what the destination surely does not have.

        1. The destination is full.  2. The shovel is deleted, or paused.  3. Kept for it, what was
        refused would wait for a shovel of that name, and no other consumer could have it.  What an
        earlier run may have published is kept: on the way then, it may enter yet.
        """
        if not self._refused or not self._relay or not self._target.refusals_are_sure:
            return
        refused, self._refused = self._refused, []
        for tag in refused:
            if self._over:
                return
            if not self._ledger.held(tag).fresh:
                self._refused.append(tag)
                continue
            self._source.return_(tag)
            self._acknowledge(self._ledger.returned(tag))

    def _publish_again(self) -> None:
        tags, self._refused = self._refused, []
        for tag in tags:
            if not self._over:
                self._publish(tag, self._ledger.held(tag))

    def _acknowledge(self, tags: list[int]) -> None:
        for tag, multiple in self._ledger.acknowledgements(tags):
            self._source.acknowledge(tag, multiple)
        progress = self._progress
        progress.forwarded += len(tags)
        if progress.remaining is not None:
            progress.remaining -= len(tags)
            self._begun -= len(tags)
            if progress.remaining == 0:
                self._finish()
                return
        self._count_suspects(len(tags))
        if self._wanted and not self._consuming:
            self._demand()
        if self._stopping and self._last_came and not len(self._ledger):
            self._idle()

    def _mark(self, link: LinkOptions, received: Received091) -> None:
        """Add to the properties of a message of a link where it has been."""
        properties, uri = received.properties, self._source.uri.shown()
        headers = dict(properties.headers or {})
        before = headers.get(RECEIVED_FROM)
        if self._upstream is not None:
            there = self._upstream.there
            headers[RECEIVED_FROM] = entered(before, uri, there, received.redelivered)
        else:
            queue = self._shovel.source.queue or ""
            headers[RECEIVED_FROM] = travelled(before, uri, queue, received.redelivered)
        properties.headers = headers
        if not link.trust_user_id:
            properties.user_id = None

    # ------------------------------------------------------------ ending

    def _failed(self, words: str, final: bool = False) -> None:
        if not self._over:
            if self._target.refuses and len(self._ledger) == 1:
                words += f"; it refuses {self._ledger.only().prepared.described()}"
            if self._blamed == 1:
                self._source.fail_held()
            self._close()
            refused = self._source.access_refused or self._target.access_refused
            self._observer.failed(words, final, refused)

    def _close(self) -> None:
        self._over = True
        self._source.close()
        self._target.close()

    def _finish(self) -> None:
        """Close both connections: the acknowledgements are with the source before that is over."""
        self._over = True
        if self._relay:
            self._source.stop(self._finished)
        else:
            self._finished()

    def _finished(self) -> None:
        if self._relay:
            for received in self._surplus:
                self._give_back(received)
        self._source.close(lambda: self._target.close(self._observer.done))

    def stop(self, idle: Callable[[], None], removing: bool = False) -> None:
        """Take no more messages; `idle` is called when none is under way.

        removing  a link's queue upstream is deleted then
        """
        self._on_idle, self._stopping, self._removing = idle, True, removing

        def stopped() -> None:
            early, self._uncounted = self._uncounted or [], None
            for received in early:
                self._give_back(received)
            self._last_came = True
            if not len(self._ledger):
                self._idle()

        if self._over:
            self._idle()
            return
        self._source.stop(stopped)
        self._return_refused()

    def give_up(self, closed: Callable[[], None]) -> None:
        """Close both connections, whatever is under way; what is not acknowledged goes back."""
        self._on_idle, self._over = None, True
        self._source.close(lambda: self._target.close(closed))

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
