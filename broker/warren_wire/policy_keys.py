"""The keys of policies: which are known, their values, how they meet each other and arguments.

Values are checked by the argument with the same meaning (`arguments.DECLARED`). Names, refusals and
rules are RabbitMQ's; a key that would have no effect here is refused like an unknown one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from warren_wire import arguments, mirror_keys
from warren_wire.arguments import Check, Kind, QueueDeclaration
from warren_wire.errors import InvalidArgument
from warren_wire.name_patterns import BadPattern, Pattern
from warren_wire.queue_values.config import QueueConfig

Definition: TypeAlias = Mapping[str, Any]
APPLY_TO: Final = ("all", "exchanges", "queues", "classic_queues", "quorum_queues")
POLICY_PRIORITY_MAX: Final = (1 << 31) - 1
"""Bound of a policy's priority, on both sides of 0."""
Choose: TypeAlias = Callable[[Any, Any], Any]


def lower_limit(one: Any, other: Any) -> Any:
    """Return the lower of two delivery limits; a negative one is none, and gives way."""
    return max(one, other) if one < 0 or other < 0 else min(one, other)


def _first(one: Any, other: Any) -> Any:
    return one


def _second(one: Any, other: Any) -> Any:
    return other


def _lower_number(policy: Any, argument: Any) -> Any:
    """Return the lower one; an argument that is no number (a declaration accepts it) is higher."""
    if isinstance(argument, bool) or not isinstance(argument, int | float):
        return policy
    return min(policy, argument)


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """A key of a policy's definition.

    check    of its values; None: that of the argument
    what     for the refusal of a value: "-1 is not a valid maximum length"; "": `mirror_keys`
             checks it, together with others
    against  the effective value of (policy's, argument's), where both are set
    merge    the effective value of (policy's, operator policy's); None: not allowed in operator
             policies
    only     the kind of queue it is for: a policy with it does not apply to queues that others
             have asked to be of another one
    """

    name: str
    what: str
    against: Choose
    merge: Choose | None = None
    only: Kind | None = None
    check: Check | None = None


_RETRY_TYPES: Final = (*arguments.RETRY_TYPES, "disabled")
_RETRY: Final = (
    PolicyKey(
        "delayed-retry-type",
        f"delayed retry type. Must be one of: {', '.join(_RETRY_TYPES)}",
        _first,
        _second,
        check=arguments.one_of(_RETRY_TYPES, "invalid"),
    ),
    PolicyKey(
        "delayed-retry-min",
        "delayed retry minimum delay. Must be a positive integer",
        _lower_number,
        max,
        check=arguments.integer(1),
    ),
    PolicyKey(
        "delayed-retry-max",
        "delayed retry maximum delay. Must be a positive integer",
        _lower_number,
        min,
        check=arguments.integer(1),
    ),
)

FEDERATION_KEYS: Final = (
    "federation-upstream",
    "federation-upstream-set",
    "federation-upstream-pattern",
)
"""Keys of federated queues; a policy has one of them."""

