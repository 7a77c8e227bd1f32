"""One connection that receives from a queue over AMQP 1.0; see `amqp.session` for its events.

Deliveries are numbered from 1 on: that is their tag here. Credit is given so that what is under way
and what is not acknowledged are together at most the prefetch.

**Which deliveries are marked.** RabbitMQ and Warren say of each delivery whether it is the first.
Other brokers count failed deliveries in the header, and do not count those of a connection that
was closed well, nor, after a crash of their own, those that were on disk without a count. So of
those brokers each delivery is compared (`recognise.RowMemory.compared`). What has no id is given
back as failed at the end, so that the count marks it; what has one is released, which costs it no
delivery of those that the broker allows. What has no id is settled when the broker has settled it:
of an acknowledgement that it has not answered nothing is known.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Final

import pika

from pyspark_warren.amqp.session import RECEIVED_BODY_BYTES_MAX, SessionEvents
from pyspark_warren.amqp10.connection import (
    REDIRECTS_MAX,
    Peer10,
    RedirectedError,
    redirected,
)
from pyspark_warren.amqp10.links import Link10
from pyspark_warren.amqp10.locks import MessageLocks, session_filter
from pyspark_warren.amqp10.received import ReceivedMessages, read_message
from pyspark_warren.errors import BrokerUnavailableError, WarrenSparkError
from pyspark_warren.options.amqp10 import ANY_SESSION
from pyspark_warren.options.options import Options
from warren_wire.amqp10.deliveries import (
    ACCEPTED,
    RELEASED,
    Handle,
    handle_of,
    is_settled,
    settle,
    settle_as,
    tag_of,
    tell_outcome,
    whole_messages,
    wrapped,
)
from warren_wire.amqp10.proton import Condition, Delivery, Link, lib

SOME: Final = -1
"""Of ready messages: there may be some, and the broker does not say how many."""
DEAD_LETTER: Final = "com.microsoft:dead-letter"
REJECTED: Final = "pyspark_warren:batch-failed"
_CREDIT_SHARE: Final = 8
"""Credit is given again when so large a part of the prefetch is free."""


class SessionIdleError(BrokerUnavailableError):
    """A session of Azure Service Bus has given nothing for a while: the next one is received."""


class Session10:
    """A receiver, from its connection's first byte to its end, through redirects."""

    def __init__(
        self,
        loop: object,
        options: Options,
        one: pika.ConnectionParameters,
        doing: str,
        events: SessionEvents,
        prefetch: int | None = None,
    ) -> None:
        """prefetch: as the options say, unless it is given; 0: nothing is received."""
        self._loop, self._options, self._doing, self._events = loop, options, doing, events
        self._prefetch = options.prefetch if prefetch is None else prefetch
        self._redirects = 0
        self._closing = False
        self._receiver = self._made(one, options.queue)

    def _made(self, one: pika.ConnectionParameters, address: str) -> Receiver10:
        return Receiver10(
            self._loop, self._options, one, self._doing, address, self._prefetch, self
        )

    # ------------------------------------------------------------ of its receiver

    def began(self, messages: int, consumers: int) -> None:
        """See SessionEvents."""
        self._events.began(messages, consumers)

    def received(self) -> None:
        """See SessionEvents."""
        self._events.received()

    def ended(self, why: WarrenSparkError | None) -> None:
        """Follow the broker to another one; see SessionEvents."""
        if isinstance(why, RedirectedError) and self._redirects < REDIRECTS_MAX:
            if not self._closing:
                self._redirects += 1
                one, address = redirected(self._receiver.one, why)
                self._receiver = self._made(one, address or self._receiver.address)
                return
        self._events.ended(why)

    # ------------------------------------------------------------ see amqp.session.Session

    @property
    def consuming(self) -> bool:
        """Messages come."""
        return self._receiver.consuming

    @property
    def filled(self) -> ReceivedMessages:
        """The messages received since the last `take`."""
        return self._receiver.filled

    @property
    def counts_returns(self) -> bool:
        """See amqp.session.Session."""
        return self._receiver.speaks_rabbit

    @property
    def marks_returns(self) -> bool:
        """See amqp.session.Session."""
        return self._receiver.speaks_rabbit

    @property
    def unsure(self) -> tuple[bytes, ...]:
        """See amqp.session.Session."""
        return tuple(self._receiver.unsure.values())

    def take(self) -> ReceivedMessages:
        """Return the complete messages received since the last call."""
        taken, self._receiver.filled = self._receiver.filled, ReceivedMessages()
        return taken

    def ack(self, tag: int, multiple: bool) -> None:
        """Accept; nothing happens when the session is over: the broker delivers it again."""
        self._receiver.accept(tag, multiple)

    def nack(self, tag: int, requeue: bool) -> None:
        """Give one delivery back as failed, or reject it, which dead-letters it."""
        self._receiver.give_back(tag, requeue)

    def probe(self, answer: Callable[[int, int], None]) -> None:
        """Ask whether the queue has more: 0 or SOME, and at least one consumer."""
        self._receiver.probe(answer)

    def close(self) -> None:
        """End it; what is settled leaves before."""
        self._closing = True
        self._receiver.close()


