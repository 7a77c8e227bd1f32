"""The exchange types: their names, and what each allows in declarations and bindings.

The texts of the refusals are RabbitMQ's.
"""

from __future__ import annotations

import re
from typing import Final

from warren_broker.errors import PreconditionFailed
from warren_broker.metadata.records import Arguments, Exchange, QueueRecord

CONSISTENT_HASH: Final = "x-consistent-hash"
MODULUS_HASH: Final = "x-modulus-hash"
RANDOM: Final = "x-random"
LOCAL_RANDOM: Final = "x-local-random"
KINDS: Final = ("direct", "fanout", "topic", "headers")
"""The types of AMQP 0.9.1."""
CHOOSING_KINDS: Final = (CONSISTENT_HASH, MODULUS_HASH, RANDOM, LOCAL_RANDOM)
"""The types that choose one destination for each message."""

HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")
WEIGHT_MAX: Final = 10_000
"""Highest weight of a binding to an exchange of type x-consistent-hash."""
HEADERS_MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")

_INTEGER = re.compile(r"[+-]?[0-9]+")


def check_kind(kind: str, choosing: bool) -> None:
    """Raise PreconditionFailed for an unknown type; choosing: CHOOSING_KINDS are known, too."""
    if kind not in KINDS and not (choosing and kind in CHOOSING_KINDS):
        raise PreconditionFailed(f"unknown exchange type '{kind}'")


def check_arguments(kind: str, arguments: Arguments) -> None:
    """Raise PreconditionFailed for arguments that an exchange of this type cannot have."""
    if kind != CONSISTENT_HASH:
        return
    for name in (HASH_HEADER, HASH_PROPERTY):
        value = arguments.get(name)
        if value is not None and not isinstance(value, str):
            raise PreconditionFailed(f"invalid type for arg '{name}': {value!r}; give a string")
    wanted = arguments.get(HASH_PROPERTY)
    if wanted is None:
        return
    if arguments.get(HASH_HEADER) is not None:
        raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
    if wanted not in HASH_PROPERTIES:
        raise PreconditionFailed(f"Unsupported property: {wanted}")


def check_binding(
    source: Exchange, routing_key: str, arguments: Arguments, queue: QueueRecord | None
) -> None:
    """Raise PreconditionFailed for a binding that the source's type does not allow.

    queue  the destination; None: it is an exchange
    """
    if source.kind == "headers":
        _check_headers_match(arguments.get("x-match", "all"))
    elif source.kind == CONSISTENT_HASH:
        weight(routing_key)
    elif source.kind == LOCAL_RANDOM:
        _check_local(routing_key, queue)


def weight(routing_key: str) -> int:
    """Return the weight that a binding key of a consistent hash stands for."""
    if not _INTEGER.fullmatch(routing_key):
        shown = f'<<"{routing_key}">>' if routing_key else "<<>>"
        raise PreconditionFailed(f"The binding key must be an integer: {shown}")
    value = int(routing_key)
    if value < 1:
        raise PreconditionFailed("The binding key must be greater than 0")
    if value > WEIGHT_MAX:
        raise PreconditionFailed(f"The binding key must not exceed {WEIGHT_MAX}")
    return value


def _check_headers_match(value: object) -> None:
    """Raise PreconditionFailed unless x-match is one of its four values."""
    if not isinstance(value, str):
        raise PreconditionFailed(f"Invalid x-match field type (value {value!r}); expected longstr")
    if value not in HEADERS_MATCHES:
        raise PreconditionFailed(
            f'Invalid x-match field value <<"{value}">>; '
            "expected all, any, all-with-x, or any-with-x"
        )


def _check_local(routing_key: str, queue: QueueRecord | None) -> None:
    """Raise PreconditionFailed unless a classic queue is bound with an empty key."""
    if routing_key:
        raise PreconditionFailed(f"Non empty binding '{routing_key}' key not permitted")
    if queue is None:
        raise PreconditionFailed("Destination not found")
    if queue.config.kind != "classic":
        raise PreconditionFailed(
            f"Queue type rabbit_{queue.config.kind}_queue not valid for this exchange type"
        )
