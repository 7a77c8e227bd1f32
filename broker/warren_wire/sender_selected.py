"""Sender-selected distribution: the routing keys in a message's headers CC and BCC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from warren_wire.arguments import plain
from warren_wire.errors import PreconditionFailed, type_word

Headers: TypeAlias = Mapping[str, Any]
"""A message's headers as plain values."""
UNUSED: Final = ["CC", "x-last-death-exchange"]
"""The last headers, in this order, of a dead letter that has its header CC only to be shown."""


def further_keys(headers: Headers) -> tuple[str, ...]:
    """Return the routing keys beside the message's own; raises PreconditionFailed unless lists.

    Entries that are not text are skipped, as in RabbitMQ. The caller removes BCC from the headers
    before the message is stored.
    """
    keys: list[str] = []
    for name in ("CC", "BCC"):
        value = plain(headers[name]) if name in headers else []
        if not isinstance(value, list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_word(value)}}}'
            )
        keys += [key for key in value if isinstance(key, str)]
    return tuple(keys)


def has_keys(headers: Headers) -> bool:
    """Return whether there are lists of keys; over AMQP 1.0 a property may have such a name."""
    return any(isinstance(plain(headers[name]), list) for name in ("CC", "BCC") if name in headers)


def is_unused(headers: Mapping[str, Any]) -> bool:
    """Return whether CC adds no routing keys: it was published with, then a dead letter's own key.

    As in RabbitMQ, a message that was dead-lettered with a key of its queue's keeps the header, and
    is routed by that key alone from then on. The order of the headers says so, which clients do not
    see: of a client that publishes such a message again, x-death is behind both.
    """
    return list(headers)[-2:] == UNUSED and "x-death" in headers


def place_further_keys(headers: dict[str, object], used: bool) -> None:
    """Place CC in the headers of a dead letter, see `is_unused`.

    used  the letter is routed by it, too
    """
    if "CC" in headers:
        for name in reversed(UNUSED) if used else UNUSED:
            headers[name] = headers.pop(name)