KEYS: Final[Mapping[str, PolicyKey]] = {
    key.name: key
    for key in (
        PolicyKey("max-length", "maximum length", min, min),
        PolicyKey("max-length-bytes", "maximum length in bytes", min, min),
        PolicyKey("overflow", "overflow value", _first, _second),
        PolicyKey("expires", "queue expiry", min, min),
        PolicyKey("message-ttl", "message TTL", min, min),
        PolicyKey("dead-letter-exchange", "dead letter exchange name", _second),
        PolicyKey("dead-letter-routing-key", "dead letter routing key", _second),
        PolicyKey("dead-letter-strategy", "dead letter strategy", _second, only="quorum"),
        PolicyKey("delivery-limit", "delivery limit", lower_limit, lower_limit, "quorum"),
        PolicyKey("consumer-timeout", "consumer timeout", min),
        PolicyKey("consumer-disconnected-timeout", "consumer disconnected timeout", min),
        PolicyKey("queue-leader-locator", "queue leader locator value", _first),
        PolicyKey("target-group-size", "qq target count value", max, max, only="quorum"),
        PolicyKey("alternate-exchange", "alternate exchange name", _second),
        *_RETRY,
        PolicyKey("deduplication", "deduplication value", _first, _second),
        PolicyKey("deduplication-window", "deduplication window", min, min),
        PolicyKey("deduplication-ttl", "deduplication ttl", min, min),
        *(PolicyKey(name, "federation upstream", _first) for name in FEDERATION_KEYS),
        # Historical ones, accepted without effect.
        PolicyKey("queue-mode", "queue-mode value", _second, only="classic"),
        PolicyKey("queue-version", "queue-version value", _second, _second),
        PolicyKey("max-in-memory-length", "maximum memory in bytes", min, min, only="quorum"),
        PolicyKey("max-in-memory-bytes", "maximum memory in bytes", min, min, only="quorum"),
        PolicyKey(mirror_keys.MODE, "", _first, mirror_keys.merge_mode),
        PolicyKey(mirror_keys.PARAMS, "", _first, mirror_keys.merge_params),
        PolicyKey("ha-sync-mode", "", _first, _second),
        PolicyKey("ha-sync-batch-size", "", _first),
        PolicyKey("ha-promote-on-shutdown", "", _first),
        PolicyKey("ha-promote-on-failure", "", _first),
        PolicyKey("queue-master-locator", "", _first),
    )
}
_OTHER_NAMES: Final = {"target-group-size": arguments.TARGET_SIZE}
ARGUMENTS: Final = {
    key: arguments.DECLARED[name]
    for key in KEYS
    if (name := _OTHER_NAMES.get(key, f"x-{key}")) in arguments.DECLARED
}
"""The argument with the same meaning, by the key."""
_ANY_EXCHANGE: Final = {"x-dead-letter-exchange": ""}
"""A routing key alone is valid in a policy: the exchange may be an argument of the queue."""


# ------------------------------------------------------------------ checks


def validation_failed(problem: str) -> InvalidArgument:
    """Return the refusal of a policy, as RabbitMQ words it."""
    return InvalidArgument(f"Validation failed\n\n{problem}")


def check_policy(
    name: str, pattern: str, definition: Definition, priority: int, apply_to: str, operator: bool
) -> None:
    """Raise InvalidArgument unless a policy can be set; for the submitter."""
    if abs(priority) > POLICY_PRIORITY_MAX:
        raise validation_failed(
            f"priority should be a number from -{POLICY_PRIORITY_MAX} to {POLICY_PRIORITY_MAX}, "
            f"actually was {priority}"
        )
    check_pattern(pattern)
    if apply_to not in APPLY_TO:
        raise validation_failed(
            f"apply-to '{apply_to}' unrecognised; should be one of: 'queues', 'classic_queues', "
            "'quorum_queues', 'exchanges', or 'all'"
        )
    if not definition:
        raise validation_failed("no policy provided")
    unknown = [
        key
        for key in sorted(definition)
        if key not in KEYS or (operator and KEYS[key].merge is None)
    ]
    if unknown:
        shown = ",".join(f'{{<<"{key}">>,{erlang(definition[key])}}}' for key in unknown)
        raise validation_failed(f"[{shown}] are not recognised policy settings")
    for key in sorted(definition):
        if KEYS[key].what:
            _check_value(KEYS[key], definition[key])
    _check_delays(definition)
    _check_federation(definition, apply_to)
    texts = {key: erlang(value) for key, value in definition.items()}
    problem = mirror_keys.problem_with(definition, texts)
    if problem is not None:
        raise validation_failed(problem)


def check_pattern(pattern: str, what: str = "pattern") -> None:
    """Raise InvalidArgument unless a pattern can be matched; for the submitter."""
    try:
        Pattern(pattern)
    except BadPattern as error:
        raise validation_failed(f"{what} {error}") from error


def _check_value(key: PolicyKey, value: Any) -> None:
    row = ARGUMENTS.get(key.name)
    check = key.check or (row.check if row is not None else None)
    problem = None
    if check is not None:
        problem = check(value, _ANY_EXCHANGE)
    elif not isinstance(value, str):
        problem = "a name is expected"
    if problem is not None:
        raise validation_failed(f"{erlang(value)} is not a valid {key.what}")


