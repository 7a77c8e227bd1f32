"""A message as a shovel passes it on: over AMQP 1.0 its sections, with what the shovel adds.

The body, and every section that nothing is added to, leaves as it came.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from warren_wire.amqp10.proton import Data, DataException, Described, ProtonException, symbol, ulong
from warren_wire.kernel.section_types import (
    HEADER,
    PROPERTY_NAMES,
    SECTION_SYMBOLS,
    MalformedSections,
)
from warren_wire.links.definition import ShovelDefinition
from warren_wire.links.uris import ShovelUri

MESSAGE_ANNOTATIONS: Final = 0x72
BARE_PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
_BODY: Final = 0x75
_LISTS: Final = (HEADER, BARE_PROPERTIES)
_KEPT_HEADER_FIELDS: Final = 3
"""durable, priority and ttl; the other ones are of the delivery that has ended."""
_SYMBOLS: Final = ("content-type", "content-encoding")
_LONG: Final = struct.Struct(">Q")
_SIZE: Final = struct.Struct(">I")
Value: TypeAlias = str | int
_UNREADABLE: Final = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    DataException,
)
"""What Proton raises for values that are none."""
FORWARD_HEADER: Final = "x-shovelled"
TIMESTAMP_HEADER: Final = "x-shovelled-timestamp"
FURTHER_KEYS_10: Final = "x-cc"
"""The annotation with which a message names more routing keys over AMQP 1.0."""
TIMESTAMP_ANNOTATION: Final = "x-opt-shovelled-timestamp"


@dataclass(frozen=True, slots=True)
class Changes:
    """What a shovel adds to the messages that it passes on, and what it leaves out.

    annotations  name -> value; replace those of the message with their names
    application  application properties, likewise
    properties   fields of the properties section, with `_` for `-`
    left_out     annotations of the message that are left out
    """

    annotations: Mapping[str, Value] = field(default_factory=dict)
    application: Mapping[str, Value] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def passed_on(data: bytes, changes: Changes) -> list[bytes | memoryview]:
    """Return a received message as it is to be sent, in pieces; raises MalformedSections.

    Of the header stays what the publisher said; delivery annotations end with the link they are of.
    """
    sections, body = _split(data)
    made: list[bytes | memoryview] = []
    if HEADER in sections:
        kept = list(_value(data, HEADER, sections[HEADER]))[:_KEPT_HEADER_FIELDS]
        made.append(_encoded(HEADER, kept))
    for code in (MESSAGE_ANNOTATIONS, BARE_PROPERTIES, APPLICATION_PROPERTIES):
        there = sections.get(code)
        changed = _changed(code, changes)
        unfit = _unfit(data, there, changes) if code == MESSAGE_ANNOTATIONS else []
        if changed or unfit:
            value = {} if there is None else _value(data, code, there)
            for name in unfit:
                value.pop(symbol(name), None)
            made.append(_encoded(code, _merged(code, value, changed)))
        elif there is not None:
            made.append(memoryview(data)[there[0] : there[1]])
    return [*made, memoryview(data)[body:]]


def annotation(data: bytes, name: str) -> str | None:
    """Return a message annotation that is a string; raises MalformedSections."""
    there = _split(data)[0].get(MESSAGE_ANNOTATIONS)
    value = None if there is None else _value(data, MESSAGE_ANNOTATIONS, there).get(symbol(name))
    return value if isinstance(value, str) else None


def first_acquirer(data: bytes) -> bool:
    """Return what the header says of it; raises MalformedSections."""
    there = _split(data)[0].get(HEADER)
    fields: Any = () if there is None else _value(data, HEADER, there)
    return len(fields) > _KEPT_HEADER_FIELDS and bool(fields[_KEPT_HEADER_FIELDS])


def message_id(data: bytes) -> str:
    """Return the message-id as text, "" for none; raises MalformedSections."""
    there = _split(data)[0].get(BARE_PROPERTIES)
    fields = () if there is None else _value(data, BARE_PROPERTIES, there)
    return str(fields[0]) if fields and fields[0] is not None else ""


def _changed(code: int, changes: Changes) -> Mapping[str, Value]:
    if code == MESSAGE_ANNOTATIONS:
        return changes.annotations
    return changes.properties if code == BARE_PROPERTIES else changes.application


def _unfit(data: bytes, there: tuple[int, int] | None, changes: Changes) -> list[str]:
    """Return which annotations to leave out may be in the section; most messages have none."""
    if there is None:
        return []
    return [name for name in changes.left_out if data.find(name.encode(), *there) >= 0]


def _merged(code: int, value: Any, changed: Mapping[str, Value]) -> Any:
    if code == MESSAGE_ANNOTATIONS:
        return {**(value or {}), **{symbol(name): item for name, item in changed.items()}}
    if code == APPLICATION_PROPERTIES:
        return {**(value or {}), **changed}
    fields: list[Any] = [*(value or ()), *[None] * len(PROPERTY_NAMES)][: len(PROPERTY_NAMES)]
    for name, item in changed.items():
        field_name = name.replace("_", "-")
        typed: Any = item
        if field_name in _SYMBOLS:
            typed = symbol(item)
        elif field_name == "user-id":
            typed = str(item).encode()
        fields[PROPERTY_NAMES.index(field_name)] = typed
    while fields[-1] is None:
        fields.pop()
    return fields


# ------------------------------------------------------------------ bytes


def _split(data: bytes) -> tuple[dict[int, tuple[int, int]], int]:
    """Return where each section before the body is, and where the body begins."""
    found: dict[int, tuple[int, int]] = {}
    at = 0
    try:
        while True:
            code, value = _descriptor(data, at)
            if code >= _BODY:
                return found, at
            end = value + _length(data, value)
            if end > len(data) or code in found:
                raise MalformedSections(f"the section at byte {at} is cut off, or comes twice")
            found[code] = at, end
            at = end
    except (IndexError, struct.error):
        raise MalformedSections(f"the message of {len(data)} bytes has no body") from None


def _descriptor(data: bytes, at: int) -> tuple[int, int]:
    """Return a section's descriptor, and where its value begins."""
    code = 0
    if data[at] == 0 and data[at + 1] == 0x53:
        code, at = data[at + 2], at + 3
    elif data[at] == 0 and data[at + 1] == 0x80:
        (code,) = _LONG.unpack_from(data, at + 2)
        at += 10
    elif data[at] == 0 and data[at + 1] == 0xA3:
        end = at + 3 + data[at + 2]
        code, at = SECTION_SYMBOLS.get(bytes(data[at + 3 : end]), 0), end
    if not HEADER <= code <= HEADER + 8:
        raise MalformedSections(f"no section begins at byte {at}")
    return code, at


