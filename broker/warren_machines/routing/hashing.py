"""Exchanges that choose one destination: by the hash of a message, or at random.

Everything is arithmetic on integers of 64 bits: every node, version of Python and processor gets
the same result.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from warren_machines.metadata.exchange_types import HASH_HEADER, HASH_PROPERTY, weight
from warren_machines.metadata.records import Arguments, Binding, BindingKey
from warren_machines.routing.matcher import Destination, RoutedMessage
from warren_machines.routing.surroundings import ChoosingMatcher, Surroundings
from warren_machines.steps import PIECE, Steps, Work, pieces

SLOTS_BITS: Final = 17
SLOTS: Final = 1 << SLOTS_BITS
"""Slots of a `WeightedChoice`."""
_WORD: Final = (1 << 64) - 1
_FRACTION_BITS: Final = 40
_ONE: Final = 1 << _FRACTION_BITS
_SEGMENT_BITS: Final = 8
_REST_BITS: Final = 24
_GOLDEN: Final = 0x9E3779B97F4A7C15


def hash_of(value: object) -> int:
    """Return 64 bits of a plain value; text equals the bytes that it stands for."""
    return int.from_bytes(blake2b(_encoded(value), digest_size=8).digest(), "little")


def _encoded(value: Any) -> bytes:
    """Encode a plain value so that unequal ones differ, whatever the version of Python."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return b"s%d:%b" % (len(value), value)
    if value is None:
        return b"n"
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, Mapping):
        items = (_encoded(name) + _encoded(value[name]) for name in sorted(value))
        return b"m%d:%b" % (len(value), b"".join(items))
    return b"l%d:%b" % (len(value), b"".join(map(_encoded, value)))


def hash_of_all(texts: Sequence[str]) -> int:
    """Return 64 bits of texts in their order; of one, the same as `hash_of`."""
    return hash_of(texts[0]) if len(texts) == 1 else hash_of(list(texts))


def mixed(value: int) -> int:
    """Return 64 bits of which each depends on all bits of `value` (MurmurHash3's finalizer)."""
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _WORD
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _WORD
    return value ^ value >> 33


def _log2_table() -> list[int]:
    """Return log2(1 + i / 2^_SEGMENT_BITS) in units of 2^-_FRACTION_BITS, by repeated squaring."""
    found = []
    for i in range(1 << _SEGMENT_BITS):
        value = (1 << 62) + (i << 62 - _SEGMENT_BITS)  # 1 <= x < 2 in units of 2^-62
        log = 0
        for _ in range(_FRACTION_BITS):
            value = value * value >> 62
            log <<= 1
            if value >> 63:
                value >>= 1
                log |= 1
        found.append(log)
    return [*found, _ONE]


_LOG2: Final = _log2_table()


def cost(drawn: int) -> int:
    """Return -log2(drawn / 2^64) in units of 2^-40, at least 1, for 64 bits that are not all 0.

    Between the points of the table it is a straight line: the error is below 3e-6, and equal for
    all destinations, so that it does not change which of two with equal weights is the cheaper.
    """
    top = drawn.bit_length() - 1
    rest = drawn << 63 - top
    segment = rest >> 63 - _SEGMENT_BITS & (1 << _SEGMENT_BITS) - 1
    part = rest >> 63 - _SEGMENT_BITS - _REST_BITS & (1 << _REST_BITS) - 1
    low = _LOG2[segment]
    log = low + ((_LOG2[segment + 1] - low) * part >> _REST_BITS)
    return (64 - top << _FRACTION_BITS) - log + 1


def seed_of(destination: Destination) -> int:
    """Return what a destination draws its numbers from."""
    return hash_of(list(destination))


class WeightedChoice:
    """One destination for each hash, in proportion to weights.

    A hash belongs to one of SLOTS slots. For each slot every destination draws a number, from the
    slot and its own name alone, and divides its `cost` by its weight; the slot is the cheapest
    one's (weighted rendezvous hashing). So a destination that leaves gives up its own slots, to all
    others in proportion to their weights, one that joins takes slots from all in that proportion,
    and no slot moves between two that stay. A slot's owner is found when it is first needed.

    Invariant: `_owners[slot]` is 0 (not known) or 1 + the owner's position in `destinations`.
    """

    __slots__ = ("_owners", "_seeds", "destinations", "weights")

    def __init__(
        self,
        destinations: tuple[Destination, ...],
        weights: tuple[int, ...],
        seeds: tuple[int, ...],
    ) -> None:
        """At least one destination, each once, in an order equal on every node; weights >= 1.

        seeds  `seed_of` each
        """
        assert destinations and len(destinations) == len(weights) == len(seeds), (
            destinations,
            weights,
        )
        self.destinations = destinations
        self.weights = weights
        self._seeds = seeds
        self._owners = array("I", bytes(4 * SLOTS))

    def of(self, hashed: int, steps: Steps) -> Work[Destination]:
        """Find the destination of a hash of 64 bits."""
        slot = hashed >> 64 - SLOTS_BITS
        owner = self._owners[slot]
        if not owner:
            cheapest = yield from self._cheapest((slot + 1) * _GOLDEN & _WORD, steps)
            owner = self._owners[slot] = 1 + cheapest
        return self.destinations[owner - 1]

    def _cheapest(self, salt: int, steps: Steps) -> Work[int]:
        """Find the position of the destination with the lowest cost per weight."""
        best, best_cost, best_weight, best_drawn = 0, 1, 0, 0  # costs more than anything
        for at, (seed, its_weight) in enumerate(zip(self._seeds, self.weights, strict=True)):
            if not at % PIECE and steps.take(min(PIECE, len(self.weights) - at)):
                yield
            drawn = mixed(salt ^ seed) or 1
            if its_weight <= best_weight and drawn <= best_drawn:
                continue  # a lower number costs more: no need to compute how much
            price = cost(drawn)
            mine, other = price * best_weight, best_cost * its_weight
            if mine < other or (mine == other and drawn > best_drawn):
                best, best_cost, best_weight, best_drawn = at, price, its_weight, drawn
        return best


