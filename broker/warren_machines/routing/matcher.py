"""The interface of an exchange type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from warren_machines.metadata.records import Binding, BindingKey
from warren_machines.steps import Steps
from warren_wire.amqp091.properties import Properties
from warren_wire.sender_selected import Headers

Destination: TypeAlias = tuple[bool, str]
"""(whether it is a queue, its name)."""
Dependence: TypeAlias = int
"""What a message's queues depend on beside its routing keys: 0, or some of the next two, or-ed."""
ON_CONTENT: Final = 1
"""Its headers or properties."""
ON_CHANCE: Final = 2
"""A number drawn for it: equal messages may go to different queues."""


class RoutedMessage(NamedTuple):
    """What matchers look at.

    routing_keys  the message's own, then those in its headers CC and BCC
    headers       None: they were not decoded
    properties    None: they were not decoded
    """

    routing_keys: Sequence[str]
    headers: Headers | None = None
    properties: Properties | None = None

    @property
    def distinct_keys(self) -> Sequence[str]:
        """The routing keys, each once: equal ones lead to the same queues."""
        keys = self.routing_keys
        return keys if len(keys) == 1 else tuple(dict.fromkeys(keys))


class Matcher(Protocol):
    """The bindings of one exchange, arranged so that matching is cheap.

    `add` and `remove` are called once per binding; `match` adds destinations to `found`, of which
    only the keys and their order matter.
    """

    def add(self, key: BindingKey, binding: Binding) -> None:
        """Add a binding."""

    def remove(self, key: BindingKey, binding: Binding) -> None:
        """Remove a binding."""

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        """Add the message's destinations to `found`, as work (`steps.Work`).

        Bindings may come and go while it waits: one that is there all the time is found if it
        matches, any other may be.
        """


class CountedDestinations:
    """Destinations with the number of bindings that name each."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Destination, int] = {}

    def add(self, destination: Destination) -> None:
        """Count one more binding to it."""
        self.counts[destination] = self.counts.get(destination, 0) + 1

    def remove(self, destination: Destination) -> None:
        """Count one binding less; drop the destination with its last one."""
        left = self.counts[destination] - 1
        if left:
            self.counts[destination] = left
        else:
            del self.counts[destination]


class DirectMatcher:
    """Destinations by routing key."""

    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: dict[str, CountedDestinations] = {}

    def add(self, key: BindingKey, binding: Binding) -> None:
        self.by_key.setdefault(binding.routing_key, CountedDestinations()).add(key[:2])

    def remove(self, key: BindingKey, binding: Binding) -> None:
        there = self.by_key[binding.routing_key]
        there.remove(key[:2])
        if not there.counts:
            del self.by_key[binding.routing_key]

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        for routing_key in message.distinct_keys:
            there = self.by_key.get(routing_key)
            if there is not None:
                found.update(dict.fromkeys(there.counts))
            if steps.take(1 if there is None else 1 + len(there.counts)):
                yield


class FanoutMatcher:
    """All destinations."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all = CountedDestinations()

    def add(self, key: BindingKey, binding: Binding) -> None:
        self.all.add(key[:2])

    def remove(self, key: BindingKey, binding: Binding) -> None:
        self.all.remove(key[:2])

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        found.update(dict.fromkeys(self.all.counts))
        steps.take(len(self.all.counts))
        return ()