def _length(data: bytes, at: int) -> int:
    """Return the length of a list or map with its constructor."""
    constructor = data[at]
    if constructor == 0x45:
        return 1
    if constructor in (0xC0, 0xC1):
        return 2 + data[at + 1]
    if constructor in (0xD0, 0xD1):
        return 5 + int(_SIZE.unpack_from(data, at + 1)[0])
    raise MalformedSections(f"the section's value at byte {at} is no list and no map")


def _value(data: bytes, code: int, there: tuple[int, int]) -> Any:
    read = Data()
    try:
        read.decode(bytes(data[there[0] : there[1]]))
        read.rewind()
        read.next()
        value = read.get_object().value
    except _UNREADABLE as error:
        raise MalformedSections(f"a section cannot be read: {error}") from error
    kind = list if code in _LISTS else dict
    if not isinstance(value, kind):
        raise MalformedSections(f"the section of descriptor {code:#04x} is no {kind.__name__}")
    return value


def _encoded(code: int, value: object) -> bytes:
    written = Data()
    try:
        written.put_object(Described(ulong(code), value))
        return bytes(written.encode())
    except (*_UNREADABLE, ProtonException) as error:
        raise MalformedSections(f"a section cannot be written again: {error}") from error


@dataclass(frozen=True, slots=True)
class Stamps:
    """What one run of a shovel changes of messages: properties, and where they have been.

    The names are RabbitMQ's: over AMQP 0.9.1 headers with `x-shovelled`, over 1.0 annotations with
    `x-opt-shovel`.

    cluster  the name of the one that runs the shovel
    """

    shovel: ShovelDefinition
    cluster: str
    source: ShovelUri
    target: ShovelUri

    def stamp(self, properties: Any) -> Any:
        """Change the properties of a message over AMQP 0.9.1, and return them."""
        shovel = self.shovel
        for key, value in shovel.properties.items():
            setattr(properties, key, value)
        if shovel.forward_headers or shovel.timestamp_header:
            headers = dict(properties.headers or {})
            if shovel.forward_headers:
                before = headers.get(FORWARD_HEADER)
                more = before if isinstance(before, list) else []
                headers[FORWARD_HEADER] = [self._journey(), *more]
            if shovel.timestamp_header:
                headers[TIMESTAMP_HEADER] = int(time.time())
            properties.headers = headers
        return properties

    def changes(self) -> Changes:
        """Return what a message over AMQP 1.0 gets."""
        shovel = self.shovel
        annotations: dict[str, str | int] = dict(shovel.annotations)
        if shovel.forward_headers:
            annotations |= {
                "x-opt-shovelled-by": self.cluster,
                "x-opt-shovel-type": self._kind,
                "x-opt-shovel-name": shovel.name,
            }
        if shovel.timestamp_header:
            annotations[TIMESTAMP_ANNOTATION] = time.time_ns() // 1_000_000
        # As with CC over AMQP 0.9.1: the queues that it names would get the message a second time.
        unfit = (FURTHER_KEYS_10,) if shovel.destination.is_one_queue else ()
        return Changes(annotations, dict(shovel.application_properties), shovel.properties, unfit)

    @property
    def _kind(self) -> str:
        return "static" if self.shovel.is_static else "dynamic"

    def _journey(self) -> dict[str, object]:
        shovel, source, target = self.shovel, self.shovel.source, self.shovel.destination
        told = {
            "shovelled-by": self.cluster,
            "shovel-type": self._kind,
            "shovel-name": shovel.name,
            "shovel-vhost": shovel.vhost or None,
            "src-uri": self.source.shown(),
            "dest-uri": self.target.shown(),
            "src-queue": source.queue,
            "src-exchange": source.exchange,
            "src-exchange-key": source.exchange_key if source.exchange is not None else None,
            "src-address": source.address or None,
            "dest-queue": target.queue,
            "dest-exchange": target.exchange,
            "dest-exchange-key": target.exchange_key,
        }
        return {key: value for key, value in told.items() if value is not None}
