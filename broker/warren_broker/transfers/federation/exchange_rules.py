"""What bindings and messages carry through federation, so that neither goes in circles.

Headers and arguments have RabbitMQ's names and form, so its brokers and these may be mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

RECEIVED_FROM: Final = "x-received-from"
"""The header in which federated messages carry where they were fetched from."""
VISITS: Final = "visit-count"
BOUND_FROM: Final = "x-bound-from"
"""Argument of a binding that a link has made: the exchanges that it is for, the latest first."""
MAX_HOPS: Final = 1
Bound = tuple[str, dict[str, Any]]
"""Routing key and arguments of a binding."""


@dataclass(frozen=True, slots=True)
class ClusterExchange:
    """An exchange as other clusters know it. Two clusters of the same name are not told apart."""

    cluster: str
    vhost: str
    exchange: str

    @property
    def shown(self) -> str:
        """Its name within its cluster, as bindings carry it."""
        return f"{self.vhost}:{self.exchange}"


@dataclass(frozen=True, slots=True)
class ExchangeLink:
    """What a link of a federated exchange is told by its node.

    here       the federated exchange
    exchange   the one upstream
    kind, durable, arguments
               with which it is declared where it does not exist
    max_hops   links that a message may have come through at most, this one included
    """

    here: ClusterExchange
    exchange: str
    kind: str
    durable: bool
    arguments: Mapping[str, Any]
    max_hops: int


def _tables(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def travelled(before: object, uri: str, queue: str, redelivered: bool) -> list[Any]:
    """Return the header's value after another hop, the latest first.

    before  the value that the message has; whatever is no list of tables is replaced
    uri     of the upstream, without user and password

    Each upstream queue has one entry, so that the header of a message that moves to and fro stays
    as short as the number of queues.
    """
    visits, others = 0, []
    for entry in _tables(before):
        if (entry.get("uri"), entry.get("queue")) == (uri, queue):
            counted = entry.get(VISITS)
            visits += counted if isinstance(counted, int) else 1
        else:
            others.append(entry)
    latest = {"uri": uri, "queue": queue, "redelivered": redelivered, VISITS: visits + 1}
    return [latest, *others]


def may_enter(before: object, here: ClusterExchange, max_hops: int) -> bool:
    """Return whether a message may come to an exchange through one more link.

    before  its header x-received-from: an entry for each exchange upstream that it came through
    """
    entries = _tables(before)
    return len(entries) < max_hops and not any(_is_at(entry, here) for entry in entries)


def _is_at(entry: Mapping[str, object], place: ClusterExchange) -> bool:
    return (entry.get("cluster-name"), entry.get("vhost"), entry.get("exchange")) == (
        place.cluster,
        place.vhost,
        place.exchange,
    )


def entered(
    before: object, uri: str, there: ClusterExchange, redelivered: bool
) -> list[dict[str, Any]]:
    """Return the header x-received-from after one more link, the latest entry first.

    uri    of the upstream, without user and password
    there  the exchange that it comes from
    """
    latest = {
        "uri": uri,
        "exchange": there.exchange,
        "vhost": there.vhost,
        "cluster-name": there.cluster,
        "redelivered": redelivered,
    }
    return [latest, *_tables(before)]


def passed_on(
    bindings: Iterable[Bound], here: ClusterExchange, there: ClusterExchange, max_hops: int
) -> dict[tuple[str, str], Bound]:
    """Return the bindings that a link makes upstream, by routing key and what they are for.

    bindings  of the federated exchange `here`
    there     the exchange upstream

    A binding that a link of another cluster has made here counts the hops that are left to it, and
    is not passed on to an exchange that it is for.
    """
    found = {}
    for routing_key, arguments in bindings:
        before = _tables(arguments.get(BOUND_FROM))
        hops = max_hops
        if before:
            left = before[0].get("hops")
            hops = min(max_hops, left - 1) if isinstance(left, int) else 0
            if any(_is_for(entry, there) for entry in before):
                hops = 0
        if hops <= 0:
            continue
        latest = {"cluster-name": here.cluster, "exchange": here.shown, "hops": hops}
        made = {**arguments, BOUND_FROM: [latest, *before]}
        found[routing_key, repr(sorted(made.items()))] = (routing_key, made)
    return found


def _is_for(entry: Mapping[str, object], place: ClusterExchange) -> bool:
    """Return whether an entry names a place; RabbitMQ adds a blank and a letter to the exchange."""
    exchange = entry.get("exchange")
    if entry.get("cluster-name") != place.cluster or not isinstance(exchange, str):
        return False
    return exchange == place.shown or exchange.startswith(f"{place.shown} ")
