"""Headers exchanges: a binding's arguments are compared with a message's headers.

x-match `all` (the default) and `any` skip arguments with names in `x-`; `all-with-x` and
`any-with-x` skip only x-match itself. An argument without a value only requires that the header is
present.
"""

from __future__ import annotations

from typing import Any

from warren_broker.metadata.records import Binding, BindingKey
from warren_broker.routing.matcher import Destination, Headers, RoutedMessage


class HeadersMatcher:
    """Bindings as pairs to be compared, in the order in which they were added."""

    __slots__ = ("rules",)

    def __init__(self) -> None:
        self.rules: dict[BindingKey, tuple[bool, tuple[tuple[str, Any], ...]]] = {}

    def add(self, key: BindingKey, binding: Binding) -> None:
        how = binding.arguments.get("x-match", "all")
        with_x = how in ("all-with-x", "any-with-x")
        pairs = tuple(
            (name, binding.arguments[name])
            for name in sorted(binding.arguments)
            if name != "x-match" and (with_x or not name.startswith("x-"))
        )
        self.rules[key] = (how in ("any", "any-with-x"), pairs)

    def remove(self, key: BindingKey, binding: Binding) -> None:
        del self.rules[key]

    def match(self, message: RoutedMessage, found: dict[Destination, None]) -> None:
        there = message.headers or {}
        for key, (either, pairs) in self.rules.items():
            hits = (holds(there, name, value) for name, value in pairs)
            if any(hits) if either else all(hits):
                found[key[:2]] = None


def holds(headers: Headers, name: str, value: Any) -> bool:
    """Return whether the header is present, with that value unless None is given."""
    if name not in headers:
        return False
    return value is None or same(headers[name], value)


def same(one: Any, other: Any) -> bool:
    """Compare by value and kind: true is not 1, 1 is not 1.0; text and bytes are both strings."""
    if isinstance(one, str):
        one = one.encode("utf-8", "surrogatepass")
    if isinstance(other, str):
        other = other.encode("utf-8", "surrogatepass")
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(
            name in other and same(one[name], other[name]) for name in one
        )
    return kind(one) is kind(other) and bool(one == other)


def kind(value: Any) -> type:
    """Return a value's type, where a subclass of int (a timestamp) counts as int."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int
    return type(value)
