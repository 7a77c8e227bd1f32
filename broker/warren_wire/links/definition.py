"""What a parameter of component `shovel` asks for; names and defaults are RabbitMQ's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from warren_wire.amqp10.addresses import ExchangeTarget, QueueTarget, parse_to
from warren_wire.errors import InvalidArgument, Refusal
from warren_wire.links.uris import AMQP091, AMQP10, URIS_MAX, ShovelUri, parse_shovel_uri
from warren_wire.parameter_values import PAUSED_KEY, SHOVEL, check_parameter
from warren_wire.policy_keys import erlang, validation_failed

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
SHARED_KEYS: Final = ("src-protocol", "dest-protocol", "ack-mode", "reconnect-delay", PAUSED_KEY)
"""Keys that are of no end."""
_MARKS: Final = ("dest-add-forward-headers", "dest-add-timestamp-header")
_MAPS: Final = ("dest-application-properties", "dest-message-annotations", "dest-properties")
KEYS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("src", AMQP091): (
        *("src-uri", *_TEXTS, "src-queue-args", "src-consumer-args", "src-predeclared"),
        *("src-prefetch-count", "src-delete-after"),
    ),
    ("src", AMQP10): ("src-uri", "src-address", "src-prefetch-count", "src-delete-after"),
    ("dest", AMQP091): (
        *("dest-uri", "dest-queue", "dest-exchange", "dest-exchange-key", "dest-queue-args"),
        *("dest-predeclared", "dest-publish-properties", *_MARKS),
    ),
    ("dest", AMQP10): ("dest-uri", "dest-address", *_MAPS, *_MARKS),
}
"""Keys of each end by its protocol."""
_PROPERTY_TEXTS: Final = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration"),
    *("message_id", "type", "user_id", "app_id", "cluster_id"),
)
_PROPERTY_NUMBERS: Final = {
    "delivery_mode": (1, 2),
    "priority": (0, 255),
    "timestamp": (0, SHOVELLED_MAX),
}
_EXCHANGES_1: Final = ("/exchange/", "/topic/")
"""Addresses of exchanges in RabbitMQ 3, and in RabbitMQ 4 while it is let to know them."""
MESSAGE_PROPERTIES: Final = (
    *("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type"),
    *("content_encoding", "group_id", "reply_to_group_id"),
)
"""Properties of an AMQP 1.0 message that `dest-properties` may set."""


@dataclass(frozen=True, slots=True)
class ShovelEnd:
    """One end of a shovel.

    protocol       AMQP091 or AMQP10
    address        of the link over AMQP 1.0, which has no queue and no exchange here
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
    protocol: str = AMQP091
    address: str = ""

    @property
    def only_queue(self) -> str | None:
        """The queue that gets what is published here; None: it depends on the bindings."""
        return self.exchange_key if self.exchange == "" else self.queue

    @property
    def is_one_queue(self) -> bool:
        """Whether what is published here goes to one queue, and to those that a message names."""
        if self.protocol != AMQP10:
            return self.only_queue is not None
        return self.by_name[0] is not None and not self.address.startswith(_EXCHANGES_1)

    def described(self) -> str:
        """Return the queue, exchange or address in words."""
        if self.protocol == AMQP10:
            return f"address '{self.address}'"
        if self.queue is not None:
            return f"queue '{self.queue}'"
        if self.exchange is not None:
            return f"exchange '{self.exchange}'"
        return "each message's own exchange"

    @property
    def by_name(self) -> tuple[str | None, str | None, str | None]:
        """Queue, exchange and routing key, also where an address names them."""
        if self.protocol != AMQP10:
            return self.only_queue, self.exchange, self.exchange_key
        try:
            named = parse_to(self.address)
        except Refusal:
            return self.address, None, None  # of another broker, or of its own making
        if isinstance(named, QueueTarget):
            return named.queue, None, None
        assert isinstance(named, ExchangeTarget)
        return None, named.exchange, named.key


@dataclass(frozen=True, slots=True)
class ShovelDefinition:
    """A shovel.

    delete_after       "never", "queue-length" or a number of messages
    reconnect_delay_s  0: it is not started again after a failure
    paused             it does not run until it is resumed
    properties         replace those of a message: of AMQP 0.9.1 or 1.0, as the destination speaks
    application_properties, annotations   are added to a message over AMQP 1.0
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
    application_properties: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def may_feed_itself(self) -> bool:
        """Whether it would never end if both ends were the same vhost of the same cluster."""
        source, target = self.source, self.destination
        if target.protocol == AMQP091 and target.queue is None and target.exchange is None:
            return True
        queue, exchange, key = target.by_name
        if source.protocol == AMQP091 and source.queue is None:
            return exchange == source.exchange and key in (None, source.exchange_key)
        return queue is not None and queue == source.by_name[0]

    @property
    def is_static(self) -> bool:
        """Whether it is one of the nodes' configuration, which belongs to no vhost."""
        return not self.vhost


