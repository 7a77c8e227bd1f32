"""Checks of a message's own properties, the same for every protocol.

Checks that depend on the user's rights are in `access`; the kernel checks that properties are
well-formed.
"""

from __future__ import annotations

import re

from warren_wire import errors
from warren_wire.amqp091 import properties
from warren_wire.errors import Refusal
from warren_wire.kernel import BAD_EXPIRATION, CC, DIRECT_REPLY_TO, MessageTable
from warren_wire.sender_selected import further_keys

REPLY_TO = "amq.rabbitmq.reply-to"
"""The pseudo queue of direct replies; routable names begin with it."""
LOOKED_AT = BAD_EXPIRATION | DIRECT_REPLY_TO | CC
"""Only messages with one of these flags can be refused here."""
KEYED_BYTES_PER_READ = 128 << 10
"""Octets of properties with further keys (CC, BCC) that one read may bring: decoding them and
checking their keys is per-message work outside the kernel, half a microsecond per octet at worst.
A client that sends more is read in small pieces from then on."""
KEYED_BYTES_PER_STEP = 4
_INTEGER = re.compile(r"[+-]?[0-9]+")


def first_refused(
    table: MessageTable, first: int, last: int, flags: int, has_replies: bool = False
) -> tuple[int, Refusal | None]:
    """Return the first refused message of first <= i < last and why; (last, None): none.

    flags        of the messages, or-ed (`kernel.items`)
    has_replies  the publisher consumes from amq.rabbitmq.reply-to, so it may name that
    """
    if flags & LOOKED_AT:
        for i in range(first, last):
            if table.flags(i) & LOOKED_AT:
                try:
                    _check(table.properties_of(i), table.flags(i), has_replies)
                except Refusal as refusal:
                    return i, refusal
    return last, None


def keyed_bytes(table: MessageTable, first: int, last: int) -> int:
    """Return how many octets the properties of the messages with further keys have."""
    return sum(len(table.properties_of(i)) for i in range(first, last) if table.flags(i) & CC)


def looking_steps(table: MessageTable, first: int, last: int) -> int:
    """Return the steps that one check of these messages takes."""
    return last - first + keyed_bytes(table, first, last) // KEYED_BYTES_PER_STEP


def _expiration_flaw(text: str) -> str:
    """Say in RabbitMQ's words what is wrong with an expiration; milliseconds, 32 bits at most."""
    number = _INTEGER.match(text)
    if number is None:
        return "no_integer"
    if number.end() < len(text):
        return f'{{leftover_string,"{text[number.end() :]}"}}'
    return f"{{value_{'negative' if text.startswith('-') else 'too_large'},{int(text)}}}"


def _check(raw: bytes, flags: int, has_replies: bool) -> None:
    given = properties.decode(raw)
    if flags & BAD_EXPIRATION:
        raw_text = (given.expiration or "").encode("utf-8", "surrogateescape")
        shown = raw_text.decode("utf-8", "replace")
        raise errors.PreconditionFailed(f"invalid expiration '{shown}': {_expiration_flaw(shown)}")
    if given.reply_to == REPLY_TO and not has_replies:
        raise errors.PreconditionFailed("fast reply consumer does not exist")
    if flags & CC:
        further_keys(given.headers or {})
