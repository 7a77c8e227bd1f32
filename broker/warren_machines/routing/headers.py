"""Headers exchanges: a binding's arguments are compared with a message's headers.

x-match `all` (the default) and `any` skip arguments with names in `x-`; `all-with-x` and
`any-with-x` skip only x-match itself. An argument without a value only requires that the header is
present.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from warren_machines.metadata.records import Binding, BindingKey
from warren_machines.routing.matcher import Destination, RoutedMessage
from warren_machines.steps import PIECE, Steps
from warren_wire.sender_selected import Headers

BYTES_PER_STEP = 1024
"""Bytes of values that are compared in one step."""


class _Rule(NamedTuple):
    """A binding's pairs, with values as `comparable` has them; None: any value.

    either  one pair that holds is enough
    steps   that a comparison may take
    """

    destination: Destination
    either: bool
    pairs: tuple[tuple[str, Any], ...]
    steps: int


class HeadersMatcher:
    """Bindings as pairs to be compared."""

    __slots__ = ("rules",)

    def __init__(self) -> None:
        self.rules: dict[BindingKey, _Rule] = {}

    def add(self, key: BindingKey, binding: Binding) -> None:
        how = binding.arguments.get("x-match", "all")
        with_x = how in ("all-with-x", "any-with-x")
        pairs = []
        for name in sorted(binding.arguments):
            if name != "x-match" and (with_x or not name.startswith("x-")):
                value = binding.arguments[name]
                pairs.append((name, None if value is None else comparable(value)))
        steps = 1 + sum(1 + _size_bytes(value) // BYTES_PER_STEP for _, value in pairs)
        self.rules[key] = _Rule(key[:2], how in ("any", "any-with-x"), tuple(pairs), steps)

    def remove(self, key: BindingKey, binding: Binding) -> None:
        del self.rules[key]

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        there = message.headers or {}
        known: dict[str, Any] = {}
        taken = 0
        for destination, either, pairs, most in tuple(self.rules.values()):
            hits = (_holds(there, known, pair) for pair in pairs)
            if any(hits) if either else all(hits):
                found[destination] = None
            taken += most
            if taken >= PIECE:
                if steps.take(taken):
                    yield
                taken = 0
        steps.take(taken)


def _holds(headers: Headers, known: dict[str, object], pair: tuple[str, object]) -> bool:
    """Return whether the header is present, with that value unless None is given.

    known  values of headers that were compared before
    """
    name, value = pair
    if name not in headers:
        return False
    if value is None:
        return True
    if name not in known:
        known[name] = comparable(headers[name])
    return bool(known[name] == value)


def comparable(value: object) -> Any:
    """Return what equals exactly the values that are the same.

    By value and kind: true is not 1, 1 is not 1.0; text and bytes are both strings, and a timestamp
    is an integer.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if isinstance(value, list | tuple):
        return ("list", *map(comparable, value))
    if isinstance(value, dict):
        return ("table", {name: comparable(value[name]) for name in value})
    if isinstance(value, int) and not isinstance(value, bool):
        return ("int", int(value))
    return (type(value).__name__, value)


def _size_bytes(value: object) -> int:
    """Return about how many bytes are compared with such a value."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(name) + _size_bytes(value[name]) for name in value)
    if isinstance(value, Sequence):
        return sum(map(_size_bytes, value))
    return 8