def parse_shovel(vhost: str, name: str, value: Any) -> ShovelDefinition:
    """Return the shovel of a parameter; raises InvalidArgument with what cannot be done."""
    check_parameter(SHOVEL, name, value)
    given = {_OLD_NAMES.get(key, key): value[key] for key in sorted(value) if key in _OLD_NAMES}
    given |= {key: item for key, item in value.items() if key not in _OLD_NAMES}
    protocols = {side: given.get(f"{side}-protocol", AMQP091) for side in ("src", "dest")}
    for side, protocol in protocols.items():
        if (side, protocol) not in KEYS:
            raise InvalidArgument(
                f"{side}-protocol '{protocol}' is not supported: a shovel speaks {AMQP091} and "
                f"{AMQP10}; for this cluster give a {side}-uri without a host"
            )
        if protocol == AMQP10 and f"{side}-address" not in given:
            raise validation_failed(f'Key "{side}-address" not found in {name}')
    known = (*(key for end in protocols.items() for key in KEYS[end]), *SHARED_KEYS)
    unknown = sorted(key for key in given if key not in known)
    if unknown:
        raise InvalidArgument(f"unknown keys {', '.join(unknown)}; known are {', '.join(known)}")
    _check_kinds(given)
    made = ShovelDefinition(
        vhost,
        name,
        _end("src", protocols["src"], given),
        _end("dest", protocols["dest"], given),
        given.get("ack-mode", ON_CONFIRM),
        _number(given, "src-prefetch-count", PREFETCH, 1, PREFETCH_MAX),
        _delete_after(given, protocols["src"]),
        _number(given, "reconnect-delay", RECONNECT_DELAY_S, 0, RECONNECT_DELAY_S_MAX),
        given.get("src-consumer-args", {}),
        _properties(given.get("dest-publish-properties", {}))
        if protocols["dest"] == AMQP091
        else _message_properties(given),
        given.get("dest-add-forward-headers", False),
        given.get("dest-add-timestamp-header", False),
        given.get(PAUSED_KEY, False),
        _map("dest-application-properties", given),
        _map("dest-message-annotations", given),
    )
    _check_ends(made)
    return made


def _check_kinds(given: Mapping[str, object]) -> None:
    for keys, kind, word in ((_TABLES, dict, "a map"), (_FLAGS, bool, "true or false")):
        for key in keys:
            if not isinstance(given.get(key, kind()), kind):
                raise InvalidArgument(f"{key}={given[key]!r}: {word} is expected")
    for key in _TEXTS:
        if not isinstance(given.get(key, ""), str):
            raise InvalidArgument(f"{key}={given[key]!r}: a string is expected")


def _end(side: str, protocol: str, given: Mapping[str, Any]) -> ShovelEnd:
    key = f"{side}-uri"
    uris = given[key] if isinstance(given[key], list) else [given[key]]
    if len(uris) > URIS_MAX:
        raise InvalidArgument(f"{key} has {len(uris)} URIs, {URIS_MAX} is the most")
    parsed = tuple(parse_shovel_uri(key, uri, protocol) for uri in uris)
    if protocol == AMQP10:
        address = given[f"{side}-address"]
        if not address:
            raise InvalidArgument(f"{side}-address is empty; give the address of a link")
        return ShovelEnd(parsed, None, None, None, {}, True, AMQP10, address)
    queue, exchange = given.get(f"{side}-queue"), given.get(f"{side}-exchange")
    if queue is not None and exchange is not None:
        raise InvalidArgument(f"Cannot specify '{side}-exchange' and '{side}-queue': give one")
    if side == "src" and queue is None and exchange is None:
        raise InvalidArgument("Must specify 'src-exchange' or 'src-queue'")
    if queue == "":
        raise InvalidArgument(f"{side}-queue is empty; give the name of a queue")
    return ShovelEnd(
        parsed,
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


def _number(given: Mapping[str, object], key: str, default: int, least: int, most: int) -> int:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"{key}={value!r}: a number from {least} to {most} is expected")
    return value


def _delete_after(given: Mapping[str, object], protocol: str) -> int | str:
    value = given.get("src-delete-after", DELETE_NEVER)
    if isinstance(value, str) and value == DELETE_NEVER:
        return value
    if isinstance(value, str) and value == QUEUE_LENGTH and protocol == AMQP091:
        return value  # no peer tells a link over AMQP 1.0 how many messages its queue has
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SHOVELLED_MAX:
        words = "a number greater than or equal to 0"
        choices = f'{words} or "{DELETE_NEVER}"'
        if protocol == AMQP091:
            choices = f'{words}, "{DELETE_NEVER}" or "{QUEUE_LENGTH}"'
        raise validation_failed(
            f"src-delete-after should be {choices}, actually was {erlang(value)}"
        )
    return value


def _map(key: str, given: Mapping[str, object]) -> Mapping[str, str]:
    """Return a map of texts, for a message over AMQP 1.0."""
    value = given.get(key, {})
    if not isinstance(value, dict):
        raise validation_failed(f"{key} should be a JSON object, actually was {erlang(value)}")
    for name, item in value.items():
        if not isinstance(item, str):
            raise validation_failed(f"{name} should be binary, actually was {erlang(item)}")
    return value


def _message_properties(given: Mapping[str, object]) -> Mapping[str, str]:
    value = _map("dest-properties", given)
    for name in value:
        if name not in MESSAGE_PROPERTIES:
            known = ", ".join(MESSAGE_PROPERTIES)
            raise InvalidArgument(f"dest-properties has {name!r}; known are {known}")
    return value


def _properties(given: object) -> Mapping[str, Any]:
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


def with_pause(value: Mapping[str, object], paused: bool) -> dict[str, Any]:
    """Return a shovel's parameter with or without its pause; without, it is RabbitMQ's again."""
    kept = {key: item for key, item in value.items() if key != PAUSED_KEY}
    return {**kept, PAUSED_KEY: True} if paused else kept