class Receiver10(Peer10):
    """A connection with one receiving link.

    Invariant: `_held` has the deliveries that are not settled, by tag, ascending; `_nameless` the
    identities of those of them without an id, and `unsure` of those that were accepted
    """

    def __init__(
        self,
        loop: object,
        options: Options,
        one: pika.ConnectionParameters,
        doing: str,
        address: str,
        prefetch: int,
        events: SessionEvents,
    ) -> None:
        self.address, self._prefetch, self._events = address, prefetch, events
        self.filled = ReceivedMessages()
        self.consuming = False
        self._queue = options.queue.encode()
        self._held: dict[int, Handle] = {}
        self._nameless: dict[int, bytes] = {}
        self.unsure: dict[Handle, bytes] = {}
        self._last = 0
        self._probes: list[Callable[[int, int], None]] = []
        self._receiving: _Receiving | None = None
        self._locks: MessageLocks | None = None
        self._locked_s = 0.0
        super().__init__(loop, options, one, doing)

    # ------------------------------------------------------------ the link

    def _ready(self) -> None:
        assert self.session is not None
        link = self.session.receiver(f"{self.options.queue} {uuid.uuid4()}")
        link.source.address = self.address_of(self.address)
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST
        if self.options.message_session and self._prefetch:
            session_filter(link, self.options.message_session)
        self._receiving = _Receiving(self, link)
        self.client.engine.on_delivery[handle_of(link)] = self._delivered
        self.flush_later()

    def attached(self, link: Any) -> None:
        """Begin to receive."""
        self.consuming = True
        if self.options.message_session or self._prefetch:
            self._locks = MessageLocks(self, self.address, link)
        self._give_credit()
        self._events.began(0, 1)
        if self.options.message_session == ANY_SESSION:
            self._idle_at(self._last)

    def _idle_at(self, last: int) -> None:
        def look() -> None:
            if self.over:
                return
            if self._last == last and not self._held:
                self._failed(SessionIdleError(f"{self.doing}: the session gives nothing more"))
            else:
                self._idle_at(self._last)

        self.later(self.options.session_idle_ms / 1000, look)

    def _give_credit(self) -> None:
        """Have as many messages sent as may be under way."""
        if self._receiving is None or not self.consuming or self.over or self._probes:
            return
        link = self._receiving.link
        more = self._prefetch - len(self._held) - int(link.credit)
        if more > 0 and (more * _CREDIT_SHARE >= self._prefetch or not link.credit):
            link.flow(more)
            self.flush_later()

    def _delivered(self, delivery: Handle) -> bool:
        """Take what is complete; see `Engine.on_delivery`."""
        if self._receiving is None:
            return False
        if delivery in self.unsure and is_settled(delivery):
            del self.unsure[delivery]
            settle(delivery)
            return True
        link = handle_of(self._receiving.link)
        for handle, data, settled in whole_messages(link, RECEIVED_BODY_BYTES_MAX):
            message = read_message(data, self._queue)
            self._last += 1
            again = message.delivery_count > 0
            if self.speaks_rabbit:
                again = not message.first_acquirer
            self.filled.add(self._last, message, again)
            if settled:
                settle(handle)
                continue
            self._held[self._last] = handle
            if not message.has_id:
                self._nameless[self._last] = message.identity
            if self._locks is not None and message.locked_until_ms:
                self._locks.note(self._last, tag_of(handle), message.locked_until_ms)
        current = lib.pn_link_current(link)
        if current and lib.pn_delivery_aborted(current):
            settle(current)
        return True

    def on_pass(self) -> None:
        """Tell what has arrived together, and answer probes."""
        if self._probes and self._receiving is not None and not self.over:
            link = self._receiving.link
            if not link.draining():
                left = int(link.drained())
                probes, self._probes = self._probes, []
                for answer in probes:
                    answer(0 if left > 0 else SOME, 1)
        self._give_credit()
        if self.filled.count and not self.over:
            self._events.received()

    # ------------------------------------------------------------ answers

    def accept(self, tag: int, multiple: bool) -> None:
        """See Session10.ack."""
        if not self.consuming or self._ended:
            return
        tags = takewhile(lambda each: each <= tag, self._held) if multiple else [tag]
        for each in list(tags):
            if each in self._nameless and not self.speaks_rabbit and each in self._held:
                handle = self._held.pop(each)
                self.unsure[handle] = self._nameless.pop(each)
                tell_outcome(handle, ACCEPTED)
            else:
                self._settle(each, ACCEPTED)
        self._give_credit()
        self.flush_later()

    def give_back(self, tag: int, requeue: bool) -> None:
        """See Session10.nack."""
        if not self.consuming or self._ended or tag not in self._held:
            return
        if requeue:
            self._fail_delivery(tag)
        else:
            self._reject(tag)
        self._give_credit()
        self.flush_later()

    def _settle(self, tag: int, outcome: int) -> None:
        handle = self._held.pop(tag, None)
        self._nameless.pop(tag, None)
        if self._locks is not None:
            self._locks.forget(tag)
        if handle is not None:
            settle_as(handle, outcome)

    def _fail_delivery(self, tag: int) -> None:
        """Have the broker count the delivery as failed."""
        lib.pn_disposition_set_failed(lib.pn_delivery_local(self._held[tag]), True)
        self._settle(tag, int(Delivery.MODIFIED))

    def _reject(self, tag: int) -> None:
        reason = f"a micro-batch with it failed again and again ({self.doing})"
        held = wrapped(self._held[tag])
        if self._locks is not None and self._locks.any:
            told = {"DeadLetterReason": "BatchFailed", "DeadLetterErrorDescription": reason}
            held.local.condition = Condition(DEAD_LETTER, reason, told)
        else:
            held.local.condition = Condition(REJECTED, reason)
        held.update(Delivery.REJECTED)  # which has the condition sent
        self._settle(tag, int(Delivery.REJECTED))

    def probe(self, answer: Callable[[int, int], None]) -> None:
        """See Session10.probe: the broker sends what there is for the credit, and says when."""
        if not self.consuming or self._receiving is None or self.over:
            return
        self._probes.append(answer)
        if len(self._probes) == 1:
            link = self._receiving.link
            if link.credit <= 0:
                self.later(0, self.on_pass)  # there is nothing to drain
            else:
                link.drain(0)
            self.flush_later()

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Give back what is not acknowledged, and close."""
        if not self.over and self._receiving is not None:
            for tag in list(self._held):
                if tag in self._nameless and not self.speaks_rabbit:
                    self._fail_delivery(tag)
                else:
                    self._settle(tag, RELEASED)
            self._receiving.link.close()
        super().close()

    def _end(self) -> None:
        if self._client is not None and self._receiving is not None and not self._ended:
            self._client.engine.on_delivery.clear()
            self._held.clear()
        super()._end()

    def _lost(self, why: WarrenSparkError | None) -> None:
        self.consuming = False
        self._events.ended(why)


class _Receiving(Link10):
    """The receiving link."""

    def __init__(self, owner: Receiver10, link: Any) -> None:
        self._owner = owner
        super().__init__(owner, link)

    def ready(self) -> None:
        """See Link10."""
        self._owner.attached(self.link)

    def credited(self) -> None:
        """See ClientLink; what it means is looked at once all has arrived (`on_pass`)."""
