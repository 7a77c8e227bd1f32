"""What a link of a federated exchange keeps at its upstream: a queue, and an exchange before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pika.exceptions import ChannelClosedByBroker

from warren_broker.transfers.federation.exchange_rules import (
    Bound,
    ClusterExchange,
    ExchangeLink,
    passed_on,
)
from warren_wire.links.definition import ShovelEnd
from warren_wire.sessions.endpoint import NOT_FOUND, Endpoint, in_words

NUMBERS: Final = range(1, 9)
"""Of the exchanges before a queue: one is in use, and one is made while a link begins again."""


class UpstreamExchange:
    """Binds a link's queue at its upstream as the federated exchange is bound.

    Bindings of an earlier run may be there that nothing needs any more. 1. Another exchange is
    made, with all bindings of now, and bound to the queue.  2. The ones before it are deleted, with
    their bindings.  A message that comes between the two steps is in the queue once: one publish
    puts it there once, by however many ways.

    end      the queue
    ready    called when the queue gets what it is to get
    """

    def __init__(
        self, source: Endpoint, end: ShovelEnd, link: ExchangeLink, ready: Callable[[], None]
    ) -> None:
        self._source = source
        self._end = end
        self._link = link
        self._ready = ready
        self._channel: Any = None
        self._bindings: list[Bound] | None = None
        self._made: dict[tuple[str, str], Bound] = {}
        self._name = ""
        self._others: list[str] = []
        said = source.connection.server_properties or {}
        named = said.get("cluster_name", "")
        named = named.decode("utf-8", "replace") if isinstance(named, bytes) else str(named)
        self.there = ClusterExchange(named, source.uri.vhost, link.exchange)

    @property
    def is_itself(self) -> bool:
        """Whether the upstream is the federated exchange, or nothing shows that it is not."""
        return self.there == self._link.here

    def begin(self) -> None:
        """Declare what is missing; the bindings follow when they are known."""

        def opened(channel: Any) -> None:
            self._channel = channel
            channel.add_on_close_callback(closed)
            self._source.ensure_queue(self._end, lambda count: self._find_number(0))

        def closed(channel: Any, reason: Any) -> None:
            if isinstance(reason, ChannelClosedByBroker):
                self._source.fail(in_words(reason))

        def there() -> None:
            self._source.connection.channel(on_open_callback=opened)

        def missing(code: int, text: str) -> None:
            if code != NOT_FOUND:
                self._source.fail(f"{code} {text}")
                return
            declaration = {
                "exchange_type": self._link.kind,
                "durable": self._link.durable,
                "arguments": dict(self._link.arguments),
            }
            self._declare(self._link.exchange, there, self._source.fail_told, **declaration)

        self._declare(self._link.exchange, there, missing, passive=True)

    def _declare(
        self,
        exchange: str,
        done: Callable[[], None],
        refused: Callable[[int, str], None],
        **how: Any,
    ) -> None:
        """Declare an exchange, or find out whether it exists."""
        self._source.attempt(
            lambda channel, made: channel.exchange_declare(exchange, callback=made, **how),
            lambda made: done(),
            refused,
        )

    def _find_number(self, at: int) -> None:
        """Take the first name that no exchange has; with all taken, the last one, made again."""
        name = f"{self._end.queue} {NUMBERS[at]}"

        def missing(code: int, text: str) -> None:
            if code == NOT_FOUND:
                self._make(name)
            else:
                self._source.fail(f"{code} {text}")

        def there() -> None:
            self._others.append(name)
            if at + 1 < len(NUMBERS):
                self._find_number(at + 1)
            else:
                self._others.pop()
                self._channel.exchange_delete(name)
                self._make(name)

        self._declare(name, there, missing, passive=True)

    def _make(self, name: str) -> None:
        def made(frame: Any) -> None:
            self._name = name
            if self._bindings is not None:
                self._adjust(first=True)

        self._channel.exchange_declare(name, "fanout", durable=True, internal=True, callback=made)

    # ------------------------------------------------------------ bindings

    def bind(self, bindings: list[Bound]) -> None:
        """Have the queue bound like this: all bindings of the federated exchange."""
        first, self._bindings = self._bindings is None, bindings
        if self._name:
            self._adjust(first)

    def _adjust(self, first: bool) -> None:
        """Add what is missing upstream, then remove what is too much there."""
        assert self._bindings is not None
        link, channel = self._link, self._channel
        wanted = passed_on(self._bindings, link.here, self.there, link.max_hops)
        for key, (routing_key, arguments) in wanted.items():
            if key not in self._made:
                channel.exchange_bind(
                    self._name, link.exchange, routing_key=routing_key, arguments=arguments
                )
        for key, (routing_key, arguments) in self._made.items():
            if key not in wanted:
                channel.exchange_unbind(
                    self._name, link.exchange, routing_key=routing_key, arguments=arguments
                )
        self._made = wanted
        if first:
            channel.queue_bind(self._end.queue, self._name, callback=lambda bound: self._bound())

    def _bound(self) -> None:
        for name in self._others:
            self._channel.exchange_delete(name)
        self._others = []
        self._ready()

    def remove(self, done: Callable[[], None]) -> None:
        """Delete the queue and the exchange before it: the exchange is federated no more."""
        if not self._name:
            done()
            return
        self._channel.exchange_delete(self._name)
        self._channel.queue_delete(self._end.queue, callback=lambda gone: done())
