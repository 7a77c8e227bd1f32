"""What a parameter of component `shovel` asks for; names and defaults are RabbitMQ's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from warren_broker.errors import InvalidArgument
from warren_broker.parameter_values import PAUSED_KEY, SHOVEL, check_parameter
from warren_broker.shovel.uris import URIS_MAX, ShovelUri, parse_shovel_uri

SHOVEL_PROTOCOL: Final = "amqp091"
ON_CONFIRM: Final = "on-confirm"
NO_ACK: Final = "no-ack"
DELETE_NEVER: Final = "never"
QUEUE_LENGTH: Final = "queue-length"
PREFETCH: Final = 1_000
PREFETCH_MAX: Final = 65_535
RECONNECT_DELAY_S: Final = 1
RECONNECT_DELAY_S_MAX: Final = 86_400
SHOVELLED_MAX: Final = (1 << 63) - 1
_OLD_NAMES: Final = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "publish-properties": "dest-publish-properties",
}
"""Names before RabbitMQ 3.7, which has both; a new name counts before the old one."""
_TEXTS: Final = ("src-queue", "src-exchange", "src-exchange-key", "src-consumer-tag")
_TABLES: Final = ("src-queue-args", "src-consumer-args", "dest-queue-args")
_FLAGS: Final = (
    "src-predeclared",
    "dest-predeclared",
    "dest-add-forward-headers",
    "dest-add-timestamp-header",
    PAUSED_KEY,
)
_KEYS: Final = (
    *("src-uri", "src-protocol", *_TEXTS, *_TABLES, *_FLAGS, "src-prefetch-count"),
    *("src-delete-after", "dest-uri", "dest-protocol", "dest-queue", "dest-exchange"),
    *("dest-exchange-key", "dest-publish-properties", "ack-mode", "reconnect-delay"),
)
_PROPERTY_TEXTS: Final = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration"),
    *("message_id", "type", "user_id", "app_id", "cluster_id"),
)
_PROPERTY_NUMBERS: Final = {
    "delivery_mode": (1, 2),
    "priority": (0, 255),
    "timestamp": (0, SHOVELLED_MAX),
}


@dataclass(frozen=True, slots=True)
class ShovelEnd:
    """One end of a shovel.

    queue          None: an exchange
    exchange       None: a queue, or at the destination each message's own exchange
    exchange_key   at the destination None: each message's own
    queue_args     with which the queue is declared where it does not exist
    predeclared    the queue must exist
    """

    uris: tuple[ShovelUri, ...]
    queue: str | None
    exchange: str | None
    exchange_key: str | None
    queue_args: Mapping[str, Any]
    predeclared: bool

    @property
    def only_queue(self) -> str | None:
        """The queue that gets what is published here; None: it depends on the bindings."""
        return self.exchange_key if self.exchange == "" else self.queue

    def described(self) -> str:
        """Return the queue or exchange in words."""
        if self.queue is not None:
            return f"queue '{self.queue}'"
        if self.exchange is not None:
            return f"exchange '{self.exchange}'"
        return "each message's own exchange"


@dataclass(frozen=True, slots=True)
class ShovelDefinition:
    """A shovel.

    delete_after       "never", "queue-length" or a number of messages
    reconnect_delay_s  0: it is not started again after a failure
    paused             it does not run until it is resumed
    """

    vhost: str
    name: str
    source: ShovelEnd
    destination: ShovelEnd
    ack_mode: str = ON_CONFIRM
    prefetch: int = PREFETCH
    delete_after: int | str = DELETE_NEVER
    reconnect_delay_s: int = RECONNECT_DELAY_S
    consumer_args: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    forward_headers: bool = False
    timestamp_header: bool = False
    paused: bool = False

    @property
    def may_feed_itself(self) -> bool:
        """Whether it would never end if both ends were the same vhost of the same cluster."""
        target = self.destination
        if target.queue is None and target.exchange is None:
            return True
        if self.source.queue is None:
            same = target.exchange == self.source.exchange
            return same and target.exchange_key in (None, self.source.exchange_key)
        return target.only_queue == self.source.queue


def parse_shovel(vhost: str, name: str, value: Any) -> ShovelDefinition:
    """Return the shovel of a parameter; raises InvalidArgument with what cannot be done."""
    check_parameter(SHOVEL, name, value)
    given = {_OLD_NAMES.get(key, key): value[key] for key in sorted(value) if key in _OLD_NAMES}
    given |= {key: item for key, item in value.items() if key not in _OLD_NAMES}
    unknown = sorted(key for key in given if key not in _KEYS)
    for side in ("src", "dest"):
        protocol = given.get(f"{side}-protocol", SHOVEL_PROTOCOL)
        if protocol != SHOVEL_PROTOCOL:
            raise InvalidArgument(
                f"{side}-protocol '{protocol}' is not supported: a shovel speaks "
                f"{SHOVEL_PROTOCOL}; for this cluster give a {side}-uri without a host"
            )
    if unknown:
        raise InvalidArgument(f"unknown keys {', '.join(unknown)}; known are {', '.join(_KEYS)}")
    _check_kinds(given)
    made = ShovelDefinition(
        vhost,
        name,
        _end("src", given),
        _end("dest", given),
        given.get("ack-mode", ON_CONFIRM),
        _number(given, "src-prefetch-count", PREFETCH, 1, PREFETCH_MAX),
        _delete_after(given),
        _number(given, "reconnect-delay", RECONNECT_DELAY_S, 0, RECONNECT_DELAY_S_MAX),
        given.get("src-consumer-args", {}),
        _properties(given.get("dest-publish-properties", {})),
        given.get("dest-add-forward-headers", False),
        given.get("dest-add-timestamp-header", False),
        given.get(PAUSED_KEY, False),
    )
    _check_ends(made)
    return made


def _check_kinds(given: Mapping[str, Any]) -> None:
    for keys, kind, word in ((_TABLES, dict, "a map"), (_FLAGS, bool, "true or false")):
        for key in keys:
            if not isinstance(given.get(key, kind()), kind):
                raise InvalidArgument(f"{key}={given[key]!r}: {word} is expected")
    for key in _TEXTS:
        if not isinstance(given.get(key, ""), str):
            raise InvalidArgument(f"{key}={given[key]!r}: a string is expected")


def _end(side: str, given: Mapping[str, Any]) -> ShovelEnd:
    key = f"{side}-uri"
    uris = given[key] if isinstance(given[key], list) else [given[key]]
    if len(uris) > URIS_MAX:
        raise InvalidArgument(f"{key} has {len(uris)} URIs, {URIS_MAX} is the most")
    queue, exchange = given.get(f"{side}-queue"), given.get(f"{side}-exchange")
    if queue is not None and exchange is not None:
        raise InvalidArgument(f"Cannot specify '{side}-exchange' and '{side}-queue': give one")
    if side == "src" and queue is None and exchange is None:
        raise InvalidArgument("Must specify 'src-exchange' or 'src-queue'")
    if queue == "":
        raise InvalidArgument(f"{side}-queue is empty; give the name of a queue")
    return ShovelEnd(
        tuple(parse_shovel_uri(key, uri) for uri in uris),
        queue,
        exchange,
        given.get(f"{side}-exchange-key", "" if side == "src" else None),
        given.get(f"{side}-queue-args", {}),
        given.get(f"{side}-predeclared", False),
    )


def _check_ends(made: ShovelDefinition) -> None:
    if made.ack_mode == NO_ACK and isinstance(made.delete_after, int):
        raise InvalidArgument("Cannot specify 'no-ack' and numerical 'delete-after'")
    targets = [one.place for one in made.destination.uris]
    if made.may_feed_itself and any(one.place in targets for one in made.source.uris):
        raise InvalidArgument(self_feeding(made))


def self_feeding(made: ShovelDefinition) -> str:
    """Return why a shovel would never end."""
    return (
        f"the source and the destination are the same: what leaves {made.source.described()} would "
        "come back to it; give another dest-queue, dest-exchange or dest-uri"
    )


def _number(given: Mapping[str, Any], key: str, default: int, least: int, most: int) -> int:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"{key}={value!r}: a number from {least} to {most} is expected")
    return value


def _delete_after(given: Mapping[str, Any]) -> int | str:
    value = given.get("src-delete-after", DELETE_NEVER)
    if isinstance(value, str) and value in (DELETE_NEVER, QUEUE_LENGTH):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SHOVELLED_MAX:
        raise InvalidArgument(
            f'src-delete-after should be a number from 0, "{DELETE_NEVER}" or "{QUEUE_LENGTH}", '
            f"actually was {value!r}"
        )
    return value


def _properties(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise InvalidArgument(f"dest-publish-properties={given!r}: a map is expected")
    for key, value in given.items():
        if key in _PROPERTY_NUMBERS:
            _number(given, key, 0, *_PROPERTY_NUMBERS[key])
        elif key not in _PROPERTY_TEXTS:
            known = ", ".join((*_PROPERTY_TEXTS, *_PROPERTY_NUMBERS))
            raise InvalidArgument(f"dest-publish-properties has {key!r}; known are {known}")
        elif not isinstance(value, str) or len(value.encode()) > 255:
            raise InvalidArgument(
                f"dest-publish-properties has {key}={value!r}: a string of at most 255 bytes is "
                "expected"
            )
    return given


def with_pause(value: Mapping[str, Any], paused: bool) -> dict[str, Any]:
    """Return a shovel's parameter with or without its pause; without, it is RabbitMQ's again."""
    kept = {key: item for key, item in value.items() if key != PAUSED_KEY}
    return {**kept, PAUSED_KEY: True} if paused else kept
