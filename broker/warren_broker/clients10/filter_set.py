"""The filters of a consumer's attach: which are applied, and the answer that says so.

RabbitMQ applies the first three on streams; here they are applied on queues.

amqp:properties-filter, amqp:application-properties-filter   a map of references, `&p:`, `&s:`, `&&`
amqp:sql-filter                                              a SQL filter expression
apache.org:selector-filter:string                            a message selector, see `translate`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from warren_machines.message_filter.definition import (
    FIELDS_MAX,
    Match,
    MessageFilter,
    Reference,
    encode_filter,
)
from warren_machines.message_filter.evaluator import Evaluator
from warren_wire.amqp10.fields import read_map
from warren_wire.amqp10.proton import Described, Link, symbol
from warren_wire.errors import InvalidArgument
from warren_wire.kernel.section_types import PROPERTY_NAMES
from warren_wire.sql_filter import FilterRefused

PROPERTIES_FILTER: Final = "amqp:properties-filter"
APPLICATION_FILTER: Final = "amqp:application-properties-filter"
SQL_FILTER: Final = "amqp:sql-filter"
SELECTOR: Final = "apache.org:selector-filter:string"
_CODES: Final = {
    0x173: PROPERTIES_FILTER,
    0x174: APPLICATION_FILTER,
    0x120: SQL_FILTER,
    0x0000468C00000004: SELECTOR,
}
_INTEGER_MAX: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class FilterSet:
    """What is applied of an attach's filters.

    filter   the bytes of all of them together; b"": none
    applied  as the attach has them, for its answer
    """

    filter: bytes = b""
    applied: Mapping[symbol, Described] | None = None

    def answer(self, link: Link) -> None:
        """Put into the attach's answer what is applied, and nothing else."""
        data = link.source.filter
        data.clear()
        if self.applied:
            data.put_dict(dict(self.applied))


def read_filters(link: Link) -> FilterSet:
    """Return the filters of a consumer's attach; raises InvalidArgument for one that is none.

    A filter of another kind is not applied, as in RabbitMQ.
    """

    def read() -> Any:
        data = link.remote_source.filter
        data.rewind()
        return data.get_object() if data.next() is not None else None

    asked = read_map("filter-set", read)
    applied: dict[symbol, Described] = {}
    sql: list[str] = []
    references: dict[str, list[Reference]] = {PROPERTIES_FILTER: [], APPLICATION_FILTER: []}
    for name, given in asked.items():
        kind = _kind(given)
        if kind is None:
            continue
        where = f"filter {str(name)!r}, {kind}"
        if kind in references:
            references[kind] += _references(where, kind, given.value)
        else:
            sql.append(_expression(where, kind, given.value))
        applied[symbol(str(name))] = given
    made = MessageFilter(
        tuple(sql), tuple(references[PROPERTIES_FILTER]), tuple(references[APPLICATION_FILTER])
    )
    return FilterSet(encode_filter(made), applied) if made else FilterSet()


def _kind(given: Any) -> str | None:
    """Return the name of a filter's kind; None: it is none that is applied here."""
    if not isinstance(given, Described):
        return None
    descriptor = given.descriptor
    if isinstance(descriptor, str):
        return str(descriptor) if descriptor in _CODES.values() else None
    return _CODES.get(descriptor) if isinstance(descriptor, int) else None


