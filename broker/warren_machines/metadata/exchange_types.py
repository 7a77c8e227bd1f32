"""The exchange types: their names, and what each allows in declarations and bindings.

The texts of the refusals are RabbitMQ's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from warren_machines.metadata.records import Arguments, Exchange, QueueRecord
from warren_wire.errors import PreconditionFailed

CONSISTENT_HASH: Final = "x-consistent-hash"
MODULUS_HASH: Final = "x-modulus-hash"
RANDOM: Final = "x-random"
LOCAL_RANDOM: Final = "x-local-random"
RECENT_HISTORY: Final = "x-recent-history"
DELAYED_MESSAGE: Final = "x-delayed-message"
KINDS: Final = ("direct", "fanout", "topic", "headers")
"""The types of AMQP 0.9.1."""
CHOOSING_KINDS: Final = (CONSISTENT_HASH, MODULUS_HASH, RANDOM, LOCAL_RANDOM)
"""The types that choose one destination for each message."""
KEEPING_KINDS: Final = (RECENT_HISTORY, DELAYED_MESSAGE)
"""The types that keep messages, in a store (`metadata.stores`)."""

UPSTREAM_KIND: Final = "x-federation-upstream"
"""RabbitMQ's links of federated exchanges declare it before their queues here. It is a fanout: the
link leaves out what has come too far or comes back, when it has it."""

HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")
WEIGHT_MAX: Final = 10_000
"""Highest weight of a binding to an exchange of type x-consistent-hash."""
HISTORY_LENGTH: Final = "x-recent-history-length"
HISTORY_LENGTH_DEFAULT: Final = 20
NO_STORE: Final = "x-recent-history-no-store"
"""The header, true, of messages that an exchange of type x-recent-history does not keep."""
DELAYED_TYPE: Final = "x-delayed-type"
"""The argument of an exchange of type x-delayed-message: how it routes what is due."""
DELAY: Final = "x-delay"
"""The header with the delay of a message, in milliseconds; of one that was delayed, negated."""
PUBLISH_DELAY_MS_MAX: Final = (1 << 32) - 1
DELAY_DIGITS_MAX: Final = 20
"""A longer text is no delay."""
TOPIC_HASHES_MAX: Final = 2
"""Wildcards `#` in the binding key of a topic exchange."""
HEADERS_MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")

_INTEGER = re.compile(r"[+-]?[0-9]+")


def check_kind(kind: str) -> None:
    """Raise PreconditionFailed for an unknown type."""
    if kind not in (*KINDS, *CHOOSING_KINDS, *KEEPING_KINDS):
        raise PreconditionFailed(f"unknown exchange type '{kind}'")


def is_kind(kind: str) -> bool:
    """Return whether any exchange may have this type."""
    return kind in (*KINDS, *CHOOSING_KINDS, *KEEPING_KINDS, UPSTREAM_KIND)


def check_arguments(kind: str, arguments: Arguments) -> None:
    """Raise PreconditionFailed for arguments that an exchange of this type cannot have."""
    if kind == RECENT_HISTORY:
        history_length(arguments)
    if kind == DELAYED_MESSAGE:
        kind = _delayed_type(arguments)
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


def history_length(arguments: Arguments) -> int:
    """Return how many messages a recent history holds; raises PreconditionFailed."""
    value = arguments.get(HISTORY_LENGTH)
    if value is None:
        return HISTORY_LENGTH_DEFAULT
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        shown = str(value).lower() if isinstance(value, bool) else value
        raise PreconditionFailed(
            f"Invalid argument {shown}, '{HISTORY_LENGTH}' must be a positive integer"
        )
    return value


def keeps(exchange: Exchange, headers: Mapping[str, object]) -> bool:
    """Return whether an exchange of KEEPING_KINDS keeps a message with these headers."""
    if exchange.kind == DELAYED_MESSAGE:
        return 0 < delay_ms(headers) <= PUBLISH_DELAY_MS_MAX
    return headers.get(NO_STORE) is not True


def delay_ms(headers: Mapping[str, Any]) -> int:
    """Return the delay that plain headers say; 0: none. Text and fractions are converted."""
    value = headers.get(DELAY)
    if isinstance(value, str) and _INTEGER.fullmatch(value) and len(value) <= DELAY_DIGITS_MAX:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def routed_as(exchange: Exchange) -> str:
    """Return the type by which an exchange routes: its own, or that of what is due."""
    if exchange.kind != DELAYED_MESSAGE:
        return exchange.kind
    return str(exchange.arguments.get(DELAYED_TYPE))


def _delayed_type(arguments: Arguments) -> str:
    """Return how what is due is routed; raises PreconditionFailed."""
    kind = arguments.get(DELAYED_TYPE)
    if not isinstance(kind, str) or kind in KEEPING_KINDS:
        raise PreconditionFailed(
            f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type"
        )
    check_kind(kind)
    return kind


def check_binding(
    source: Exchange, routing_key: str, arguments: Arguments, queue: QueueRecord | None
) -> None:
    """Raise PreconditionFailed for a binding that the source's type does not allow.

    queue    the destination; None: it is an exchange
    """
    kind = routed_as(source)
    if kind == "topic":
        _check_wildcards(routing_key)
    elif kind == "headers":
        _check_headers_match(arguments.get("x-match", "all"))
    elif kind == CONSISTENT_HASH:
        weight(routing_key)
    elif kind == LOCAL_RANDOM:
        _check_local(routing_key, queue)


def _check_wildcards(routing_key: str) -> None:
    hashes = routing_key.split(".").count("#")
    if hashes > TOPIC_HASHES_MAX:
        raise PreconditionFailed(
            f"Topic binding key '{routing_key}' uses {hashes} '#' wildcards, "
            f"at most {TOPIC_HASHES_MAX} are allowed"
        )


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
