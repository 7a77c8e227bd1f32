"""The two ends of a shovel over AMQP 0.9.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from warren_broker.transfers.shovel.ends import Answers
from warren_broker.transfers.shovel.received import Received, Received091
from warren_broker.transfers.shovel.sections import Stamps
from warren_broker.transfers.shovel.source_consumer import SourceConsumer
from warren_wire import relay_names
from warren_wire.errors import InvalidArgument
from warren_wire.links.definition import ShovelDefinition
from warren_wire.links.uris import ShovelUri
from warren_wire.relay_names import RelayedName, packed
from warren_wire.sessions.connection091 import ACCESS_REFUSED
from warren_wire.sessions.endpoint import RESOURCE_LOCKED, Endpoint
from warren_wire.sessions.locate import OwnNode

SOURCE_KEY: Final = "src-uri"
TARGET_KEY: Final = "dest-uri"
FURTHER_KEYS: Final = ("CC", "BCC")
_BEFORE: Final = {relay_names.RELAYED: b""}


class Source091(Endpoint):
    """See `ends.SourceEnd`.

    consumer_tag  of a federation link, with a number; None: the library chooses
    exclusive     there may be no other consumer
    """

    def __init__(
        self,
        shovel: ShovelDefinition,
        uri: ShovelUri,
        own: OwnNode,
        name: str,
        failed: Callable[[str], None],
        consumer_tag: str | None = None,
        exclusive: bool = False,
    ) -> None:
        super().__init__(SOURCE_KEY, uri, own, name, failed)
        self._shovel = shovel
        self._consumer_tag = consumer_tag
        self._exclusive = exclusive
        self._queue: Any = shovel.source.queue
        self._consumer: SourceConsumer | None = None
        self._wanted, self._stopped = True, False

    def open(self, ioloop: Any, opened: Callable[[], None]) -> None:
        """See `ends.End`."""

        def open_now() -> None:
            self.channel.add_on_cancel_callback(
                lambda frame: self.fail(
                    f"{self._shovel.source.described()} was deleted, or is consumed for this from "
                    "another place"
                )
            )
            opened()

        super().open(ioloop, open_now)

    def find(self, found: Callable[[int], None]) -> None:
        """See `ends.SourceEnd`; from an exchange it consumes through an exclusive queue."""
        end = self._shovel.source
        if end.queue is not None:
            self.ensure_queue(end, found)
            return

        def declared(made: Any) -> None:
            self._queue = made.method.queue
            self.channel.queue_bind(
                self._queue,
                end.exchange,
                routing_key=end.exchange_key,
                callback=lambda bound: found(0),
            )

        self.channel.queue_declare("", exclusive=True, callback=declared)

    def count(self, relay: str, counted: Callable[[int], None]) -> None:
        """See `ends.SourceEnd`."""
        self.declare(
            lambda made: counted(made.method.message_count),
            self.fail_told,
            queue=self._queue,
            passive=True,
            arguments={relay_names.ARGUMENT: relay},
        )

    def sees(self, probe: str, answer: Callable[[bool], None]) -> None:
        """See `ends.SourceEnd`."""

        def not_seen(code: int, text: str) -> None:
            answer(code == RESOURCE_LOCKED)  # it is there, and exclusive to the other connection

        self.declare(lambda made: answer(True), not_seen, queue=probe, passive=True)

    def consume(
        self,
        limit: int,
        delivered: Callable[[Received], None],
        begun: Callable[[], None],
        relay: str,
    ) -> None:
        """See `ends.SourceEnd`; messages come once they are wanted."""
        named = {relay_names.ARGUMENT: relay} if relay else {}

        def arrived(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            name = _name_of(properties) if relay else (0, 0)
            delivered(
                Received091(
                    method.delivery_tag,
                    method.exchange,
                    method.routing_key,
                    method.redelivered,
                    properties,
                    body,
                    *name,
                )
            )

        def ready(frame: Any) -> None:
            if self._stopped:
                return
            self._consumer = SourceConsumer(
                self.channel,
                self._queue,
                {**self._shovel.consumer_args, **named},
                self._consumer_tag,
                arrived,
                begun,
                self.fail,
                exclusive=self._exclusive,
                rejects=not relay,
            )
            if self._wanted:
                self._consumer.want(True)
            else:
                begun()

        self.channel.basic_qos(prefetch_count=limit, callback=ready)

    def want(self, wanted: bool) -> None:
        """See `ends.SourceEnd`."""
        self._wanted = wanted
        if self._consumer is not None:
            self._consumer.want(wanted)

    def limit(self, prefetch: int) -> None:
        """See `ends.SourceEnd`."""
        if self._consumer is not None:
            self._consumer.limit(prefetch)

    def stop(self, done: Callable[[], None]) -> None:
        """See `ends.SourceEnd`."""
        self._stopped = True
        if self._consumer is None:
            done()
        else:
            self._consumer.stop(done)

    def return_(self, tag: int) -> None:
        """See `ends.SourceEnd`."""
        if self.channel.is_open:
            self.channel.basic_nack(tag, requeue=True)

    def acknowledge(self, tag: int, multiple: bool) -> None:
        """See `ends.SourceEnd`."""
        self.channel.basic_ack(tag, multiple)

    def fail_held(self) -> None:
        """See `ends.SourceEnd`: a delivery that comes back with its channel is counted anyway."""


def _name_of(properties: Any) -> tuple[int, int]:
    """Take the message's name off its headers; 0: it has none."""
    headers = properties.headers
    if not headers or relay_names.NUMBER not in headers:
        return 0, 0
    name = headers.pop(relay_names.ORIGIN), headers.pop(relay_names.NUMBER)
    properties.headers = headers or None
    return name


