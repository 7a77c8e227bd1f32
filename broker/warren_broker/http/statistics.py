"""`message_stats`, rates and samples of queues, exchanges, vhosts, clients and nodes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from warren_broker.counting.message_stats import (
    CHANNEL_COUNTED,
    COUNTED,
    EXCHANGE_COUNTED,
    HANDED_OUT,
    LENGTHS,
    OCTETS,
    VHOST_COUNTED,
)
from warren_broker.counting.pair_counts import PUBLISHER_COUNTED, ROUTE_COUNTED
from warren_broker.http.calls import HttpCall
from warren_broker.http.listing import columns_of
from warren_broker.http.samples import SUMS, KeptSamples, Range, Ranges, details
from warren_wire.admin.statistics import GetPairsRequest, GetStatisticsRequest

Answered: TypeAlias = Sequence[Any]
"""`admin.statistics.QueueStatistics`, as the node answers it."""
STATISTICS_KEYS: Final = frozenset(
    {
        *("message_stats", "consumer_capacity", "consumer_utilisation", "idle_since"),
        "publishers",
        *(f"{name}_details" for name in LENGTHS),
    }
)
"""Keys of a queue for which the nodes are asked."""
VHOST_STATISTICS_KEYS: Final = STATISTICS_KEYS.union(
    LENGTHS, OCTETS, [f"{name}_details" for name in OCTETS]
)
"""Those of a vhost."""
Pair: TypeAlias = Sequence[Any]
"""`admin.statistics.PairStatistics`, as the node answers it."""
PUBLISHERS: Final = 7
"""The place of the number of publishers in `Answered` of a queue."""
NO_RANGES: Final = Ranges()
_PAIR_NAMES: Final = {
    "deliveries": COUNTED,
    "publishes": PUBLISHER_COUNTED,
    "routes": ROUTE_COUNTED,
}
_OF_CONSUMERS: Final = COUNTED[1:]
_OF_PUBLISHERS: Final = (COUNTED[0], *CHANNEL_COUNTED[len(COUNTED) :])


def wants(call: HttpCall, key: str) -> bool:
    """Return whether a key of one object is shown that takes a question of its own."""
    if call.query.get("disable_stats") == "true":
        return False
    columns = columns_of(call.query)
    return columns is None or key in columns


def wants_statistics(call: HttpCall, keys: Iterable[str] = STATISTICS_KEYS) -> bool:
    """Return whether one of the keys is shown for which the nodes are asked."""
    return call.rates.on and any(wants(call, key) for key in keys)


async def statistics_of(
    call: HttpCall, asked: GetStatisticsRequest, vhost: str | None = None
) -> dict[str, Answered]:
    """Return statistics by name; what nothing has used has none."""
    return {str(one[0]): one for one in await call.get(asked, vhost=vhost)}


class Statistics:
    """What was counted of an object, each count with its rate and its samples.

    names   of the counts, in the order of counts, rates and samples; these have LENGTHS then
    counts, rates  empty: nothing was counted
    kept    samples of each node; summed: see `KeptSamples`
    """

    def __init__(
        self,
        counts: Sequence[int],
        rates: Sequence[float] = (),
        kept: Sequence[Any] = (),
        names: Sequence[str] = COUNTED,
        *,
        summed: bool = False,
    ) -> None:
        self._names = names
        self._counts = dict(zip(names, counts, strict=False))
        self._rates = dict(zip((*names, *LENGTHS), rates, strict=False))
        self._kept = KeptSamples(kept, summed, names)
        self._now_ms = round(time.time() * 1000)

    def shown(self, names: Iterable[str], wanted: Range | None) -> dict[str, Any]:
        """Return counts with their rates and, where they are wanted, samples."""
        found: dict[str, Any] = {}
        for name in names:
            parts = SUMS.get(name, (name,))
            points = None if wanted is None else self._kept.counts(name, wanted, self._now_ms)
            found[name] = sum(self._counts.get(part, 0) for part in parts)
            rate = sum(self._rates.get(part, 0.0) for part in parts)
            found[f"{name}_details"] = details(rate, points)
        return found

    def lengths(self, wanted: Range | None) -> dict[str, Any]:
        """Return the rates of LENGTHS and, where they are wanted, their samples."""
        found = {}
        for name in LENGTHS:
            points = None if wanted is None else self._kept.lengths(name, wanted, self._now_ms)
            found[f"{name}_details"] = details(self._rates.get(name, 0.0), points)
        return found

    def message_stats(self, wanted: Range | None) -> dict[str, Any]:
        """Return `message_stats` of an object with which something was done; else nothing.

        As in RabbitMQ, what nothing was published to has no `publish`, and what nothing was asked
        for has none of consumers' counts; an exchange has those that are not 0.
        """
        names: list[str] = []
        if self._names == EXCHANGE_COUNTED:
            names += [name for name in EXCHANGE_COUNTED if self._counts.get(name)]
        if self._counts.get("publish"):
            names += [name for name in _OF_PUBLISHERS if name in self._names]
        if any(self._counts.get(name) for name in _OF_CONSUMERS):
            names += [*_OF_CONSUMERS, "deliver_get"]
        return {"message_stats": self.shown(names, wanted)} if names else {}


def of_queue(one: Answered | None, ranges: Ranges = NO_RANGES) -> dict[str, Any]:
    """Return the keys of a queue that its statistics give; None: it has none."""
    found = Statistics(*one[1:4]) if one is not None else Statistics(())
    rates, changed_ms, capacity = ((), 0, 0.0) if one is None else (one[2], *one[5:7])
    shown = dict.fromkeys(("consumer_capacity", "consumer_utilisation"), round(capacity, 2))
    return {
        **shown,
        **idle_since(rates, changed_ms),
        **found.lengths(ranges.lengths),
        **found.message_stats(ranges.msg_rates),
    }


async def pairs_of(call: HttpCall, vhost: str | None, **asked: Any) -> dict[str, list[Pair]]:
    """Return the pairs of a queue, an exchange or a connection's channel, by their kind.

    asked  of `GetPairsRequest`; in `rates_mode` `basic` there are none
    """
    found: dict[str, list[Pair]] = {"deliveries": [], "publishes": [], "routes": []}
    if call.rates.of_pairs:
        for one in await call.get(GetPairsRequest(**asked), vhost=vhost):
            found.setdefault(one[0], []).append(one)
    return found


def of_pair(one: Pair, vhost: str, without: str, wanted: Range | None) -> dict[str, Any]:
    """Return a pair's counts with their rates, and the ends of it but the one that is shown.

    without  "queue", "exchange" or "channel": as a part of which the pair is shown
    """
    kind, queue, exchange, channel, (_, counts, rates, kept, *_) = one
    known = Statistics(counts, rates, kept, _PAIR_NAMES[kind])
    ends: dict[str, Any] = {}
    if kind != "publishes" and without != "queue":
        ends["queue"] = {"name": queue, "vhost": vhost}
    if kind != "deliveries" and without != "exchange":
        ends["exchange"] = {"name": exchange, "vhost": vhost}
    if kind != "routes" and without != "channel":
        connection, number, node, user, host, port = channel
        ends["channel_details"] = {
            "name": f"{connection} ({number})",
            "number": number,
            "connection_name": connection,
            "node": node,
            "user": user,
            "peer_host": host,
            "peer_port": port,
        }
    names = (*_OF_CONSUMERS, "deliver_get") if kind == "deliveries" else _PAIR_NAMES[kind]
    return {**ends, "stats": known.shown(names, wanted if kept else None)}


def idle_since(rates: Sequence[float], changed_ms: int) -> dict[str, str]:
    """Return since when nothing has changed; nothing where something does, or never has."""
    if not changed_ms or any(rates):
        return {}
    when = datetime.fromtimestamp(changed_ms / 1000, UTC)
    return {"idle_since": when.isoformat(timespec="milliseconds")}


def of_exchange(one: Answered | None, wanted: Range | None = None) -> dict[str, Any]:
    """Return `message_stats` of an exchange; None: no client has published through it."""
    if one is None:
        return {}
    _, counts, rates, kept, *_ = one
    return Statistics(counts, rates, kept, EXCHANGE_COUNTED).message_stats(wanted)


def of_vhost(one: Answered | None, ranges: Ranges = NO_RANGES) -> dict[str, Any]:
    """Return lengths, octets and `message_stats` of a vhost; None: nothing is known of it."""
    if one is None:
        return {}
    _, counts, rates, kept, lengths, *_ = one
    found = Statistics(counts, rates, kept, VHOST_COUNTED, summed=True)
    return {
        **dict(zip(LENGTHS, lengths or (0,) * len(LENGTHS), strict=True)),
        **found.lengths(ranges.lengths),
        **found.shown(OCTETS, ranges.data_rates),
        **found.message_stats(ranges.msg_rates),
    }


def handed_out(counts: Sequence[int]) -> dict[str, int]:
    """Return a queue's counts but `publish`, with their sum `deliver_get`."""
    values = dict(zip(_OF_CONSUMERS, counts[1:], strict=True))
    return {**values, "deliver_get": sum(values[name] for name in HANDED_OUT)}
