"""The arguments of declarations and consumers: one table.

Names, types, bounds and the refusals' texts are RabbitMQ's. As there, an argument that is not in
the table is kept, shown, and otherwise ignored. One rule is more liberal: arguments that RabbitMQ
allows for one kind of queue only (x-max-priority, x-delivery-limit, x-consumer-timeout …) are
allowed for both here.

A durable queue without a type, by argument or by the default type of its vhost or node, is a
classic queue in all that a client can see, and has several members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import msgspec

from warren_wire import relay_names
from warren_wire.amqp091.fields import Field, Timestamp
from warren_wire.block.layout import PRIORITY_DEFAULT, PRIORITY_MAX
from warren_wire.errors import (
    InvalidArgument,
    PreconditionFailed,
    inequivalent,
    named,
    render_argument,
    type_word,
)
from warren_wire.queue_values.config import (
    DEDUPLICATION_WINDOW_MAX,
    QueueConfig,
)

NAME_BYTES_MAX: Final = 255
DURATION_MS_MAX: Final = 315_360_000_000
"""Ten years: the bound of every time-to-live."""
GROUP_SIZE_MAX: Final = 9
"""Members of one queue; a larger initial size is cut to it, as to the number of nodes."""
ARGUMENT_NUMBER_MIN: Final = -(1 << 63)
ARGUMENT_NUMBER_MAX: Final = (1 << 64) - 1
"""A timestamp of AMQP 0.9.1 or an ulong of 1.0 may have it."""
ARGUMENT_DEPTH_MAX: Final = 128
"""More than any decoder accepts: a bound for values built here."""

Check: TypeAlias = Callable[[Any, Mapping[str, Any]], str | None]
"""Takes (value, all arguments), returns what is wrong with it; None: nothing."""
Kind: TypeAlias = Literal["quorum", "classic"]
DefaultType: TypeAlias = Literal["replicated", "quorum", "classic"]
"""What durable queues are that name no type; replicated: classic ones with several members."""


# ------------------------------------------------------------------ values


def storable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition's arguments as plain values; raises PreconditionFailed.

    Definitions are stored as text, so every name must be valid text: encoding a name that is not
    UTF-8 would crash the node. A number has at most 64 bits: no answer over AMQP 1.0 that shows a
    larger one can be encoded, and a list of all queues would be refused for one.
    """
    given: dict[str, Any] = plain(arguments)
    _check_stored(given)
    return given


