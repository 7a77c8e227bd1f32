"""Which upstreams a queue has under its policy, and the transfer that each link makes.

Names and defaults are RabbitMQ's. Nothing here reads more than the definitions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from warren_machines.metadata.records import Exchange, Parameter
from warren_machines.metadata.state import Scope
from warren_wire.arguments import NAME_BYTES_MAX
from warren_wire.errors import InvalidArgument
from warren_wire.links.definition import ShovelEnd, parse_shovel
from warren_wire.name_patterns import BadPattern, NameMatcher, Pattern
from warren_wire.parameter_values import FEDERATION_UPSTREAM, FEDERATION_UPSTREAM_SET, SHOVEL
from warren_wire.policy_keys import FEDERATION_KEYS

EVERY_UPSTREAM: Final = "all"
"""The set of all upstreams of a vhost, which needs no parameter."""
LINK_PRIORITY: Final = -1
"""Of a link's consumer: whatever consumes from the upstream queue by default comes first."""
LINK_RECONNECT_DELAY_S: Final = 5
LINK_QUEUE_TYPE: Final = "classic"
"""Of the queue that a link of an exchange has upstream."""
CONSUMER_TAG: Final = "federation-link"
_LINK_QUEUE_BYTES_MAX: Final = NAME_BYTES_MAX - len(" 1")
"""The exchange before the queue has its name and a number (`upstream_exchange.NUMBERS`)."""
Parameters = Mapping[tuple[str, str], Parameter]
"""Of a vhost, by component and name."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """An upstream with what its set overrides.

    value  keys of `federation-upstream`
    user   the user that has set it, see `records.Parameter`
    """

    name: str
    value: Mapping[str, Any]
    user: str | None = None

    def exchange(self, local: str) -> str:
        """Return the upstream's exchange for an exchange of this cluster."""
        return str(self.value.get("exchange") or local)

    def queue(self, local: str) -> str:
        """Return the upstream's queue for a queue of this cluster."""
        return str(self.value.get("queue") or local)


def upstreams_of(parameters: Parameters, policy: Mapping[str, Any]) -> list[Upstream]:
    """Return the upstreams under an effective policy, by name; names without one are left out."""
    key = next((key for key in FEDERATION_KEYS if key in policy), None)
    if key is None:
        return []
    asked = policy[key]
    every = {name for component, name in parameters if component == FEDERATION_UPSTREAM}
    if key == "federation-upstream":
        chosen: list[tuple[str, Mapping[str, Any]]] = [(asked, {})]
    elif key == "federation-upstream-pattern":
        chosen = [(name, {}) for name in _matching(asked, tuple(sorted(every)))]
    else:
        of_set = parameters.get((FEDERATION_UPSTREAM_SET, asked))
        if of_set is not None:
            chosen = [(one["upstream"], one) for one in of_set.value]
        else:
            chosen = [(name, {}) for name in every] if asked == EVERY_UPSTREAM else []
    found = {}
    for name, more in chosen:
        if name in every:
            given = parameters[FEDERATION_UPSTREAM, name]
            found[name] = Upstream(name, {**given.value, **more}, given.user)
    return [found[name] for name in sorted(found)]


@lru_cache(maxsize=16)  # asked for each queue under a policy; names have at most 255 KB
def _matching(pattern: str, names: tuple[str, ...]) -> tuple[str, ...]:
    try:
        matcher = NameMatcher([Pattern(pattern)])
    except BadPattern:
        return ()  # refused when it is set; one of another version applies to nothing
    return tuple(name for name in names if matcher.first(name) is not None)


def transfer_of(upstream: Upstream, queue: str, own_uri: str) -> dict[str, Any]:
    """Return a link's transfer as the parameter of a shovel.

    own_uri  of the vhost of the federated queue on this node
    """
    value = upstream.value
    given = {
        "src-uri": value["uri"],
        "src-queue": upstream.queue(queue),
        "src-consumer-args": {"x-priority": LINK_PRIORITY},
        "dest-uri": own_uri,
        "dest-queue": queue,
        "dest-predeclared": True,
        "reconnect-delay": value.get("reconnect-delay", LINK_RECONNECT_DELAY_S),
    }
    for ours, theirs in (("ack-mode", "ack-mode"), ("src-prefetch-count", "prefetch-count")):
        if theirs in value:
            given[ours] = value[theirs]
    return given


def exchange_transfer_of(
    upstream: Upstream, exchange: str, for_whom: str, own_uri: str
) -> dict[str, Any]:
    """Return the transfer of an exchange's link as the parameter of a shovel.

    for_whom  names the federated exchange among all clusters
    own_uri   of its vhost on this node
    """
    value = upstream.value
    arguments = {"x-queue-type": value.get("queue-type", LINK_QUEUE_TYPE)}
    for ours, theirs in (("x-expires", "expires"), ("x-message-ttl", "message-ttl")):
        if theirs in value:
            arguments[ours] = value[theirs]
    given = transfer_of(upstream, "", own_uri)
    del given["dest-queue"], given["dest-predeclared"], given["src-consumer-args"]
    return {
        **given,
        "src-queue": link_queue_name(upstream.exchange(exchange), for_whom),
        "src-queue-args": arguments,
        "dest-exchange": exchange,
    }


def link_queue_name(exchange: str, for_whom: str) -> str:
    """Return the name of the queue that an exchange's link has upstream.

    One that no broker takes, because it is too long, ends with a digest of the whole name instead
    of `for_whom`, and has as much of the exchange's name as there is room for. It must be the same
    for each process of the link: what waits upstream is in the queue of that name.
    """
    name = f"federation: {exchange} -> {for_whom}".encode()
    if len(name) <= _LINK_QUEUE_BYTES_MAX:
        return name.decode()
    end = f" -> {hashlib.blake2b(name, digest_size=16).hexdigest()}"
    begin = f"federation: {exchange}".encode()[: _LINK_QUEUE_BYTES_MAX - len(end)]
    return begin.decode(errors="ignore") + end


def federated_exchange(scope: Scope, name: str) -> tuple[Exchange, Mapping[str, Any]] | None:
    """Return an exchange that has a policy of federation, and its policy."""
    exchange = scope.exchanges.get(name) if name else None
    if exchange is None or exchange.internal:
        return None
    definition = scope.policies.of_exchange(name).definition
    return (exchange, definition) if any(key in definition for key in FEDERATION_KEYS) else None


def has_upstreams(scope: Scope) -> bool:
    """Return whether a vhost has an upstream that a policy may name."""
    return any(component == FEDERATION_UPSTREAM for component, _ in scope.parameters)


def link_ends(parameter: Parameter) -> tuple[ShovelEnd, ...]:
    """Return the ends with the URIs of a valid parameter; none of one that is no link's."""
    if parameter.component == SHOVEL and parameter.vhost:
        shovel = parse_shovel(parameter.vhost, parameter.name, parameter.value)
        return shovel.source, shovel.destination
    if parameter.component != FEDERATION_UPSTREAM:
        return ()
    transfer = transfer_of(Upstream(parameter.name, parameter.value), "q", "amqp://far")
    return (parse_shovel(parameter.vhost, parameter.name, transfer).source,)


def check_upstream(name: str, value: Mapping[str, object]) -> None:
    """Raise InvalidArgument for values with which no link could run; after `check_parameter`."""
    transfer = transfer_of(Upstream(name, value), "q", "amqp://")
    transfer["dest-queue"] = f"not {transfer['src-queue']}"  # which queues it is for is not known
    try:
        parse_shovel("/", name, transfer)
    except InvalidArgument as refusal:
        raise InvalidArgument(refusal.detail.replace("src-", "")) from None
