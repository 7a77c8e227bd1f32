"""The two ends of a shovel over AMQP 1.0."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from warren_broker.transfers.shovel.connection10 import Endpoint10
from warren_broker.transfers.shovel.end091 import SOURCE_KEY, TARGET_KEY
from warren_broker.transfers.shovel.ends import Answers
from warren_broker.transfers.shovel.received import Overrun, Received, Received10
from warren_broker.transfers.shovel.sections import Stamps, message_id, passed_on
from warren_wire.amqp10.deliveries import Handle, begin, handle_of, settle, tag_of
from warren_wire.amqp10.proton import Condition, Delivery, Link, Session, symbol
from warren_wire.links.definition import ShovelEnd
from warren_wire.links.uris import ShovelUri
from warren_wire.relay_names import ARGUMENT, RelayedName, name_in_delivered_tag, relayed_tag
from warren_wire.sessions.connection10 import SIZE_EXCEEDED
from warren_wire.sessions.locate import OwnNode

ANSWER_S: Final = 1.0
"""How long the peer may take to answer a drain, or a detach."""
BLOCKED_S: Final = 1.0
"""A destination that gives no credit for so long counts as blocked."""


class Source10(Endpoint10):
    """See `ends.SourceEnd`. A delivery's tag here is its number on the link, from 1 on.

    A message that is larger than the node takes, or many that there is no credit for (`Overrun`),
    end the link as the specification says. The first alone is counted as failed. RabbitMQ 3.10
    sends a whole queue now and then, whatever the credit: ended at once, that would count as a
    failed delivery of each message.

    When it stops, it drains the link, so that nothing is under way; and it detaches before it
    closes the connection: what a link held then, or was on its way to it, is not counted as failed.

    Invariant: credit given and not used, and deliveries held, are `_limit` together at the most,
    unless it was lowered; nothing is settled but by `acknowledge`, `fail_held` and the end
    """

    def __init__(
        self,
        end: ShovelEnd,
        uri: ShovelUri,
        own: OwnNode,
        name: str,
        failed: Callable[[str], None],
    ) -> None:
        super().__init__(SOURCE_KEY, uri, own, name, failed)
        self._address = end.address
        self._held: OrderedDict[int, Any] = OrderedDict()
        self._part = bytearray()
        self._last = self._limit = 0
        self._delivered: Callable[[Received], None] = lambda received: None
        self._wanted, self._stopped = True, False
        self._relay = ""
        self._counts_held = False
        self._overrun = Overrun()
        self._on_stopped: Callable[[], None] | None = None
        self._on_left: Callable[[], None] | None = None

    def find(self, found: Callable[[int], None]) -> None:
        """See `ends.SourceEnd`: nothing tells how much there is, nor whether there is anything."""
        found(0)

    def count(self, relay: str, counted: Callable[[int], None]) -> None:
        """See `ends.SourceEnd`: as `find`."""
        counted(0)

    def sees(self, probe: str, answer: Callable[[bool], None]) -> None:
        """See `ends.SourceEnd`: it cannot know."""
        answer(False)

    def consume(
        self,
        limit: int,
        delivered: Callable[[Received], None],
        begun: Callable[[], None],
        relay: str,
    ) -> None:
        """See `ends.SourceEnd`; the address must be there."""
        self._delivered = delivered
        self._limit = limit
        self._relay = relay

        def make(session: Session, name: str) -> Link:
            link = session.receiver(name)
            link.source.address = self._address
            link.snd_settle_mode = Link.SND_UNSETTLED
            link.rcv_settle_mode = Link.RCV_FIRST
            if relay:
                link.properties = {symbol(ARGUMENT): relay}
            return link

        def attached() -> None:
            self._give_credit()
            begun()

        self.attach(make, attached)

    def want(self, wanted: bool) -> None:
        """See `ends.SourceEnd`."""
        self._wanted = wanted
        self._give_credit()

    def limit(self, prefetch: int) -> None:
        """See `ends.SourceEnd`."""
        self._limit = prefetch
        self._give_credit()

    def stop(self, done: Callable[[], None]) -> None:
        """See `ends.SourceEnd`."""
        self._stopped = True
        self._on_stopped = done
        if self._is_attached and not self._ended:
            self.link.drain(0)
            self.flush_later()
            self._services.call_later(ANSWER_S, self._drained)
        self.credited()

    def credited(self) -> None:
        """Note that the peer has answered the drain, or used up the credit before."""
        if not self._is_attached or self._ended or not self.link.draining():
            self._drained()

    def _drained(self) -> None:
        done, self._on_stopped = self._on_stopped, None
        if done is not None:
            done()

    def return_(self, tag: int) -> None:
        """See `ends.SourceEnd`."""
        delivery = self._held.pop(tag, None)
        if delivery is not None and not self._ended:
            self._settle(delivery, Delivery.RELEASED)
            self.flush_later()

    def acknowledge(self, tag: int, multiple: bool) -> None:
        """See `ends.SourceEnd`."""
        tags = takewhile(lambda each: each <= tag, self._held) if multiple else [tag]
        for each in list(tags):
            self._settle(self._held.pop(each), Delivery.ACCEPTED)
        self._give_credit()
        self.flush_later()

    def fail_held(self) -> None:
        """See `ends.SourceEnd`; what a relay holds stays its own, and is counted."""
        if self._relay:
            self._counts_held = True
            return
        for delivery in self._held.values():
            delivery.local.failed = True
            self._settle(delivery, Delivery.MODIFIED)
        self._held.clear()

    def close(self, done: Callable[[], None] = lambda: None) -> None:
        """See `ends.End`: what is held goes back uncounted, or stays with the relay."""
        if not self._ended and not self._relay:
            for delivery in self._held.values():
                self._settle(delivery, Delivery.RELEASED)
        self._held.clear()
        super().close(done)

    def leave(self, left: Callable[[], None]) -> None:
        """Detach, and wait for the answer: what was on its way is not counted then."""
        if self._counts_held:
            left()
            return
        if self._is_attached:
            self.link.close()
        if not self._is_attached or self.link.state & Link.REMOTE_CLOSED:
            left()
            return
        self._on_left = left
        self.flush()
        self._services.call_later(ANSWER_S, self._detached)

    def closed(self, condition: Condition | None) -> None:
        """See ClientLink; continue with the end."""
        super().closed(condition)
        self._detached()

    def _detached(self) -> None:
        left, self._on_left = self._on_left, None
        if left is not None:
            left()

    def _settle(self, delivery: Any, outcome: Any) -> None:
        delivery.update(outcome)
        delivery.settle()

    def _give_credit(self) -> None:
        """Have as many messages sent as may be under way."""
        if not self._wanted or self._stopped or self._ended or not self._is_attached:
            return
        more = self._limit - len(self._held) - int(self.link.credit)
        if more > 0:
            self.link.flow(more)
            self.flush_later()

    def delivered(self, delivery: Any) -> None:
        """Pass on a message that is complete."""
        if delivery.aborted:
            self._part.clear()
            delivery.settle()
            self._give_credit()  # it has used up what was given for it
            return
        if not delivery.readable or self._closing:
            return
        if len(self._part) + delivery.pending > self._own.message_bytes_max:
            self._refuse_size(delivery)
            return
        self._part += self.link.recv(delivery.pending) or b""
        if delivery.partial:
            return
        data = bytes(self._part)
        self._part.clear()
        self.link.advance()
        if too_many := self._overrun.counted(len(data), self.link.credit < 0):
            words = f"{too_many:,} bytes more than there was credit for"
            self._end_link("amqp:link:transfer-limit-exceeded", words)
        elif self._stopped and not self._relay:
            self._settle(delivery, Delivery.RELEASED)
            self.credited()
        else:
            self._last += 1
            self._held[self._last] = delivery
            name = (0, 0)
            if self._relay:
                name = name_in_delivered_tag(tag_of(handle_of(delivery)))
            self._delivered(Received10(self._last, data, *name))
            if self._stopped:
                self.credited()

    def _refuse_size(self, delivery: Any) -> None:
        """Count the message as failed, none of the others, and end the link."""
        size, limit = len(self._part) + delivery.pending, self._own.message_bytes_max
        self._part.clear()
        delivery.local.failed = True
        self._settle(delivery, Delivery.MODIFIED)
        words = f"a message of {size:,} bytes or more; this node passes on {limit:,} at most, see "
        self._end_link(SIZE_EXCEEDED, f"{words}limits.message_size_max")

    def _end_link(self, name: str, words: str) -> None:
        self.link.condition = Condition(name, words)
        self.fail(f"{name}: {words}")


@dataclass(frozen=True, slots=True)
class Prepared10:
    """A message as it is sent over AMQP 1.0."""

    pieces: tuple[bytes | memoryview, ...]

    def described(self) -> str:
        """Return which message it is, in words."""
        data = b"".join(self.pieces)
        named = message_id(data)
        return f"the message of {len(data):,} bytes" + f", message-id '{named}'" * bool(named)


class Target10(Endpoint10):
    """See `ends.TargetEnd`.

    A message that is rejected, released (no queue is bound for it) or modified is refused: it is
    published again.

    confirms  whether messages are sent unsettled
    """

    def __init__(
        self,
        stamps: Stamps,
        own: OwnNode,
        name: str,
        failed: Callable[[str], None],
        confirms: bool,
        accepted: Callable[[Answers], None],
        refused: Callable[[Answers], None],
    ) -> None:
        super().__init__(TARGET_KEY, stamps.target, own, name, failed)
        self._stamps = stamps
        self._address = stamps.shovel.destination.address
        self._confirms = confirms
        self._tell_accepted = accepted
        self._tell_refused = refused
        self._unsent: deque[tuple[int, Prepared10, RelayedName | None]] = deque()
        self._numbers: dict[Handle, int] = {}
        self._accepted: list[int] = []
        self._refused: list[int] = []
        self._moved_s = time.monotonic()

    @property
    def blocked(self) -> bool:
        """Whether messages wait for credit, and none has been taken for a while."""
        return bool(self._unsent) and time.monotonic() - self._moved_s > BLOCKED_S

    def find(self, found: Callable[[], None]) -> None:
        """See `ends.TargetEnd`: the address must be there."""

        def make(session: Session, name: str) -> Link:
            link = session.sender(name)
            link.target.address = self._address
            link.snd_settle_mode = Link.SND_UNSETTLED if self._confirms else Link.SND_SETTLED
            if self.knows_relays:
                link.properties = {symbol(ARGUMENT): True}
            return link

        self.attach(make, found)

    @property
    def refusals_are_sure(self) -> bool:
        """See `ends.TargetEnd`: a queue that does not answer rejects, too."""
        return False

    def probe(self, made: Callable[[str | None], None]) -> None:
        """See `ends.TargetEnd`: a link makes no queue that could be looked for."""
        made(None)

    def forget_probe(self, probe: str) -> None:
        """See `ends.TargetEnd`."""

    def prepare(self, received: Received) -> Prepared10:
        """See `ends.TargetEnd`."""
        return Prepared10(tuple(passed_on(received.as_10().data, self._stamps.changes())))

    def publish(self, number: int, prepared: Prepared10, name: RelayedName | None) -> None:
        """See `ends.TargetEnd`; it is sent as soon as there is credit."""
        if not self._unsent and int(self.link.credit) <= 0:
            self._moved_s = time.monotonic()
        self._unsent.append((number, prepared, name))
        self.credited()

    def credited(self) -> None:
        """Send what waits, as far as there is credit."""
        if self._ended or not self._unsent or int(self.link.credit) <= 0:
            return
        self._moved_s = time.monotonic()
        limit = int(self.link.remote_max_message_size)
        while self._unsent and int(self.link.credit) > 0:
            number, prepared, name = self._unsent.popleft()
            size = sum(map(len, prepared.pieces))
            if limit and size > limit:
                self.refuses = True
                self.fail(f"{SIZE_EXCEEDED}: a message of {size:,} bytes; it takes {limit:,}")
                return
            own = b"%d" % number
            made = begin(handle_of(self.link), own if name is None else relayed_tag(number, name))
            self._numbers[made] = number
            for piece in prepared.pieces:
                self.link.stream(bytes(piece))
            self.link.advance()
            if not self._confirms:
                del self._numbers[made]
                settle(made)
        self.flush_later()

    def unsent_bytes(self) -> int:
        """See `ends.TargetEnd`; a message without credit counts, too."""
        return super().unsent_bytes() + len(self._unsent)

    def delivered(self, delivery: Any) -> None:
        """Take an outcome."""
        state = delivery.remote_state
        if not delivery.settled and state not in _OUTCOMES:
            return
        if self._confirms:
            done = self._accepted if state == Delivery.ACCEPTED else self._refused
            done.append(self._numbers.pop(handle_of(delivery)))
        delivery.settle()

    def on_pass(self) -> None:
        """Pass on the outcomes that have arrived together."""
        accepted, self._accepted = self._accepted, []
        refused, self._refused = self._refused, []
        if accepted:
            self._tell_accepted([(number, False) for number in accepted])
        if refused:
            self._tell_refused([(number, False) for number in refused])


_OUTCOMES: Final = (
    Delivery.ACCEPTED,
    Delivery.REJECTED,
    Delivery.RELEASED,
    Delivery.MODIFIED,
)