def _check_stored(value: Any) -> None:
    if isinstance(value, int) and not ARGUMENT_NUMBER_MIN <= value <= ARGUMENT_NUMBER_MAX:
        raise PreconditionFailed(
            f"an argument's number {value} is not from {ARGUMENT_NUMBER_MIN} to "
            f"{ARGUMENT_NUMBER_MAX}"
        )
    if isinstance(value, list):
        for item in value:
            _check_stored(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            try:
                name.encode()
            except UnicodeEncodeError:
                shown = name.encode("utf-8", "surrogateescape")
                raise PreconditionFailed(
                    f"argument name {shown!r} is not UTF-8; give a name that is"
                ) from None
            _check_stored(item)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a field's value as MessagePack types: without type octets, decimals as strings."""
    if depth > ARGUMENT_DEPTH_MAX:
        raise PreconditionFailed(f"arguments are nested deeper than {ARGUMENT_DEPTH_MAX} levels")
    if isinstance(value, Field):
        return plain(value.value, depth + 1)
    if isinstance(value, Timestamp):
        return int(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, Decimal):
        return str(value)
    raise PreconditionFailed(f"an argument of type {type(value).__name__} cannot be stored")


# ------------------------------------------------------------------ checks


def integer(minimum: int | None = 0, maximum: int | None = None) -> Check:
    """Return a check for an integer within bounds."""

    def check(value: Any, _: Mapping[str, Any]) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return f'"expected integer, got {type_word(value)}"'
        if minimum is not None and value < minimum:
            if value == 0:
                return f"{{value_zero,{value}}}"
            return f"{{value_negative,{value}}}"
        if maximum is not None and value > maximum:
            too_long = maximum == DURATION_MS_MAX
            return f"{{{'value_too_large' if too_long else 'max_value_exceeded'},{value}}}"
        return None

    return check


def _typed(kind: type) -> Check:
    """Return a check for a type."""

    def check(value: Any, _: Mapping[str, Any]) -> str | None:
        return None if isinstance(value, kind) else f"{{unacceptable_type,{type_word(value)}}}"

    return check


boolean: Final = _typed(bool)
string: Final = _typed(str)


def one_of(choices: tuple[object, ...], otherwise: str, typed: Check = string) -> Check:
    """Return a check for one of some words; `{value}` in the text is the one given."""

    def check(value: Any, arguments: Mapping[str, Any]) -> str | None:
        problem = typed(value, arguments)
        if problem is None and value not in choices:
            problem = otherwise.format(value=value)
        return problem

    return check


def _dead_letter_routing_key(value: Any, arguments: Mapping[str, Any]) -> str | None:
    problem = string(value, arguments)
    if problem is None and "x-dead-letter-exchange" not in arguments:
        problem = "routing_key_but_no_dlx_defined"
    if problem is None and len(value.encode()) > NAME_BYTES_MAX:
        problem = f"{{routing_key_too_long,{len(value.encode())}}}"
    return problem


def _anything(value: Any, arguments: Mapping[str, Any]) -> str | None:
    """Accept what RabbitMQ does not look at in a declaration; without a meaning it is ignored."""
    return None


# ------------------------------------------------------------------ the table


@dataclass(frozen=True, slots=True)
class Argument:
    """A supported argument.

    at        the operation it belongs to
    compared  a declaration that differs in it is not equivalent
    only      the kind of queue it is for, and refused for others, as in RabbitMQ; None: both. Where
              no type is named, one for quorum queues asks for such a queue
    """

    name: str
    check: Check
    at: Literal["declare", "consume"] = "declare"
    compared: bool = True
    only: Kind | None = None


_DURATION: Final = integer(0, DURATION_MS_MAX)
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")
_MODES: Final = ("default", "lazy")
_TYPES: Final = ("quorum", "classic", "", "undefined")
_VERSION: Final = one_of((1, 2), "\"unsupported queue version '{value}'\"", integer())
RETRY_TYPES: Final = ("all", "failed", "returned")
_STRATEGIES: Final = ("at-most-once", "at-least-once")
TARGET_SIZE: Final = "x-quorum-target-group-size"

TABLE: Final[tuple[Argument, ...]] = (
    Argument("x-queue-type", one_of(_TYPES, "\"unsupported queue type '{value}'\"")),
    Argument("x-expires", integer(1, DURATION_MS_MAX)),
    Argument("x-message-ttl", _DURATION),
    Argument("x-dead-letter-exchange", string),
    Argument("x-dead-letter-routing-key", _dead_letter_routing_key),
    Argument("x-dead-letter-strategy", one_of(_STRATEGIES, "invalid_dlx_strategy"), only="quorum"),
    Argument("x-max-length", integer()),
    Argument("x-max-length-bytes", integer()),
    Argument("x-max-in-memory-length", integer(), compared=False),
    Argument("x-max-in-memory-bytes", integer(), compared=False),
    Argument("x-max-priority", integer(0, 255)),
    Argument("x-overflow", one_of(_OVERFLOWS, "invalid_overflow")),
    Argument("x-single-active-consumer", boolean),
    Argument("x-delivery-limit", integer(None)),
    Argument("x-consumer-timeout", _DURATION),
    Argument("x-consumer-disconnected-timeout", _DURATION),
    Argument("x-quorum-initial-group-size", integer(1), only="quorum"),
    Argument(TARGET_SIZE, integer(1, GROUP_SIZE_MAX), compared=False, only="quorum"),
    Argument("x-queue-leader-locator", one_of(_LOCATORS, "invalid_queue_locator_arg")),
    Argument("x-queue-master-locator", string, compared=False, only="classic"),
    Argument("x-queue-mode", one_of(_MODES, "invalid_queue_mode"), compared=False, only="classic"),
    Argument("x-queue-version", _VERSION, compared=False, only="classic"),
    Argument("x-delayed-retry-type", _anything, only="quorum"),
    Argument("x-delayed-retry-min", _anything, only="quorum"),
    Argument("x-delayed-retry-max", _anything, only="quorum"),
    Argument("x-deduplication", boolean),
    Argument("x-deduplication-window", integer(1, DEDUPLICATION_WINDOW_MAX)),
    Argument("x-deduplication-ttl", integer(1, DURATION_MS_MAX)),
    Argument("x-priority", integer(None), at="consume"),
    Argument("x-consumer-timeout", _DURATION, at="consume"),
    Argument("x-cancel-on-ha-failover", boolean, at="consume"),
    Argument(relay_names.ARGUMENT, string, at="consume"),
)
DECLARED: Final = {row.name: row for row in TABLE if row.at == "declare"}
"""The arguments of declarations."""
FIELDS: Final = {
    name: field
    for name in DECLARED
    for field in QueueConfig.__struct_fields__
    if field.removesuffix("_ms").replace("_", "-") == name.removeprefix("x-")
}
"""The field of QueueConfig that an argument sets: it has the argument's name, with a unit."""
STREAM_ONLY: Final = (
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
)
"""Arguments of streams only; refused by name, as RabbitMQ does for its other queue types."""


def _check(arguments: Mapping[str, Any], at: str, kind: Kind, what: str) -> None:
    foreign = STREAM_ONLY if at == "declare" else ("x-stream-offset",)
    of_others = [row.name for row in TABLE if row.at == at and row.only not in (None, kind)]
    for name in (*of_others, *foreign):
        if name in arguments:
            raise InvalidArgument(
                f"invalid arg '{name}' for {what} of queue type rabbit_{kind}_queue"
            )
    for row in TABLE:
        if row.at != at or row.name not in arguments:
            continue
        problem = row.check(arguments[row.name], arguments)
        if problem is not None and row.name == "x-dead-letter-exchange":
            word = type_word(arguments[row.name])
            raise InvalidArgument(f"invalid type '{word}' for arg '{row.name}' in {what}")
        if problem is not None:
            raise InvalidArgument(f"invalid arg '{row.name}' for {what}: {problem}")
    if at == "declare" and kind == "quorum" and arguments.get("x-overflow") == _OVERFLOWS[2]:
        raise InvalidArgument(
            f"invalid arg 'x-overflow' for {what}: quorum queues have no {_OVERFLOWS[2]}; give "
            "drop-head or reject-publish"
        )


# ------------------------------------------------------------------ declarations


class QueueDefaults(msgspec.Struct, frozen=True):
    """The node's defaults for queue settings; times in milliseconds."""

    kind: DefaultType = "replicated"
    group_size: int = 3
    leader_locator: str = "client-local"
    consumer_timeout_ms: int | None = None
    consumer_disconnected_timeout_ms: int = 60_000

    def of_type(self, wanted: str) -> QueueDefaults:
        """Return the defaults with that type for durable queues; unchanged unless it is one."""
        if wanted not in ("replicated", "quorum", "classic"):
            return self
        return msgspec.structs.replace(self, kind=wanted)


class QueueDeclaration(msgspec.Struct, frozen=True):
    """A checked declaration.

    arguments       as given, as plain values
    group_size      number of nodes that should have a member
    leader_locator  client-local or balanced
    by_default      its type, which the declaration has not named: that of an argument, or of the
                    vhost or node; "": it has named it, or there is none
    """

    config: QueueConfig
    arguments: dict[str, Any]
    group_size: int
    leader_locator: str
    by_default: str = ""


def queue_declaration(
    vhost: str,
    name: str,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Mapping[str, Any],
    defaults: QueueDefaults,
) -> QueueDeclaration:
    """Check a declaration's flags and arguments.

    Raises InvalidArgument, PreconditionFailed. An exclusive queue is never durable, as in RabbitMQ.
    A durable auto-delete queue is no quorum queue by default, and is refused when it asks to be
    one: RabbitMQ has them as classic queues only.
    """
    check_name("queue", name)
    given = storable(arguments)
    what = named("queue", name, vhost)
    durable = durable and not exclusive
    asked = given.get("x-queue-type")
    type_of = _type_of(durable, auto_delete, given, defaults.kind)
    kind: Kind = "quorum" if type_of == "quorum" else "classic"
    _check(given, "declare", kind, what)
    if asked == "quorum" and (auto_delete or not durable):
        flaw = "auto-delete" if auto_delete else "exclusive-owner" if exclusive else "non-durable"
        raise PreconditionFailed(f"invalid property '{flaw}' for {what}")
    size = given.get("x-quorum-initial-group-size", defaults.group_size)
    locator = given.get("x-queue-leader-locator", defaults.leader_locator)
    config = QueueConfig(
        vhost=vhost,
        name=name,
        kind=kind,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        replicated=type_of == "replicated",
        **_settings(kind, given, defaults),
    )
    return QueueDeclaration(
        config=config,
        arguments=given,
        group_size=size if config.several else 1,
        leader_locator="client-local" if locator == "client-local" else "balanced",
        by_default=kind if durable and asked != kind and not config.replicated else "",
    )


def _type_of(
    durable: bool, auto_delete: bool, given: Mapping[str, Any], default: DefaultType
) -> DefaultType:
    """Return what a queue is by its declaration and the default type."""
    asked = given.get("x-queue-type")
    if asked == "quorum" or asked == "classic" or not durable:
        return "quorum" if asked == "quorum" else "classic"
    if auto_delete:
        return "classic" if default == "classic" else "replicated"
    of_quorum = any(row.only == "quorum" and name in given for name, row in DECLARED.items())
    return "quorum" if of_quorum and default == "replicated" else default


def _settings(kind: Kind, given: dict[str, Any], defaults: QueueDefaults) -> dict[str, Any]:
    """Return the fields of QueueConfig that arguments say, or the node's defaults."""
    found = {
        "delivery_limit": 20 if kind == "quorum" else -1,
        "consumer_timeout_ms": defaults.consumer_timeout_ms,
        "consumer_disconnected_timeout_ms": defaults.consumer_disconnected_timeout_ms,
        **{field: given[name] for name, field in FIELDS.items() if name in given},
    }
    found["delivery_limit"] = max(-1, found["delivery_limit"])
    asked = given.get("x-max-priority")
    found["priority_max"], found["priority_default"] = _priorities(kind, asked)
    return {**found, **delayed_retry(kind, given)}


def delayed_retry(kind: Kind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of QueueConfig for the effective delayed retry.

    As in RabbitMQ, delayed retry is disabled when its type is not a known word or its minimum is
    not a positive integer, and a maximum that is no positive integer counts as not given.
    """
    asked, least = given.get("x-delayed-retry-type"), given.get("x-delayed-retry-min")
    most = given.get("x-delayed-retry-max")
    if kind != "quorum" or not _is_positive(least) or asked not in RETRY_TYPES:
        asked, least, most = "disabled", None, None
    return {
        "delayed_retry_type": asked,
        "delayed_retry_min_ms": least,
        "delayed_retry_max_ms": most if _is_positive(most) else None,
    }


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _priorities(kind: Kind, asked: int | None) -> tuple[int, int]:
    """Return (highest priority, that of messages without one), RabbitMQ's values per kind."""
    if asked is not None:
        return min(asked, PRIORITY_MAX), 0
    return (PRIORITY_MAX, PRIORITY_DEFAULT) if kind == "quorum" else (0, 0)


def check_name(what: str, name: str) -> None:
    """Raise PreconditionFailed when a queue's or exchange's name is longer than 255 bytes."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > NAME_BYTES_MAX:
        raise PreconditionFailed(
            f"{what} name of {size} bytes '{name[:40]}…': at most {NAME_BYTES_MAX} are allowed; "
            "give a shorter one"
        )


_CONSUMER_ARGUMENTS: Final = {
    "priority": "x-priority",
    "timeout_ms": "x-consumer-timeout",
    "cancel_on_failover": "x-cancel-on-ha-failover",
    "relay": relay_names.ARGUMENT,
}


class ConsumeArguments(msgspec.Struct, frozen=True, omit_defaults=True, rename=_CONSUMER_ARGUMENTS):
    """A consumer's arguments, by their names; timeout_ms None: the queue's.

    cancel_on_failover  cancel it when another node begins to lead the queue
    relay               name of the relay that it is; "": none
    """

    priority: int = 0
    timeout_ms: int | None = None
    cancel_on_failover: bool = False
    relay: str = ""

    def shown(self) -> dict[str, Any]:
        """Return those that are not as without arguments, by their names."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown


def consume_arguments(
    vhost: str, queue: str, kind: Kind, arguments: Mapping[str, Any]
) -> ConsumeArguments:
    """Check basic.consume's arguments; raises InvalidArgument.

    kind  `quorum` for a queue of which that was asked, else `classic`
    """
    if not arguments:
        return ConsumeArguments()
    given: dict[str, Any] = plain(arguments)
    _check(given, "consume", kind, named("queue", queue, vhost))
    return msgspec.convert(given, ConsumeArguments)


# ------------------------------------------------------------------ equivalence

_COMPARED: Final = tuple(name for name, row in DECLARED.items() if row.compared)
_COMPARED_RELAXED: Final = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-single-active-consumer",
    "x-message-ttl",
)
"""What a relaxed check compares: the arguments that both kinds have, as in RabbitMQ."""


def is_relaxed(kind: Kind, received: Mapping[str, Any]) -> bool:
    """Return whether a repeated declaration asks for a classic queue and finds a quorum queue."""
    return kind == "quorum" and received.get("x-queue-type") == "classic"


def check_equivalent_arguments(
    vhost: str,
    name: str,
    kind: Kind,
    current: Mapping[str, Any],
    received: Mapping[str, Any],
    relaxed: bool = False,
) -> None:
    """Raise PreconditionFailed when a repeated declaration differs from the queue.

    A repeat without x-queue-type agrees with either kind.
    """
    for argument in _COMPARED_RELAXED if relaxed else _COMPARED:
        there, asked = current.get(argument), received.get(argument)
        if argument == "x-queue-type":
            there = kind
            asked = kind if asked in (None, "", "undefined") else asked
        if there != asked or type(there) is not type(asked):
            raise inequivalent(
                argument, "queue", name, vhost, render_argument(asked), render_argument(there)
            )