def _expression(where: str, kind: str, value: Any) -> str:
    """Return a SQL filter expression that was tried out."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{where}: it is a {type(value).__name__}; give a string")
    text = str(value)
    try:
        if kind == SELECTOR:
            text = translate(text)
        Evaluator(MessageFilter((text,)))
    except FilterRefused as refused:
        raise InvalidArgument(f"{where}: {refused}") from refused
    return text


def _references(where: str, kind: str, value: Any) -> list[Reference]:
    if not isinstance(value, dict) or not 0 < len(value) <= FIELDS_MAX:
        raise InvalidArgument(f"{where}: give a map of 1 to {FIELDS_MAX} fields")
    found = []
    for key, given in value.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"{where}: a key is a {type(key).__name__}; give names")
        if kind == PROPERTIES_FILTER and key not in PROPERTY_NAMES:
            raise InvalidArgument(
                f"{where}: the properties section has no field {str(key)!r}; it has "
                f"{', '.join(PROPERTY_NAMES)}"
            )
        found.append(_reference(where, str(key), given))
    return sorted(found, key=lambda one: one.name)


def _reference(where: str, name: str, given: Any) -> Reference:
    if given is None:
        return Reference(name, "any")
    if isinstance(given, memoryview):  # of a binary, as Proton reads one
        given = given.tobytes()
    raw = given if isinstance(given, bytes) else getattr(given, "bytes", None)  # of a UUID
    if isinstance(raw, bytes):
        return Reference(name, "equal", raw.decode("latin-1"), True)
    if isinstance(given, str):
        return _affix(where, name, str(given), isinstance(given, symbol))
    if isinstance(given, (bool, float)):
        return Reference(name, "equal", given)
    if isinstance(given, int) and -(1 << 63) <= given <= _INTEGER_MAX:
        return Reference(name, "equal", int(given))
    raise InvalidArgument(
        f"{where}: {name!r} is a {type(given).__name__}; give a number, a boolean, a string, a "
        "binary, a UUID or null"
    )


def _affix(where: str, name: str, text: str, plain: bool) -> Reference:
    if plain or not text.startswith("&"):
        return Reference(name, "equal", text)
    if text.startswith("&&"):
        return Reference(name, "equal", text[1:])
    kinds: dict[str, Match] = {"&p:": "prefix", "&s:": "suffix"}
    match = kinds.get(text[:3])
    if match is None:
        raise InvalidArgument(
            f"{where}: {name!r}, character 1 of {text[:40]!r}: & begins a modifier; give &p: with "
            "a prefix, &s: with a suffix, or && for a text that begins with &"
        )
    return Reference(name, match, text[3:])


_WORDS: Final = frozenset({"AND", "OR", "NOT", "LIKE", "IN", "IS", "NULL", "ESCAPE"})
_TRUTHS: Final = frozenset({"TRUE", "FALSE"})
_FIELDS: Final = {
    "JMSPriority": "h.priority",
    "JMSMessageID": "p.message_id",
    "JMSCorrelationID": "p.correlation_id",
    "JMSTimestamp": "p.creation_time",
    "JMSType": "p.subject",
    "JMSXGroupID": "p.group_id",
    "JMSXGroupSeq": "p.group_sequence",
    "JMSXUserID": "p.user_id",
}
_PIECE: Final = re.compile(
    r"(?P<string>'[^']*+(?:''[^']*+)*+'?)|(?P<word>[^\W\d][\w.$]*)|(?P<other>.)",
    re.DOTALL,
)


def translate(text: str) -> str:
    """Return the SQL filter expression of a JMS message selector; raises FilterRefused.

    Both come from SQL's WHERE. A selector's words may be in lower case, and the header fields of
    JMS have names of their own; BETWEEN and what else differs is refused.
    https://jakarta.ee/specifications/messaging/3.1/, section 3.8

    Only words outside texts are replaced, so the positions in a later refusal may be shifted.
    """
    return "".join(_replaced(match, text) for match in _PIECE.finditer(text))


def _replaced(match: re.Match[str], text: str) -> str:
    piece = match.group()
    if match.lastgroup != "word":
        return piece
    upper = piece.upper()
    before = text[match.start() - 1 : match.start()]
    if upper in _WORDS or upper in _TRUTHS or (before.isdigit() and upper.startswith("E")):
        return upper
    if piece in _FIELDS:
        return _FIELDS[piece]
    if upper == "BETWEEN" or (piece.startswith("JMS") and not piece.startswith("JMS_")):
        raise FilterRefused(f"character {match.start() + 1}: {piece} is not supported")
    return f"[{piece}]"
