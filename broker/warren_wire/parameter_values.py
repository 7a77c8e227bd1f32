"""The components of runtime parameters, and what their values may be.

The keys, types and refusals are RabbitMQ's. What else a shovel needs in order to run is in
`shovel.definition`; what a federated queue makes of its upstreams is in `federation.upstreams`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from warren_wire.errors import InvalidArgument
from warren_wire.policy_keys import erlang, validation_failed

FEDERATION_UPSTREAM: Final = "federation-upstream"
FEDERATION_UPSTREAM_SET: Final = "federation-upstream-set"
SHOVEL: Final = "shovel"
PAUSED_KEY: Final = "paused"
"""Key of a shovel that does not run; not one of RabbitMQ's."""
COMPONENTS: Final = (FEDERATION_UPSTREAM, FEDERATION_UPSTREAM_SET, SHOVEL)
"""Components of parameters that can be set; operator policies have commands of their own."""
INTEGER_BITS_MAX: Final = 64
PARAMETER_NUMBER_MIN: Final = -(1 << 63)
PARAMETER_NUMBER_MAX: Final = (1 << 63) - 1

_Check: TypeAlias = Callable[[str, object], str | None]
"""Takes (key, value), returns what is wrong with it; None: nothing."""


def _number(key: str, value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{key} should be a number, actually was {erlang(value)}"
    return None


def _text(key: str, value: object) -> str | None:
    if not isinstance(value, str):
        return f"{key} should be binary, actually was {erlang(value)}"
    return None


def _flag(key: str, value: object) -> str | None:
    if not isinstance(value, bool):
        return f"{key} should be boolean, actually was {erlang(value)}"
    return None


def _addresses(key: str, value: object) -> str | None:
    given = value if isinstance(value, list) else [value]
    if given and all(isinstance(one, str) for one in given):
        return None
    return f"{key} should be a URI or a list of URIs"  # not shown: it may contain a password


def _word(*words: str) -> _Check:
    def check(key: str, value: Any) -> str | None:
        if value not in words:
            return f"{key} should be one of {', '.join(words)}, actually was {erlang(value)}"
        return None

    return check


def _anything(key: str, value: object) -> str | None:
    return None


_ACK_MODE: Final = _word("no-ack", "on-publish", "on-confirm")
_SHARED: Final[Mapping[str, _Check]] = {
    "exchange": _text,
    "queue": _text,
    "consumer-tag": _text,
    "prefetch-count": _number,
    "reconnect-delay": _number,
    "max-hops": _number,
    "expires": _number,
    "message-ttl": _number,
    "trust-user-id": _flag,
    "ack-mode": _ACK_MODE,
    "ha-policy": _text,
    "queue-type": _word("classic", "quorum"),
    "bind-nowait": _flag,
    "resource-cleanup-mode": _word("default", "never"),
    "channel-use-mode": _word("multiple", "single"),
}
_UPSTREAM: Final = {"uri": _addresses, **_SHARED}
_SET_MEMBER: Final = {"upstream": _text, **_SHARED}
_SHOVEL: Final[Mapping[str, _Check]] = {
    "src-uri": _addresses,
    "dest-uri": _addresses,
    "src-protocol": _word("amqp091", "amqp10", "local"),
    "dest-protocol": _word("amqp091", "amqp10", "local"),
    "src-queue": _text,
    "src-exchange": _text,
    "src-exchange-key": _text,
    "src-address": _text,
    "src-prefetch-count": _number,
    "dest-queue": _text,
    "dest-exchange": _text,
    "dest-exchange-key": _text,
    "dest-address": _text,
    "dest-add-forward-headers": _flag,
    "dest-add-timestamp-header": _flag,
    "prefetch-count": _number,
    "reconnect-delay": _number,
    "add-forward-headers": _flag,
    "ack-mode": _ACK_MODE,
    PAUSED_KEY: _flag,
}
_SHOVEL_OTHERS: Final = ("src-", "dest-", "delete-after", "publish-properties", "publish-fields")
"""More keys of shovels begin so; which there are depends on the protocols."""


def check_parameter(component: str, name: str, value: object) -> None:
    """Raise InvalidArgument unless a parameter can be set."""
    if component not in COMPONENTS:
        raise validation_failed(
            f"component '{component}' not found; known are {', '.join(COMPONENTS)}"
        )
    check_json(value)
    if component == FEDERATION_UPSTREAM_SET:
        if not isinstance(value, list):
            raise validation_failed(f"{name} should be list, actually was {erlang(value)}")
        for each in value:
            _check_keys(name, each, _SET_MEMBER, ("upstream",))
    elif component == FEDERATION_UPSTREAM:
        _check_keys(name, value, _UPSTREAM, ("uri",))
    else:
        _check_keys(name, value, _SHOVEL, ("src-uri", "dest-uri"), _SHOVEL_OTHERS)


def _check_keys(
    name: str,
    value: object,
    known: Mapping[str, _Check],
    required: tuple[str, ...],
    others: tuple[str, ...] = (),
) -> None:
    if not isinstance(value, dict):
        raise validation_failed(f"{name} should be a JSON object, actually was {erlang(value)}")
    for key in required:
        if key not in value:
            raise validation_failed(f'Key "{key}" not found in {name}')
    unknown = sorted(
        key for key in value if key not in known and not key.startswith(others or "\0")
    )
    if unknown:
        raise validation_failed(f"Unrecognised terms [{', '.join(unknown)}] in {name}")
    for key in sorted(value):
        problem = known.get(key, _anything)(key, value[key])
        if problem is not None:
            raise validation_failed(problem)


def check_json(value: object, most: int = PARAMETER_NUMBER_MAX) -> None:
    """Raise InvalidArgument for a number that cannot be stored: above `most`, or below -2^63."""
    if isinstance(value, dict):
        for item in value.values():
            check_json(item, most)
    elif isinstance(value, list):
        for item in value:
            check_json(item, most)
    elif isinstance(value, int) and not isinstance(value, bool):
        if not PARAMETER_NUMBER_MIN <= value <= most:
            raise InvalidArgument(f"the number {value} does not fit into {INTEGER_BITS_MAX} bits")