class ModulusHashMatcher(ChoosingMatcher):
    """All destinations, sorted: the hash of the routing keys, modulo their number, chooses."""

    __slots__ = ()

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        there = yield from self._candidates.current(steps)
        if there:
            found[there[hash_of_all(message.routing_keys) % len(there)]] = None


class RandomMatcher(ChoosingMatcher):
    """All destinations, or those on this node; binding keys have no meaning."""

    __slots__ = ("_draw",)

    def __init__(self, surroundings: Surroundings, local: bool) -> None:
        """local: only queues on the node that routes, the node of the publisher's connection."""
        super().__init__(surroundings, surroundings.local if local else None)
        self._draw = surroundings.draw

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        there = yield from self._candidates.current(steps)
        if there:
            found[there[self._draw(len(there)) if len(there) > 1 else 0]] = None


class ConsistentHashMatcher:
    """Destinations with their weights: equal hashes go to one destination.

    A binding's key is its weight. What is hashed is the routing key, or the header or property that
    the exchange's arguments name; messages without it all have the same hash.

    RabbitMQ counts the first binding of a destination and ignores later ones, until a restart.
    Which came first is not known after a snapshot, so the smallest weight counts here: a function
    of the bindings, equal on every node.

    Invariant: `_choice` is for the destinations present at `_version`; None: none is.
    """

    __slots__ = (
        "_changes",
        "_choice",
        "_header",
        "_property",
        "_seeds",
        "_surroundings",
        "_version",
        "_weights",
    )

    def __init__(self, arguments: Arguments, surroundings: Surroundings) -> None:
        self._header: str | None = arguments.get(HASH_HEADER)
        self._property: str | None = arguments.get(HASH_PROPERTY)
        self._surroundings = surroundings
        self._weights: dict[Destination, dict[BindingKey, int]] = {}
        self._seeds: dict[Destination, int] = {}
        self._choice: WeightedChoice | None = None
        self._changes = 0
        self._version = (-1, -1)

    def add(self, key: BindingKey, binding: Binding) -> None:
        destination = key[:2]
        self._weights.setdefault(destination, {})[key] = weight(binding.routing_key)
        if destination not in self._seeds:
            self._seeds[destination] = seed_of(destination)
        self._changed()

    def remove(self, key: BindingKey, binding: Binding) -> None:
        there = self._weights[key[:2]]
        del there[key]
        if not there:
            del self._weights[key[:2]], self._seeds[key[:2]]
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._version = (-1, -1)

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        choice = self._choice
        if self._surroundings.version != self._version:
            choice = yield from self._choose_anew(steps)
        if choice is not None:
            found[(yield from choice.of(hash_of(self._hashed(message)), steps))] = None

    def _hashed(self, message: RoutedMessage) -> object:
        """Return the value that decides; None: the message does not have it."""
        if self._header is not None:
            return (message.headers or {}).get(self._header)
        if self._property is not None:
            return getattr(message.properties, self._property, None)
        return message.routing_keys[0]

    def _choose_anew(self, steps: Steps) -> Work[WeightedChoice | None]:
        """Take the destinations that are present; keep the owners of slots if none changed."""
        version, changes = self._surroundings.version, self._changes
        # in their order, so that to sort them again takes little more than to read them
        self._weights = {one: self._weights[one] for one in sorted(self._weights)}
        there: list[tuple[Destination, int, int]] = []
        for piece in pieces(tuple(self._weights.items())):
            for one, weights in piece:
                if self._surroundings.present(one) and weights:
                    there.append((one, min(weights.values()), self._seeds[one]))
                    steps.take(len(weights))
            if steps.take(len(piece)):
                yield
        choice = self._choice
        present = tuple(one for one, _, _ in there)
        weights_of = tuple(weight for _, weight, _ in there)
        if choice is None or (choice.destinations, choice.weights) != (present, weights_of):
            seeds = tuple(seed for _, _, seed in there)
            choice = WeightedChoice(present, weights_of, seeds) if present else None
        if self._changes == changes:
            self._choice, self._version = choice, version
        return choice