def _check_delays(definition: Definition) -> None:
    kind, least, most = (definition.get(key.name) for key in _RETRY)
    if kind not in (None, "disabled") and least is None:
        raise validation_failed(f"delayed-retry-min is required when delayed-retry-type is {kind}")
    if least is not None and most is not None and most < least:
        raise validation_failed(
            f"delayed-retry-max ({most}) must not be smaller than delayed-retry-min ({least})"
        )


def _check_federation(definition: Definition, apply_to: str) -> None:
    given = [key for key in FEDERATION_KEYS if key in definition]
    if not given:
        return
    if len(given) > 1:
        raise validation_failed(f"cannot specify {' and '.join(given)} together: give one of them")
    if given[0] == "federation-upstream-pattern":
        check_pattern(definition[given[0]], given[0])


def erlang(value: Any) -> str:
    """Return a value of JSON as RabbitMQ's texts show it."""
    if isinstance(value, str):
        return f'<<"{value}">>'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(erlang, value))}]"
    if isinstance(value, dict):
        return f"#{{{','.join(f'{erlang(key)} => {erlang(item)}' for key, item in value.items())}}}"
    return str(value)


# ------------------------------------------------------------------ which object, which value


def applies_to_queue(apply_to: str, definition: Definition, kind: str) -> bool:
    """Return whether a policy is for queues of that kind (`QueueConfig.followed_as`).

    A queue without a type is a classic one, and follows what is asked of it by
    keys for quorum queues, too.
    """
    named = "classic" if kind == "replicated" else kind
    if apply_to not in ("all", "queues", f"{named}_queues"):
        return False
    known = (KEYS[key].only for key in definition if key in KEYS)
    return kind == "replicated" or all(only in (None, kind) for only in known)


def applies_to_exchange(apply_to: str) -> bool:
    """Return whether a policy is for exchanges."""
    return apply_to in ("all", "exchanges")


def merged(definition: Definition, operator: Definition) -> dict[str, Any]:
    """Return the effective definition of a policy and an operator policy, sorted by key."""
    found = dict(definition)
    for key, value in operator.items():
        rule = KEYS.get(key)
        both = key in found and rule is not None and rule.merge is not None
        found[key] = rule.merge(found[key], value) if both and rule and rule.merge else value
    return {key: found[key] for key in sorted(found)}


def setting(key: str, definition: Definition, given: Mapping[str, Any]) -> Any:
    """Return a key's effective value for an object with these arguments; None: it has none.

    definition  the effective one
    """
    row = ARGUMENTS.get(key)
    asked = given.get(row.name if row is not None else key)
    if key not in definition:
        return asked
    return definition[key] if asked is None else KEYS[key].against(definition[key], asked)


def leader_locator(declared: QueueDeclaration, definition: Definition) -> str:
    """Return how the first leader of a new queue is chosen: `client-local` or `balanced`.

    The key and the argument for leaders go before those for masters, which are older; of each pair
    the key goes before the argument. As in RabbitMQ, every other word means `balanced`.
    """
    given = declared.arguments
    found = (
        setting("queue-leader-locator", definition, given)
        or setting("queue-master-locator", definition, given)
        or declared.leader_locator
    )
    return "client-local" if found == "client-local" else "balanced"


def effective_config(
    config: QueueConfig, given: Mapping[str, Any], definition: Definition
) -> QueueConfig:
    """Return a queue's settings under a policy.

    config  those of its declaration, from its arguments and the node's defaults
    given   its arguments
    """
    changed: dict[str, Any] = {}
    for name in definition:
        row = ARGUMENTS.get(name)
        if row is not None and row.name in arguments.FIELDS:
            changed[arguments.FIELDS[row.name]] = setting(name, definition, given)
    if "overflow" in definition and "x-overflow" in given and config.kind == "classic":
        changed["overflow"] = given["x-overflow"]  # quorum queues take the policy's, these do not
    if config.kind == "quorum" and changed.get("overflow") == "reject-publish-dlx":
        changed["overflow"] = "drop-head"  # they do not have it, and take the default
    if "delivery_limit" in changed:
        changed["delivery_limit"] = max(-1, changed["delivery_limit"])
    if any(key.name in definition for key in _RETRY):
        delays = {f"x-{key.name}": setting(key.name, definition, given) for key in _RETRY}
        changed |= arguments.delayed_retry(config.kind, delays)
    return msgspec.structs.replace(config, **changed) if changed else config
