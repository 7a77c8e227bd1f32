"""Evaluation of a filter on the messages of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from warren_machines.message_filter.definition import MessageFilter, Reference
from warren_wire.amqp10.message.sent import head_for_filters
from warren_wire.block.block import Block
from warren_wire.block.layout import PRIORITY_DEFAULT
from warren_wire.kernel import read_fields
from warren_wire.kernel.section_types import PROPERTY_NAMES, MalformedSections
from warren_wire.sql_filter import (
    APPLICATION_SECTION,
    HEADER_SECTION,
    FilterRefused,
    Identifier,
    SqlFilter,
    equal,
)

HEAD_BYTES_MAX: Final = 32 * 1024
"""A message with more bytes of properties matches no filter.

An evaluation takes time in proportion to them and to the filter's length, and holds up the node.
"""
_MISSING: Final = object()
_FIELDS: Final = {name: number for number, name in enumerate(PROPERTY_NAMES)}
Ask: TypeAlias = Callable[[list[Any]], bool]


class Matches(NamedTuple):
    """Which messages of a block match; bits: bit i for message i; whole: all of them."""

    bits: int
    whole: bool


class Evaluator:
    """A filter that can be asked about blocks.

    Whatever a message holds is no error. What a filter says of a message depends on the message
    alone: not on the time (`FilterRefused` for UTC()), nor on deliveries.
    """

    def __init__(self, wanted: MessageFilter) -> None:
        """Raises FilterRefused for SQL that is none, or that needs the time."""
        self._priority = -1
        self._fields: dict[int, int] = {}
        self._names: dict[bytes, int] = {}
        self._count = 0
        self._asks: list[Ask] = [self._sql(text) for text in wanted.sql]
        for reference in wanted.properties:
            place = self._field(_FIELDS[reference.name])
            self._asks.append(_referred(reference, place))
        for reference in wanted.application:
            place = self._name(reference.name)
            self._asks.append(_referred(reference, place, must_be_there=True))

    def _sql(self, text: str) -> Ask:
        made = SqlFilter(text)
        if made.uses_time:
            raise FilterRefused(
                "UTC() changes with the time, and a queue asks once about each message: compare "
                "with a constant, or give messages a time to live"
            )
        places = tuple(self._identified(one) for one in made.identifiers)
        matches = made.matches

        def ask(found: list[Any]) -> bool:
            values = [found[place] for place in places]
            return matches([None if value is _MISSING else value for value in values])

        return ask

    def _identified(self, one: Identifier) -> int:
        if one.section == APPLICATION_SECTION:
            return self._name(one.name)
        if one.section == HEADER_SECTION:
            if self._priority < 0:
                self._priority = self._place()
            return self._priority
        return self._field(_FIELDS[one.name.replace("_", "-")])

    def _field(self, number: int) -> int:
        if number not in self._fields:
            self._fields[number] = self._place()
        return self._fields[number]

    def _name(self, name: str) -> int:
        key = name.encode()
        if key not in self._names:
            self._names[key] = self._place()
        return self._names[key]

    def _place(self) -> int:
        self._count += 1
        return self._count - 1

    def asked(self, block: Block) -> Matches:
        """Return which of a block's messages match; one that cannot be read does not."""
        bits = 0
        for at in range(block.count):
            bits |= self.matches(block, at) << at
        return Matches(bits, bits == (1 << block.count) - 1)

    def matches(self, block: Block, at: int) -> bool:
        """Return whether message `at` of a block matches."""
        raw = block.properties(at)
        if len(raw) > HEAD_BYTES_MAX:
            return False
        blank: list[Any] = [_MISSING] * self._count
        try:
            head = head_for_filters(raw)
            found = read_fields(head, self._priority, self._fields, self._names, blank)
        except MalformedSections:
            return False
        if self._priority >= 0 and not isinstance(found[self._priority], int):
            found[self._priority] = PRIORITY_DEFAULT
        return all(ask(found) for ask in self._asks)


def _referred(reference: Reference, place: int, must_be_there: bool = False) -> Ask:
    """Return whether a message has what a property filter refers to.

    A reference of null is true of any value; that of an application property needs one.
    """
    given = reference.given
    if reference.match == "any":
        return lambda found: not must_be_there or found[place] is not _MISSING
    if reference.match == "equal":
        return lambda found: found[place] is not _MISSING and equal(given, found[place])
    assert isinstance(given, str), reference
    affix, starts = given.encode(), reference.match == "prefix"

    def ask(found: list[Any]) -> bool:
        value = found[place]
        if isinstance(value, str):
            value = value.encode()
        if not isinstance(value, bytes):
            return False
        return value.startswith(affix) if starts else value.endswith(affix)

    return ask