def _forget_further_keys(properties: Any, to_one_queue: bool) -> None:
    """Take CC and BCC off a message that is published to one queue; otherwise those of no use.

    1. A message is published with CC, to queues a and b.  2. A shovel moves that of a to c.
    3. With the header, the broker there would give it to its queue b, too: a second time.

    1. A message over AMQP 1.0 has an application property CC, any text.  2. To a consumer over
    0.9.1 that is a header.  3. A broker closes the channel for one that is no list, each time.
    """
    headers = properties.headers or {}
    unfit = [
        name
        for name in FURTHER_KEYS
        if name in headers and (to_one_queue or not isinstance(headers[name], list))
    ]
    if unfit:
        kept = {name: value for name, value in headers.items() if name not in unfit}
        properties.headers = kept or None


@dataclass(frozen=True, slots=True)
class Prepared091:
    """A message as it is published over AMQP 0.9.1."""

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


class Target091(Endpoint):
    """See `ends.TargetEnd`.

    confirms   whether it confirms what is published
    accepted   told what it has confirmed; refused: what it has refused (basic.nack)
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
        self._end = stamps.shovel.destination
        self._confirms = confirms
        self._accepted = accepted
        self._refused = refused
        self._mandatory = self._end.only_queue is not None
        self._blocked = False

    @property
    def blocked(self) -> bool:
        """Whether a resource alarm stops publishers."""
        return self._blocked

    def open(self, ioloop: Any, opened: Callable[[], None]) -> None:
        """See `ends.End`."""

        def open_now() -> None:
            self.channel.add_on_return_callback(self._returned)
            made = self.connection
            made.add_on_connection_blocked_callback(lambda *_: self._set_blocked(True))
            made.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(False))
            if self._confirms:
                self.channel.confirm_delivery(self._answered, lambda frame: opened())
            else:
                opened()

        super().open(ioloop, open_now)

    def find(self, found: Callable[[], None]) -> None:
        """See `ends.TargetEnd`; a queue is declared, an exchange must be there."""
        end = self._end
        if end.queue is not None:
            self.ensure_queue(end, lambda count: found())
        elif end.exchange:
            self.channel.exchange_declare(
                end.exchange, passive=True, callback=lambda frame: found()
            )
        else:
            found()

    @property
    def refusals_are_sure(self) -> bool:
        """See `ends.TargetEnd`; behind an exchange another queue may have it."""
        return self._mandatory and self.nacks_say_so

    def probe(self, made: Callable[[str | None], None]) -> None:
        """See `ends.TargetEnd`; it is exclusive."""

        def not_made(code: int, text: str) -> None:
            if code == ACCESS_REFUSED:
                made(None)
            else:
                self.fail_told(code, text)

        self.declare(lambda frame: made(frame.method.queue), not_made, queue="", exclusive=True)

    def forget_probe(self, probe: str) -> None:
        """See `ends.TargetEnd`."""
        self.channel.queue_delete(probe)

    def prepare(self, received: Received) -> Prepared091:
        """See `ends.TargetEnd`."""
        plain, end = received.as_091(), self._end
        if end.queue is not None:
            exchange, key = "", end.queue
        else:
            found = plain.exchange if end.exchange is None else end.exchange
            if found is None:
                raise InvalidArgument(
                    "a message does not say to which exchange it was published (annotation "
                    "x-exchange): give dest-queue or dest-exchange"
                )
            named = plain.routing_key if end.exchange_key is None else end.exchange_key
            exchange, key = found, named or ""
        _forget_further_keys(plain.properties, end.only_queue is not None)
        return Prepared091(exchange, key, self._stamps.stamp(plain.properties), plain.body)

    def publish(self, number: int, prepared: Prepared091, name: RelayedName | None) -> None:
        """See `ends.TargetEnd`; what no queue gets comes back where the destination is a queue."""
        rest = prepared.properties.headers or {}
        if name is not None:
            # RELAYED is before the others, and keeps its place when it is published again.
            prepared.properties.headers = {**_BEFORE, **rest, relay_names.RELAYED: packed(name)}
        elif relay_names.RELAYED in rest:
            # 1. A client names a message itself, at a source that does not know relays.  2. The
            # destination does, and would take the name for the shovel's.
            kept = {key: value for key, value in rest.items() if key != relay_names.RELAYED}
            prepared.properties.headers = kept or None
        self.channel.basic_publish(
            prepared.exchange,
            prepared.routing_key,
            prepared.body,
            prepared.properties,
            mandatory=self._mandatory,
        )

    def _answered(self, frame: Any) -> None:
        method = frame.method
        tell = self._accepted if method.NAME == "Basic.Ack" else self._refused
        tell([(method.delivery_tag, method.multiple)])

    def _returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        # Its confirm comes next: by then nothing is acknowledged any more.
        self.fail(
            f"{method.reply_code} {method.reply_text}: {self._end.described()} does not exist any "
            "more; nothing is lost, the message is still in the source"
        )

    def _set_blocked(self, blocked: bool) -> None:
        self._blocked = blocked
